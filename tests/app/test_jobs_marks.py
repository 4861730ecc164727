"""Boxes in the Jobs table mark the runs to compare, by pointer and by keys, whatever run is being shown."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QStyle, QStyleOptionViewItem
from pytestqt.qtbot import QtBot

from app.test_compare import fill, pick
from app.test_jobs_table import info
from boundscope_app.docks.jobs import MARK_TEXT, JobsDock
from boundscope_app.docks.jobs_model import STATE
from boundscope_app.window import MainWindow

CTRL = Qt.KeyboardModifier.ControlModifier


@pytest.fixture
def jobs(lone_window: MainWindow, qtbot: QtBot) -> JobsDock:
    """p0 is the oldest and at the bottom; p2 is shown."""
    fill(lone_window)
    lone_window.runs.select("p2")
    dock = lone_window.jobs
    qtbot.waitUntil(dock.table.isVisible)
    return dock


def row(jobs: JobsDock, job_id: str) -> int:
    return jobs._proxy.mapFromSource(jobs.model.index(jobs.model.row_of(job_id), STATE)).row()


def box(jobs: JobsDock, job_id: str) -> QPoint:
    """The middle of a run's box, where the style draws it."""
    table, index = jobs.table, jobs._proxy.index(row(jobs, job_id), STATE)
    table.scrollTo(index)
    option = QStyleOptionViewItem()
    option.initFrom(table)
    option.rect = table.visualRect(index)
    option.features = QStyleOptionViewItem.ViewItemFeature.HasCheckIndicator
    return (
        table.style().subElementRect(QStyle.SubElement.SE_ItemViewItemCheckIndicator, option, table).center()
    )


def tick(qtbot: QtBot, jobs: JobsDock, job_id: str) -> None:
    qtbot.mouseClick(jobs.table.viewport(), Qt.MouseButton.LeftButton, pos=box(jobs, job_id))


def test_ticked_runs_are_compared_by_the_button_that_counts_them(
    lone_window: MainWindow, qtbot: QtBot, jobs: JobsDock
) -> None:
    assert jobs.bar.isVisible()
    assert (jobs.compare_button.text(), jobs.compare_button.isEnabled()) == ("Compare", False)
    assert jobs._mark_text.text() == MARK_TEXT
    tick(qtbot, jobs, "p0")
    assert (jobs.compare_button.text(), jobs.compare_button.isEnabled()) == ("Compare (1)", False)
    tick(qtbot, jobs, "p1")
    assert (jobs.compare_button.text(), jobs.compare_button.isEnabled()) == ("Compare (2)", True)
    assert lone_window.runs.selected_id == "p2", "a tick shows no other run"
    qtbot.mouseClick(jobs.compare_button, Qt.MouseButton.LeftButton)
    assert lone_window.runs.compared == ("p0", "p1")
    assert lone_window.tabs.current_view_id == "compare"


def test_looking_at_a_run_leaves_the_ticks(lone_window: MainWindow, qtbot: QtBot, jobs: JobsDock) -> None:
    tick(qtbot, jobs, "p0")
    tick(qtbot, jobs, "p1")
    at = jobs.table.visualRect(jobs._proxy.index(row(jobs, "p1"), STATE + 1)).center()
    qtbot.mouseClick(jobs.table.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert lone_window.runs.selected_id == "p1"
    assert jobs.marked == ("p0", "p1")
    tick(qtbot, jobs, "p0")
    assert jobs.marked == ("p1",)


def test_everything_by_keys(lone_window: MainWindow, qtbot: QtBot, jobs: JobsDock) -> None:
    """Space ticks the current run, and unticks it; Ctrl+D compares."""
    table = jobs.table
    table.setFocus()
    table.selectRow(row(jobs, "p0"))
    qtbot.keyClick(table, Qt.Key.Key_Space)
    assert jobs.marked == ("p0",)
    qtbot.keyClick(table, Qt.Key.Key_Up)
    assert lone_window.runs.selected_id == "p1"
    qtbot.keyClick(table, Qt.Key.Key_Space)
    qtbot.keyClick(table, Qt.Key.Key_Up)
    qtbot.keyClick(table, Qt.Key.Key_Space)
    qtbot.keyClick(table, Qt.Key.Key_Space)
    assert jobs.marked == ("p0", "p1")
    qtbot.keyClick(lone_window, Qt.Key.Key_D, CTRL)
    assert lone_window.runs.compared == ("p0", "p1")


def test_rows_selected_together_are_ticked(lone_window: MainWindow, jobs: JobsDock) -> None:
    pick(lone_window, "p0", "p2")
    assert jobs.marked == ("p0", "p2")
    assert jobs.compare_button.text() == "Compare (2)"
    jobs.clear_button.click()
    assert jobs.marked == ()
    assert jobs.picked() == (lone_window.runs.selected_id,)


def test_a_deleted_run_is_not_compared(lone_window: MainWindow, qtbot: QtBot, jobs: JobsDock) -> None:
    tick(qtbot, jobs, "p0")
    tick(qtbot, jobs, "p1")
    lone_window.runs.remove("p0")
    assert jobs.marked == ("p1",)
    assert not jobs.compare_button.isEnabled()


def test_more_than_can_be_compared_is_said(lone_window: MainWindow) -> None:
    lone_window.runs.set_jobs([info(str(number)) for number in range(1, 10)])
    jobs = lone_window.jobs
    jobs.model.set_marked(str(number) for number in range(1, 10))
    assert not jobs.compare_button.isEnabled()
    assert jobs._mark_text.text() == "At most 8 runs can be compared."


def test_one_run_alone_needs_no_boxes_explained(lone_window: MainWindow) -> None:
    lone_window.runs.set_jobs([info("1")])
    assert not lone_window.jobs.bar.isVisible()
