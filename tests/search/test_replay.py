"""A counterexample is judged on the original files, exactly, and by both ways in which ONNX Runtime runs them."""

from __future__ import annotations

import ast
import csv
import gzip
import json
import re
import time
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import boundscope.search.formula
import boundscope.search.formula_reader
import boundscope.search.replay
from boundscope.errors import NetworkError, PropertyError
from boundscope.network.runtime import Session, original_source
from boundscope.search.formula import Formula
from boundscope.search.formula_reader import FormulaReader
from boundscope.search.replay import replay, witness_texts
from network.models import model_of, save, two_layers

FULL = ("acasxu", "mnist_fc", "oval21", "verivital", "marabou-cifar10", "test", "eran")
SLIGHTLY_OUTSIDE = (
    "safenlp",
    "collins_rul_cnn",
    "dist_shift",
    "metaroom",
    "reach_prob_density",
    "rl_benchmarks",
)


def counterexample(path: Path) -> list[str]:
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    pairs = re.findall(r"\(\s*X_(\d+)\s+([^\s()]+)\s*\)", text)
    return [value for _, value in sorted((int(index), value) for index, value in pairs)]


def recorded(vnncomp: Path, family: str) -> list[tuple[Path, Path, list[str], float]]:
    """Network, property, inputs and slack of the inputs of each recorded counterexample of a family."""
    result = []
    with open(vnncomp / "manifest.csv", newline="") as file:
        for row in csv.DictReader(file):
            found = re.search(r"cex=([^;]+)", row["notes"])
            if row["family"] == family and row["verdict"] == "sat" and found:
                slack = re.search(r"in_slack=([-+.\de]+)", row["notes"])
                inputs = counterexample(vnncomp / found[1].strip())
                result.append(
                    (
                        vnncomp / row["onnx"],
                        vnncomp / row["vnnlib"],
                        inputs,
                        float(slack[1]) if slack else 0.0,
                    )
                )
    return result


@pytest.mark.parametrize("family", FULL + SLIGHTLY_OUTSIDE)
def test_recorded_counterexamples_violate(vnncomp: Path, family: str) -> None:
    """Every one violates; those whose record says that they lie in the box do."""
    instances = recorded(vnncomp, family)
    assert instances
    for network, prop, inputs, slack in instances:
        result = replay(network, prop, inputs)
        assert result.violates, (prop, result.note)
        assert result.violates_unoptimized
        if slack > 0:
            assert result.inside_box, (prop, result.note)
        if not result.inside_box:
            assert slack <= 0
            assert "the inputs as written lie outside the box" in result.note


def test_inside_of_an_unsat_box_does_not_violate(vnncomp: Path) -> None:
    """The middle of the first of prop_6's two boxes lies in the property's box and violates nothing."""
    middle = ["0.28", "0.3", "-0.4996", "0.0", "0.0"]
    folder = vnncomp / "acasxu"
    result = replay(folder / "onnx/ACASXU_run2a_1_1_batch_2000.onnx", folder / "vnnlib/prop_6.vnnlib", middle)
    assert result.inside_box
    assert not result.violates
    assert not result.violates_unoptimized
    assert "does not reproduce" in result.note
    elsewhere = [*middle[:1], "0.0", *middle[2:]]
    result = replay(
        folder / "onnx/ACASXU_run2a_1_1_batch_2000.onnx", folder / "vnnlib/prop_6.vnnlib", elsewhere
    )
    assert not result.inside_box


def witness(case: Path, prop: str) -> list[str]:
    exact = json.loads((case / "expected.json").read_text())["props"][prop]["checked"]["witness_exact"]["X"]
    return [str(Decimal(a) / Decimal(b or "1")) for a, _, b in (x.partition("/") for x in exact)]


@pytest.mark.parametrize(
    ("case", "prop"),
    [
        ("BND-02", "prop_b.vnnlib"),
        ("ONX-03", "prop.vnnlib"),
        ("ONX-05", "prop_b.vnnlib"),
        ("ONX-09", "prop.vnnlib"),
        ("VNN-05", "prop.vnnlib"),
        ("VNN-05", "prop_b.vnnlib"),
        ("VNN-11", "prop_b.vnnlib"),
    ],
)
def test_witnesses_of_the_cases(cases: Path, case: str, prop: str) -> None:
    folder = cases / case
    result = replay(folder / "model.onnx", folder / prop, witness(folder, prop))
    assert result.inside_box, result.note
    assert result.violates
    assert result.violates_unoptimized


