"""What became of a job, from what its ranks said, how its processes ended and what the daemon saw."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

from boundscope.daemon.jobspec import (
    EXIT_CANCELLED,
    EXIT_LOST_PEER,
    LOG_NAME,
    RankExit,
    read_report,
    read_spec,
)
from boundscope.errors import StoreError
from boundscope.protocol import Failure, InstancesResult, JobState, VariabilityResult, Verdict, VerifyResult

LOG_TAIL_BYTES = 4000


@dataclass(frozen=True)
class Doom:
    """The daemon itself ended the job for this reason."""

    rank: int
    cause: str


@dataclass
class Witness:
    """What was seen of a job while it ran."""

    result: VerifyResult | VariabilityResult | InstancesResult | None = None
    failures: list[Failure] = field(default_factory=list)
    doom: Doom | None = None
    out_of_memory_killed: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a job ended. `failure` is what is still to be recorded; None where a rank has said it itself."""

    state: JobState
    cause: str = ""
    failure: Failure | None = None
    result: VerifyResult | VariabilityResult | InstancesResult | None = None


def judge(witness: Witness, folder: Path, launcher_code: int, *, cancelled: bool) -> Outcome:
    """The outcome of a job whose processes have all ended.

    A rank that a signal killed comes before all that the others say of it: they only saw it vanish. A result that
    had arrived stands, unless it only reports the error that such a death caused.
    """
    report = read_report(folder)
    name_of = _names(folder)
    killed = None if witness.doom else _killed_rank(report.exits)
    result = witness.result
    told = isinstance(result, InstancesResult)  # whose errors were the instances' own
    if result is not None and (told or not (result.verdict is Verdict.ERROR and (killed or witness.doom))):
        return Outcome(JobState.FINISHED, result=result)
    if cancelled:
        return Outcome(JobState.CANCELLED, "cancelled")
    if witness.doom is not None:
        return _failed(folder, witness.doom.cause, witness.doom.rank)
    if killed is not None:
        return _failed(folder, _signal_sentence(killed, witness.out_of_memory_killed, name_of), killed.rank)
    if witness.failures:
        return Outcome(JobState.FAILED, witness.failures[0].cause)
    if report.cause:
        return _failed(folder, report.cause, None)
    return _judge_exits(report.exits, folder, launcher_code, witness)


def _judge_exits(exits: tuple[RankExit, ...], folder: Path, launcher_code: int, witness: Witness) -> Outcome:
    bad = [each for each in exits if each.exit_code != 0]
    for each in sorted(
        bad, key=lambda each: each.exit_code in (EXIT_LOST_PEER, EXIT_CANCELLED, -signal.SIGTERM)
    ):
        return _failed(folder, _exit_sentence(each, _names(folder)), each.rank)
    if launcher_code < 0:
        name = _signal_name(-launcher_code)
        return _failed(
            folder, f"the job's launcher was killed by {name}{_memory_hint(-launcher_code, witness)}", None
        )
    if launcher_code == 0 and witness.result is None:
        return Outcome(JobState.FINISHED)
    return _failed(
        folder, f"the job's launcher ended with status {launcher_code}: {_last_line(folder)}", None
    )


def _killed_rank(exits: Iterable[RankExit]) -> RankExit | None:
    """The rank that a signal killed, other than by the launcher's own SIGTERM once something else had gone wrong."""
    return next((each for each in exits if each.exit_code < 0 and each.exit_code != -signal.SIGTERM), None)


def _names(folder: Path) -> Callable[[int], str]:
    """What this job's ranks are called, with their hosts where there are several."""
    try:
        return read_spec(folder).name_of
    except StoreError:
        return "rank {}".format


def _signal_sentence(killed: RankExit, out_of_memory: bool, name_of: Callable[[int], str]) -> str:
    number = -killed.exit_code
    hint = ""
    if number == signal.SIGKILL:
        hint = " by the kernel's out-of-memory killer" if out_of_memory else " (maybe out of memory)"
    return f"{name_of(killed.rank)} was killed by {_signal_name(number)}{hint}"


def _memory_hint(number: int, witness: Witness) -> str:
    if number != signal.SIGKILL:
        return ""
    return (
        " by the kernel's out-of-memory killer" if witness.out_of_memory_killed else " (maybe out of memory)"
    )


def _exit_sentence(each: RankExit, name_of: Callable[[int], str]) -> str:
    name = name_of(each.rank)
    if each.exit_code == EXIT_LOST_PEER:
        return f"{name} lost its connection to another rank"
    if each.exit_code < 0:
        return f"{name} was killed by {_signal_name(-each.exit_code)}"
    return f"{name} ended with status {each.exit_code} and left no result"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _failed(folder: Path, cause: str, rank: int | None) -> Outcome:
    return Outcome(
        JobState.FAILED, cause, Failure(cause=cause, rank=rank, detail=log_tail(folder / LOG_NAME))
    )


def _last_line(folder: Path) -> str:
    lines = log_tail(folder / LOG_NAME).strip().splitlines()
    return lines[-1] if lines else "it wrote nothing"


def log_tail(path: Path, limit_bytes: int = LOG_TAIL_BYTES) -> str:
    """The end of a log file, from the start of a line; "" where there is none."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(0, size - limit_bytes))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return text if size <= limit_bytes else text.partition("\n")[2]
