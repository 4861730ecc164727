"""Starts the ranks of a job through torchrun's elastic launcher: `python -m boundscope.worker.launch FOLDER`.

It tells the daemon nothing itself; what it saw of the ranks' ends it leaves in the folder as a LaunchReport. Without
GPUs the ranks are forks of it, and nothing is imported twice. Of a job on several nodes it runs the head, and one of it
runs on each node.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import NoReturn

import msgspec

from boundscope.daemon.jobspec import JobSpec, LaunchReport, NodePlace, RankExit, read_spec, write_report
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
    _choose_interface(spec)
    if spec.nodes and spec.place is None:
        from boundscope.worker import nodes

        report = nodes.launch(spec, folder)
        write_report(folder, report)
        process.end(1 if report.exits or report.cause else 0)
    # Stochastic arithmetic runs on the CPU.
    if isinstance(spec.job, VerifyJob | InstancesJob) and (
        cause := too_few_gpus(_ranks_here(spec), spec.place)
    ):
        report = LaunchReport(cause=cause)
    else:
        report = _launch(spec, folder)
    write_report(folder, msgspec.structs.replace(report, cpu_s=_cpu_s()))
    process.end(1 if report.exits or report.cause else 0)


def _choose_interface(spec: JobSpec) -> None:
    """Collectives use loopback on one machine, else the interface by which this node reaches the first one; where
    people have chosen one, that."""
    if spec.place is None:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", LOOPBACK)
    elif spec.place.interface:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", spec.place.interface)
        os.environ.setdefault("NCCL_SOCKET_IFNAME", spec.place.interface)


def _ranks_here(spec: JobSpec) -> int:
    return spec.ranks if spec.place is None else spec.ranks // spec.place.nodes


def _launch(spec: JobSpec, folder: Path) -> LaunchReport:
    from torch.distributed.elastic.multiprocessing import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    from boundscope.worker import rendezvous

    if forked.can_fork():
        with suppress(ImportError):  # which the ranks say themselves
            importlib.import_module(spec.entry.partition(":")[0])
        if forked.can_fork():  # still: an import may start a thread
            forked.fork_ranks(_ranks_here(spec), partial(_forked_rank, spec, folder))
    place = spec.place
    config = LaunchConfig(
        min_nodes=1 if place is None else place.nodes,
        max_nodes=1 if place is None else place.nodes,
        nproc_per_node=_ranks_here(spec),
        run_id=spec.job_id,
        rdzv_backend=rendezvous.register(rank.JOIN_S, place),
        local_addr=rendezvous.HOST if place is None else place.own_address,
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


def _forked_rank(spec: JobSpec, folder: Path) -> NoReturn:
    if spec.place is not None and spec.place.listener is not None:
        os.close(spec.place.listener)  # the launcher's
    rank.main(folder)


def _cpu_s() -> float:
    """Processor time of this process and of the ranks that have ended."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def too_few_gpus(ranks: int, place: NodePlace | None = None) -> str:
    """Why so many ranks cannot run here; "" where they can. Without GPUs any number of ranks shares the cores."""
    import torch

    if not torch.cuda.is_available() or ranks <= torch.cuda.device_count():
        return ""
    count = torch.cuda.device_count()
    here = "this machine" if place is None else f"node {place.host}"
    return (
        f"the job asks for {ranks} ranks, one GPU each, and {here} has {count}; ask for at most {count}, or "
        "hide the GPUs (CUDA_VISIBLE_DEVICES=) to run on the CPU"
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
