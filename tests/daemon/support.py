"""Real daemons in real processes, each with a home of its own, all gone when the test ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from boundscope.client import Client, connection_path, read_connection_file
from boundscope.protocol import (
    EventBatch,
    EventRecord,
    FileRef,
    JobInfo,
    PropertyFile,
    Sharding,
    VerifyJob,
)

HERE = Path(__file__).parent
SPARE = "boundscope.worker.spare"
BACKEND = HERE.parent.parent / "backend"
LIMIT_S = 120.0  # for what happens at once; a machine that does much else may take its time


def wait_for(
    condition: Callable[[], object], timeout_s: float = LIMIT_S, what: str = "the condition"
) -> object:
    """The first true value of `condition`; fails when there is none in time."""
    deadline = time.monotonic() + timeout_s
    while time.monotonic() < deadline:
        if value := condition():
            return value
        time.sleep(0.02)
    raise AssertionError(f"{what} did not come about within {timeout_s} s")


def environment(home: Path, *, spare: bool = False) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join((str(BACKEND), str(HERE.parent))),
        "BOUNDSCOPE_HOME": str(home),
        "BOUNDSCOPE_NO_SPARE": "" if spare else "1",
        "OMP_NUM_THREADS": "1",
    }


@dataclass
class DaemonUnderTest:
    """`ranks`: verify jobs run through torchrun; `warm`: of a spare process; `exec`: of ranks that are no forks, as
    with GPUs; otherwise in one light process. See behaviours.py for the seeds.
    """

    home: Path
    arguments: tuple[str, ...]
    process: subprocess.Popen[bytes] | None = None
    clients: list[Client] = field(default_factory=list)

    @property
    def log_path(self) -> Path:
        return self.home.with_name(self.home.name + ".log")

    @property
    def warm(self) -> bool:
        return self.arguments[0] == "warm" and "--no-spare" not in self.arguments

    def start(self) -> None:
        with self.log_path.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-P", str(HERE / "serve.py"), *self.arguments, "--home", str(self.home)],
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment(self.home, spare=self.warm),
            )
        wait_for(lambda: self._published() or self._died(), what="the connection file")
        if self.warm:
            wait_for(self.spare_stands_by, what="the spare process")

    def spare(self) -> psutil.Process | None:
        """The spare process, whether it is ready or not."""
        found = {process.pid: process for process in processes(self.home)}
        children = psutil.Process(self.pid).children()
        return next((each for each in children if each.pid in found and SPARE in each.cmdline()), None)

    def spare_stands_by(self) -> psutil.Process | None:
        spare = self.spare()
        stands_by = spare and f"the spare process {spare.pid} stands by" in self.log_path.read_text()
        return spare if stands_by else None

    def _published(self) -> bool:
        path = connection_path(self.home)
        return path.exists() and read_connection_file(path).pid == self.pid

    def _died(self) -> None:
        assert self.process is not None
        assert self.process.poll() is None, self.log_path.read_text()

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def client(self) -> Client:
        client = Client.connect(read_connection_file(connection_path(self.home)), timeout_s=LIMIT_S)
        self.clients.append(client)
        return client

    def kill(self) -> None:
        """kill -9."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def close(self) -> None:
        for client in self.clients:
            client.close()
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., DaemonUnderTest]]:
    """`serve("light" | "impatient" | "ranks" | "warm" | "exec", *arguments)` starts a daemon."""
    started: list[DaemonUnderTest] = []

    def start(kind: str = "light", *arguments: str, home: Path | None = None) -> DaemonUnderTest:
        daemon = DaemonUnderTest(home or tmp_path / f"home{len(started)}", (kind, *arguments))
        started.append(daemon)
        daemon.start()
        return daemon

    yield start
    for daemon in started:
        daemon.close()
    for daemon in started:
        assert processes(daemon.home) == [], "processes were left behind"


def processes(home: Path) -> list[psutil.Process]:
    """Live processes whose command line names something under `home`."""
    found = []
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        if process.info["status"] != psutil.STATUS_ZOMBIE and any(str(home) in word for word in words):
            found.append(process)
    return found


def leftovers(home: Path) -> list[psutil.Process]:
    """`processes` but for the spare ones, whose forks, the jobs, look just like them."""
    found = processes(home)
    spare = {process for process in found if SPARE in process.info["cmdline"]}
    return [process for process in found if process not in spare or process.parent() in spare]


@pytest.fixture
def job_for(tmp_path: Path) -> Callable[..., VerifyJob]:
    """A verify job whose seed says how behaviours.py behaves; uploads two small files."""

    def build(client: Client, behaviour: int, ranks: int = 1) -> VerifyJob:
        network = upload_bytes(client, tmp_path, "net.onnx", b"not read by behaviours.py")
        given = upload_bytes(client, tmp_path, "prop.vnnlib", b"nor this")
        return VerifyJob(
            network=network,
            property=PropertyFile(file=given),
            seed=behaviour,
            ranks=ranks,
            sharding=Sharding.ROWS if ranks > 1 else Sharding.NONE,
        )

    return build


def upload_bytes(client: Client, folder: Path, name: str, data: bytes) -> FileRef:
    path = folder / name
    path.write_bytes(data)
    return client.upload(path)


def job(client: Client, job_id: str) -> JobInfo:
    return next(info for info in client.jobs(include_inspections=True) if info.id == job_id)


def wait_until_ended(client: Client, job_id: str, timeout_s: float = LIMIT_S) -> JobInfo:
    wait_for(lambda: job(client, job_id).state.ended, timeout_s, f"the end of job {job_id}")
    return job(client, job_id)


def wait_for_event(client: Client, job_id: str, wanted: type, timeout_s: float = LIMIT_S) -> EventRecord:
    """The first stored event of a type."""

    def look() -> EventRecord | None:
        return next((r for r in client.events(job_id) if isinstance(r.event, wanted)), None)

    record = wait_for(look, timeout_s, f"a {wanted.__name__}")
    assert isinstance(record, EventRecord)
    return record


def batches(pushes: list[object]) -> list[EventBatch]:
    return [push for push in pushes if isinstance(push, EventBatch)]
