"""Numbers in the docks carry their units and stay short."""

from __future__ import annotations

import time

import pytest

from boundscope.protocol import Progress
from boundscope_app import format as text


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4211, "0.42 s"), (12.34, "12.3 s"), (245, "4 min 05 s"), (7620, "2 h 07 min"), (float("nan"), "")],
)
def test_duration(seconds: float, words: str) -> None:
    assert text.duration(seconds) == words


@pytest.mark.parametrize(
    ("size", "words"), [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (300 * 1024**2, "300 MiB")]
)
def test_size(size: int, words: str) -> None:
    assert text.size(size) == words


def test_moment_has_the_date_only_where_it_is_another_day() -> None:
    now = time.mktime((2026, 5, 4, 12, 0, 0, 0, 0, -1))
    assert text.moment(now - 60, now) == "11:59:00"
    assert text.moment(now - 86400 * 3, now).startswith("2026-05-01")
    assert text.moment(None) == ""


def test_progress_says_stage_count_and_rest() -> None:
    said = text.progress_text(Progress(stage="bounds of conv1", done=3, total=12, eta_s=9.0))
    assert said == "3/12 · 9 s left · bounds of conv1"
    assert text.progress_fraction(Progress(stage="x", done=3, total=0)) is None
    assert text.progress_fraction(Progress(stage="x", done=15, total=12)) == 1.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.4, "less than 1 s to go"),
        (1.6, "about 2 s to go"),
        (59.7, "about 1 min 00 s to go"),
        (245.0, "about 4 min 05 s to go"),
    ],
)
def test_a_time_that_is_only_reckoned_has_no_more_digits_than_it_deserves(seconds: float, words: str) -> None:
    assert text.to_go(seconds) == words


def test_where_nobody_knows_the_rest_the_time_limit_is_said() -> None:
    """Of an attack, a network being read, a branch and bound: they end with the limit at the latest."""
    attack = Progress(stage="looking for a counterexample", done=0, total=0)
    assert text.progress_text(attack, 61.2) == "at most 1 min 01 s left · looking for a counterexample"
    assert text.progress_text(attack, 0.3).startswith("less than 1 s left")
    assert text.progress_text(Progress(stage="x", done=1, total=2, eta_s=3.0), 61.2) == "1/2 · 3 s left · x"


def test_progress_of_a_search_claims_no_share_and_no_end() -> None:
    searching = Progress(stage="splitting inputs", done=12_345, total=0, open=410)
    assert text.progress_text(searching) == "12\u202f345 domains, 410 open · splitting inputs"
    assert text.progress_fraction(searching) is None
    assert text.progress_text(Progress(stage="", done=1, total=0, open=0)) == "1 domain, 0 open"


def test_count_agrees_with_its_noun() -> None:
    assert text.count(1, "clause") == "1 clause"
    assert text.count(2, "property", "properties") == "2 properties"
