"""Streaming moments of one tensor over the samples of a run.

Sums are arranged by sample number and not by arrival. Samples 2k and 2k + 1 make a block, two neighbouring blocks
make a larger one, and so on: a binary tree that the numbers alone decide. Hence the same samples give the same bits
whether one process saw them in order, ranks saw some each and merged in any grouping, or a run was resumed. Held are
only the largest whole blocks: at most 2·log2(n) for n consecutive numbers, so ranks should take ranges of them.

Two blocks are joined by the pairwise update of Chan, Golub and LeVeque, "Algorithms for computing the sample
variance: analysis and recommendations" (The American Statistician 37, 1983), eq. 2.1, of which Welford's update is
the case of a single new sample. All of it acts on differences from the reference (same paper, section 3), which are
exact for float32 samples near it: a deviation that is tiny against the mean keeps its digits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from boundscope.errors import VariabilityError

Floats = NDArray[np.floating[Any]]
Float64 = NDArray[np.float64]
Counts = NDArray[np.int32]

# Unsigned integers of the same width, to compare bits.
_BITS: dict[np.dtype[Any], type[np.unsignedinteger[Any]]] = {
    np.dtype(np.float16): np.uint16,
    np.dtype(np.float32): np.uint32,
    np.dtype(np.float64): np.uint64,
}

# Outside these a sum of squares of float64 samples has overflowed or lost digits among subnormal numbers.
_SQUARES_MIN, _SQUARES_MAX = 2.0**-900, 2.0**1020


class _Block(NamedTuple):
    """Mean of the differences from the reference, and sum of squares about it (None: one sample, so zero)."""

    mean: Float64
    squares: Float64 | None


def _join(left: _Block, right: _Block, left_count: int, right_count: int) -> _Block:
    count = left_count + right_count
    delta = right.mean - left.mean
    mean = left.mean + delta * (right_count / count)
    np.multiply(delta, delta, out=delta)
    delta *= left_count * right_count / count
    for squares in (left.squares, right.squares):
        if squares is not None:
            delta += squares
    return _Block(mean, delta)


@dataclass(frozen=True)
class Totals:
    """Moments of a tensor of some shape S over `samples` samples; every array has shape S.

    `mean` and `squares` (Σ(x − mean)², M2 in the literature) are float64, NaN where any sample is NaN or infinite.
    `least` and `greatest` leave NaN out and hold zero as +0. `equal` counts the samples whose bits are those of the
    reference, `nan`, `positive_infinite` and `negative_infinite` those samples that are it.
    """

    samples: int
    mean: Float64
    squares: Float64
    least: Floats
    greatest: Floats
    equal: Counts
    nan: Counts
    positive_infinite: Counts
    negative_infinite: Counts

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Where no sample is NaN or infinite."""
        special = self.nan + self.positive_infinite + self.negative_infinite
        return np.asarray(special == 0)

    def log2_std(self, ddof: int = 1) -> Float64:
        """log2 of the standard deviation; −inf where all samples are equal, NaN where not all are finite.

        `ddof` is 1 for the unbiased variance, 0 for the deviation of the samples themselves. Where float64 samples
        vary by more than 2^510 or less than 2^-450, whose squares are no longer numbers with all their digits, it
        is of half their range, scaled likewise: never less than their deviation (Popoviciu's inequality).
        Raises VariabilityError for fewer than ddof + 1 samples.
        """
        with np.errstate(divide="ignore"):
            log2_std = np.asarray(0.5 * np.log2(self._variance(ddof)))
        lost, log2_half_range = self._beyond_squares(ddof)
        log2_std[lost] = log2_half_range
        return log2_std

    def std(self, ddof: int = 1) -> Float64:
        """The standard deviation, of shape S; see `log2_std`. It may overflow or underflow where its log2 does not."""
        std = np.asarray(np.sqrt(self._variance(ddof)))
        lost, log2_half_range = self._beyond_squares(ddof)
        with np.errstate(over="ignore", under="ignore"):
            std[lost] = np.exp2(log2_half_range)
        return std

    def _variance(self, ddof: int) -> Float64:
        if self.samples <= ddof:
            raise VariabilityError(
                f"a standard deviation needs at least {ddof + 1} samples, here are {self.samples}"
            )
        return self.squares / (self.samples - ddof)

    def _beyond_squares(self, ddof: int) -> tuple[NDArray[np.bool_], Float64]:
        """Where squares are zero or lost, and log2 of half the range there; −inf where all samples are equal."""
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            lost = np.asarray(self.finite & ~((self.squares > _SQUARES_MIN) & (self.squares < _SQUARES_MAX)))
            least, greatest = (np.asarray(x)[lost].astype(np.float64) for x in (self.least, self.greatest))
            wide = greatest * 0.5 - least * 0.5
            log2_half_range = np.where(wide > 1, np.log2(wide), np.log2(greatest - least) - 1)
        return lost, log2_half_range + 0.5 * np.log2(self.samples / (self.samples - ddof))


