"""What the views of several runs have in common: the runs, their names, colours and line styles, and the way back."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QLabel, QToolButton, QWidget

from boundscope import comparison
from boundscope.comparison import LETTERS, Run
from boundscope.protocol import JobInfo
from boundscope.records import JobRecord
from boundscope_app.selection import LayerSelection
from boundscope_app.theme import Theme
from boundscope_app.views.base import View

PENS = (
    Qt.PenStyle.SolidLine,
    Qt.PenStyle.DashLine,
    Qt.PenStyle.DotLine,
    Qt.PenStyle.DashDotLine,
    Qt.PenStyle.DashDotDotLine,
)


def run_style(theme: Theme, place: int) -> tuple[str, Qt.PenStyle]:
    """Colour and kind of line of the run at this place; no two runs have both in common."""
    return theme.series[place % len(theme.series)], PENS[place % len(PENS)]


class CompareView(View):
    """A view of two to eight runs. `runs` has the first, to which ratios are, in front.

    `replaces` is the id of the view of one run that this one stands for, "" where it has no like; `stands_before` is
    the id of the view whose tab is beside it.
    """

    bar_stays = True  # the way back is there
    replaces: ClassVar[str] = ""
    stands_before: ClassVar[str] = ""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.runs: tuple[Run, ...] = ()
        self.names: tuple[str, ...] = ()
        self.end_button = QToolButton()
        self.end_button.setText("End comparison")
        self.end_button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.notes = QLabel(wordWrap=True)
        self.notes.setProperty("role", "muted")
        self.notes.setContentsMargins(10, 0, 10, 6)
        self.notes.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
        self.notes.setContextMenuPolicy(Qt.ContextMenuPolicy.NoContextMenu)
        self.notes.setAccessibleName("What cannot be compared")

    def add_end_button(self) -> None:
        """Put the way back at the right end of the bar; once, after the view's own controls."""
        self.controls.addWidget(self.end_button)

    def set_runs(self, runs: tuple[Run, ...]) -> None:
        before = [run.record for run in self.runs]
        same = len(before) == len(runs) and all(a is run.record for a, run in zip(before, runs, strict=True))
        self.runs = runs
        self.names = comparison.run_names(runs) if runs else ()
        self.info, self.record = (runs[0].info, runs[0].record) if runs else (None, None)
        if not same:
            self.reset()
        self.mark_dirty()

    def set_run(self, info: JobInfo | None, record: JobRecord | None) -> None:
        """The selected run is for other views."""

    def suits(self, info: JobInfo | None) -> bool:
        return bool(self.runs)

    def waiting_text(self) -> str:
        return self.empty_text

    @property
    def heads(self) -> tuple[str, ...]:
        """The runs as legends and columns name them: "A rows, 2 ranks"."""
        return tuple(f"{LETTERS[place]}  {name}" for place, name in enumerate(self.names))

    @property
    def caption(self) -> str:
        titles = dict.fromkeys(run.info.title or run.info.id for run in self.runs)
        return f"{len(self.runs)} runs compared  ·  {'  ·  '.join(titles)}"

    def show_notes(self, texts: tuple[str, ...]) -> None:
        """Say these sentences above the data; nothing where there are none."""
        text = "\n".join(texts)
        if self.notes.text() != text:
            self.notes.setText(text)
        self.notes.setVisible(bool(text))


class CompareLayersView(CompareView):
    """A view of several runs in which a layer is picked, for all views."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.selection = LayerSelection(self)
        self.selection.changed.connect(self._show_selected)

    def set_selection(self, selection: LayerSelection) -> None:
        self.selection.changed.disconnect(self._show_selected)
        self.selection = selection
        selection.changed.connect(self._show_selected)

    @abstractmethod
    def _show_selected(self, *_: object) -> None:
        """Mark the layer that is picked."""

    def _redraw(self) -> None:
        """Draw again because a choice of the view changed."""
        self.mark_dirty()
        if self.isVisible():
            self.refresh()
