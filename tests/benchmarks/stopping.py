"""How soon a real job pauses, ends when it is cancelled, and ends at its time limit, in the dearest steps we know.

    python tests/benchmarks/stopping.py [--families NAME ...] [--method alpha-crown] [--limit S] [--repeats N]

For the first instance of each family of VNN-COMP, and an MLP of 4096 neurons a layer, through a daemon of its own.
Each moment is drawn anew between the start and the limit. Prints median and largest: seconds from the wish to pause to
the last rank's standing, from the wish to cancel to the job's end, and seconds beyond the limit, by the job's own
seconds. The promise is 2 s for the latter two. Wall time: says little on a machine that is busy otherwise.
"""

from __future__ import annotations

import argparse
import csv
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from boundscope.client import Client, ensure_local_daemon
from boundscope.protocol import (
    JobInfo,
    JobState,
    Method,
    PropertyFile,
    Shutdown,
    VerifyJob,
    VerifyResult,
)
from daemon.small_files import write_property, write_wide_network

SHARED = Path(__file__).parents[3] / "shared" / "vnncomp"
FAMILIES = ("vit", "nn4sys_2021", "carvana_unet", "oval21", "cifar10_resnet", "tllverifybench")
PATIENCE_S = 60.0


@contextmanager
def daemon() -> Iterator[Client]:
    os.environ["OMP_NUM_THREADS"] = "1"
    with (
        tempfile.TemporaryDirectory() as folder,
        Client.connect(ensure_local_daemon(Path(folder) / "home")) as client,
    ):
        yield client
        client.request(Shutdown(force=True))
        time.sleep(1.0)  # its home goes when it has


def instances(families: list[str], folder: Path) -> Iterator[tuple[str, Path, Path]]:
    network = write_wide_network(folder / "mlp.onnx", 4096, 3, inputs=64)
    yield "MLP 3 × 4096", network, write_property(folder / "mlp.vnnlib", inputs=64)
    with (SHARED / "manifest.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    for family in families:
        row = next(row for row in rows if row["family"] == family)
        yield family, SHARED / row["onnx"], SHARED / row["vnnlib"]


def info(client: Client, job_id: str) -> JobInfo:
    return next(each for each in client.jobs() if each.id == job_id)


def seconds_until(client: Client, job_id: str, reached: Callable[[JobState], bool]) -> float:
    begin = time.monotonic()
    while not reached(info(client, job_id).state) and time.monotonic() - begin < PATIENCE_S:
        time.sleep(0.01)
    return time.monotonic() - begin


def measure(client: Client, job: VerifyJob, moment_s: float) -> tuple[float | None, float | None]:
    """Seconds to a pause and to the end of a cancelled job; None where it had ended before that."""
    job_id = client.submit(job).id
    seconds_until(client, job_id, lambda state: state not in (JobState.QUEUED, JobState.STARTING))
    time.sleep(moment_s)
    if info(client, job_id).state is not JobState.RUNNING:
        return None, None
    client.pause(job_id)
    pause_s = seconds_until(client, job_id, lambda state: state is JobState.PAUSED or state.ended)
    if info(client, job_id).state.ended:
        return None, None
    client.go_on(job_id)
    time.sleep(random.uniform(0.1, 1.0))
    client.cancel(job_id)
    cancel_s = seconds_until(client, job_id, lambda state: state.ended)
    return pause_s, cancel_s if info(client, job_id).state is JobState.CANCELLED else None


def beyond(client: Client, job: VerifyJob) -> float | None:
    """Seconds by which a job overran its limit; None where it ended before."""
    job_id = client.submit(job).id
    seconds_until(client, job_id, lambda state: state.ended)
    (result,) = [each.event for each in client.events(job_id) if isinstance(each.event, VerifyResult)]
    spent = result.seconds
    over = spent.load + spent.parse + spent.solve - job.timeout_s
    return over if over > 0 else None


def text(values: list[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{statistics.median(known):5.2f} {max(known):5.2f}" if known else "    –     –"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(FAMILIES))
    parser.add_argument("--method", type=Method, default=Method.ALPHA_CROWN)
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    random.seed(0)
    print(f"{'median and largest [s]':24}{'pause':>12}{'cancel':>14}{'beyond limit':>16}")
    with tempfile.TemporaryDirectory() as folder, daemon() as client:
        for name, network, given in instances(options.families, Path(folder)):
            job = VerifyJob(
                network=client.upload(network),
                property=PropertyFile(file=client.upload(given)),
                method=options.method,
                timeout_s=options.limit,
                threads_per_rank=1,
            )
            found = [measure(client, job, random.uniform(0.0, options.limit)) for _ in range(options.repeats)]
            over = [beyond(client, job)]
            pauses, cancels = [one for one, _ in found], [one for _, one in found]
            print(f"{name:24}{text(pauses):>12}{text(cancels):>14}{text(over):>16}", flush=True)


if __name__ == "__main__":
    main()
