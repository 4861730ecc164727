"""Significant digits of each element of a tensor, and their distribution over a layer or a channel.

Three estimates, in bits; σ is the deviation, µ the mean of an element over its n samples:

- **deviation**: s = −log2(σ/|µ|), σ² unbiased (Parker, "Monte Carlo arithmetic", 1997): the measured noise itself.
- **CNH** (centred normality hypothesis): a lower bound of the bits that hold with probability p, at confidence 1 − α,
  if samples are normally distributed: s = −log2(σ/|µ|) − ½·log2((n − 1)/χ²) − log2(Φ⁻¹((p + 1)/2)), σ² over n.
- **general**, for any distribution: the largest k such that all samples lie within 2^-k·|µ| of µ. With n samples it
  holds with a probability of at least 1 + ln(α)/n only (`general_probability`): 59 samples for p = 0.95.

The last two are those of Sohier et al., "Confidence intervals for stochastic arithmetic" (ACM TOMS 47(2), 2021) as the
package `significantdigits` of the same group computes them, with the mean as reference. `digits_of_samples` calls it.
`digits` needs no samples: σ, µ and the extremes determine all three. The general estimate is an integer from 0 to the
format's fraction bits (23 for float32); the others are not clipped: an element that moves by one ulp in one sample of
a hundred has more than 24 bits, and one whose noise exceeds its mean has fewer than zero.

Elements are counted apart where the estimates do not apply: `EXACT`, equal in all samples; `ZERO_MEAN`, where no
relative deviation exists and the bits are those after the binary point (absolute error in the package's terms);
`NAN` and `INFINITE`, where any sample is that.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Any

import numpy as np
import significantdigits
from numpy.typing import ArrayLike, NDArray

from boundscope.errors import UsageError, VariabilityError
from boundscope.variability.moments import Float64, Floats, Moments, Totals

DEFAULT_SAMPLES = 10
LEAST_SAMPLES = 2
DIGITS_PER_BIT = float(np.log10(2.0))

# A mean this far below the largest sample is what rounding leaves of zero.
_ZERO_MEAN = 2.0**-50


class Kind(IntEnum):
    """What the estimates of one element mean."""

    RELATIVE = 0
    EXACT = 1
    ZERO_MEAN = 2
    NAN = 3
    INFINITE = 4


@dataclass(frozen=True)
class Confidence:
    """`probability` that a bit is significant, and `confidence` in that claim; both within (0, 1)."""

    probability: float = 0.95
    confidence: float = 0.95

    def __post_init__(self) -> None:
        for name, value in (("probability", self.probability), ("confidence", self.confidence)):
            if not 0 < value < 1:
                raise UsageError(f"{name} must lie between 0 and 1, both excluded, not be {value}")


@dataclass(frozen=True)
class Digits:
    """Significant bits of a tensor of shape S; arrays have shape S, float64, NaN where `kind` has no such estimate."""

    samples: int
    confidence: Confidence
    kind: NDArray[np.int8]
    deviation_bits: Float64
    cnh_bits: Float64
    general_bits: Float64

    @property
    def general_probability(self) -> float:
        """Least probability of the general estimate's bits, at the confidence asked for; 0 for very few samples."""
        estimate = significantdigits.probability_estimation_bernoulli(
            self.samples, self.samples, self.confidence.confidence
        )
        return max(0.0, float(estimate))

    @property
    def relative(self) -> NDArray[np.bool_]:
        """Where elements are inexact, finite and of a mean other than zero: what layers are summarised by."""
        return np.equal(self.kind, Kind.RELATIVE)


def decimal(bits: Float64) -> Float64:
    """Decimal digits of so many bits."""
    return bits * DIGITS_PER_BIT


def samples_for_general(confidence: Confidence = Confidence()) -> int:
    """The number of samples from which the general estimate holds with the probability asked for (59 by default)."""
    return int(significantdigits.minimum_number_of_trials(confidence.probability, confidence.confidence))


def estimate_noise_bits(samples: int) -> float:
    """Standard deviation of the deviation estimate of one element, in bits, if its samples are normally distributed.

    That of log2 of a χ-distributed σ to first order, 1/(ln 2·√(2(n − 1))): 0.34 bits with 10 samples.
    """
    _enough(samples, "tensor")
    return float(1 / (np.log(2) * np.sqrt(2 * (samples - 1))))


