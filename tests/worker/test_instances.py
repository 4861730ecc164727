"""A benchmark's instances in one warm process: whatever becomes of one, the others have their verdicts."""

from __future__ import annotations

import threading
from pathlib import Path

import psutil
import pytest

from boundscope.daemon import overtime
from boundscope.daemon.jobspec import KINDS, Kind
from boundscope.errors import CancelledError, UsageError
from boundscope.instances import InstanceLine, files_of, instances_job
from boundscope.monitor import Monitor
from boundscope.protocol import (
    Event,
    FileRef,
    InstanceResult,
    InstancesJob,
    InstanceStarted,
    JobState,
    LayerBounds,
    LogLine,
    MemorySample,
    Progress,
    PropertyFile,
    Sharding,
    Verdict,
    VerifyJob,
)
from boundscope.worker.files import InstancesFiles
from boundscope.worker.instances import InstanceMonitor
from boundscope.worker.local import run_local
from daemon.small_files import write_network, write_property
from daemon.support import environment, wait_until_ended

FAULTY = {**KINDS, "instances": Kind("boundscope.worker.launch", "worker.instance_faults:run")}
PROVEN, VIOLATED = 100.0, -100.0  # thresholds of the property that Y_0 stays below them


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """`bench(name=threshold, …)`: lines of a benchmark, one property each; no process is left at the end."""
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    before = set(psutil.Process().children(recursive=True))
    network = write_network(tmp_path / "net.onnx")

    def lines(timeout_s: float = 60.0, **thresholds: float) -> list[InstanceLine]:
        return [
            InstanceLine(
                line=number,
                onnx="net.onnx",
                vnnlib=f"{name}.vnnlib",
                network=network,
                property=write_property(tmp_path / f"{name}.vnnlib", threshold=threshold),
                timeout_s=timeout_s,
            )
            for number, (name, threshold) in enumerate(thresholds.items(), start=1)
        ]

    yield lines
    left = set(psutil.Process().children(recursive=True)) - before
    assert [p for p in left if p.is_running() and p.status() != psutil.STATUS_ZOMBIE] == []


def refer(path: Path) -> FileRef:
    return FileRef(name=path.name, sha256="0" * 64, size_bytes=path.stat().st_size)


def job_of(lines: list[InstanceLine], ranks: int = 1) -> tuple[InstancesJob, InstancesFiles]:
    verify = VerifyJob(
        network=refer(lines[0].network),
        property=PropertyFile(file=refer(lines[0].property)),
        ranks=ranks,
        sharding=Sharding.ROWS if ranks > 1 else Sharding.NONE,
        threads_per_rank=1,
    )
    networks, properties = files_of(lines)
    files = InstancesFiles(networks=networks, properties=properties)
    return instances_job(lines, verify, refer, name="bench"), files


def run(lines: list[InstanceLine], ranks: int = 1) -> tuple[object, list[InstanceResult], list[Event]]:
    heard: list[Event] = []
    job, files = job_of(lines, ranks)
    result = run_local(job, files, lambda _, event: heard.append(event), kinds=FAULTY)
    return result, [event for event in heard if isinstance(event, InstanceResult)], heard


def test_an_instance_that_goes_wrong_takes_no_other_with_it(bench, monkeypatch):
    """An exception, a kill -9, a computation that hears nothing and an exhausted memory are four verdicts of four
    instances; those before, between and after them have their own."""
    monkeypatch.setattr(overtime, "GRACE_S", 0.5)
    thresholds = {
        "first": PROVEN,
        "raises": PROVEN,
        "second": VIOLATED,
        "killed": PROVEN,
        "third": PROVEN,
        "no_memory": PROVEN,
    }
    lines = bench(**thresholds) + bench(timeout_s=2.0, hangs=PROVEN)
    result, rows, heard = run(lines)
    assert [row.number for row in rows] == list(range(7))
    assert [row.property for row in rows] == [line.vnnlib for line in lines]
    assert [row.verdict.value for row in rows] == [
        "verified",
        "error",
        "violated",
        "error",
        "verified",
        "out_of_memory",
        "timeout",
    ]
    assert rows[1].reason == "ValueError: nobody foresaw this"
    assert "rank 0 was killed by SIGKILL" in rows[3].reason
    assert "cannot be interrupted" in rows[6].reason
    assert rows[2].counterexample.replay.violates
    assert rows[0].margin > 0 > rows[2].reached
    assert result.tally.counts == {
        "verified": 2,
        "error": 2,
        "violated": 1,
        "out_of_memory": 1,
        "timeout": 1,
    }
    assert result.verdict is Verdict.ERROR
    assert [event.number for event in heard if isinstance(event, InstanceStarted)] == list(range(7))


