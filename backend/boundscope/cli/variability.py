"""`boundscope variability`: read the options, check them, run, and write what was found; and compare two runs."""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from boundscope import capabilities
from boundscope.cli import inputs, noise, results
from boundscope.cli.execution import connect, follow, no_result
from boundscope.cli.interrupt import Stop, Suspension, stop_on_signal, suspend_on_signal
from boundscope.cli.output import complain
from boundscope.cli.progress import ProgressLine
from boundscope.cli.recorder import Recorder
from boundscope.cli.verify import check_ball, prepare_outputs, property_source
from boundscope.command import variability_command
from boundscope.errors import BoundscopeError, CancelledError, UsageError
from boundscope.monitor import Monitor
from boundscope.protocol import (
    EpsilonBall,
    FileRef,
    PropertyFile,
    VariabilityJob,
    VariabilityResult,
    Verdict,
)
from boundscope.startup import large_imports
from boundscope.threads import core_count, thread_variables
from boundscope.worker.files import VariabilityFiles

if TYPE_CHECKING:
    from boundscope.client import Client

COMPARE = Path("compare")


def run(arguments: argparse.Namespace) -> int:
    """Exit status by the result; a foreseeable failure is the verdict `error`, also in the JSON."""
    if arguments.network == COMPARE:
        return compare(arguments)
    check_options(arguments)
    arguments.csv, arguments.report = None, arguments.out
    prepare_outputs(arguments)
    points = point_files(arguments.inputs)
    with results_folder(arguments.out) as folder:
        files = VariabilityFiles(
            network=arguments.network,
            results=folder,
            inputs=points,
            property=arguments.ball or arguments.property,
        )
        job = read_job(arguments, files)
        try:
            if arguments.daemon is None:
                result = run_here(job, files)
            else:
                result = run_on_daemon(job, files, None if arguments.daemon == Path() else arguments.daemon)
        except (UsageError, CancelledError):
            raise
        except BoundscopeError as error:
            if arguments.json is not None:
                results.write_json(failed(job, str(error)), arguments.json)
            raise
        command = variability_command(job, arguments.network, arguments.inputs, files.property)
        if arguments.out is not None and arguments.daemon is not None:
            result = fetched(result, arguments.out)
        elif arguments.out is None and arguments.daemon is None:
            result = msgspec.structs.replace(result, folder="", files=())
        result = msgspec.structs.replace(result, command=command)
    if arguments.json != "-":
        noise.print_summary(result)
    if arguments.json is not None:
        results.write_json(result, arguments.json)
    return result.exit_code


def check_options(arguments: argparse.Namespace) -> None:
    """UsageError for options that do not go together."""
    if arguments.runs:
        raise UsageError(
            f"{arguments.runs[0]}: only `compare` takes more than NET; points are given by --inputs"
        )
    check_ball(arguments, ("epsilon", "norm", "label", "clip"))
    if arguments.inputs is None and not arguments.draw:
        raise UsageError("give --inputs FILE, or --property P with --draw N points of its box")
    if arguments.threads is not None and arguments.threads < 1:
        raise UsageError(f"--threads {arguments.threads}: there must be at least one thread")
    inputs.check_order(arguments.network, arguments.property)


def point_files(path: Path | None) -> tuple[Path, ...]:
    """The files that --inputs names: one, or the images of a folder by name."""
    if path is None:
        return ()
    if not path.is_dir():
        return (path,)
    found = tuple(sorted(each for each in path.iterdir() if each.suffix.lower() == ".png"))
    if not found:
        raise UsageError(f"--inputs {path}: the folder has no PNG images (.png)")
    return found


@contextmanager
def results_folder(out: Path | None) -> Iterator[Path]:
    """The folder that was asked for, or one that is gone afterwards."""
    if out is not None:
        yield out.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="boundscope-") as folder:
        yield Path(folder)


def read_job(arguments: argparse.Namespace, files: VariabilityFiles) -> VariabilityJob:
    """The job that the options describe, with its files hashed and checked."""
    given = files.property is not None
    job = VariabilityJob(
        network=inputs.describe(arguments.network, "NET"),
        inputs=tuple(inputs.describe(path, "INPUTS") for path in files.inputs),
        property=property_source(arguments) if given else None,
        draw=arguments.draw,
        mode=arguments.mode,
        samples=arguments.samples,
        seed=arguments.seed,
        precision=arguments.precision,
        ranks=arguments.ranks,
        threads_per_rank=arguments.threads,
        timeout_s=arguments.timeout,
        layers=tuple(arguments.layers),
        class_axis=arguments.class_axis,
        source=arguments.source,
        mean=arguments.mean if files.inputs else (),
        std=arguments.std if files.inputs else (),
        memory_budget_bytes=arguments.memory_budget,
        format=arguments.format,
    )
    capabilities.check_variability(job)
    return job


