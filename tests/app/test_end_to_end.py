"""A day's work in one window, as people do it: files dropped, keys pressed, a real daemon, real ranks, real files out.

A complete verification on two ranks, the noise of the same network, the same proof with its weights sharded, the two
compared, everything exported; then the window is closed and opened again, and everything is there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication, QFileDialog, QLineEdit, QTableView, QWidget
from pytestqt.qtbot import QtBot

from app.test_drop import drop
from app.test_exports import boundscope
from app.test_session import wait_ended
from app.window_support import close, show_in_front
from boundscope.protocol import JobState, Method, Sharding, VariabilityJob, Verdict, VerifyJob
from boundscope_app import settings as settings_store
from boundscope_app.docks import jobs_model
from boundscope_app.draft import Options
from boundscope_app.window import MainWindow
from support.wider import DIGITS, wider

CONTROL, SHIFT, PLAIN = (
    Qt.KeyboardModifier.ControlModifier,
    Qt.KeyboardModifier.ShiftModifier,
    Qt.KeyboardModifier.NoModifier,
)
Opens = Callable[..., MainWindow]
PNG, PDF = b"\x89PNG\r\n\x1a\n", b"%PDF-"
MOST_TABS = 80  # presses of Tab that lead once round the window
MOST_VIEWS = 20
SAMPLES = 4


class Hands:
    """What a person does in front of the window: keys only, at whatever has the focus."""

    def __init__(self, qtbot: QtBot, window: MainWindow) -> None:
        self.qtbot, self.window = qtbot, window

    def key(self, key: Qt.Key, keys: Qt.KeyboardModifier = PLAIN) -> None:
        self.qtbot.keyClick(QApplication.focusWidget() or self.window, key, keys)

    def write(self, text: str) -> None:
        self.qtbot.keyClicks(QApplication.focusWidget(), text)

    def tab_to(self, wanted: QWidget) -> None:
        """Press Tab until this field has the focus."""
        for _ in range(MOST_TABS):
            focused = QApplication.focusWidget()
            if focused is not None and (focused is wanted or wanted.isAncestorOf(focused)):
                return
            self.key(Qt.Key.Key_Tab)
        raise AssertionError(f"{wanted.accessibleName()} is not reached with Tab")

    def choose(self, combo: QWidget, title: str) -> None:
        self.tab_to(combo)
        self.write(title)

    def number(self, spin: QWidget, text: str) -> None:
        self.tab_to(spin)
        self.key(Qt.Key.Key_A, CONTROL)
        self.write(text)

    def show_view(self, view_id: str) -> None:
        """Press Ctrl+PgDown until this view is in front, and wait until it is drawn."""
        for _ in range(MOST_VIEWS):
            if self.window.tabs.current_view_id == view_id:
                break
            self.key(Qt.Key.Key_PageDown, CONTROL)
        assert self.window.tabs.current_view_id == view_id
        view = view_named(self.window, view_id)
        self.qtbot.waitUntil(lambda: not view.dirty)  # type: ignore[attr-defined]

    def run(self) -> str:
        """Ctrl+R, and the run that comes of it, at its end and with all that it said."""
        before = set(self.window.runs.ids)
        self.qtbot.waitUntil(self.window.form.run_button.isEnabled)
        with self.qtbot.waitSignal(self.window.session.run_accepted):
            self.key(Qt.Key.Key_R, CONTROL)
        (job_id,) = set(self.window.runs.ids) - before
        assert self.window.runs.selected_id == job_id
        wait_ended(self.qtbot, self.window, job_id)
        return job_id

    def export_all(self, folder: Path) -> Path:
        """Ctrl+E, where to, Return; the folder that was written."""
        folder.mkdir()

        def answer() -> None:
            dialog = QApplication.activeModalWidget()
            if not isinstance(dialog, QFileDialog):
                QTimer.singleShot(20, answer)
                return
            line = dialog.findChild(QLineEdit, "fileNameEdit")
            line.setText(str(folder))  # letter by letter, Qt's own completion would race with Return
            self.qtbot.keyClick(line, Qt.Key.Key_Return)

        QTimer.singleShot(20, answer)
        self.key(Qt.Key.Key_E, CONTROL)
        show_in_front(self.qtbot, self.window)  # as a window manager does when a dialog has gone
        self.qtbot.waitUntil(lambda: not self.window.commands.exporting)
        assert any("files written to" in text for text in self.window.messages.texts)
        (written,) = folder.iterdir()
        return written


def view_named(window: MainWindow, view_id: str) -> QWidget:
    return next(view for view in window.tabs.all_views if view.view_id == view_id)


def shown_data(window: MainWindow) -> dict[str, list[str]]:
    """What every view that shows something shows, as its tables."""
    shown = {}
    for view in window.tabs.all_views:
        if window.tabs.isTabVisible(window.tabs.indexOf(view)) and view.record and view.has_data(view.record):
            view.refresh()
            shown[view.view_id] = [table.to_csv() for table in view.tables()]
    return shown


def jobs_shown(window: MainWindow) -> list[tuple[str, ...]]:
    """The Jobs table as it reads, row by row, with the runs' ids."""
    model = window.jobs.model
    columns = (jobs_model.STATE, jobs_model.RUN, jobs_model.METHOD, jobs_model.RANKS, jobs_model.VERDICT)
    return [
        (model.id_at(row), *(str(model.index(row, column).data()) for column in columns))
        for row in range(model.rowCount())
    ]


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def from_the_command_line(job_id: str, home: Path, folder: Path) -> dict[str, bytes]:
    """The tables that `boundscope export` writes of a run, with no window."""
    done = boundscope("export", job_id, "--home", home, "--all", folder)
    assert (done.returncode, done.stderr) == (0, "")
    return {name: data for name, data in files_of(folder).items() if name.endswith(".csv")}