def deviation_bias_bits(samples: int) -> float:
    """By how much the deviation estimate is above the true bits on average, if samples are normally distributed.

    The unbiased variance has a biased logarithm: (ln((n − 1)/2) − ψ((n − 1)/2))/(2·ln 2), ψ the digamma function;
    0.92 bits with 2 samples, 0.08 with 10.
    """
    _enough(samples, "tensor")
    half, odd = divmod(samples - 1, 2)
    digamma = -np.euler_gamma - (2 * np.log(2) if odd else 0)
    digamma += sum(1 / (k - 0.5 if odd else k) for k in range(1, half + odd))
    return float((np.log((samples - 1) / 2) - digamma) / (2 * np.log(2)))


def digits(moments: Moments, confidence: Confidence = Confidence()) -> Digits:
    """Significant bits of every element, from its moments.

    Raises VariabilityError for fewer than two samples: one sample shows no variation.
    """
    _enough(moments.samples, moments.name)
    totals = moments.totals()
    kind = _kinds(totals)
    center = _log2_center(totals, kind)
    inexact = (kind == Kind.RELATIVE) | (kind == Kind.ZERO_MEAN)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        deviation = center - totals.log2_std(ddof=1)
        cnh = center - totals.log2_std(ddof=0) - _cnh_constant(totals.samples, confidence)
        least, greatest = totals.least.astype(np.float64), totals.greatest.astype(np.float64)
        mean = np.where(kind == Kind.ZERO_MEAN, 0, totals.mean)
        farthest = np.maximum(greatest - mean, mean - least)
        scale = np.where(kind == Kind.ZERO_MEAN, 1, np.abs(totals.mean))
        general = np.clip(_floor_log2_ratio(scale, farthest), 0, np.finfo(moments.dtype).nmant)
    return Digits(
        totals.samples,
        confidence,
        kind,
        *(np.where(inexact, bits, np.nan) for bits in (deviation, cnh, general)),
    )


def digits_of_samples(
    samples: ArrayLike, confidence: Confidence = Confidence(), name: str = "tensor"
) -> Digits:
    """Significant bits of every element, by `significantdigits` on stored samples.

    `samples` has shape (n, *S) and type float16, float32 or float64. For those who keep all samples; `digits` gives
    the same from moments. Raises VariabilityError for fewer than two samples.
    """
    array = np.asarray(samples)
    _enough(len(array) if array.ndim else 0, name)
    moments = Moments(array[0], name)
    for number, sample in enumerate(array):
        moments.update(number, sample)
    totals = moments.totals()
    kind = _kinds(totals)
    deviation, cnh, general = (np.full(kind.shape, np.nan) for _ in range(3))
    for which, error in (
        (Kind.RELATIVE, significantdigits.Error.Relative),
        (Kind.ZERO_MEAN, significantdigits.Error.Absolute),
    ):
        where = kind == which
        if not where.any():
            continue
        chosen = array[:, where].astype(np.float64)
        mean = chosen.mean(axis=0) if which is Kind.RELATIVE else np.zeros(chosen.shape[1])
        scale = np.abs(mean) if which is Kind.RELATIVE else 1.0
        deviation[where] = -np.log2(chosen.std(axis=0, ddof=1) / scale)
        cnh[where] = significantdigits.significant_digits(
            chosen,
            reference=mean,
            error=error,
            method=significantdigits.Method.CNH,
            probability=confidence.probability,
            confidence=confidence.confidence,
        )
        general[where] = significantdigits.significant_digits(
            chosen,
            reference=mean,
            error=error,
            method=significantdigits.Method.General,
            dtype=array.dtype,
        )
    return Digits(totals.samples, confidence, kind, deviation, cnh, general)


# ------------------------------------------------------------ summaries


@dataclass(frozen=True)
class Spread:
    """How the bits of a layer's inexact elements are distributed: mean, extremes and quantiles, in bits."""

    mean: float
    least: float
    q05: float
    q25: float
    median: float
    q75: float
    q95: float
    greatest: float

    @classmethod
    def of(cls, bits: Float64) -> Spread | None:
        """Of a one-dimensional array; None where it is empty."""
        if not bits.size:
            return None
        quantiles = np.quantile(bits, (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0))
        return cls(float(bits.mean()), *(float(q) for q in quantiles))

    def decimal(self) -> Spread:
        """The same in decimal digits."""
        return Spread(*(getattr(self, name) * DIGITS_PER_BIT for name in self.__dataclass_fields__))


