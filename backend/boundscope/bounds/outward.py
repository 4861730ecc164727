"""Exact numbers as float64, rounded to a chosen side."""

from __future__ import annotations

import math
import sys
from fractions import Fraction


def round_up(value: Fraction) -> float:
    """The least float64 at or above an exact number."""
    nearest = _nearest(value)
    if math.isinf(nearest):
        return math.inf if nearest > 0 else -sys.float_info.max
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)


def round_down(value: Fraction) -> float:
    """The greatest float64 at or below an exact number."""
    nearest = _nearest(value)
    if math.isinf(nearest):
        return -math.inf if nearest < 0 else sys.float_info.max
    return nearest if Fraction(nearest) <= value else math.nextafter(nearest, -math.inf)


def _nearest(value: Fraction) -> float:
    """Infinite beyond the range of float64, where `float` raises."""
    try:
        return float(value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf
