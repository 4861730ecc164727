"""Which daemon the window works with: this computer's, or that of another host, reached through ssh."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from PySide6.QtCore import QSignalBlocker, Qt, QThread, Signal
from PySide6.QtWidgets import (
    QDialog,
    QFormLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QListWidget,
    QProgressBar,
    QPushButton,
    QVBoxLayout,
    QWidget,
)

from boundscope.client import RemoteHost, connect_remote
from boundscope.errors import BoundscopeError
from boundscope_app import theme as themes
from boundscope_app.link_types import LinkState, Phase
from boundscope_app.widgets.inputs import tint_inputs
from boundscope_app.widgets.primary import primary_style

HERE = "This computer"
NEW = "(new host)"
HINTS = {
    "name": "As you write it after ssh: an alias of ~/.ssh/config, a host's name, or USER@HOST.",
    "command": "What starts Boundscope there, where it is not in the path: ~/venv/bin/boundscope, for one.",
    "home": "Where the daemon there keeps its jobs; empty: its own place.",
}
TEXT = (
    "Runs go to the daemon of the host that is chosen here and stay there, also while this window is closed. "
    "ssh must reach the host without a password (a key, or an agent)."
)


class HostTest(QThread):
    """Goes to a host and back; `told` gives (whether it answered, a sentence)."""

    told = Signal(bool, str)

    def __init__(self, host: RemoteHost, parent: QWidget) -> None:
        super().__init__(parent)
        self.setObjectName("boundscope-host-test")
        self._host = host

    def run(self) -> None:
        try:
            with connect_remote(self._host, check=self._check) as client:
                jobs, start_s = len(client.jobs()), time.perf_counter()
                client.ping()
                trip_ms = 1000 * (time.perf_counter() - start_s)
                version = client.connection.version
        except BoundscopeError as error:
            self.told.emit(False, str(error))
            return
        self.told.emit(
            True,
            f"{self._host.name} answers: boundscope {version}, {jobs} jobs, {trip_ms:.1f} ms there and back.",
        )

    def _check(self) -> None:
        if self.isInterruptionRequested():
            raise BoundscopeError("The test was ended.")


class RemoteDialog(QDialog):
    """Keeps hosts; `connect_wanted` (RemoteHost, or None for this computer), `hosts_changed` (tuple of them).

    It stays open until the connection stands, so that what is wrong can be mended where it was written.
    """

    connect_wanted = Signal(object)
    hosts_changed = Signal(object)

    def __init__(self, hosts: Sequence[RemoteHost], parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("remote-dialog")
        self.setWindowTitle("Connect to a daemon")
        self._hosts = list(hosts)
        self._wanted: RemoteHost | None = None
        self._waiting = False
        self._test: HostTest | None = None
        self._make_list()
        self._make_fields()
        self._make_buttons()
        self._lay_out()
        themes.notifier.changed.connect(self._restyle)
        self._restyle()
        self.list.setCurrentRow(0)

    # ------------------------------------------------------------ building

    def _make_list(self) -> None:
        self.list = QListWidget(self)
        self.list.setAccessibleName("Hosts")
        self.list.setAccessibleDescription("Where the daemon may be; the chosen one is shown beside")
        self.list.addItems([HERE, *(host.name for host in self._hosts)])
        self.list.setMinimumWidth(14 * self.fontMetrics().horizontalAdvance("m"))
        self.list.currentRowChanged.connect(self._chosen)
        self.list.itemActivated.connect(lambda _item: self._connect())

    def _make_fields(self) -> None:
        self.name, self.command, self.home = QLineEdit(), QLineEdit(), QLineEdit()
        self.command.setPlaceholderText("boundscope")
        self.home.setPlaceholderText("its own")
        for field, title, hint in (
            (self.name, "Host", HINTS["name"]),
            (self.command, "Command", HINTS["command"]),
            (self.home, "Folder", HINTS["home"]),
        ):
            field.setAccessibleName(title)
            field.setAccessibleDescription(hint)
            field.setToolTip(hint)
            field.textEdited.connect(self._edited)
        self.said = QLabel(wordWrap=True, alignment=Qt.AlignmentFlag.AlignTop)
        self.said.setAccessibleName("Result")
        self.said.setTextInteractionFlags(
            Qt.TextInteractionFlag.TextSelectableByMouse | Qt.TextInteractionFlag.TextSelectableByKeyboard
        )
        self.said.setMinimumHeight(5 * self.fontMetrics().lineSpacing())
        self.bar = QProgressBar(textVisible=False)
        self.bar.setRange(0, 0)
        self.bar.setMaximumHeight(6)
        self.bar.setAccessibleName("Waiting for the host")
        self.bar.hide()

    def _make_buttons(self) -> None:
        def button(text: str, tip: str, work: Callable[[], object]) -> QPushButton:
            made = QPushButton(text)
            made.setToolTip(tip)
            made.setAccessibleDescription(tip)
            made.setAutoDefault(False)
            made.clicked.connect(lambda: work())
            return made

        self.add_button = button("Add", "Write down another host", self._add)
        self.remove_button = button(
            "Remove", "Forget the chosen host; its daemon and runs stay", self._remove
        )
        self.test_button = button(
            "Test", "Go there and back without changing anything here", self._begin_test
        )
        self.connect_button = button(
            "Connect", "Show the runs of this daemon, and send new ones to it", self._connect
        )
        self.close_button = button("Close", "Close this dialog; the hosts are kept", self.reject)
        self.connect_button.setDefault(True)

    def _lay_out(self) -> None:
        text = QLabel(TEXT, wordWrap=True)
        text.setProperty("role", "muted")
        left = QVBoxLayout()
        left.addWidget(self.list, 1)
        pair = QHBoxLayout()
        pair.addWidget(self.add_button)
        pair.addWidget(self.remove_button)
        left.addLayout(pair)
        form = QFormLayout()
        for title, field in (("&Host", self.name), ("&Command", self.command), ("&Folder", self.home)):
            form.addRow(title, field)
        right = QVBoxLayout()
        right.addWidget(text)
        right.addLayout(form)
        right.addWidget(self.bar)
        right.addWidget(self.said, 1)
        columns = QHBoxLayout()
        columns.addLayout(left)
        columns.addLayout(right, 1)
        buttons = QHBoxLayout()
        buttons.addWidget(self.test_button)
        buttons.addStretch(1)
        buttons.addWidget(self.connect_button)
        buttons.addWidget(self.close_button)
        whole = QVBoxLayout(self)
        whole.addLayout(columns, 1)
        whole.addLayout(buttons)
        self.resize(680, 360)

    def _restyle(self) -> None:
        self.connect_button.setStyleSheet(primary_style())
        tint_inputs(self)

    # ------------------------------------------------------------ the hosts

    @property
    def hosts(self) -> tuple[RemoteHost, ...]:
        """Those with a name."""
        return tuple(host for host in self._hosts if host.name)

    @property
    def chosen(self) -> RemoteHost | None:
        """The host that is shown; None for this computer."""
        row = self.list.currentRow()
        return self._hosts[row - 1] if row > 0 else None

    def choose(self, host: RemoteHost | None) -> None:
        """Show this one, which may have come from the command line."""
        if host is not None and host not in self._hosts:
            self._hosts.append(host)
            self.list.addItem(host.name)
        self.list.setCurrentRow(self._hosts.index(host) + 1 if host in self._hosts else 0)

    def _chosen(self, _row: int) -> None:
        host = self.chosen
        for field, text in (
            (self.name, "" if host is None else host.name),
            (self.command, "" if host is None else host.command),
            (self.home, "" if host is None else host.home),
        ):
            with QSignalBlocker(field):
                field.setText(text)
            field.setEnabled(host is not None)
        self._show_state(
            "" if host is not None else "The daemon of this computer is started when the window needs it."
        )

    def _edited(self) -> None:
        row = self.list.currentRow()
        host = RemoteHost(
            name=self.name.text().strip(), command=self.command.text().strip(), home=self.home.text().strip()
        )
        self._hosts[row - 1] = host
        self.list.item(row).setText(host.name or NEW)
        self._show_state("")
        self.hosts_changed.emit(self.hosts)

    def _add(self) -> None:
        self._hosts.append(RemoteHost(name=""))
        self.list.addItem(NEW)
        self.list.setCurrentRow(self.list.count() - 1)
        self.name.setFocus(Qt.FocusReason.OtherFocusReason)

    def _remove(self) -> None:
        row = self.list.currentRow()
        if row > 0:
            del self._hosts[row - 1]
            self.list.takeItem(row)
            self.hosts_changed.emit(self.hosts)

    # ------------------------------------------------------------ test and connect

    def _show_state(self, text: str, good: bool | None = None) -> None:
        theme = themes.current()
        color = {None: theme.muted, True: theme.good, False: theme.bad}[good]
        self.said.setStyleSheet(f"color: {color}")
        self.said.setText(text)
        self.said.setAccessibleDescription(text)
        busy = self._waiting or self._test is not None
        self.bar.setVisible(busy)
        self.remove_button.setEnabled(self.chosen is not None)
        self.test_button.setEnabled(self.chosen is not None and not busy)
        self.connect_button.setEnabled(self._test is None)

    def _problem(self) -> str:
        host = self.chosen
        return "" if host is None else host.problem

    def _begin_test(self) -> None:
        host = self.chosen
        if host is None or self._test is not None:
            return
        if self._problem():
            self._show_state(self._problem(), good=False)
            return
        self._test = HostTest(host, self)
        self._test.told.connect(self._tested)
        self._test.start()
        self._show_state(f"Going to {host.name} …")

    def _tested(self, good: bool, text: str) -> None:
        if self._test is not None:
            self._test.wait()
            self._test.deleteLater()
            self._test = None
        self._show_state(text, good)

    def _connect(self) -> None:
        if self._problem():
            self._show_state(self._problem(), good=False)
            return
        self._wanted, self._waiting = self.chosen, True
        name = HERE if self._wanted is None else self._wanted.name
        self._show_state(f"Connecting to {name} …")
        self.connect_wanted.emit(self._wanted)

    def take_state(self, state: LinkState) -> None:
        """How the connection stands: the dialog closes once it is the one that was asked for."""
        if not self._waiting:
            return
        name = "" if self._wanted is None else self._wanted.name
        if state.phase is Phase.CONNECTED and (state.host == name or (not name and state.local)):
            self._waiting = False
            self._show_state("Connected.", good=True)
            self.accept()
        elif state.reason:
            self._waiting = False
            self._show_state(state.reason, good=False)

    def done(self, result: int) -> None:
        if self._test is not None:
            self._test.told.disconnect(self._tested)
            self._test.requestInterruption()
            self._test.wait()
            self._test = None
        self._waiting = False
        self.bar.hide()
        super().done(result)
