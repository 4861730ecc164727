"""Scales of the margin axis: linear, and a logarithm that keeps the sign and does not hide zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from boundscope_app.plots.series import FloatArray

MOST_DECADES = 9
SMALLEST_SHARE = 0.05
MINUS = "\u2212"
SUPERSCRIPTS = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True)
class Tick:
    """Where a tick stands on the scaled axis, and what is written there ("" for a minor tick)."""

    place: float
    label: str


class Scale(Protocol):
    """A monotonic map from values to places on the axis, and the ticks that explain it."""

    def to(self, values: FloatArray) -> FloatArray: ...

    def back(self, place: float) -> float: ...

    def ticks(self, low: float, high: float, most: int) -> list[Tick]: ...


@dataclass(frozen=True)
class LinearScale:
    """Values as they are, or counted in a unit of `unit` (a mebibyte, say) for the ticks' sake."""

    unit: float = 1.0

    def to(self, values: FloatArray) -> FloatArray:
        return values

    def back(self, place: float) -> float:
        return place

    def ticks(self, low: float, high: float, most: int) -> list[Tick]:
        """At most about `most` labelled ticks at round values, with minor ticks between."""
        low, high = low / self.unit, high / self.unit
        step = nice_step(high - low, most)
        exponent = common_exponent(max(abs(low), abs(high)))
        result = []
        for k in range(math.ceil(low / step * 5 - 1e-6), math.floor(high / step * 5 + 1e-6) + 1):
            label = "" if k % 5 else tick_label(k // 5 * step, step, exponent)
            result.append(Tick(k / 5 * step * self.unit, label))
        return result


@dataclass(frozen=True)
class SignedLogScale:
    """y ↦ sign(y)·(1 + log10(|y|/threshold)) beyond ±threshold, and y/threshold between: one unit a decade.

    Zero and both signs have their place; the linear part between the thresholds is the marked floor.
    """

    threshold: float

    def to(self, values: FloatArray) -> FloatArray:
        size = np.abs(values) / self.threshold
        decades = 1 + np.log10(np.maximum(size, 1e-300))
        return np.sign(values) * np.where(size > 1, decades, size)

    def back(self, place: float) -> float:
        size = abs(place)
        value = self.threshold * (10 ** (size - 1) if size > 1 else size)
        return math.copysign(value, place)

    def ticks(self, low: float, high: float, most: int) -> list[Tick]:
        """Zero and the decades, every second or third one labelled where they crowd; minor ticks at 2 to 9."""
        places = range(math.ceil(low - 1e-9), math.floor(high + 1e-9) + 1)
        stride = max(1, math.ceil(len(places) / max(2, most)))
        labelled = [place for place in places if place % stride == 0]
        if len(labelled) < 2:
            values = LinearScale().ticks(self.back(low), self.back(high), most)
            return [Tick(float(self.to(np.array([tick.place]))[0]), tick.label) for tick in values]
        labels = decade_labels([self.back(float(p)) for p in labelled])
        named = dict(zip(labelled, labels, strict=True))
        result = [Tick(float(p), named.get(p, "")) for p in places]
        if stride == 1 and len(places) <= 12:
            decades = [p for p in range(places[0] - 1, places[-1] + 2) if p]
            minors = [math.copysign(abs(p) + math.log10(k), p) for p in decades for k in range(2, 10)]
            result += [Tick(minor, "") for minor in minors if low <= minor <= high]
        return result


def signed_log_for(values: FloatArray) -> SignedLogScale:
    """The scale whose linear part reaches to the decade of the smallest sizes that are not zero.

    One value in twenty may be smaller, and at most MOST_DECADES decades are drawn, so that a few tiny values,
    which then lie in the linear part, do not flatten the rest.
    """
    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if len(sizes) == 0:
        return SignedLogScale(1.0)
    greatest = math.floor(math.log10(sizes.max()))
    least = math.floor(math.log10(np.quantile(sizes, SMALLEST_SHARE, method="lower")))
    return SignedLogScale(10.0 ** max(least, greatest - MOST_DECADES))


def nice_step(span: float, most: int) -> float:
    """1, 2, 2.5 or 5 times a power of ten, such that at most about `most` steps fit into the span."""
    raw = max(span, 1e-300) / max(1, most)
    power = 10.0 ** math.floor(math.log10(raw))
    return next(power * k for k in (1, 2, 2.5, 5, 10) if power * k >= raw * (1 - 1e-9))


def common_exponent(largest: float) -> int | None:
    """The power of ten that labels of this size share; None where plain decimals are read more easily."""
    if largest <= 0:
        return None
    exponent = math.floor(math.log10(largest) + 1e-9)
    return None if -3 <= exponent < 5 else exponent


def decade_labels(values: Sequence[float]) -> list[str]:
    """Powers of ten, negative ones and 0 as one axis has them: all as powers where one of them must be."""
    sizes = [abs(value) for value in values if value]
    plain = all(common_exponent(size) is None for size in sizes)
    return [
        tick_label(value, abs(value) or 1.0, None if plain or not value else round(math.log10(abs(value))))
        for value in values
    ]


def tick_label(value: float, step: float, exponent: int | None = None) -> str:
    """Plain decimals, or m×10ⁿ with the exponent given; with the digits that tell steps apart."""
    if value == 0 or abs(value) < step / 100:
        return "0"
    least = _last_digit(step)
    if exponent is None:
        return f"{value:.{max(0, -least)}f}".replace("-", MINUS)
    mantissa = f"{value / 10.0**exponent:.{max(0, exponent - least)}f}".replace("-", MINUS)
    power = "10" + str(exponent).translate(SUPERSCRIPTS)
    return mantissa[:-1] + power if mantissa in ("1", MINUS + "1") else f"{mantissa}×{power}"


def _last_digit(step: float) -> int:
    """The power of ten of the step's last digit that is not zero (25 → 0, 0.5 → −1)."""
    exponent = math.floor(math.log10(step) + 1e-9)
    leading = step / 10.0**exponent
    return exponent if abs(leading - round(leading)) < 1e-6 else exponent - 1
