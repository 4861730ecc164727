"""Moments: right to the last digits on hard data, and the same bits however samples were spread over ranks."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from boundscope.errors import VariabilityError
from boundscope.variability.moments import Moments, Totals

TYPES = (np.float16, np.float32, np.float64)


def gathered(
    samples: np.ndarray, numbers: list[int] | None = None, reference: np.ndarray | None = None
) -> Moments:
    moments = Moments(samples[0] if reference is None else reference)
    for number in range(len(samples)) if numbers is None else numbers:
        moments.update(number, samples[number])
    return moments


def bits(totals: Totals) -> list[bytes]:
    return [np.asarray(value).tobytes() for value in vars(totals).values()]


def two_pass(samples: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and unbiased standard deviation by the textbook, in the widest type there is."""
    wide = samples.astype(np.longdouble)
    mean = wide.mean(axis=0)
    return mean, np.sqrt(((wide - mean) ** 2).sum(axis=0) / (len(samples) - 1))


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(), (1,), (5,), (2, 3, 4), (0, 3)])
def test_shapes_and_types(dtype: type, shape: tuple[int, ...]) -> None:
    """Scalars, empty tensors and every float type give the moments of the textbook, in the tensor's own shape."""
    samples: np.ndarray = np.random.default_rng(1).normal(size=(7, *shape)).astype(dtype)
    totals = gathered(samples).totals()
    mean, std = two_pass(samples)
    assert totals.samples == 7
    assert all(array.shape == shape for name, array in vars(totals).items() if name != "samples")
    np.testing.assert_allclose(totals.mean, mean.astype(np.float64), rtol=1e-14, atol=1e-15)
    np.testing.assert_allclose(totals.std(), std.astype(np.float64), rtol=1e-13)
    np.testing.assert_array_equal(totals.least, samples.min(axis=0))
    np.testing.assert_array_equal(totals.greatest, samples.max(axis=0))
    assert totals.least.dtype == dtype


@pytest.mark.parametrize("count", [2, 3, 10, 1000])
def test_cancellation(count: int) -> None:
    """A deviation of 1e-3 about a mean of 1e8 keeps eleven digits; a sum of squares would have none left."""
    samples = 1e8 + np.random.default_rng(2).normal(scale=1e-3, size=(count, 50))
    mean, std = two_pass(samples)
    totals = gathered(samples).totals()
    np.testing.assert_allclose(totals.std(), std.astype(np.float64), rtol=1e-11)
    np.testing.assert_allclose(totals.mean, mean.astype(np.float64), rtol=3e-16)
    naive = (samples**2).mean(axis=0) - samples.mean(axis=0) ** 2
    assert (np.abs(naive - totals.std(0) ** 2) > totals.std(0) ** 2).any(), "these data must be hard"


def test_one_ulp_of_noise_is_exact() -> None:
    """Float32 samples one ulp apart have a deviation known exactly, and it is found exactly."""
    one = np.float32(1)
    samples = np.array([one, np.nextafter(one, np.float32(2))] * 8)
    totals = gathered(samples).totals()
    assert totals.mean == 1 + 2.0**-24
    assert totals.squares == 16 * 2.0**-48


parts = st.tuples(st.integers(1, 40), st.integers(1, 6), st.randoms(use_true_random=False))


@settings(max_examples=150, deadline=None)
@given(parts=parts, dtype=st.sampled_from(TYPES), data=st.data())
def test_any_grouping_gives_the_same_bits(
    parts: tuple[int, int, random.Random], dtype: type, data: st.DataObject
) -> None:
    """Ranks may take any samples in any order and be merged in any grouping: not one bit of any moment differs."""
    count, ranks, shuffle = parts
    finite = st.floats(-1e4, 1e4).map(dtype)
    special = st.sampled_from([np.nan, np.inf, -np.inf, 0.0, -0.0])
    samples = data.draw(hnp.arrays(dtype, (count, 3), elements=st.one_of(finite, finite, special)))
    reference = data.draw(hnp.arrays(dtype, 3, elements=st.one_of(finite, special)))
    expected = bits(gathered(samples, reference=reference).totals())

    numbers = list(range(count))
    shuffle.shuffle(numbers)
    groups = [gathered(samples, numbers[rank::ranks], reference) for rank in range(ranks)]
    while len(groups) > 1:
        shuffle.shuffle(groups)
        groups[0].merge(groups.pop())
    assert bits(groups[0].totals()) == expected
    assert groups[0].numbers == tuple(range(count))


@settings(max_examples=100, deadline=None)
@given(
    samples=hnp.arrays(
        np.float64, st.tuples(st.integers(2, 20), st.just(4)), elements=st.floats(-1e150, 1e150)
    ),
)
def test_against_two_passes(samples: np.ndarray) -> None:
    """Mean and deviation of any finite samples are those of two passes in longdouble."""
    totals = gathered(samples).totals()
    mean, std = two_pass(samples)
    size = np.abs(samples).max(axis=0)
    # Differences from the first sample may be as large as the samples: their rounding is what is allowed.
    assert (np.abs(totals.mean - mean) <= 1e-14 * size + 1e-322).all()
    understood = (std == 0) | (std > 2.0**-440)
    assert (np.abs(totals.std() - std) <= 1e-13 * std + 1e-14 * size)[understood].all()
    assert (totals.std() >= std * (1 - 1e-12) - 5e-324)[~understood].all()


