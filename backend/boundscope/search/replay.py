"""A counterexample, judged by ONNX Runtime on the original file and by a reader of its own of the property."""

from __future__ import annotations

import gzip
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from boundscope.errors import NetworkError, PropertyError
from boundscope.network.runtime import Session, original_source
from boundscope.protocol import Replay
from boundscope.search.formula import Formula, Limit
from boundscope.search.formula_reader import NUMBER, FormulaReader

BATCH_ROWS = 64
BATCH_ELEMENTS = 1_000_000  # larger batches are not tried
LISTED = 3


class Runs:
    """Both ways in which ONNX Runtime runs a file, opened when they are first needed and then kept."""

    def __init__(self, network_path: str | os.PathLike[str]) -> None:
        self.path = Path(network_path)

    @cached_property
    def _source(self) -> bytes:
        return original_source(self.path)

    @cached_property
    def optimized(self) -> Session:
        return Session(self._source, self.path.name, optimized=True)

    @cached_property
    def plain(self) -> Session:
        session = Session(self._source, self.path.name, optimized=False)
        del self._source
        return session

    def outputs(self, values: NDArray[np.float64], count: int) -> NDArray[np.float64]:
        """The optimised run's outputs [count] at inputs [inputs], flattened; NaN where it fails. Proves nothing."""
        try:
            return np.array(_run(self.optimized, values))
        except NetworkError:
            return np.full(count, np.nan)


def replay(
    network: str | os.PathLike[str] | Runs, property_path: str | os.PathLike[str], inputs: Sequence[str]
) -> Replay:
    """Run a counterexample through ONNX Runtime, with and without graph optimisation, and judge it by the file.

    Args:
        network: the original ONNX file, or its runs, where several counterexamples are replayed.
        property_path: the original VNN-LIB file.
        inputs: decimal texts X_0 … X_{n−1}, in the order of the property.

    Returns:
        `inside_box`: the decimals as written satisfy every constraint on the inputs. `violates` (optimised) and
        `violates_unoptimized`: ONNX Runtime's outputs satisfy, exactly, every assert that speaks of outputs.
        `note` says what people must know besides: inputs that floating point cannot express inside the box,
        runs that disagree, outputs that are not finite.

    Raises:
        NetworkError, PropertyError: a file cannot be read, or does not go with the number of inputs.
    """
    runs = network if isinstance(network, Runs) else Runs(network)
    optimized, plain = runs.optimized, runs.plain
    decimals = _decimals(inputs, optimized)
    text = _read_text(property_path)
    formula = FormulaReader(text, decimals, str(property_path)).read()
    dtype = optimized.inputs[0][2]
    cast = _cast(decimals, dtype, formula.limits)
    first, second = _run(optimized, cast.values), _run(plain, cast.values)
    violates, violates_unoptimized = formula.holds(first), formula.holds(second)
    notes = _outside_notes(formula) + _cast_notes(cast, dtype)
    if (
        formula.inside_box
        and formula.relates_inputs
        and not cast.outside
        and not _inside(text, cast.values, property_path)
    ):
        notes.append(f"as {dtype.name} numbers the inputs leave the box as written")
    if not all(math.isfinite(y) for y in (*first, *second)):
        notes.append(
            "some outputs are not finite; a comparison with NaN or infinity never counts as a violation"
        )
    notes += _disagreements(violates, violates_unoptimized, first, second)
    notes += _batch_notes(optimized, cast.values, formula, violates)
    if not (violates or violates_unoptimized):
        notes.append("ONNX Runtime does not reproduce a violation")
    return Replay(
        inside_box=formula.inside_box,
        violates=violates,
        violates_unoptimized=violates_unoptimized,
        outputs=first,
        note="; ".join(notes),
    )


