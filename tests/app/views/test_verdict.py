"""The verdict page says what was found, in which arithmetic, by what, and never less than it knows."""

from __future__ import annotations

import re

import numpy as np
import pytest
from msgspec.structs import replace
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.views import sample_records as samples
from boundscope.protocol import (
    Branching,
    Counterexample,
    EventRecord,
    Failure,
    JobState,
    Margin,
    Progress,
    SearchSummary,
    Verdict,
    VerifyResult,
)
from boundscope.records import JobRecord
from boundscope_app import theme
from boundscope_app.views import VerdictView
from boundscope_app.views.counterexample import image_shape, input_picture


def shown(
    qtbot: QtBot, record: JobRecord, state: JobState = JobState.FINISHED, cause: str = ""
) -> VerdictView:
    view = VerdictView()
    qtbot.addWidget(view)
    view.resize(1100, 700)
    view.set_run(samples.job_info(state, ranks=4, cause=cause), record)
    view.show()
    view.refresh()
    return view


def text(view: VerdictView) -> str:
    return re.sub(r"\s+", " ", view.browser.toPlainText()).strip()


def test_verified_says_so_in_words_with_arithmetic_margin_and_command(qtbot: QtBot) -> None:
    page = text(shown(qtbot, samples.record_of(samples.finished_events())))
    assert "Verified No input in the box violates the property." in page
    assert "float32 (any order)" in page
    assert "Smallest margin 0.02" in page
    assert "mnist-net_256x4.onnx" in page
    assert "prop_7_0.05.vnnlib" in page
    assert "boundscope verify mnist-net_256x4.onnx" in page
    assert "onnxruntime 1.23.0" in page
    assert "resident, above idle" in page
    assert page.count("✓ excluded") == 9


def searched(domains: int, open: int) -> VerifyResult:
    """A result in which branch and bound excluded the last clause, and so does not say how far above 0 it is."""
    whole = samples.result()
    *others, last = whole.margin.per_clause
    margin = Margin(smallest=0.0, per_clause=(*others, replace(last, lower=0.0)))
    summary = SearchSummary(branching=Branching.ACTIVATION, domains=domains, depth=1, open=open)
    return replace(whole, margin=margin, search=summary)


def test_a_search_is_told_in_one_line(qtbot: QtBot) -> None:
    page = text(shown(qtbot, samples.record_of([(0, searched(12_345, 0))])))
    assert "Branch and bound: 12 345 domains, deepest 1 split, splitting activations." in page
    page = text(shown(qtbot, samples.record_of([(0, searched(1, 1024))])))
    assert (
        "Branch and bound: 1 domain, deepest 1 split, splitting activations, 1 024 domains left open." in page
    )
    assert "Branch and bound" not in text(shown(qtbot, samples.record_of([(0, samples.result())])))


def test_what_a_search_excluded_is_not_called_open_for_want_of_a_number(qtbot: QtBot) -> None:
    page = text(shown(qtbot, samples.record_of([(0, searched(5, 0))])))
    assert "Smallest margin above 0" in page
    assert page.count("✓ excluded") == 9
    assert "how far above is not known: it says 0" in page


def test_a_running_search_shows_its_counts(qtbot: QtBot) -> None:
    progress = Progress(stage="splitting inputs", done=12_345, total=0, open=410)
    view = shown(qtbot, samples.record_of([(0, progress)]), JobState.RUNNING)
    assert view._stage.text() == "splitting inputs: 12\u202f345 domains, 410 open"
    assert view._bar.maximum() == 0  # busy, without a share


@pytest.mark.parametrize("verdict", list(Verdict))
def test_every_verdict_has_its_word_and_its_colour(qtbot: QtBot, verdict: Verdict) -> None:
    view = shown(qtbot, samples.record_of([(0, samples.result(verdict))]))
    word = verdict.value.replace("_", " ").capitalize()
    assert text(view).startswith(word)
    color, fill = theme.LIGHT.verdict_colors(verdict.value)
    assert color in view.browser.document().toHtml()
    assert fill in view.browser.document().toHtml()


def test_violated_shows_input_outputs_clause_and_replay(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.finished_events(Verdict.VIOLATED)))
    page = text(view)
    assert "Violated clause case 0, clause 2: Y_2 ≥ Y_7" in page
    assert "Violates in ONNX Runtime yes" in page
    assert "float32 session, CPU" in page
    assert "3.104" in page
    assert "Input of shape 1 × 1 × 28 × 28" in page
    assert 'src="counterexample"' in view.browser.document().toHtml()
    names = [table.name for table in view.tables()]
    assert names == ["margins", "counterexample_inputs", "counterexample_outputs"]
    assert len(view.tables()[1].rows) == 784


