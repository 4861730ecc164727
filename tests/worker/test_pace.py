"""The time to go is reckoned from what is done, for the outermost of the stages that lie within one another."""

from __future__ import annotations

import pytest

from boundscope.monitor import Monitor
from boundscope.pace import Pace
from boundscope.protocol import Event, Progress

FOREVER_S = float("inf")


def told(pace: Pace, at_s: float, stage: str, done: int, total: int) -> float | None:
    return pace.timed(Progress(stage=stage, done=done, total=total), at_s, FOREVER_S).eta_s


def test_the_rest_takes_as_long_as_what_is_done_says() -> None:
    pace = Pace()
    assert told(pace, 0.0, "layers", 0, 10) is None, "nothing is done yet"
    assert told(pace, 2.0, "layers", 1, 10) == pytest.approx(18.0)
    assert told(pace, 6.0, "layers", 3, 10) == pytest.approx(14.0)
    assert told(pace, 20.0, "layers", 10, 10) == 0.0


def test_a_part_counts_within_its_whole() -> None:
    pace = Pace()
    told(pace, 0.0, "layers", 0, 4)
    told(pace, 0.0, "rows of conv1", 0, 100)
    assert told(pace, 1.0, "rows of conv1", 50, 100) == pytest.approx(7.0), (
        "an eighth of the whole in a second"
    )
    told(pace, 2.0, "rows of conv1", 100, 100)
    assert told(pace, 2.0, "layers", 1, 4) == pytest.approx(6.0)
    assert told(pace, 2.0, "rows of conv2", 0, 50) == pytest.approx(6.0)
    assert told(pace, 3.0, "rows of conv2", 25, 50) == pytest.approx(5.0)


def test_rows_that_are_gone_through_twice_do_not_turn_the_work_back() -> None:
    pace = Pace()
    told(pace, 0.0, "layers", 1, 4)
    told(pace, 1.0, "rows", 10, 10)
    assert told(pace, 1.0, "rows", 0, 10) == pytest.approx(2.0)
    assert told(pace, 2.0, "rows", 10, 10) == pytest.approx(4.0), (
        "the same share of the whole took twice as long"
    )


def test_what_begins_after_the_end_is_reckoned_anew() -> None:
    pace = Pace()
    told(pace, 0.0, "layers", 0, 2)
    told(pace, 100.0, "layers", 2, 2)
    assert told(pace, 100.0, "margins", 0, 10) is None
    assert told(pace, 101.0, "margins", 5, 10) == pytest.approx(1.0)
    assert told(pace, 102.0, "margins", 0, 10) is None, "the same stage from its start"
    assert told(pace, 104.0, "margins", 5, 10) == pytest.approx(2.0)


def test_a_stage_that_was_given_up_does_not_hold_the_next_one() -> None:
    pace = Pace()
    told(pace, 0.0, "layers", 1, 10)
    assert told(pace, 1.0, "looking for a counterexample", 0, 0) is None
    told(pace, 2.0, "samples", 0, 4)
    assert told(pace, 3.0, "samples", 1, 4) == pytest.approx(3.0)


def test_a_branch_and_bound_has_no_time_to_go_and_one_that_is_said_stays() -> None:
    pace = Pace()
    assert pace.timed(Progress(stage="splitting", done=5, total=0, open=3), 1.0, FOREVER_S).eta_s is None
    said = Progress(stage="samples", done=5, total=10, eta_s=42.0)
    assert pace.timed(said, 1.0, FOREVER_S) == said


def test_a_run_ends_with_its_time_limit_at_the_latest() -> None:
    pace = Pace()
    pace.timed(Progress(stage="layers", done=0, total=100), 0.0, 60.0)
    assert pace.timed(Progress(stage="layers", done=1, total=100), 10.0, 50.0).eta_s == 50.0


def test_a_pause_does_not_make_the_rest_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    events: list[Event] = []
    monitor = Monitor(events.append)
    monitor.emit(Progress(stage="layers", done=0, total=4))
    clock[0] += 1.0
    monitor.pause()
    clock[0] += 1000.0
    monitor.go_on()
    monitor.emit(Progress(stage="layers", done=1, total=4))
    last = events[-1]
    assert isinstance(last, Progress)
    assert last.eta_s == pytest.approx(3.0)
