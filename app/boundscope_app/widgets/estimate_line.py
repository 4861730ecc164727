"""The line above Run that says what the run will need; it thinks in a thread of its own."""

from __future__ import annotations

from PySide6.QtCore import QObject, QRunnable, QThreadPool, QTimer, Signal
from PySide6.QtWidgets import QLabel, QWidget

from boundscope_app import theme as themes
from boundscope_app.estimate import Estimate, Question, answer

ASK_AFTER_MS = 120


class _Answers(QObject):
    """Carries answers from the pool's thread into the window's."""

    ready = Signal(object, object)


class _Ask(QRunnable):
    def __init__(self, question: Question, answers: _Answers) -> None:
        super().__init__()
        self._question, self._answers = question, answers

    def run(self) -> None:
        self._answers.ready.emit(self._question, answer(self._question))


class EstimateLine(QLabel):
    """Shows the estimate of the question asked last; older answers are dropped. `told` when it says something else."""

    told = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWordWrap(True)
        self.setAccessibleName("Estimate")
        self.estimate = Estimate()
        self._asked: Question | None = None
        # Before what its threads use: children go in this order, and it waits for them.
        self._pool = QThreadPool(self)
        self._pool.setMaxThreadCount(1)
        self._pool.setExpiryTimeout(0)
        self._answers = _Answers(self)
        self._answers.ready.connect(self._take)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(ASK_AFTER_MS)
        self._timer.timeout.connect(self._start)
        themes.notifier.changed.connect(self._restyle)
        self._show(Estimate())

    def ask(self, question: Question) -> None:
        """Have a question answered soon, unless another is asked before."""
        if question != self._asked:
            self._asked = question
            self._timer.start()

    @property
    def waiting(self) -> bool:
        """Whether an answer is still to come."""
        return self._timer.isActive() or self._pool.activeThreadCount() > 0

    def _start(self) -> None:
        if self._asked is not None:
            self._pool.clear()
            self._pool.start(_Ask(self._asked, self._answers))

    def _take(self, question: Question, estimate: Estimate) -> None:
        if question == self._asked:
            self._show(estimate)

    def _show(self, estimate: Estimate) -> None:
        changed = estimate != self.estimate
        self.estimate = estimate
        self.setText(estimate.text)
        self.setAccessibleDescription(estimate.text)
        self.setVisible(bool(estimate.text))
        self._restyle()
        if changed:
            self.told.emit()

    def _restyle(self) -> None:
        colours = themes.current()
        self.setStyleSheet(f"color: {colours.warn if self.estimate.warns else colours.muted}")
