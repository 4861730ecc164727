"""One running job: its processes, what they say, how they are stopped, and what became of them.

The daemon and `boundscope.worker.local` both drive it: they hand it the ranks' messages and call `tick` about
every 50 ms until that gives an Outcome.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from boundscope.daemon.instances import InstanceWatch
from boundscope.daemon.jobspec import REPORT_NAME, JobSpec, Kind, RankPulse, read_pulses, write_spec
from boundscope.daemon.launch import Launch, Launched, launch_anew
from boundscope.daemon.overtime import Overtime
from boundscope.daemon.pause import Pause
from boundscope.daemon.postmortem import Doom, Outcome, Witness, judge
from boundscope.daemon.processes import (
    ProcessMark,
    cpu_seconds,
    is_stopped,
    oom_kills,
    signal_trees,
)
from boundscope.protocol import (
    Event,
    Failure,
    FromWorker,
    InspectJob,
    InstancesJob,
    InstancesResult,
    JobState,
    LogLine,
    VariabilityResult,
    VerifyResult,
    WorkerAck,
    WorkerCommand,
    WorkerEvent,
    WorkerHello,
    instances_result,
)
from boundscope.threads import core_count, thread_variables

SILENT_S = 8.0  # a rank says hello every second; unheard of for so long, it is looked at
HANGING_S = 15.0  # and given up when it has not computed either for so long
JOIN_S = 25.0  # from the start to the hello of the last rank
JOIN_BUSY_S = 120.0  # the same while the processes are visibly at work (a cold disk under `import torch`)
TERMINATE_AFTER_S = 1.0  # from the wish to cancel to SIGTERM
KILL_AFTER_S = 1.7  # from the wish to cancel to SIGKILL
UNKILLABLE_S = 10.0  # for a killed rank that hangs inside the kernel; the job is not kept waiting longer
SETTLE_S = 0.25  # from the launcher's end to the judgement, for what is still on the wire

_decode = msgspec.msgpack.Decoder(FromWorker).decode
_encode = msgspec.msgpack.Encoder().encode


@dataclass
class _Rank:
    peer: bytes
    mark: ProcessMark | None
    heard_s: float
    sequence: int = 0
    acknowledged: int = 0
    cpu_s: float = 0.0
    looked_s: float = 0.0
    computed_s: float = 0.0


@dataclass
class JobRun:
    """`record(rank, time_s, event)` takes every event of the ranks once and in order; `send(peer, payload)` is the
    way back to them. `remember(mark)` is told of every process, so that a crash leaves nothing behind unknown.
    """

    spec: JobSpec
    folder: Path
    kind: Kind
    record: Callable[[int, float, Event], object]
    send: Callable[[bytes, bytes], object]
    remember: Callable[[ProcessMark], object] = lambda mark: None
    launch: Launch = launch_anew
    witness: Witness = field(default_factory=Witness)
    _overtime: Overtime = field(init=False)
    _instances: InstanceWatch | None = field(init=False, default=None)
    _ranks: dict[int, _Rank] = field(default_factory=dict)
    _process: Launched | None = None
    _launcher: ProcessMark | None = None
    _started_s: float = 0.0
    _ticked_s: float = 0.0
    _exited_s: float | None = None
    _cancelled_s: float | None = None
    _commanded_s: float = 0.0
    _pause: Pause = field(default_factory=Pause)
    _stage: int = 0
    _start_cpu_s: float = 0.0
    _oom_kills: int | None = None

    def __post_init__(self) -> None:
        job = self.spec.job
        if isinstance(job, InstancesJob):
            self._instances = InstanceWatch(job, next=self.spec.first, tally=self.spec.tally)
        self._overtime = self._instances or Overtime(job)

    def start(self) -> None:
        """Start the launcher; OSError where that cannot be done."""
        write_spec(self.folder, self.spec)
        self._oom_kills = oom_kills()
        self._started_s = self._ticked_s = time.monotonic()
        self._process = self.launch(self.kind, self.folder, thread_variables(_threads(self.spec)))
        self._launcher = ProcessMark.of(self._process.pid)
        if self._launcher is not None:
            self.remember(self._launcher)

    @property
    def joined(self) -> bool:
        """Whether every rank has been heard of."""
        return len(self._ranks) == self.spec.ranks

    @property
    def cancelling(self) -> bool:
        return self._cancelled_s is not None

    # ------------------------------------------------------------ what the ranks say

    def hear(self, peer: bytes, payload: bytes) -> None:
        """Take one message of a rank of this job; what is not one is ignored."""
        try:
            message = _decode(payload)
        except msgspec.DecodeError:
            return
        if message.job_id != self.spec.job_id or not 0 <= message.rank < self.spec.ranks:
            return
        if isinstance(message, WorkerHello):
            self._hear_hello(peer, message)
        elif (rank := self._ranks.get(message.rank)) is not None:
            rank.peer, rank.heard_s = peer, time.monotonic()
            self._hear_event(rank, message)

    def _hear_hello(self, peer: bytes, hello: WorkerHello) -> None:
        now = time.monotonic()
        rank = self._ranks.get(hello.rank)
        if rank is None:
            # A process of another machine is known by what its node tells of it.
            mark = None if self.spec.nodes else ProcessMark.of(hello.pid)
            self._ranks[hello.rank] = _Rank(peer, mark, now)
            if mark is not None:
                self.remember(mark)
            if self.cancelling:
                self.send(peer, _encode(WorkerCommand(command="cancel")))
            if self._pause.wanted:
                self.send(peer, _encode(WorkerCommand(command="pause")))
            return
        rank.peer, rank.heard_s = peer, now
        self._pause.hear(hello.rank, hello)
        rank.acknowledged = -1  # an acknowledgement may have been lost: say it again

    def _hear_event(self, rank: _Rank, message: WorkerEvent) -> None:
        if message.sequence > rank.sequence + 1:
            return  # an earlier one was lost on the way; the rank sends both again
        if message.sequence <= rank.sequence:
            rank.acknowledged = -1
            return
        rank.sequence = message.sequence
        event = message.event
        if isinstance(event, VerifyResult | VariabilityResult | InstancesResult):
            if message.rank != 0 or self.witness.result is not None:
                return
            self.witness.result = event
        if isinstance(event, Failure):
            self.witness.failures.append(event)
        self._overtime.hear(event, time.monotonic())
        self.record(message.rank, message.time_s, event)

    def acknowledge(self) -> None:
        """Tell the ranks what has been stored; to be called after the commit."""
        for rank in self._ranks.values():
            if rank.sequence != rank.acknowledged:
                self.send(rank.peer, _encode(WorkerAck(sequence=rank.sequence)))
                rank.acknowledged = rank.sequence

    # ------------------------------------------------------------ stopping

    def cancel(self, *, force: bool = False) -> None:
        """Ask the ranks to stop; SIGTERM and SIGKILL follow by themselves. `force`: SIGKILL at once."""
        if self._cancelled_s is None:
            self._cancelled_s = time.monotonic()
        self._command_cancel()
        if force:
            self._stage = 2
            self.kill()

    def kill(self) -> None:
        """SIGKILL to everything that this job started."""
        self._signal(signal.SIGKILL)

    def abandon(self, timeout_s: float = 5.0) -> None:
        """Kill everything and wait for its end; for whoever stops ticking before there is an Outcome."""
        process = self._process
        if process is None:
            return
        self.kill()
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout_s)
        self.kill()

    def _signal(self, number: signal.Signals) -> None:
        marks = [self._launcher, *(rank.mark for rank in self._ranks.values())]
        signal_trees([mark for mark in marks if mark is not None], number)

    def _command_cancel(self) -> None:
        self._commanded_s = time.monotonic()
        self._command("cancel", self._ranks.values())

    def _command(self, command: str, ranks: Iterable[_Rank]) -> None:
        for rank in ranks:
            self.send(rank.peer, _encode(WorkerCommand(command=command)))

    # ------------------------------------------------------------ pausing

    def pause(self) -> None:
        """Ask the ranks to stand still at their next step; `standing` says when they do."""
        if not self._pause.wanted:
            self._overtime.hold(time.monotonic())
            self._want_pause(True)

    def go_on(self) -> None:
        """End a pause."""
        if self._pause.wanted:
            now = time.monotonic()
            self._forgive_own_pause(now)  # before that of the job is over: no time is forgiven twice
            self._overtime.go_on(now)
            self._want_pause(False)

    @property
    def standing(self) -> bool:
        """Whether the job pauses and nothing of it computes."""
        return self.joined and self._pause.standing

    def _want_pause(self, wanted: bool) -> None:
        self._pause.want(wanted)
        self._command(self._pause.command, self._ranks.values())

    def _watch_pause(self, now: float) -> None:
        unheard = [self._ranks[number] for number in self._pause.unheard(now)]
        self._command(self._pause.command, unheard)
        self._pause.look({number: rank.mark for number, rank in self._ranks.items()}, now)

    def _escalate(self, now: float) -> None:
        if self._cancelled_s is None:
            return
        waited = now - self._cancelled_s
        if self._stage < 1 and waited > TERMINATE_AFTER_S:
            self._stage = 1
            self._signal(signal.SIGTERM)
        elif self._stage < 2 and waited > KILL_AFTER_S:
            self._stage = 2
            self.kill()
        if now - self._commanded_s > 1.0:
            self._command_cancel()

    # ------------------------------------------------------------ watching

    def tick(self) -> Outcome | None:
        """Look after the processes; the Outcome once all of them have ended."""
        process = self._process
        if process is None:
            return None
        now = time.monotonic()
        self._forgive_own_pause(now)
        code = process.poll()
        if code is None:
            self._escalate(now)
            self._watch_pause(now)
            if not self.cancelling and self._overtime.over(now):
                self._end_overtime(now)
            elif self.witness.doom is None:
                self._watch(now)
            return None
        if self._exited_s is None:
            self._exited_s = now
            self.kill()  # whatever a killed launcher left
        waited = now - self._exited_s
        alive = any(rank.mark and rank.mark.alive for rank in self._ranks.values())
        settled = waited >= SETTLE_S or self.witness.result is not None
        if not settled or (alive and waited < UNKILLABLE_S):
            return None
        before = self._oom_kills
        after = oom_kills()
        self.witness.out_of_memory_killed = before is not None and after is not None and after > before
        return self._go_on(judge(self.witness, self.folder, code, cancelled=self.cancelling), now)

    def _go_on(self, outcome: Outcome, now: float) -> Outcome | None:
        """The outcome; but a benchmark whose processes one instance has ended goes on with the next, in new ones."""
        watch = self._instances
        if watch is None or not watch.under_way or outcome.state is not JobState.FAILED:
            return outcome
        row = watch.end(outcome.cause, now, out_of_memory=self.witness.out_of_memory_killed)
        if outcome.failure is not None and outcome.failure.detail:
            self.record(-1, time.time(), LogLine(text=outcome.failure.detail, level="error"))
        self.record(-1, time.time(), row)
        if watch.finished:
            result = instances_result(watch.tally)
            self.record(-1, time.time(), result)
            return Outcome(JobState.FINISHED, result=result)
        self._start_again(watch)
        return None

    def _start_again(self, watch: InstanceWatch) -> None:
        self.spec = msgspec.structs.replace(self.spec, first=watch.next, tally=watch.tally)
        self.witness, self._ranks = Witness(), {}
        self._pause.forget()
        self._exited_s, self._start_cpu_s = None, 0.0
        (self.folder / REPORT_NAME).unlink(missing_ok=True)
        self.start()

    def _forgive_own_pause(self, now: float) -> None:
        """Where this process itself stood still, the ranks' silence means nothing."""
        pause = now - self._ticked_s
        self._ticked_s = now
        if pause > 3.0:
            self._started_s += pause
            self._overtime.forgive(pause)
            for rank in self._ranks.values():
                rank.heard_s += pause

    def _end_overtime(self, now: float) -> None:
        """End a job that does not keep its time limit; its result is a timeout, unless rank 0 has given one."""
        if self._instances is not None:
            self._instances.late = True
        elif self.witness.result is None:
            alive = [number for number, rank in self._ranks.items() if rank.mark and rank.mark.alive]
            self.witness.result = self._overtime.result(alive or self._ranks, now)
            self.record(-1, time.time(), self.witness.result)
        self.kill()

    def _watch(self, now: float) -> None:
        if not self.joined:
            self._watch_joining(now)
        for number, rank in self._ranks.items():
            if now - rank.heard_s > SILENT_S and now - rank.looked_s > 1.0:
                self._look_at(number, rank, now)

    def _look_at(self, number: int, rank: _Rank, now: float) -> None:
        """A rank is silent: stopped, hanging, or busy in one long call that lets no other thread run?"""
        seen = self._seen(number, rank)
        if seen is None:
            return  # the launcher sees that it died, and how
        silent = now - rank.heard_s
        name = self.spec.name_of(number)
        if seen.stopped:
            self._doom(number, f"{name} was stopped (SIGSTOP) and gave no sign of life for {silent:.0f} s")
            return
        used = seen.cpu_s
        if rank.looked_s <= rank.heard_s or used - rank.cpu_s > 0.05:
            rank.cpu_s, rank.computed_s = used, now
        rank.looked_s = now
        if silent > HANGING_S and now - rank.computed_s > HANGING_S - SILENT_S:
            self._doom(number, f"{name} gave no sign of life for {silent:.0f} s and does not compute")

    def _seen(self, number: int, rank: _Rank) -> RankPulse | None:
        """How a rank's process is now; None where there is none."""
        if self.spec.nodes:
            return read_pulses(self.folder).get(number)
        if rank.mark is None or not rank.mark.alive:
            return None
        pid = rank.mark.pid
        return RankPulse(rank=number, stopped=is_stopped(pid), cpu_s=cpu_seconds([pid]))

    def _watch_joining(self, now: float) -> None:
        waited = now - self._started_s
        if waited < JOIN_S or self._process is None:
            return
        used = cpu_seconds([self._process.pid]) + sum(
            pulse.cpu_s for pulse in read_pulses(self.folder).values()
        )
        if waited < JOIN_BUSY_S and (self._start_cpu_s == 0.0 or used - self._start_cpu_s > 0.5):
            self._started_s += 2.0
            self._start_cpu_s = used
            return
        missing = [number for number in range(self.spec.ranks) if number not in self._ranks]
        names = ", ".join(
            f"{number} on {self.spec.host_of(number)}" if self.spec.nodes else str(number)
            for number in missing
        )
        word = "rank" if len(missing) == 1 else "ranks"
        self._doom(
            missing[0], f"{word} {names} never joined: not heard of within {waited:.0f} s of the start"
        )

    def _doom(self, rank: int, cause: str) -> None:
        self.witness.doom = Doom(rank, cause)
        self.kill()


def _threads(spec: JobSpec) -> int:
    """Threads of each rank: as asked, else the ranks share the cores."""
    chosen = None if isinstance(spec.job, InspectJob) else spec.job.threads_per_rank
    return chosen or max(1, core_count() // spec.ranks)
