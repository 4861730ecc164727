"""Whether a network's decision changes under rounding noise, and how far it is from changing.

The decision of an input is the index of its largest score (argmax; the first of equals, as torch and numpy take it).
It is compared with the decision of the unperturbed baseline. The margin is the score of the baseline's decision minus
the largest other score, so a flipped decision has a negative margin; its mean over its standard deviation says how
many deviations of its own noise the decision is away from flipping.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boundscope.errors import VariabilityError
from boundscope.variability.digits import LEAST_SAMPLES
from boundscope.variability.moments import Counts, Float64, Floats, Moments

NO_DECISION = -1


@dataclass(frozen=True)
class DecisionTotals:
    """Decisions over `samples` samples; arrays have the scores' shape without the class axis (one entry a decision).

    `baseline` holds the unperturbed decisions, `NO_DECISION` where a score of the baseline is NaN. `flips` counts
    samples that decide otherwise, `undecided` samples with a NaN among the scores; neither is counted without a
    baseline. `margin_mean` and `margin_std` (unbiased) are in the scores' unit, NaN where a margin is not finite;
    `margin_std` is 0 where all samples have the same margin.
    """

    samples: int
    baseline: NDArray[np.int64]
    flips: Counts
    undecided: Counts
    margin_baseline: Float64
    margin_mean: Float64
    margin_std: Float64

    @property
    def noise_margin(self) -> Float64:
        """Mean margin over its standard deviation; ±inf where the margin never moves, NaN where it is not finite."""
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = self.margin_mean / self.margin_std
        # A margin of zero that never moves: a tie, decided by order alone.
        return np.where((self.margin_std == 0) & (self.margin_mean == 0), 0.0, ratio)

    def summary(self) -> DecisionSummary:
        decided = self.baseline != NO_DECISION
        ratios = self.noise_margin[decided & np.isfinite(self.noise_margin)]
        return DecisionSummary(
            samples=self.samples,
            decisions=int(self.baseline.size),
            without_baseline=int(np.count_nonzero(~decided)),
            flipped=int(np.count_nonzero(self.flips)),
            flips=int(self.flips.sum()),
            undecided=int(np.count_nonzero(self.undecided)),
            least_noise_margin=float(ratios.min()) if ratios.size else None,
            median_noise_margin=float(np.median(ratios)) if ratios.size else None,
        )


@dataclass(frozen=True)
class DecisionSummary:
    """Counts of decisions: `flipped` in at least one sample, `undecided` in at least one, `flips` over all samples.

    The noise margins (mean margin over its deviation) are over decisions whose margin moves; None where none does.
    """

    samples: int
    decisions: int
    without_baseline: int
    flipped: int
    flips: int
    undecided: int
    least_noise_margin: float | None
    median_noise_margin: float | None

    def sentence(self) -> str:
        """The summary in words."""
        text = (
            f"{self.flipped} of {self.decisions} decisions flip in at least one of {self.samples} samples "
            f"({self.flips} flips in all)"
        )
        if self.least_noise_margin is not None:
            text += f"; the closest margin is {_digits(self.least_noise_margin)} deviations of its own noise"
        if self.undecided:
            text += f"; {self.undecided} have NaN scores in some sample"
        if self.without_baseline:
            text += f"; {self.without_baseline} have NaN scores without any perturbation, and are not judged"
        return text


def _digits(value: float) -> str:
    """Three digits, large numbers written out: "-0.5", "833 000"."""
    text = f"{value:.3g}"
    return f"{float(text):,.0f}".replace(",", "\u202f") if "e+" in text else text


class Decisions:
    """Decisions of one output, sample by sample; mergeable over ranks as `Moments` are.

    `baseline` holds the scores of the unperturbed run, of shape S (float16, float32 or float64) with classes along
    `axis`: (inputs, classes), or (inputs, classes, height, width) for a segmentation with `axis=1`. Raises
    VariabilityError where there is no such axis or fewer than two classes.
    """

    def __init__(self, baseline: Floats, axis: int = -1, name: str = "output") -> None:
        self.name = name
        scores = np.asarray(baseline)
        if not -scores.ndim <= axis < scores.ndim or scores.shape[axis] < 2:
            raise VariabilityError(
                f"{name}: a decision needs at least two classes along axis {axis}, the scores have shape {scores.shape}"
            )
        self.axis = axis % scores.ndim
        self.shape: tuple[int, ...] = scores.shape
        self.dtype: np.dtype[Any] = scores.dtype
        self._baseline = _decide(scores, self.axis)
        self._flips: Counts = np.zeros(self._baseline.shape, np.int32)
        self._undecided = self._flips.copy()
        self._margins = Moments(self._margin(scores), f"margin of {name}")

    @property
    def numbers(self) -> tuple[int, ...]:
        """Numbers of the samples held, ascending."""
        return self._margins.numbers

    @property
    def samples(self) -> int:
        return self._margins.samples

    def check(self, number: int, scores: Floats) -> None:
        """Raise VariabilityError if `update(number, scores)` would: wrong shape or type, or a number held already."""
        if scores.shape != self.shape or scores.dtype != self.dtype:
            raise VariabilityError(
                f"{self.name}: sample {number} has scores of {scores.dtype} and shape {scores.shape}, "
                f"the baseline of {self.dtype} and shape {self.shape}"
            )
        self._margins.check(number, self._margins.reference)

    def update(self, number: int, scores: Floats) -> None:
        """Take the scores of one sample, of the baseline's shape and type. Raises as `check` does."""
        self.check(number, scores)
        decided = _decide(scores, self.axis)
        judged = self._baseline != NO_DECISION
        self._undecided += judged & (decided == NO_DECISION)
        self._flips += judged & (decided != NO_DECISION) & (decided != self._baseline)
        self._margins.update(number, self._margin(scores))

    def check_merge(self, other: Decisions) -> None:
        """Raise VariabilityError if `merge(other)` would: baselines differ, or a sample number is in both."""
        if self.axis != other.axis or not np.array_equal(self._baseline, other._baseline):
            raise VariabilityError(
                f"{self.name}: parts have different baselines; give all ranks the same scores"
            )
        self._margins.check_merge(other._margins)

    def merge(self, other: Decisions) -> None:
        """Take all samples of `other`, in any grouping, to the same bits. Raises as `check_merge` does."""
        self.check_merge(other)
        self._margins.merge(other._margins)
        self._flips += other._flips
        self._undecided += other._undecided

    def totals(self) -> DecisionTotals:
        """Decisions over all samples held. Raises VariabilityError for fewer than two."""
        if self.samples < LEAST_SAMPLES:
            raise VariabilityError(
                f"{self.name}: decisions need at least {LEAST_SAMPLES} samples, here are {self.samples}"
            )
        margins = self._margins.totals()
        return DecisionTotals(
            samples=margins.samples,
            baseline=self._baseline.copy(),
            flips=self._flips.copy(),
            undecided=self._undecided.copy(),
            margin_baseline=np.asarray(self._margins.reference, np.float64),
            margin_mean=margins.mean,
            margin_std=margins.std(ddof=1),
        )

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything as named arrays (for a file or another process), which must not be written to."""
        return {
            "axis": np.array(self.axis),
            "shape": np.array(self.shape, np.int64),
            "dtype": np.array(self.dtype.str),
            "baseline": self._baseline,
            "flips": self._flips,
            "undecided": self._undecided,
            **{f"margin.{key}": array for key, array in self._margins.state().items()},
        }

    @classmethod
    def from_state(cls, arrays: Mapping[str, NDArray[Any]], name: str = "output") -> Decisions:
        """Inverse of `state`. Raises VariabilityError where arrays are missing or do not fit one another."""
        decisions = cls.__new__(cls)
        decisions.name = name
        try:
            decisions.axis = int(arrays["axis"])
            decisions.shape = tuple(int(length) for length in arrays["shape"])
            decisions.dtype = np.dtype(str(arrays["dtype"]))
            decisions._baseline = arrays["baseline"].copy()
            decisions._flips, decisions._undecided = arrays["flips"].copy(), arrays["undecided"].copy()
        except (KeyError, ValueError, TypeError) as error:
            raise VariabilityError(f"{name}: these are no decisions: {error}") from error
        margins = {
            key.removeprefix("margin."): array for key, array in arrays.items() if key.startswith("margin.")
        }
        decisions._margins = Moments.from_state(margins, f"margin of {name}")
        return decisions

    def _margin(self, scores: Floats) -> Float64:
        """Score of the baseline's decision minus the largest other, in float64; NaN where there is no baseline."""
        wide = np.asarray(scores, np.float64)
        winner = np.expand_dims(np.maximum(self._baseline, 0), self.axis)
        first = np.take_along_axis(wide, winner, self.axis)
        others = wide.copy()
        np.put_along_axis(others, winner, -np.inf, self.axis)
        with np.errstate(invalid="ignore"):
            margin = (first - others.max(axis=self.axis, keepdims=True)).squeeze(self.axis)
        return np.where(self._baseline == NO_DECISION, np.nan, margin)


def _decide(scores: Floats, axis: int) -> NDArray[np.int64]:
    decided = scores.argmax(axis=axis)
    return np.where(np.isnan(scores).any(axis=axis), NO_DECISION, decided).astype(np.int64)
