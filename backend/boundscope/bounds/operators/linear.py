"""Matrix products with a constant: Gemm, and MatMul with the constant on either side."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import Enclosure, NodeView, Rule, bounds
from boundscope.bounds.operators.bilinear import MatMulProductRule
from boundscope.bounds.operators.relaxation import Parts, sum_to
from boundscope.bounds.support import Block, Elements, Support
from boundscope.network.operators.linear import Gemm, MatMul
from boundscope.sharding.matrices import TILE_COLUMNS, TILE_ROWS, LentMatrix, tiles_of
from boundscope.sharding.weights import LARGE_ELEMENTS

T = TypeVar("T")


def affine_interval(centre: Tensor, radius: Tensor) -> Interval:
    return Interval(centre - radius, centre + radius)


def midpoint(interval: Interval) -> tuple[Tensor, Tensor]:
    """Centre and radius of an interval; their own rounding is part of the engine's slack."""
    return (interval.lower + interval.upper) / 2, (interval.upper - interval.lower) / 2


INNER_BLOCK = TILE_ROWS
LONGEST_SUM = 768  # taken in one piece
CONVERTED_ELEMENTS = 1 << 18  # of a weight in another dtype than the rows, converted at a time
FEW_ROWS = 64
SPARSE_PRODUCTS = 1 << 20  # of rows and elements of a sparse matrix, held at a time

Matrix = Tensor | LentMatrix


def _is_tiled(matrix: Matrix) -> bool:
    """Whether a matrix is read by tiles: a matter of its size only, so that sums are the same where it is whole."""
    return matrix.numel() >= LARGE_ELEMENTS


def _small(matrix: Matrix) -> Tensor:
    return matrix.whole() if isinstance(matrix, LentMatrix) else matrix


def blocked_product(rows: Tensor, matrix: Matrix) -> Tensor:
    """rows @ matrix, long sums in blocks of INNER_BLOCK products: of float32, they may then be off by less.

    Large matrices are read tile by tile, and converted to the rows' dtype where theirs is narrower.
    """
    if not _is_tiled(matrix):
        return _summed(rows, _small(matrix).to(rows.dtype))
    if rows.requires_grad:
        product: Tensor = _TiledProduct.apply(rows, matrix)  # type: ignore[no-untyped-call]
        return product
    return _by_tiles(rows, matrix)


def _by_tiles(rows: Tensor, matrix: Matrix) -> Tensor:
    """rows [R, inner] @ matrix [inner, width], each column's sum in the order of the tiles above it."""
    cuts = [(inner, columns) for columns in _cuts(matrix.shape[1]) for inner in _sum_cuts(len(matrix))]
    carried = rows.new_empty(len(rows), matrix.shape[1])
    for (inner, columns), tile in zip(cuts, tiles_of(matrix, cuts), strict=True):
        part = rows[:, inner] @ tile.to(rows.dtype)
        if inner.start:
            carried[:, columns] += part
        else:
            carried[:, columns] = part
    return carried


