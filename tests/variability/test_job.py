"""The variability job: one result whatever ran it, nothing lost when it is stopped, a reason for every failure."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from boundscope.errors import CancelledError, DeadlineError
from boundscope.monitor import Monitor
from boundscope.protocol import (
    Event,
    FileRef,
    JobState,
    LayerMap,
    LayerNoise,
    NetworkSummary,
    Progress,
    PropertyFile,
    RoundingMode,
    SourceSearch,
    VariabilityJob,
    VariabilityResult,
    Verdict,
)
from boundscope.sharding.ranks import RankGroup
from boundscope.variability.moments_file import RunMoments
from boundscope.worker import proven, variability
from boundscope.worker.files import VariabilityFiles
from boundscope.worker.local import run_local
from boundscope.worker.variability import run_variability
from daemon.support import wait_until_ended
from support.models import box_property, convnet

NODES = ["conv1", "norm1", "relu1", "conv2", "gain2", "skip2", "relu2", "pool2", "flat2", "fc3"]
REF = FileRef(name="x", sha256="0" * 64, size_bytes=1)


@pytest.fixture
def given(tmp_path: Path) -> VariabilityFiles:
    """A network, three points, a property, and an empty folder for results."""
    network = convnet(tmp_path / "net.onnx")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((3, 2, 6, 6)).astype(np.float32))
    (tmp_path / "p.vnnlib").write_text(box_property([0.4] * 72, [0.6] * 72, 3, "(assert (<= Y_0 Y_1))"))
    return VariabilityFiles(network, folder(tmp_path / "run"), (tmp_path / "x.npy",))


def folder(path: Path) -> Path:
    path.mkdir()
    return path


def job(**changes: object) -> VariabilityJob:
    fields: dict[str, object] = {
        "samples": 6,
        "seed": 7,
        "threads_per_rank": 1,
        "timeout_s": 120.0,
        **changes,
    }
    return VariabilityJob(network=REF, inputs=(REF,), **fields)  # type: ignore[arg-type]


def run(
    what: VariabilityJob, files: VariabilityFiles, emit: Callable[[Event], None] | None = None
) -> VariabilityResult:
    return run_variability(what, files, Monitor(emit, timeout_s=what.timeout_s), RankGroup())


def bits(path: Path) -> dict[str, bytes]:
    held = RunMoments.load(path / "moments.npz")
    return {
        f"{name} {key}": array.tobytes()
        for name, moments in {**held.layers, **held.decisions}.items()
        for key, array in moments.state().items()
    }


def progress(events: list[Event]) -> list[Progress]:
    return [event for event in events if isinstance(event, Progress) and event.stage == "samples"]


def table(path: Path, name: str) -> list[str]:
    return (path / f"variability_{name}.csv").read_text().splitlines()


# ------------------------------------------------------------ what it finds


def test_a_result_has_every_layer_its_tables_and_its_events(given: VariabilityFiles) -> None:
    events: list[Event] = []
    result = run(job(), given, events.append)
    assert result.verdict is None, result.reason
    assert result.exit_code == 0
    assert (result.points, result.samples, result.inputs) == (3, 6, "3 points of x.npy")
    assert [layer.layer for layer in result.layers] == NODES
    assert all(layer.samples == 6 and 15 < (layer.mean_bits or 0) < 25 for layer in result.layers)
    assert result.baseline.startswith("bit-stable")
    assert result.coverage is not None
    assert result.coverage.share_inside == 1.0
    assert [one.layer for one in result.decisions] == ["fc3"]
    assert len(table(given.results, "layers")) == 1 + len(NODES)
    assert len(table(given.results, "elements")) == 1 + sum(layer.elements for layer in result.layers)
    assert len(table(given.results, "decisions")) == 1 + 3
    assert set(result.files) == {path.name for path in given.results.iterdir()}
    assert any(isinstance(event, NetworkSummary) for event in events)
    assert [event.done for event in progress(events)] == list(range(7))
    assert all(event.total == 6 and event.eta_s is not None for event in progress(events))
    assert {event.layer for event in events if isinstance(event, LayerNoise)} == set(NODES)
    assert "--mode sr --samples 6 --seed 7" in result.command


def test_feature_maps_agree_with_the_table_of_channels(given: VariabilityFiles) -> None:
    """Each layer is told as pictures once, at the end; a channel's mean is that of its row in the table."""
    events: list[Event] = []
    result = run(job(), given, events.append)
    maps = {event.layer: event for event in events if isinstance(event, LayerMap)}
    assert list(maps) == NODES
    told = maps["conv1"]
    assert (told.channels, told.block) == (tuple(range(told.of_channels)), 1)
    pictures = np.frombuffer(told.bits, "<f4").reshape(told.of_channels, told.height, told.width)
    assert pictures.size * result.points == result.layers[0].elements
    names = table(given.results, "channels")[0].split(",")
    rows = [line.split(",") for line in table(given.results, "channels")[1:]]
    column = next(place for place, name in enumerate(names) if "deviation" in name and "mean" in name)
    means = [float(row[column]) for row in rows if row[0] == "conv1"]
    np.testing.assert_allclose(np.nanmean(pictures, axis=(1, 2)), means, atol=0.05)


