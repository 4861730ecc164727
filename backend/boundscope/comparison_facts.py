"""What was asked of each of several runs, and what came of it: the lines of the table of differences.

Imports neither torch nor Qt.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from boundscope.layers import DIGITS_PER_BIT, noise_now
from boundscope.protocol import (
    InstancesJob,
    JobInfo,
    PropertyFile,
    PropertySource,
    Sharding,
    VariabilityJob,
    VerifyJob,
)
from boundscope.records import Cell, JobRecord

Value = Cell
DEFAULT = "automatic"  # an option that was left open; a line of nothing else says nothing


@dataclass(frozen=True)
class Run:
    """A job and all that it has said so far; the record grows while the job runs."""

    info: JobInfo
    record: JobRecord


@dataclass(frozen=True)
class Fact:
    """One line of the table of differences: a value a run, None where a run has none.

    `asked` tells what was asked for from what came of it. `unit` is "s", "B" or "".
    """

    name: str
    values: tuple[Value, ...]
    unit: str = ""
    asked: bool = False

    @property
    def differs(self) -> bool:
        """Whether the runs do not all have the same value; an option that a run's kind does not have does not count."""
        values = [value for value in self.values if value is not None] if self.asked else self.values
        return len(set(values)) > 1

    @property
    def label(self) -> str:
        return f"{self.name} [{self.unit}]" if self.unit else self.name


# ---------------------------------------------------------------- names


def run_names(runs: Sequence[Run]) -> tuple[str, ...]:
    """Each run by what tells it from the others: "rows, 2 ranks"; runs that were asked the same are numbered."""
    jobs = [run.info.job for run in runs]
    parts = [_name_parts(run) for run in runs]
    kinds = len({type(job) for job in jobs}) > 1
    names = []
    for run, mine in zip(runs, parts, strict=True):
        told = [
            text
            for key, text in mine.items()
            if text and (len({other[key] for other in parts if key in other}) > 1 or (kinds and key == "how"))
        ]
        names.append(", ".join(told) or _short_title(run.info))
    counts = {name: names.count(name) for name in names}
    seen: dict[str, int] = {}
    unique = []
    for name in names:
        seen[name] = seen.get(name, 0) + 1
        unique.append(f"{name} ({seen[name]})" if counts[name] > 1 else name)
    return tuple(unique)


def _short_title(info: JobInfo) -> str:
    return info.title or info.id


def _name_parts(run: Run) -> dict[str, str]:
    """What may tell a run from another, the telling first."""
    job = run.info.job
    if isinstance(job, VerifyJob):
        return {
            "network": job.network.name,
            "property": property_text(job.property),
            "how": job.method.label,
            "engine": job.engine.value,
            "sharding": "no sharding" if job.sharding is Sharding.NONE else job.sharding.value,
            "ranks": counted(job.ranks, "rank"),
            "arithmetic": job.arithmetic.label,
            "precision": job.precision.value,
            "branching": f"splitting {job.branching.value}",
            "seed": f"seed {job.seed}",
            "nodes": counted(len(job.nodes), "node") if job.nodes else "",
            "budget": _budget_text(job),
            "chunk": "" if job.chunk_rows is None else f"{job.chunk_rows} rows at a time",
            "timeout": f"limit {job.timeout_s:g} s",
        }
    if isinstance(job, VariabilityJob):
        return {
            "network": job.network.name,
            "how": job.mode.upper(),
            "significand": _bits_text(job.precision),
            "points": _points_text(job),
            "samples": counted(job.samples, "sample"),
            "seed": f"seed {job.seed}",
            "ranks": counted(job.ranks, "rank"),
        }
    if isinstance(job, InstancesJob):
        return {"how": job.verify.method.label, "ranks": counted(job.ranks, "rank"), "name": job.name}
    return {"how": run.info.kind}


def counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _bits_text(bits: int | None) -> str:
    return "network’s precision" if bits is None else f"{bits}-bit significands"


