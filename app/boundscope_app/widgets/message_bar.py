"""Messages in the window itself, above the centre: nothing to dismiss before work goes on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from PySide6.QtCore import Qt, QTimer, Signal
from PySide6.QtWidgets import QFrame, QHBoxLayout, QLabel, QPushButton, QToolButton, QVBoxLayout, QWidget

from boundscope_app import theme as themes

Kind = Literal["info", "success", "warning", "error"]
WORDS: dict[Kind, str] = {"info": "Note", "success": "Done", "warning": "Attention", "error": "Problem"}
INFO_SHOWN_MS = 8000
MOST_MESSAGES = 3
Choice = tuple[str, Callable[[], object]]


class Message(QFrame):
    """One message with its choices; `closed` when it should go."""

    closed = Signal()

    def __init__(self, kind: Kind, text: str, choices: tuple[Choice, ...], parent: QWidget) -> None:
        super().__init__(parent)
        self.kind: Kind = kind
        self.text = text
        self.setObjectName(f"message-{kind}")
        self.setProperty("kind", kind)
        self.setAccessibleName(f"{WORDS[kind]}: {text}")
        self._restyle()
        themes.notifier.changed.connect(self._restyle)
        row = QHBoxLayout(self)
        row.setContentsMargins(10, 6, 6, 6)
        row.setSpacing(8)
        label = QLabel(f"<b>{WORDS[kind]}</b>&nbsp; {_escaped(text)}", self)
        label.setTextFormat(Qt.TextFormat.RichText)
        label.setWordWrap(True)
        label.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        label.setAccessibleName(self.accessibleName())
        row.addWidget(label, 1)
        self.buttons: list[QPushButton] = []
        for title, handler in choices:
            button = QPushButton(title, self)
            button.setAccessibleName(title)
            button.clicked.connect(lambda _checked=False, handler=handler: self._choose(handler))
            row.addWidget(button)
            self.buttons.append(button)
        close = QToolButton(self)
        close.setText("×")
        close.setAutoRaise(True)
        close.setToolTip("Close this message")
        close.setAccessibleName("Close this message")
        close.clicked.connect(self.closed)
        row.addWidget(close, 0, Qt.AlignmentFlag.AlignTop)
        if kind in ("info", "success") and not choices:
            timer = QTimer(self)
            timer.setSingleShot(True)
            timer.timeout.connect(self.closed)
            timer.start(INFO_SHOWN_MS)

    def _restyle(self) -> None:
        theme = themes.current()
        color, fill = {
            "info": (theme.neutral, theme.neutral_fill),
            "success": (theme.good, theme.good_fill),
            "warning": (theme.warn, theme.warn_fill),
            "error": (theme.bad, theme.bad_fill),
        }[self.kind]
        self.setStyleSheet(
            f"#{self.objectName()} {{ background: {fill}; border: 1px solid {color}; border-radius: 4px; }}"
        )

    def _choose(self, handler: Callable[[], object]) -> None:
        self.closed.emit()
        handler()


class MessageBar(QWidget):
    """The newest messages, at most three; the same text is not shown twice."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("message-bar")
        self.setAccessibleName("Messages")
        self._column = QVBoxLayout(self)
        self._column.setContentsMargins(0, 0, 0, 0)
        self._column.setSpacing(2)
        self._messages: list[Message] = []
        self.hide()

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(message.text for message in self._messages)

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(self._messages)

    def show_message(self, kind: Kind, text: str, *choices: Choice) -> None:
        """Show a message; choices are button titles with what they do."""
        self.take_back(text)
        message = Message(kind, text, choices, self)
        message.closed.connect(lambda: self._drop(message))
        self._messages.append(message)
        self._column.addWidget(message)
        for oldest in self._messages[:-MOST_MESSAGES]:
            self._drop(oldest)
        self.show()

    def take_back(self, text: str) -> None:
        """Remove the message with this text, where it is still shown."""
        for message in [message for message in self._messages if message.text == text]:
            self._drop(message)

    def clear(self) -> None:
        for message in self.messages:
            self._drop(message)

    def _drop(self, message: Message) -> None:
        if message in self._messages:
            self._messages.remove(message)
            self._column.removeWidget(message)
            message.hide()
            message.deleteLater()
        self.setVisible(bool(self._messages))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("\n", "<br>")
