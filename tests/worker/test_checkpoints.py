"""What a job does with its checkpoint: all ranks go on from it, rank 0 writes it, and it never ends a search."""

from __future__ import annotations

from pathlib import Path

import pytest

from boundscope.errors import CheckpointError
from boundscope.monitor import Monitor
from boundscope.protocol import FileRef, LogLine, Method, PropertyFile, Verdict, VerifyJob
from boundscope.search.checkpoint import ClauseState, SearchState
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.checkpoints import JobCheckpoint
from boundscope.worker.files import JobFiles

REF = FileRef(name="x", sha256="0" * 64, size_bytes=1)
JOB = VerifyJob(network=REF, property=PropertyFile(file=REF), method=Method.COMPLETE)
STATE = SearchState(
    clauses=(ClauseState(case=0, clause=0, proven=True), ClauseState(case=0, clause=1)), elapsed_s=2.5
)


class Listening(Monitor):
    def __init__(self, timeout_s: float | None = None) -> None:
        self.heard: list[tuple[str, str]] = []
        super().__init__(self._hear, timeout_s)

    def _hear(self, event: object) -> None:
        assert isinstance(event, LogLine)
        self.heard.append((event.level, event.text))


def files(path: Path | None) -> JobFiles:
    return JobFiles(network=Path("x"), property=Path("x"), checkpoint=path)


@pytest.mark.parametrize(
    "verdict", [Verdict.TIMEOUT, Verdict.UNKNOWN, Verdict.OUT_OF_MEMORY, Verdict.ERROR, None]
)
def test_a_search_without_an_answer_is_kept_and_goes_on(tmp_path, verdict):
    first = JobCheckpoint(JOB, files(tmp_path / "c"), Monitor(), RankGroup())
    assert first.load() is None
    first.save(lambda: STATE)
    first.settle(verdict)
    monitor = Listening()
    later = JobCheckpoint(JOB, files(tmp_path / "c"), monitor, RankGroup())
    assert later.load() == STATE
    assert monitor.heard == [
        (
            "info",
            f"the search goes on from {tmp_path / 'c'}: 2.5 s so far, 1 of 2 clauses excluded, 0 domains wait",
        )
    ]
    later.settle(None)


@pytest.mark.parametrize("verdict", [Verdict.VERIFIED, Verdict.VIOLATED])
def test_with_the_answer_the_checkpoint_goes(tmp_path, verdict):
    mine = JobCheckpoint(JOB, files(tmp_path / "c"), Monitor(), RankGroup())
    mine.save(lambda: STATE)
    mine.settle(verdict)
    assert list(tmp_path.iterdir()) == []


def test_without_a_file_nothing_happens(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = JobCheckpoint(JOB, files(None), Monitor(), RankGroup())
    assert mine.load() is None
    assert mine.folder is None
    mine.save(lambda: pytest.fail("nobody needs a state"))
    mine.save_if_due(lambda: pytest.fail("nobody needs a state"))
    mine.settle(Verdict.VERIFIED)
    assert list(tmp_path.iterdir()) == []


def test_a_disk_that_fails_is_a_warning_once_and_the_search_goes_on(tmp_path):
    monitor = Listening()
    mine = JobCheckpoint(JOB, files(tmp_path / "gone" / "c"), monitor, RankGroup())
    mine.save(lambda: STATE)
    mine.save(lambda: STATE)
    ((level, text),) = monitor.heard
    assert level == "warning"
    assert f"the checkpoint {tmp_path / 'gone' / 'c'} cannot be written" in text


def test_an_error_in_the_search_is_not_taken_for_one_of_the_checkpoint(tmp_path):
    mine = JobCheckpoint(JOB, files(tmp_path / "c"), Monitor(), RankGroup())
    with pytest.raises(ZeroDivisionError):
        mine.save(lambda: 1 // 0)
    mine.settle(None)


def test_another_jobs_checkpoint_ends_the_job_before_it_searches(tmp_path):
    (tmp_path / "c").write_text("notes")
    mine = JobCheckpoint(JOB, files(tmp_path / "c"), Monitor(), RankGroup())
    with pytest.raises(CheckpointError, match="is not a checkpoint"):
        mine.load()
    mine.settle(Verdict.ERROR)
    assert (tmp_path / "c").read_text() == "notes"


def test_a_save_that_takes_long_is_made_once_before_the_time_is_up_and_not_after(tmp_path, monkeypatch):
    monitor = Monitor(timeout_s=1000.0)
    mine = JobCheckpoint(JOB, files(tmp_path / "c"), monitor, RankGroup())
    mine.save(lambda: STATE)
    assert mine._checkpoint is not None
    saved: list[float] = []
    monkeypatch.setattr(mine._checkpoint, "due", lambda: False)
    monkeypatch.setattr(mine, "save", lambda state: saved.append(monitor.remaining_s))
    mine._checkpoint.cost_s = 4.0  # as if it had taken so long
    for remaining_s in (100.0, 7.0, 6.0, 5.0, 1.0):
        monitor.deadline = 5000.0
        monkeypatch.setattr(type(monitor), "remaining_s", remaining_s)
        mine.save_if_due(lambda: STATE)
    assert saved == [6.0], "it needs 4 s, and some to spare"
    mine.settle(None)