class _TiledProduct(torch.autograd.Function):
    """Differentiable in the rows; keeps no tile, but reads them again."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, matrix: Matrix) -> Tensor:
        ctx.matrix = matrix
        return _by_tiles(rows, matrix)

    @staticmethod
    def backward(ctx: Any, carried: Tensor) -> tuple[Tensor, None]:
        return _by_tiles(carried, ctx.matrix.T), None


def _cuts(width: int) -> list[slice]:
    return [slice(first, min(first + TILE_COLUMNS, width)) for first in range(0, width, TILE_COLUMNS)]


def _sum_cuts(inner: int) -> list[slice]:
    """Of a sum, the blocks."""
    step = max(1, inner) if inner <= LONGEST_SUM else INNER_BLOCK
    return [slice(first, min(first + step, inner)) for first in range(0, inner, step)]


def _summed(rows: Tensor, matrix: Tensor) -> Tensor:
    first, *others = _sum_cuts(len(matrix)) or [slice(0, 0)]
    total = rows[:, first] @ matrix[first]
    for inner in others:
        part = rows[:, inner] @ matrix[inner]
        total = part.add_(total) if not part.requires_grad else part + total
    return total


def blocked_terms(inner: int) -> int:
    """How many roundings meet one product of such a sum."""
    return inner if inner <= LONGEST_SUM else INNER_BLOCK + -(-inner // INNER_BLOCK)


def _output_blocks(weight: Tensor) -> Iterator[Tensor]:
    """A weight [out, in], some of its output elements after another."""
    step = max(1, CONVERTED_ELEMENTS // max(1, weight.shape[1]))
    return (weight[first : first + step] for first in range(0, len(weight), step))


def _joined(parts: list[Tensor], dim: int = -1) -> Tensor:
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=dim)


def product(rows: Tensor, weight: Matrix) -> Tensor:
    """rows @ weightᵀ for a weight [out, in] of any dtype."""
    if not _is_tiled(weight):
        return rows @ _small(weight).to(rows.dtype).T
    return _outputs(weight, [(rows, False)])[0]


def absolute_product(rows: Tensor, weight: Matrix) -> Tensor:
    """rows @ |weight|ᵀ without a second copy of a large weight [out, in]."""
    if not _is_tiled(weight):
        return rows @ _small(weight).abs().to(rows.dtype).T
    return _outputs(weight, [(rows, True)])[0]


def _outputs(weight: Matrix, factors: Sequence[tuple[Tensor, bool]]) -> list[Tensor]:
    """rows @ weightᵀ for each of some rows [..., in], or, where true, rows @ |weight|ᵀ: [..., out], sums in the order
    of the weight's tiles [out, in]. Of a matrix that ranks read together each takes some of the outputs."""
    bands = [slice(first, min(first + TILE_ROWS, len(weight))) for first in range(0, len(weight), TILE_ROWS)]
    together = weight if isinstance(weight, LentMatrix) and weight.together else None
    own = bands if together is None else together.own_bands(bands)
    cuts = [(band, columns) for band in own for columns in _cuts(weight.shape[1])]
    found: list[list[Tensor]] = [[] for _ in factors]
    for (_, columns), tile in zip(cuts, tiles_of(weight, cuts), strict=True):
        for sums, (rows, absolute) in zip(found, factors, strict=True):
            tile = tile.to(rows.dtype)  # once for all of them
            value = rows[..., columns] @ (tile.abs() if absolute else tile).T
            if columns.start:
                sums[-1] = sums[-1] + value
            else:
                sums.append(value)
    if together is None:
        return [_joined(sums) for sums in found]
    none = [rows.new_empty(*rows.shape[:-1], 0) for rows, _ in factors]
    return together.of_all_ranks(
        [_joined(sums or [one]) for sums, one in zip(found, none, strict=True)], bands
    )


