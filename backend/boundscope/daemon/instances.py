"""A benchmark as whoever runs its processes follows it: which instance is under way, and what to say of one that ended
the process, so that the others go on in a new one."""

from __future__ import annotations

from dataclasses import dataclass, field

from boundscope.daemon import overtime
from boundscope.protocol import (
    Event,
    InstanceResult,
    InstancesJob,
    InstanceStarted,
    Tally,
    Verdict,
)


@dataclass
class InstanceWatch(overtime.Overtime):
    """`next` is the instance after those that have ended, which `tally` counts; `began_s` is when it began."""

    next: int = 0
    tally: Tally = field(default_factory=Tally)
    late: bool = False  # its process was ended because it did not keep its time limit

    @property
    def benchmark(self) -> InstancesJob:
        assert isinstance(self.job, InstancesJob)
        return self.job

    def hear(self, event: Event, now: float) -> None:
        if isinstance(event, InstanceStarted):
            self.next, self.began_s = event.number, now
        elif isinstance(event, InstanceResult):
            self.next, self.began_s, self.tally = event.number + 1, None, self.tally.plus(event)

    @property
    def under_way(self) -> bool:
        return self.began_s is not None

    @property
    def finished(self) -> bool:
        return self.next >= len(self.benchmark.instances)

    def over(self, now: float) -> bool:
        """Whether the instance under way has not kept its time limit, with the grace that a step is given."""
        if self.began_s is None or self.held:
            return False
        return now - self.began_s > self.benchmark.instances[self.next].timeout_s + overtime.GRACE_S

    def end(self, cause: str, now: float, *, out_of_memory: bool) -> InstanceResult:
        """The row of the instance whose process has ended; the next one is then the next."""
        assert self.began_s is not None, "no instance is under way"
        instance = self.benchmark.instances[self.next]
        verdict = Verdict.OUT_OF_MEMORY if out_of_memory else Verdict.ERROR
        if self.late:
            verdict = Verdict.TIMEOUT
            cause = (
                f"the time limit of {instance.timeout_s:g} s passed within a computation that "
                f"cannot be interrupted; its process was ended {overtime.GRACE_S:g} s later"
            )
        row = InstanceResult(
            number=self.next,
            network=self.benchmark.networks[instance.network].name,
            property=self.benchmark.properties[instance.property].name,
            verdict=verdict,
            reason=cause,
            seconds=now - self.began_s,
        )
        self.late = False
        self.hear(row, now)
        return row
