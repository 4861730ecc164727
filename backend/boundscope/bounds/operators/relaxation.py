"""Linear bounds of a non-linear node in its inputs, and how rows go through them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

Parts = tuple[Tensor | None, ...]  # for each input of a node, coefficients [R, *S_in] or None
Backward = tuple[Parts, Tensor | None]


def per_row(rows: Tensor) -> Tensor:
    """Rows [R, *S] as a matrix [R, elements], of scalars (*S empty) too."""
    return rows.reshape(len(rows), -1)


SUM_BLOCK = 64


def dot(rows: Tensor, vector: Tensor) -> Tensor:
    """Σ rows·vector over all but the row axis: rows [R, *S], vector broadcastable to *S, or [R, *S]; [R] float64.

    Products are of the rows' dtype, one rounding each. Float32 ones are summed in blocks of SUM_BLOCK, and the blocks
    in float64.
    """
    vector = vector if vector.is_floating_point() else vector.to(torch.float64)
    if rows.dtype == torch.float64 and vector.dim() < rows.dim() and vector.numel() == rows[0].numel():
        return per_row(rows) @ vector.flatten()
    products = per_row(rows * vector)
    if products.dtype == torch.float64:
        return products.sum(1)
    count, elements = products.shape
    whole = elements // SUM_BLOCK * SUM_BLOCK
    blocks = products[:, :whole].reshape(count, -1, SUM_BLOCK).sum(2).sum(1, dtype=torch.float64)
    return blocks + products[:, whole:].sum(1).double()


def sum_to(rows: Tensor, shape: tuple[int, ...] | torch.Size) -> Tensor:
    """Undo numpy's broadcasting: sum coefficients [R, *S_out] over the axes along which *S_in was repeated.

    `shape` is (R, *S_in).
    """
    count, inner = shape[0], tuple(shape[1:])
    missing = rows.dim() - 1 - len(inner)
    if missing:
        rows = rows.reshape(count, -1, *rows.shape[1 + missing :]).sum(1)
    axes = tuple(axis + 1 for axis, size in enumerate(inner) if size == 1 and rows.shape[axis + 1] != 1)
    return rows.sum(axes, keepdim=True) if axes else rows


def _tensors_in(value: object) -> Iterator[Tensor]:
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, tuple):
        for one in value:
            yield from _tensors_in(one)
    elif dataclasses.is_dataclass(value):
        for field in dataclasses.fields(value):
            yield from _tensors_in(getattr(value, field.name))


class Relaxation:
    """A linear function below and one above each output of a node, wherever its inputs lie in their intervals."""

    def through(self, rows: Tensor) -> Backward:
        """Rows [R, *S_out] at the output as rows at each of the node's inputs, and a constant [R].

        Where a coefficient is positive the lower function is used, where negative the upper one. Must be
        differentiable in the relaxation's own tensors where these need gradients.
        """
        raise NotImplementedError

    def to(self, dtype: torch.dtype) -> Relaxation:
        """The same in another floating dtype."""
        raise NotImplementedError

    def tensors(self) -> Iterator[Tensor]:
        """Every tensor that it holds."""
        return _tensors_in(self)

    def with_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> Relaxation:
        """The same with coefficients that belong to inputs of these shapes, [R, *S_in]."""
        return self

    def lowest(self, inputs: tuple[Tensor | None, ...]) -> Tensor | None:
        """The lower function's value [*S_out] at a point of the inputs; None where that has no short form."""
        return None

    def at(self, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor, Tensor] | None:
        """Both functions' values at a point, without any care for rounding; None where that has no short form."""
        return None

    def losses(
        self, rows: Tensor, inputs: tuple[Tensor | None, ...] | None
    ) -> tuple[Tensor | None, ...] | None:
        """What rows [R, *S_out] lose, for each input [R, *S_in] at the elements whose ranges are to blame, without any
        care for rounding; None where `at` tells what is to be told.

        Args:
            rows: coefficients of the outputs.
            inputs: where, [R, *S_in]; None: on average over the box.
        """
        return None

    def about(self, inputs: tuple[Tensor | None, ...], output: Tensor) -> Relaxation | None:
        """The same functions of the inputs' distances from a point, around the output's distance from `output`.

        None where there is no short form. Intercepts are then small where the point is near.
        """
        return None


