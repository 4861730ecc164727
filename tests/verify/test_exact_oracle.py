"""The oracle is right itself: against ONNX Runtime, volumes, an integer program, known ranges, and by hand."""

from __future__ import annotations

import json
import math
from fractions import Fraction
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import helper, numpy_helper
from scipy.optimize import LinearConstraint, milp
from scipy.spatial import ConvexHull

from boundscope.properties import read_property
from support.exact_network import ExactNetwork
from support.exact_oracle import Case, Clause, Constraint, InputBox, Linear, least, violates, violation
from support.exact_polytope import Polytope, point_of
from support.models import save
from support.planted import ARCHITECTURES, planted

SEEDS = range(2 * len(ARCHITECTURES))


def floats(vertices: Polytope) -> np.ndarray:
    return np.array([[float(value) for value in point_of(vertex)] for vertex in vertices.vertices])


def volume(polytope: Polytope) -> float:
    """Over the inputs that are free in it."""
    points = floats(polytope)
    points = points[:, np.ptp(points, axis=0) > 0]
    if points.shape[1] == 0:
        return 1.0
    return float(np.ptp(points)) if points.shape[1] == 1 else float(ConvexHull(points).volume)


@pytest.mark.parametrize("seed", SEEDS)
def test_values_are_those_of_onnx_runtime(tmp_path: Path, seed: int) -> None:
    one = planted(seed, tmp_path)
    session = onnxruntime.InferenceSession(str(one.network), providers=["CPUExecutionProvider"])
    random = np.random.default_rng(seed)
    for _ in range(10):
        point = random.uniform(-1, 1, one.exact.inputs).astype(np.float32)
        (theirs,) = session.run(None, {"x": point.reshape(one.exact.input_shape)})
        ours = one.exact.evaluate([Fraction(float(value)) for value in point])
        scale = 1 + np.abs(theirs).max() * 64
        assert np.abs(theirs.reshape(-1) - np.array([float(value) for value in ours])).max() <= 1e-5 * scale


@pytest.mark.parametrize("seed", SEEDS)
def test_regions_fill_the_box_and_outputs_are_linear_on_each(tmp_path: Path, seed: int) -> None:
    one = planted(seed, tmp_path)
    box = one.cases[0].box.polytope()
    total = 0.0
    for region, forms in one.exact.regions(box):
        total += volume(region)
        points = [point_of(vertex) for vertex in region.vertices]
        for point in (*points[:3], region.middle()):
            values = [
                sum((a * b for a, b in zip(row, [*point, 1], strict=True)), Fraction(0)) / forms.denominator
                for row in forms.rows
            ]
            assert values == one.exact.evaluate(point)
    assert total == pytest.approx(volume(box), rel=1e-9)


def least_by_integer_program(path: Path, box: InputBox, output: int) -> float:
    """The least value of an output of Gemm and Relu in turn: a binary variable for each neuron (Tjeng et al. 2019)."""
    graph = onnx.load(path).graph
    constants = {one.name: numpy_helper.to_array(one).astype(float) for one in graph.initializer}
    lower, upper = (np.array([float(Fraction(text)) for text in ends]) for ends in (box.lower, box.upper))
    bounds = [*zip(lower, upper, strict=True)]
    integer = [0] * len(bounds)
    rows: list[tuple[dict[int, float], float, float]] = []
    layer = list(range(len(bounds)))
    for node in graph.node:
        if node.op_type == "Gemm":
            weight, bias = constants[node.input[1]], constants[node.input[2]]
            centre, radius = (lower + upper) / 2, (upper - lower) / 2
            middle, spread = weight @ centre + bias, np.abs(weight) @ radius
            lower, upper = middle - spread, middle + spread
            before, layer = layer, []
            for neuron, (low, high) in enumerate(zip(lower, upper, strict=True)):
                layer.append(len(bounds))
                bounds.append((low, high))
                integer.append(0)
                terms = {layer[-1]: -1.0}
                for position, column in enumerate(before):
                    terms[column] = terms.get(column, 0.0) + weight[neuron, position]
                rows.append((terms, -bias[neuron], -bias[neuron]))
            continue
        before, layer = layer, []
        for column, low, high in zip(before, lower, upper, strict=True):
            out, on = len(bounds), len(bounds) + 1
            bounds += [(0.0, max(high, 0.0)), (0.0, 1.0)]
            integer += [0, 1]
            layer.append(out)
            rows.append(({out: 1.0, column: -1.0}, 0.0, math.inf))
            rows.append(({out: 1.0, column: -1.0, on: -min(low, 0.0)}, -math.inf, -min(low, 0.0)))
            rows.append(({out: 1.0, on: -max(high, 0.0)}, -math.inf, 0.0))
        lower, upper = np.maximum(lower, 0), np.maximum(upper, 0)
    matrix = np.zeros((len(rows), len(bounds)))
    for number, (terms, _, _) in enumerate(rows):
        for column, value in terms.items():
            matrix[number, column] = value
    objective = np.zeros(len(bounds))
    objective[layer[output]] = 1.0
    found = milp(
        objective,
        constraints=LinearConstraint(matrix, [row[1] for row in rows], [row[2] for row in rows]),
        integrality=integer,
        bounds=(np.array([b[0] for b in bounds]), np.array([b[1] for b in bounds])),
    )
    assert found.success
    return float(found.fun)


