"""Rows carried back through a convolution by its phases: what the transposed convolution gives, row by row alike."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from boundscope.bounds.operators.phases import PhasedWeight, channels_last, fits
from boundscope.bounds.support import Block, Phases
from boundscope.network.operators.linear import Conv

# input channels, outputs, height, width, kernel, stride, padding
CASES = [
    (3, 8, 32, 32, 3, 2, 1),
    (16, 16, 8, 8, 3, 1, 1),
    (8, 16, 16, 16, 1, 2, 0),
    (1, 16, 28, 28, 4, 2, 1),
    (3, 4, 12, 12, 5, 3, 2),
    (3, 4, 12, 12, 2, 3, 0),  # places that no window looks at
    (2, 3, 10, 8, 5, 2, 0),
    (2, 3, 8, 8, 7, 4, 3),
]


def _case(
    inputs: int, outputs: int, high: int, wide: int, kernel: int, stride: int, pad: int
) -> tuple[Conv, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    op = Conv((kernel, kernel), (stride, stride), (pad,) * 4, (1, 1))
    weight = torch.randn(outputs, inputs, kernel, kernel, generator=generator)
    return op, weight, torch.randn(1, inputs, high, wide, generator=generator)


def _carried(op: Conv, weight: Tensor, x: Tensor, rows: Tensor) -> Block:
    shape = tuple(rows.shape[1:])
    return PhasedWeight.of(weight, op, tuple(x.shape), shape).carried(channels_last(Block(rows), shape))


@pytest.mark.parametrize("case", CASES)
def test_phases_carry_what_autograd_does(case: tuple[int, ...]) -> None:
    """In float32, each coefficient to within the rounding of its own sum."""
    op, weight, x = _case(*case)
    x.requires_grad_()
    (y,) = op.evaluate([x, weight, None])
    rows = torch.randn(32, *y.shape, generator=torch.Generator().manual_seed(1))
    assert fits(op, weight, tuple(x.shape), rows)
    block = _carried(op, weight, x, rows)
    (expected,) = torch.autograd.grad(y, x, rows, is_grads_batched=True)
    (size,) = torch.autograd.grad(
        op.evaluate([x, weight.abs(), None])[0], x, rows.abs(), is_grads_batched=True
    )
    terms = weight.shape[0] * weight[0, 0].numel()
    assert bool(((block.whole() - expected).abs() <= 2 * terms * 2.0**-24 * size).all())


@pytest.mark.parametrize("case", CASES)
def test_a_row_has_the_same_bits_in_every_chunk(case: tuple[int, ...]) -> None:
    """Ranks carry parts of a chunk, in multiples of 16 rows."""
    op, weight, x = _case(*case)
    (y,) = op.evaluate([x, weight, None])
    rows = torch.randn(272, *y.shape, generator=torch.Generator().manual_seed(1))
    whole = _carried(op, weight, x, rows).rows
    for count in (16, 32, 48, 144, 256):
        for first in range(0, len(rows) - count + 1, count):
            part = rows[first : first + count]
            assert torch.equal(_carried(op, weight, x, part).rows, whole[first : first + count])


@pytest.mark.parametrize("strides", [(1, 1), (2, 2), (2, 3)])
def test_phases_are_an_order_of_the_whole_tensor(strides: tuple[int, int]) -> None:
    """Values taken in this order meet the coefficients of the same places; whole rows come back as they were."""
    support = Phases((1, 3, 4, 6), strides)
    rows = torch.arange(2 * 72.0).reshape(2, 1, 3, 4, 6)
    phased = torch.stack([support.take(row) for row in rows])
    assert torch.equal(support.whole(phased), rows)
    assert torch.equal(support.channels_last(phased), rows[:, 0].permute(0, 2, 3, 1))
    values = torch.randn(1, 3, 4, 6, dtype=torch.float64)
    expected = (rows.double() * values).flatten(1).sum(1)
    assert torch.allclose(phased.double() @ support.take(values), expected)


def test_what_the_phases_do_not_cover_is_carried_otherwise() -> None:
    """Groups, dilation, sizes that the strides do not divide, and float64 rows."""
    op, weight, x = _case(*CASES[0])
    shape, rows = tuple(x.shape), torch.zeros(16, 1, 8, 16, 16)
    assert fits(op, weight, shape, rows)
    assert not fits(op, weight, shape, rows.double())
    assert not fits(op, weight, (1, 3, 31, 31), rows)
    assert not fits(Conv((3, 3), (2, 2), (1,) * 4, (2, 2)), weight, shape, rows)
    assert not fits(Conv((3, 3), (2, 2), (1,) * 4, (1, 1), 3), weight, shape, rows)
