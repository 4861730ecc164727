"""How long a window's event loop stalls: the watch, and a real daemon whose runs stream a thousand events a second."""

from __future__ import annotations

import gc
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from PySide6.QtCore import QObject, Qt, QTimer
from PySide6.QtWidgets import QAbstractScrollArea

from app.streaming_job import events, network
from app.window_support import APP_PATHS, EXAMPLES, LIMIT_S, ROOT
from boundscope.client import Client, connection_path, read_connection_file
from boundscope.protocol import EventRecord, JobInfo, PropertyFile, VerifyJob
from boundscope.records import JobRecord
from boundscope_app.views.base import View


@dataclass(order=True)
class Stall:
    """Milliseconds from one beat of the loop to the next.

    `own_ms` of them the loop was kept from beating by this process: its thread computed, or the garbage collector ran
    in another one. In the rest of `wall_ms` it waited for a processor or for the interpreter's lock, which a busy
    machine stretches at will. `doing` says what the window was asked for then.
    """

    own_ms: float
    wall_ms: float = field(compare=False)
    doing: str = field(compare=False)


class StallWatch(QObject):
    """Beats every millisecond in the thread that it is made in; keeps every gap of more than `least_ms`."""

    def __init__(self, least_ms: float = 10.0) -> None:
        super().__init__()
        self.stalls: list[Stall] = []
        self.beats = 0
        self.doing = ""
        self.collecting_ms: list[float] = []
        self._loop = threading.get_ident()
        self._collect_s = 0.0
        self._elsewhere_s = 0.0  # that collections took in other threads, since the last beat
        self._least_ms = least_ms
        self._wall_s, self._own_s = time.perf_counter(), time.thread_time()
        self._timer = QTimer(self, timerType=Qt.TimerType.PreciseTimer, interval=1)
        self._timer.timeout.connect(self._beat)

    def start(self) -> None:
        self._wall_s, self._own_s, self._elsewhere_s = time.perf_counter(), time.thread_time(), 0.0
        self._timer.start()
        if self._collected not in gc.callbacks:
            gc.callbacks.append(self._collected)

    def stop(self) -> None:
        self._timer.stop()
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)

    def _collected(self, phase: str, _info: dict[str, int]) -> None:
        """Python's garbage collector stops every thread: what it took is a part of the stalls."""
        now_s = time.thread_time()  # of the thread that collects
        if phase == "stop":
            self.collecting_ms.append(1000 * (now_s - self._collect_s))
            if threading.get_ident() != self._loop:
                self._elsewhere_s += now_s - self._collect_s
        self._collect_s = now_s

    def _beat(self) -> None:
        wall_s, own_s = time.perf_counter(), time.thread_time()
        gap_ms = 1000 * (wall_s - self._wall_s)
        self.beats += 1
        if gap_ms > self._least_ms:
            own_ms = 1000 * (own_s - self._own_s + self._elsewhere_s)
            self.stalls.append(Stall(min(gap_ms, own_ms), gap_ms, self.doing))
        self._wall_s, self._own_s, self._elsewhere_s = wall_s, own_s, 0.0

    @property
    def worst(self) -> Stall:
        return max(self.stalls, default=Stall(0.0, 0.0, ""))

    @property
    def worst_wall(self) -> Stall:
        return max(self.stalls, key=lambda stall: stall.wall_ms, default=Stall(0.0, 0.0, ""))


@contextmanager
def streaming_daemon(home: Path) -> Iterator[Client]:
    """A client of a streaming daemon of its own, which ends with the context."""
    paths = os.pathsep.join((APP_PATHS, str(ROOT / "tests")))
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "app.streaming_daemon", "--home", str(home), "--no-spare"],
        env={**os.environ, "PYTHONPATH": paths, "OMP_NUM_THREADS": "1"},
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + LIMIT_S
        while not connection_path(home).exists() and process.poll() is None:
            assert time.monotonic() < deadline, "the daemon did not start"
            time.sleep(0.02)
        with Client.connect(read_connection_file(connection_path(home)), timeout_s=20) as client:
            yield client
    finally:
        process.terminate()
        process.wait(LIMIT_S)


def submit_stream(client: Client, seconds: float, nodes: int) -> JobInfo:
    """Start a run that streams for so long."""
    network = client.upload(EXAMPLES / "networks" / "digits_mlp.onnx")
    source = client.upload(EXAMPLES / "digits-robust" / "property.vnnlib")
    job = VerifyJob(network=network, property=PropertyFile(file=source), timeout_s=seconds, seed=nodes)
    return client.submit(msgspec.structs.replace(job, ranks=1), "stream")


def small_record(count: int = 600, nodes: int = 40) -> JobRecord:
    """What a run said in its first moments."""
    record = JobRecord()
    said = itertools.chain((network(nodes),), itertools.islice(events(nodes), count))
    record.apply_all(
        EventRecord(number=n, time_s=0.0, rank=0, event=event) for n, event in enumerate(said, start=1)
    )
    return record


def redraw(view: View, times: int) -> None:
    """Draw a view anew from its record, and onto the screen, so many times."""
    for _ in range(times):
        view.reset()
        view.mark_dirty()
        view.refresh()
        view.repaint()
        for area in view.findChildren(QAbstractScrollArea):
            if area.isVisible():
                area.viewport().repaint()