def test_any_number_of_ranks_gives_the_same_bits(
    given: VariabilityFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    what = job(source=SourceSearch.BISECT)
    alone = run(what, given)
    for ranks in (2, 3):
        there = VariabilityFiles(given.network, folder(tmp_path / f"run{ranks}"), given.inputs)
        together = run_local(msgspec.structs.replace(what, ranks=ranks), there, lambda rank, event: None)
        assert together.verdict is None, together.reason
        assert bits(there.results) == bits(given.results)
        assert together.sources == alone.sources
        assert together.decisions == alone.decisions
        assert len(together.peak_bytes) == ranks
        assert {path.name for path in there.results.iterdir()} == set(together.files)


def test_parquet(given: VariabilityFiles) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="pyarrow is not installed")
    run(job(format="parquet"), given)
    assert parquet.read_table(given.results / "variability_layers.parquet").num_rows == len(NODES)


def test_points_drawn_from_a_property_meet_its_proof(given: VariabilityFiles, tmp_path: Path) -> None:
    files = VariabilityFiles(given.network, given.results, (), tmp_path / "p.vnnlib")
    what = msgspec.structs.replace(
        job(mode=RoundingMode.UD, draw=4, property=PropertyFile(file=REF)), inputs=()
    )
    result = run(what, files)
    assert result.verdict is None, result.reason
    assert [layer.layer for layer in result.deployed] == NODES
    assert all(0 <= layer.observed <= layer.rounding < (layer.width or 0) for layer in result.deployed)
    assert len(table(given.results, "deployed")) == 1 + len(NODES)


