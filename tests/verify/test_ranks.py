"""More ranks change memory and time, never a bound: Δ = 0 exactly, with weights sharded and gathered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from boundscope.daemon.jobspec import KINDS, Kind
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
from daemon.support import environment
from support import recorded
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


@dataclass
class Told:
    """What a run tells, and where its ranks have recorded every bound."""

    layers: list[LayerBounds]
    margins: list[float | None]
    peak_bytes: int  # by the ledger, of the rank that needs most
    lines: list[str]
    recorded: list[Path]


def told(
    files: tuple[Path, Path],
    method: Method,
    sharding: Sharding,
    ranks: int,
    folder: Path,
    entry: str = "run",
    chunk_rows: int | None = None,
) -> Told:
    network, prop = files
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        method=method,
        sharding=sharding,
        ranks=ranks,
        timeout_s=60.0,
        chunk_rows=chunk_rows,
    )
    layers: list[LayerBounds] = []
    lines: list[str] = []

    def listen(_: int, event: Event) -> None:
        if isinstance(event, LayerBounds):
            layers.append(event)
        elif isinstance(event, LogLine):
            lines.append(event.text)

    kinds = {**KINDS, "verify": Kind("boundscope.worker.launch", f"support.recorded:{entry}")}
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", environment(folder)["PYTHONPATH"])
        patch.setenv(recorded.FOLDER, str(folder))
        result = run_local(job, JobFiles(network, prop), listen, kinds=kinds)
    assert result.verdict is not Verdict.ERROR, result.reason
    peak = max(memory.ledger_peak_bytes for memory in result.peak_bytes)
    written = [folder / f"rank-{rank}.npz" for rank in range(ranks)]
    return Told(layers, [one.lower for one in result.margin.per_clause], peak, lines, written)


@pytest.fixture(scope="module", params=[Method.CROWN, Method.ALPHA_CROWN], ids=str)
def alone(
    wide: tuple[Path, Path], request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Method, Told]:
    folder = tmp_path_factory.mktemp("alone")
    return request.param, told(wide, request.param, Sharding.NONE, 1, folder)


@pytest.mark.parametrize(
    ("sharding", "ranks", "entry"),
    [
        (Sharding.ROWS, 2, "run"),
        (Sharding.ROWS, 3, "run"),
        (Sharding.FSDP, 2, "run"),
        (Sharding.ROWS, 2, "run_apart"),
    ],
)
def test_every_bound_is_the_same_and_takes_less_memory(
    wide: tuple[Path, Path],
    alone: tuple[Method, Told],
    sharding: Sharding,
    ranks: int,
    entry: str,
    tmp_path: Path,
) -> None:
    """Δ = 0 of every bound of every element, on every rank, whatever rows a search carries together on a rank; with
    weights in memory that ranks share, and gathered by those that share none."""
    method, one = alone
    assert any(str(layer.method) == method for layer in one.layers)
    sharded = told(wide, method, sharding, ranks, tmp_path, entry)
    assert [recorded.difference(one.recorded[0], other) for other in sharded.recorded] == [0.0] * ranks
    assert sharded.layers == one.layers
    assert sharded.margins == one.margins
    if sharding is Sharding.ROWS:
        assert sharded.peak_bytes < 0.7 * one.peak_bytes
    assert any(line.startswith("weights in memory that the ranks share: ") for line in sharded.lines) is (
        entry == "run"
    )
    assert any(line.startswith("gathers: ") for line in sharded.lines) or entry == "run"


@pytest.mark.parametrize(
    ("method", "sharding"), [(Method.CROWN, Sharding.FSDP), (Method.ALPHA_CROWN, Sharding.ROWS)]
)
def test_parts_that_ranks_keep_for_many_chunks_change_no_bound(
    wide: tuple[Path, Path], method: Method, sharding: Sharding, tmp_path: Path
) -> None:
    """Only the first of several chunks reads a part of a matrix from the whole."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    one = told(wide, method, Sharding.NONE, 1, tmp_path / "one", chunk_rows=512)
    two = told(wide, method, sharding, 2, tmp_path / "two", chunk_rows=512)
    assert [recorded.difference(one.recorded[0], other) for other in two.recorded] == [0.0, 0.0]
    assert two.margins == one.margins


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
