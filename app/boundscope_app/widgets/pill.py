"""The connection at a glance, in the status bar."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QPushButton, QWidget

from boundscope_app import theme as themes
from boundscope_app.link_types import LinkState, Phase


class ConnectionPill(QPushButton):
    """A word, a colour, and the round-trip time; the tool tip has the whole sentence. A click leads to the hosts."""

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setObjectName("connection-pill")
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self._state = LinkState()
        themes.notifier.changed.connect(self._restyle)
        self.show_state(self._state)

    def show_state(self, state: LinkState) -> None:
        self._state = state
        text, tip = pill_text(state), pill_tip(state)
        self.setText(text)
        self.setToolTip(f"{tip} Click to choose another host.")
        self.setAccessibleName(f"Connection: {text}")
        self.setAccessibleDescription(tip)
        self._restyle()

    def _restyle(self) -> None:
        theme = themes.current()
        color, fill = {
            Phase.CONNECTED: (theme.good, theme.good_fill),
            Phase.STARTING: (theme.neutral, theme.neutral_fill),
            Phase.RECONNECTING: (theme.warn, theme.warn_fill),
            Phase.REFUSED: (theme.bad, theme.bad_fill),
            Phase.CLOSED: (theme.neutral, theme.neutral_fill),
        }[self._state.phase]
        self.setStyleSheet(
            f"QPushButton {{ color: {color}; background: {fill}; border: 1px solid {color};"
            "border-radius: 8px; padding: 1px 8px; }"
            f"QPushButton:focus {{ border: 2px solid {color}; padding: 0px 7px; }}"
        )


def pill_text(state: LinkState) -> str:
    place = "local" if state.local else state.host or "remote"
    match state.phase:
        case Phase.CONNECTED if state.round_trip_s is not None:
            return f"{place} · {state.round_trip_s * 1000:.1f} ms"
        case Phase.CONNECTED:
            return place
        case Phase.STARTING:
            return "starting the daemon…" if state.local else f"connecting to {place}…"
        case Phase.RECONNECTING:
            return "reconnecting…" if state.local else f"{place} · reconnecting…"
        case Phase.REFUSED:
            return "key refused"
        case _:
            return "closed"


def pill_tip(state: LinkState) -> str:
    if state.phase is Phase.CONNECTED:
        return f"Connected to the daemon on {state.host or 'this computer'}; the time is one round trip."
    if state.reason:
        return f"{state.reason} (attempt {state.attempt}; tried again by itself)."
    return "The window connects to the daemon that runs jobs."