def test_special_values_are_counted() -> None:
    """NaN and infinities are counted by element; they spoil the mean of their element only, and no extreme."""
    samples = np.array(
        [[1, np.nan, 1, 2, np.nan], [2, 1, np.inf, -np.inf, np.nan], [3, np.nan, 1, np.inf, np.nan]],
        np.float32,
    )
    totals = gathered(samples).totals()
    assert totals.nan.tolist() == [0, 2, 0, 0, 3]
    assert totals.positive_infinite.tolist() == [0, 0, 1, 1, 0]
    assert totals.negative_infinite.tolist() == [0, 0, 0, 1, 0]
    assert totals.mean[0] == 2
    assert np.isnan(totals.mean[1:]).all()
    assert np.isnan(totals.log2_std()[1:]).all()
    np.testing.assert_array_equal(totals.least, np.array([1, 1, 1, -np.inf, np.nan], np.float32))
    np.testing.assert_array_equal(totals.greatest, np.array([3, 1, np.inf, np.inf, np.nan], np.float32))
    assert totals.finite.tolist() == [True, False, False, False, False]


def test_a_reference_that_is_not_finite_spoils_nothing() -> None:
    """The baseline may overflow where samples do not: their moments are still right."""
    moments = Moments(np.array([np.inf, np.nan], np.float32))
    for number, value in enumerate((1.0, 3.0)):
        moments.update(number, np.full(2, value, np.float32))
    assert moments.totals().mean.tolist() == [2, 2]
    assert moments.totals().squares.tolist() == [2, 2]


def test_equality_is_of_bits() -> None:
    """Samples equal to the reference are counted by their bits: -0 is not +0, NaN of the same bits is NaN."""
    samples = np.array([[0.0, np.nan, 1.0], [-0.0, np.nan, 1.0], [0.0, 1.0, 1.0]], np.float32)
    assert gathered(samples).totals().equal.tolist() == [2, 2, 3]


@pytest.mark.parametrize("unit", [5e-324, 1e-320, 1e-200, 1e200, 8e307])
def test_deviations_whose_squares_are_no_numbers(unit: float) -> None:
    """Float64 noise too small or too large to be squared is still seen, and never understated."""
    samples = unit * np.array([1.0, 2.0, 1.0, 2.0])
    totals = gathered(samples).totals()
    assert totals.log2_std(ddof=0) == pytest.approx(np.log2(unit) - 1, abs=1e-9)
    opposite = gathered(np.array([unit, -unit, unit, -unit])).totals()
    assert abs(opposite.mean) <= unit * 1e-15
    assert opposite.log2_std(ddof=0) == pytest.approx(np.log2(unit), abs=1e-9)


def test_totals_are_a_copy() -> None:
    """Whoever changes what totals returned does not change the moments."""
    moments = gathered(np.array([[1, 2, np.nan], [3, np.inf, -np.inf]], np.float32))
    before = bits(moments.totals())
    for array in list(vars(moments.totals()).values())[1:]:
        array[...] = 77
    assert bits(moments.totals()) == before


def test_state_goes_round() -> None:
    """Moments as arrays are the same moments again, and continue as if they had never left."""
    samples = np.random.default_rng(3).normal(size=(9, 4)).astype(np.float32)
    samples[2, 1], samples[5, 2] = np.nan, np.inf
    half = Moments.from_state(gathered(samples, [0, 1, 2, 5, 6]).state())
    assert half.numbers == (0, 1, 2, 5, 6)
    for number in (8, 7, 3, 4):
        half.update(number, samples[number])
    assert bits(half.totals()) == bits(gathered(samples).totals())
    with pytest.raises(VariabilityError, match="least"):
        Moments.from_state({"reference": samples[0]})
    with pytest.raises(VariabilityError, match="has 3 elements, expected 4"):
        Moments.from_state({**half.state(), "least": np.zeros(3, np.float32)})


def test_consecutive_samples_need_few_blocks() -> None:
    """What a rank holds grows with the logarithm of its range: samples are not stored."""
    samples = np.random.default_rng(4).normal(size=(1000, 1)).astype(np.float32)
    moments = gathered(samples, list(range(300, 800)))
    assert moments.resident_bytes <= 2 * np.ceil(np.log2(500)) * 16 + 16


@pytest.mark.parametrize(
    ("sample", "number", "message"),
    [
        (np.zeros(3, np.float32), 1, "sample 1 is float32 of shape \\(3,\\)"),
        (np.zeros(2, np.float64), 1, "sample 1 is float64"),
        (np.zeros(2, np.float32), 0, "sample 0 is there already"),
        (np.zeros(2, np.float32), -1, "start at 0"),
    ],
)
def test_samples_that_do_not_fit(sample: np.ndarray, number: int, message: str) -> None:
    """A sample of another shape or type, or one taken twice, is refused by the layer's name."""
    moments = Moments(np.zeros(2, np.float32), "conv1")
    moments.update(0, np.ones(2, np.float32))
    before = bits(moments.totals())
    with pytest.raises(VariabilityError, match=f"conv1: .*{message}"):
        moments.update(number, sample)
    assert bits(moments.totals()) == before


def test_parts_that_do_not_fit() -> None:
    """Parts of different references, shapes or with common samples are refused."""
    first = gathered(np.zeros((2, 2), np.float32))
    with pytest.raises(VariabilityError, match="samples 0, 1 are in both"):
        first.merge(gathered(np.zeros((2, 2), np.float32)))
    with pytest.raises(VariabilityError, match="different references"):
        first.merge(Moments(np.array([0, -0.0], np.float32)))
    with pytest.raises(VariabilityError, match="parts differ"):
        first.merge(Moments(np.zeros(2)))
    with pytest.raises(VariabilityError, match="not int64"):
        Moments(np.arange(3), "indices")  # type: ignore[arg-type]
    with pytest.raises(VariabilityError, match="no sample"):
        Moments(np.zeros(2)).totals()
    with pytest.raises(VariabilityError, match="at least 2"):
        gathered(np.zeros((1, 2))).totals().std()
