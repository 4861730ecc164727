"""What a job that runs a whole benchmark says: one row an instance, and a summary at its end."""

from __future__ import annotations

import msgspec

from boundscope.protocol.base import Struct
from boundscope.protocol.choices import Verdict
from boundscope.protocol.results import Counterexample, RankMemory


class InstanceStarted(Struct, tag="instance_started"):
    """`number` counts from 0 in the order of the job's instances."""

    number: int


class InstanceResult(Struct, tag="instance"):
    """What became of one instance. `seconds` is the whole time that it took, reading included.

    `margin` is the smallest proven one and `reached` the least that an input was seen to have, as `ClauseMargin` says.
    """

    number: int
    network: str  # names of the files
    property: str
    verdict: Verdict
    reason: str
    seconds: float
    margin: float | None = None
    reached: float | None = None
    counterexample: Counterexample | None = None


class Tally(Struct):
    """Instances by verdict, and the time that they took together."""

    counts: dict[str, int] = msgspec.field(default_factory=dict)
    seconds: float = 0.0

    def plus(self, row: InstanceResult) -> Tally:
        counts = {**self.counts, row.verdict.value: self.counts.get(row.verdict.value, 0) + 1}
        return Tally(counts=counts, seconds=self.seconds + row.seconds)

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    @property
    def solved(self) -> int:
        return self.counts.get(Verdict.VERIFIED.value, 0) + self.counts.get(Verdict.VIOLATED.value, 0)

    @property
    def verdict(self) -> Verdict | None:
        """None where every instance was solved; `error` where some ended in one, `unknown` where some are open."""
        if self.counts.get(Verdict.ERROR.value):
            return Verdict.ERROR
        return None if self.solved == self.total else Verdict.UNKNOWN

    @property
    def sentence(self) -> str:
        """ "12 of 15 instances solved: 9 verified, 3 violated, 2 timeout, 1 unknown"."""
        order = [verdict.value for verdict in Verdict if self.counts.get(verdict.value)]
        words = ", ".join(f"{self.counts[word]} {word.replace('_', ' ')}" for word in order)
        return f"{self.solved} of {self.total} instances solved{': ' if words else ''}{words}"


class InstancesResult(Struct, tag="instances_result"):
    """The end of a benchmark; its rows were told one by one. `verdict` as `Tally.verdict`."""

    verdict: Verdict | None
    reason: str
    tally: Tally
    peak_bytes: tuple[RankMemory, ...] = ()
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    command: str = ""

    @property
    def exit_code(self) -> int:
        """0 where every instance was solved; else as `Verdict.exit_code`."""
        return 0 if self.verdict is None else self.verdict.exit_code


def instances_result(tally: Tally) -> InstancesResult:
    """The end of a benchmark whose instances have these verdicts."""
    return InstancesResult(verdict=tally.verdict, reason=tally.sentence, tally=tally)