def assert_whole(files: dict[str, bytes], views: Iterable[str]) -> None:
    """A picture of each view twice, no file that is cut, nothing half-written beside."""
    names = {f"{view}.{kind}" for view in views for kind in ("png", "svg")}
    assert names <= files.keys()
    for name, data in files.items():
        if name.endswith(".png"):
            assert data.startswith(PNG)
            image = QImage.fromData(data)
            assert image.width() == 1600
            small = image.scaled(200, 100).convertToFormat(QImage.Format.Format_Grayscale8)
            assert len(set(bytes(small.constBits()))) > 8, f"{name} is blank"
        elif name.endswith(".svg"):
            assert data.rstrip().endswith(b"</svg>"), name
        elif name.endswith(".pdf"):
            assert data.startswith(PDF)
            assert data.rstrip().endswith(b"%%EOF")
        elif name.endswith(".html"):
            assert data.rstrip().endswith(b"</html>")
        else:
            assert name.endswith(".csv"), name
            assert data.endswith(b"\n"), name


@dataclass(frozen=True)
class Kept:
    """What must be the same when the window is opened again."""

    jobs: list[tuple[str, ...]]
    selected: str
    compared: tuple[str, ...]
    view: str
    layer: str
    areas: dict[str, object]
    hidden: dict[str, bool]
    size: tuple[int, int]
    shown: dict[str, list[str]]

    @classmethod
    def of(cls, window: MainWindow) -> Kept:
        docks = (window.library, window.form, window.jobs)
        return cls(
            jobs_shown(window),
            window.runs.selected_id,
            window.runs.compared,
            window.tabs.current_view_id,
            window.tabs.layer_selection.layer,
            {dock.objectName(): window.dockWidgetArea(dock) for dock in docks},
            {dock.objectName(): dock.isHidden() for dock in docks},
            (window.width(), window.height()),
            shown_data(window),
        )


def prove_on_two_ranks(hands: Hands) -> str:
    """Branch and bound, set up with the keyboard."""
    form = hands.window.form
    hands.key(Qt.Key.Key_3, CONTROL)
    hands.choose(form.choices.method, "Complete")
    hands.choose(form.choices.sharding, "rows")
    hands.number(form.choices.ranks, "2")
    job_id = hands.run()
    info, record = hands.window.runs.info(job_id), hands.window.runs.record(job_id)
    assert info is not None
    assert isinstance(info.job, VerifyJob)
    assert (info.job.method, info.job.sharding, info.job.ranks) == (Method.COMPLETE, Sharding.ROWS, 2)
    assert (info.state, info.verdict, info.cause) == (JobState.FINISHED, Verdict.VERIFIED, "")
    assert sorted(record.memory) == [0, 1]
    assert record.search, "it was decided without a split"
    assert record.search[-1].open == 0
    return job_id


def measure_noise(hands: Hands) -> str:
    """The same network and box, under stochastic rounding."""
    form = hands.window.form
    hands.key(Qt.Key.Key_3, CONTROL)
    hands.tab_to(form.as_proof)
    hands.key(Qt.Key.Key_Right)
    assert form.as_measurement.isChecked()
    hands.number(form.noise.samples, str(SAMPLES))
    job_id = hands.run()
    info, record = hands.window.runs.info(job_id), hands.window.runs.record(job_id)
    assert info is not None
    assert isinstance(info.job, VariabilityJob)
    assert (info.job.samples, info.job.draw, info.cause) == (SAMPLES, 10, "")
    assert info.state is JobState.FINISHED
    assert record.variability is not None
    hands.show_view("variability")
    return job_id