def test_the_least_value_is_that_of_an_integer_program(tmp_path: Path) -> None:
    compared = 0
    for seed in range(ARCHITECTURES.index("dense"), 100, len(ARCHITECTURES)):
        one = planted(seed, tmp_path)
        if any(len(node.input) < 3 for node in onnx.load(one.network).graph.node if node.op_type == "Gemm"):
            continue  # weights of 2^12 and 2^-12 are too much for an integer program in floating point
        for case in one.cases:
            found = least(one.exact, case.box, Linear({0: Fraction(1)}))
            assert found is not None
            theirs = least_by_integer_program(one.network, case.box, 0)
            assert float(found[0].value) == pytest.approx(theirs, rel=1e-5, abs=1e-4)
            compared += 1
    assert compared >= 8


def test_known_ranges_of_the_hard_cases(cases: Path) -> None:
    """Output ranges that another exact enumeration gave."""
    seen = 0
    for name in ("BND-02", "BND-06", "BND-09", "ONX-01"):
        network = ExactNetwork(cases / name / "model.onnx")
        for prop, expected in json.loads((cases / name / "expected.json").read_text())["props"].items():
            found = read_property(cases / name / prop)
            truth = expected["checked"]["output_range_exact"]
            for case, ranges in zip(found.cases, truth, strict=True):
                box = InputBox(case.box.lower_text, case.box.upper_text)
                for output, (low, high) in enumerate(ranges):
                    ends = least(network, box, Linear({output: Fraction(1)}))
                    assert ends is not None
                    assert (ends[0].value, ends[1].value) == (Fraction(low), Fraction(high)), name
                    seen += 1
    assert seen > 10


# ---------------------------------------------------------------- by hand


@pytest.fixture
def absolute(tmp_path: Path) -> ExactNetwork:
    """y = |x_0| + x_1."""
    nodes = [
        helper.make_node("Gemm", ["x", "A"], ["h"], "first"),
        helper.make_node("Relu", ["h"], ["r"], "relu"),
        helper.make_node("Gemm", ["r", "B"], ["s"], "second"),
        helper.make_node("MatMul", ["x", "C"], ["t"], "third"),
        helper.make_node("Add", ["s", "t"], ["y"], "sum"),
    ]
    constants = {
        "A": np.array([[1, -1], [0, 0]], dtype=np.float32),
        "B": np.array([[1], [1]], dtype=np.float32),
        "C": np.array([[0], [1]], dtype=np.float32),
    }
    return ExactNetwork(save(tmp_path / "n.onnx", nodes, constants, [1, 2], [1, 1]))


def at_most(bound: str, *, strict: bool = False, sign: int = 1, x: int | None = None) -> Constraint:
    term = {0: Fraction(sign)}
    return Constraint(
        Linear({}, {x: Fraction(sign)}) if x is not None else Linear(term), Fraction(bound), strict
    )


@pytest.mark.parametrize(
    ("clause", "violated"),
    [
        ((at_most("0.1"),), True),  # touched at (0, 0.1)
        ((at_most("0.1", strict=True),), False),
        ((at_most("0.1000000000000000000000001", strict=True),), True),
        ((at_most("0.0999999999999999999999999"),), False),
        ((at_most("0.5"), at_most("-0.4", x=0)), True),  # touched at (−0.4, 0.1)
        ((at_most("0.5", strict=True), at_most("-0.4", x=0)), False),
        ((at_most("0.5"), at_most("-0.4", x=0, strict=True)), False),
        ((at_most("0.5"), at_most("-0.4", x=0), at_most("-0.5", sign=-1)), True),  # both ways: on a line
        ((at_most("0.5"), at_most("-0.4", x=0), at_most("-0.5", sign=-1, strict=True)), False),
        ((), True),
    ],
)
def test_equality_is_told_from_less(absolute: ExactNetwork, clause: Clause, violated: bool) -> None:
    cases = (Case(InputBox(("-1", "0.1"), ("1", "0.3")), (clause,)),)
    found = violation(absolute, cases)
    assert (found is not None) == violated
    assert found is None or violates(absolute, cases, found)


def test_a_point_is_a_box_too(absolute: ExactNetwork) -> None:
    box = InputBox(("-0.1", "0.2"), ("-0.1", "0.2"))
    assert violation(absolute, (Case(box, ((at_most("0.3"),),)),)) == (Fraction("-0.1"), Fraction("0.2"))
    assert violation(absolute, (Case(box, ((at_most("0.3", strict=True),),)),)) is None