def sparse_product(rows: Tensor, matrix: Tensor) -> Tensor:
    """rows @ matrix for rows [..., in] and a coalesced COO matrix [in, out], which may be a transposed one."""
    (taken, put), values = matrix._indices(), matrix._values()
    flat = rows.reshape(-1, rows.shape[-1])
    step = max(1, SPARSE_PRODUCTS // max(1, len(values)))
    parts = [
        part.new_zeros(len(part), matrix.shape[1]).index_add(1, put, part.index_select(1, taken) * values)
        for part in torch.split(flat, step)
    ]
    return _joined(parts, dim=0).reshape(*rows.shape[:-1], matrix.shape[1])


def both_products(rows: Tensor, others: Tensor, weight: Matrix) -> tuple[Tensor, Tensor]:
    """rows @ weightᵀ and others @ |weight|ᵀ."""
    if not _is_tiled(weight):
        weight = _small(weight)
        return product(rows, weight), absolute_product(others, weight)
    plain, absolute = _outputs(weight, [(rows, False), (others, True)])
    return plain, absolute


@bounds(Gemm)
class GemmRule(Rule[Gemm]):
    """y = α·x·W + β·b, with W transposed as the node says. Only the first operand is perturbed."""

    mixing = True
    as_stored = (1,)
    as_tiles = (1,)

    def supports(self, view_perturbed: Sequence[bool], op: Gemm) -> str | None:
        if any(view_perturbed[1:]):
            return "only the first operand may depend on the network's input"
        return "a transposed first operand" if op.transpose_a else None

    def _weight(self, view: NodeView[Gemm]) -> Matrix:
        weight: Matrix | None = view.constant(1)
        assert weight is not None
        return weight if view.op.transpose_b else weight.T  # [out, in]

    def _bias(self, view: NodeView[Gemm]) -> Tensor | None:
        bias = view.constant(2)
        return bias if bias is None or view.op.beta == 1.0 else bias * view.op.beta

    def interval(self, view: NodeView[Gemm]) -> tuple[Interval, ...]:
        return self.enclose(view).intervals

    def enclose(self, view: NodeView[Gemm]) -> Enclosure:
        weight, bias = self._weight(view), self._bias(view)
        x = view.interval(0)
        centre, radius = midpoint(x)
        deviation = view.deviations[0] if view.deviations else radius
        assert deviation is not None
        moved, three = both_products(centre, torch.cat([radius, x.magnitude, deviation]), weight)
        if view.op.alpha != 1.0:
            moved, three = moved * view.op.alpha, three * abs(view.op.alpha)
        spread, magnitude, far = three.tensor_split(3)
        if bias is not None:
            moved, magnitude = moved + bias, magnitude + bias.abs()
        return Enclosure((affine_interval(moved, spread),), (magnitude,), (far,))

    def image(self, view: NodeView[Gemm], inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x, bias = inputs[0], self._bias(view)
        assert x is not None
        y = product(x, self._weight(view))
        y = y if view.op.alpha == 1.0 else y * view.op.alpha
        return (y if bias is None else y + bias,)

    def terms(self, view: NodeView[Gemm]) -> int:
        return self._weight(view).shape[1] + 3

    def backward_terms(self, view: NodeView[Gemm]) -> int:
        return blocked_terms(self._weight(view).shape[0]) + 3

    def magnitude(self, view: NodeView[Gemm]) -> tuple[Tensor, ...]:
        weight, bias = self._weight(view), self._bias(view)
        total = absolute_product(view.interval(0).magnitude, weight) * abs(view.op.alpha)
        return (total if bias is None else total + bias.abs(),)

    def constant_error(self, view: NodeView[Gemm]) -> Tensor | None:
        return self.magnitude(view)[0]

    def backward(self, view: NodeView[Gemm], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        weight = self._weight(view)
        # One plain two-dimensional product: the kernel then depends on the chunk's size only.
        flat = coefficients.reshape(-1, coefficients.shape[-1])
        carried = blocked_product(flat, weight).reshape(*coefficients.shape[:-1], weight.shape[1])
        if view.op.alpha != 1.0:
            carried = carried * view.op.alpha
        return (carried, None, None)

    def between(self, view: NodeView[Gemm], rows: Support | None, wanted: Elements | None) -> Matrix:
        """The weight from the output elements that rows live on to the input elements that are of use."""

        def cut() -> Matrix:
            weight = _part(
                self._weight(view),
                rows.index if isinstance(rows, Elements) else None,
                None if wanted is None else wanted.index,
            )
            if isinstance(weight, LentMatrix) and view.kept is not None and not uncut:
                return weight.kept(view.kept, key)
            return weight

        key, uncut = ("between", rows, wanted), rows is None and wanted is None
        return cut() if uncut else kept(view, key, cut)

    def _carried(self, view: NodeView[Gemm], block: Block, wanted: Elements | None) -> Tensor:
        """Rows [R, k] at the output as rows at the wanted input elements."""
        weight = self._weight(view)
        if len(block.rows) >= FEW_ROWS or weight.numel() < CONVERTED_ELEMENTS:
            flat = block.rows.reshape(len(block.rows), -1)
            return blocked_product(flat, self.between(view, block.support, wanted))
        # To take out a part of a large weight costs more than a few rows gain by it.
        whole = block.whole()
        carried = blocked_product(whole.reshape(len(whole), -1), weight)
        return carried if wanted is None else carried.index_select(1, wanted.index)

    def backward_on(
        self, view: NodeView[Gemm], block: Block, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        shape = view.interval(0).lower.shape
        if shape[0] != 1:
            return None
        carried = self._carried(view, block, wanted[0])
        if view.op.alpha != 1.0:
            carried = carried * view.op.alpha
        return (_block(carried, wanted[0], shape), None, None)

    def select(
        self, view: NodeView[Gemm], elements: Tensor, signs: Tensor, wanted: tuple[Elements | None, ...]
    ) -> tuple[Block | None, ...] | None:
        shape = view.interval(0).lower.shape
        if shape[0] != 1:
            return None
        weight = self._weight(view)
        carried = weight.taken(elements) if isinstance(weight, LentMatrix) else weight[elements]
        if wanted[0] is not None:
            carried = carried.index_select(1, wanted[0].index)
        carried = carried * (signs * view.op.alpha)[:, None]
        return (_block(carried, wanted[0], shape), None, None)


def _part(weight: Matrix, rows: Tensor | None, columns: Tensor | None) -> Matrix:
    """Some rows and columns of a weight, of a plain one a copy that is made a band of rows at a time."""
    if rows is None or columns is None or isinstance(weight, LentMatrix):
        weight = weight if rows is None else weight.index_select(0, rows)
        return weight if columns is None else weight.index_select(1, columns)
    found = weight.new_empty(len(rows), len(columns))
    for first in range(0, len(rows), TILE_ROWS):
        band = weight.index_select(0, rows[first : first + TILE_ROWS])
        found[first : first + TILE_ROWS] = band.index_select(1, columns)
    return found


def _block(rows: Tensor, wanted: Elements | None, shape: torch.Size) -> Block:
    return Block(rows, wanted) if wanted is not None else Block(rows.reshape(-1, *shape))


def kept(view: NodeView[Any], key: tuple[Any, ...], make: Callable[[], T]) -> T:
    """What `make` gives, made once a box where the node may keep it."""
    if view.kept is None:
        return make()
    if key not in view.kept:
        view.kept[key] = make()
    value: T = view.kept[key]
    return value


_PRODUCT = MatMulProductRule()


@bounds(MatMul)
class MatMulRule(Rule[MatMul]):
    """x·W or W·x with W constant, batched as numpy's matmul."""

    mixing = True
    as_stored = (0, 1)
    as_sparse = (0, 1)

    def use(self, perturbed: Sequence[bool]) -> Rule[Any]:
        return _PRODUCT if all(perturbed) else self

    def _product(self, view: NodeView[MatMul], x: Tensor, *, absolute: bool = False) -> Tensor:
        left, right = view.constant(0), view.constant(1)
        constant = left if left is not None else right
        assert constant is not None
        if constant.is_sparse:
            few = constant.abs() if absolute else constant
            if left is None or x.dim() == 1:
                return sparse_product(x, few if left is None else few.t())
            return sparse_product(x.mT, few.t()).mT

        def part_of(part: Tensor) -> Tensor:
            part = (part.abs() if absolute else part).to(x.dtype)
            return torch.matmul(x, part) if left is None else torch.matmul(part, x)

        if constant.dtype == x.dtype or constant.dim() != 2:
            return part_of(constant)
        if left is None:
            return _joined([part_of(part.T) for part in _output_blocks(constant.T)])
        return _joined([part_of(part) for part in _output_blocks(constant)], dim=-1 if x.dim() == 1 else -2)

    def image(self, view: NodeView[MatMul], inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        x = inputs[view.perturbed[0]]
        assert x is not None
        return (self._product(view, x),)

    def interval(self, view: NodeView[MatMul]) -> tuple[Interval, ...]:
        centre, radius = midpoint(view.interval(view.perturbed[0]))
        return (affine_interval(self._product(view, centre), self._product(view, radius, absolute=True)),)

    def terms(self, view: NodeView[MatMul]) -> int:
        index = view.perturbed[0]
        shape = view.interval(index).lower.shape
        return shape[-1] if index == 0 else shape[-2] if len(shape) > 1 else shape[0]

    def backward_terms(self, view: NodeView[MatMul]) -> int:
        constant = view.constant(1 - view.perturbed[0])
        assert constant is not None
        return constant.numel()

    def magnitude(self, view: NodeView[MatMul]) -> tuple[Tensor, ...]:
        return (self._product(view, view.interval(view.perturbed[0]).magnitude, absolute=True),)

    def constant_error(self, view: NodeView[MatMul]) -> Tensor | None:
        return self.magnitude(view)[0]

    def backward(self, view: NodeView[MatMul], rows: tuple[Tensor | None, ...]) -> Parts:
        (coefficients,) = rows
        assert coefficients is not None
        index = view.perturbed[0]
        shape = view.interval(index).lower.shape
        constant = view.constant(1 - index)
        assert constant is not None
        count = coefficients.shape[0]
        if constant.is_sparse:
            if index == 0 or len(shape) == 1:
                carried = sparse_product(coefficients, constant.t() if index == 0 else constant)
                return (carried, None) if index == 0 else (None, carried)
            return (None, sparse_product(coefficients.mT, constant).mT)
        # Vectors become matrices of one row or column, so that one formula serves all ranks of operands.
        x_is_vector, constant_is_vector = len(shape) == 1, constant.dim() == 1
        if index == 0:
            matrix = constant.unsqueeze(1) if constant_is_vector else constant
            out = coefficients.unsqueeze(-1) if constant_is_vector else coefficients
            out = out.unsqueeze(-2) if x_is_vector else out
            if matrix.dim() == 2:
                flat = out.reshape(-1, out.shape[-1])
                carried = product(flat, matrix).reshape(*out.shape[:-1], matrix.shape[0])
            else:
                carried = out @ matrix.to(out.dtype).transpose(-1, -2)
        else:
            matrix = constant.unsqueeze(0) if constant_is_vector else constant
            out = coefficients.unsqueeze(-2) if constant_is_vector else coefficients
            out = out.unsqueeze(-1) if x_is_vector else out
            carried = matrix.to(out.dtype).transpose(-1, -2) @ out
        matrix_shape = (
            (1, shape[0]) if x_is_vector and index == 0 else (shape[0], 1) if x_is_vector else shape
        )
        carried = sum_to(carried, (count, *matrix_shape)).reshape(count, *shape)
        return (carried, None) if index == 0 else (None, carried)
