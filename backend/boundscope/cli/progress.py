"""Progress of a run on standard error, on a terminal only."""

from __future__ import annotations

import contextlib
import os
import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from boundscope.cli.output import complain, count_text, seconds_text
from boundscope.protocol import EventRecord, LogLine, Progress, StateChanged

if TYPE_CHECKING:
    from rich.progress import Progress as Display


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """One live line: stage, bar, time so far and time to go. Off a terminal it only passes warnings on."""

    def __init__(self) -> None:
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
                eta="" if event.eta_s is None else f"about {seconds_text(event.eta_s)} to go",
            )

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
