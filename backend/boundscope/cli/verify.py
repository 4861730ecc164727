"""`boundscope verify`: read the options, check them, run, and write what was found."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from boundscope import __version__, capabilities
from boundscope.cli import inputs, results
from boundscope.cli.execution import Outcome, run_here, run_on_daemon
from boundscope.cli.output import complain
from boundscope.command import command_line
from boundscope.errors import BoundscopeError, CancelledError, UsageError
from boundscope.protocol import (
    EpsilonBall,
    Margin,
    Method,
    Norm,
    PropertyFile,
    PropertySource,
    Seconds,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.vnncomp import result_text
from boundscope.worker.files import JobFiles

DEFAULT_TIMEOUT_S = 300.0
_BALL_ONLY = ("epsilon", "norm", "label", "clip", "mean", "std")


def run(arguments: argparse.Namespace) -> int:
    """Exit status by verdict; a foreseeable failure is the verdict `error`, also in the JSON."""
    if arguments.instances is not None:
        from boundscope.cli.instances import run as run_instances

        return run_instances(arguments)
    check_options(arguments)
    prepare_outputs(arguments)
    files = JobFiles(
        network=arguments.network,
        property=arguments.ball or arguments.property,
        checkpoint=arguments.checkpoint,
    )
    try:
        job = read_job(arguments)
        if arguments.daemon is None:
            outcome = run_here(job, files)
        else:
            home = None if arguments.daemon == Path() else arguments.daemon
            outcome = run_on_daemon(job, files, home)
    except UsageError:
        raise
    except CancelledError:
        _tell_checkpoint(arguments.checkpoint)
        raise
    except BoundscopeError as error:
        if arguments.json is not None:
            results.write_json(failed(str(error)), arguments.json)
        if arguments.vnncomp is not None:
            write_vnncomp(failed(str(error)), arguments.vnncomp)
        raise
    write(outcome, files, arguments)
    _tell_checkpoint(arguments.checkpoint)
    return outcome.result.verdict.exit_code


def _tell_checkpoint(path: Path | None) -> None:
    if path is not None and path.exists():
        complain(
            f"the search is kept in {path}; the same command goes on with it, for as long as --timeout says"
        )


def check_options(arguments: argparse.Namespace) -> None:
    """UsageError for options that do not go together."""
    if arguments.results is not None:
        raise UsageError("--results goes with --instances")
    if arguments.network is None:
        raise UsageError("give NET and PROPERTY, or a whole benchmark: --instances FILE")
    check_ball(arguments)
    if arguments.ball is None and arguments.property is None:
        daemon = arguments.daemon
        if isinstance(daemon, Path) and daemon.is_file():
            raise UsageError(f"--daemon took {daemon} for its folder; write --daemon after NET and PROPERTY")
        raise UsageError("give PROPERTY, a VNN-LIB file, or --ball CENTER --epsilon E --label K")
    if arguments.threads is not None and arguments.threads < 1:
        raise UsageError(f"--threads {arguments.threads}: there must be at least one thread")
    inputs.check_order(arguments.network, arguments.property)
    if arguments.checkpoint is not None and arguments.nodes:
        raise UsageError("--checkpoint is kept on one machine; leave it or --nodes out")
    if arguments.checkpoint is not None:
        check_checkpoint(arguments)


def check_checkpoint(arguments: argparse.Namespace) -> None:
    """UsageError for a checkpoint that nothing would be kept in."""
    if arguments.daemon is not None:
        raise UsageError(
            "the daemon keeps every complete search itself: leave --checkpoint out, and see `boundscope resume`"
        )
    if arguments.method is not Method.COMPLETE:
        raise UsageError(
            f"--checkpoint goes with --method complete; {arguments.method} has no search to go on with"
        )
    _check_target("--checkpoint", arguments.checkpoint)


def check_ball(arguments: argparse.Namespace, ball_only: Sequence[str] = _BALL_ONLY) -> None:
    """UsageError for an ε-ball that is not whole, or beside a property file; `ball_only` options need a ball."""
    if arguments.ball is not None:
        if arguments.property is not None:
            raise UsageError("give PROPERTY or --ball, not both")
        for name in ("epsilon", "label"):
            if getattr(arguments, name) is None:
                raise UsageError(f"--ball needs --{name}")
    elif arguments.property is not None:
        for name in ball_only:
            if getattr(arguments, name):
                raise UsageError(f"--{name} goes with --ball, not with PROPERTY")
    if arguments.clip and float(arguments.clip[0]) > float(arguments.clip[1]):
        raise UsageError(f"--clip {' '.join(arguments.clip)}: LO must not be above HI")


def prepare_outputs(arguments: argparse.Namespace) -> None:
    """Make the folders now, so that a long run is not lost for want of a place to write to."""
    for option in ("csv", "report"):
        folder = getattr(arguments, option)
        if folder is None:
            continue
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"--{option} {folder} cannot be made a folder: {error.strerror}") from None
    if arguments.json not in (None, "-"):
        _check_target("--json", Path(arguments.json), ", or - for standard output")
    if getattr(arguments, "vnncomp", None) is not None:
        _check_target("--vnncomp", arguments.vnncomp)


def _check_target(option: str, target: Path, otherwise: str = "") -> None:
    if target.is_dir():
        raise UsageError(f"{option} {target} is a folder; name a file{otherwise}")
    if not os.access(target if target.exists() else target.parent, os.W_OK):
        raise UsageError(f"{option} {target} cannot be written; name a file in a folder that exists")


def read_job(arguments: argparse.Namespace) -> VerifyJob:
    """The job that the options describe, with its files hashed and its capabilities checked."""
    job = VerifyJob(
        # A checkpoint must be of this very network, wherever its weights are.
        network=(
            inputs.describe(arguments.network, "NET")
            if arguments.checkpoint is None
            else inputs.describe_network(arguments.network)
        ),
        property=property_source(arguments),
        method=arguments.method,
        engine=arguments.engine,
        sharding=arguments.sharding,
        ranks=read_ranks(arguments),
        nodes=arguments.nodes,
        arithmetic=arguments.arithmetic,
        precision=arguments.precision,
        timeout_s=DEFAULT_TIMEOUT_S if arguments.timeout is None else arguments.timeout,
        seed=arguments.seed,
        chunk_rows=arguments.chunk_rows,
        memory_budget_bytes=arguments.memory_budget.bytes,
        memory_budget_share=arguments.memory_budget.share,
        threads_per_rank=arguments.threads,
        cross_check=arguments.cross_check,
        branching=arguments.branching,
        batch=arguments.batch,
        force_synchronous=arguments.force_synchronous,
    )
    capabilities.check(job)
    return job


def read_ranks(arguments: argparse.Namespace) -> int:
    """The number of ranks, from --ranks, or --nodes and --ranks-per-node; UsageError where they do not agree."""
    ranks: int | None = arguments.ranks
    per_node: int | None = arguments.ranks_per_node
    count = len(arguments.nodes)
    if per_node is None:
        return ranks if ranks is not None else max(1, count)
    if not count:
        raise UsageError("--ranks-per-node goes with --nodes HOST,…")
    if per_node < 1:
        raise UsageError(f"--ranks-per-node {per_node}: each node runs at least one rank")
    if ranks is not None and ranks != per_node * count:
        raise UsageError(
            f"--ranks {ranks} is not {count} nodes with --ranks-per-node {per_node}, which makes {per_node * count}; "
            "leave one of the two out"
        )
    return per_node * count


def property_source(arguments: argparse.Namespace) -> PropertySource:
    """The property file, or the ε-ball, that the options name."""
    if arguments.ball is None:
        return PropertyFile(file=inputs.describe(arguments.property, "PROPERTY"))
    lower, upper = arguments.clip or (None, None)
    return EpsilonBall(
        center=inputs.describe(arguments.ball, "CENTER"),
        epsilon=arguments.epsilon,
        label=arguments.label,
        lower=lower,
        upper=upper,
        mean=arguments.mean,
        std=arguments.std,
        norm=arguments.norm or Norm.LINF,
    )


def failed(reason: str) -> VerifyResult:
    """What `--json` says when there was nothing to run."""
    return VerifyResult(
        verdict=Verdict.ERROR,
        reason=reason,
        arithmetic="",
        margin=Margin(smallest=None),
        seconds=Seconds(load=0.0, parse=0.0, solve=0.0),
        peak_bytes=(),
        counterexample=None,
        versions={"boundscope": __version__},
        command="",
    )


def write(outcome: Outcome, files: JobFiles, arguments: argparse.Namespace) -> None:
    """Summary, JSON, CSV and report, as asked for; `command` names the files as the user did."""
    command = (
        command_line(outcome.info.job, files.network, files.property)
        if isinstance(outcome.info.job, VerifyJob)
        else ""
    )
    result = msgspec.structs.replace(outcome.result, command=command)
    outcome.record.result = result
    if arguments.json != "-":
        results.print_summary(result, outcome.record)
    if arguments.json is not None:
        results.write_json(result, arguments.json)
    if arguments.vnncomp is not None:
        write_vnncomp(result, arguments.vnncomp)
    if arguments.csv is not None:
        results.write_csv(outcome.record.tables(), arguments.csv)
    if arguments.report is not None:
        from boundscope.report import write_report

        written = write_report(outcome.record, outcome.info, arguments.report)
        if arguments.json != "-":
            print(f"{'report':<16}{written[0]}")


def write_vnncomp(result: VerifyResult, target: Path) -> None:
    """The result file of VNN-COMP: whole, or as it was before."""
    text = result_text(result.verdict, result.counterexample)
    try:
        if target.exists() and not target.is_file():  # a pipe or a device
            target.write_text(text, encoding="utf-8")
            return
        part = target.with_name(f".{target.name}.{os.getpid()}")
        part.write_text(text, encoding="utf-8")
        part.replace(target)
    except OSError as error:
        raise BoundscopeError(f"--vnncomp {target} cannot be written: {error.strerror}") from None
