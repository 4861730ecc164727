"""A benchmark as it is shown: every instance from the start, verdicts as they come, and what one of them holds."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QGuiApplication
from pytestqt.qtbot import QtBot

from app.views import sample_records as samples
from app.views.sample_instances import ended_events, info, row, running_events
from boundscope.protocol import Event, JobState, Verdict
from boundscope.records import JobRecord
from boundscope_app import theme
from boundscope_app.docks.jobs_model import METHOD, PROGRESS, RANKS, VERDICT, JobsModel
from boundscope_app.notify import outcome
from boundscope_app.runs import RunModel
from boundscope_app.view_tabs import ViewTabs
from boundscope_app.views import BoundGapView, InstancesView, VerdictView
from boundscope_app.views import instances_text as words
from boundscope_app.views.verdict_text import verdict_text


def record_of(events: list[Event]) -> JobRecord:
    return samples.record_of([(0, event) for event in events])


def shown(qtbot: QtBot, events: list[Event], state: JobState = JobState.RUNNING) -> InstancesView:
    view = InstancesView()
    qtbot.addWidget(view)
    view.resize(1000, 600)
    view.set_run(info(state), record_of(events))
    view.show()
    qtbot.waitExposed(view)
    view.refresh()
    return view


def column(view: InstancesView, number: int) -> list[str]:
    proxy = view.table.proxy
    return [proxy.index(place, number).data() for place in range(proxy.rowCount())]


def test_every_instance_is_there_from_the_start(qtbot: QtBot) -> None:
    """Those that have ended with their verdict, the one under way, and those that wait; then all of them ended."""
    view = shown(qtbot, running_events())
    assert column(view, words.VERDICT) == ["verified", "violated", "running", "waiting"]
    assert column(view, words.NETWORK) == ["a.onnx", "a.onnx", "b.onnx", "b.onnx"]
    assert column(view, words.MARGIN)[0] == "0.12500"
    assert column(view, words.TIME)[2] == "–"
    assert view.count.text() == "2 of 4 solved"
    view.set_run(info(JobState.FINISHED), record_of(ended_events()))
    view.refresh()
    assert column(view, words.VERDICT) == ["verified", "violated", "timeout", "verified"]
    assert column(view, words.REASON)[2] == "the time; limit passed"
    assert view.count.text() == "3 of 4 solved"


def test_what_a_cancelled_run_left_is_not_called_running(qtbot: QtBot) -> None:
    view = shown(qtbot, running_events(), JobState.CANCELLED)
    assert column(view, words.VERDICT)[2:] == ["waiting", "waiting"]


@pytest.mark.parametrize("chosen", [theme.LIGHT, theme.DARK])
def test_verdicts_have_the_colours_of_all_views(qtbot: QtBot, qapp, chosen: theme.Theme) -> None:
    view = shown(qtbot, ended_events())
    theme.apply(qapp, chosen)
    colors = [
        view.table.proxy.index(place, words.VERDICT).data(Qt.ItemDataRole.ForegroundRole)
        for place in range(3)
    ]
    assert colors == [QColor(chosen.verdict_colors(key)[0]) for key in ("verified", "violated", "timeout")]


def test_sorting_and_filtering_decide_what_is_exported(qtbot: QtBot, tmp_path: Path) -> None:
    """Numbers sort as numbers; the CSV holds the rows shown, in their order."""
    view = shown(qtbot, ended_events(), JobState.FINISHED)
    view.table.sortByColumn(words.TIME, Qt.SortOrder.DescendingOrder)
    assert column(view, words.NUMBER) == ["4", "3", "2", "1"]
    for wanted, numbers in (
        (words.ONLY_SOLVED, ["4", "2", "1"]),
        (words.UNSOLVED, ["3"]),
        ("Violated", ["2"]),
        (words.NOT_ENDED, []),
        (words.ALL, ["4", "3", "2", "1"]),
    ):
        view.verdict.setCurrentText(wanted)
        assert column(view, words.NUMBER) == numbers, wanted
    view.filter.setText("B.ONNX")
    assert view.count.text() == "2 of 4 shown · 3 of 4 solved"
    (path,) = view.export_csv(tmp_path / "rows.csv")
    with path.open(newline="") as file:
        cells = list(csv.reader(file))
    assert [row[0] for row in cells] == ["instance", "4", "3"]
    view.filter.setText("q.vnnlib")
    view.copy_data()
    copied = QGuiApplication.clipboard().text().splitlines()
    assert [line.split("\t")[0] for line in copied] == ["instance", "4", "2"]


def test_enter_and_double_click_show_one_of_them(qtbot: QtBot) -> None:
    """Its reason, its counterexample in VNN-COMP's format, and the command that runs it alone; live while it runs."""
    view = shown(qtbot, running_events())
    assert view.detail.toPlainText() == ""
    view.table.setCurrentIndex(view.table.proxy.index(1, 0))
    qtbot.keyClick(view.table, Qt.Key.Key_Return)
    text = view.detail.toPlainText()
    assert "2: a.onnx · q.vnnlib: violated after 3 s of 60 s" in text
    assert "Reason 1" in text
    assert "((X_0 0.25)\n (X_1 -1)\n (Y_0 -0.5))" in text
    assert "boundscope verify a.onnx q.vnnlib --method" in text
    place = view.table.visualRect(view.table.proxy.index(2, 1)).center()
    qtbot.mouseClick(view.table.viewport(), Qt.MouseButton.LeftButton, pos=place)
    qtbot.mouseDClick(view.table.viewport(), Qt.MouseButton.LeftButton, pos=place)
    assert "3: b.onnx · p.vnnlib: running" in view.detail.toPlainText()
    assert view.record is not None
    whole = [*running_events(), row(2, Verdict.ERROR, reason="it broke")]
    view.record.apply_all(samples.records([(0, event) for event in whole]))
    view.mark_dirty()
    view.refresh()
    assert "It broke" in view.detail.toPlainText()