def test_a_sample_outside_the_proof_is_an_error_with_its_seed(
    given: VariabilityFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the unit of an arithmetic that is finer than the one that runs."""
    monkeypatch.setattr(proven, "unit_roundoff", lambda mode, precision: 2.0**-45)
    files = VariabilityFiles(given.network, given.results, given.inputs, tmp_path / "p.vnnlib")
    result = run(job(property=PropertyFile(file=REF)), files)
    assert result.verdict is Verdict.ERROR
    assert result.exit_code == 1
    assert "conv1, point 0" in result.reason
    assert "mode sr, seed 7, samples 0 to 5" in result.reason


# ------------------------------------------------------------ stopping and going on


class _StopsAt(Monitor):
    """Stops in the middle of a sample: when it is asked for the `steps`-th time."""

    def __init__(self, steps: int, error: Exception) -> None:
        super().__init__()
        self.left, self.error = steps, error

    def check(self) -> None:
        self.left -= 1
        if self.left <= 0:
            raise self.error


# Two baselines and three samples of 3 points and 10 nodes, and a piece of the fourth.
THREE_SAMPLES = 30 * (2 + 3) + 11


def test_a_cancelled_run_goes_on_where_it_was(given: VariabilityFiles, tmp_path: Path) -> None:
    with pytest.raises(CancelledError):
        run_variability(job(), given, _StopsAt(THREE_SAMPLES, CancelledError("stop")), RankGroup())
    assert RunMoments.load(given.results / "moments.npz").numbers == (0, 1, 2)
    done: list[Event] = []
    assert run(job(), given, done.append).samples == 6
    assert [(event.done, event.total) for event in progress(done)] == [(0, 3), (1, 3), (2, 3), (3, 3)]
    whole = VariabilityFiles(given.network, folder(tmp_path / "whole"), given.inputs)
    run(job(), whole)
    assert bits(given.results) == bits(whole.results)


def test_ranks_that_are_cancelled_leave_all_their_samples(
    given: VariabilityFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And one rank goes on with what two have left."""
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    cancel = threading.Event()

    def on_event(rank: int, event: Event) -> None:
        # Rank 0 alone tells how many it has taken; by then the other has taken some too.
        if isinstance(event, Progress) and event.done >= 20:
            cancel.set()

    samples = 2000
    with pytest.raises(CancelledError):
        run_local(job(samples=samples, ranks=2), given, on_event, cancel=cancel)
    left = [RunMoments.load(path).numbers for path in sorted(given.results.glob("*.npz"))]
    assert len(left) == 2
    assert left[0][:3] == (0, 1, 2)
    assert left[1] == tuple(range(samples // 2, samples // 2 + len(left[1])))
    more = len(left[0]) + 1
    assert run(job(samples=more), given).samples == more + len(left[1])
    assert [path.name for path in given.results.glob("*.npz")] == ["moments.npz"]


def test_a_time_limit_leaves_what_was_measured(given: VariabilityFiles) -> None:
    late = _StopsAt(THREE_SAMPLES, DeadlineError("late"))
    result = run_variability(job(timeout_s=9.0), given, late, RankGroup())
    assert result.verdict is Verdict.TIMEOUT
    assert result.exit_code == 21
    assert "the time limit of 9 s passed after 3 of 6 samples" in result.reason
    assert [layer.samples for layer in result.layers] == [3] * len(NODES)
    late = _StopsAt(30 * 2 + 11, DeadlineError("late"))
    files = VariabilityFiles(given.network, folder(given.results / "other"), given.inputs)
    result = run_variability(job(), files, late, RankGroup())
    assert result.verdict is Verdict.TIMEOUT
    assert result.layers == ()


KILLED = """
import sys
from pathlib import Path
import msgspec
from boundscope.monitor import Monitor
from boundscope.protocol import Progress, VariabilityJob
from boundscope.sharding.ranks import RankGroup
from boundscope.worker import variability
from boundscope.worker.files import VariabilityFiles

variability.SAVE_S, variability.SAVE_SHARE = 0.0, float("inf")
job = msgspec.json.decode(sys.argv[1], type=VariabilityJob)
network, results, points = map(Path, sys.argv[2:])

def emit(event):
    if isinstance(event, Progress) and event.done:
        print(event.done, flush=True)
        if event.done == 4:
            sys.stdin.read()

variability.run_variability(job, VariabilityFiles(network, results, (points,)), Monitor(emit), RankGroup())
"""


def test_a_killed_run_goes_on_where_it_was(given: VariabilityFiles, tmp_path: Path) -> None:
    words = [
        msgspec.json.encode(job()).decode(),
        str(given.network),
        str(given.results),
        str(given.inputs[0]),
    ]
    with subprocess.Popen(
        [sys.executable, "-c", KILLED, *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline().strip() for _ in range(4)] == ["1", "2", "3", "4"]
        os.kill(process.pid, signal.SIGKILL)
    assert RunMoments.load(given.results / "moments.npz").numbers == (0, 1, 2)
    assert run(job(), given).samples == 6
    whole = VariabilityFiles(given.network, folder(tmp_path / "whole"), given.inputs)
    run(job(), whole)
    assert bits(given.results) == bits(whole.results)


def test_more_samples_are_added_to_a_run(given: VariabilityFiles, tmp_path: Path) -> None:
    run(job(samples=3), given)
    assert run(job(), given).samples == 6
    whole = VariabilityFiles(given.network, folder(tmp_path / "whole"), given.inputs)
    run(job(), whole)
    assert bits(given.results) == bits(whole.results)


def test_the_folder_of_another_run_is_refused_with_what_differs(given: VariabilityFiles) -> None:
    run(job(), given)
    result = run(job(seed=8, mode=RoundingMode.UD), given)
    assert result.verdict is Verdict.ERROR
    assert (
        "holds the samples of another run (mode: sr there, ud here; seed: 7 there, 8 here)" in result.reason
    )
    (given.results / "moments.npz").write_bytes(b"PK")
    assert "is damaged" in run(job(), given).reason


# ------------------------------------------------------------ failures


def test_points_that_do_not_fit_are_an_error_with_both_shapes(given: VariabilityFiles) -> None:
    np.save(given.inputs[0], np.ones((3, 5)))
    result = run(job(), given)
    assert result.verdict is Verdict.ERROR
    assert "x.npy: expected points for input 'x' as [points, 1, 2, 6, 6]" in result.reason
    assert "got an array of shape [3, 5]" in result.reason


def test_too_little_memory_is_said_before_anything_runs(given: VariabilityFiles) -> None:
    np.save(given.inputs[0], np.ones((60, 72), np.float32))
    result = run(job(memory_budget_bytes=1 << 20), given)
    assert result.verdict is Verdict.OUT_OF_MEMORY
    assert result.exit_code == 22
    assert "--layers" in result.reason


def test_a_baseline_that_is_not_bit_stable_is_said_so(
    given: VariabilityFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two unperturbed runs that differ, as those of a library with a race would."""
    real, runs = variability.Sampler.baseline, []

    def unstable(sampler: variability.Sampler) -> object:
        tensors, coverage = real(sampler)
        runs.append(tensors)
        if len(runs) == 2:
            tensors["conv2"][0, 0, 0, 0] += 1
        return tensors, coverage

    monkeypatch.setattr(variability.Sampler, "baseline", unstable)
    assert run(job(), given).baseline == "not bit-stable: two unperturbed runs differ in conv2"


def test_a_pattern_without_layers_is_an_error(given: VariabilityFiles) -> None:
    assert "no layer is called 'bn*'" in run(job(layers=("bn*",)), given).reason


# ------------------------------------------------------------ through the daemon


def test_through_the_daemon(serve: Callable[..., object], given: VariabilityFiles) -> None:
    """The same bits, its tables in the job's folder, and its points named by content."""
    client = serve("product").client()  # type: ignore[attr-defined]
    what = msgspec.structs.replace(
        job(ranks=2), network=client.upload(given.network), inputs=(client.upload(given.inputs[0]),)
    )
    info = wait_until_ended(client, client.submit(what).id)
    assert info.state is JobState.FINISHED, info.cause
    assert info.kind == "variability"
    assert info.verdict is None
    (result,) = [r.event for r in client.events(info.id) if isinstance(r.event, VariabilityResult)]
    assert result.verdict is None, result.reason
    run(msgspec.structs.replace(job(), network=what.network), given)
    assert bits(Path(result.folder)) == bits(given.results)
    assert {path.name for path in Path(result.folder).iterdir()} == set(result.files)
