"""Tells that a run has ended while the window is not in front."""

from __future__ import annotations

from PySide6.QtCore import QObject
from PySide6.QtGui import QIcon
from PySide6.QtWidgets import QApplication, QSystemTrayIcon, QWidget

from boundscope.protocol import JobInfo
from boundscope_app.format import STATE_WORDS, outcome_word

SHOWN_MS = 10_000


def outcome(info: JobInfo) -> str:
    """The end of a run in a few words: the verdict, or how else it ended."""
    if word := outcome_word(info):
        return word
    return f"{STATE_WORDS[info.state]}: {info.cause}" if info.cause else STATE_WORDS[info.state]


class Notifier(QObject):
    """Uses the system tray where there is one; else the window's entry in the taskbar asks for attention."""

    def __init__(self, window: QWidget, icon: QIcon) -> None:
        super().__init__(window)
        self._window = window
        self.told: list[str] = []
        self._tray: QSystemTrayIcon | None = None
        if QSystemTrayIcon.isSystemTrayAvailable() and QSystemTrayIcon.supportsMessages():
            self._tray = QSystemTrayIcon(icon, self)
            self._tray.setToolTip("Boundscope")
            self._tray.messageClicked.connect(self._raise)

    def job_ended(self, info: JobInfo) -> None:
        """Notify, unless the window is in front."""
        if self._window.isActiveWindow() and not self._window.isMinimized():
            return
        self.told.append(info.id)
        if self._tray is not None:
            self._tray.show()
            title = f"Boundscope: {outcome(info)}"
            self._tray.showMessage(title, info.title, QSystemTrayIcon.MessageIcon.Information, SHOWN_MS)
        QApplication.alert(self._window)

    def _raise(self) -> None:
        self._window.showNormal()
        self._window.raise_()
        self._window.activateWindow()