def test_two_ranks_go_on_after_one_of_them_failed(bench):
    """What one rank raises, and the other waits for, ends both; the next instance has two new ones."""
    result, rows, _ = run(bench(one=PROVEN, raises_on_one=PROVEN, two=PROVEN), ranks=2)
    assert [row.verdict.value for row in rows] == ["verified", "error", "verified"]
    assert "nobody foresaw this" in rows[1].reason
    assert [peak.rank for peak in result.peak_bytes] == [0, 1]


def test_time_limits_are_the_instances_own_and_progress_counts(bench):
    """An instance that asks whether to go on ends at its limit in the same process; progress tells the whole."""
    lines = bench(one=PROVEN) + bench(timeout_s=0.5, waits=PROVEN) + bench(two=PROVEN)
    _, rows, heard = run(lines)
    assert [row.verdict.value for row in rows] == ["verified", "timeout", "verified"]
    assert "time limit of 0.5 s" in rows[1].reason
    assert 0.5 <= rows[1].seconds < 60  # by itself it would wait for ten minutes
    told = [event for event in heard if isinstance(event, Progress)]
    assert {event.total for event in told} == {3}
    assert [event.done for event in told] == sorted(event.done for event in told)
    assert told[0].eta_s is None
    assert 0 < told[-1].eta_s <= 60
    assert all(event.text.startswith("net.onnx · ") for event in heard if isinstance(event, LogLine))
    samples = [event.elapsed_s for event in heard if isinstance(event, MemorySample)]
    assert samples == sorted(samples)


def test_an_instance_lives_by_the_clock_of_the_whole():
    """A pause of the whole does not eat an instance's time, a wish to stop reaches it, and of what it says only what
    belongs to the whole goes on, at the time of the whole."""
    heard: list[Event] = []
    outer = Monitor(heard.append)
    inner = InstanceMonitor(outer, 10.0, "net · p", 3, 7)
    outer.leave_out(100.0)
    assert 100 < inner.remaining_s <= 110
    inner.check()
    inner.emit(
        LayerBounds(case=0, node="n", op="Relu", size=1, lower_min=0, upper_max=1, width_mean=1, width_max=1)
    )
    inner.emit(Progress(stage="bounds", done=50, total=60))
    inner.started = outer.started + 5.0
    inner.emit(MemorySample(elapsed_s=1.0, by_category={}, resident_bytes=1))
    inner.log("a word")
    progress, memory, line = heard
    assert (progress.stage, progress.done, progress.total) == ("net · p: bounds", 3, 7)
    assert memory.elapsed_s == 6.0
    assert line.text == "net · p: a word"
    outer.cancel()
    with pytest.raises(CancelledError):
        inner.check()


def test_cancel(bench):
    """Rows that have been told stay told."""
    cancel = threading.Event()
    rows: list[InstanceResult] = []
    job, files = job_of(bench(one=PROVEN, waits=PROVEN))

    def hear(rank: int, event: Event) -> None:
        if isinstance(event, InstanceResult):
            rows.append(event)
            cancel.set()

    with pytest.raises(CancelledError):
        run_local(job, files, hear, cancel=cancel, kinds=FAULTY)
    assert [row.verdict for row in rows] == [Verdict.VERIFIED]


def test_through_a_daemon(serve, tmp_path):
    """Files of the same name do not get into each other's way, and every row is in the store."""
    client = serve("product").client()
    folders = [tmp_path / "a", tmp_path / "b"]
    lines = []
    for folder, threshold in zip(folders, (PROVEN, VIOLATED), strict=True):
        folder.mkdir()
        network = write_network(folder / "net.onnx")
        given = write_property(folder / "p.vnnlib", threshold=threshold)
        lines.append(InstanceLine(1, str(network), str(given), network, given, 60.0))
    verify = VerifyJob(
        network=client.upload(lines[0].network), property=PropertyFile(file=client.upload(lines[0].property))
    )
    job = instances_job(lines, verify, client.upload, name="pair")
    info = wait_until_ended(client, client.submit(job).id, 90)
    rows = [each.event for each in client.events(info.id) if isinstance(each.event, InstanceResult)]
    assert (info.state, info.kind, info.title) == (JobState.FINISHED, "instances", "pair")
    assert [(row.property, row.verdict.value) for row in rows] == [
        ("a/p.vnnlib", "verified"),
        ("b/p.vnnlib", "violated"),
    ]
    assert info.verdict is None
    client.delete(info.id)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"instances": ()}, "no instances"),
        ({"networks": ()}, "instance 1 names a file"),
    ],
)
def test_a_daemon_refuses_a_benchmark_that_cannot_be_run(bench, changes, says):
    """Places of files are checked before anything is laid out."""
    import msgspec

    from boundscope import capabilities

    job, _ = job_of(bench(one=PROVEN))
    with pytest.raises(UsageError, match=says):
        capabilities.check_instances(msgspec.structs.replace(job, **changes))
