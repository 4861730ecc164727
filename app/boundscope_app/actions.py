"""Every action of the window, one row each: menus, toolbar, palette, shortcuts and help read this table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from PySide6.QtGui import QAction, QActionGroup, QKeySequence
from PySide6.QtWidgets import QWidget

MENUS = ("File", "Edit", "Run", "View", "Help")


@dataclass(frozen=True)
class Action:
    """`text` carries no mnemonic; `group` makes the rows of one name exclusive and checkable."""

    id: str
    menu: str
    text: str
    tip: str
    shortcut: str = ""
    icon: str = ""
    toolbar: bool = False
    group: str = ""
    separator_before: bool = False


ACTIONS: tuple[Action, ...] = (
    Action(
        "file.open",
        "File",
        "Open…",
        "Choose networks, properties or inputs to work with",
        "Ctrl+O",
        "open",
        toolbar=True,
    ),
    Action(
        "file.open_folder",
        "File",
        "Open folder…",
        "Add all that a folder holds to the library",
        "Ctrl+Shift+O",
    ),
    Action(
        "file.export_all",
        "File",
        "Export all…",
        "Write every plot and table of the selected run into a folder",
        "Ctrl+E",
        "export",
        toolbar=True,
        separator_before=True,
    ),
    Action(
        "file.copy_command",
        "File",
        "Copy as command line",
        "Copy the shell line that does what the form says",
        "Ctrl+Shift+C",
    ),
    Action(
        "file.connect",
        "File",
        "Connect to…",
        "Choose the host whose daemon runs the jobs, or write down another",
        "Ctrl+Shift+H",
        separator_before=True,
    ),
    Action(
        "file.quit",
        "File",
        "Quit",
        "Close the window; running jobs go on and are here at the next start",
        "Ctrl+Q",
        separator_before=True,
    ),
    Action(
        "edit.undo", "Edit", "Undo change of the form", "Take back the last change in the run form", "Ctrl+Z"
    ),
    Action(
        "edit.redo",
        "Edit",
        "Redo change of the form",
        "Make the change in the run form again that was taken back",
        "Ctrl+Shift+Z",
    ),
    Action("run.start", "Run", "Run", "Run what the form says", "Ctrl+R", "run", toolbar=True),
    Action(
        "run.cancel",
        "Run",
        "Cancel run",
        "Ask the selected run to stop; once more kills it",
        "Esc",
        "stop",
        toolbar=True,
    ),
    Action(
        "run.pause",
        "Run",
        "Pause run",
        "Have the selected run stand still without losing anything, or let it go on",
        "Ctrl+P",
        "pause",
        toolbar=True,
    ),
    Action(
        "run.resume",
        "Run",
        "Resume search",
        "Go on, in a new run, with the complete search that the selected run left unfinished",
        "Ctrl+G",
    ),
    Action(
        "run.again",
        "Run",
        "Use again…",
        "Fill the form from the selected run",
        "Ctrl+Shift+R",
        separator_before=True,
    ),
    Action(
        "run.compare",
        "Run",
        "Compare runs",
        "Put the two to eight runs whose boxes in the Jobs table are ticked side by side",
        "Ctrl+D",
        separator_before=True,
    ),
    Action(
        "run.compare_fsdp",
        "Run",
        "Compare with FSDP…",
        "Fill the form with the selected run's job, but its weights sharded, and compare the two once it runs",
    ),
    Action("run.compare_end", "Run", "End comparison", "Show the selected run alone again", "Ctrl+Shift+D"),
    Action("run.delete", "Run", "Delete run…", "Forget the selected run and its history", "Ctrl+Del"),
    Action("view.next", "View", "Next view", "Show the next view of the selected run", "Ctrl+PgDown"),
    Action("view.previous", "View", "Previous view", "Show the view before", "Ctrl+PgUp"),
    Action(
        "go.library",
        "View",
        "Library",
        "Show the library and go to it",
        "Ctrl+1",
        separator_before=True,
    ),
    Action("go.views", "View", "Views", "Go to the views of the selected run", "Ctrl+2"),
    Action("go.form", "View", "Run form", "Show the run form and go to it", "Ctrl+3"),
    Action("go.jobs", "View", "Jobs", "Show the jobs table and go to it", "Ctrl+4"),
    Action(
        "theme.light", "View", "Light", "Dark text on a light ground", group="theme", separator_before=True
    ),
    Action("theme.dark", "View", "Dark", "Light text on a dark ground", group="theme"),
    Action("theme.system", "View", "As the system", "Light or dark as the desktop says", group="theme"),
    Action(
        "view.reset_layout",
        "View",
        "Reset layout",
        "Put all docks back where they were at first",
        separator_before=True,
    ),
    Action("help.help", "Help", "Help", "What is where, all shortcuts, and how to read the views", "F1"),
    Action(
        "help.palette",
        "Help",
        "All actions…",
        "Find any action by typing a part of its name",
        "Ctrl+K",
        "search",
        toolbar=True,
    ),
    Action("help.about", "Help", "About Boundscope", "Version and where the daemon keeps its jobs"),
)


class ActionSet:
    """The rows as QActions, made once; handlers are given by id and must be there for every row."""

    def __init__(self, owner: QWidget, handlers: Mapping[str, Callable[[], object]]) -> None:
        missing = {row.id for row in ACTIONS} - handlers.keys()
        if missing:
            raise ValueError(f"actions without a handler: {', '.join(sorted(missing))}")
        self.by_id: dict[str, QAction] = {}
        groups: dict[str, QActionGroup] = {}
        for row in ACTIONS:
            action = QAction(row.text, owner)
            action.setObjectName(row.id)
            action.setToolTip(f"{row.tip} ({_native(row.shortcut)})" if row.shortcut else row.tip)
            action.setStatusTip(row.tip)
            if row.shortcut:
                action.setShortcut(QKeySequence(row.shortcut))
            if row.group:
                group = groups.setdefault(row.group, QActionGroup(owner))
                action.setCheckable(True)
                group.addAction(action)
            handler = handlers[row.id]
            action.triggered.connect(lambda _checked=False, handler=handler: handler())
            owner.addAction(action)
            self.by_id[row.id] = action

    def __getitem__(self, action_id: str) -> QAction:
        return self.by_id[action_id]


def _native(shortcut: str) -> str:
    return QKeySequence(shortcut).toString(QKeySequence.SequenceFormat.NativeText)