class Moments:
    """What is known of one tensor after some samples; see the module for how sums are arranged.

    `reference` (shape S; float16, float32 or float64) is any tensor that all ranks share, such as the unperturbed
    baseline or the first sample: sums are of differences from it, and samples with its bits are counted. bfloat16
    is passed as float32, which holds it exactly. `name` is the layer's, for messages.
    """

    def __init__(self, reference: Floats, name: str = "tensor") -> None:
        self.name = name
        array = np.asarray(reference)
        if array.dtype not in _BITS:
            raise VariabilityError(
                f"{name}: moments are of float16, float32 or float64, not {array.dtype}; "
                "convert the samples (bfloat16 fits float32 exactly) or leave this tensor out"
            )
        self.shape: tuple[int, ...] = array.shape
        self.dtype: np.dtype[Any] = array.dtype
        self._reference: Floats = array.reshape(-1).copy()
        finite = np.isfinite(self._reference)
        self._shift = self._reference if finite.all() else np.where(finite, self._reference, 0)
        self._blocks: dict[tuple[int, int], _Block] = {}
        self._least: Floats = np.full(array.size, np.nan, array.dtype)
        self._greatest = self._least.copy()
        self._equal: Counts = np.zeros(array.size, np.int32)
        # Most tensors never hold such a value: no array until one does.
        self._special: dict[str, Counts] = {}

    @property
    def reference(self) -> Floats:
        return self._reference.reshape(self.shape)

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the samples held, ascending."""
        return tuple(sorted(number for key in self._blocks for number in _numbers(*key)))

    @property
    def samples(self) -> int:
        return sum(1 << level for level, _ in self._blocks)

    @property
    def resident_bytes(self) -> int:
        """Memory of the arrays held."""
        return sum(array.nbytes for array in self.state().values())

    def holds(self, number: int) -> bool:
        return any(number >> level == index for level, index in self._blocks)

    def check(self, number: int, sample: Floats) -> None:
        """Raise VariabilityError if `update(number, sample)` would: wrong shape or type, or a number held already."""
        if number < 0:
            raise VariabilityError(f"{self.name}: sample numbers start at 0, not {number}")
        if self.holds(number):
            raise VariabilityError(f"{self.name}: sample {number} is there already; each is taken once")
        if sample.shape != self.shape or sample.dtype != self.dtype:
            raise VariabilityError(
                f"{self.name}: sample {number} is {sample.dtype} of shape {sample.shape}, "
                f"the samples before it {self.dtype} of shape {self.shape}"
            )

    def update(self, number: int, sample: Floats) -> None:
        """Take one sample, of the reference's shape and type, in any order of numbers. Raises as `check` does."""
        self.check(number, sample)
        values = np.asarray(sample).reshape(-1)
        bits = _BITS[self.dtype]
        self._equal += values.view(bits) == self._reference.view(bits)
        if not np.isfinite(values).all():
            self._count("nan", np.isnan(values))
            self._count("positive_infinite", np.isposinf(values))
            self._count("negative_infinite", np.isneginf(values))
        unsigned_zero = values + self.dtype.type(0)
        self._spread(unsigned_zero, unsigned_zero)
        with np.errstate(invalid="ignore", over="ignore"):
            self._insert(0, number, _Block(np.subtract(values, self._shift, dtype=np.float64), None))

    def check_merge(self, other: Moments) -> None:
        """Raise VariabilityError if `merge(other)` would: shape, type or reference differ, or a number is in both."""
        both = sorted(set(self.numbers) & set(other.numbers))
        if both:
            raise VariabilityError(
                f"{self.name}: samples {_listed(both)} are in both parts; each is taken once"
            )
        if (self.shape, self.dtype) != (other.shape, other.dtype):
            raise VariabilityError(
                f"{self.name}: parts differ: {self.dtype} of shape {self.shape}, "
                f"and {other.dtype} of shape {other.shape}"
            )
        if self._reference.tobytes() != other._reference.tobytes():
            raise VariabilityError(
                f"{self.name}: parts have different references; give all ranks the same (the unperturbed "
                "baseline). If it was the baseline, it is not the same bits on all ranks"
            )

    def merge(self, other: Moments) -> None:
        """Take all samples of `other`, which stays as it is; the same bits in any grouping. Raises as `check_merge`."""
        self.check_merge(other)
        self._equal += other._equal
        for kind, counts in other._special.items():
            self._count(kind, counts)
        self._spread(other._least, other._greatest)
        with np.errstate(invalid="ignore", over="ignore"):
            for (level, index), block in sorted(other._blocks.items()):
                self._insert(level, index, block)

    def totals(self) -> Totals:
        """Moments over all samples held. Raises VariabilityError where there are none."""
        if not self._blocks:
            raise VariabilityError(f"{self.name}: no sample was taken")
        ordered = sorted(self._blocks.items(), key=lambda item: item[0][1] << item[0][0])
        (level, _), total = ordered[0]
        count = 1 << level
        with np.errstate(invalid="ignore", over="ignore"):
            for (level, _), block in ordered[1:]:
                total = _join(total, block, count, 1 << level)
                count += 1 << level
            squares = total.mean * 0 if total.squares is None else total.squares.copy()
            mean = self._shift + total.mean
            # Differences of float64 samples may overflow where the samples do not.
            lost = ~np.isfinite(mean)
            mean[lost] = 0.5 * self._least[lost] + 0.5 * self._greatest[lost]
            squares[lost] = np.inf
        for counts in self._special.values():
            mean[counts > 0] = squares[counts > 0] = np.nan
        special = {kind: self._special.get(kind, np.zeros_like(self._equal)) for kind in _SPECIAL}
        return Totals(
            samples=count,
            mean=mean.reshape(self.shape),
            squares=squares.reshape(self.shape),
            least=self._least.reshape(self.shape).copy(),
            greatest=self._greatest.reshape(self.shape).copy(),
            equal=self._equal.reshape(self.shape).copy(),
            **{kind: counts.reshape(self.shape).copy() for kind, counts in special.items()},
        )

    # ------------------------------------------------------------ as arrays

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything as named arrays (for a file or another process), which must not be written to."""
        arrays: dict[str, NDArray[Any]] = {
            "reference": self.reference,
            "least": self._least,
            "greatest": self._greatest,
            "equal": self._equal,
            **self._special,
        }
        for (level, index), block in sorted(self._blocks.items()):
            arrays[f"mean.{level}.{index}"] = block.mean
            if block.squares is not None:
                arrays[f"squares.{level}.{index}"] = block.squares
        return arrays

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], name: str = "tensor") -> Moments:
        """Inverse of `state`. Raises VariabilityError where arrays are missing or do not fit one another."""
        try:
            moments = cls(arrays["reference"], name)
            size = moments._equal.size
            for key, array in arrays.items():
                if array.size != size:
                    raise VariabilityError(f"{name}: {key} has {array.size} elements, expected {size}")
            moments._least, moments._greatest = arrays["least"].copy(), arrays["greatest"].copy()
            moments._equal = arrays["equal"].copy()
            moments._special = {kind: arrays[kind].copy() for kind in _SPECIAL if kind in arrays}
            for key in arrays:
                if key.startswith("mean."):
                    level, index = (int(part) for part in key.split(".")[1:])
                    squares = arrays[f"squares.{level}.{index}"] if level else None
                    moments._blocks[level, index] = _Block(arrays[key], squares)
        except (KeyError, ValueError) as error:
            raise VariabilityError(f"{name}: these are no moments: {error}") from error
        return moments

    # ------------------------------------------------------------ inside

    def _count(self, kind: str, found: NDArray[np.bool_] | Counts) -> None:
        if found.any():
            self._special.setdefault(kind, np.zeros_like(self._equal))
            self._special[kind] += found

    def _spread(self, least: Floats, greatest: Floats) -> None:
        np.fmin(self._least, least, out=self._least)
        np.fmax(self._greatest, greatest, out=self._greatest)

    def _insert(self, level: int, index: int, block: _Block) -> None:
        """Add a block, and join neighbours as long as there are two."""
        while (neighbour := self._blocks.pop((level, index ^ 1), None)) is not None:
            left, right = (neighbour, block) if index & 1 else (block, neighbour)
            block = _join(left, right, 1 << level, 1 << level)
            level, index = level + 1, index >> 1
        self._blocks[level, index] = block


_SPECIAL = ("nan", "positive_infinite", "negative_infinite")


def _numbers(level: int, index: int) -> range:
    return range(index << level, (index + 1) << level)


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(str(number) for number in numbers)
