"""Starts the ranks of a job through torchrun's elastic launcher: `python -m boundscope.worker.launch FOLDER`.

It tells the daemon nothing itself; what it saw of the ranks' ends it leaves in the folder as a LaunchReport. Without
GPUs the ranks are forks of it, and nothing is imported twice.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import msgspec

from boundscope.daemon.jobspec import JobSpec, LaunchReport, RankExit, read_spec, write_report
from boundscope.daemon.processes import PARENT_VARIABLE
from boundscope.protocol import InstancesJob, VerifyJob
from boundscope.worker import forked, process, rank

SHUTDOWN_S = 3
LOOPBACK = "lo" if sys.platform == "linux" else "lo0"


def main(folder: Path) -> NoReturn:
    """Start the ranks and wait for them; ends with status 0 where all ended well, else 1."""
    process.begin()
    spec = read_spec(folder)
    os.environ[PARENT_VARIABLE] = str(os.getpid())
    os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    # Stochastic arithmetic runs on the CPU.
    if isinstance(spec.job, VerifyJob | InstancesJob) and (cause := too_few_gpus(spec.ranks)):
        report = LaunchReport(cause=cause)
    else:
        report = _launch(spec, folder)
    write_report(folder, msgspec.structs.replace(report, cpu_s=_cpu_s()))
    process.end(1 if report.exits or report.cause else 0)


def _launch(spec: JobSpec, folder: Path) -> LaunchReport:
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from boundscope.worker import rendezvous

    if forked.can_fork():
        with suppress(ImportError):  # which the ranks say themselves
            importlib.import_module(spec.entry.partition(":")[0])
        if forked.can_fork():  # still: an import may start a thread
            forked.fork_ranks(spec.ranks, lambda: rank.main(folder))
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=spec.ranks,
        run_id=spec.job_id,
        rdzv_backend=rendezvous.register(rank.JOIN_S),
        local_addr=rendezvous.HOST,
        max_restarts=0,
        monitor_interval=0.1,
        shutdown_timeout=SHUTDOWN_S,
    )
    try:
        elastic_launch(config, sys.executable)("-P", "-m", rank.__name__, str(folder))
    except ChildFailedError as error:
        exits = [
            RankExit(rank=number, exit_code=failure.exitcode) for number, failure in error.failures.items()
        ]
        return LaunchReport(exits=tuple(sorted(exits, key=lambda each: each.rank)))
    except SignalException as error:
        return LaunchReport(cause=f"the job's launcher was ended by {error.sigval.name}")
    return LaunchReport()


def _cpu_s() -> float:
    """Processor time of this process and of the ranks that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def too_few_gpus(ranks: int) -> str:
    """Why so many ranks cannot run here; "" where they can. Without GPUs any number of ranks shares the cores."""
    import torch

    if not torch.cuda.is_available() or ranks <= torch.cuda.device_count():
        return ""
    count = torch.cuda.device_count()
    return (
        f"the job asks for {ranks} ranks, one GPU each, and this machine has {count}; ask for at most {count}, or "
        "hide the GPUs (CUDA_VISIBLE_DEVICES=) to run on the CPU"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
