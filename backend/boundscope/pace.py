"""The time to go of work that says how far it is, and not how long it will take."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from boundscope.protocol import Progress


@dataclass
class _Stage:
    name: str
    done: int
    total: int

    @property
    def ended(self) -> bool:
        return self.done >= self.total


class Pace:
    """Reckons from what is done how long the rest takes, by a clock that is handed in.

    A stage that begins before another has ended is a part of it, as the rows of one layer are of the bounds of a
    network; the time to go is then that of the outermost. A stage without a total has none, and ends all others.
    """

    def __init__(self) -> None:
        self._stages: list[_Stage] = []
        self._began_s = 0.0
        self._began_share = 0.0
        self._share = 0.0

    def timed(self, told: Progress, now_s: float, remaining_s: float) -> Progress:
        """`told` with its time to go, at most `remaining_s`; as it is where nothing can be said, or it says it."""
        if told.open is not None or told.total <= 0:
            self._stages.clear()
            return told
        if self._take(told):
            self._began_s, self._began_share, self._share = now_s, self._outer_share(), 0.0
        self._share = max(self._share, self._outer_share())
        went = self._share - self._began_share
        if told.eta_s is not None or went <= 0 or now_s <= self._began_s:
            return told
        eta_s = (now_s - self._began_s) * (1.0 - self._share) / went
        return replace(told, eta_s=max(0.0, min(eta_s, remaining_s)))

    def _take(self, told: Progress) -> bool:
        """Note how far a stage is; whether the outermost one begins with it."""
        stages = self._stages
        known = next((place for place, stage in enumerate(stages) if stage.name == told.stage), None)
        begins = known == 0 and told.done < stages[0].done
        if known is not None:
            del stages[known:]
        elif stages and stages[0].ended:
            stages.clear()
        else:
            while stages and stages[-1].ended:
                stages.pop()
        begins = begins or (known is None and not stages)
        stages.append(_Stage(told.stage, told.done, told.total))
        return begins

    def _outer_share(self) -> float:
        share = 0.0
        for stage in reversed(self._stages):
            share = min(1.0, (stage.done + share) / stage.total)
        return share
