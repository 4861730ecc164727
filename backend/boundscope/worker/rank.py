"""One rank of a job: `python -m boundscope.worker.rank FOLDER`, started by `boundscope.worker.launch`."""

from __future__ import annotations

import importlib
import os
import sys
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from boundscope.daemon.jobspec import EXIT_CANCELLED, EXIT_LOST_PEER, JobSpec, read_spec
from boundscope.errors import BoundscopeError, CancelledError, RankFailedError
from boundscope.monitor import Monitor
from boundscope.protocol import (
    Failure,
    InspectJob,
    InstancesJob,
    InstancesResult,
    VariabilityJob,
    VariabilityResult,
    VerifyJob,
    VerifyResult,
)
from boundscope.worker import process
from boundscope.worker.files import InstancesFiles, JobFiles, VariabilityFiles
from boundscope.worker.observer import Observer

if TYPE_CHECKING:
    from boundscope.sharding.ranks import RankGroup

Files = JobFiles | VariabilityFiles | InstancesFiles
# By the kind of the job: its Struct, its files, where events go, and the ranks; the result is rank 0's.
Entry = Callable[
    [VerifyJob | VariabilityJob | InstancesJob, "Files", Monitor, "RankGroup"],
    VerifyResult | VariabilityResult | InstancesResult,
]

JOIN_S = 25.0
# A rank may wait for one that pauses, and a pause may last: that a rank is dead, its connection shows at once, and that
# it hangs, the daemon sees.
PATIENCE = timedelta(days=365)


def main(folder: Path) -> NoReturn:
    """Run this process's part of the job.

    Says hello before torch is imported, so that the daemon knows within a second that the rank lives.
    """
    process.begin()
    spec = read_spec(folder)
    rank = int(os.environ["RANK"])
    if spec.place is not None:  # the node's agent looks after it
        (folder / f"rank-{rank}.pid").write_text(str(os.getpid()), encoding="ascii")
    observer = Observer(spec, rank)
    status = _run_guarded(spec, rank, observer)
    delivered = observer.close()
    if not delivered:
        print(f"rank {rank}: the daemon did not take the last events", file=sys.stderr)
    process.end(status or (0 if delivered else 1))


def _run_guarded(spec: JobSpec, rank: int, observer: Observer) -> int:
    try:
        _run(spec, rank, observer)
    except CancelledError:
        return EXIT_CANCELLED
    except BoundscopeError as error:
        observer.emit(Failure(cause=str(error), rank=rank))
        return 1
    except MemoryError:
        observer.emit(
            Failure(cause=f"{spec.name_of(rank)} ran out of memory", rank=rank, detail=traceback.format_exc())
        )
        return 1
    except Exception as error:  # noqa: BLE001 the edge of the process: told with its cause, and the status says so
        traceback.print_exc()
        if _lost_peer(error):
            observer.log(f"rank {rank} lost its connection to another rank: {_first_line(error)}", "error")
            return EXIT_LOST_PEER
        cause = f"{spec.name_of(rank)} failed: {type(error).__name__}: {_first_line(error)}"
        observer.emit(Failure(cause=cause, rank=rank, detail=traceback.format_exc()))
        return 1
    return 0


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0][:500]


def _lost_peer(error: Exception) -> bool:
    """Whether the error only says that some other rank has gone."""
    import torch.distributed as dist

    text = str(error)
    signs = (
        "Connection closed by peer",
        "Connection reset by peer",
        "Broken pipe",
        "Read timeout",
        "gloo/transport",
    )
    return isinstance(error, dist.DistError) or any(sign in text for sign in signs)


def _run(spec: JobSpec, rank: int, observer: Observer) -> None:
    import torch

    from boundscope.sharding.ranks import RankGroup

    module, _, function = spec.entry.partition(":")
    entry: Entry = getattr(importlib.import_module(module), function)
    assert not isinstance(spec.job, InspectJob), "inspections do not run in ranks"
    torch.set_num_threads(max(1, int(os.environ.get("OMP_NUM_THREADS", "1"))))
    join(spec.ranks, gpus=not isinstance(spec.job, VariabilityJob), name_of=spec.name_of)
    ranks = RankGroup.of_process_group()
    files = job_files(spec)
    # The instances of a benchmark have a limit each, and the whole has none.
    observer.begin(None if isinstance(spec.job, InstancesJob) else spec.job.timeout_s)
    result = entry(spec.job, files, observer, ranks)
    if rank == 0:
        observer.emit(result)
    observer.flush()
    ranks.barrier()
    torch.distributed.destroy_process_group()


def job_files(spec: JobSpec) -> Files:
    """Where the job's files lie."""
    if isinstance(spec.job, InstancesJob):
        return InstancesFiles(
            networks=tuple(Path(path) for path in spec.networks),
            properties=tuple(Path(path) for path in spec.properties),
            first=spec.first,
            tally=spec.tally,
        )
    network = Path(spec.network or "")
    if isinstance(spec.job, VariabilityJob):
        return VariabilityFiles(
            network=network,
            results=Path(spec.results or ""),
            inputs=tuple(Path(path) for path in spec.inputs),
            property=None if spec.property is None else Path(spec.property),
        )
    return JobFiles(
        network=network,
        property=Path(spec.property or ""),
        checkpoint=None if spec.checkpoint is None else Path(spec.checkpoint),
    )


def join(size: int, *, gpus: bool = True, name_of: Callable[[int], str] = "rank {}".format) -> None:
    """Meet the other ranks within JOIN_S; after that, one may wait PATIENCE for another in a collective.

    NCCL carries tensors on GPUs (of jobs that use `gpus`), gloo those on the CPU.
    """
    import torch
    import torch.distributed as dist
    from torch.distributed.rendezvous import rendezvous

    backend = "gloo"
    if gpus and torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        backend = "cpu:gloo,cuda:nccl"
    store, rank, found = next(rendezvous("env://", timeout=timedelta(seconds=JOIN_S)))
    if found != size:
        raise RankFailedError(f"the job has {size} ranks but {found} were started")
    store.set(f"here {rank}", b"")
    try:
        store.wait([f"here {each}" for each in range(size)], timedelta(seconds=JOIN_S))
    except dist.DistStoreError:
        missing = ", ".join(name_of(each) for each in range(size) if not store.check([f"here {each}"]))
        raise RankFailedError(f"{missing} never joined: {name_of(rank)} waited {JOIN_S:g} s for it") from None
    dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