def test_an_input_that_is_no_picture_is_a_table_with_its_box(qtbot: QtBot) -> None:
    page = text(shown(qtbot, samples.record_of(samples.finished_events(Verdict.VIOLATED, image=False))))
    assert "Input Lower bound Value Upper bound" in page
    assert "X_2 0.0 0.003125 0.05" in page


@pytest.mark.parametrize(
    ("shape", "count", "expected"),
    [
        ((1, 1, 28, 28), 784, (1, 28, 28)),
        ((1, 3, 32, 32), 3072, (3, 32, 32)),
        ((1, 32, 32, 3), 3072, (-3, 32, 32)),
        ((28, 28, 1), 784, (-1, 28, 28)),
        ((1, 784), 784, (1, 28, 28)),
        ((1, 784, 1), 784, (1, 28, 28)),
        ((), 784, (1, 28, 28)),
        ((1, 3072), 3072, (3, 32, 32)),
        ((1, 5), 5, None),
        ((1, 3, 2, 2), 12, None),
        ((1, 16, 7, 7), 784, None),
    ],
)
def test_what_counts_as_a_picture(
    shape: tuple[int, ...], count: int, expected: tuple[int, int, int] | None
) -> None:
    assert image_shape(shape, count) == expected


def test_channels_first_and_channels_last_give_the_same_picture() -> None:
    values = np.random.default_rng(3).random((3, 8, 6)).round(4)

    def found(array: np.ndarray, shape: tuple[int, ...]) -> Counterexample:
        inputs = tuple(str(v) for v in array.reshape(-1))
        whole = samples.counterexample()
        return Counterexample(
            inputs=inputs,
            outputs=(),
            case=0,
            clause=0,
            clause_text="",
            replay=whole.replay,
            input_shape=shape,
        )

    first = input_picture(found(values, (1, 3, 8, 6)))
    last = input_picture(found(values.transpose(1, 2, 0), (1, 8, 6, 3)))
    assert first is not None
    assert last is not None
    np.testing.assert_array_equal(first.pixels, last.pixels)
    np.testing.assert_array_equal(first.pixels[2, 4], np.round(values[:, 2, 4] * 255))


def test_a_running_job_shows_stage_progress_and_time_to_go(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.running_events()), JobState.RUNNING)
    assert view._progress.isVisible()
    assert view._stage.text() == "bounds of /fc3/Gemm"
    assert (view._bar.value(), view._bar.maximum()) == (5, 16)
    assert view._eta.text() == "about 42 s to go"
    assert text(view).startswith("Running There is no verdict yet.")


def test_a_failed_job_says_why_once(qtbot: QtBot) -> None:
    cause = "rank 2 was killed by signal 9; the host ran out of memory"
    view = shown(qtbot, samples.record_of(samples.failed_events()), JobState.FAILED, cause)
    assert not view._progress.isVisible()
    assert text(view).lower().count(cause) == 1
    assert text(view).startswith("Failed The run ended without a verdict.")


def test_every_rank_that_failed_is_named(qtbot: QtBot) -> None:
    record = samples.record_of(
        [(0, Failure(cause="out of memory", rank=0)), (1, Failure(cause="stopped", rank=1))]
    )
    page = text(shown(qtbot, record, JobState.FAILED))
    assert "Rank 0: out of memory Rank 1: stopped" in page


def test_text_from_files_cannot_become_markup(qtbot: QtBot) -> None:
    record = JobRecord()
    event = Failure(cause="node <b>x</b> & <img src=y>")
    record.apply(EventRecord(number=1, time_s=0.0, rank=-1, event=event))
    assert "Node <b>x</b> & <img src=y>" in text(shown(qtbot, record, JobState.FAILED))


def test_the_page_is_not_built_again_while_nothing_on_it_changes(qtbot: QtBot) -> None:
    record = samples.record_of(samples.running_events())
    view = shown(qtbot, record, JobState.RUNNING)
    revision = view.browser.document().revision()
    view.mark_dirty()
    view.refresh()
    assert view.browser.document().revision() == revision


def test_the_command_line_can_be_copied(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.finished_events()))
    view.copy_command_action.trigger()
    assert QGuiApplication.clipboard().text() == samples.result().command


def test_a_page_is_never_wider_than_its_window_by_a_rounded_pixel(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.finished_events()))
    for width in range(560, 760, 9):
        view.resize(width, 500)
        view.refresh()
        qtbot.waitUntil(lambda: not view.browser.horizontalScrollBar().isVisible())


def test_another_run_is_read_from_its_beginning(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.finished_events()))
    view.resize(600, 300)
    bar = view.browser.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 100)
    bar.setValue(100)
    view.mark_dirty()
    view.refresh()
    assert bar.value() == 100
    view.set_run(samples.job_info(JobState.FINISHED, ranks=4), samples.record_of(samples.finished_events()))
    view.refresh()
    assert bar.value() == 0
