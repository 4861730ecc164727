"""Comparing two runs: element by element where they have one shape, and in words that say what is only in one."""

from __future__ import annotations

import numpy as np
import pytest

from boundscope.variability.compare import compare
from boundscope.variability.digits import Digits, digits
from boundscope.variability.moments import Moments


def found(samples: np.ndarray) -> Digits:
    moments = Moments(samples[0])
    for number, sample in enumerate(samples):
        moments.update(number, sample)
    return digits(moments)


def noisy(bits: float, elements: int = 50, seed: int = 0, count: int = 10) -> Digits:
    """Normal noise about 1 of relative deviation 2^-bits; the same draws for the same seed."""
    return found(1 + np.random.default_rng(seed).normal(size=(count, elements)) * 2.0**-bits)


def test_difference_is_of_the_same_elements() -> None:
    """Noise of 2^1.3 times the deviation costs 1.3 bits in every layer, and the sentence says so."""
    sr = {"conv": noisy(20), "dense": noisy(18, seed=1)}
    ud = {"conv": noisy(18.7), "dense": noisy(16.7, seed=1)}
    comparison = compare(sr, ud, ("SR", "UD"))
    assert [layer.layer for layer in comparison.layers] == ["conv", "dense"]
    for layer in comparison.layers:
        assert layer.paired == 50
        assert layer.difference_bits == pytest.approx(-1.3, abs=1e-3)
    assert comparison.mean_difference_bits == pytest.approx(-1.3, abs=1e-3)
    assert comparison.sentences().startswith(
        "UD keeps 1.30 bits fewer than SR, on the mean of 2 layers (median -1.30;"
    )


def test_elements_exact_in_one_run_are_left_out_of_pairs() -> None:
    """Elements that are exact under SR have no digits to lose; they do not weigh on the others' difference."""
    rng = np.random.default_rng(2).normal(size=(10, 4)) * 2.0**-10
    sr, ud = 1 + rng, 1 + 2 * rng
    sr[:, :2] = 1
    layer = compare({"fc": found(sr)}, {"fc": found(ud)}).layers[0]
    assert (layer.paired, layer.exact_first, layer.exact_second) == (2, 2, 0)
    assert layer.difference_bits == pytest.approx(-1, abs=1e-3), "the mean moves a little too"


def test_other_shapes_compare_means() -> None:
    """A layer of another shape is compared by its mean, and says that nothing was paired."""
    layer = compare({"fc": noisy(12, 400)}, {"fc": noisy(10, 500, seed=3)}).layers[0]
    assert layer.paired is None
    assert layer.difference_bits == pytest.approx(-2, abs=0.1)


def test_other_numbers_of_samples_are_said() -> None:
    """Two samples overstate the bits: the sentence says by how much, and no more than that is left of a difference."""
    few, many = noisy(12, 8000, seed=4, count=2), noisy(12, 8000, seed=5, count=40)
    comparison = compare({"fc": few}, {"fc": many}, ("few", "many"))
    assert (
        "few has 2 samples and many 40 in fc, which alone shifts the difference by -0.90 bits"
        in comparison.sentences()
    )
    assert comparison.layers[0].difference_bits == pytest.approx(-0.90, abs=0.06)
    assert "samples" not in compare({"fc": many}, {"fc": many}).sentences()


def test_layers_of_one_run_only_are_named() -> None:
    """Layers that only one of the runs has are named, and which run it is."""
    comparison = compare(
        {"a": noisy(9), "b": noisy(9), "c": noisy(9)}, {"b": noisy(9), "d": noisy(9)}, ("f32", "bf16")
    )
    assert (comparison.only_first, comparison.only_second) == (("a", "c"), ("d",))
    assert comparison.sentences() == (
        "bf16 keeps as many bits as f32 (within 0.005), in b. Only f32 has 2 layers: a, c. Only bf16 has 1 layer: d."
    )


def test_exact_and_broken_layers_are_said() -> None:
    """A layer exact in one run only, and NaN or Inf elements, are facts of their own."""
    exact = found(np.ones((10, 50)))
    broken = found(np.full((10, 50), np.nan))
    comparison = compare(
        {"same": exact, "moves": exact, "breaks": exact},
        {"same": exact, "moves": noisy(20), "breaks": broken},
        ("SR", "UD"),
    )
    assert comparison.mean_difference_bits is None
    assert comparison.sentences() == (
        "No layer of SR and UD has inexact elements in both. SR is exact and UD is not in 2 layers: moves, breaks. "
        "UD has NaN or Inf in 50 elements of these layers."
    )


def test_nothing_in_common() -> None:
    """Runs of different networks compare to nothing, in words."""
    assert compare({"a": noisy(9)}, {"b": noisy(9)}).sentences() == (
        "the first and the second have no layer in common. "
        "Only the first has 1 layer: a. Only the second has 1 layer: b."
    )
