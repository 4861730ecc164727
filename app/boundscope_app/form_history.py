"""Undo and redo of what is changed in the run form, whatever field it was changed in."""

from __future__ import annotations

import time

from PySide6.QtCore import QObject, Signal

from boundscope_app.benchmark_draft import BenchmarkDraft
from boundscope_app.docks.form import FormDock
from boundscope_app.draft import Draft
from boundscope_app.noise_draft import NoiseDraft

AnyDraft = Draft | NoiseDraft | BenchmarkDraft
TOGETHER_S = 0.8  # changes that follow each other faster are undone as one: typing, or a spin box held down
MOST_STEPS = 200


class FormHistory(QObject):
    """Watches the form and keeps the drafts that it held. Fields of text undo their own letters while they have the
    focus.

    Drafts are values, so a plain list does; `changed` after every step. (QUndoStack would own Python objects from C++.)
    """

    changed = Signal()

    def __init__(self, form: FormDock, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._form = form
        self._putting = False
        self._drafts: list[AnyDraft] = [form.draft]
        self._place = 0
        self._changed_s = -TOGETHER_S
        form.changed.connect(self._take)

    @property
    def can_undo(self) -> bool:
        return self._place > 0

    @property
    def can_redo(self) -> bool:
        return self._place < len(self._drafts) - 1

    def undo(self) -> None:
        """Back to the draft before, where there is one."""
        if self.can_undo:
            self._put(self._place - 1)

    def redo(self) -> None:
        """Forth again."""
        if self.can_redo:
            self._put(self._place + 1)

    def pause(self) -> None:
        """What is changed next is a step of its own, however soon it comes."""
        self._changed_s = -TOGETHER_S

    def _put(self, place: int) -> None:
        self._putting = True
        try:
            self._form.set_draft(self._drafts[place])
        finally:
            self._putting = False
        self._place = place
        self._drafts[place] = (
            self._form.draft
        )  # as the form holds it, so that the next change is told from it
        self._changed_s = -TOGETHER_S
        self.changed.emit()

    def _take(self) -> None:
        draft, now_s = self._form.draft, time.monotonic()
        now = self._drafts[self._place]
        if self._putting or draft == now:
            return
        del self._drafts[self._place + 1 :]
        together = now_s - self._changed_s <= TOGETHER_S and self._place > 0 and type(draft) is type(now)
        if together:
            self._drafts[self._place] = draft
        else:
            self._drafts.append(draft)
            del self._drafts[: max(0, len(self._drafts) - MOST_STEPS - 1)]
            self._place = len(self._drafts) - 1
        self._changed_s = now_s
        self.changed.emit()