def _points_text(job: VariabilityJob) -> str:
    if job.draw:
        return f"{counted(job.draw, 'point')} drawn"
    return job.inputs[0].name if len(job.inputs) == 1 else f"{len(job.inputs)} files"


def _budget_text(job: VerifyJob) -> str:
    if job.memory_budget_bytes is not None:
        return f"budget {job.memory_budget_bytes / 2**20:g} MiB"
    return "" if job.memory_budget_share is None else f"budget {job.memory_budget_share:g} of the memory"


def property_text(source: PropertySource) -> str:
    """The property as people call it: file name, or the ball's radius and centre."""
    if hasattr(source, "file"):
        return source.file.name
    return f"ε = {source.epsilon} ({source.norm.label}) around {source.center.name}, label {source.label}"


# ---------------------------------------------------------------- facts

_Getter = Callable[[Run], Value]


def facts(runs: Sequence[Run]) -> tuple[Fact, ...]:
    """The table of differences; lines that no run has a value for are left out."""
    found = [
        Fact(name, tuple(get(run) for run in runs), unit, asked)
        for name, unit, asked, get in (*_ASKED, *_FOUND, *_peaks(runs))
    ]
    return tuple(fact for fact in found if any(value not in (None, DEFAULT) for value in fact.values))


def _verify(get: Callable[[VerifyJob], Value]) -> _Getter:
    """Of the job that verifies, also of a benchmark's."""

    def read(run: Run) -> Value:
        job = run.info.job.verify if isinstance(run.info.job, InstancesJob) else run.info.job
        return get(job) if isinstance(job, VerifyJob) else None

    return read


def _noise(get: Callable[[VariabilityJob], Value]) -> _Getter:
    def read(run: Run) -> Value:
        return get(run.info.job) if isinstance(run.info.job, VariabilityJob) else None

    return read


def _field(name: str) -> _Getter:
    """A field that several kinds of job have."""
    return lambda run: getattr(run.info.job, name, None)


def _threads(run: Run) -> Value:
    job = run.info.job
    return (job.threads_per_rank or DEFAULT) if isinstance(job, VerifyJob | VariabilityJob) else None


def _network(run: Run) -> Value:
    job = run.info.job
    return job.network.name if isinstance(job, VerifyJob | VariabilityJob) else None


def network_of(run: Run) -> Value:
    job = run.info.job
    return job.network.sha256[:12] if isinstance(job, VerifyJob | VariabilityJob) else None


def _property(run: Run) -> Value:
    job = run.info.job
    source = job.property if isinstance(job, VerifyJob | VariabilityJob) else None
    return None if source is None else property_text(source)


def _property_contents(run: Run) -> Value:
    job = run.info.job
    source = job.property if isinstance(job, VerifyJob | VariabilityJob) else None
    return source.file.sha256[:12] if isinstance(source, PropertyFile) else None


def _kind(run: Run) -> Value:
    return {"verify": "proof", "variability": "noise", "instances": "benchmark"}.get(
        run.info.kind, run.info.kind
    )


_ASKED: tuple[tuple[str, str, bool, _Getter], ...] = (
    ("kind", "", True, _kind),
    ("network", "", True, _network),
    ("network's SHA-256", "", True, network_of),
    ("property", "", True, _property),
    ("property's SHA-256", "", True, _property_contents),
    ("method", "", True, _verify(lambda job: job.method.value)),
    ("engine", "", True, _verify(lambda job: job.engine.value)),
    ("arithmetic", "", True, _verify(lambda job: job.arithmetic.label)),
    ("precision", "", True, _verify(lambda job: job.precision.value)),
    ("rounding", "", True, _noise(lambda job: job.mode.label)),
    ("significand", "", True, _noise(lambda job: _bits_text(job.precision))),
    ("points", "", True, _noise(_points_text)),
    ("samples asked", "", True, _noise(lambda job: job.samples)),
    ("sharding", "", True, _verify(lambda job: job.sharding.value)),
    ("ranks", "", True, _field("ranks")),
    ("nodes", "", True, _verify(lambda job: " ".join(job.nodes) or DEFAULT)),
    ("threads per rank", "", True, _threads),
    ("branching", "", True, _verify(lambda job: job.branching.value if _is_complete(job) else None)),
    ("batch", "", True, _verify(lambda job: (job.batch or DEFAULT) if _is_complete(job) else None)),
    ("rounds", "", True, _verify(lambda job: _rounds(job) if _is_complete(job) else None)),
    ("rows at a time", "", True, _verify(lambda job: job.chunk_rows or DEFAULT)),
    ("memory budget per rank", "", True, _verify(lambda job: _budget_text(job) or DEFAULT)),
    ("seed", "", True, lambda run: getattr(_with_seed(run), "seed", None)),
    ("time limit", "s", True, _field("timeout_s")),
)