def test_degenerate_interval_that_float32_cannot_express(cases: Path) -> None:
    """BND-02: the decimal 0.1 lies in [0.1, 0.1]; its float32 does not, and the note says so."""
    folder = cases / "BND-02"
    result = replay(folder / "model.onnx", folder / "prop_b.vnnlib", ["-1", "0.1", "0.5"])
    assert result.inside_box
    assert result.violates
    assert "no float32 number lies in the interval of X_1 = 0.1" in result.note
    assert "0.10000000149011612" in result.note
    assert "X_2" not in result.note


def test_thresholds_are_not_rounded(cases: Path) -> None:
    """VNN-11: y = 1 does not reach 1.00000001, which is 1 in float32."""
    folder = cases / "VNN-11"
    assert not replay(folder / "model.onnx", folder / "prop.vnnlib", ["1"]).violates
    assert replay(folder / "model.onnx", folder / "prop_b.vnnlib", ["1"]).violates


def test_absorption(cases: Path) -> None:
    """BND-04: ONNX Runtime says 2.0 where the real network says x, and 0.0 where it says 1."""
    folder = cases / "BND-04"
    result = replay(folder / "model.onnx", folder / "prop.vnnlib", ["1.3"])
    assert (result.violates, result.outputs) == (True, (2.0,))
    result = replay(folder / "model.onnx", folder / "prop_b.vnnlib", ["1"])
    assert (result.inside_box, result.violates, result.outputs) == (True, False, (0.0,))
    assert "does not reproduce" in result.note


def box_property(path: Path, bounds: list[tuple[str, str]], output: str) -> Path:
    lines = [f"(declare-const X_{i} Real)" for i in range(len(bounds))] + ["(declare-const Y_0 Real)"]
    lines += [
        f"(assert (>= X_{i} {low}))\n(assert (<= X_{i} {high}))" for i, (low, high) in enumerate(bounds)
    ]
    path.write_text("\n".join([*lines, output]))
    return path


@pytest.fixture
def copier(tmp_path: Path) -> Path:
    """y = x, in float32."""
    nodes = [helper.make_node("Identity", ["x"], ["y"])]
    return save(model_of(nodes, inputs={"x": [1, 1]}, outputs=["y"]), tmp_path)


def test_runs_at_the_nearest_number_inside_the_box(copier: Path, tmp_path: Path) -> None:
    """float32(0.1) > 0.1, so an upper bound of 0.1 makes it run at the float32 before."""
    prop = box_property(tmp_path / "p.vnnlib", [("0", "0.1")], "(assert (>= Y_0 0.05))")
    result = replay(copier, prop, ["0.1"])
    below = float(np.nextafter(np.float32(0.1), np.float32(0)))
    assert result.outputs == (below,)
    assert result.inside_box
    assert "1 inputs were moved to the nearest float32 number inside the box" in result.note
    strict = box_property(tmp_path / "s.vnnlib", [("0", "1")], "(assert (< X_0 0.5))\n(assert (>= Y_0 0.1))")
    result = replay(copier, strict, ["0.49999999999999"])
    assert result.outputs == (float(np.nextafter(np.float32(0.5), np.float32(0))),)


def test_decimals_are_rounded_once(copier: Path, tmp_path: Path) -> None:
    """1 + 2⁻²⁴ + 1e-20 is nearer to 1 + 2⁻²³; rounding to float64 first makes a tie, which goes to 1."""
    prop = box_property(tmp_path / "p.vnnlib", [("0", "2")], "(assert (>= Y_0 0))")
    text = str(Decimal(1) + Decimal(2) ** -24) + "1"
    assert replay(copier, prop, [text]).outputs == (float(np.nextafter(np.float32(1), np.float32(2))),)


def test_outside_names_the_assert(copier: Path, tmp_path: Path) -> None:
    prop = box_property(tmp_path / "p.vnnlib", [("0", "1")], "(assert (>= Y_0 0.5))")
    result = replay(copier, prop, ["1.00000000000000000001"])
    assert not result.inside_box
    assert result.violates
    assert "which asks (assert (<= X_0 1))" in result.note


