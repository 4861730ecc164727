"""The main window: docks around the views, the action table at work, and what is kept between two starts."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QCloseEvent, QGuiApplication, QShowEvent
from PySide6.QtWidgets import (
    QApplication,
    QMainWindow,
    QStackedWidget,
    QToolBar,
    QVBoxLayout,
    QWidget,
)

import boundscope
from boundscope.client import RemoteHost
from boundscope.comparison import LEAST_RUNS
from boundscope.protocol import JobInfo, Sharding, VerifyJob
from boundscope_app import examples as example_store
from boundscope_app import icons
from boundscope_app import settings as settings_store
from boundscope_app import theme as themes
from boundscope_app.actions import ACTIONS, MENUS, ActionSet
from boundscope_app.collecting import Collector
from boundscope_app.commands import Commands, go_to
from boundscope_app.descriptions import describe
from boundscope_app.docks.form import FormDock
from boundscope_app.docks.jobs import JobsDock
from boundscope_app.docks.library import LibraryDock
from boundscope_app.draft_store import DraftKeeper
from boundscope_app.examples import Example
from boundscope_app.form_history import FormHistory
from boundscope_app.help import HelpDialog
from boundscope_app.link import Link
from boundscope_app.link_types import LinkState, Phase, Upload
from boundscope_app.notify import Notifier, outcome
from boundscope_app.opening import Opener
from boundscope_app.runs import RunModel
from boundscope_app.session import Session
from boundscope_app.settings import Settings, ThemeChoice
from boundscope_app.steps import steps_of
from boundscope_app.text_keys import TextKeys
from boundscope_app.view_tabs import ViewTabs
from boundscope_app.widgets.command_palette import CommandPalette
from boundscope_app.widgets.drop_overlay import DropTarget
from boundscope_app.widgets.message_bar import MessageBar
from boundscope_app.widgets.pill import ConnectionPill
from boundscope_app.widgets.remote_dialog import RemoteDialog
from boundscope_app.widgets.welcome import Welcome
from boundscope_app.widgets.work_strip import WorkStrip

FRAMES_PER_S = 30
START_SIZE_PX = (1280, 800)
LIBRARY_WIDTH_PX, FORM_WIDTH_PX, JOBS_HEIGHT_PX = 250, 400, 190
LAYOUT_VERSION = 1
LEFT = "The form is as it was left, with what was not run yet."
LEFT_BEHIND = "What was entered before, and not run, makes room for the files that were opened."
JOB_ACTIONS = (
    "run.compare",
    "run.compare_fsdp",
    "run.pause",
    "run.cancel",
    "run.resume",
    "run.again",
    "file.export_all",
    "run.delete",
)


class MainWindow(QMainWindow):
    """Shows first, connects afterwards: `begin` starts the network thread. Closing leaves all runs going."""

    def __init__(
        self, link: Link, settings: Settings, note: str = "", theme: ThemeChoice | None = None
    ) -> None:
        super().__init__()
        self.setObjectName("boundscope")
        self.setWindowTitle("Boundscope")
        self.settings = settings
        self.collector = Collector(self)
        self.collector.begin()
        self._theme_choice: ThemeChoice = theme or settings.theme
        self._run_when_ready = False
        self._held = False
        self.compare_next_with = ""  # the run that the next one is compared with as soon as it is accepted
        self._closed = False
        found, problems = example_store.examples()
        self._examples: tuple[Example, ...] = found
        self.link = link
        self.runs = RunModel(self)
        self.session = Session(link, self.runs, self)
        self.messages = MessageBar()
        self.tabs = ViewTabs(self.runs)
        self.welcome = Welcome(found)
        self.library = LibraryDock(found, self)
        self.form = FormDock(self)
        self.history = FormHistory(self.form, self)
        self.drafts = DraftKeeper(self.form, self)
        self.jobs = JobsDock(self.runs, self)
        self.pill = ConnectionPill()
        self.work = WorkStrip()
        self._upload_begin: tuple[str, float, int] = (
            "",
            0.0,
            0,
        )  # name, when first heard of, and at which byte
        self.opener = Opener(self.library, self.form, settings, self)
        self.commands = Commands(self)
        self._lay_out()
        self.actions_by_id = ActionSet(self, self._handlers())
        self._make_menus()
        self.palette_dialog = CommandPalette(list(self.actions_by_id.by_id.values()), self)
        self.help_dialog = HelpDialog(self)
        self.remote_dialog = RemoteDialog(settings.hosts, self)
        self.notifier = Notifier(self, icons.application_icon())
        self._connect()
        self._text_keys = TextKeys(self, self.actions_by_id.by_id.values())
        describe(self)
        self._default_layout = self.saveState(LAYOUT_VERSION)
        self._restore()
        self._timer = QTimer(self)
        self._timer.setInterval(1000 // FRAMES_PER_S)
        self._timer.timeout.connect(self._tick)
        self._next_second = 0.0
        self._update_actions()
        for text in (note, *problems):
            if text:
                self.tell("warning", text)

    # ------------------------------------------------------------ building

    def _lay_out(self) -> None:
        self.setDockNestingEnabled(True)
        self.setCorner(Qt.Corner.BottomRightCorner, Qt.DockWidgetArea.RightDockWidgetArea)
        self.setCorner(Qt.Corner.TopRightCorner, Qt.DockWidgetArea.RightDockWidgetArea)
        self._stack = QStackedWidget()
        self._stack.addWidget(self.welcome)
        self._stack.addWidget(self.tabs)
        center = QWidget()
        column = QVBoxLayout(center)
        column.setContentsMargins(6, 6, 6, 6)
        column.setSpacing(6)
        column.addWidget(self.messages)
        column.addWidget(self._stack, 1)
        self.setCentralWidget(center)
        self.addDockWidget(Qt.DockWidgetArea.LeftDockWidgetArea, self.library)
        self.addDockWidget(Qt.DockWidgetArea.RightDockWidgetArea, self.form)
        self.addDockWidget(Qt.DockWidgetArea.BottomDockWidgetArea, self.jobs)
        self.resize(*START_SIZE_PX)
        sides, horizontal = [self.library, self.form], Qt.Orientation.Horizontal
        self.resizeDocks(sides, [LIBRARY_WIDTH_PX, FORM_WIDTH_PX], horizontal)
        self.resizeDocks([self.jobs], [JOBS_HEIGHT_PX], Qt.Orientation.Vertical)
        self.statusBar().addPermanentWidget(self.work)
        self.statusBar().addPermanentWidget(self.pill)
        self.statusBar().setSizeGripEnabled(False)
        self.statusBar().setContentsMargins(4, 0, 8, 2)
        self.drops = [DropTarget(widget) for widget in (self, self.library, self.form, self.jobs)]
        for target in self.drops:
            target.claim_children()

    def _make_menus(self) -> None:
        bar = QToolBar("Main", self)
        bar.setObjectName("toolbar")
        bar.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        bar.setMovable(False)
        bar.setContextMenuPolicy(Qt.ContextMenuPolicy.PreventContextMenu)
        self.addToolBar(bar)
        menus = {name: self.menuBar().addMenu(f"&{name}") for name in MENUS}
        for row in ACTIONS:
            action = self.actions_by_id[row.id]
            if row.separator_before:
                menus[row.menu].addSeparator()
            menus[row.menu].addAction(action)
            if row.toolbar:
                bar.addAction(action)
        for button in bar.findChildren(QWidget):
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        for view in self.tabs.compare_views:
            view.end_button.setDefaultAction(self.actions_by_id["run.compare_end"])
        self.jobs.set_actions([self.actions_by_id[name] for name in JOB_ACTIONS])

    def _handlers(self) -> dict[str, Callable[[], object]]:
        return {
            "file.open": self.commands.open,
            "file.open_folder": self.commands.open_folder,
            "file.export_all": self.commands.export_all,
            "file.copy_command": self.commands.copy_command,
            "file.connect": self._show_hosts,
            "file.quit": self.close,
            "edit.undo": self.history.undo,
            "edit.redo": self.history.redo,
            "run.start": self.run,
            "run.cancel": lambda: self.session.cancel(self.runs.selected_id),
            "run.pause": lambda: self.session.pause(self.runs.selected_id),
            "run.resume": lambda: self.session.resume(self.runs.selected_id),
            "run.again": self.commands.use_again,
            "run.compare": self.commands.compare,
            "run.compare_fsdp": self.commands.compare_with_fsdp,
            "run.compare_end": lambda: self.runs.compare(()),
            "run.delete": self.commands.ask_delete,
            "view.next": lambda: self.tabs.step(1),
            "view.previous": lambda: self.tabs.step(-1),
            "go.library": lambda: go_to(self.library, self.library.tree),
            "go.views": lambda: self.tabs.setFocus(Qt.FocusReason.ShortcutFocusReason),
            "go.form": lambda: go_to(self.form, self.form.network),
            "go.jobs": lambda: go_to(self.jobs, self.jobs.table),
            "theme.light": lambda: self.set_theme("light"),
            "theme.dark": lambda: self.set_theme("dark"),
            "theme.system": lambda: self.set_theme("system"),
            "view.reset_layout": self.reset_layout,
            "help.help": self._show_help,
            "help.palette": lambda: self.palette_dialog.open_over(self),
            "help.about": self._about,
        }

    def _connect(self) -> None:
        for target in self.drops:
            target.dropped.connect(self.opener.open_paths)
            target.refused.connect(lambda text: self.tell("warning", text))
        self.opener.told.connect(self.tell)
        self.opener.opened.connect(self._show_center)
        self.opener.opened.connect(self._keep)
        self.welcome.example_chosen.connect(self.opener.use_example)
        self.welcome.open_chosen.connect(self.commands.open)
        self.welcome.run_chosen.connect(self.run)
        self.form.inspect_wanted.connect(lambda: self.session.inspect(self.form.inspect_draft))
        self.form.run_button.clicked.connect(self.run)
        self.form.copy_button.clicked.connect(self.commands.copy_command)
        self.form.changed.connect(self._update_actions)
        self.form.changed.connect(self._show_center)
        self.history.changed.connect(self._update_actions)
        self.jobs.chosen.connect(self.runs.select)
        self.runs.selected.connect(self._run_selected)
        self.runs.listed.connect(self._show_center)
        self.runs.changed.connect(self._update_actions)
        self.runs.comparing.connect(self._comparing)
        self.jobs.picked_changed.connect(self._update_actions)
        self.jobs.compare_wanted.connect(self.commands.compare)
        self.session.told.connect(self.tell)
        self.drafts.told.connect(self.tell)
        self.session.taken_back.connect(self.messages.take_back)
        self.session.run_refused.connect(self._run_refused)
        self.session.run_accepted.connect(self._run_accepted)
        self.session.job_ended.connect(self._job_ended)
        self.session.inspected.connect(self.form.show_inspection)
        self.session.reading.connect(self.form.read_back.show_progress)
        self.session.job_ended.connect(self.form.ask_estimate)
        self.form.set_history(lambda: filter(None, map(self.runs.info, self.runs.ids)))
        self.session.connected.connect(self.form.inspect_again)
        self.link.state_changed.connect(self._link_changed)
        self.link.state_changed.connect(self.remote_dialog.take_state)
        self.remote_dialog.connect_wanted.connect(self.connect_to)
        self.remote_dialog.hosts_changed.connect(self._hosts_changed)
        self.pill.clicked.connect(self._show_hosts)
        self.link.uploading.connect(self._uploading)
        QGuiApplication.styleHints().colorSchemeChanged.connect(self._system_theme_changed)
        themes.notifier.changed.connect(self._redraw_icons)
        self._redraw_icons()

    # ------------------------------------------------------------ start and end

    def begin(self, paths: tuple[Path, ...] = (), run: bool = False) -> None:
        """Start the network thread and the drawing timer; open what the command line named."""
        self._timer.start()
        self._bring_back_draft(bool(paths))
        self.link.start()
        if paths:
            self.opener.open_paths(paths)
        if run:
            self.run()

    def _bring_back_draft(self, others_follow: bool) -> None:
        """The form as it was left with what was not run; beneath what the command line asks for, undo finds it."""
        kept, note = self.drafts.begin()
        if note:
            self.tell("warning", note)
        if kept is None:
            return
        self.drafts.restore(kept)
        self.history.pause()
        if others_follow:
            self.drafts.start_afresh()
            self.history.pause()
            self.tell("info", f"{LEFT_BEHIND} Undo (Ctrl+Z) brings it back.")
            return
        self.messages.show_message("info", LEFT, ("Start afresh", self.drafts.start_afresh))

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.form.network.line.setFocus(Qt.FocusReason.OtherFocusReason)

    def closeEvent(self, event: QCloseEvent) -> None:
        if not self._closed:
            self._closed = True
            self._timer.stop()
            self.commands.end_export()
            self.drafts.end()
            self._keep()
            self.hide()
            self.link.stop()
            self.collector.end()
        super().closeEvent(event)

    def _restore(self) -> None:
        kept = self.settings
        if kept.geometry:
            self.restoreGeometry(kept.geometry)
        if kept.layout:
            self.restoreState(kept.layout, LAYOUT_VERSION)
        if kept.view:
            self.tabs.show_view(kept.view)
        self.library.add([Path(text) for text in kept.library if Path(text).exists()])
        self.library.set_recent(kept.recent)
        self.session.want(kept.selected_job, kept.compared)
        self.tabs.layer_selection.remember(kept.selected_job, kept.selected_layer)
        self.actions_by_id[f"theme.{self._theme_choice}"].setChecked(True)
        self._show_center()

    def _keep(self) -> None:
        kept = self.settings
        kept.geometry = bytes(self.saveGeometry().data())
        kept.layout = bytes(self.saveState(LAYOUT_VERSION).data())
        kept.view = self.tabs.current_view_id
        if self.runs.selected_id:
            kept.selected_job = self.runs.selected_id
            kept.selected_layer = self.tabs.layer_selection.layer
        if self.session.listed:
            kept.compared = self.runs.compared
        kept.library = tuple(str(path) for path in self.library.paths())[: settings_store.LIBRARY_LIMIT]
        problem = settings_store.save(kept)
        if problem:
            self.tell("warning", problem)

    def reset_layout(self) -> None:
        """All docks back to where they were at first."""
        self.restoreState(self._default_layout, LAYOUT_VERSION)
        for dock in (self.library, self.form, self.jobs):
            dock.setFloating(False)
            dock.show()

    # ------------------------------------------------------------ messages and state

    def tell(self, kind: str, text: str) -> None:
        """Say something in the window's own message bar."""
        self.messages.show_message(kind, text)  # type: ignore[arg-type]

    def _tick(self) -> None:
        self.tabs.tick()
        now = time.monotonic()
        if now >= self._next_second:
            self._next_second = now + 1.0
            self.jobs.tick()

    def _link_changed(self, state: LinkState) -> None:
        self.pill.show_state(state)
        if state.phase is Phase.CONNECTED:
            self.statusBar().clearMessage()

    def _uploading(self, upload: Upload) -> None:
        """A file on its way; the time to go is reckoned from what has gone since it was first heard of."""
        name, now_s = f"Sending {upload.name} to the daemon", time.monotonic()
        if upload.done_bytes >= upload.total_bytes:
            self.work.end_work(name)
            self._upload_begin = ("", 0.0, 0)
            return
        if self._upload_begin[0] != name:
            self._upload_begin = (name, now_s, upload.done_bytes)
        _, begin_s, begin_bytes = self._upload_begin
        went = upload.done_bytes - begin_bytes
        eta_s = (now_s - begin_s) / went * (upload.total_bytes - upload.done_bytes) if went else None
        percent = 100 * upload.done_bytes // max(1, upload.total_bytes)
        self.work.show_work(name, f"{percent} %", upload.done_bytes, upload.total_bytes, eta_s)

    def _show_center(self) -> None:
        if self.runs.selected_info is not None or self.runs.compared:
            self._stack.setCurrentWidget(self.tabs)
            return
        self._stack.setCurrentWidget(self.welcome)
        self.welcome.show_steps(steps_of(self.form.draft), runs=bool(self.runs.ids))

    def _update_actions(self) -> None:
        info = self.runs.selected_info
        self.actions_by_id["run.cancel"].setEnabled(info is not None and not info.state.ended)
        self._show_pause(info)
        self.actions_by_id["run.resume"].setEnabled(info is not None and info.resumable)
        for name in ("run.again", "run.delete", "file.export_all"):
            self.actions_by_id[name].setEnabled(info is not None)
        self.actions_by_id["run.compare"].setEnabled(len(self.runs.ids) >= LEAST_RUNS)
        self.actions_by_id["run.compare_end"].setEnabled(bool(self.runs.compared))
        job = None if info is None else info.job
        sharded = isinstance(job, VerifyJob) and job.sharding is not Sharding.FSDP
        self.actions_by_id["run.compare_fsdp"].setEnabled(sharded)
        self.actions_by_id["file.copy_command"].setEnabled(self.form.draft.complete)
        self.actions_by_id["edit.undo"].setEnabled(self.history.can_undo)
        self.actions_by_id["edit.redo"].setEnabled(self.history.can_redo)

    def _show_pause(self, info: JobInfo | None) -> None:
        """The one action that pauses and continues says which of both it would do."""
        action = self.actions_by_id["run.pause"]
        held = info is not None and info.state.held
        action.setEnabled(info is not None and info.state.can_hold)
        if held is not self._held:
            self._held = held
            action.setText("Continue run" if held else "Pause run")
            self._redraw_icons()

    def _run_selected(self, _job_id: str) -> None:
        info = self.runs.selected_info
        self.setWindowTitle(f"{info.title} — Boundscope" if info else "Boundscope")
        self._show_center()
        self._update_actions()

    def compare(self, job_ids: tuple[str, ...]) -> None:
        """Put these runs side by side and show where they differ."""
        self.runs.compare(job_ids)
        self.tabs.show_view("compare")

    def _comparing(self) -> None:
        self._show_center()
        self._update_actions()

    def _job_ended(self, info: JobInfo) -> None:
        self.notifier.job_ended(info)
        if info.id != self.runs.selected_id:
            self.tell("info", f"{info.title}: {outcome(info)}")
        self._update_actions()

    # ------------------------------------------------------------ actions

    def run(self) -> None:
        """Run what the form says, or say what is missing."""
        problem = self.form.problem
        if problem:
            self.tell("warning", problem)
            return
        self.form.set_busy(True)
        if self.session.state.phase is not Phase.CONNECTED:
            self.statusBar().showMessage("The run starts as soon as the daemon answers.")
        self.drafts.sending()
        self.session.run(self.form.draft)

    def _run_accepted(self) -> None:
        self.form.set_busy(False)
        self.drafts.sent()
        self.messages.take_back(LEFT)
        first, self.compare_next_with = self.compare_next_with, ""
        if first and first in self.runs.ids and first != self.runs.selected_id:
            self.compare((first, self.runs.selected_id))
        self._keep()

    def _run_refused(self, reason: str) -> None:
        self.form.set_busy(False)
        self.tell("error", reason)

    def set_theme(self, choice: ThemeChoice) -> None:
        """Light, dark, or as the desktop says; kept for the next start."""
        self._theme_choice = self.settings.theme = choice
        self.actions_by_id[f"theme.{choice}"].setChecked(True)
        apply_theme(choice)
        self._keep()

    def _system_theme_changed(self) -> None:
        if self._theme_choice == "system":
            apply_theme("system")

    def _redraw_icons(self) -> None:
        for row in ACTIONS:
            if row.icon:
                name = "continue" if row.id == "run.pause" and self._held else row.icon
                self.actions_by_id[row.id].setIcon(icons.icon(name, themes.current()))

    def _show_hosts(self) -> None:
        self.remote_dialog.choose(self.link.host)
        self.remote_dialog.show()
        self.remote_dialog.raise_()
        self.remote_dialog.list.setFocus(Qt.FocusReason.OtherFocusReason)

    def _hosts_changed(self, hosts: tuple[RemoteHost, ...]) -> None:
        self.settings.hosts = hosts
        self._keep()

    def connect_to(self, host: RemoteHost | None) -> None:
        """Work with the daemon of this host from now on; None: of this computer."""
        self.settings.host = "" if host is None else host.name
        self._keep()
        self.form.set_busy(False)
        self.session.switch(host)

    def _show_help(self) -> None:
        self.help_dialog.show()
        self.help_dialog.raise_()
        self.help_dialog.page.setFocus()

    def _about(self) -> None:
        where = self.session.state.host or "this computer"
        self.tell("info", f"Boundscope {boundscope.__version__}. The daemon that runs jobs is on {where}.")


def apply_theme(choice: ThemeChoice) -> None:
    """Set the palette of the running application."""
    app = QApplication.instance()
    assert isinstance(app, QApplication)
    dark = choice == "dark" or (
        choice == "system" and QGuiApplication.styleHints().colorScheme() is Qt.ColorScheme.Dark
    )
    themes.apply(app, themes.DARK if dark else themes.LIGHT)