def witness_texts(
    values: NDArray[np.float64], lower_text: Sequence[str], upper_text: Sequence[str]
) -> tuple[str, ...]:
    """Decimal texts of a floating-point point that lie inside the box as written.

    Each text reads back as the same float64 (and float32, where the value is one), except where that number lies
    outside the box: then it is the bound's own text, as for a degenerate interval such as [0.1, 0.1].

    Args:
        values: [inputs], the point, float32 numbers kept in float64 or float64 numbers.
        lower_text: decimals of the box as written; likewise upper_text.

    Raises:
        PropertyError: a value is not finite.
    """
    texts = []
    for index, (value, lower, upper) in enumerate(zip(values.tolist(), lower_text, upper_text, strict=True)):
        if not math.isfinite(value):
            raise PropertyError(f"input X_{index} of the counterexample is not finite ({value})")
        text = repr(value)
        exact = Decimal(text)
        if exact < Decimal(lower):
            text = lower
        elif exact > Decimal(upper):
            text = upper
        texts.append(text)
    return tuple(texts)


@dataclass(frozen=True)
class _Cast:
    """Inputs in floating point; `outside` and `moved` index those outside their interval, or moved into it."""

    values: NDArray[Any]
    decimals: Sequence[Decimal]
    outside: tuple[int, ...]
    moved: tuple[int, ...]


def _decimals(inputs: Sequence[str], session: Session) -> list[Decimal]:
    expected = sum(math.prod(shape) for _, shape, _ in session.inputs)
    if len(inputs) != expected:
        raise NetworkError(f"{session.name}: has {expected} inputs; the counterexample has {len(inputs)}")
    for index, text in enumerate(inputs):
        if not NUMBER.fullmatch(text):
            raise PropertyError(f"input X_{index} of the counterexample is not a decimal number: '{text}'")
    return [Decimal(text) for text in inputs]


def _read_text(path: str | os.PathLike[str]) -> str:
    try:
        data = Path(path).read_bytes()
        if data.startswith(b"\x1f\x8b"):
            data = gzip.decompress(data)
        return data.decode()
    except (OSError, EOFError, zlib.error, UnicodeDecodeError) as error:
        raise PropertyError(f"{path}: cannot be read: {error}") from error


def _cast(decimals: Sequence[Decimal], dtype: np.dtype[Any], limits: Sequence[Limit]) -> _Cast:
    """The nearest floating-point numbers that lie inside the limits; just the nearest where none does."""
    values = _nearest(decimals, dtype)
    outside, moved = set(), set()
    bounds: dict[int, list[Limit]] = {}
    for limit in limits:
        bounds.setdefault(limit.index, []).append(limit)
    for index, own in bounds.items():
        value = values[index]
        if _within(value, own):
            continue
        step = np.nextafter(value, dtype.type(-np.inf if Decimal(float(value)) > decimals[index] else np.inf))
        if _within(step, own):
            values[index] = step
            moved.add(index)
        else:
            outside.add(index)
    return _Cast(values, decimals, tuple(sorted(outside)), tuple(sorted(moved)))


