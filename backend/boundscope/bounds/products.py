"""Linear nodes over an axis of many boxes: y = A·x + b, and |A|·x, of stacked values at once.

Products with constants that follow each other are one: what a bound of the first would forget, and |A₂|·|A₁| would
count twice, |A₂·A₁| does not.
"""

from __future__ import annotations

import dataclasses
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.context import BoxContext
from boundscope.bounds.interval import Interval
from boundscope.bounds.links import Link
from boundscope.bounds.operators.base import NodeView, Rule
from boundscope.bounds.operators.linear import absolute_product, product
from boundscope.bounds.rounding import ENGINE, INFLATION, RoundingModel, gamma
from boundscope.network.graph import Node
from boundscope.network.operators.arithmetic import Sub
from boundscope.network.operators.linear import Gemm, MatMul

Values = Mapping[int, Tensor]  # of a node's perturbed inputs, [C, D, *S]
SPARSE_SHARE = 0.1  # of a matrix that is not zero, below which products skip the zeros
SPARSE_LEAST = 1 << 14  # elements of such a matrix
JOINED_ELEMENTS = 1 << 22  # of a matrix that is multiplied with the next one
JOINED_GROWTH = 4  # times the elements of both that are not zero, which those of a product may be


@dataclass(frozen=True)
class AffineMap:
    """What linear nodes do with C·D points at once.

    Attributes:
        through: A·x, of the points.
        absolute: |A|·x.
        offset, size: the outputs' constant parts b, and what their terms sum up to, of the outputs' own shapes.
        terms: how many products that are not zero are summed in an element, at most.
        repeated: whether the constant parts are added to, and taken off, each of many points.
        relative, underflow: of Σ|terms|, and beside it, what the deployed arithmetic may be off.
        error: Σ|terms|·x where that is more than |A|·x.
    """

    through: Callable[[Values], tuple[Tensor, ...]]
    absolute: Callable[[Values], tuple[Tensor, ...]]
    offset: tuple[Tensor, ...]
    size: tuple[Tensor, ...]
    terms: int
    relative: float = 0.0
    underflow: float | Tensor = 0.0
    error: Callable[[Values], tuple[Tensor, ...]] | None = None
    repeated: bool = False


class Matrices:
    """Constant matrices as products over many boxes read them, made once."""

    def __init__(self, context: BoxContext) -> None:
        self._context = context
        self._found: dict[tuple[str, bool], tuple[Tensor, Tensor, int] | None] = {}
        self._held: list[Tensor] = []

    @property
    def model(self) -> RoundingModel:
        return self._context.model

    def sparse(self, name: str, matrix: Tensor, transposed: bool) -> tuple[Tensor, Tensor, int] | None:
        """A constant matrix, transposed or not, and its absolute values as compressed rows, [out, in] float64, and the
        most elements of a row; None where it has too many of them."""
        if self._context.device.type != "cpu" or not isinstance(matrix, Tensor):
            return None
        key = name, transposed
        if key not in self._found:
            few = _few(matrix.t() if transposed else matrix, SPARSE_LEAST)
            self._found[key] = (
                None if few is None else (self.rows_of(few), self.rows_of(few.abs()), _longest(few))
            )
        return self._found[key]

    def rows_of(self, few: Tensor) -> Tensor:
        """A COO matrix as compressed rows, counted as a weight."""
        with _without_beta_warning():
            rows = few.to_sparse_csr()
        self._held += [
            self._context.ledger.hold(part, "weights")
            for part in (rows.crow_indices(), rows.col_indices(), rows.values())
        ]
        return rows

    def joined(self, row: Sequence[Link]) -> tuple[AffineMap, int] | None:
        """The first links of a row as one map, as many as it pays to join, and how many; None where it is one."""
        first = self._matrix(row[0])
        if first is None or self._context.device.type != "cpu":
            return None
        joined, count = first, 1
        for link in row[1:]:
            following = self._matrix(link)
            if following is None:
                break
            both = joined.then(following)
            most = JOINED_GROWTH * (joined.plain._nnz() + following.plain._nnz())
            if both.plain._nnz() > most:
                break
            joined, count = both, count + 1
        if count == 1:
            return None
        shape = self._context.network.tensors[row[count - 1].output].shape
        return joined.map(self, shape), count

    def _matrix(self, link: Link) -> _Joined | None:
        """A link by itself; None where its matrix is too large or does not come whole."""
        op, model = link.node.op, self.model
        rule = self._context.rule(link.node)
        with self._context.view(link.node) as view:
            constant = view.constant(1)
            if not isinstance(constant, Tensor):
                return None
            few = constant if constant.is_sparse else None
            if few is None and constant.numel() <= JOINED_ELEMENTS:
                few = constant.to_sparse()
            if few is None:
                return None
            few = few.coalesce().to(torch.float64)
            plain = few if isinstance(op, Gemm) and op.transpose_b else few.t().coalesce()
            scale = op.alpha if isinstance(op, Gemm) else 1.0
            offset = torch.zeros(plain.shape[0], dtype=torch.float64)
            size, terms = offset, _longest(plain) + 4
            deployed = plain.shape[1] + 3
            relative, underflow = model.relative(deployed) * INFLATION, model.absolute(deployed)
            if isinstance(op, Gemm) and (bias := view.constant(2)) is not None:
                if bias.numel() not in (1, len(offset)):
                    return None
                offset = offset + bias.flatten().to(torch.float64) * op.beta
                size = offset.abs()
        if rule.exact:
            relative, underflow = 0.0, 0.0
        if link.added is not None:
            constant = added_constant(self._context, link.added)
            if constant.numel() not in (1, len(offset)):
                return None
            offset, size = offset + constant.flatten(), size + constant.flatten().abs()
            relative, underflow = relative + 2.0 * model.relative(1), underflow + model.absolute(1)
        plain = plain if scale == 1.0 else plain * scale
        return _Joined(plain, plain.abs(), offset, size, terms, relative, underflow + torch.zeros_like(size))


