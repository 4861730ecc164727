"""The memory ledger: how many bytes a rank holds, by category, now and at its peak."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import psutil
from torch import Tensor

from boundscope.errors import OutOfMemoryError
from boundscope.protocol import MEMORY_CATEGORIES, MemorySample, RankMemory

_CLEAR_REFS, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@dataclass
class _Storage:
    category: str
    size_bytes: int
    tensors: int = 1


class MemoryLedger:
    """Counts tensors from `hold` until they are garbage; thread-safe.

    `limit_bytes` is the budget: `hold` refuses what would exceed it by OutOfMemoryError, with the breakdown.
    """

    def __init__(self, limit_bytes: int | None = None) -> None:
        self.limit_bytes = limit_bytes
        self._bytes = dict.fromkeys(MEMORY_CATEGORIES, 0)
        self._peak = dict(self._bytes)
        self._peak_total = 0
        self._storages: dict[int, _Storage] = {}
        self._noted: dict[str, int] = {}
        self._references: dict[int, tuple[weakref.ref[Tensor], int]] = {}
        self._lock = threading.RLock()  # callbacks may run inside a locked section
        self._process = psutil.Process()
        self._idle_resident = self._process.memory_info().rss
        self._peak_resident = self._idle_resident
        self._watched = False

    def hold(self, tensor: Tensor, category: str) -> Tensor:
        """Count a tensor's storage under a category (once, however many tensors share it); returns the tensor.

        Raises:
            OutOfMemoryError: the total would pass the limit; the tensor is not counted, and should be let go.
        """
        storage = tensor.untyped_storage()
        address, size = storage.data_ptr(), storage.nbytes()
        with self._lock:
            held = self._storages.get(address)
            if held is None:
                total = sum(self._bytes.values()) + size
                if self.limit_bytes is not None and total > self.limit_bytes:
                    raise OutOfMemoryError(self.breakdown({category: size}))
                self._storages[address] = _Storage(category, size)
                self._bytes[category] += size
                if total > self._peak_total:
                    self._peak_total, self._peak = total, dict(self._bytes)
            else:
                held.tensors += 1
            # Cheaper than weakref.finalize, which every pass would feel.
            reference = weakref.ref(tensor, self._collected)
            self._references[id(reference)] = (reference, address)
        return tensor

    def note(self, category: str, name: str, size_bytes: int) -> None:
        """Count what is no tensor: `size_bytes` under `name` from now on, in place of what was noted under it."""
        with self._lock:
            self._bytes[category] += size_bytes - self._noted.get(f"{category} {name}", 0)
            self._noted[f"{category} {name}"] = size_bytes
            total = sum(self._bytes.values())
            if total > self._peak_total:
                self._peak_total, self._peak = total, dict(self._bytes)

    def _collected(self, reference: weakref.ref[Tensor]) -> None:
        with self._lock:
            _, address = self._references.pop(id(reference))
            held = self._storages[address]
            held.tensors -= 1
            if held.tensors == 0:
                del self._storages[address]
                self._bytes[held.category] -= held.size_bytes

    def breakdown(self, more: Mapping[str, int] = MappingProxyType({})) -> str:
        """What is held, and `more` beside it, by category, in words, and what helps."""
        with self._lock:
            sizes = {name: size + more.get(name, 0) for name, size in self._bytes.items()}
        parts = ", ".join(f"{name} {_mib(size)}" for name, size in sizes.items() if size)
        limit = "no limit" if self.limit_bytes is None else f"a budget of {_mib(self.limit_bytes)}"
        return (
            f"{_mib(sum(sizes.values()))} needed with {limit} ({parts}); "
            "give a larger --memory-budget or more --ranks"
        )

    @property
    def total_bytes(self) -> int:
        with self._lock:
            return sum(self._bytes.values())

    def sample(self, elapsed_s: float) -> MemorySample:
        """What is held now, beside the resident size of the process."""
        resident = self._process.memory_info().rss
        with self._lock:
            self._peak_resident = max(self._peak_resident, resident)
            return MemorySample(
                elapsed_s=elapsed_s,
                by_category=dict(self._bytes),
                resident_bytes=resident,
                limit_bytes=self.limit_bytes,
            )

    def watch_resident(self) -> None:
        """Have the kernel keep the peak of the process's resident size from now on (Linux), so that none is missed
        between two samples; one ledger of a process at a time."""
        with suppress(OSError):
            _CLEAR_REFS.write_text("5")  # proc(5): resets VmHWM
            self._watched = True

    def peaks(self, rank: int) -> RankMemory:
        """Peaks so far; the resident one is above what the process held when the ledger was made."""
        resident = _resident_peak_bytes() if self._watched else self._process.memory_info().rss
        self._peak_resident = max(self._peak_resident, resident)
        with self._lock:
            return RankMemory(
                rank=rank,
                ledger_peak_bytes=self._peak_total,
                resident_peak_bytes=max(0, self._peak_resident - self._idle_resident),
                by_category=dict(self._peak),
            )


class MemorySampler:
    """Sends a sample every `period_s` from a thread of its own, from `with` entry to exit."""

    def __init__(
        self,
        ledger: MemoryLedger,
        elapsed_s: Callable[[], float],
        emit: Callable[[MemorySample], None],
        period_s: float = 0.1,
    ) -> None:
        self._ledger = ledger
        self._elapsed_s = elapsed_s
        self._emit = emit
        self._period_s = period_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="memory-sampler", daemon=True)

    def __enter__(self) -> MemorySampler:
        self._ledger.watch_resident()
        self._send()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()
        self._send()

    def _run(self) -> None:
        while not self._stop.wait(self._period_s):
            self._send()

    def _send(self) -> None:
        self._emit(self._ledger.sample(self._elapsed_s()))


def _resident_peak_bytes() -> int:
    """VmHWM of this process."""
    for line in _STATUS.read_text(encoding="ascii", errors="replace").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