def test_double_networks_run_in_float64(tmp_path: Path) -> None:
    network = two_layers(tmp_path / "a.onnx", dtype=np.float64)
    prop = box_property(tmp_path / "p.vnnlib", [("0.1", "0.1")] * 3, "(assert (<= Y_0 1e9))")
    result = replay(network, prop, ["0.1"] * 3)
    assert result.violates
    assert "float64" in result.note  # 0.1 is not a float64 number either
    assert any(float(np.float32(y)) != y for y in result.outputs)


def test_packed_files_and_external_data(tmp_path: Path) -> None:
    import onnx

    network = two_layers(tmp_path / "a.onnx")
    prop = box_property(tmp_path / "p.vnnlib", [("0", "1")] * 3, "(assert (<= Y_0 1e9))")
    plain = replay(network, prop, ["0.5"] * 3)
    onnx.save(
        onnx.load(network),
        str(tmp_path / "b.onnx"),
        save_as_external_data=True,
        size_threshold=0,
        location="d",
    )
    (tmp_path / "b.onnx.gz").write_bytes(gzip.compress((tmp_path / "b.onnx").read_bytes()))
    (tmp_path / "p.vnnlib.gz").write_bytes(gzip.compress(prop.read_bytes()))
    for other in (tmp_path / "b.onnx", tmp_path / "b.onnx.gz"):
        assert replay(other, tmp_path / "p.vnnlib.gz", ["0.5"] * 3) == plain


def test_disagreement_of_optimised_and_not_is_named(tmp_path: Path) -> None:
    """ONNX Runtime folds BatchNormalization into Conv, which rounds otherwise; a threshold between the two shows it."""
    generator = np.random.default_rng(0)
    constants = {"w": generator.normal(size=(1, 1, 3, 3)).astype(np.float32)}
    constants |= {
        name: generator.uniform(0.5, 2, 1).astype(np.float32) for name in ("scale", "bias", "mean", "var")
    }
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["y"]),
    ]
    network = save(model_of(nodes, inputs={"x": [1, 1, 3, 3]}, outputs=["y"], constants=constants), tmp_path)
    source = original_source(network)
    for _ in range(100):
        point = generator.normal(size=(1, 1, 3, 3)).astype(np.float32)
        with_, without = (
            float(Session(source, "n", optimized=optimized).run({"x": point})[0].item())
            for optimized in (True, False)
        )
        if with_ != without:
            break
    assert with_ != without, "ONNX Runtime no longer folds; find another network for this test"
    threshold = (Decimal(with_) + Decimal(without)) / 2
    inputs = [repr(value) for value in point.astype(np.float64).reshape(-1).tolist()]
    prop = box_property(tmp_path / "p.vnnlib", [("-9", "9")] * 9, f"(assert (>= Y_0 {threshold}))")
    result = replay(network, prop, inputs)
    assert (result.violates, result.violates_unoptimized) == (with_ > without, without > with_)
    which = "with" if with_ > without else "without"
    assert (
        f"violates only {which} graph optimisation: outputs ({with_!r}) with, ({without!r}) without"
        in result.note
    )


