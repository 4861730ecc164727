"""Networks that a process has loaded already, for when the next job asks for the same file."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from boundscope.network import load_network
from boundscope.network.arrays import is_mapped
from boundscope.network.file import is_packed, unpack
from boundscope.network.graph import Network
from boundscope.sharding.ranks import RankGroup

MOST_BYTES = 1 << 30  # of constants; a larger network is loaded again


@dataclass
class Networks:
    """Keeps the network that was asked for last, while its file stays as it was."""

    _kept: tuple[Path, tuple[int, int, int, bool], Network] | None = None
    _compared: set[int] = field(default_factory=set)

    def load(self, path: Path, *, shared: RankGroup | None = None) -> Network:
        """The network of a file. For ranks that keep parts of it (`shared`; all of them call together) with large
        constants as views of the file, or of one that a rank of each machine has unpacked.

        Raises:
            BoundscopeError: as `load_network`, or what another rank has brought to `agree` instead of coming here.
        """
        mapped = shared is not None
        state = path.stat()
        mark = (state.st_ino, state.st_size, state.st_mtime_ns, mapped)
        known = self._kept is not None and self._kept[:2] == (path, mark)
        if shared is not None:  # else some would wait for others that have it
            known = bool(shared.least(int(known)))
        if self._kept is not None and known:
            return self._kept[2]
        self._kept = None
        self._compared.clear()
        with _unpacked(path, shared) as unpacked:
            network = load_network(path, mapped=mapped, unpacked=unpacked)
        if sum(array.nbytes for array in network.constants.values() if not is_mapped(array)) <= MOST_BYTES:
            self._kept = (path, mark, network)
        return network

    def first_comparison(self, network: Network) -> bool:
        """Whether the network has not been compared with ONNX Runtime yet; it counts as compared from now on."""
        if id(network) in self._compared:
            return False
        if self._kept is not None and self._kept[2] is network:
            self._compared.add(id(network))
        return True

    def forget(self) -> None:
        """The network that is kept must be compared again."""
        self._compared.clear()


@contextmanager
def _unpacked(path: Path, ranks: RankGroup | None) -> Iterator[BinaryIO | None]:
    """The content of a large gzip file, unpacked by one rank of each machine; None of any other file."""
    if ranks is None or not ranks.of_rank_0(is_packed(path)):
        yield None
        return
    machines = ranks.gather(_machine())
    first = machines.index(machines[ranks.rank])
    with ExitStack() as stack:
        own, where = None, ""
        if first == ranks.rank and (own := unpack(path)) is not None:
            stack.enter_context(own)
            where = f"/proc/{os.getpid()}/fd/{own.fileno()}"
        where = ranks.gather(where)[first]
        if own is None and where:
            with suppress(OSError):  # it unpacks for itself then
                own = stack.enter_context(open(where, "rb"))
        ranks.agree(None)  # until all have opened it
        yield own


def _machine() -> tuple[str, int]:
    """What processes that see each other in /proc have in common."""
    try:
        return platform.node(), os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return platform.node(), os.getpid()
