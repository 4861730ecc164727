"""Digits: as the analysis says, as `significantdigits` says, and nothing but numbers where they mean something."""

from __future__ import annotations

import subprocess
import sys
import warnings

import numpy as np
import pytest
import significantdigits
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from boundscope.errors import UsageError, VariabilityError
from boundscope.variability.digits import (
    DIGITS_PER_BIT,
    Confidence,
    Digits,
    Kind,
    decimal,
    deviation_bias_bits,
    digits,
    digits_of_samples,
    estimate_noise_bits,
    samples_for_general,
    summarise,
    summarise_channels,
)
from boundscope.variability.moments import Moments


def gathered(samples: np.ndarray) -> Moments:
    moments = Moments(samples[0], "layer")
    for number, sample in enumerate(samples):
        moments.update(number, sample)
    return moments


def same(one: Digits, other: Digits, tolerance_bits: float) -> None:
    np.testing.assert_array_equal(one.kind, other.kind)
    np.testing.assert_allclose(one.deviation_bits, other.deviation_bits, rtol=0, atol=tolerance_bits)
    np.testing.assert_allclose(one.cnh_bits, other.cnh_bits, rtol=0, atol=tolerance_bits)
    np.testing.assert_array_equal(one.general_bits, other.general_bits)


@pytest.mark.parametrize(("exponent", "mean"), [(8, 3.0), (16, -0.7), (20, 1e-20), (10, 1e30)])
def test_a_known_deviation(exponent: int, mean: float) -> None:
    """Normal noise of relative deviation 2^-e has e bits, within what the samples' number allows."""
    elements, count = 4000, 10
    noise = np.random.default_rng(exponent).normal(size=(count, elements))
    found = digits(gathered(mean * (1 + noise * 2.0**-exponent)))
    # log2 of a chi-distributed deviation: its mean is a little below log2(sigma), by the digamma function.
    chi2 = stats.chi2(count - 1)
    bias = deviation_bias_bits(count)
    spread = 0.5 * np.sqrt(chi2.expect(lambda x: np.log2(x / (count - 1)) ** 2) - (2 * bias) ** 2)
    assert abs(found.deviation_bits.mean() - (exponent + bias)) < 6 * spread / np.sqrt(elements)
    assert found.deviation_bits.std() == pytest.approx(spread, rel=0.1)
    assert estimate_noise_bits(count) == pytest.approx(spread, rel=0.1)


@pytest.mark.parametrize("count", [2, 3, 4, 5, 10, 11, 59])
def test_bias_of_few_samples(count: int) -> None:
    """The bias of the deviation estimate is that of the logarithm of a chi-squared variance."""
    assert deviation_bias_bits(count) == pytest.approx(
        (np.log((count - 1) / 2) - special.digamma((count - 1) / 2)) / (2 * np.log(2)), abs=1e-12
    )


def test_cnh_keeps_its_promise() -> None:
    """At confidence 0.95, no more bits are claimed than hold with probability 0.95, in at least 95 % of cases."""
    elements, count, exponent = 20_000, 10, 12
    noise = np.random.default_rng(5).normal(size=(count, elements))
    found = digits(gathered(1 + noise * 2.0**-exponent))
    true = exponent - np.log2(stats.norm.ppf(0.975))
    held = (found.cnh_bits <= true).mean()
    # The package takes a two-sided interval, and the deviation of the samples (over n and not n - 1).
    expected = stats.chi2.sf(stats.chi2.ppf(0.025, count - 1) * count / (count - 1), count - 1)
    assert abs(held - expected) < 5 * np.sqrt(expected * (1 - expected) / elements)
    assert held > 0.95


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(2, 70),
    exponent=st.integers(2, 22),
    seed=st.integers(0, 2**32 - 1),
    dtype=st.sampled_from([np.float32, np.float64]),
    probability=st.floats(0.5, 0.999),
    confidence=st.floats(0.5, 0.999),
)
def test_moments_are_enough(
    count: int, exponent: int, seed: int, dtype: type, probability: float, confidence: float
) -> None:
    """All estimates from moments are those of `significantdigits` from the samples, in every kind of element."""
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=40) * 10.0 ** rng.integers(-8, 8, size=40)
    samples: np.ndarray = (mean * (1 + rng.normal(size=(count, 40)) * 2.0**-exponent)).astype(dtype)
    samples[:, 0] = 1.5
    samples[0, 1], samples[0, 2] = np.nan, np.inf
    samples[:, 3] = np.where(np.arange(count) % 2, -1, 1) if count % 2 == 0 else 0
    asked = Confidence(probability, confidence)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(digits(gathered(samples), asked), digits_of_samples(samples, asked), 1e-7)


