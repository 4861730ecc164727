"""More ranks change memory and time, never a bound: Δ = 0 exactly, with weights sharded and gathered."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundscope.protocol import Event, MemorySample, PropertyFile, Sharding, VerifyJob, VerifyResult
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from support.jobs import ref, verify
from support.models import box_property, convnet, mlp


def on_ranks(network: Path, prop: Path, ranks: int, timeout_s: float = 60.0) -> tuple[VerifyResult, set[int]]:
    """The result of `ranks` real torchrun ranks, and the ranks that sent memory samples."""
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        sharding=Sharding.ROWS,
        ranks=ranks,
        timeout_s=timeout_s,
    )
    heard: set[int] = set()

    def listen(rank: int, event: Event) -> None:
        if isinstance(event, MemorySample):
            heard.add(rank)

    return run_local(job, JobFiles(network, prop), listen), heard


@pytest.mark.parametrize("ranks", [2, 3])
def test_bounds_are_the_same_bits_on_several_ranks(tmp_path: Path, ranks: int) -> None:
    network = mlp(tmp_path / "n.onnx", [30, 90, 90, 90, 4], seed=2)
    prop = tmp_path / "p.vnnlib"
    prop.write_text(
        box_property([-0.05] * 30, [0.05] * 30, 4, "(assert (or (and (>= Y_1 Y_0)) (and (>= Y_2 9))))")
    )
    alone = verify(network, prop)
    together, heard = on_ranks(network, prop, ranks)
    assert together.verdict is alone.verdict
    assert [m.lower for m in together.margin.per_clause] == [m.lower for m in alone.margin.per_clause]
    assert heard == set(range(ranks))
    assert [memory.rank for memory in together.peak_bytes] == list(range(ranks))
    weights = [memory.by_category["weights"] for memory in together.peak_bytes]
    assert max(weights) < alone.peak_bytes[0].by_category["weights"]


def test_a_convolutional_network_on_two_ranks(tmp_path: Path) -> None:
    network = convnet(tmp_path / "n.onnx", seed=4)
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-0.2] * 72, [0.2] * 72, 3, "(assert (>= Y_0 Y_1))"))
    alone = verify(network, prop)
    together, _ = on_ranks(network, prop, 2)
    assert together.margin == alone.margin
    assert together.verdict is alone.verdict


def test_a_network_that_cannot_be_read_is_one_error_for_all_ranks(tmp_path: Path) -> None:
    network = tmp_path / "n.onnx"
    network.write_bytes(b"not a network")
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([0.0], [1.0], 1, "(assert (>= Y_0 0))"))
    result, _ = on_ranks(network, prop, 2)
    assert result.verdict == "error"
    assert "n.onnx" in result.reason
