"""More ranks change memory and time, never a bound: Δ = 0 exactly, with weights sharded and gathered."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundscope.protocol import (
    Event,
    LayerBounds,
    LogLine,
    MemorySample,
    Method,
    PropertyFile,
    Sharding,
    Verdict,
    VerifyJob,
    VerifyResult,
)
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


WIDTHS = [
    40,
    700,
    600,
    4,
]  # one matrix that is read by tiles, with uneven ends, of which some neurons are fixed


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("wide")
    network = mlp(folder / "n.onnx", WIDTHS, seed=3)
    prop = folder / "p.vnnlib"
    # Beyond what an attack reaches, and what bounds prove.
    prop.write_text(
        box_property([-0.05] * 40, [0.05] * 40, 4, "(assert (or (and (>= Y_0 0.8)) (and (>= Y_1 0.8))))")
    )
    return network, prop


Told = tuple[list[LayerBounds], list[float | None], int, list[str]]


def told(files: tuple[Path, Path], method: Method, sharding: Sharding, ranks: int) -> Told:
    """What a run tells: bounds of each layer, margins, the largest ledger peak of a rank, and log lines."""
    network, prop = files
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        method=method,
        sharding=sharding,
        ranks=ranks,
        timeout_s=60.0,
    )
    layers: list[LayerBounds] = []
    lines: list[str] = []

    def listen(_: int, event: Event) -> None:
        if isinstance(event, LayerBounds):
            layers.append(event)
        elif isinstance(event, LogLine):
            lines.append(event.text)

    result = run_local(job, JobFiles(network, prop), listen)
    assert result.verdict is not Verdict.ERROR, result.reason
    peak = max(memory.ledger_peak_bytes for memory in result.peak_bytes)
    return layers, [one.lower for one in result.margin.per_clause], peak, lines


@pytest.fixture(scope="module", params=[Method.CROWN, Method.ALPHA_CROWN], ids=str)
def alone(wide: tuple[Path, Path], request: pytest.FixtureRequest) -> tuple[Method, Told]:
    return request.param, told(wide, request.param, Sharding.NONE, 1)


@pytest.mark.parametrize(("sharding", "ranks"), [(Sharding.ROWS, 2), (Sharding.ROWS, 3), (Sharding.FSDP, 2)])
def test_every_layer_has_the_same_bounds_and_less_memory(
    wide: tuple[Path, Path], alone: tuple[Method, Told], sharding: Sharding, ranks: int
) -> None:
    """Δ = 0 of every layer's bounds, whatever rows a search carries together on a rank; gathers are told of."""
    method, (layers, margins, peak, _) = alone
    assert any(str(layer.method) == method for layer in layers)
    sharded = told(wide, method, sharding, ranks)
    assert sharded[0] == layers
    assert sharded[1] == margins
    if sharding is Sharding.ROWS:
        assert sharded[2] < 0.7 * peak
    assert any(line.startswith("gathers: ") for line in sharded[3])


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