@dataclass(frozen=True)
class _Joined:
    """Products in a row as one: COO matrices [out, in], `error` Σ|terms| of each element; vectors [out]."""

    plain: Tensor
    error: Tensor
    offset: Tensor
    size: Tensor
    terms: int
    relative: float
    underflow: Tensor

    def then(self, after: _Joined) -> _Joined:
        """This one, and then the other. What is rounded here is counted by `error` and `size`, as much as what the
        deployed network rounds on the way: its errors go through the second matrix, and are in what that rounds."""
        sizes = after.plain.abs()
        with _without_beta_warning():
            plain = torch.sparse.mm(after.plain, self.plain).coalesce()
            error = torch.sparse.mm(after.error, self.error).coalesce()
        return _Joined(
            plain,
            (error * (1.0 + 2.0**-30)).coalesce(),
            after.plain @ self.offset + after.offset,
            sizes @ self.size + after.size,
            self.terms + after.terms,
            self.relative + after.relative * (1.0 + self.relative),
            (sizes @ self.underflow) * (1.0 + after.relative) + after.underflow,
        )

    def map(self, matrices: Matrices, shape: tuple[int, ...]) -> AffineMap:
        parts = [_as_read(matrices, one) for one in (self.plain, self.plain.abs(), self.error)]

        def by(matrix: Tensor) -> Callable[[Values], tuple[Tensor, ...]]:
            return lambda values: (_times(values[0], matrix),)

        return AffineMap(
            by(parts[0]),
            by(parts[1]),
            (self.offset.expand(shape),),
            (self.size.expand(shape),),
            self.terms,
            self.relative * INFLATION,
            self.underflow.expand(shape) * INFLATION,
            by(parts[2]),
        )


