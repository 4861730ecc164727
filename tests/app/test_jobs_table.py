"""The jobs table shows every run with its state, and follows the model row by row."""

from __future__ import annotations

import time

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QImage, QPainter
from PySide6.QtWidgets import QStyledItemDelegate, QStyleOptionViewItem
from pytestqt.qtbot import QtBot

from boundscope.protocol import (
    FileRef,
    InspectJob,
    JobInfo,
    JobState,
    Progress,
    PropertyFile,
    Verdict,
    VerifyJob,
)
from boundscope_app import theme as themes
from boundscope_app.docks import jobs_model as columns
from boundscope_app.docks.jobs import ProgressDelegate
from boundscope_app.docks.jobs_model import INFO_ROLE, JobsModel
from boundscope_app.runs import RunModel
from boundscope_app.window import MainWindow

REF = FileRef(name="net.onnx", sha256="a" * 64, size_bytes=1)


def info(job_id: str, state: JobState = JobState.RUNNING, **more: object) -> JobInfo:
    job = VerifyJob(network=REF, property=PropertyFile(file=REF))
    fields = {"created_s": 1000.0 + int(job_id), "started_s": 1000.0, "title": f"run {job_id}", "host": "h"}
    return JobInfo(id=job_id, kind="verify", state=state, job=job, **(fields | more))  # type: ignore[arg-type]


def text(model: JobsModel, row: int, column: int) -> str:
    return model.data(model.index(row, column), Qt.ItemDataRole.DisplayRole)


def test_newest_first_and_rows_follow_changes(qtbot: QtBot) -> None:
    runs = RunModel()
    model = JobsModel(runs)
    runs.set_jobs([info("1"), info("2")])
    runs.put(info("3"))
    assert [text(model, row, columns.RUN) for row in range(3)] == ["run 3", "run 2", "run 1"]
    runs.put(info("2", JobState.FINISHED, verdict=Verdict.OUT_OF_MEMORY, ended_s=1003.5))
    row = model.row_of("2")
    assert text(model, row, columns.STATE) == "finished"
    assert text(model, row, columns.VERDICT) == "out of memory"
    assert text(model, row, columns.DURATION) == "3.50 s"
    runs.remove("2")
    assert model.row_of("2") == -1
    assert model.rowCount() == 2


def test_verdicts_take_their_colour_from_the_theme(qtbot: QtBot) -> None:
    runs = RunModel()
    model = JobsModel(runs)
    runs.set_jobs([info("1", JobState.FINISHED, verdict=Verdict.VIOLATED)])
    color = model.data(model.index(0, columns.VERDICT), Qt.ItemDataRole.ForegroundRole)
    assert color.name() == themes.current().bad


def test_cause_of_a_failure_is_shown(qtbot: QtBot) -> None:
    runs = RunModel()
    model = JobsModel(runs)
    runs.set_jobs([info("1", JobState.FAILED, cause="rank 1 was killed")])
    assert text(model, 0, columns.PROGRESS) == "rank 1 was killed"


def test_progress_with_rest_while_running(qtbot: QtBot) -> None:
    runs = RunModel()
    model = JobsModel(runs)
    runs.set_jobs([info("1", progress=Progress(stage="crown", done=1, total=4, eta_s=3.0))])
    assert text(model, 0, columns.PROGRESS) == "1/4 · 3 s left · crown"
    assert model.data(model.index(0, 0), INFO_ROLE).id == "1"


