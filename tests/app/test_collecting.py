"""Qt's objects are freed in the window's thread, whatever other threads do meanwhile."""

from __future__ import annotations

import gc
import threading
import weakref
from pathlib import Path

from PySide6.QtGui import QTextDocument
from pytestqt.qtbot import QtBot

from app.window_support import close, show_in_front
from boundscope_app.link import Link
from boundscope_app.settings import Settings
from boundscope_app.window import MainWindow

CYCLES, ALLOCATIONS = 200, 60_000


class Held:
    """A document in a cycle, as views and closures hold theirs; tells the thread that frees it."""

    def __init__(self, freed_in: list[int]) -> None:
        self.document = QTextDocument("text")
        self.myself = self
        self.end = weakref.finalize(self, lambda: freed_in.append(threading.get_ident()))


def allocate() -> None:
    """What makes the collector run: many containers that live on."""
    kept = [[number] for number in range(ALLOCATIONS)]
    assert len(kept) == ALLOCATIONS


def test_garbage_is_collected_in_the_windows_thread_alone(lone_window: MainWindow, qtbot: QtBot) -> None:
    freed_in: list[int] = []
    for _ in range(CYCLES):
        Held(freed_in)
    thread = threading.Thread(target=allocate)
    thread.start()
    thread.join()
    assert freed_in == [], "the collector ran in another thread"
    qtbot.waitUntil(lambda: len(freed_in) == CYCLES)
    assert set(freed_in) == {threading.get_ident()}


def test_the_collector_is_its_own_again_once_the_last_window_has_closed(
    qtbot: QtBot, tmp_path: Path, screen: str
) -> None:
    windows = [MainWindow(Link(tmp_path / "nowhere"), Settings(), theme="light") for _ in range(2)]
    for window in windows:
        show_in_front(qtbot, window)
    assert not gc.isenabled()
    close(windows[0])
    assert not gc.isenabled()
    close(windows[1])
    assert gc.isenabled()


def test_generations_take_their_turns(lone_window: MainWindow, qtbot: QtBot) -> None:
    """The young are looked through often, all of them seldom: looking through all takes long."""
    seen: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            seen.append(info["generation"])

    gc.callbacks.append(note)
    try:
        kept = []
        for _ in range(300):
            kept.append([[number] for number in range(1000)])
            lone_window.collector.look()
    finally:
        gc.callbacks.remove(note)
    assert seen.count(0) > seen.count(1) > seen.count(2)
    assert seen.count(1) >= 300 // 20