def test_pictures(qtbot: QtBot, tmp_path: Path) -> None:
    view = shown(qtbot, ended_events(), JobState.FINISHED)
    view.export_png(tmp_path / "a.png")
    view.export_svg(tmp_path / "a.svg")
    assert (tmp_path / "a.png").stat().st_size > 10_000
    assert "3 of 4 instances solved" in (tmp_path / "a.svg").read_text()


def test_the_tab_is_there_for_benchmarks_alone(qtbot: QtBot) -> None:
    """It comes to the front with such a run, and goes with it; going through the tabs passes hidden ones by."""
    runs = RunModel()
    tabs = ViewTabs(runs)
    qtbot.addWidget(tabs)
    place = tabs.indexOf(next(view for view in tabs.views if isinstance(view, InstancesView)))
    assert not tabs.isTabVisible(place)
    before = tabs.current_view_id
    for _ in tabs.views[1:]:
        tabs.step(1)
        assert tabs.current_view_id != "instances"
    assert tabs.current_view_id == before
    runs.set_jobs([info(), samples.job_info()])
    runs.select("many")
    assert tabs.isTabVisible(place)
    assert tabs.current_view_id == "instances"
    tabs.show_view("log")
    runs.put(info(JobState.FINISHED))
    assert tabs.current_view_id == "log"
    tabs.show_view("instances")
    runs.select(samples.job_info().id)
    assert not tabs.isTabVisible(place)
    assert tabs.current_view_id != "instances"


def test_other_views_and_the_jobs_table_speak_of_benchmarks(qtbot: QtBot) -> None:
    """No view claims bounds that there are not, and the verdict page says what was not solved."""
    ended = info(JobState.FINISHED, Verdict.UNKNOWN)
    record = record_of(ended_events())
    markup = verdict_text(ended, record, theme.LIGHT, with_progress=True, width=1200).markup
    for text in ("3 of 4 solved", "Not solved", "the time; limit passed", "tiny", "60 s at most for one"):
        assert text in markup, text
    empty = verdict_text(info(), JobRecord(), theme.LIGHT, with_progress=True, width=600).markup
    assert "Instances are being verified" in empty
    gap = BoundGapView()
    qtbot.addWidget(gap)
    gap.set_run(ended, record)
    assert "Instances view" in gap.waiting_text()
    page = VerdictView()
    qtbot.addWidget(page)
    page.set_run(ended, record)
    assert [table.name for table in page.tables()] == ["instances"]
    assert (outcome(ended), outcome(info(JobState.FINISHED))) == ("some unsolved", "all solved")
    runs = RunModel()
    runs.set_jobs([ended])
    model = JobsModel(runs)
    assert [model.index(0, each).data() for each in (METHOD, RANKS, VERDICT)] == [
        "CROWN",
        "1",
        "some unsolved",
    ]
    runs.put(info())
    assert model.index(0, PROGRESS).data().startswith("2/4 · 6 s left")
