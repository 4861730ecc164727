"""apply(): functions evaluated in float64 and rounded once."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from boundscope_prism import PrismArgumentError, apply, cast, divide, round_, rounding
from boundscope_prism.functions import FUNCTIONS
from prism import oracle

torch = pytest.importorskip("torch")

# Each by the standard library, to compare with; domains in which all are finite.
REFERENCE: dict[str, tuple[Callable[[float], float], float, float]] = {
    "exp": (math.exp, -80, 80),
    "exp2": (lambda x: 2.0**x, -100, 100),
    "expm1": (math.expm1, -2, 2),
    "log": (math.log, 1e-6, 1e6),
    "log2": (math.log2, 1e-6, 1e6),
    "log10": (math.log10, 1e-6, 1e6),
    "log1p": (math.log1p, -0.5, 3),
    "sin": (math.sin, -20, 20),
    "cos": (math.cos, -20, 20),
    "tan": (math.tan, -1.5, 1.5),
    "asin": (math.asin, -1, 1),
    "acos": (math.acos, -1, 1),
    "atan": (math.atan, -9, 9),
    "sinh": (math.sinh, -20, 20),
    "cosh": (math.cosh, -20, 20),
    "tanh": (math.tanh, -6, 6),
    "asinh": (math.asinh, -9, 9),
    "acosh": (math.acosh, 1.5, 9),
    "atanh": (math.atanh, -0.9, 0.9),
    "sigmoid": (lambda x: 1 / (1 + math.exp(-x)), -80, 30),
    "erf": (math.erf, -4, 4),
    "erfc": (math.erfc, -4, 8),
    "rsqrt": (lambda x: 1 / math.sqrt(x), 1e-6, 1e6),
    "reciprocal": (lambda x: 1 / x, 1e-6, 1e6),
    "gelu": (lambda x: x * math.erfc(-x / math.sqrt(2)) / 2, -10, 10),
    "gelu_tanh": (
        lambda x: x / (1 + math.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))),
        -2,
        10,
    ),
    "log_sigmoid": (lambda x: -math.log1p(math.exp(-x)), -30, 30),
    "mish": (lambda x: x * math.tanh(math.log1p(math.exp(x))), -30, 30),
    "silu": (lambda x: x / (1 + math.exp(-x)), -80, 30),
    "softplus": (lambda x: math.log1p(math.exp(x)), -80, 30),
    "pow": (lambda x: x**1.7, 1e-6, 1e6),
}


def arguments(name: str) -> tuple[Any, dict[str, float]]:
    _, low, high = REFERENCE[name]
    x = np.random.default_rng(5).uniform(low, high, 500).astype(np.float32)
    return x, {"y": 1.7} if name == "pow" else {}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_float32_result_is_the_accurate_value_rounded_once(name: str) -> None:
    """SR gives one of the two neighbours of the true value, each near its probability; RN the nearest."""
    x, more = arguments(name)
    reference = np.array([REFERENCE[name][0](float(value)) for value in x])
    nearest = apply(name, x, rounding("rn"), **more)
    assert np.count_nonzero(nearest != reference.astype(np.float32)) <= 1
    ups, expected, variance = 0, 0.0, 0.0
    results = [apply(name, x, rounding("sr", sample=sample), **more) for sample in range(20)]
    for i, true in enumerate(reference):
        low, high = oracle.neighbours(Fraction(float(true)), oracle.float32())
        got = {float(result[i]) for result in results}
        slack = 2 * (high - low) if high == low else 0
        assert all(low - slack <= Fraction(value) <= high + slack for value in got)
        if high > low:
            p = float((Fraction(float(true)) - low) / (high - low))
            ups += sum(float(result[i]) == high for result in results)
            expected += 20 * p
            variance += 20 * p * (1 - p)
    assert abs(ups - expected) < 6 * math.sqrt(variance) + 5


@pytest.mark.parametrize("mode", ["rn", "sr", "ud", "rr"])
def test_a_result_is_drawn_as_the_element_it_is(mode: str) -> None:
    """As cast() of the float64 value for float32 arrays, and round_() of it for float64 arrays."""
    x = np.random.default_rng(1).normal(size=(7, 50)).astype(np.float32)
    how = rounding(mode, seed=8, precision=11)
    wide = torch.from_numpy(x).double().tanh().numpy()
    assert np.array_equal(apply("tanh", x, how, operation=3, first=9), cast(wide, how, operation=3, first=9))
    double = x.astype(np.float64)
    assert np.array_equal(apply("tanh", double, how, operation=3), round_(wide, how, operation=3))


def test_a_float64_result_is_perturbed_by_up_down_only() -> None:
    x = np.linspace(0.5, 2, 100)
    value = torch.from_numpy(x).exp().numpy()
    for mode in ("rn", "sr", "rr"):
        assert np.array_equal(apply("exp", x, rounding(mode)), value)
    moved = apply("exp", x, rounding("ud"))
    assert np.all((moved == np.nextafter(value, 0)) | (moved == np.nextafter(value, 10)))


def test_a_reciprocal_is_a_division() -> None:
    x = np.random.default_rng(1).normal(size=300)
    for array in (x, x.astype(np.float32)):
        for mode in ("rn", "sr", "ud", "rr"):
            assert np.array_equal(
                apply("reciprocal", array, rounding(mode)), divide(1.0, array, rounding(mode))
            )


def test_special_values_are_those_of_the_function() -> None:
    x = np.array([np.inf, -np.inf, np.nan, 0.0, -0.0], np.float32)
    for mode in ("sr", "ud", "rr"):
        how = rounding(mode)
        np.testing.assert_array_equal(apply("sin", x, how), np.array([np.nan] * 3 + [0, -0.0], np.float32))
        np.testing.assert_array_equal(
            apply("log", np.abs(x), how), np.array([np.inf, np.inf, np.nan, -np.inf, -np.inf], np.float32)
        )
        assert apply("exp", np.full(3, 1000, np.float32), how).tolist() == [np.inf] * 3


def test_tensors_and_outputs_are_as_in_add() -> None:
    x = torch.randn(6, 5).abs()
    how = rounding("sr", seed=1)
    result = apply("pow", x, how, torch.full((5,), 0.5))
    assert isinstance(result, torch.Tensor)
    assert torch.equal(result, apply("pow", x, how, 0.5))
    out = torch.empty(6, 5)
    assert apply("exp", x, how, out=out) is out
    assert np.array_equal(out.numpy(), apply("exp", x.numpy(), how))
    place = x.clone()
    assert torch.equal(apply("exp", place, how, out=place), out)


def test_wrong_arguments_are_named() -> None:
    x = np.ones(3, np.float32)
    how = rounding("sr")
    for call, message in [
        (lambda: apply("sinc", x, how), "name: expected one of 'exp', 'exp2'"),
        (
            lambda: apply("pow", x, how),
            "y: expected a number or an array, the exponent of pow, got NoneType.",
        ),
        (lambda: apply("exp", x, how, 2.0), "y: expected nothing for 'exp', got float."),
        (lambda: apply("pow", x, how, np.ones(2, np.float32)), "pow: "),
        (lambda: apply("exp", [1.0], how), "x: expected a numpy array or a torch tensor"),
    ]:
        with pytest.raises(PrismArgumentError) as caught:
            call()
        assert message in str(caught.value)
