"""Ranks of one machine read a matrix from memory that they share: any part of it, as it was. Where they cannot share
memory, they gather."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from boundscope.bounds.operators.linear import both_products, product
from boundscope.sharding.matrices import TILE_ROWS
from support.host_ranks import (
    COLUMNS,
    bounds_alone,
    factors,
    indices,
    matrix,
    one_fails,
    opened_files,
    parts,
    products,
    too_little,
    without_memory,
)
from support.models import mlp
from support.ranks import on_ranks


@pytest.mark.parametrize("size", [2, 3])
def test_every_rank_reads_any_part_as_it_was(tmp_path: Path, size: int) -> None:
    """No rank waits for another to ask for the same, and none holds more than its part."""
    whole = torch.from_numpy(matrix())
    for rank, (found, (few,), constant, collective, held) in enumerate(on_ranks(size, tmp_path / "r", parts)):
        assert not collective
        for (rows, columns), part in zip(indices(), found, strict=True):
            assert torch.equal(part, whole[rows][:, columns])
            assert part.is_contiguous()
        assert torch.equal(few, whole[:, ::2].T[torch.tensor([rank, 299])])
        assert torch.equal(constant, torch.arange(5000.0, dtype=torch.float64).reshape(5, 10, 100))
        assert held < whole.numel() * 4 / size + 5000 * 8 / size + 8192


def test_one_rank_bounds_what_it_likes_while_the_others_wait(tmp_path: Path) -> None:
    network = mlp(tmp_path / "n.onnx", [40, 700, 600, 4], seed=3)
    (alone, together), (other,) = on_ranks(2, tmp_path / "r", bounds_alone, str(network))
    for one in (together, other):
        assert torch.equal(one[0], alone[0])
        assert torch.equal(one[1], alone[1])


@pytest.mark.parametrize("size", [2, 3])
def test_products_that_ranks_share_out_have_the_bits_of_one_rank(tmp_path: Path, size: int) -> None:
    """Each takes its part of the outputs, none where there are fewer bands than ranks, and reads hardly more than its
    own part of the matrix."""
    whole = torch.from_numpy(matrix())
    expected = []
    for transposed, (rows, others) in factors().items():
        one = whole.T if transposed else whole
        expected += [*both_products(rows, others, one), product(rows, one)]
    band_bytes = TILE_ROWS * COLUMNS * 4
    for found, read_bytes in on_ranks(size, tmp_path / "r", products):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(found, expected, strict=True))
        assert read_bytes <= 2 * band_bytes  # one that lies on two ranks, for each of two passes


def test_a_rank_that_fails_ends_the_products_of_all(tmp_path: Path) -> None:
    told = on_ranks(3, tmp_path / "r", one_fails)
    assert [met for met, _ in told] == ["PeerStoppedError", "BoundError", "PeerStoppedError"]
    assert {agreed for _, agreed in told} == {"rank 1 has had enough"}


def test_nothing_stays_open_after_it(tmp_path: Path) -> None:
    for before, after in on_ranks(2, tmp_path / "r", opened_files):
        assert after <= before


def test_all_ranks_gather_where_one_cannot_share_memory(tmp_path: Path) -> None:
    whole = torch.from_numpy(matrix())
    for found, why, collective in on_ranks(2, tmp_path / "r", without_memory):
        assert collective
        assert why == "rank 1: [Errno 13] Permission denied"
        for (rows, columns), part in zip(indices(), found, strict=False):
            assert torch.equal(part, whole[rows][:, columns])


def test_memory_that_the_machine_cannot_give_is_told_of(tmp_path: Path) -> None:
    reasons = on_ranks(2, tmp_path / "r", too_little)
    assert reasons[0] == reasons[1]
    assert reasons[0].startswith("rank 0: ")
