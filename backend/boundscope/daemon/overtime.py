"""The time limit of a job whose ranks do not keep it themselves: one long call that never asks whether to go on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from boundscope.protocol import (
    ClauseMargin,
    Event,
    GapPoint,
    Job,
    Margin,
    Seconds,
    VariabilityJob,
    VariabilityResult,
    Verdict,
    VerifyJob,
    VerifyResult,
)

GRACE_S = 2.0  # beyond the limit, for a step that is under way to end and the result to be said
SAVING_S = 8.0  # the same where samples must still be joined and saved


@dataclass
class Overtime:
    """When a job's ranks began to work, and the newest margins that they told."""

    job: Job
    began_s: float | None = None
    _held_s: float | None = None
    _newest: dict[tuple[int, int], GapPoint] = field(default_factory=dict)

    def hear(self, event: Event, now: float) -> None:
        """Take an event of a rank; the first one starts the clock, for ranks are silent until they have met."""
        if self.began_s is None:
            self.began_s = now
        if isinstance(event, GapPoint):
            self._newest[event.case, event.clause] = event

    @property
    def grace_s(self) -> float:
        return SAVING_S if isinstance(self.job, VariabilityJob) else GRACE_S

    def forgive(self, pause_s: float) -> None:
        """Do not count a time in which nobody watched."""
        if self.began_s is not None and not self.held:
            self.began_s += pause_s

    def hold(self, now: float) -> None:
        """The job pauses: its time stands still."""
        if self._held_s is None:
            self._held_s = now

    @property
    def held(self) -> bool:
        return self._held_s is not None

    def go_on(self, now: float) -> None:
        """The pause is over."""
        if self._held_s is not None and self.began_s is not None:
            self.began_s += now - max(self._held_s, self.began_s)
        self._held_s = None

    def over(self, now: float) -> bool:
        """Whether the limit and the grace have passed."""
        if self.began_s is None or self.held or not isinstance(self.job, VerifyJob | VariabilityJob):
            return False
        return now - self.began_s > self.job.timeout_s + self.grace_s

    def result(self, ranks: Iterable[int], now: float) -> VerifyResult | VariabilityResult:
        """The timeout that the ranks owe, with the margins that they had told."""
        assert isinstance(self.job, VerifyJob | VariabilityJob)
        assert self.began_s is not None
        names = ", ".join(str(rank) for rank in sorted(ranks))
        reason = (
            f"the time limit of {self.job.timeout_s:g} s passed, and rank {names} was still inside a "
            f"computation that cannot be interrupted {self.grace_s:g} s later; it was ended there"
        )
        seconds = Seconds(load=0.0, parse=0.0, solve=now - self.began_s)
        if isinstance(self.job, VariabilityJob):
            return VariabilityResult(
                verdict=Verdict.TIMEOUT, reason=reason, samples_asked=self.job.samples, seconds=seconds
            )
        known = [point.lower for point in self._newest.values()]
        return VerifyResult(
            verdict=Verdict.TIMEOUT,
            reason=reason,
            arithmetic=self.job.arithmetic.label,
            margin=Margin(
                smallest=min((value for value in known if value is not None), default=None)
                if None not in known
                else None,
                per_clause=tuple(
                    ClauseMargin(
                        case=case,
                        clause=clause,
                        lower=point.lower,
                        upper=point.upper,
                        excluded=point.lower is not None and point.lower > 0,
                    )
                    for (case, clause), point in sorted(self._newest.items())
                ),
            ),
            seconds=seconds,
            peak_bytes=(),
            counterexample=None,
            versions={},
            command="",
        )
