"""Progress of a run, and of other work that takes a while, on standard error; on a terminal only."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from boundscope.cli.output import complain, count_text, seconds_text, size_text
from boundscope.pace import Pace
from boundscope.protocol import EventRecord, LogLine, Progress, StateChanged

if TYPE_CHECKING:
    from rich.progress import Progress as Display

SHOW_AFTER_S = 1.0  # work that is over by then needs no line


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """One live line: stage, bar, time so far and time to go. Off a terminal it only passes warnings on.

    Where nobody knows the time to go, it says how long the run may take at most: `limit_s`.
    """

    def __init__(self, limit_s: float | None = None) -> None:
        self._limit = "" if limit_s is None else f"of at most {seconds_text(limit_s)}"
        self._display = _display() if sys.stderr.isatty() else None
        self._task = (
            None
            if self._display is None
            else self._display.add_task("starting", total=None, count="", eta="")
        )

    def __enter__(self) -> Self:
        if self._display is not None:
            self._display.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._display.stop()

    def hide(self) -> None:
        """Take the line off the terminal, which somebody else wants to use."""
        if self._display is not None:
            self._display.stop()

    def show(self) -> None:
        """Show it again."""
        if self._display is not None:
            self._display.start()

    def take(self, record: EventRecord) -> None:
        """Show what one event says; any thread."""
        event = record.event
        if isinstance(event, LogLine) and event.level in ("warning", "error"):
            self._say(f"{event.level}: {event.text}")
        elif isinstance(event, StateChanged) and event.state.held:
            if self._display is not None and self._task is not None:
                self._display.update(self._task, description=event.state.value, eta="")
        elif isinstance(event, Progress) and self._display is not None and self._task is not None:
            self._display.update(
                self._task,
                description=event.stage,
                completed=event.done,
                total=event.total or None,
                count=_count_text(event),
                eta=_to_go(event) or self._limit,
            )

    def sending(self, name: str) -> Callable[[int, int], None]:
        """Shows a file on its way to the daemon, by the bytes that have gone and those that there are."""
        pace = Pace()

        def sent(done: int, total: int) -> None:
            if self._display is not None and self._task is not None:
                event = Progress(stage=f"sending {name}", done=done, total=total)
                event = pace.timed(event, time.monotonic(), float("inf"))
                count = f"{size_text(done)} of {size_text(total)}"
                self._display.update(
                    self._task,
                    description=event.stage,
                    completed=done,
                    total=total or None,
                    count=count,
                    eta=_to_go(event),
                )

        return sent

    def say(self, text: str) -> None:
        """A word about the run itself, on a terminal only."""
        if self._display is not None:
            self._say(text)

    def say_at_once(self, text: str) -> None:
        """The same from a signal handler, which may have come in the middle of a write to the same stream: past its
        buffer, over the live line, which is drawn again below."""
        if self._display is not None:
            with contextlib.suppress(OSError):
                os.write(sys.stderr.fileno(), f"\r\x1b[2Kboundscope: {text}\n".encode())

    def above(self, text: str, style: str = "") -> None:
        """A line of standard output; above the live line where both are on a terminal."""
        if self._display is None or not sys.stdout.isatty():
            print(text, flush=True)
        else:
            self._display.console.print(text, style=style, highlight=False, markup=False, soft_wrap=True)

    def _say(self, text: str) -> None:
        if self._display is None:
            complain(text)
        else:
            self._display.console.print(f"boundscope: {text}", highlight=False, markup=False, soft_wrap=True)


class Waiting(AbstractContextManager["Waiting"]):
    """A live line for work outside a run, shown where it takes longer than a moment.

    Its bar moves to and fro until `tell` says of how much; then it also has a time to go.
    """

    def __init__(self, text: str) -> None:
        self._display = _display() if sys.stderr.isatty() else None
        self._pace = Pace()
        self._lock = threading.Lock()
        self._over = self._shown = False
        if self._display is not None:
            self._task = self._display.add_task(text, total=None, count="", eta="")
            self._timer = threading.Timer(SHOW_AFTER_S, self._show)
            self._timer.daemon = True

    def __enter__(self) -> Self:
        if self._display is not None:
            self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._display is not None:
            self._timer.cancel()
            with self._lock:
                self._over = True
                if self._shown:
                    self._display.stop()

    def _show(self) -> None:
        with self._lock:
            if self._display is not None and not self._over:
                self._shown = True
                self._display.start()

    def tell(self, text: str, done: int = 0, total: int = 0) -> None:
        """What is being done now, and how much of it."""
        if self._display is not None:
            told = Progress(stage=text, done=done, total=total)
            told = self._pace.timed(told, time.monotonic(), float("inf"))
            count, eta = _count_text(told), _to_go(told)
            self._display.update(
                self._task, description=text, completed=done, total=total or None, count=count, eta=eta
            )


def _to_go(event: Progress) -> str:
    return "" if event.eta_s is None else f"about {seconds_text(event.eta_s)} to go"


def _count_text(event: Progress) -> str:
    """Of how many; of a branch and bound, whose end nobody knows, what was done and what waits."""
    if event.open is not None:
        return f"{count_text(event.done)} {'domain' if event.done == 1 else 'domains'}, {count_text(event.open)} open"
    return f"{event.done}/{event.total}" if event.total else ""


def _display() -> Display:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as RichProgress

    return RichProgress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=28),
        TextColumn("{task.fields[count]}"),
        TimeElapsedColumn(),
        TextColumn("{task.fields[eta]}", markup=False),
        console=Console(stderr=True),
        transient=True,
    )
