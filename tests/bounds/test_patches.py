"""Rows through a convolution whose windows do not overlap, as vision transformers begin with."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F

from boundscope.bounds.operators.conv import PATCHED_ROWS, transposed
from boundscope.network.operators.linear import Conv


@pytest.mark.parametrize("count", [16, PATCHED_ROWS + 16])
@pytest.mark.parametrize("searched", [False, True])
def test_patches_are_the_transposed_convolution(count: int, searched: bool) -> None:
    random = torch.Generator().manual_seed(1)
    weight = torch.randn(6, 3, 4, 2, dtype=torch.float64, generator=random)
    rows = torch.randn(count, 6, 3, 5, dtype=torch.float64, generator=random).requires_grad_(searched)
    expected = F.conv_transpose2d(rows, weight, stride=(4, 2))
    found = transposed(rows, weight, Conv((4, 2), strides=(4, 2), pads=(0,) * 4, dilations=(1, 1), group=1))
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=1e-13)


def test_a_row_has_the_same_bits_in_any_chunk() -> None:
    """Ranks carry parts of a chunk."""
    random = torch.Generator().manual_seed(2)
    weight = torch.randn(48, 3, 16, 16, dtype=torch.float64, generator=random)
    rows = torch.randn(208, 48, 2, 2, dtype=torch.float64, generator=random)
    op = Conv((16, 16), strides=(16, 16), pads=(0,) * 4, dilations=(1, 1), group=1)
    whole = transposed(rows, weight, op)
    parts = [transposed(part, weight, op) for part in torch.split(rows, 112)]
    assert torch.equal(whole, torch.cat(parts))