def test_the_time_to_go_becomes_less_by_itself(qtbot: QtBot, monkeypatch: pytest.MonkeyPatch) -> None:
    """A step that says nothing for a while does not make the clock stand."""
    clock = [50.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    runs = RunModel()
    model = JobsModel(runs)
    runs.set_jobs([info("1")])
    runs.put(info("1", progress=Progress(stage="crown", done=1, total=4, eta_s=30.0)))
    clock[0] += 12.0
    assert text(model, 0, columns.PROGRESS) == "1/4 · 18 s left · crown"
    clock[0] += 40.0
    assert text(model, 0, columns.PROGRESS) == "1/4 · less than 1 s left · crown"
    runs.put(info("1", progress=Progress(stage="crown", done=2, total=4, eta_s=20.0)))
    assert text(model, 0, columns.PROGRESS) == "2/4 · 20 s left · crown"


def test_a_search_says_what_the_time_limit_leaves(qtbot: QtBot) -> None:
    runs = RunModel()
    model = JobsModel(runs)
    searching = Progress(stage="splitting inputs", done=12, total=0, open=3)
    runs.set_jobs([info("1", started_s=time.time() - 100.0, progress=searching)])
    assert text(model, 0, columns.PROGRESS).startswith("12 domains, 3 open · at most 3 min ")


def bar_pixels(qtbot: QtBot, progress: Progress) -> int:
    """How many pixels the delegate adds to a cell that shows only text."""
    runs = RunModel()
    model = JobsModel(runs)
    runs.set_jobs([info("1", progress=progress)])
    pictures = []
    for delegate in (ProgressDelegate(), QStyledItemDelegate()):
        image = QImage(300, 24, QImage.Format.Format_RGB32)
        image.fill(0)
        option = QStyleOptionViewItem()
        option.rect = image.rect()
        painter = QPainter(image)
        delegate.paint(painter, option, model.index(0, columns.PROGRESS))
        painter.end()
        pictures.append(np.array(image.constBits(), dtype=np.uint8).reshape(24, 300, 4)[..., :3])
    return int((pictures[0] != pictures[1]).any(axis=2).sum())


def test_no_bar_is_drawn_below_a_search_whose_end_nobody_knows(qtbot: QtBot) -> None:
    assert bar_pixels(qtbot, Progress(stage="crown", done=1, total=4)) > 0
    assert bar_pixels(qtbot, Progress(stage="splitting inputs", done=5, total=0, open=3)) == 0


def test_inspections_are_not_listed(qtbot: QtBot) -> None:
    runs = RunModel()
    hidden = JobInfo(
        id="9", kind="inspect", title="", state=JobState.RUNNING, job=InspectJob(), created_s=1.0
    )
    runs.set_jobs([hidden, info("1")])
    runs.put(hidden)
    assert runs.ids == ("1",)


def test_choosing_a_row_selects_the_run_everywhere(lone_window: MainWindow, qtbot: QtBot) -> None:
    lone_window.runs.set_jobs([info("1"), info("2", JobState.FINISHED)])
    lone_window.jobs.table.selectRow(1)
    assert lone_window.runs.selected_id == "1"
    assert all(view.info is not None and view.info.id == "1" for view in lone_window.tabs.views)
    assert lone_window.actions_by_id["run.cancel"].isEnabled()
    lone_window.runs.select("2")
    assert lone_window.jobs.table.currentIndex().row() == 0
    assert not lone_window.actions_by_id["run.cancel"].isEnabled()


def test_removing_the_selected_run_goes_on_to_its_neighbour_and_at_last_to_the_start_page(
    lone_window: MainWindow,
) -> None:
    lone_window.runs.set_jobs([info("1"), info("2")])
    lone_window.runs.select("2")
    lone_window.runs.remove("2")
    assert lone_window.runs.selected_id == "1"
    assert lone_window.jobs.table.selectionModel().selectedRows()[0].row() == 0
    lone_window.runs.remove("1")
    assert lone_window.runs.selected_id == ""
    assert lone_window.welcome.isVisible()
    assert lone_window.tabs.views[0].record is None


def test_selection_stays_when_rows_are_added(lone_window: MainWindow) -> None:
    lone_window.runs.set_jobs([info("1"), info("2")])
    lone_window.runs.select("1")
    lone_window.runs.put(info("3"))
    assert lone_window.runs.selected_id == "1"
    lone_window.runs.set_jobs([info("1"), info("2"), info("3"), info("4")])
    assert lone_window.runs.selected_id == "1"
    assert lone_window.jobs.table.selectionModel().hasSelection()
