"""Small networks with properties whose answer is known exactly: by seed, written as .onnx and .vnnlib files.

Thresholds lie a hair to either side of an exact minimum, so that a violation is all but hidden, or all but there.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from support.exact_network import ExactNetwork
from support.exact_oracle import Case, Clause, Constraint, InputBox, Least, Linear, least, violates, violation
from support.models import save

SEEDS = range(200)
MOST_REGIONS = 1200
TRIED_OBJECTIVES = 4
GAPS = (Fraction(1, 10), Fraction(1, 100), Fraction(1, 1000), Fraction(1, 10**5))
ARCHITECTURES = ("dense", "residual", "conv", "pool", "leaky", "clipped", "needle", "matmul")
Random = np.random.Generator


class Answer(enum.StrEnum):
    """`TOUCHES`: violated by equality alone, or safe by a strict comparison alone."""

    VIOLATED = "violated"
    SAFE = "safe"
    TOUCHES = "touches"


@dataclass(frozen=True)
class Planted:
    """One instance; `violated` is the truth, `answer` also says how near it is to the opposite."""

    seed: int
    architecture: str
    network: Path
    property: Path
    exact: ExactNetwork
    cases: tuple[Case, ...]
    answer: Answer
    violated: bool

    def violates(self, inputs: Sequence[str]) -> bool:
        """Whether decimals are a point that the property forbids, exactly."""
        return violates(self.exact, self.cases, [Fraction(text) for text in inputs])

    def __str__(self) -> str:
        return f"seed {self.seed}, {self.architecture}, {self.answer}"


def planted(seed: int, folder: Path) -> Planted:
    """The instance of a seed, with its files in `folder`."""
    random = np.random.default_rng([seed, 6])
    architecture = ARCHITECTURES[seed % len(ARCHITECTURES)]
    network = folder / f"planted{seed}.onnx"
    shape, free = _write_network(network, architecture, random, full=seed % 3 == 0)
    exact = ExactNetwork(network)
    box = _box(exact, int(np.prod(shape)), free, random)
    cases, answer = _property(exact, box, seed, random)
    truth = violation(exact, cases) is not None
    if answer is not Answer.TOUCHES:
        answer = Answer.VIOLATED if truth else Answer.SAFE
    path = folder / f"planted{seed}.vnnlib"
    path.write_text(property_text(cases, exact.inputs, exact.outputs))
    return Planted(seed, architecture, network, path, exact, cases, answer, truth)


# ---------------------------------------------------------------- networks


class _Layers:
    """Collects nodes and constants; weights are eighths, or of all 24 bits where `full`."""

    def __init__(self, random: Random, *, full: bool) -> None:
        self.random, self.full = random, full
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, NDArray[Any]] = {}

    def numbers(self, *shape: int, scale: float = 1.0) -> NDArray[np.float32]:
        values = self.random.standard_normal(shape) * scale
        return (values if self.full else np.round(values * 8) / 8).astype(np.float32)

    def constant(self, values: NDArray[Any]) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = values
        return name

    def add(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        output = output or f"t{len(self.nodes)}"
        self.nodes.append(
            helper.make_node(kind, list(inputs), [output], f"{kind.lower()}{len(self.nodes)}", **attributes)
        )
        return output

    def dense(self, name: str, fan_in: int, fan_out: int, output: str = "", *, odd: bool = True) -> str:
        """A Gemm; `odd` gives it some of the neurons that solvers stumble over."""
        weight, bias = self.numbers(fan_out, fan_in), self.numbers(fan_out, scale=0.5)
        if odd and fan_out > 3:
            match int(self.random.integers(6)):
                case 0:
                    bias[0], bias[1] = -64.0, 64.0  # always off, always on
                case 1:
                    weight[1], bias[1] = weight[0], bias[0]  # the same neuron twice
                case 2:
                    weight[0] = 0.0  # constant
                case 3:
                    bias[:] = 0.0  # kinks through the origin
                case 4:
                    weight[1], bias[1] = -weight[0], -bias[0]  # one is on where the other is off
        inputs = [name, self.constant(weight), self.constant(bias)]
        return self.add("Gemm", inputs, output, transB=1)

    def rescaled(self, name: str, width: int, output: str = "") -> str:
        """A dense layer with weights of quite another size."""
        size = float(2.0 ** self.random.choice([-12, 12]))
        weight = (self.numbers(width, width) * np.float32(size)).astype(np.float32)
        return self.add("Gemm", [name, self.constant(weight)], output, transB=1)


def _write_network(
    path: Path, architecture: str, random: Random, *, full: bool
) -> tuple[tuple[int, ...], int]:
    """Writes the file; the shape of its input, and how many inputs a box may leave free."""
    layers = _Layers(random, full=full)
    inputs = int(random.integers(1, 5))
    depth, width = _size(inputs, random)
    outputs = int(random.integers(1, 4))
    shape: tuple[int, ...] = (1, inputs)
    name = "x"
    if architecture in ("conv", "pool"):
        shape, name, width = _spatial(layers, pooled=architecture == "pool")
        layers.dense(name, width, outputs, "y", odd=False)
    elif architecture == "needle":
        name, inputs = _needle(layers, inputs)
        shape, outputs = (1, inputs), 1
        layers.add("Gemm", [name, layers.constant(-100 * np.ones((1, 2 * inputs), np.float32)),
                            layers.constant(np.ones(1, np.float32))], "y", transB=1)  # fmt: skip
    else:
        before = inputs
        for layer in range(depth):
            if architecture == "residual" and layer:
                name = _residual(layers, name, before)
                continue
            if architecture == "matmul":
                weight, bias = layers.numbers(before, width), layers.numbers(width, scale=0.5)
                product = layers.add("MatMul", [name, layers.constant(weight)])
                name = layers.add("Add", [layers.constant(bias), product])
            else:
                name = layers.dense(name, before, width)
            name, before = _activation(layers, name, architecture), width
        if architecture == "dense" and random.integers(3) == 0:
            name = layers.rescaled(name, before)
        layers.dense(name, before, outputs, "y", odd=False)
    save(path, layers.nodes, layers.constants, shape, [1, outputs])
    return shape, min(inputs, 4)


def _size(inputs: int, random: Random) -> tuple[int, int]:
    """Hidden layers and their width: less of both where there are more inputs, for patterns multiply."""
    deepest, widest = {1: (4, 12), 2: (4, 8), 3: (3, 6), 4: (2, 6)}[inputs]
    return int(random.integers(1, deepest + 1)), int(random.integers(widest // 2, widest + 1))


def _activation(layers: _Layers, name: str, architecture: str) -> str:
    if architecture == "leaky":
        return layers.add("LeakyRelu", [name], alpha=float(layers.random.choice([0.01, 0.125, 0.3])))
    if architecture == "clipped" and layers.random.integers(2):
        limits = [layers.constant(np.array(value, dtype=np.float32)) for value in (-0.5, 1.0)]
        return layers.add("Clip", [name, *limits])
    if architecture == "clipped":
        return layers.add("Abs", [name])
    return layers.add("Relu", [name])


def _residual(layers: _Layers, name: str, width: int) -> str:
    inner = layers.add("Relu", [layers.dense(name, width, width)])
    return layers.add("Relu", [layers.add("Add", [name, layers.dense(inner, width, width)])])


def _spatial(layers: _Layers, *, pooled: bool) -> tuple[tuple[int, ...], str, int]:
    """A convolution on an image of 3 × 3, with pads on two sides or a pooled window."""
    weight, bias = layers.numbers(2, 1, 2, 2), layers.numbers(2, scale=0.5)
    inputs = ["x", layers.constant(weight), layers.constant(bias)]
    if pooled:
        name = layers.add("Conv", inputs, pads=[1, 1, 0, 0])  # 2 × 3 × 3
        name = layers.add("MaxPool", [name], kernel_shape=[2, 2], strides=[2, 2], pads=[0, 0, 1, 1])
    else:
        name = layers.add("Relu", [layers.add("Conv", inputs, pads=[0, 0, 1, 1], strides=[2, 2])])
    name = layers.add("Flatten", [name])
    return (1, 1, 3, 3), layers.add("Relu", [layers.dense(name, 8, 4)]), 4


def _needle(layers: _Layers, inputs: int) -> tuple[str, int]:
    """relu(x − c) and relu(c − x) of each input: together the distance from c."""
    inputs = min(inputs, 3)
    centre = layers.numbers(inputs, scale=0.3)
    weight = np.concatenate([np.eye(inputs), -np.eye(inputs)]).astype(np.float32)
    bias = np.concatenate([-centre, centre]).astype(np.float32)
    hidden = layers.add("Gemm", ["x", layers.constant(weight), layers.constant(bias)], transB=1)
    return layers.add("Relu", [hidden]), inputs


# ---------------------------------------------------------------- boxes and properties


def _box(network: ExactNetwork, inputs: int, free: int, random: Random) -> InputBox:
    """Decimals around a random centre, some of them no float32 numbers; few enough patterns to be looked at."""
    centre = [Fraction(int(value), 100) for value in random.integers(-60, 61, inputs)]
    chosen = set(random.permutation(inputs)[:free].tolist())
    if inputs > 1 and random.integers(5) == 0:
        chosen.pop()
    if random.integers(20) == 0:
        chosen = set()  # a single point
    radius = Fraction(int(random.integers(10, 200)), 100)
    while True:
        ends = [
            (_decimal(c - radius * (i in chosen)), _decimal(c + radius * (i in chosen)))
            for i, c in enumerate(centre)
        ]
        box = InputBox(*map(tuple, zip(*ends, strict=True)))
        if sum(1 for _ in islice(network.regions(box.polytope()), MOST_REGIONS + 1)) <= MOST_REGIONS:
            return box
        radius /= 2


def _objective(network: ExactNetwork, random: Random, *, mixed: bool) -> Linear:
    """Coefficients with a few digits, of one or two outputs and, if asked, of an input."""
    chosen = random.permutation(network.outputs)[: int(random.integers(1, 3))].tolist()
    outputs = {int(j): Fraction(int(random.choice([-20, -10, -7, 3, 10, 15])), 10) for j in chosen}
    inputs = {int(random.integers(network.inputs)): Fraction(int(random.choice([-5, 4, 10])), 10)}
    return Linear(outputs, inputs if mixed else {})


def _property(
    network: ExactNetwork, box: InputBox, seed: int, random: Random
) -> tuple[tuple[Case, ...], Answer | None]:
    """The cases of a seed, and TOUCHES where a threshold is an exact minimum."""
    mixed = seed % 5 == 0
    for _ in range(TRIED_OBJECTIVES):
        objective = _objective(network, random, mixed=mixed)
        ends = least(network, box, objective)
        assert ends is not None
        low, high = ends
        if not _is_corner(low.point, box):  # a walk down a gradient ends in corners by itself
            break
    given: Clause = ()
    kind = int(random.integers(5))
    if kind == 0:  # a conjunction: a second constraint takes part of the box away
        other = _objective(network, random, mixed=not mixed)
        reached = other.at(high.point, network.evaluate(high.point))
        given = (Constraint(other, _between(reached, Fraction(1, 10))),)
        within = least(network, box, objective, given)
        if within is None:
            given = ()
        else:
            low, high = within
    if random.integers(8) == 0 and _finite(low.value):
        strict = bool(random.integers(2))
        clause = (Constraint(objective, low.value, strict), *given)
        return (Case(box, (clause,)),), Answer.TOUCHES
    near = Fraction(int(random.choice([-1, 1])))
    clause = (_constraint(objective, low, high, near * random.choice(np.array(GAPS)), random), *given)
    if kind == 1:  # a disjunction: clauses that nothing meets come first
        out_of_reach = [
            (_constraint(one, *both, -random.choice(np.array(GAPS)), random),)
            for one in (_objective(network, random, mixed=False) for _ in range(2))
            if (both := least(network, box, one)) is not None
        ]
        return (Case(box, (*out_of_reach, clause)),), None
    if kind == 2:  # several boxes: the others are safe or not, as it comes
        boxes = [box, *(_half(box, side) for side in (0, 1))]
        cases = []
        for one in boxes[1:]:
            both = least(network, one, objective, given)
            if both is not None:
                gap = near * random.choice(np.array(GAPS))
                cases.append(Case(one, ((_constraint(objective, *both, gap, random), *given),)))
        return tuple(cases) or (Case(box, (clause,)),), None
    return (Case(box, (clause,)),), None


def _is_corner(point: Sequence[Fraction], box: InputBox) -> bool:
    ends = zip(point, box.lower, box.upper, strict=True)
    return all(value in (Fraction(low), Fraction(high)) for value, low, high in ends)


def _constraint(objective: Linear, low: Least, high: Least, gap: Fraction, random: Random) -> Constraint:
    """objective ≤ its minimum + gap · what it spans: reached by little, or by little not."""
    span = high.value - low.value or abs(low.value) or Fraction(1)
    return Constraint(objective, _between(low.value, gap * span), strict=bool(random.integers(4) == 0))


def _half(box: InputBox, side: int) -> InputBox:
    """The lower or the upper half along the first free input."""
    index = next((i for i, (a, b) in enumerate(zip(box.lower, box.upper, strict=True)) if a != b), 0)
    middle = _decimal((Fraction(box.lower[index]) + Fraction(box.upper[index])) / 2)
    ends = [list(box.lower), list(box.upper)]
    ends[1 - side][index] = middle
    return InputBox(tuple(ends[0]), tuple(ends[1]))


# ---------------------------------------------------------------- text


def _between(value: Fraction, gap: Fraction) -> Fraction:
    """value + gap, with no more digits than it takes to be on that side of the value."""
    digits = 1
    while True:
        rounded = Fraction(round((value + gap) * 10**digits), 10**digits)
        if abs(rounded - value - gap) < abs(gap) / 4:
            return rounded
        digits += 1


def _finite(value: Fraction) -> bool:
    """Whether its decimals end, soon enough to be written."""
    denominator = value.denominator
    for prime in (2, 5):
        while denominator % prime == 0:
            denominator //= prime
    return denominator == 1 and value.denominator < 10**30


def _decimal(value: Fraction) -> str:
    """The decimals of a number whose decimals end."""
    digits = 0
    while (value * 10**digits).denominator > 1:
        digits += 1
    whole = abs(value.numerator * 10**digits // value.denominator)
    text = str(whole).rjust(digits + 1, "0")
    sign = "-" if value < 0 else ""
    return sign + (f"{text[:-digits]}.{text[-digits:]}" if digits else text)


def _term(coefficient: Fraction, name: str) -> str:
    return f"(* {_decimal(coefficient)} {name})"


def _atom(one: Constraint) -> str:
    terms = [_term(c, f"Y_{j}") for j, c in one.linear.outputs.items()]
    terms += [_term(c, f"X_{i}") for i, c in one.linear.inputs.items()]
    total = terms[0] if len(terms) == 1 else f"(+ {' '.join(terms)})"
    return f"({'<' if one.strict else '<='} {total} {_decimal(one.bound)})"


def _bounds(box: InputBox) -> list[str]:
    ends = enumerate(zip(box.lower, box.upper, strict=True))
    return [text for i, (low, high) in ends for text in (f"(>= X_{i} {low})", f"(<= X_{i} {high})")]


def property_text(cases: Sequence[Case], inputs: int, outputs: int) -> str:
    """VNN-LIB 1.0 of the cases."""
    lines = [f"(declare-const X_{i} Real)" for i in range(inputs)]
    lines += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    if len(cases) == 1:
        lines += [f"(assert {bound})" for bound in _bounds(cases[0].box)]
        clauses = [f"(and {' '.join(map(_atom, clause))})" for clause in cases[0].clauses]
    else:
        clauses = [
            f"(and {' '.join([*_bounds(case.box), *map(_atom, clause)])})"
            for case in cases
            for clause in case.clauses
        ]
    return "\n".join([*lines, f"(assert (or {' '.join(clauses)}))"]) + "\n"