def test_the_package_is_what_is_reported() -> None:
    """The estimates are `significantdigits`' own, called as its documentation says."""
    samples = np.random.default_rng(6).normal(1, 1e-3, size=(10, 30)).astype(np.float32)
    found = digits(gathered(samples))
    wide = samples.astype(np.float64)
    for bits, method in ((found.cnh_bits, "CNH"), (found.general_bits, "General")):
        theirs = significantdigits.significant_digits(
            wide, reference=wide.mean(axis=0), method=method, dtype=np.dtype(np.float32)
        )
        np.testing.assert_allclose(bits, theirs, rtol=0, atol=1e-9)
    ten = significantdigits.significant_digits(wide, reference=wide.mean(axis=0), basis=10)
    np.testing.assert_allclose(decimal(found.cnh_bits), ten, rtol=0, atol=1e-9)
    assert samples_for_general() == 59
    assert found.general_probability == pytest.approx(1 + np.log(0.05) / 10)
    assert digits(gathered(samples[:2])).general_probability == 0


def test_general_at_powers_of_two() -> None:
    """A sample at exactly 2^-k of the mean still has k bits."""
    for k in range(1, 24):
        samples = np.array([[1 - 2.0**-k], [1 + 2.0**-k]])
        assert digits(gathered(samples)).general_bits == k
        assert digits_of_samples(samples).general_bits == k


def test_kinds_of_elements() -> None:
    """Exact, zero-mean, NaN and infinite elements are told apart, and no estimate is infinite or 53."""
    samples = np.array(
        [
            [1.0, 0.0, -0.0, 1.0, 1e-8, np.nan, np.inf, np.nan, np.inf, 2.0],
            [1.0, 0.0, 0.0, 1.5, -1e-8, 1.0, np.inf, np.inf, 1.0, np.nan],
        ],
        np.float32,
    )
    found = digits(gathered(samples))
    exact, inexact, zero, nan, infinite = Kind.EXACT, Kind.RELATIVE, Kind.ZERO_MEAN, Kind.NAN, Kind.INFINITE
    assert found.kind.tolist() == [exact, exact, exact, inexact, zero, nan, infinite, nan, infinite, nan]
    for bits in (found.deviation_bits, found.cnh_bits, found.general_bits):
        assert np.isfinite(bits).tolist() == [kind in (inexact, zero) for kind in found.kind]
    # Absolute: -log2 of a deviation of 1.41e-8, unbiased from two samples of +-1e-8.
    assert found.deviation_bits[4] == pytest.approx(-np.log2(np.sqrt(2) * 1e-8), abs=1e-6)
    same(found, digits_of_samples(samples), 1e-6)
    summary = summarise(found)
    counts = (
        summary.exact,
        summary.zero_mean,
        summary.nan,
        summary.infinite,
        summary.relative,
        summary.elements,
    )
    assert counts == (3, 1, 3, 2, 1, 10)
    assert summary.share(summary.exact) == 0.3
    assert summary.deviation_bits is not None
    assert summary.deviation_bits.mean == found.deviation_bits[3], "an absolute digit is no relative one"


def test_a_mean_that_rounding_leaves_of_zero_is_zero() -> None:
    """Noise about zero is absolute even if float64 leaves the sum of its samples at a little more than nothing."""
    samples = np.array([[0.1], [0.2], [-0.3]])
    assert gathered(samples).totals().mean != 0, "this example must round"
    assert digits(gathered(samples)).kind == Kind.ZERO_MEAN


def test_all_exact() -> None:
    """A layer whose operations are all exact has no digits to show, no NaN and no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = summarise(digits(gathered(np.full((10, 4, 4), 2.125, np.float32))))
    assert (summary.exact, summary.elements, summary.deviation_bits, summary.cnh_bits) == (16, 16, None, None)


@pytest.mark.parametrize("count", [0, 1])
def test_one_sample_is_refused(count: int) -> None:
    """One sample shows no variation: refused by the layer's name, saying how many to take."""
    samples = np.ones((count, 3), np.float32)
    moments = Moments(np.ones(3, np.float32), "conv1")
    for number in range(count):
        moments.update(number, samples[number])
    with pytest.raises(VariabilityError, match=r"conv1: .*at least 2, better 10 \(--samples 10\)"):
        digits(moments)
    with pytest.raises(VariabilityError, match="conv1"):
        digits_of_samples(samples, name="conv1")


