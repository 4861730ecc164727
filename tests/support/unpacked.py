"""What ranks make of network files of which one of them unpacks for all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from boundscope.errors import BoundscopeError
from boundscope.network import file, stored
from boundscope.network.arrays import is_mapped
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.networks import Networks


@dataclass
class Loaded:
    """The constants' bytes, whether all are mapped, and the unpacked files that are mapped, by inode; or the error that
    the ranks agreed on."""

    constants: list[bytes] = field(default_factory=list)
    mapped: bool = False
    inodes: set[str] = field(default_factory=set)
    error: str = ""


def loaded(ranks: RankGroup, paths: Sequence[str]) -> list[Loaded]:
    """One file after another, of which every size counts as large: in processes of their own nothing is patched."""
    file.UNPACKED_IN_MEMORY = 16
    file.LARGE_BYTES = stored.LARGE_BYTES = 1
    return [_loaded(ranks, Path(path)) for path in paths]


def _loaded(ranks: RankGroup, path: Path) -> Loaded:
    found, error = Loaded(), None
    try:
        network = Networks().load(path, shared=ranks)
        maps = Path("/proc/self/maps").read_text().splitlines()
        arrays = list(network.constants.values())
        found.constants = [array.tobytes() for array in arrays]
        found.mapped = all(is_mapped(array) for array in arrays)
        found.inodes = {line.split()[4] for line in maps if "boundscope" in line or "/#" in line}
    except BoundscopeError as caught:
        error = caught
    try:
        ranks.agree(error)
    except BoundscopeError as agreed:
        found.error = str(agreed)
    return found