def _rounds(job: VerifyJob) -> str:
    return "of the job's alone" if job.force_synchronous else DEFAULT


def _is_complete(job: VerifyJob) -> bool:
    return job.method.value == "complete"


def _with_seed(run: Run) -> object:
    return run.info.job.verify if isinstance(run.info.job, InstancesJob) else run.info.job


def _verdict(run: Run) -> Value:
    if isinstance(run.info.job, VariabilityJob) and run.info.verdict is None and run.record.variability:
        return "measured"
    return None if run.info.verdict is None else run.info.verdict.value


def _seconds(name: str) -> _Getter:
    def read(run: Run) -> Value:
        result = run.record.result or run.record.variability
        return None if result is None else float(getattr(result.seconds, name))

    return read


def _wall(run: Run) -> Value:
    return run.info.run_s(run.info.ended_s) if run.info.ended_s is not None else None


def _margin(run: Run) -> Value:
    """The least proven margin: of the result, or, while the run goes on, the least of those told last."""
    if run.record.result is not None:
        return run.record.result.margin.smallest
    lowers = [_last(series.lower) for series in run.record.gaps.values()]
    if not lowers or any(lower is None for lower in lowers):
        return None
    return min(lower for lower in lowers if lower is not None)


def _reached(run: Run) -> Value:
    if run.record.result is not None:
        uppers = [one.upper for one in run.record.result.margin.per_clause]
    else:
        uppers = [_last(series.upper) for series in run.record.gaps.values()]
    return min((upper for upper in uppers if upper is not None), default=None)


def _last(values: Sequence[float | None]) -> float | None:
    return next((value for value in reversed(values) if value is not None), None)


def _excluded(run: Run) -> Value:
    if run.record.result is None or not run.record.result.margin.per_clause:
        return None
    clauses = run.record.result.margin.per_clause
    return f"{sum(one.excluded for one in clauses)} of {len(clauses)}"


def _domains(run: Run) -> Value:
    result = run.record.result
    if result is not None and result.search is not None:
        return result.search.domains
    return run.record.search[-1].done if run.record.search else None


def _depth(run: Run) -> Value:
    result = run.record.result
    if result is not None and result.search is not None:
        return result.search.depth
    return max((point.depth for point in run.record.search), default=None)


def _open(run: Run) -> Value:
    result = run.record.result
    if result is not None and result.search is not None:
        return result.search.open
    return run.record.search[-1].open if run.record.search else None


def _alpha_rounds(run: Run) -> Value:
    """How often bounds with optimised slopes were told; None where the method has none."""
    told = [
        sum(step.startswith(("alpha", "α")) for step in series.step) for series in run.record.gaps.values()
    ]
    return max(told, default=0) or None


def _unstable(run: Run) -> Value:
    counts = [layer.unstable for layer in run.record.layers.values() if layer.unstable is not None]
    return sum(counts) if counts else None


def _measured(get: Callable[[Run], Value]) -> _Getter:
    return lambda run: get(run) if isinstance(run.info.job, VariabilityJob) else None


def _samples(run: Run) -> Value:
    if run.record.variability is not None:
        return run.record.variability.samples
    return max((each.samples for each in noise_now(run.record.noise, None)), default=None)


