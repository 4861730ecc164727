"""The verify job: load, attack, bound, decide. One call on every rank; rank 0's result is the job's."""

from __future__ import annotations

import contextlib
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, replace

import psutil
import torch

from boundscope import capabilities
from boundscope.bounds import BoundEngine, MemoryLedger, MemorySampler
from boundscope.command import command_line
from boundscope.errors import (
    BoundError,
    BoundscopeError,
    CancelledError,
    DeadlineError,
    OutOfMemoryError,
    UnsupportedOperatorError,
)
from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.properties.types import Property
from boundscope.protocol import (
    Counterexample,
    CrossCheck,
    Engine,
    Margin,
    Method,
    RankMemory,
    Seconds,
    Sharding,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.search.attack import Effort
from boundscope.sharding.place import place
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.case_bounds import CaseBounds
from boundscope.worker.checkpoints import JobCheckpoint
from boundscope.worker.complete import CompleteSearch
from boundscope.worker.crosscheck import Checker
from boundscope.worker.engines import CaseEngine, NativeCases, ReferenceCases
from boundscope.worker.files import JobFiles
from boundscope.worker.networks import Networks
from boundscope.worker.proof import Proof
from boundscope.worker.reading import Reading
from boundscope.worker.steps import Steps
from boundscope.worker.unforeseen import unforeseen
from boundscope.worker.versions import versions
from boundscope.worker.witness import Witnesses

# The first attack is short: most properties that hold are proven in less time than a long one takes.
FIRST_ATTACK_S, FIRST_ATTACK_SHARE = 1.0, 0.05
# Before branch and bound, which meets counterexamples on its way: no longer than twice what went before, for where
# bounds take next to no time a search is often over sooner than an attack.
SECOND_ATTACK_S, SECOND_ATTACK_LEAST_S = 1.0, 0.25
ATTACK_S, ATTACK_SHARE = 5.0, 0.2


@dataclass(frozen=True)
class Outcome:
    verdict: Verdict
    reason: str
    counterexample: Counterexample | None = None


def run_verify(
    job: VerifyJob,
    files: JobFiles,
    monitor: Monitor,
    ranks: RankGroup,
    *,
    networks: Networks | None = None,
) -> VerifyResult:
    """Run one verify job on this rank; `networks` may have loaded its network before.

    Every foreseeable failure becomes a result (error, unknown, timeout, out_of_memory) with its reason.

    Raises:
        CancelledError: somebody cancelled the job.
    """
    return _VerifyRun(job, files, monitor, ranks, networks or Networks()).result()


class _VerifyRun:
    bounds: CaseBounds  # once the property has been read

    def __init__(
        self, job: VerifyJob, files: JobFiles, monitor: Monitor, ranks: RankGroup, networks: Networks
    ) -> None:
        self.job, self.files, self.monitor, self.ranks = job, files, monitor, ranks
        self.steps = Steps(monitor, ranks)
        self.reading = Reading(job, files, networks, self.steps)
        self.checkpoint = JobCheckpoint(job, files, monitor, ranks)
        self.proof = Proof()
        self.ledger = MemoryLedger(_budget(job, ranks))
        self.cross_check: CrossCheck | None = None
        self.complete: CompleteSearch | None = None
        self.stuck = ""  # why branch and bound ended without an answer

    def result(self) -> VerifyResult:
        with MemorySampler(self.ledger, lambda: self.monitor.elapsed_s, self.monitor.emit):
            try:
                outcome = self._guarded()
            except BaseException:
                self.checkpoint.settle(None)
                raise
            outcome = self._settled(outcome)
        self._tell_traffic()
        prop = self.reading.property
        margin = Margin(smallest=None) if prop is None else self.proof.margin(prop)
        return VerifyResult(
            verdict=outcome.verdict,
            reason=outcome.reason,
            arithmetic=self.job.arithmetic.label,
            margin=margin,
            seconds=Seconds(**self.steps.times),
            peak_bytes=self._peaks(),
            counterexample=outcome.counterexample,
            versions=versions(),
            command=command_line(self.job, str(self.files.network), str(self.files.property)),
            cross_check=self.cross_check,
            search=None if self.complete is None else self.complete.summary,
        )

    def _tell_traffic(self) -> None:
        frames = self.ranks.frames
        if self.ranks.rank or frames is None:
            return
        told = frames.traffic
        if told.received_bytes:
            self.monitor.log(
                f"gathers: {told.under_way_s:.2f} s under way, {100 * told.hidden_share:.0f} % hidden, "
                f"{told.received_bytes / 2**20:.0f} MiB received"
            )
        if told.read_bytes:
            self.monitor.log(
                f"weights in memory that the ranks share: {told.read_bytes / 2**20:.0f} MiB read in "
                f"{told.read_s:.2f} s"
            )

    def _guarded(self) -> Outcome:
        try:
            capabilities.check(self.job)
            outcomes: list[Outcome] = []
            with self.steps.agreed(final=True):
                outcomes.append(self._run())
            return outcomes[0]
        except CancelledError:
            raise
        except DeadlineError:
            left = "" if self.complete is None else self.complete.left
            return Outcome(
                Verdict.TIMEOUT, f"the time limit of {self.job.timeout_s:g} s passed before an answer{left}"
            )
        except OutOfMemoryError as error:
            return Outcome(Verdict.OUT_OF_MEMORY, str(error))
        except BoundError as error:
            return Outcome(Verdict.UNKNOWN, str(error))
        except BoundscopeError as error:
            return Outcome(Verdict.ERROR, str(error))
        except Exception as error:  # noqa: BLE001 the edge of a job: what nobody foresaw is told, and no verdict
            return self._unforeseen(error)

    def _settled(self, outcome: Outcome) -> Outcome:
        """The outcome, once the checkpoint is gone or kept as it says."""
        try:
            self.checkpoint.settle(outcome.verdict)
        except Exception as error:  # noqa: BLE001 as in `_guarded`
            return self._unforeseen(error)
        return outcome

    def _unforeseen(self, error: Exception) -> Outcome:
        if self.ranks.size > 1:
            raise error  # the other ranks wait for this one, and only its end frees them
        self.monitor.log("".join(traceback.format_exception(error)), "debug")
        memory = isinstance(error, MemoryError | torch.OutOfMemoryError)
        return Outcome(Verdict.OUT_OF_MEMORY if memory else Verdict.ERROR, unforeseen(error))

    def _peaks(self) -> tuple[RankMemory, ...]:
        return tuple(self.ranks.gather(self.ledger.peaks(self.ranks.rank)))

    # ------------------------------------------------------------ steps

    def _run(self) -> Outcome:
        network, prop = self.reading.load()
        self.bounds = CaseBounds(self.job, prop, self.proof, self.steps)
        with self.steps.timed("solve"):
            return self._solve(network, prop)

    def _checkpoint(self) -> None:
        """Stop on all ranks together where one of them is asked to, or is late."""
        with self.steps.agreed():
            self.monitor.check()

    def _solve(self, network: Network, prop: Property) -> Outcome:
        if not any(case.clauses for case in prop.cases):
            return Outcome(Verdict.VERIFIED, "no input satisfies what the property asks of the inputs")
        self._checkpoint()
        with self.steps.agreed():
            engine = self._engine(network)
        witnesses = Witnesses(self.job, self.files, network, prop, engine)
        cases = self._cases(network, engine)
        if self.reading.missing:
            return self._only_attacked(prop, witnesses)
        checker = Checker(network, prop, engine, self.monitor) if self.job.cross_check else None
        if self.job.method is Method.COMPLETE:
            found = self._completely(engine, cases, prop, witnesses)
        else:
            found = self._attacked(prop, witnesses, ATTACK_S, ATTACK_SHARE, Effort.NORMAL)
            if found is None:
                self.bounds.run(cases, cases.steps(self.job.method))
        if found is None:
            found = self._decide(prop, witnesses, cases.note)
        return found if checker is None else self._checked(checker, found)

    def _only_attacked(self, prop: Property, witnesses: Witnesses) -> Outcome:
        """A network with operators that have no bounds can be refuted, but not verified.

        Raises:
            UnsupportedOperatorError: no counterexample was found; names the operators.
        """
        for effort in (Effort.NORMAL, Effort.THOROUGH):
            found = self._attacked(prop, witnesses, ATTACK_S, ATTACK_SHARE, effort)
            if found is not None:
                return found
        missing = "; ".join(self.reading.missing)
        raise UnsupportedOperatorError(
            f"{missing}; no counterexample was found, and without bounds nothing can be verified"
        )

    def _completely(
        self, engine: BoundEngine, cases: CaseEngine, prop: Property, witnesses: Witnesses
    ) -> Outcome | None:
        """What is cheap first; then branch and bound on the clauses that are left."""
        assert isinstance(cases, NativeCases)
        tell = self.bounds.tell_open_gaps
        search = CompleteSearch(self.job, prop, engine, self.monitor, self.ranks, self.proof, tell)
        begun_s = self.monitor.now_s
        found = self._attacked(prop, witnesses, FIRST_ATTACK_S, FIRST_ATTACK_SHARE, Effort.QUICK)
        if found is not None:
            return found
        self.bounds.run(cases, search.steps)
        if not self._all_open(prop):
            return None
        seconds = min(SECOND_ATTACK_S, max(SECOND_ATTACK_LEAST_S, 2.0 * (self.monitor.now_s - begun_s)))
        found = self._attacked(prop, witnesses, seconds, ATTACK_SHARE, Effort.THOROUGH)
        if found is not None:
            return found
        self.complete = search
        outcome = search.run(cases, witnesses, self.checkpoint)
        if outcome.counterexample is not None:
            return Outcome(Verdict.VIOLATED, witnesses.reason(outcome.counterexample), outcome.counterexample)
        self.stuck = outcome.stuck
        return None

    def _cases(self, network: Network, engine: BoundEngine) -> CaseEngine:
        if self.job.engine is Engine.AUTO_LIRPA:
            return ReferenceCases(network, self.monitor, self.ranks, self.ledger, self.job.sharding)
        return NativeCases(engine)

    def _checked(self, checker: Checker, outcome: Outcome) -> Outcome:
        """The outcome, or the error that the two engines contradict each other."""
        method = Method.ALPHA_CROWN if self.job.method is Method.COMPLETE else self.job.method
        self.cross_check = checker.run(method, outcome.counterexample)
        if self.cross_check.disagreements:
            reason = f"the engines disagree: {'; '.join(self.cross_check.disagreements)}"
            return Outcome(Verdict.ERROR, reason, outcome.counterexample)
        if self.cross_check.left_out:
            return replace(
                outcome, reason=f"{outcome.reason}; not cross-checked: {self.cross_check.left_out}"
            )
        return outcome

    def _engine(self, network: Network) -> BoundEngine:
        device = (
            torch.device("cuda", torch.cuda.current_device())
            if torch.cuda.is_available()
            else torch.device("cpu")
        )
        sharding, ledger, ranks = self.job.sharding, self.ledger, self.ranks
        if self.job.engine is Engine.AUTO_LIRPA:
            # It only certifies witnesses, on rank 0, from the constants as the file has them: not a part of the method.
            sharding, ledger, ranks = Sharding.NONE, MemoryLedger(ledger.limit_bytes), RankGroup()
        placed = place(network, sharding, ledger, device, ranks)
        if apart := placed.weights.apart:
            self.monitor.log(
                f"ranks gather weights from each other: they can share no memory ({apart})", "warning"
            )
        return BoundEngine(
            placed.network,
            placed.weights,
            ledger,
            arithmetic=self.job.arithmetic,
            ranks=placed.ranks,
            monitor=self.monitor,
            device=device,
            chunk_rows=self.job.chunk_rows,
            precision=self.job.precision,
            whole=placed.whole,
            exact_zones=self.job.sharding is Sharding.TP_EXACT,
        )

    def _attacked(
        self, prop: Property, witnesses: Witnesses, seconds: float, share: float, effort: Effort
    ) -> Outcome | None:
        """Rank 0 attacks the cases that have open clauses; what it finds is every rank's outcome."""
        found = None
        self.steps.tell("looking for a counterexample")
        with self.steps.agreed():
            if self.ranks.rank == 0:
                limit_s = min(seconds, share * self.monitor.remaining_s)
                with _threads(torch.get_num_threads() * self.ranks.on_this_machine):
                    found = self._attack(prop, witnesses, limit_s, effort)
                witnesses.release()
        return self.ranks.of_rank_0(found)

    def _attack(self, prop: Property, witnesses: Witnesses, seconds: float, effort: Effort) -> Outcome | None:
        """An outcome where a witness stands up to its replay."""
        keys = self._all_open(prop)
        counterexample = witnesses.attack(self.monitor, seconds, effort, keys)
        for key, value in witnesses.margins.items():
            self.proof.upper[key] = min(self.proof.upper.get(key, float("inf")), value)
        for number in dict.fromkeys(case for case, _ in keys):
            self.bounds.tell_gap(number, "attack")
        if counterexample is None:
            return None
        return Outcome(Verdict.VIOLATED, witnesses.reason(counterexample), counterexample)

    def _all_open(self, prop: Property) -> list[tuple[int, int]]:
        return [(case, clause) for case in range(len(prop.cases)) for clause in self.proof.open(prop, case)]

    @property
    def _means(self) -> str:
        """What proves clauses, in words."""
        if self.job.method is not Method.COMPLETE:
            return f"{self.job.method.label} bounds"
        searched = self.complete is not None and self.complete.summary is not None
        return "branch and bound" if searched else "bounds, before any split"

    def _decide(self, prop: Property, witnesses: Witnesses, engine_note: str) -> Outcome:
        clauses = [(case, clause) for case, c in enumerate(prop.cases) for clause in range(len(c.clauses))]
        left = [key for key in clauses if key not in self.proof.proven]
        note = engine_note + ("" if self.ranks.rank else witnesses.other_arithmetic_note())
        if not left:
            reason = f"every clause is excluded by {self._means}{note}"
            return Outcome(Verdict.VERIFIED, reason, witnesses.other_arithmetic)
        case, clause = min(left, key=lambda key: self.proof.lower.get(key, float("-inf")))
        worst = self.proof.lower.get((case, clause))
        reason = (
            f"{len(left)} of {len(clauses)} clauses are not excluded by {self._means}; "
            f"the least proven margin is {'none' if worst is None else f'{worst:.6g}'} (case {case}, clause {clause})"
            f"{note}"
        )
        if self.stuck:
            reason = f"{self.stuck}; {reason}"
        if self.bounds.cut_short:
            reason = (
                f"the time limit of {self.job.timeout_s:g} s cut the search for better bounds short: {reason}"
            )
            return Outcome(Verdict.TIMEOUT, reason, witnesses.other_arithmetic)
        return Outcome(Verdict.UNKNOWN, reason, witnesses.other_arithmetic)


@contextlib.contextmanager
def _threads(count: int) -> Iterator[None]:
    """Compute with so many threads, those of ranks that wait among them."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _budget(job: VerifyJob, ranks: RankGroup) -> int:
    """Bytes that this rank may hold: as asked, else half of what is free; ranks of one machine share its memory."""
    if job.memory_budget_bytes is not None:
        return job.memory_budget_bytes
    if torch.cuda.is_available():
        free, total = torch.cuda.mem_get_info()
        return free // 2 if job.memory_budget_share is None else int(total * job.memory_budget_share)
    memory = psutil.virtual_memory()
    if job.memory_budget_share is None:
        return int(memory.available) // 2 // ranks.on_this_machine
    return int(memory.total * job.memory_budget_share) // ranks.on_this_machine
