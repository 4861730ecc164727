"""Transposed convolutions of windows side by side are torch's, computed as a matrix product."""

from __future__ import annotations

import pytest
import torch

from boundscope.bounds.operators.patches import transposed_convolution
from boundscope.network.operators.linear import TRANSPOSED_CONVOLUTIONS


@pytest.mark.parametrize(
    ("kernel", "strides", "dilations", "groups"),
    [
        ((4,), (4,), (1,), 1),
        ((3, 2), (3, 2), (1, 1), 1),
        ((2, 1, 3), (2, 1, 3), (1, 1, 1), 1),
        ((1, 1), (1, 1), (1, 1), 1),
        ((3, 2), (2, 2), (1, 1), 1),
        ((3, 2), (3, 2), (2, 1), 1),
        ((2, 2), (2, 2), (1, 1), 3),
    ],
)
def test_the_same_numbers(
    kernel: tuple[int, ...], strides: tuple[int, ...], dilations: tuple[int, ...], groups: int
) -> None:
    """In every number of axes, and where windows overlap, have gaps or groups."""
    random = torch.Generator().manual_seed(0)
    weight = torch.randn(6, 4, *kernel, generator=random, dtype=torch.float64)
    rows = torch.randn(5, 6, *range(2, 2 + len(kernel)), generator=random, dtype=torch.float64)
    wanted = TRANSPOSED_CONVOLUTIONS[len(kernel)](
        rows, weight, stride=strides, dilation=dilations, groups=groups
    )
    found = transposed_convolution(rows, weight, strides, dilations, groups)
    torch.testing.assert_close(found, wanted, rtol=1e-13, atol=1e-13)