def failed(job: VariabilityJob, reason: str) -> VariabilityResult:
    """What `--json` says when there was nothing to run."""
    return VariabilityResult(
        verdict=Verdict.ERROR,
        reason=reason,
        samples_asked=job.samples,
        seconds=results.NO_SECONDS,
    )


# ---------------------------------------------------------------- here


def run_here(job: VariabilityJob, files: VariabilityFiles) -> VariabilityResult:
    """Run in this process (one rank) or in ranks below it; CancelledError after Ctrl+C."""
    line = ProgressLine(job.timeout_s)
    with stop_on_signal(line.say_at_once) as stop, suspend_on_signal(line.hide, line.show) as hold, line:
        recorder = Recorder(line.take)
        if job.ranks == 1:
            return _one_rank(job, files, recorder, stop, hold)
        from boundscope.worker.local import run_local

        return run_local(job, files, recorder.add, cancel=stop.event, hold=hold)


def _one_rank(
    job: VariabilityJob, files: VariabilityFiles, recorder: Recorder, stop: Stop, hold: Suspension
) -> VariabilityResult:
    for name, value in thread_variables(job.threads_per_rank or core_count()).items():
        os.environ.setdefault(name, value)
    with large_imports():
        import torch

        from boundscope.sharding.ranks import RankGroup
        from boundscope.worker.here import run_here
        from boundscope.worker.variability import run_variability

    def work(monitor: Monitor) -> VariabilityResult:
        if job.threads_per_rank is not None:
            torch.set_num_threads(job.threads_per_rank)
        return run_variability(job, files, monitor, RankGroup())

    return run_here(job, work, lambda event: recorder.add(0, event), cancel=stop.event, hold=hold)


# ---------------------------------------------------------------- on a daemon


def run_on_daemon(job: VariabilityJob, files: VariabilityFiles, home: Path | None) -> VariabilityResult:
    """Upload what the daemon lacks, submit, follow to the end; Ctrl+C cancels the job there."""
    client = connect(home)
    try:
        line = ProgressLine(job.timeout_s)
        with stop_on_signal(line.say_at_once) as stop, line:
            sent = _uploaded(client, job, files, line)
            stop.check()
            info, record = follow(client, client.submit(sent, title_of(job)), line, stop)
    finally:
        client.close()
    if record.variability is None:
        raise no_result(info, record)
    return record.variability


def title_of(job: VariabilityJob) -> str:
    points = f"{job.draw} drawn points" if job.draw else job.inputs[0].name
    if len(job.inputs) > 1:
        points = f"{len(job.inputs)} images"
    return f"{job.network.name} · {job.mode.upper()} · {points}"


def _uploaded(
    client: Client, job: VariabilityJob, files: VariabilityFiles, line: ProgressLine
) -> VariabilityJob:
    def send(path: Path) -> FileRef:
        return client.upload(path, progress=line.sending(path.name))

    changes: dict[str, object] = {"network": send(files.network), "inputs": tuple(map(send, files.inputs))}
    if files.property is not None:
        source = send(files.property)
        ball = job.property
        changes["property"] = (
            msgspec.structs.replace(ball, center=source)
            if isinstance(ball, EpsilonBall)
            else PropertyFile(file=source)
        )
    return msgspec.structs.replace(job, **changes)


def fetched(result: VariabilityResult, out: Path) -> VariabilityResult:
    """The files of a daemon's job copied to `out` where they can be read from here; a word on where they are if not."""
    source = Path(result.folder)
    try:
        for name in result.files:
            shutil.copyfile(source / name, out / name)
    except OSError as error:
        complain(f"the job's files stay on the daemon's machine, in {source} ({error.strerror or error})")
        return result
    return msgspec.structs.replace(result, folder=str(out.absolute()))


# ---------------------------------------------------------------- two runs


def compare(arguments: argparse.Namespace) -> int:
    """`boundscope variability compare RUN RUN`: layer by layer, in words and as a table."""
    if len(arguments.runs) != 2:
        raise UsageError("compare takes two runs: boundscope variability compare RUN RUN")
    from boundscope.variability.compare import compare as compared
    from boundscope.variability.digits import Digits, digits
    from boundscope.variability.moments_file import RunMoments
    from boundscope.variability.tables import comparison_table
    from boundscope.variability.tables_files import write_table

    found: list[dict[str, Digits]] = []
    for path in arguments.runs:
        run = RunMoments.load(path / "moments.npz" if path.is_dir() else path)
        found.append({name: digits(moments) for name, moments in run.layers.items()})
    names = [str(path) for path in arguments.runs]
    comparison = compared(found[0], found[1], (names[0], names[1]))
    print(noise.comparison_text(comparison))
    if arguments.out is not None:
        arguments.csv, arguments.report = None, arguments.out
        prepare_outputs(arguments)
        path = arguments.out / f"variability_comparison.{arguments.format}"
        write_table(comparison_table(comparison), path)
        print(f"{'table':<16}{path}")
    return 0
