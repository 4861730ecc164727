"""A pause of a job's ranks as whoever runs them sees it: who has heard of it, and who stands."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field

from boundscope.daemon.processes import ProcessMark, cpu_seconds, is_runnable
from boundscope.protocol import WorkerHello

REPEAT_S = 0.5  # until a rank says that it has heard
STILL_LOOK_S = 0.25  # between two looks at a rank that does not say whether it stands
STILL_CPU_S = 0.05  # in that time, by a rank that only waits for another one
SPINNING_S = 5.0  # after a rank has come to stand, those that still turn are taken to wait for it in a busy loop (NCCL)


@dataclass
class _Seen:
    heard: bool = False
    standing: bool = False  # says so
    still: bool = False  # does not compute
    cpu_s: float = 0.0


@dataclass
class Pause:
    """`wanted` is whether the ranks are to stand. A rank may never say that it does: it waits inside a collective for
    one that does. Then its processor time tells."""

    wanted: bool = False
    _ranks: dict[int, _Seen] = field(default_factory=dict)
    _asked_s: float = 0.0
    _looked_s: float = 0.0
    _stood_s: float | None = None

    @property
    def command(self) -> str:
        return "pause" if self.wanted else "continue"

    def want(self, wanted: bool) -> None:
        """Begin or end a pause; the ranks are to be told."""
        self.wanted, self._stood_s, self._asked_s = wanted, None, time.monotonic()
        for rank in self._ranks.values():
            rank.standing = rank.still = False

    def hear(self, number: int, hello: WorkerHello) -> None:
        self._ranks[number] = seen = self._ranks.get(number, _Seen())
        seen.heard, seen.standing = hello.paused, hello.standing

    def forget(self) -> None:
        """The ranks have ended; others come."""
        self._ranks.clear()
        self._stood_s = None

    def unheard(self, now: float) -> list[int]:
        """Ranks that are to be told again now."""
        if now - self._asked_s < REPEAT_S:
            return []
        self._asked_s = now
        return [number for number, seen in self._ranks.items() if seen.heard is not self.wanted]

    def look(self, marks: Mapping[int, ProcessMark | None], now: float) -> None:
        """Whether the ranks that do not stand compute; to be called often."""
        if not self.wanted or self.standing or now - self._looked_s < STILL_LOOK_S:
            return
        self._looked_s = now
        if self._stood_s is None and any(seen.standing for seen in self._ranks.values()):
            self._stood_s = now
        for number, mark in marks.items():
            seen = self._ranks.setdefault(number, _Seen())
            used = 0.0 if mark is None or seen.standing else cpu_seconds([mark.pid])
            # On a busy machine also one that computes may get less than that.
            starved = mark is not None and is_runnable(mark.pid)
            seen.still = 0.0 <= used - seen.cpu_s < STILL_CPU_S and not starved
            seen.cpu_s = used

    @property
    def standing(self) -> bool:
        """Whether nothing of the job computes: ranks stand, or wait for one that does."""
        if not self.wanted or self._stood_s is None:
            return False
        spinning = time.monotonic() - self._stood_s > SPINNING_S
        return all(seen.standing or seen.still or spinning for seen in self._ranks.values())
