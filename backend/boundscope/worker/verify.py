"""The verify job: load, attack, bound, decide. One call on every rank; rank 0's result is the job's."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import psutil
import torch

from boundscope import capabilities
from boundscope.bounds import BoundEngine, MemoryLedger, MemorySampler, unsupported
from boundscope.command import command_line
from boundscope.errors import (
    BoundError,
    BoundscopeError,
    CancelledError,
    DeadlineError,
    DynamicShapeError,
    NetworkError,
    OutOfMemoryError,
    UnsupportedOperatorError,
)
from boundscope.monitor import Monitor
from boundscope.network.comparison import compare_with_onnxruntime
from boundscope.network.graph import Network
from boundscope.properties import ball_property, read_property, summarize
from boundscope.properties.types import Case, Property
from boundscope.protocol import (
    Counterexample,
    CrossCheck,
    Engine,
    EpsilonBall,
    GapPoint,
    Margin,
    Method,
    Progress,
    RankMemory,
    Seconds,
    Sharding,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.search.attack import Effort
from boundscope.sharding.place import cuts_shards, place
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.checkpoints import JobCheckpoint
from boundscope.worker.complete import CompleteSearch
from boundscope.worker.crosscheck import Checker
from boundscope.worker.engines import CaseEngine, NativeCases, ReferenceCases, Step
from boundscope.worker.files import JobFiles
from boundscope.worker.networks import Networks
from boundscope.worker.proof import Proof
from boundscope.worker.summary import network_summary
from boundscope.worker.unforeseen import unforeseen
from boundscope.worker.versions import versions
from boundscope.worker.witness import Witnesses

# The first attack is short: most properties that hold are proven in less time than a long one takes.
FIRST_ATTACK_S, FIRST_ATTACK_SHARE = 1.0, 0.05
SECOND_ATTACK_S = 1.0  # before branch and bound, which meets counterexamples on its way
ATTACK_S, ATTACK_SHARE = 5.0, 0.2
ROOT_SHARE = 0.25  # of the time, for the best bounds without splitting, before branch and bound


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
    def __init__(
        self, job: VerifyJob, files: JobFiles, monitor: Monitor, ranks: RankGroup, networks: Networks
    ) -> None:
        self.job, self.files, self.monitor, self.ranks = job, files, monitor, ranks
        self.networks = networks
        self.checkpoint = JobCheckpoint(job, files, monitor, ranks)
        self.times = {"load": 0.0, "parse": 0.0, "solve": 0.0}
        self.proof = Proof()
        self.property: Property | None = None
        self.ledger = MemoryLedger(_budget(job, ranks))
        self.cross_check: CrossCheck | None = None
        self.complete: CompleteSearch | None = None
        self.told_open: set[int] = set()  # cases, by the margins told last in a search
        self.cut_short = False  # a search for better bounds ended for want of time
        self.missing: tuple[str, ...] = ()  # operators that have no bounds, with their nodes
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
        margin = Margin(smallest=None) if self.property is None else self.proof.margin(self.property)
        return VerifyResult(
            verdict=outcome.verdict,
            reason=outcome.reason,
            arithmetic=self.job.arithmetic.label,
            margin=margin,
            seconds=Seconds(**self.times),
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
            with self._agreed(final=True):
                outcomes.append(self._run())
            return outcomes[0]
        except CancelledError:
            raise
        except DeadlineError:
            return Outcome(
                Verdict.TIMEOUT, f"the time limit of {self.job.timeout_s:g} s passed before an answer"
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

    @contextlib.contextmanager
    def _timed(self, part: str) -> Iterator[None]:
        start_s = self.monitor.now_s
        try:
            yield
        finally:
            self.times[part] += self.monitor.now_s - start_s

    @contextlib.contextmanager
    def _agreed(self, *, final: bool = False) -> Iterator[None]:
        """What one rank raises in the block, all ranks raise at its end: nobody waits for one that left."""
        error: BoundscopeError | None = None
        try:
            yield
        except (torch.OutOfMemoryError, MemoryError) as caught:
            if self.ranks.size == 1:
                raise
            error = OutOfMemoryError(str(caught) or "out of memory")
        except BoundscopeError as caught:
            error = caught
        self.ranks.agree(error, final=final)

    # ------------------------------------------------------------ steps

    def _run(self) -> Outcome:
        network, prop = self._load()
        with self._timed("solve"):
            return self._solve(network, prop)

    def _tell(self, stage: str, done: int = 0, total: int = 0) -> None:
        """What is being done, for those who watch."""
        if self.ranks.rank == 0:
            self.monitor.emit(Progress(stage=stage, done=done, total=total))

    @property
    def _only_parts(self) -> bool:
        """Whether what bounds needs no whole weights, once they are placed."""
        whole = self.job.engine is Engine.AUTO_LIRPA or self.job.cross_check
        return cuts_shards(self.job.sharding, self.ranks) and not whole

    def _load(self) -> tuple[Network, Property]:
        self._tell("reading the network")
        with self._agreed(), self._timed("load"):
            network = self.networks.load(self.files.network, shared=self.ranks if self._only_parts else None)
            self.monitor.check()
            self.missing = missing = unsupported(network)
            if self.ranks.rank == 0:
                self.monitor.emit(network_summary(network, missing))
            if missing:
                self.monitor.log(f"only an attack can decide: {'; '.join(missing)}", "warning")
        self._tell("reading the property")
        with self._timed("parse"):
            prop = self._read_property(network)
            self.property = prop
            if self.ranks.rank == 0:
                self.monitor.emit(summarize(prop))
        self._compare(network, prop)
        return network, prop

    def _compare(self, network: Network, prop: Property) -> None:
        """Refuse a network that ONNX Runtime reads differently; where only shapes differ because values decide them,
        it can still be attacked."""
        moving = ""
        with self._agreed(), self._timed("load"):
            if self.ranks.rank == 0 and prop.cases and self.networks.first_comparison(network):
                box = prop.cases[0].box
                self._tell("comparing with ONNX Runtime")
                try:
                    comparison = compare_with_onnxruntime(
                        network, box.lower, box.upper, seed=self.job.seed, between=self.monitor.check
                    )
                except DynamicShapeError as error:
                    moving = str(error)
                    self.networks.forget()
                    self.monitor.log(f"only an attack can decide: {moving}", "warning")
                else:
                    self.monitor.log(
                        f"ONNX Runtime agrees on all {comparison.tensors} tensors at {comparison.points} points; "
                        f"the largest difference is {comparison.max_difference:.3g} "
                        f"(node '{comparison.worst_node}')"
                    )
        moving = self.ranks.of_rank_0(moving)
        self.missing = (*self.missing, *([moving] if moving else []))

    def _checkpoint(self) -> None:
        """Stop on all ranks together where one of them is asked to, or is late."""
        with self._agreed():
            self.monitor.check()

    def _read_property(self, network: Network) -> Property:
        source = self.job.property
        if isinstance(source, EpsilonBall):
            if len(network.inputs) != 1:
                raise NetworkError("an ε-ball needs a network with one input")
            return ball_property(
                source,
                self.files.property,
                input_shape=network.inputs[0].shape,
                output_count=network.output_count,
            )
        return read_property(
            self.files.property, input_count=network.input_count, output_count=network.output_count
        )

    def _solve(self, network: Network, prop: Property) -> Outcome:
        if not any(case.clauses for case in prop.cases):
            return Outcome(Verdict.VERIFIED, "no input satisfies what the property asks of the inputs")
        self._checkpoint()
        with self._agreed():
            engine = self._engine(network)
        witnesses = Witnesses(self.job, self.files, network, prop, engine)
        cases = self._cases(network, engine)
        if self.missing:
            return self._only_attacked(prop, witnesses)
        checker = Checker(network, prop, engine, self.monitor) if self.job.cross_check else None
        if self.job.method is Method.COMPLETE:
            found = self._completely(engine, cases, prop, witnesses)
        else:
            found = self._attacked(prop, witnesses, ATTACK_S, ATTACK_SHARE, Effort.NORMAL)
            if found is None:
                self._bound(cases, prop, cases.steps(self.job.method))
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
        raise UnsupportedOperatorError(
            f"{'; '.join(self.missing)}; no counterexample was found, and without bounds nothing can be verified"
        )

    def _completely(
        self, engine: BoundEngine, cases: CaseEngine, prop: Property, witnesses: Witnesses
    ) -> Outcome | None:
        """What is cheap first; then branch and bound on the clauses that are left."""
        assert isinstance(cases, NativeCases)
        search = CompleteSearch(self.job, prop, engine, self.monitor, self.ranks, self.proof, self._emit_gaps)
        found = self._attacked(prop, witnesses, FIRST_ATTACK_S, FIRST_ATTACK_SHARE, Effort.QUICK)
        if found is not None:
            return found
        self._bound(cases, prop, search.steps)
        if not self._all_open(prop):
            return None
        found = self._attacked(prop, witnesses, SECOND_ATTACK_S, ATTACK_SHARE, Effort.THOROUGH)
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
        self._tell("looking for a counterexample")
        with self._agreed():
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
            self._emit_gap(number, prop.cases[number], "attack")
        if counterexample is None:
            return None
        return Outcome(Verdict.VIOLATED, witnesses.reason(counterexample), counterexample)

    def _bound(self, engine: CaseEngine, prop: Property, steps: Sequence[Step]) -> None:
        """What is cheap for every case first; then the last step for those that are still open, each with its share
        of the time."""
        if not steps:
            return
        *first, last = steps
        complete = self.job.method is Method.COMPLETE
        for number, case in enumerate(prop.cases):
            self._tell_case("cases", number, len(prop.cases) if first else 0)
            for step in first:
                engine.allow(self.monitor.remaining_s)
                self._bound_case(engine, number, case, step)
        waiting = [number for number in range(len(prop.cases)) if self.proof.open(prop, number)]
        for done, number in enumerate(waiting):
            self._tell_case("open cases", done, len(waiting))
            left_s = self.monitor.remaining_s * (
                ROOT_SHARE if complete and not self.job.force_synchronous else 1.0
            )
            engine.allow(left_s / (len(waiting) - done))
            self._bound_case(engine, number, prop.cases[number], last, decisive=not complete)
            if not complete:
                self.cut_short |= engine.cut_short and bool(self.proof.open(prop, number))

    def _tell_case(self, stage: str, done: int, total: int) -> None:
        """How many cases are done, where there are several."""
        if total > 1:
            self._tell(stage, done, total)

    def _all_open(self, prop: Property) -> list[tuple[int, int]]:
        return [(case, clause) for case in range(len(prop.cases)) for clause in self.proof.open(prop, case)]

    def _bound_case(
        self, engine: CaseEngine, number: int, case: Case, step: Step, *, decisive: bool = False
    ) -> None:
        """Bounds of a case's open clauses. Where there are none, a step that is not decisive only says so.

        Raises:
            BoundError: a decisive step gave no bounds.
        """
        assert self.property is not None
        open_clauses = self.proof.open(self.property, number)
        if not open_clauses:
            return
        try:
            self._margins_of_case(engine, number, case, open_clauses, step)
        except BoundError as error:
            if decisive:
                raise
            self.monitor.log(f"no {step.margins} bounds of case {number}: {error}", "warning")
        self._emit_gap(number, case, str(step.margins))

    def _margins_of_case(
        self, engine: CaseEngine, number: int, case: Case, open_clauses: list[int], step: Step
    ) -> None:
        constraints = [
            constraint for clause in open_clauses for constraint in case.clauses[clause].constraints
        ]
        margins = engine.margins(number, case, constraints, step)
        position = 0
        for clause in open_clauses:
            own = case.clauses[clause].constraints
            values = margins[position : position + len(own)]
            position += len(own)
            if wrong := [value for value in values if not value < math.inf]:
                raise BoundError(f"the margin of clause {clause} of case {number} is {wrong[0]}")
            key = (number, clause)
            if values:
                self.proof.lower[key] = max(self.proof.lower.get(key, float("-inf")), *values)
            if any(engine.excludes(value, one) for value, one in zip(values, own, strict=True)):
                self.proof.proven.add(key)

    def _emit_gap(self, number: int, case: Case, step: str) -> None:
        if self.ranks.rank:
            return
        for clause in range(len(case.clauses)):
            self.monitor.emit(
                GapPoint(
                    elapsed_s=self.monitor.elapsed_s,
                    case=number,
                    clause=clause,
                    lower=self.proof.lower.get((number, clause)),
                    upper=self.proof.upper.get((number, clause)),
                    step=step,
                )
            )

    def _emit_gaps(self, step: str) -> None:
        """The margins, as they are now, of every case that is open, or was when they were told last."""
        assert self.property is not None
        for number, case in enumerate(self.property.cases):
            is_open = bool(self.proof.open(self.property, number))
            if is_open or number in self.told_open:
                self._emit_gap(number, case, step)
            (self.told_open.add if is_open else self.told_open.discard)(number)

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
        if self.cut_short:
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
