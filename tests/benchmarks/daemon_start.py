"""What it costs to start a job: through a daemon whose spare process stands by, through one without, by the command.

    python tests/benchmarks/daemon_start.py [--rounds N] [--ranks N ...]

A verify job of a small network, one thread a rank, and beside it `python -c "import torch"`, the peer; every round
measures each of them once. Prints medians: wall seconds from submit to the end (for commands, of the process), and CPU
seconds of all processes of the job: what the kernel counted for the launcher and the ranks that it waited for, which
the launcher writes into its report, or for the command and its children. The spare process's own CPU is spent once a
daemon, and is printed with its memory and with what it uses while it stands by. The daemon's own share is left out.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psutil

sys.path.insert(0, str(Path(__file__).parent.parent))
from boundscope.client import Client, ensure_local_daemon
from boundscope.protocol import JobInfo, JobState, PropertyFile, Sharding, Shutdown, VerifyJob
from daemon.small_files import write_network, write_property

Cost = tuple[float, float]  # CPU and wall seconds


@dataclass
class Daemon:
    home: Path
    pid: int
    client: Client

    def spare(self) -> psutil.Process:
        """The spare process, once it stands by."""
        while True:
            for child in psutil.Process(self.pid).children():
                if f"the spare process {child.pid} stands by" in (self.home / "daemon.log").read_text():
                    return child
            time.sleep(0.05)

    def cost(self, network: Path, given: Path, ranks: int) -> Cost:
        job = VerifyJob(
            network=self.client.upload(network),
            property=PropertyFile(file=self.client.upload(given)),
            ranks=ranks,
            sharding=Sharding.ROWS if ranks > 1 else Sharding.NONE,
            threads_per_rank=1,
        )
        begin = time.monotonic()
        job_id = self.client.submit(job).id
        while not (info := self._info(job_id)).state.ended:
            time.sleep(0.005)
        wall_s = time.monotonic() - begin
        assert info.state is JobState.FINISHED, info.cause
        report = json.loads((self.home / "jobs" / job_id / "launch.json").read_text())
        return report["cpu_s"], wall_s

    def _info(self, job_id: str) -> JobInfo:
        return next(each for each in self.client.jobs() if each.id == job_id)

    def warm_cost(self, network: Path, given: Path, ranks: int) -> Cost:
        while True:
            spare = self.spare()
            cost = self.cost(network, given, ranks)
            if spare.is_running():  # else the code was changed meanwhile, and the job started anew
                return cost


@contextmanager
def daemon(home: Path, *, spare: bool) -> Iterator[Daemon]:
    connection = ensure_local_daemon(home, spare=spare)
    with Client.connect(connection) as client:
        yield Daemon(home, connection.pid, client)
        client.request(Shutdown(force=True))
        time.sleep(1.0)  # its home goes when it has


def command_cost(*words: object) -> Cost:
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    subprocess.run([sys.executable, *map(str, words)], check=True, stdout=subprocess.DEVNULL)
    wall_s, after = time.monotonic() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall_s


def standing_by(process: psutil.Process) -> str:
    """What the spare process has cost, holds, and uses in two seconds."""
    times, memory = process.cpu_times(), process.memory_full_info()
    time.sleep(2.0)
    later = process.cpu_times()
    used = later.user + later.system - times.user - times.system
    return (
        f"spare process: {times.user + times.system:.2f} CPU s once, {memory.rss >> 20} MiB resident "
        f"({memory.uss >> 20} MiB its own), {used / 2.0:.1%} of a core while it stands by"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("BOUNDSCOPE_NO_SPARE", None)
    found: dict[str, list[Cost]] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        network, given = write_network(folder / "net.onnx"), write_property(folder / "prop.vnnlib")
        with (
            daemon(folder / "cold", spare=False) as cold,
            daemon(folder / "warm", spare=True) as warm,
        ):
            print(standing_by(warm.spare()))
            ways: dict[str, Callable[[], Cost]] = {
                "import torch": lambda: command_cost("-c", "import torch"),
                "boundscope verify": lambda: command_cost("-m", "boundscope", "verify", network, given),
            }
            for ranks in options.ranks:
                ways[f"daemon, cold, ranks {ranks}"] = lambda n=ranks: cold.cost(network, given, n)
                ways[f"daemon, warm, ranks {ranks}"] = lambda n=ranks: warm.warm_cost(network, given, n)
            for _ in range(options.rounds):
                for way, measure in ways.items():
                    found.setdefault(way, []).append(measure())
    peer_s = statistics.median(cpu_s for cpu_s, _ in found["import torch"])
    print(f"{'median of ' + str(options.rounds):24}{'CPU s':>8}{'wall s':>8}{'CPU of import torch':>22}")
    for way, costs in found.items():
        cpu_s, wall_s = (statistics.median(each) for each in zip(*costs, strict=True))
        print(f"{way:24}{cpu_s:8.2f}{wall_s:8.2f}{cpu_s / peer_s:21.2f}×")


if __name__ == "__main__":
    main()
