"""What the run in the form will need, in a sentence, before it is sent. No Qt."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from boundscope.costs import Device, Prediction, Setup, device_of_ranks, predict, worst
from boundscope.protocol import (
    Engine,
    InstancesJob,
    JobInfo,
    JobState,
    MachineCosts,
    Method,
    NetworkCosts,
    NetworkSummary,
    PropertySummary,
    VariabilityJob,
    VerifyJob,
)
from boundscope_app.benchmark_draft import BenchmarkDraft
from boundscope_app.draft import Draft, Options
from boundscope_app.format import duration, size
from boundscope_app.link_types import Inspection
from boundscope_app.noise_draft import NoiseDraft

AnyDraft = Draft | NoiseDraft | BenchmarkDraft
BUDGET_PART = 2  # a run may hold half of what is free, where no budget is given
NOISE_SLOWDOWN = 40.0  # of a rounding at random of every operation, over a product of matrices
NOISE_START_S = 1.0
MOMENT_BYTES = 24  # of an element watched, at each point: mean, second moment, and the value
COPIES_OF_WEIGHTS = 3  # as stored, in float64, and as the layer at work has them


@dataclass(frozen=True)
class Estimate:
    """`text` is "" where nothing can be said; `warns` where the run will not, or may not, fit."""

    text: str = ""
    warns: bool = False


@dataclass(frozen=True)
class Question:
    """All that an estimate depends on; equal questions have equal answers."""

    draft: AnyDraft
    network: NetworkSummary | None = None
    property: PropertySummary | None = None
    last: str = ""

    @classmethod
    def of(cls, draft: AnyDraft, seen: Inspection | None, infos: Iterable[JobInfo]) -> Question:
        network = None if seen is None else seen.network
        prop = None if seen is None else seen.property
        return cls(draft, network, prop, last_time(draft, infos))


def answer(question: Question) -> Estimate:
    """Pure, and slow for large networks: tens of milliseconds."""
    draft, network = question.draft, question.network
    if isinstance(draft, BenchmarkDraft):
        return _with_last(Estimate(), question)  # the form tells the sum of the time limits
    if network is None or network.costs is None or network.machine is None:
        return _with_last(Estimate(), question)
    if isinstance(draft, NoiseDraft):
        return _with_last(_of_noise(draft, network, network.costs, network.machine), question)
    if draft.options.engine is not Engine.NATIVE:
        return _with_last(Estimate("Only the native engine’s needs can be told beforehand."), question)
    return _with_last(_of_bounds(draft.options, network.costs, network.machine, question.property), question)


def _with_last(estimate: Estimate, question: Question) -> Estimate:
    parts = [part for part in (estimate.text, question.last) if part]
    return Estimate(" ".join(parts), estimate.warns)


def last_time(draft: AnyDraft, infos: Iterable[JobInfo]) -> str:
    """How long the same files took by the same method and ranks, when they were run last; "" where they were not."""
    title, found = draft.title, None
    for info in infos:
        if title and info.title == title and info.state is JobState.FINISHED and _same_way(draft, info):
            found = info
    if found is None or found.ended_s is None:
        return ""
    seconds = found.run_s(found.ended_s)
    return "" if seconds is None else f"Last time it took {duration(seconds)}."


def _same_way(draft: AnyDraft, info: JobInfo) -> bool:
    job = info.job
    if isinstance(draft, NoiseDraft):
        return isinstance(job, VariabilityJob) and (job.mode, job.samples, job.ranks) == (
            draft.options.mode,
            draft.options.samples,
            draft.options.ranks,
        )
    verify = job.verify if isinstance(job, InstancesJob) else job
    if not isinstance(verify, VerifyJob):
        return False
    if isinstance(draft, BenchmarkDraft) != isinstance(job, InstancesJob):
        return False
    asked = draft.options
    return (verify.method, verify.engine, verify.sharding, verify.ranks) == (
        asked.method,
        asked.engine,
        asked.sharding,
        asked.ranks,
    )


def _about(seconds: float) -> str:
    """No more digits than an estimate has."""
    if seconds < 1:
        return "less than 1 s"
    return f"about {seconds:.0f} s" if seconds < 60 else f"about {duration(seconds)}"


# ---------------------------------------------------------------- verify


def budget_bytes(options: Options, machine: MachineCosts) -> int:
    """What a rank may hold: as asked, a share being of all memory; else its part of half of what was free."""
    if options.memory_budget_bytes is not None:
        return options.memory_budget_bytes
    sharers = 1 if machine.gpu else _ranks_here(options)
    if options.memory_budget_share is not None:
        return int(machine.total_bytes * options.memory_budget_share) // sharers
    return machine.free_bytes // BUDGET_PART // sharers


def _ranks_here(options: Options) -> int:
    return max(1, options.ranks // max(1, len(options.nodes)))


def _of_bounds(
    options: Options, costs: NetworkCosts, machine: MachineCosts, prop: PropertySummary | None
) -> Estimate:
    budget = budget_bytes(options, machine)
    cases = 1 if prop is None else max(1, prop.case_count)
    clauses = sum(one.elements for one in costs.tensors if one.name in costs.outputs)
    setup = Setup(
        method=options.method,
        sharding=options.sharding,
        ranks=options.ranks,
        constraints=clauses if prop is None else -(-prop.clause_count // cases),
        cases=cases,
        chunk_rows=options.chunk_rows,
        budget_bytes=budget,
        precision=options.precision,
        timeout_s=options.timeout_s,
        shares_memory=not machine.gpu and len(options.nodes) < 2,
    )
    expected, most = predict(costs, setup), worst(costs, setup)
    device = Device(machine.single_flops, machine.double_flops, cores=1 if machine.gpu else machine.cores)
    if not machine.gpu:
        device = device_of_ranks(device, setup, _ranks_here(options))
    need = _memory_words(expected, most, options.ranks, budget)
    seconds = expected.seconds(device)
    time = _time_words(options, seconds, expected)
    if expected.peak_bytes > budget:
        advice = (
            "take more ranks or a smaller method" if options.ranks > 1 else "choose a sharding and more ranks"
        )
        return Estimate(f"Will not fit: {need}. {advice[0].upper()}{advice[1:]}.", True)
    if most.peak_bytes > budget:
        return Estimate(f"May not fit: {need}, and {time}.", True)
    return Estimate(f"Needs {need}, and {time}.", seconds > options.timeout_s)


def _memory_words(expected: Prediction, most: Prediction, ranks: int, budget: int) -> str:
    each = "" if ranks == 1 else " a rank"
    more = "" if most.peak_bytes <= 1.1 * expected.peak_bytes else f", at most {size(most.peak_bytes)}"
    return f"about {size(expected.peak_bytes)}{each}{more} (you have {size(budget)})"


def _time_words(options: Options, seconds: float, expected: Prediction) -> str:
    if options.method is Method.COMPLETE:
        return f"{_about(seconds)} before it splits, then {size(expected.domain_bytes)} a domain"
    late = " – more than its time limit" if seconds > options.timeout_s else ""
    return f"{_about(seconds)}{late}"


# ---------------------------------------------------------------- variability


def _of_noise(
    draft: NoiseDraft, network: NetworkSummary, costs: NetworkCosts, machine: MachineCosts
) -> Estimate:
    options = draft.options
    elements = sum(one.elements for one in costs.tensors)
    points = draft.draw or (len(draft.points) if isinstance(draft.points, tuple) else 0)
    each_s = 2.0 * NOISE_SLOWDOWN * sum(node.multiply_adds for node in costs.nodes) / machine.single_flops
    memory = COPIES_OF_WEIGHTS * network.weight_bytes + MOMENT_BYTES * elements * max(1, points)
    budget = options.memory_budget_bytes or machine.free_bytes // BUDGET_PART // max(1, options.ranks)
    rank = "" if options.ranks == 1 else " a rank"
    if not points:
        return Estimate(
            f"Needs about {size(memory)}{rank} a point, and {_about(each_s * options.samples)} each."
        )
    seconds = NOISE_START_S + each_s * options.samples * points
    text = f"about {size(memory)}{rank} (you have {size(budget)}), and {_about(seconds)}"
    return (
        Estimate(f"Needs {text}.", seconds > options.timeout_s)
        if memory <= budget
        else Estimate(f"May not fit: {text}.", True)
    )