@contextmanager
def _without_beta_warning() -> Iterator[None]:
    """Torch says once that compressed rows are in beta; products with them are what is used here."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse CSR tensor support is in beta state")
        yield


def _longest(few: Tensor) -> int:
    """The most elements in a row of a coalesced COO matrix."""
    return int(torch.bincount(few._indices()[0], minlength=1).max())


def _few(matrix: Tensor, least: int) -> Tensor | None:
    """A matrix as coalesced COO in float64, where few of its elements are not zero."""
    if not matrix.is_sparse:
        if matrix.numel() < least or int(torch.count_nonzero(matrix)) > SPARSE_SHARE * matrix.numel():
            return None
        matrix = matrix.to_sparse()
    return matrix.coalesce().to(torch.float64)


def _as_read(matrices: Matrices, few: Tensor) -> Tensor:
    """Compressed rows, or a plain matrix where that is not worth it."""
    dense = few._nnz() > SPARSE_SHARE * few.numel() or few.numel() < SPARSE_LEAST
    return few.to_dense() if dense else matrices.rows_of(few)


def _times(x: Tensor, matrix: Tensor) -> Tensor:
    """x [..., in] by a matrix [out, in], plain or of compressed rows."""
    flat = x.reshape(-1, x.shape[-1])
    y = flat @ matrix.T if matrix.layout is torch.strided else (matrix @ flat.t()).t()
    return y.reshape(*x.shape[:-1], y.shape[-1])


def added_constant(context: BoxContext, node: Node) -> Tensor:
    """What a sum adds to the product that it reads."""
    with context.view(node) as view:
        (constant,) = (value for value in view.constants if value is not None)
        constant = constant.to(torch.float64)
        return -constant if isinstance(node.op, Sub) else constant


def affine_map(
    rule: Rule[Any],
    view: NodeView[Any],
    shapes: Mapping[int, tuple[int, ...]],
    matrices: Matrices,
    added: Tensor | None,
) -> AffineMap:
    """How a node that is not relaxed maps stacked values of its perturbed inputs, of these shapes.

    `added` is a constant to count in.
    """
    way = _as_product(rule, view, shapes, matrices) or _by_vmap(rule, view, shapes)
    model = matrices.model
    if not rule.exact:
        terms = rule.terms(view)
        way = dataclasses.replace(
            way, relative=model.relative(terms) * INFLATION, underflow=model.absolute(terms)
        )
    if added is None:
        return way
    return dataclasses.replace(
        way,
        offset=(way.offset[0] + added,),
        size=(way.size[0] + added.abs(),),
        relative=way.relative + 2.0 * model.relative(1),
        underflow=way.underflow + model.absolute(1),
    )


def _as_product(
    rule: Rule[Any], view: NodeView[Any], shapes: Mapping[int, tuple[int, ...]], matrices: Matrices
) -> AffineMap | None:
    """A product with a constant matrix."""
    op = view.op
    if not isinstance(op, MatMul | Gemm) or tuple(shapes) not in ((0,), (1,)):
        return None
    (index,) = shapes
    shape, constant = shapes[index], view.constant(1 - index)
    if constant is None or constant.dim() != 2 or (index == 1 and (len(shape) < 2 or isinstance(op, Gemm))):
        return None
    # As [out, in]; a constant on the left multiplies columns.
    transposed = index == 0 and not (isinstance(op, Gemm) and op.transpose_b)
    few = matrices.sparse(view.node.inputs[1 - index], constant, transposed)
    scale = op.alpha if isinstance(op, Gemm) else 1.0
    bias = view.constant(2) if isinstance(op, Gemm) else None
    whole = constant.T if transposed else constant

    def mapped(values: Values, absolute: bool) -> tuple[Tensor, ...]:
        x = values[index] if index == 0 else values[index].mT
        if few is not None:
            y = _times(x, few[1] if absolute else few[0])
        else:
            flat = x.reshape(-1, x.shape[-1])
            y = absolute_product(flat, whole) if absolute else product(flat, whole)
            y = y.reshape(*x.shape[:-1], y.shape[-1])
        if scale != 1.0:
            y = y * (abs(scale) if absolute else scale)
        return (y if index == 0 else y.mT,)

    out = view.output_shapes[0]
    offset = torch.zeros((), dtype=torch.float64, device=view.interval(index).lower.device).expand(out)
    if bias is not None and isinstance(op, Gemm):
        offset = (bias.to(torch.float64) * op.beta).expand(out)
    return AffineMap(
        lambda values: mapped(values, False),
        lambda values: mapped(values, True),
        (offset,),
        (offset.abs(),),
        rule.terms(view) if few is None else few[2] + 4,
    )


def _by_vmap(rule: Rule[Any], view: NodeView[Any], shapes: Mapping[int, tuple[int, ...]]) -> AffineMap:
    """Any other linear node, whose constant parts are what it makes of zeros."""
    order = tuple(shapes)

    def image(parts: Mapping[int, Tensor]) -> tuple[Tensor, ...]:
        arguments = [parts.get(index, constant) for index, constant in enumerate(view.constants)]
        if view.op.only_rounds:
            return tuple(value for value in arguments[:1] if value is not None)
        return rule.image(view, arguments)

    def spread(parts: Mapping[int, Tensor]) -> tuple[Tensor, ...]:
        inputs = tuple(
            Interval.point(parts[index]) if index in parts else None for index in range(len(view.inputs))
        )
        return rule.spread(dataclasses.replace(view, inputs=inputs, deviations=()))

    zeros = {index: torch.zeros_like(view.interval(index).lower) for index in order}

    def of_many(
        function: Callable[[Mapping[int, Tensor]], tuple[Tensor, ...]], values: Values
    ) -> list[Tensor]:
        lead = values[order[0]].shape[:2]
        flat = [values[index].reshape(-1, *values[index].shape[2:]) for index in order]
        results = torch.vmap(lambda *parts: function(dict(zip(order, parts, strict=True))))(*flat)
        return [one.reshape(*lead, *one.shape[1:]) for one in results]

    offset, size = tuple(image(zeros)), tuple(spread(zeros))
    moves = not any(bool((one != 0).any()) for one in (*offset, *size))

    def through(values: Values) -> tuple[Tensor, ...]:
        results = of_many(image, values)
        return tuple(y.clone() if moves else y - b for y, b in zip(results, offset, strict=True))

    def absolute(values: Values) -> tuple[Tensor, ...]:
        results = of_many(spread, values)
        return tuple(y.clone() if moves else (y - b).clamp(min=0) for y, b in zip(results, size, strict=True))

    return AffineMap(through, absolute, offset, size, rule.terms(view), repeated=not moves)


def slack_of(way: AffineMap, free: int) -> tuple[float, float | Tensor]:
    """What the centre, `free` slopes, as many parts of the rest and an interval lose together, of Σ|terms| and beside
    it: each rounds in a product of its own size, and in what joined the products; and in the whole constant where
    that is repeated."""
    functions = 2 * free + 8 if way.repeated else 2
    relative = functions * gamma(2 * way.terms + 10, ENGINE.unit) * INFLATION + way.relative
    return relative, functions * ENGINE.absolute(2 * way.terms + 4) * (free + 2) + way.underflow
