"""Real ranks of torch.distributed (gloo) for a test, each a process."""

from __future__ import annotations

import faulthandler
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from boundscope.sharding.ranks import RankGroup
from boundscope.worker import process


def _run(rank: int, size: int, folder: str, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    """Ends as a rank of a job does: the interpreter's own way out takes apart what threads of gloo still run in, and
    now and then that aborts a process that has done everything."""
    faulthandler.enable()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=size)
    try:
        with torch.no_grad():
            torch.save(function(RankGroup.of_process_group(), *arguments), Path(folder) / f"{rank}.pt")
    finally:
        dist.destroy_process_group()
    process.end(0)


def on_ranks(size: int, folder: Path, function: Callable[..., Any], *arguments: Any) -> list[Any]:
    """What `function(ranks, *arguments)`, of a module that can be imported, gives on each rank."""
    folder.mkdir()
    mp.spawn(_run, (size, str(folder), function, arguments), nprocs=size)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(size)]