def test_summary_is_numpys() -> None:
    """Mean, extremes and quantiles are those of the inexact elements, in bits and in decimal digits."""
    samples = 1 + np.random.default_rng(7).normal(size=(10, 6, 5)) * 2.0 ** -np.arange(1, 31).reshape(6, 5)
    samples[:, 0, 0] = 1
    found = digits(gathered(samples))
    bits = found.deviation_bits[found.relative]
    spread = summarise(found).deviation_bits
    assert bits.size == 29
    assert spread is not None
    assert (spread.mean, spread.least, spread.greatest) == (bits.mean(), bits.min(), bits.max())
    assert spread.median == np.median(bits)
    assert (spread.q05, spread.q95) == tuple(np.quantile(bits, (0.05, 0.95)))
    assert spread.decimal().median == pytest.approx(np.median(bits) * DIGITS_PER_BIT)


def test_elements_without_a_bit() -> None:
    """Noise as large as the value leaves no significant bit, and the summary says in how many elements."""
    noise = np.random.default_rng(8).normal(size=(10, 50))
    summary = summarise(digits(gathered(np.concatenate([0.01 + noise, 1000 + noise], axis=1))))
    assert summary.without == 50


def test_channels() -> None:
    """A channel's digits are those of its own elements, whichever axis it lies along."""
    scale = 2.0 ** -np.array([4.0, 8.0, 12.0])
    noise = np.random.default_rng(9).normal(size=(10, 2, 3, 8, 8))
    samples = 1 + noise * scale[:, None, None]
    found = digits(gathered(samples))
    channels = summarise_channels(found)
    assert [round(channel.deviation_bits.mean) for channel in channels if channel.deviation_bits] == [
        4,
        8,
        12,
    ]
    assert [channel.elements for channel in channels] == [128] * 3
    last = digits(gathered(np.moveaxis(samples, 2, -1)))
    for ours, theirs in zip(summarise_channels(last, axis=-1), channels, strict=True):
        assert ours.deviation_bits is not None
        assert theirs.deviation_bits is not None
        assert ours.deviation_bits.median == theirs.deviation_bits.median
    with pytest.raises(UsageError, match="no channel axis 7"):
        summarise_channels(found, axis=7)


@pytest.mark.parametrize(("shape", "channels"), [((), 1), ((4,), 4), ((2, 3), 3), ((0, 3), 3), ((3, 0), 0)])
def test_shapes_without_channels_or_elements(shape: tuple[int, ...], channels: int) -> None:
    """Scalars are one channel; a tensor without elements has a summary without digits."""
    found = digits(gathered(1 + 0.01 * np.random.default_rng(10).normal(size=(10, *shape))))
    assert len(summarise_channels(found)) == channels
    summary = summarise(found)
    assert summary.elements == int(np.prod(shape))
    assert (summary.deviation_bits is None) == (summary.elements == 0)
    assert (summary.share(summary.exact) is None) == (summary.elements == 0)


@pytest.mark.parametrize("bad", [0.0, 1.0, -0.1, 1.5, float("nan")])
def test_probabilities_are_checked(bad: float) -> None:
    """Probability and confidence lie between 0 and 1; the message names which does not."""
    with pytest.raises(UsageError, match="probability must lie"):
        Confidence(probability=bad)
    with pytest.raises(UsageError, match="confidence must lie"):
        Confidence(confidence=bad)


MODULES = ("moments", "moments_file", "digits", "decisions", "tables", "tables_files", "compare")


def test_statistics_import_no_torch() -> None:
    """Results are read and compared without torch, onnx or Qt."""
    imports = "; ".join(f"import boundscope.variability.{module}" for module in MODULES)
    heavy = "[name for name in ('torch', 'onnx', 'onnxruntime', 'PySide6', 'pyarrow') if name in sys.modules]"
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; {imports}; sys.exit(str(found) if (found := {heavy}) else 0)"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
