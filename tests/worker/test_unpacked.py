"""Of a gzip file, the ranks of one machine read what one of them has unpacked."""

from __future__ import annotations

import gzip
import sys
from pathlib import Path

import pytest

from boundscope.network import load_network
from network.models import two_layers
from support.ranks import on_ranks
from support.unpacked import loaded


@pytest.mark.skipif(sys.platform != "linux", reason="ranks find an unpacked file in Linux's /proc")
def test_one_rank_unpacks_for_all(tmp_path: Path) -> None:
    """And what is wrong with a file that one rank reads for others, all are told."""
    plain = two_layers(tmp_path / "a.onnx")
    data = gzip.compress(plain.read_bytes())
    contents = {"a.onnx.gz": data, "cut.onnx.gz": data[:-20], "short.onnx": b"\x1f\x8b", "none.onnx": b"text"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    first, second = on_ranks(2, tmp_path / "ranks", loaded, [str(tmp_path / name) for name in contents])
    expected = [array.tobytes() for array in load_network(plain).constants.values()]
    assert first[0].constants == second[0].constants == expected
    assert first[0].mapped
    assert second[0].mapped
    assert len(first[0].inodes) == 1
    assert first[0].inodes == second[0].inodes
    for one, other, name in zip(first[1:], second[1:], list(contents)[1:], strict=True):
        assert one.error == other.error
        assert f"{name}: " in one.error
    assert "the gzip data is damaged or cut off" in first[1].error
