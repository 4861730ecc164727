"""A screen, a daemon and a window for tests; and the rule that no test leaves a thread or a timer behind."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent, QThread, QTimer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.window_support import (
    LIMIT_S,
    close,
    end_daemon,
    open_window,
    prepare_environment,
    show_in_front,
    start_xvfb,
)
from boundscope.client import ensure_local_daemon
from boundscope_app.link import Link
from boundscope_app.settings import Settings
from boundscope_app.window import MainWindow, apply_theme

LIMIT_MS = round(1000 * LIMIT_S)
_screens: list[subprocess.Popen[bytes]] = []  # kept until this process ends


@pytest.fixture(scope="session")
def screen() -> Iterator[str]:
    """The platform that Qt uses: the display there is, else an Xvfb of our own, else offscreen."""
    os.environ.setdefault("QT_QPA_PLATFORMTHEME", "")
    chosen = os.environ.get("QT_QPA_PLATFORM", "")
    if chosen or os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"):
        yield chosen
        return
    started = start_xvfb()
    if started is None:
        os.environ["QT_QPA_PLATFORM"] = "offscreen"
        yield "offscreen"
        return
    _screens.append(started[0])
    os.environ["DISPLAY"] = started[1]
    os.environ["QT_QPA_PLATFORM"] = "xcb"
    yield "xcb"


class PatientBot(QtBot):
    """Waits LIMIT_S for what must come; where it comes, nobody waits longer than it takes."""

    def waitUntil(self, callback: Callable[[], bool | None], *, timeout: int = LIMIT_MS) -> None:
        super().waitUntil(callback, timeout=timeout)

    def waitSignal(self, signal: Any, *, timeout: int = LIMIT_MS, **more: Any) -> Any:
        return super().waitSignal(signal, timeout=timeout, **more)

    def waitActive(self, widget: Any, *, timeout: int = LIMIT_MS) -> Any:
        return super().waitActive(widget, timeout=timeout)

    def waitExposed(self, widget: Any, *, timeout: int = LIMIT_MS) -> Any:
        return super().waitExposed(widget, timeout=timeout)


@pytest.fixture
def qtbot(qapp: QApplication, request: pytest.FixtureRequest) -> QtBot:
    return PatientBot(request)


@pytest.fixture(scope="session")
def qapp_cls(screen: str) -> type[QApplication]:
    """pytest-qt makes its application of this class; asking for it starts the screen first."""
    return QApplication


@pytest.fixture(autouse=True)
def nothing_left_behind(request: pytest.FixtureRequest) -> Iterator[None]:
    """No test leaves a QThread running, a QTimer ticking, or a Python thread behind."""
    if "qapp" not in request.fixturenames:
        yield
        return
    app: QApplication = request.getfixturevalue("qapp")
    threads = set(threading.enumerate())
    with _Recorded() as made:
        yield
    app.processEvents()
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete.value)
    running = [thread for thread in made.threads if _alive(thread) and thread.isRunning()]
    ticking = [timer for timer in made.timers if _alive(timer) and timer.isActive()]
    assert not running, f"QThreads still run: {running}"
    assert not ticking, f"QTimers still tick: {[(t.objectName(), t.interval(), t.parent()) for t in ticking]}"
    left = [
        t for t in threading.enumerate() if t not in threads and not isinstance(t, threading._DummyThread)
    ]
    assert not left, f"threads still run: {left}"


class _Recorded:
    """Remembers every QThread that is started and every QTimer that is started, while it is entered."""

    def __enter__(self) -> _Recorded:
        self.threads: list[QThread] = []
        self.timers: list[QTimer] = []
        self._start_thread, self._start_timer = QThread.start, QTimer.start
        made = self

        def start_thread(thread: QThread, *arguments: Any) -> None:
            made.threads.append(thread)
            made._start_thread(thread, *arguments)

        def start_timer(timer: QTimer, *arguments: Any) -> None:
            made.timers.append(timer)
            made._start_timer(timer, *arguments)

        QThread.start = start_thread  # type: ignore[method-assign]
        QTimer.start = start_timer  # type: ignore[method-assign]
        return self

    def __exit__(self, *_: object) -> None:
        QThread.start = self._start_thread  # type: ignore[method-assign]
        QTimer.start = self._start_timer  # type: ignore[method-assign]


def _alive(thing: object) -> bool:
    return bool(shiboken6.isValid(thing))


# ---------------------------------------------------------------- daemon and window


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Settings of the test's own."""
    folder = tmp_path / "config"
    monkeypatch.setenv("BOUNDSCOPE_CONFIG", str(folder))
    return folder


@pytest.fixture(scope="session")
def shared_home() -> Iterator[Path]:
    """One real daemon for all tests that leave it alive."""
    folder = Path(tempfile.mkdtemp(prefix="boundscope-app-"))
    home = folder / "home"
    prepare_environment(home)
    ensure_local_daemon(home)
    yield home
    end_daemon(home)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def own_home(tmp_path: Path) -> Iterator[Path]:
    """A home without a daemon, for tests that start, kill or count one."""
    home = tmp_path / "home"
    prepare_environment(home)
    yield home
    end_daemon(home)


@pytest.fixture
def lone_window(qtbot: QtBot, tmp_path: Path) -> Iterator[MainWindow]:
    """A window that is shown and does not connect."""
    apply_theme("light")
    window = MainWindow(Link(tmp_path / "nowhere"), Settings(), theme="light")
    show_in_front(qtbot, window)
    yield window
    close(window)


@pytest.fixture
def window(qtbot: QtBot, shared_home: Path) -> Iterator[MainWindow]:
    """A window that is connected to a real daemon."""
    opened = open_window(qtbot, shared_home)
    yield opened
    close(opened)


@pytest.fixture
def open_on(qtbot: QtBot) -> Iterator[Callable[..., MainWindow]]:
    """Opens connected windows on a home; they are closed at the end also where the test fails."""
    opened: list[MainWindow] = []

    def open_one(home: Path, settings: Settings | None = None) -> MainWindow:
        opened.append(open_window(qtbot, home, settings))
        return opened[-1]

    yield open_one
    for each in opened:
        if shiboken6.isValid(each):
            close(each)