def _bits(run: Run) -> list[tuple[float, str]]:
    layers = noise_now(run.record.noise, run.record.variability)
    return [(each.mean_bits, each.layer) for each in layers if each.mean_bits is not None]


def _least_digits(run: Run) -> Value:
    return min(((bits * DIGITS_PER_BIT) for bits, _ in _bits(run)), default=None)


def _least_layer(run: Run) -> Value:
    return min(_bits(run), default=(0.0, None))[1]


def _flipped(run: Run) -> Value:
    found = run.record.variability
    if found is None or not found.decisions:
        return None
    return f"{sum(one.flipped for one in found.decisions)} of {sum(one.decisions for one in found.decisions)}"


def _solved(run: Run) -> Value:
    if not isinstance(run.info.job, InstancesJob):
        return None
    done = [one for one in run.record.instances.values() if one.verdict.value in ("verified", "violated")]
    return f"{len(done)} of {len(run.info.job.instances)}"


_FOUND: tuple[tuple[str, str, bool, _Getter], ...] = (
    ("state", "", False, lambda run: run.info.state.value),
    ("verdict", "", False, _verdict),
    ("least margin", "", False, _margin),
    ("least margin reached by an input", "", False, _reached),
    ("clauses excluded", "", False, _excluded),
    ("instances solved", "", False, _solved),
    ("α rounds told", "", False, _alpha_rounds),
    ("unstable neurons", "", False, _unstable),
    ("domains bounded", "", False, _domains),
    ("domains open", "", False, _open),
    ("deepest domain", "splits", False, _depth),
    ("samples taken", "", False, _measured(_samples)),
    ("least mean decimal digits of a layer", "", False, _measured(_least_digits)),
    ("layer of these", "", False, _measured(_least_layer)),
    ("decisions flipped", "", False, _flipped),
    ("whole run", "s", False, _wall),
    ("load", "s", False, _seconds("load")),
    ("parse", "s", False, _seconds("parse")),
    ("solve", "s", False, _seconds("solve")),
    ("host", "", False, lambda run: run.info.host or None),
)


def peaks(record: JobRecord) -> dict[int, int]:
    """Most bytes that the ledger of each rank held: as the result says, or of the samples so far."""
    result = record.result
    if result is not None and any(memory.ledger_peak_bytes for memory in result.peak_bytes):
        return {memory.rank: memory.ledger_peak_bytes for memory in result.peak_bytes}
    totals = {rank: max(series.total_bytes, default=0) for rank, series in record.memory.items()}
    return {rank: total for rank, total in totals.items() if total}


def resident_peaks(record: JobRecord) -> dict[int, int]:
    """Most resident bytes of each rank, as the result says or as sampled so far."""
    result = record.result or record.variability
    if result is not None and result.peak_bytes:
        return {memory.rank: memory.resident_peak_bytes for memory in result.peak_bytes}
    return {rank: max(series.resident_bytes, default=0) for rank, series in record.memory.items()}


def _peaks(runs: Sequence[Run]) -> list[tuple[str, str, bool, _Getter]]:
    """Peaks of the worst rank and of all together, then of each rank by its number."""
    ranks = sorted({rank for run in runs for rank in (*peaks(run.record), *resident_peaks(run.record))})

    def worst(of: Callable[[JobRecord], dict[int, int]]) -> _Getter:
        return lambda run: max(of(run.record).values(), default=None)

    def whole(of: Callable[[JobRecord], dict[int, int]]) -> _Getter:
        return lambda run: sum(of(run.record).values()) or None

    def one(rank: int) -> _Getter:
        return lambda run: peaks(run.record).get(rank)

    rows = [
        ("peak of the worst rank", "B", False, worst(peaks)),
        ("peaks of all ranks together", "B", False, whole(peaks)),
        ("resident peak of the worst rank", "B", False, worst(resident_peaks)),
    ]
    if len(ranks) > 1:
        rows += [(f"peak of rank {rank}", "B", False, one(rank)) for rank in ranks]
    return rows