def prove_with_fsdp(hands: Hands, first: str) -> str:
    """Choose the first run in the Jobs table, and have it compared with FSDP out of the palette."""
    window = hands.window
    hands.key(Qt.Key.Key_4, CONTROL)
    assert QApplication.focusWidget() is window.jobs.table
    hands.key(Qt.Key.Key_Down)
    assert window.runs.selected_id == first
    hands.key(Qt.Key.Key_K, CONTROL)
    hands.qtbot.waitUntil(lambda: QApplication.focusWidget() is window.palette_dialog.field)
    hands.write("compare with fsdp")
    hands.key(Qt.Key.Key_Return)
    options = window.form.draft.options
    assert isinstance(options, Options)
    assert (options.method, options.sharding, options.ranks) == (Method.COMPLETE, Sharding.FSDP, 2)
    hands.qtbot.waitUntil(window.isActiveWindow)
    job_id = hands.run()
    info = window.runs.info(job_id)
    assert info is not None
    assert isinstance(info.job, VerifyJob)
    assert (info.job.method, info.job.sharding, info.job.ranks) == (Method.COMPLETE, Sharding.FSDP, 2)
    assert (info.verdict, info.cause) == (Verdict.VERIFIED, "")
    assert window.runs.compared == (first, job_id)
    hands.show_view("compare")
    (facts, *_) = shown_data(window)["compare"]
    assert "rows" in facts
    assert "fsdp" in facts
    assert sorted(window.runs.record(first).memory) == sorted(window.runs.record(job_id).memory) == [0, 1]
    return job_id


def arrange(hands: Hands) -> None:
    """Put things elsewhere than they were, pick a layer, and leave another view in front."""
    window = hands.window
    window.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, window.jobs)
    window.library.hide()
    window.resize(1180, 760)
    hands.show_view("layers")
    table = view_named(window, "layers").findChild(QTableView)
    hands.tab_to(table)
    hands.key(Qt.Key.Key_Down)
    assert window.tabs.layer_selection.layer
    hands.show_view("compare_memory")


def test_drop_prove_measure_compare_export_close_and_open_again(
    qtbot: QtBot, own_home: Path, open_on: Opens, tmp_path: Path
) -> None:
    window = open_on(own_home, settings_store.load()[0])
    hands = Hands(qtbot, window)
    assert window.runs.ids == ()
    prop = wider("digits-robust", "1.45", tmp_path / "wider.vnnlib")
    drop(window, [DIGITS, prop])
    assert (window.form.draft.network, window.form.draft.property_source) == (DIGITS, prop)
    qtbot.waitUntil(lambda: "64 inputs" in window.form.read_back.words)

    proof = prove_on_two_ranks(hands)
    noise = measure_noise(hands)
    sharded = prove_with_fsdp(hands, proof)
    assert set(window.runs.ids) == {proof, noise, sharded}

    first = files_of(hands.export_all(tmp_path / "first"))
    views = shown_data(window)
    assert {
        "verdict",
        "compare",
        "compare_memory",
        "compare_bound_gap",
        "layers",
        "graph",
        "log",
    } <= views.keys()
    assert_whole(first, views)
    line = from_the_command_line(sharded, own_home, tmp_path / "line")
    assert {"bound_gap.csv", "memory.csv", "layers.csv", "search.csv", "margins.csv"} <= line.keys()
    assert {name: first[name] for name in line} == line

    arrange(hands)
    kept = Kept.of(window)
    assert kept.jobs[0][1:] != kept.jobs[1][1:]
    close(window)
    assert files_of(next((tmp_path / "first").iterdir())) == first

    settings, note = settings_store.load()
    assert note == ""
    again = open_on(own_home, settings)
    for job_id in (proof, sharded):
        wait_ended(qtbot, again, job_id)
    assert again.messages.texts == ()
    assert Kept.of(again) == kept
    hands = Hands(qtbot, again)
    assert files_of(hands.export_all(tmp_path / "second")).keys() == first.keys()
    assert from_the_command_line(sharded, own_home, tmp_path / "line_again") == line

    again.runs.select(noise)
    again.runs.compare(())
    wait_ended(qtbot, again, noise)
    measured = files_of(hands.export_all(tmp_path / "noise"))
    line = from_the_command_line(noise, own_home, tmp_path / "noise_line")
    assert {name: measured[name] for name in line} == line
    assert_whole(measured, shown_data(again))
    assert len(measured["noise.csv"].splitlines()) > 3
