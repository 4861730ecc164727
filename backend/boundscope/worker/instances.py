"""A benchmark: its instances one after the other, in a process that stays warm. One call on every rank."""

from __future__ import annotations

import gc
import traceback
from dataclasses import dataclass, field

from msgspec.structs import replace

from boundscope.errors import CancelledError, DeadlineError
from boundscope.monitor import Monitor
from boundscope.protocol import (
    Event,
    InstanceResult,
    InstancesJob,
    InstancesResult,
    InstanceStarted,
    LogLine,
    MemorySample,
    Progress,
    RankMemory,
    Tally,
    Verdict,
    VerifyResult,
    instances_result,
)
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.files import InstancesFiles
from boundscope.worker.networks import Networks
from boundscope.worker.verify import run_verify
from boundscope.worker.versions import versions


def run_instances(
    job: InstancesJob, files: InstancesFiles, monitor: Monitor, ranks: RankGroup
) -> InstancesResult:
    """Run the instances from `files.first` on; rank 0 tells a row of each as it ends.

    Whatever goes wrong in one instance becomes its verdict. Where several ranks work together, what nobody foresaw
    ends the process, and whoever started it goes on with the next instance in a new one.

    Raises:
        CancelledError: somebody cancelled the job.
    """
    return _Benchmark(job, files, monitor, ranks).run()


class InstanceMonitor(Monitor):
    """Carries one instance's events to the monitor of the whole, with the instance's own time limit.

    Bounds and summaries of single instances stay behind: they would be mixed up in the record of the whole.
    """

    def __init__(self, outer: Monitor, timeout_s: float, stage: str, done: int, total: int) -> None:
        self._outer, self._stage, self._done, self._total = outer, stage, done, total
        self.eta_s: float | None = None
        super().__init__(timeout_s=timeout_s)

    def emit(self, event: Event) -> None:
        if isinstance(event, LogLine):
            self._outer.emit(replace(event, text=f"{self._stage}: {event.text}"))
        elif isinstance(event, MemorySample):
            shift_s = self.started - self._outer.started
            self._outer.emit(replace(event, elapsed_s=event.elapsed_s + shift_s))
        elif isinstance(event, Progress):
            self.tell(f"{self._stage}: {event.stage}")

    def tell(self, stage: str) -> None:
        """How far the whole is, and what is being done now."""
        self._outer.emit(Progress(stage=stage, done=self._done, total=self._total, eta_s=self.eta_s))

    @property
    def now_s(self) -> float:
        """By the clock of the whole, which stands still while that is paused."""
        return self._outer.now_s

    def check(self) -> None:
        self._outer.check()
        if self.remaining_s <= 0:
            raise DeadlineError("the time limit passed")


@dataclass
class _Benchmark:
    job: InstancesJob
    files: InstancesFiles
    monitor: Monitor
    ranks: RankGroup
    tally: Tally = field(init=False)
    peaks: dict[int, RankMemory] = field(default_factory=dict)
    networks: Networks = field(default_factory=Networks)

    def run(self) -> InstancesResult:
        self.tally = self.files.tally
        for number in range(self.files.first, len(self.job.instances)):
            if self.ranks.rank == 0:
                self.monitor.emit(InstanceStarted(number=number))
                # An instance may end the process; by then it is known which one it was, and what came before.
                self.monitor.flush()
            self.ranks.barrier()  # the clock of an instance starts on all ranks together
            row = self._row(number)
            self.tally = self.tally.plus(row)
            if self.ranks.rank == 0:
                self.monitor.emit(row)
            gc.collect()
        peaks = tuple(peak for _, peak in sorted(self.peaks.items()))
        return replace(instances_result(self.tally), peak_bytes=peaks, versions=versions())

    def _row(self, number: int) -> InstanceResult:
        instance = self.job.instances[number]
        network = self.job.networks[instance.network].name
        prop = self.job.properties[instance.property].name
        done, total = number, len(self.job.instances)
        monitor = InstanceMonitor(self.monitor, instance.timeout_s, f"{network} · {prop}", done, total)
        monitor.eta_s = self._eta_s(number)
        if self.ranks.rank == 0:
            monitor.tell(f"{network} · {prop}")
        begin_s = monitor.now_s
        row = InstanceResult(
            number=number, network=network, property=prop, verdict=Verdict.ERROR, reason="", seconds=0.0
        )
        row = self._verified(row, number, monitor)
        return replace(row, seconds=monitor.now_s - begin_s)

    def _verified(self, row: InstanceResult, number: int, monitor: InstanceMonitor) -> InstanceResult:
        monitor.check()
        instance = self.job.instances[number]
        try:
            result = run_verify(
                self.job.verify_job(number),
                self.files.of(instance),
                monitor,
                self.ranks,
                networks=self.networks,
            )
        except CancelledError:
            raise
        except DeadlineError:
            reason = f"the time limit of {instance.timeout_s:g} s passed before an answer"
            return replace(row, verdict=Verdict.TIMEOUT, reason=reason)
        except MemoryError:
            if self.ranks.size > 1:
                raise
            return replace(row, verdict=Verdict.OUT_OF_MEMORY, reason="the machine has no memory left")
        except Exception as error:  # the edge of an instance: its verdict is `error`, with the cause
            if self.ranks.size > 1:
                raise  # the other ranks wait for this one, and only their end frees them
            monitor.log(traceback.format_exc(), "debug")
            first_line = str(error).partition("\n")[0][:500]
            return replace(row, reason=f"{type(error).__name__}: {first_line}")
        self._remember_peaks(result)
        margins = result.margin.per_clause
        return replace(
            row,
            verdict=result.verdict,
            reason=result.reason,
            margin=result.margin.smallest,
            reached=min((one.upper for one in margins if one.upper is not None), default=None),
            counterexample=result.counterexample if result.verdict is Verdict.VIOLATED else None,
        )

    def _remember_peaks(self, result: VerifyResult) -> None:
        for peak in result.peak_bytes:
            known = self.peaks.get(peak.rank)
            if known is None or peak.ledger_peak_bytes > known.ledger_peak_bytes:
                self.peaks[peak.rank] = peak

    def _eta_s(self, number: int) -> float | None:
        """Time for those that are left, as the mean of those that have ended suggests; at most their time limits."""
        if not self.tally.total:
            return None
        left = self.job.instances[number:]
        mean_s = self.tally.seconds / self.tally.total
        return min(mean_s * len(left), sum(instance.timeout_s for instance in left))
