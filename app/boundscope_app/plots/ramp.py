"""A scale of colours for numbers: from a lowest to a highest value, linear or by decades. No Qt."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from boundscope_app.plots.scale import LinearScale, Tick, decade_labels

LOG_FROM = 30.0  # values that lie further apart than by this factor are shown by decades
MOST_DECADES = 12
TICKS = 6


@dataclass(frozen=True)
class Ramp:
    """Colours go from `low` to `high`; what lies beyond has the colour of the end."""

    low: float = 0.0
    high: float = 1.0
    log: bool = False
    unit: str = ""

    def share(self, value: float) -> float:
        """How far along the colours a finite value lies, 0 to 1."""
        if self.log:
            if value <= self.low:
                return 0.0
            part = math.log(value / self.low) / math.log(self.high / self.low)
        else:
            part = (value - self.low) / (self.high - self.low)
        return min(max(part, 0.0), 1.0)

    def ticks(self) -> list[Tick]:
        """Labelled ticks by share: round values, or decades."""
        if not self.log:
            found = LinearScale().ticks(self.low, self.high, TICKS)
            return [Tick(self.share(tick.place), tick.label) for tick in found if tick.label]
        span = round(math.log10(self.high / self.low))
        strides = [each for each in range(1, span) if span / each <= TICKS]
        stride = next((each for each in strides if span % each == 0), strides[0] if strides else span)
        places = range(0, span + 1, stride)
        labels = decade_labels([self.low * 10.0**place for place in places])
        return [Tick(place / span, label) for place, label in zip(places, labels, strict=True)]


def ramp_for(values: Iterable[float], unit: str) -> Ramp:
    """A ramp that holds all finite values of a size (not negative): by decades where they lie far apart.

    By decades it begins and ends at whole ones, and spans MOST_DECADES at most; zero has the colour of its low end.
    """
    positive = [value for value in values if math.isfinite(value) and value > 0]
    if not positive:
        return Ramp(unit=unit)
    least, most = min(positive), max(positive)
    if most / least <= LOG_FROM:
        return Ramp(0.0, most, unit=unit)
    top = math.ceil(math.log10(most) - 1e-9)
    bottom = max(math.floor(math.log10(least) + 1e-9), top - MOST_DECADES)
    return Ramp(10.0**bottom, 10.0**top, log=True, unit=unit)
