"""The variability job: sample, merge, measure. One call on every rank; rank 0's result is the job's."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

import psutil
from msgspec.structs import replace

from boundscope import __version__, capabilities
from boundscope.bounds import MemoryLedger, MemorySampler
from boundscope.command import variability_command
from boundscope.errors import (
    BoundscopeError,
    CancelledError,
    DeadlineError,
    NetworkError,
    OutOfMemoryError,
    VariabilityError,
)
from boundscope.monitor import Monitor
from boundscope.network import Network, load_network
from boundscope.network.comparison import compare_with_onnxruntime
from boundscope.properties import ball_property, read_property, summarize
from boundscope.properties.types import Property
from boundscope.protocol import (
    EpsilonBall,
    NoiseSource,
    Progress,
    Seconds,
    SourceSearch,
    VariabilityJob,
    VariabilityResult,
    Verdict,
)
from boundscope.records import variability_tables
from boundscope.sharding.ranks import RankGroup
from boundscope.threads import core_count
from boundscope.variability.inputs import Inputs, draw_inputs, read_inputs
from boundscope.variability.moments_file import RunMoments
from boundscope.variability.sampling import (
    Part,
    Perturbation,
    Sampler,
    Tensors,
    class_axes,
    layers_of,
    require_memory,
    share,
    tensors_digest,
)
from boundscope.variability.sampling_folder import RunFolder
from boundscope.variability.source import Search
from boundscope.variability.tables_files import write_table
from boundscope.worker.files import VariabilityFiles
from boundscope.worker.noise import LiveNoise, Measured, flat_range, measure, told_sources, write_tables
from boundscope.worker.proven import Deployed, deployed
from boundscope.worker.steps import Steps
from boundscope.worker.summary import network_summary
from boundscope.worker.versions import versions

SAVE_S = 30.0  # between two writes of the moments of a rank
SAVE_SHARE = 0.1  # of a run's time that may go into them


def run_variability(
    job: VariabilityJob, files: VariabilityFiles, monitor: Monitor, ranks: RankGroup
) -> VariabilityResult:
    """Run one variability job on this rank.

    Every foreseeable failure becomes a result (error, timeout, out_of_memory) with its reason. The samples that were
    taken stay in `files.results`, and a run of the same job with the same folder goes on from there.

    Raises:
        CancelledError: somebody cancelled the job.
    """
    return _VariabilityRun(job, files, monitor, ranks).result()


@dataclass(frozen=True)
class _Subject:
    """What is measured, on this rank."""

    network: Network
    prop: Property | None
    sampler: Sampler
    folder: RunFolder


class _VariabilityRun:
    def __init__(
        self, job: VariabilityJob, files: VariabilityFiles, monitor: Monitor, ranks: RankGroup
    ) -> None:
        self.job, self.files, self.monitor, self.ranks = job, files, monitor, ranks
        self.steps = Steps(monitor, ranks)
        self.ledger = MemoryLedger(_budget(job, ranks))
        self.inputs: Inputs | None = None
        self.baseline_words = ""
        self.measured = Measured()
        self.samples = 0
        self.cut_short = False
        self.each_s = 0.0  # time of one pass over all points
        self.computing: tuple[str, ...] = ()  # nodes that round something
        self.sources: tuple[NoiseSource, ...] = ()
        self.sources_note = ""
        self.deployed = Deployed()

    def result(self) -> VariabilityResult:
        with MemorySampler(self.ledger, lambda: self.monitor.elapsed_s, self.monitor.emit):
            verdict, reason = self._guarded()
        measured, job = self.measured, self.job
        precision = "" if job.precision is None else f" to {job.precision} bits"
        inputs = self.files.inputs[0] if len(self.files.inputs) == 1 else None
        if len(self.files.inputs) > 1:
            inputs = self.files.inputs[0].parent
        result = VariabilityResult(
            verdict=verdict,
            reason=reason,
            samples_asked=job.samples,
            seconds=Seconds(**self.steps.times),
            arithmetic=f"{job.mode.label}{precision}, seed {job.seed}",
            points=0 if self.inputs is None else self.inputs.count,
            inputs="" if self.inputs is None else self.inputs.source,
            samples=self.samples,
            baseline=self.baseline_words,
            layers=measured.layers,
            decisions=measured.decisions,
            coverage=measured.coverage,
            sources=self.sources,
            sources_note=self.sources_note,
            deployed=self.deployed.layers,
            deployed_note=self.deployed.note,
            peak_bytes=tuple(self.ranks.gather(self.ledger.peaks(self.ranks.rank))),
            versions=versions(),
            command=variability_command(job, self.files.network, inputs, self.files.property),
            folder=str(self.files.results),
            files=measured.files,
        )
        return self._written(result)

    def _written(self, result: VariabilityResult) -> VariabilityResult:
        """The result, with its own tables beside those of the moments."""
        if self.ranks.rank or not result.files:
            return result
        names = []
        try:
            for table in variability_tables(result):
                if table.name in ("sources", "deployed"):
                    names.append(f"variability_{table.name}.{self.job.format}")
                    write_table(table, self.files.results / names[-1])
        except VariabilityError as error:
            return replace(result, verdict=Verdict.ERROR, reason=str(error))
        return replace(result, files=(*result.files, *names))

    def _guarded(self) -> tuple[Verdict | None, str]:
        try:
            capabilities.check_variability(self.job)
            return self._run()
        except CancelledError:
            raise
        except DeadlineError:
            return (
                Verdict.TIMEOUT,
                f"the time limit of {self.job.timeout_s:g} s passed before there were two samples",
            )
        except OutOfMemoryError as error:
            return Verdict.OUT_OF_MEMORY, str(error)
        except BoundscopeError as error:
            return Verdict.ERROR, str(error)

    # ------------------------------------------------------------ steps

    def _run(self) -> tuple[Verdict | None, str]:
        with self.steps.agreed():
            subject = self._load()
        with self.steps.timed("solve"):
            with self.steps.agreed():
                baseline = self._baseline(subject)
            self._same_on_all_ranks(baseline)
            run = self._sample(subject, baseline)
            with self.steps.agreed():
                if self.ranks.rank == 0:
                    self._measure(subject, run)
            if not self.cut_short:
                self._search(subject, baseline)
                with self.steps.agreed():
                    if self.ranks.rank == 0:
                        self._meet_proof(subject, run)
        return self._outcome()

    def _outcome(self) -> tuple[Verdict | None, str]:
        if self.cut_short:
            return Verdict.TIMEOUT, (
                f"the time limit of {self.job.timeout_s:g} s passed after {self.samples} of {self.job.samples} "
                "samples; the same command with the same folder takes the others"
            )
        violations = self.deployed.violations
        if violations:
            return Verdict.ERROR, (
                f"{len(violations)} layers leave what is proven for their points, so either the proof or the "
                f"arithmetic is wrong: {violations[0]}"
            )
        return None, f"{self.samples} samples of {self.inputs.source if self.inputs else 'nothing'}"

    def _load(self) -> _Subject:
        job, leads = self.job, self.ranks.rank == 0
        with self.steps.timed("load"):
            network = load_network(self.files.network)
            layers = layers_of(network, job.layers)
            if leads:
                self.monitor.emit(network_summary(network))
        with self.steps.timed("parse"):
            prop = self._read_property(network)
            if prop is not None and leads:
                self.monitor.emit(summarize(prop))
            self.inputs = self._read_inputs(network, prop)
        limit = self.ledger.limit_bytes
        if limit is not None:
            require_memory(layers, self.inputs.count, job.samples, limit)
        with self.steps.timed("load"):
            if leads:
                comparison = compare_with_onnxruntime(network, *flat_range(network, self.inputs), seed=0)
                self.monitor.log(
                    f"ONNX Runtime agrees on all {comparison.tensors} tensors at {comparison.points} points; "
                    f"the largest difference is {comparison.max_difference:.3g} (node '{comparison.worst_node}')"
                )
        threads = job.threads_per_rank or max(1, core_count() // self.ranks.size)
        how = Perturbation(job.mode.value, job.seed, job.precision, threads)
        sampler = Sampler(network, self.inputs, how, layers, self.monitor)
        return _Subject(network, prop, sampler, RunFolder(self.files.results, self._identity(self.inputs)))

    def _identity(self, inputs: Inputs) -> dict[str, str]:
        job = self.job
        return {
            "boundscope": __version__,
            "network": job.network.sha256,
            "points": inputs.digest(),
            "mode": job.mode.value,
            "seed": str(job.seed),
            "precision": str(job.precision or "the network's own"),
            "layers": ", ".join(job.layers) or "all",
            "class axis": str(job.class_axis or "the first"),
        }

    def _read_property(self, network: Network) -> Property | None:
        source, path = self.job.property, self.files.property
        if source is None or path is None:
            return None
        if isinstance(source, EpsilonBall):
            if len(network.inputs) != 1:
                raise NetworkError("an ε-ball needs a network with one input")
            shape = network.inputs[0].shape
            return ball_property(source, path, input_shape=shape, output_count=network.output_count)
        return read_property(path, input_count=network.input_count, output_count=network.output_count)

    def _read_inputs(self, network: Network, prop: Property | None) -> Inputs:
        job = self.job
        if prop is not None and job.draw:
            return draw_inputs(prop, network.inputs, job.draw, job.seed)
        mean, std = ([float(text) for text in texts] for texts in (job.mean, job.std))
        return read_inputs(self.files.inputs, network.inputs, mean=mean, std=std)

    def _baseline(self, subject: _Subject) -> Tensors:
        """The unperturbed tensors, taken twice by rank 0, which says whether the bits were the same."""
        if self.ranks.rank == 0:
            self.monitor.emit(Progress(stage="baseline", done=0, total=0))
        started_s = self.monitor.now_s
        tensors, coverage = subject.sampler.baseline()
        self.each_s = self.monitor.now_s - started_s
        self.computing = tuple(row.layer for row in coverage.layers() if row.total)
        if self.ranks.rank == 0:
            self.measured.cover(coverage)
            self.monitor.log(coverage.sentence())
            again, _ = subject.sampler.baseline()
            differing = [name for name, one in tensors.items() if one.tobytes() != again[name].tobytes()]
            if differing:
                self.baseline_words = f"not bit-stable: two unperturbed runs differ in {', '.join(differing)}"
                self.monitor.log(f"the baseline is {self.baseline_words}", "warning")
            else:
                self.baseline_words = "bit-stable: two unperturbed runs have the same bits in every layer"
        return tensors

    def _same_on_all_ranks(self, baseline: Tensors) -> None:
        if len(set(self.ranks.gather(tensors_digest(baseline)))) > 1:
            raise VariabilityError(
                "the ranks' unperturbed runs have different bits, so their samples cannot be joined; run on one rank"
            )

    # ------------------------------------------------------------ samples

    def _sample(self, subject: _Subject, baseline: Tensors) -> RunMoments:
        """All samples on rank 0; on another rank its own."""
        job, rank, folder = self.job, self.ranks.rank, subject.folder
        classes = class_axes(subject.sampler.layers, job.class_axis)
        run = None
        with self.steps.agreed():
            if rank == 0:
                run = folder.resume(baseline, classes)
                if run.numbers:
                    # Parts that a stopped run left are in `run` now, and must not be there when ranks write new ones.
                    folder.finish(run, 1)
                    self.monitor.log(f"{len(run.numbers)} samples were there already, in {folder.moments}")
        missing = self.ranks.of_rank_0(() if run is None else run.missing(job.samples))
        mine = share(missing, rank, self.ranks.size)
        run = run if run is not None else folder.start(baseline, classes)
        path = folder.moments if rank == 0 else folder.part(rank)
        with self.steps.agreed():
            self._take(subject.sampler, run, mine, path)
        self.cut_short = any(self.ranks.gather(self.cut_short))
        with self.steps.agreed():
            if rank == 0:
                folder.finish(run, self.ranks.size)
                self.samples = len(run.numbers)
        self.samples = self.ranks.of_rank_0(self.samples)
        return run

    def _take(self, sampler: Sampler, run: RunMoments, numbers: tuple[int, ...], path: Path) -> None:
        """Take samples until all are there or the time is up, and leave them in the file however it ends."""
        leads = self.ranks.rank == 0
        live = LiveNoise(sampler, run, self.monitor, len(numbers), self.each_s, leads=leads)
        saved_s, cost_s = time.monotonic(), 0.0

        def taken(number: int) -> None:
            nonlocal saved_s, cost_s
            live.tell()
            due_s = time.monotonic()
            if due_s - saved_s > max(SAVE_S, cost_s / SAVE_SHARE):
                run.save(path)
                saved_s = time.monotonic()
                cost_s = saved_s - due_s

        try:
            Part(sampler, run, numbers, taken).run()
        except DeadlineError:
            self.cut_short = True
        finally:
            run.save(path)

    # ------------------------------------------------------------ what they say

    def _measure(self, subject: _Subject, run: RunMoments) -> None:
        if self.cut_short and self.samples < capabilities.LEAST_SAMPLES:
            raise DeadlineError("the time limit passed")
        measure(self.measured, subject.sampler, run, self.monitor)
        self.measured.files = write_tables(self.files.results, run, self.job.format, self.monitor)

    def _search(self, subject: _Subject, baseline: Tensors) -> None:
        """Where the noise comes from, on all ranks; what there is no time for is left out, with a word."""
        if self.job.source is SourceSearch.NONE:
            return

        def told(done: int, total: int) -> None:
            if self.ranks.rank == 0:
                self.monitor.emit(Progress(stage="looking for sources", done=done, total=total))

        search = Search(subject.sampler, baseline, self.job.samples, self.ranks, told)
        try:
            found = search.run(self.job.source, self.computing)
        except DeadlineError:
            self.sources_note = "the time limit passed before all layers had been looked at"
            return
        self.sources, self.sources_note = told_sources(found, subject.sampler.layers, self.measured.layers)

    def _meet_proof(self, subject: _Subject, run: RunMoments) -> None:
        """Proven and observed of every layer, where the job has a property."""
        if subject.prop is None:
            return
        try:
            self.deployed = deployed(subject.sampler, run, subject.prop, self.job.mode, self.monitor)
        except DeadlineError:
            self.deployed = Deployed(note="no bound is proven: the time limit passed first")
        if self.deployed.note:
            self.monitor.log(self.deployed.note, "warning")


def _budget(job: VariabilityJob, ranks: RankGroup) -> int:
    """Bytes that this rank may hold: as asked, else half of what is free, shared by the ranks of this machine."""
    if job.memory_budget_bytes is not None:
        return job.memory_budget_bytes
    return int(psutil.virtual_memory().available) // 2 // ranks.on_this_machine