@dataclass(frozen=True)
class Summary:
    """Digits of a layer or a channel: how many elements there are of each kind, and the spread over `relative` ones.

    The three spreads are None where no element is inexact and of a mean other than zero. `without` of those have no
    bit left by the deviation estimate: their noise is at least as large as they are.
    """

    samples: int
    elements: int
    exact: int
    zero_mean: int
    nan: int
    infinite: int
    without: int
    deviation_bits: Spread | None
    cnh_bits: Spread | None
    general_bits: Spread | None
    general_probability: float

    @property
    def relative(self) -> int:
        return self.elements - self.exact - self.zero_mean - self.nan - self.infinite

    def share(self, count: int) -> float | None:
        """`count` as a share of all elements; None for a tensor without elements."""
        return count / self.elements if self.elements else None


def summarise(found: Digits) -> Summary:
    """Digits of a whole layer."""
    return _summarise(found, ...)


def summarise_channels(found: Digits, axis: int | None = None) -> tuple[Summary, ...]:
    """Digits of each channel, in order: each holds the elements of one index along `axis`.

    `axis` defaults to 1, where images and flat features have their channels, and to 0 for tensors of one dimension.
    Raises UsageError where the tensor has no such axis; a tensor without dimensions is one channel.
    """
    dimensions = found.kind.ndim
    if dimensions == 0:
        return (summarise(found),)
    axis = min(1, dimensions - 1) if axis is None else axis
    if not -dimensions <= axis < dimensions:
        raise UsageError(f"there is no channel axis {axis} in a tensor of shape {found.kind.shape}")
    before = (slice(None),) * (axis % dimensions)
    return tuple(_summarise(found, (*before, channel)) for channel in range(found.kind.shape[axis]))


def _summarise(found: Digits, part: Any) -> Summary:
    kind = found.kind[part]
    relative = kind == Kind.RELATIVE
    deviation = found.deviation_bits[part][relative]
    counts = np.bincount(kind.reshape(-1), minlength=len(Kind))
    return Summary(
        samples=found.samples,
        elements=int(kind.size),
        exact=int(counts[Kind.EXACT]),
        zero_mean=int(counts[Kind.ZERO_MEAN]),
        nan=int(counts[Kind.NAN]),
        infinite=int(counts[Kind.INFINITE]),
        without=int(np.count_nonzero(deviation <= 0)),
        deviation_bits=Spread.of(deviation),
        cnh_bits=Spread.of(found.cnh_bits[part][relative]),
        general_bits=Spread.of(found.general_bits[part][relative]),
        general_probability=found.general_probability,
    )


# ------------------------------------------------------------ inside


def _enough(samples: int, name: str) -> None:
    if samples < LEAST_SAMPLES:
        held = "one sample shows" if samples == 1 else "no samples show"
        raise VariabilityError(
            f"{name}: {held} no variation; take at least {LEAST_SAMPLES}, "
            f"better {DEFAULT_SAMPLES} (--samples {DEFAULT_SAMPLES})"
        )


def _kinds(totals: Totals) -> NDArray[np.int8]:
    kind = np.full(totals.mean.shape, Kind.RELATIVE, np.int8)
    size = np.maximum(np.abs(totals.least), np.abs(totals.greatest)).astype(np.float64)
    with np.errstate(invalid="ignore"):
        kind[np.abs(totals.mean) <= _ZERO_MEAN * size] = Kind.ZERO_MEAN
    kind[totals.least == totals.greatest] = Kind.EXACT
    kind[(totals.positive_infinite + totals.negative_infinite) > 0] = Kind.INFINITE
    kind[totals.nan > 0] = Kind.NAN
    return kind


def _log2_center(totals: Totals, kind: NDArray[np.int8]) -> Float64:
    """log2 of what deviations are compared with: the mean's size, or 1 where it is zero."""
    with np.errstate(divide="ignore"):
        return np.where(kind == Kind.ZERO_MEAN, 0, np.log2(np.abs(totals.mean)))


def _floor_log2_ratio(numerator: Float64, denominator: Float64) -> Float64:
    """The largest integer k with denominator ≤ 2^-k·numerator."""
    top, top_exponent = np.frexp(numerator)
    bottom, bottom_exponent = np.frexp(denominator)
    return (top_exponent - bottom_exponent - (bottom > top)).astype(np.float64)


@lru_cache(maxsize=64)
def _cnh_constant(samples: int, confidence: Confidence) -> float:
    """What CNH subtracts from −log2 of the relative deviation, in bits.

    Asked from the package, by samples of known deviation about zero, so that no other definition can creep in.
    """
    known: Floats = np.arange(samples, dtype=np.float64)
    bits = significantdigits.significant_digits(
        known,
        reference=np.float64(0),
        error=significantdigits.Error.Absolute,
        method=significantdigits.Method.CNH,
        probability=confidence.probability,
        confidence=confidence.confidence,
    )
    return float(-np.log2(known.std()) - bits)
