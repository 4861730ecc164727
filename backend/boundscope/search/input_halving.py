"""Parts of boxes halved: each at the input that costs its worst row most, or at its widest where none is known to."""

from __future__ import annotations

import numpy as np

from boundscope.search.input_layout import Floats, Rows

RESOLUTION = 2.0**-50  # of an input's largest absolute value: parts are not split more finely


def halved(rows: Rows, resolution: Floats) -> tuple[Rows, Rows]:
    """The halves of those parts that can be halved, first all lower ones; and the parts that cannot.

    Args:
        rows: `lower`, `upper` and `score` [D, F], `depth` [D], and whatever halves inherit.
        resolution: [F] widths that are not halved.
    """
    lower, upper = rows["lower"], rows["upper"]
    middle = lower / 2 + upper / 2
    divides = (middle > lower) & (middle < upper) & (upper - lower > resolution)
    able = divides.any(1)
    whole = {name: array[~able] for name, array in rows.items()}
    if not able.all():
        rows = {name: array[able] for name, array in rows.items()}
        lower, upper, middle, divides = lower[able], upper[able], middle[able], divides[able]
    if not len(lower):
        return rows, whole
    width = np.where(divides, upper - lower, 0.0)
    score = np.where(divides, rows["score"], -1.0)
    axis = np.where(score.max(1) > 0, score.argmax(1), width.argmax(1))
    each = np.arange(len(axis))
    below, above = upper.copy(), lower.copy()
    below[each, axis] = above[each, axis] = middle[each, axis]
    halves = {name: np.concatenate([array, array]) for name, array in rows.items()}
    halves["lower"], halves["upper"] = np.concatenate([lower, above]), np.concatenate([below, upper])
    halves["depth"] = halves["depth"] + 1
    both = np.concatenate([each, each + len(axis)])
    halves["score"][both, np.concatenate([axis, axis])] /= 2
    return halves, whole
