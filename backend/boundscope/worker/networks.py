"""Networks that a process has loaded already, for when the next job asks for the same file."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from boundscope.network import load_network
from boundscope.network.arrays import is_mapped
from boundscope.network.graph import Network

MOST_BYTES = 1 << 30  # of constants; a larger network is loaded again


@dataclass
class Networks:
    """Keeps the network that was asked for last, while its file stays as it was."""

    _kept: tuple[Path, tuple[int, int, int, bool], Network] | None = None
    _compared: set[int] = field(default_factory=set)

    def load(self, path: Path, *, mapped: bool = False) -> Network:
        """`mapped`: with large constants as views of the file. Raises what `load_network` raises."""
        state = path.stat()
        mark = (state.st_ino, state.st_size, state.st_mtime_ns, mapped)
        if self._kept is not None and self._kept[:2] == (path, mark):
            return self._kept[2]
        self._kept = None
        self._compared.clear()
        network = load_network(path, mapped=mapped)
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