@dataclass(frozen=True)
class Lines(Relaxation):
    """Two lines around an element-wise function of one input, tensors [*S], or [R, *S] of each row's own:

    lower_slope·x + lower_intercept ≤ f(x) ≤ upper_slope·x + upper_intercept.

    `position` is the index of that input among the node's `arity` inputs; no lower intercept means zero.
    """

    lower_slope: Tensor
    lower_intercept: Tensor | None
    upper_slope: Tensor
    upper_intercept: Tensor
    position: int = 0
    arity: int = 1

    def through(self, rows: Tensor) -> Backward:
        negative = rows.clamp(max=0)
        carried = torch.addcmul(rows * self.lower_slope, negative, self.upper_slope - self.lower_slope)
        constant = dot(negative, self.upper_intercept)
        if self.lower_intercept is not None:
            constant = constant + dot(rows - negative, self.lower_intercept)
        parts: list[Tensor | None] = [None] * self.arity
        parts[self.position] = carried
        return tuple(parts), constant

    def lowest(self, inputs: tuple[Tensor | None, ...]) -> Tensor | None:
        x = inputs[self.position]
        assert x is not None
        low = self.lower_slope * x
        return low if self.lower_intercept is None else low + self.lower_intercept

    def at(self, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor, Tensor]:
        x, low = inputs[self.position], self.lowest(inputs)
        assert x is not None
        assert low is not None
        return low, self.upper_slope * x + self.upper_intercept

    def about(self, inputs: tuple[Tensor | None, ...], output: Tensor) -> Lines:
        x = inputs[self.position]
        assert x is not None
        low = (
            self.lower_slope * x
            if self.lower_intercept is None
            else self.lower_slope * x + self.lower_intercept
        )
        low = low - output
        return dataclasses.replace(
            self,
            lower_intercept=low if low.requires_grad or bool((low != 0).any()) else None,
            upper_intercept=self.upper_slope * x + self.upper_intercept - output,
        )

    def to(self, dtype: torch.dtype) -> Lines:
        return Lines(
            self.lower_slope.to(dtype),
            None if self.lower_intercept is None else self.lower_intercept.to(dtype),
            self.upper_slope.to(dtype),
            self.upper_intercept.to(dtype),
            self.position,
            self.arity,
        )


@dataclass(frozen=True)
class BroadcastLines(Relaxation):
    """Lines in the output's shape around a function of an input whose own `shape` broadcasts to it."""

    lines: Lines
    shape: tuple[int, ...]

    def through(self, rows: Tensor) -> Backward:
        parts, constant = self.lines.through(rows)
        shape = (rows.shape[0], *self.shape)
        return tuple(None if part is None else sum_to(part, shape) for part in parts), constant

    def with_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> BroadcastLines:
        return BroadcastLines(self.lines, shapes[self.lines.position])

    def lowest(self, inputs: tuple[Tensor | None, ...]) -> Tensor | None:
        return self.lines.lowest(inputs)

    def at(self, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor, Tensor]:
        return self.lines.at(inputs)

    def about(self, inputs: tuple[Tensor | None, ...], output: Tensor) -> BroadcastLines:
        return BroadcastLines(self.lines.about(inputs, output), self.shape)

    def to(self, dtype: torch.dtype) -> BroadcastLines:
        return BroadcastLines(self.lines.to(dtype), self.shape)


@dataclass(frozen=True)
class Planes(Relaxation):
    """Two planes around an element-wise function of two inputs x and y, which broadcast to the output's *S:

    lower[0]·x + lower[1]·y + lower[2] ≤ f(x, y) ≤ upper[0]·x + upper[1]·y + upper[2].

    Coefficients are [*S] or [R, *S]; `shapes` are the two inputs' own shapes.
    """

    lower: tuple[Tensor, Tensor, Tensor]
    upper: tuple[Tensor, Tensor, Tensor]
    shapes: tuple[tuple[int, ...], tuple[int, ...]]

    def through(self, rows: Tensor) -> Backward:
        negative = rows.clamp(max=0)
        positive = rows - negative
        parts = tuple(
            sum_to(
                positive * self.lower[index] + negative * self.upper[index],
                (rows.shape[0], *self.shapes[index]),
            )
            for index in (0, 1)
        )
        return parts, dot(positive, self.lower[2]) + dot(negative, self.upper[2])

    def with_shapes(self, shapes: tuple[tuple[int, ...], ...]) -> Planes:
        return Planes(self.lower, self.upper, (shapes[0], shapes[1]))

    def at(self, inputs: tuple[Tensor | None, ...]) -> tuple[Tensor, Tensor]:
        x, y = inputs
        assert x is not None
        assert y is not None
        low, high = (plane[0] * x + plane[1] * y + plane[2] for plane in (self.lower, self.upper))
        return low, high

    def to(self, dtype: torch.dtype) -> Planes:
        below, above = (tuple(t.to(dtype) for t in plane) for plane in (self.lower, self.upper))
        return Planes((below[0], below[1], below[2]), (above[0], above[1], above[2]), self.shapes)


@dataclass(frozen=True)
class Constants(Relaxation):
    """No slope at all: the output's own interval, tensors [*S_out]. Sound for any operator, however coarse."""

    lower: Tensor
    upper: Tensor
    arity: int = 1

    def through(self, rows: Tensor) -> Backward:
        negative = rows.clamp(max=0)
        return (None,) * self.arity, dot(rows - negative, self.lower) + dot(negative, self.upper)

    def to(self, dtype: torch.dtype) -> Constants:
        return Constants(self.lower.to(dtype), self.upper.to(dtype), self.arity)
