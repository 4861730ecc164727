"""Ctrl+K: find any action by typing a part of its name. Works by keyboard alone."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QEvent, QModelIndex, QObject, QPersistentModelIndex, QSize, Qt
from PySide6.QtGui import QAction, QKeyEvent, QKeySequence, QPainter, QPalette
from PySide6.QtWidgets import (
    QDialog,
    QLabel,
    QLineEdit,
    QListWidget,
    QListWidgetItem,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QVBoxLayout,
    QWidget,
)

WIDTH_PX = 520
ROW_HEIGHT_PX = 30
ROWS_SHOWN = 10
INDEX_ROLE = Qt.ItemDataRole.UserRole
SHORTCUT_ROLE = Qt.ItemDataRole.UserRole + 1
NAVIGATION = (Qt.Key.Key_Up, Qt.Key.Key_Down, Qt.Key.Key_PageUp, Qt.Key.Key_PageDown)


def score(query: str, text: str) -> float | None:
    """How well the letters of `query` appear in order in `text`: higher is better, None where they do not.

    A letter counts more at the start of a word and right after the one before.
    """
    letters = [letter for letter in query.casefold() if not letter.isspace()]
    lowered = text.casefold()
    total, position, previous = 0.0, 0, -2
    for letter in letters:
        starts = [
            index
            for index in range(position, len(lowered))
            if lowered[index] == letter and (index == 0 or not lowered[index - 1].isalnum())
        ]
        index = lowered.find(letter, position)
        if index < 0:
            return None
        if index != previous + 1 and starts:
            index = starts[0]
        total += 3.0 if index == previous + 1 else 2.0 if index in starts else 0.5
        previous, position = index, index + 1
    return total - len(text) * 0.01


class _ShortcutDelegate(QStyledItemDelegate):
    """Draws the shortcut at the right end of the row."""

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        super().paint(painter, option, index)
        selected = bool(option.state & QStyle.StateFlag.State_Selected)
        palette = option.palette
        role = QPalette.ColorRole.HighlightedText if selected else QPalette.ColorRole.PlaceholderText
        painter.save()
        painter.setPen(palette.color(role))
        rect = option.rect.adjusted(8, 0, -10, 0)
        align = Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter
        painter.drawText(rect, int(align), index.data(SHORTCUT_ROLE) or "")
        painter.restore()


class CommandPalette(QDialog):
    """A list of actions that narrows as one types; Enter runs, Esc closes."""

    def __init__(self, actions: Sequence[QAction], parent: QWidget) -> None:
        super().__init__(parent, Qt.WindowType.Popup | Qt.WindowType.FramelessWindowHint)
        self.setObjectName("command-palette")
        self.setAccessibleName("All actions")
        self._actions = tuple(actions)
        self.field = QLineEdit(self)
        self.field.setPlaceholderText("Type a part of an action’s name")
        self.field.setAccessibleName("Find an action")
        self.field.setClearButtonEnabled(True)
        self.list = QListWidget(self)
        self.list.setAccessibleName("Actions found")
        self.list.setItemDelegate(_ShortcutDelegate(self.list))
        self.list.setUniformItemSizes(True)
        self.list.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self._nothing = QLabel("No action has these letters in this order.", self)
        self._nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        column = QVBoxLayout(self)
        column.setContentsMargins(8, 8, 8, 8)
        column.setSpacing(6)
        column.addWidget(self.field)
        column.addWidget(self.list)
        column.addWidget(self._nothing)
        self.field.textChanged.connect(self.filter)
        self.field.installEventFilter(self)
        self.list.itemActivated.connect(self._run)
        self.filter("")

    def open_over(self, widget: QWidget) -> None:
        """Show near the top of a window, with the field ready for typing."""
        self.field.clear()
        self.filter("")
        self.resize(WIDTH_PX, self.sizeHint().height())
        top = widget.mapToGlobal(widget.rect().topLeft())
        self.move(top.x() + (widget.width() - WIDTH_PX) // 2, top.y() + 60)
        self.show()
        self.field.setFocus(Qt.FocusReason.PopupFocusReason)

    def filter(self, query: str) -> None:
        """Narrow the list to the actions that match, best first."""
        rated = [(score(query, _title(action)), index) for index, action in enumerate(self._actions)]
        order = sorted((-value, index) for value, index in rated if value is not None)
        if not query:
            order = [(0.0, index) for index in range(len(self._actions))]
        self.list.clear()
        for _, index in order:
            self._add_row(index)
        self.list.setCurrentRow(0)
        self.list.setVisible(bool(order))
        self._nothing.setVisible(not order)
        self.list.setFixedHeight(ROW_HEIGHT_PX * ROWS_SHOWN + 4)

    def _add_row(self, index: int) -> None:
        action = self._actions[index]
        shortcut = action.shortcut().toString(QKeySequence.SequenceFormat.NativeText)
        item = QListWidgetItem(_title(action), self.list)
        item.setData(INDEX_ROLE, index)
        item.setData(SHORTCUT_ROLE, shortcut)
        item.setData(Qt.ItemDataRole.AccessibleTextRole, f"{_title(action)} {shortcut}".strip())
        item.setToolTip(action.statusTip())
        item.setSizeHint(QSize(0, ROW_HEIGHT_PX))
        if not action.isEnabled():
            item.setFlags(item.flags() & ~Qt.ItemFlag.ItemIsEnabled)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if watched is self.field and isinstance(event, QKeyEvent) and event.type() == QEvent.Type.KeyPress:
            if event.key() in NAVIGATION:
                self.list.keyPressEvent(event)
                return True
            if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
                item = self.list.currentItem()
                if item is not None:
                    self._run(item)
                return True
        return super().eventFilter(watched, event)

    def _run(self, item: QListWidgetItem) -> None:
        action = self._actions[item.data(INDEX_ROLE)]
        if action.isEnabled():
            self.hide()
            action.trigger()


def _title(action: QAction) -> str:
    menu = action.property("menu")
    return f"{menu}: {action.text()}" if menu else action.text()