def test_another_verdict_in_a_batch_is_named(tmp_path: Path) -> None:
    """A network that takes batches and whose answer depends on their size."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Cast", ["rows"], ["rows32"], to=1),
        helper.make_node("Mul", ["x", "rows32"], ["y"]),
    ]
    model = model_of(nodes, inputs={"x": ["N", 1]}, outputs=["y"], constants={"zero": np.array(0)})
    prop = box_property(tmp_path / "p.vnnlib", [("0", "1")], "(assert (<= Y_0 1))")
    result = replay(save(model, tmp_path), prop, ["0.5"])
    assert (result.violates, result.violates_unoptimized, result.outputs) == (True, True, (0.5,))
    assert "another verdict in a batch of 64 (row 0): outputs (32.0)" in result.note


def test_nonfinite_outputs_never_violate(tmp_path: Path) -> None:
    nodes = [helper.make_node("Log", ["x"], ["y"])]
    network = save(model_of(nodes, inputs={"x": [1, 1]}, outputs=["y"]), tmp_path)
    prop = box_property(tmp_path / "p.vnnlib", [("0", "1")], "(assert (<= Y_0 100))")
    result = replay(network, prop, ["0"])
    assert result.outputs == (-np.inf,)
    assert not result.violates
    assert "not finite" in result.note


def test_wrong_inputs(copier: Path, tmp_path: Path) -> None:
    prop = box_property(tmp_path / "p.vnnlib", [("0", "1")], "(assert (>= Y_0 0.5))")
    with pytest.raises(NetworkError, match="has 1 inputs; the counterexample has 2"):
        replay(copier, prop, ["0", "0"])
    for text in ("nan", "inf", "1/2", ""):
        with pytest.raises(PropertyError, match="X_0 of the counterexample is not a decimal"):
            replay(copier, prop, [text])
    with pytest.raises(PropertyError, match="cannot be read"):
        replay(copier, tmp_path / "nowhere.vnnlib", ["0"])


# ---------------------------------------------------------------- the reader


def read(text: str, *inputs: str) -> Formula:
    return FormulaReader(text, [Decimal(value) for value in inputs], "p.vnnlib").read()


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("(assert (<= Y_0 Y_1))", True),
        ("(assert (>= Y_0 Y_1))", False),
        ("(assert (< Y_0 0.25))", False),
        ("(assert (<= 0.25 Y_0))", True),
        ("(assert (or (and (<= Y_0 0) (<= Y_1 0)) (>= Y_1 0.5)))", True),
        ("(assert (and (<= Y_0 1) (or (<= Y_1 0) (<= Y_1 0.4))))", False),
        ("(assert (not (<= Y_1 0.4)))", True),
        ("(assert (<= (+ Y_0 Y_1 X_0) 1.75))", True),
        ("(assert (< (+ Y_0 Y_1 X_0) 1.75))", False),
        ("(assert (<= (- Y_1 (* 2 Y_0)) (- 0.25)))", False),
        ("(assert (>= (/ Y_1 2) 0.25))", True),
        ("(assert (= Y_0 0.25))", True),
        ("(assert (!= Y_0 0.25))", False),
        ("(assert (<= 0 Y_0 Y_1 0.5))", True),
        ("(assert (or))", False),
        ("(assert (and))", True),
        ("(assert (or (and (<= X_0 0) (<= Y_0 100)) (and (>= X_0 1) (>= Y_0 100))))", False),
        ("(assert (or (and (<= X_0 0) (<= Y_0 100)) (and (>= X_0 1) (<= Y_0 100))))", True),
        ("(assert (<= Y_0 0.25)) (assert (>= Y_1 0.6))", False),
        ("(assert (<= 2 1))", False),
    ],
)
def test_formula(text: str, holds: bool) -> None:
    """At x = 1 and y = (0.25, 0.5)."""
    assert read(text, "1").holds([0.25, 0.5]) is holds


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("(assert (<= X_0 1))", True),
        ("(assert (< X_0 1))", False),
        ("(assert (<= (- X_0 X_1) 0.5))", False),
        ("(assert (<= (- X_0 X_1) 0.75)) (assert (<= Y_0 -5))", True),
        ("(assert (or (and (<= X_0 0) (<= Y_0 1)) (and (<= X_1 1) (<= Y_0 1))))", True),
        ("(assert (or (and (<= X_0 0) (<= Y_0 1)) (and (<= X_1 0) (<= Y_0 1))))", False),
        ("(assert (not (<= X_0 0)))", True),
    ],
)
def test_inside_box(text: str, inside: bool) -> None:
    """At x = (1, 0.25), whatever the outputs are."""
    assert read(text, "1", "0.25").inside_box is inside


def test_second_version_of_the_format() -> None:
    text = """(vnnlib-version <2.0>) ; a comment with ( in it
    (declare-network f
        (declare-input A float32 [1, 2])
        (declare-input B Real [2])
        (declare-output Out float32 [2,1]))
    (assert (and (>= A[0,1] 0.0) (<= B[1] 4)))
    (assert (or (<= Out[0,0] -3.0) (>= Out[1,0] B[0])))"""
    inputs = ("1", "2", "3", "4")
    formula = read(text, *inputs)
    assert formula.inside_box
    assert [(limit.index, limit.relation) for limit in formula.limits] == [(1, ">="), (3, "<=")]
    assert formula.holds([0.0, 3.0])
    assert not formula.holds([0.0, 2.75])
    with pytest.raises(
        PropertyError, match=r"line 8: 'A\[0,2\]' is not an element of a tensor of shape \[1, 2\]"
    ):
        read(text + "\n    (assert (<= A[0,2] 1))", *inputs)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(assert (<= X_0 1)", "line 1: the text ends inside"),
        ("\n\n(assert (<= X_0 1)))", "line 3: a closing parenthesis too many"),
        ("(assert (<= X_5 1))", "line 1: 'X_5' is not one of the 1 inputs"),
        ("(assert (~ X_0 1))", "unknown operator '~'"),
        ("(assert (<= Z_0 1))", "'Z_0' is no number, no input and no output"),
        ("(assert (and (<= X_0 1) 3))", "a number where 'and' expects a constraint"),
        ("(assert (<= (and) 1))", "'<=' of a truth value"),
        ("(assert (<= X_0 1e999999999))", "exponent"),
        ("(assert (not (<= X_0 1) (<= X_0 1)))", "'not' takes one argument; here are 2"),
        ("(assert)", "'\\(assert' has no arguments"),
        ("(assert (<= (/ 1 0) 1))", "division by zero"),
    ],
)
def test_malformed_text(text: str, message: str) -> None:
    with pytest.raises(PropertyError, match=message):
        read(text, "0")


def test_output_that_does_not_exist() -> None:
    with pytest.raises(PropertyError, match="speaks of output 3; the network has 2 outputs"):
        read("(assert (<= Y_3 0))", "0").holds([0.0, 1.0])


def test_depth_and_size() -> None:
    """100 000 nested levels, and megabytes that the inputs decide, leave a short program."""
    depth = 100_000
    assert read("(assert " + "(or " * depth + "(<= Y_0 1)" + ")" * depth + ")", "0").holds([0.5])
    count = 20_000
    lines = [
        f"(declare-const X_{i} Real)\n(assert (<= X_{i} 0.{i:05d}1))\n(assert (>= X_{i} -1))"
        for i in range(count)
    ]
    text = "\n".join([*lines, "(assert (or (and (<= X_7 -2) (<= Y_0 1)) (and (<= X_7 2) (<= Y_0 0))))"])
    start = time.process_time()
    formula = read(text, *["0"] * count)
    seconds = time.process_time() - start
    assert formula.inside_box
    assert len(formula.program) == 3
    assert not formula.holds([0.5])
    assert seconds < 30  # far above what it takes; a quadratic reader would need minutes


def test_reader_shares_nothing_with_the_properties_package() -> None:
    for module in (boundscope.search.replay, boundscope.search.formula, boundscope.search.formula_reader):
        tree = ast.parse(Path(str(module.__file__)).read_text())
        imported = [node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
        imported += [
            alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names
        ]
        assert not [
            name
            for name in imported
            if name.startswith(("boundscope.properties", "boundscope.bounds", "vnnlib"))
        ]


# ---------------------------------------------------------------- witness texts


def test_witness_texts_lie_in_the_box_and_read_back() -> None:
    generator = np.random.default_rng(3)
    low = [f"{value:.9f}" for value in generator.uniform(-1, 1, 200)]
    high = [
        str(Decimal(text) + Decimal(width))
        for text, width in zip(low, ["0", "1e-12", "0.25", "3"] * 50, strict=True)
    ]
    for dtype in (np.float32, np.float64):
        for texts in (low, high):
            point = np.array([float(text) for text in texts]).astype(dtype)
            result = witness_texts(point.astype(np.float64), low, high)
            for text, lower, upper, value in zip(result, low, high, point, strict=True):
                assert Decimal(lower) <= Decimal(text) <= Decimal(upper)
                assert dtype(float(text)) == value


def test_witness_texts_refuse_what_is_not_finite() -> None:
    with pytest.raises(PropertyError, match="X_1 of the counterexample is not finite"):
        witness_texts(np.array([0.0, np.nan]), ["0", "0"], ["1", "1"])