def _nearest(decimals: Sequence[Decimal], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Each decimal rounded once to the nearest number of this dtype."""
    doubles = np.array([float(d) for d in decimals], dtype=np.float64)
    with np.errstate(over="ignore"):
        values = doubles.astype(dtype)
    if dtype == np.float64:
        return values
    # float64 first, then float32, rounds twice; that matters only where the float64 is a tie.
    other = np.nextafter(values, np.where(doubles > values, np.inf, -np.inf).astype(dtype))
    ties = np.flatnonzero(np.abs(doubles - values) == np.abs(other.astype(np.float64) - doubles))
    for index in ties.tolist():
        here, there = Fraction(float(values[index])), Fraction(float(other[index]))
        exact = Fraction(decimals[index])
        if abs(there - exact) < abs(here - exact):
            values[index] = other[index]
    return values


def _within(value: Any, limits: Sequence[Limit]) -> bool:
    if not math.isfinite(value):
        return False
    exact = Decimal(float(value))
    return all(
        exact <= limit.value
        if limit.relation == "<="
        else exact >= limit.value
        if limit.relation == ">="
        else exact < limit.value
        if limit.relation == "<"
        else exact > limit.value
        if limit.relation == ">"
        else exact == limit.value
        for limit in limits
    )


def _feeds(session: Session, values: NDArray[Any], rows: int = 1) -> dict[str, NDArray[Any]]:
    feeds, position = {}, 0
    for name, shape, dtype in session.inputs:
        size = math.prod(shape)
        part = values[position : position + size].astype(dtype).reshape(shape)
        feeds[name] = part if rows == 1 else np.repeat(part, rows, axis=0)
        position += size
    return feeds


def _run(session: Session, values: NDArray[Any]) -> tuple[float, ...]:
    """All outputs, flattened one after another, as exact float64."""
    outputs = session.run(_feeds(session, values))
    return tuple(float(y) for output in outputs for y in np.asarray(output).reshape(-1).tolist())


def _inside(text: str, values: NDArray[Any], path: str | os.PathLike[str]) -> bool:
    return FormulaReader(text, [Decimal(float(v)) for v in values], str(path)).read().inside_box


def _outside_notes(formula: Formula) -> list[str]:
    if formula.outside:
        more = f" and {len(formula.outside) - LISTED} more" if len(formula.outside) > LISTED else ""
        failing = ", ".join(formula.outside[:LISTED])
        return [f"the inputs as written lie outside the box, which asks {failing}{more}"]
    if formula.decided is False:
        return ["the inputs as written lie outside every box of the property"]
    return []


def _cast_notes(cast: _Cast, dtype: np.dtype[Any]) -> list[str]:
    notes = []
    if cast.outside:
        shown = []
        for index in cast.outside[:LISTED]:
            exact = Decimal(float(cast.values[index]))
            excess = float(abs(exact - cast.decimals[index]))
            shown.append(f"X_{index} = {cast.decimals[index]} runs as {float(exact)!r} ({excess:.1e} off)")
        more = f" and {len(cast.outside) - LISTED} more" if len(cast.outside) > LISTED else ""
        notes.append(f"no {dtype.name} number lies in the interval of {'; '.join(shown)}{more}")
    if cast.moved:
        notes.append(f"{len(cast.moved)} inputs were moved to the nearest {dtype.name} number inside the box")
    return notes


def _disagreements(
    violates: bool, violates_unoptimized: bool, first: Sequence[float], second: Sequence[float]
) -> list[str]:
    """What to say where graph optimisation changes the verdict."""
    if violates == violates_unoptimized:
        return []
    which = "only with" if violates else "only without"
    return [
        f"ONNX Runtime violates {which} graph optimisation: outputs {_shown(first)} with, {_shown(second)} without"
    ]


def _shown(outputs: Sequence[float]) -> str:
    more = ", …" if len(outputs) > 2 * LISTED else ""
    return "(" + ", ".join(f"{y!r}" for y in outputs[: 2 * LISTED]) + more + ")"


def _batch_notes(session: Session, values: NDArray[Any], formula: Formula, violates: bool) -> list[str]:
    """Whether the same row in a batch gives another verdict, where the network takes batches."""
    if not session.takes_batches or values.size * BATCH_ROWS > BATCH_ELEMENTS:
        return []
    try:
        outputs = session.run(_feeds(session, values, BATCH_ROWS))
    except NetworkError:
        return []  # a batch of one is all that the network takes, whatever its input says
    if any(np.ndim(output) == 0 or output.shape[0] % BATCH_ROWS for output in outputs):
        return []
    split = [np.split(np.asarray(output), BATCH_ROWS) for output in outputs]
    for row in range(BATCH_ROWS):
        flat = [float(y) for parts in split for y in parts[row].reshape(-1).tolist()]
        if formula.holds(flat) != violates:
            return [
                f"ONNX Runtime gives another verdict in a batch of {BATCH_ROWS} (row {row}): outputs {_shown(flat)}"
            ]
    return []
