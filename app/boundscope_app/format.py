"""Numbers and moments as the docks write them. No Qt."""

from __future__ import annotations

import math
import time

from boundscope.protocol import (
    InspectJob,
    InstancesJob,
    JobInfo,
    JobState,
    NetworkSummary,
    Progress,
    VariabilityJob,
)

STATE_WORDS: dict[JobState, str] = {
    JobState.QUEUED: "queued",
    JobState.STARTING: "starting",
    JobState.RUNNING: "running",
    JobState.PAUSING: "pausing",
    JobState.PAUSED: "paused",
    JobState.CANCELLING: "cancelling",
    JobState.FINISHED: "finished",
    JobState.FAILED: "failed",
    JobState.CANCELLED: "cancelled",
    JobState.INTERRUPTED: "interrupted",
}
BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


def duration(seconds: float) -> str:
    """ "0.42 s", "12.3 s", "4 min 05 s", "2 h 07 min"."""
    if seconds < 0 or not math.isfinite(seconds):
        return ""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 60:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def rest(seconds: float) -> str:
    """A time that is only reckoned: "less than 1 s", "12 s", "4 min 05 s"."""
    if seconds < 1:
        return "less than 1 s"
    return f"{seconds:.0f} s" if seconds < 59.5 else duration(max(60.0, seconds))


def at_most(seconds: float) -> str:
    """ "at most 12 s": what a time limit leaves."""
    return f"{'' if seconds < 1 else 'at most '}{rest(seconds)}"


def to_go(seconds: float) -> str:
    """ "about 12 s to go"."""
    return f"{'' if seconds < 1 else 'about '}{rest(seconds)} to go"


def size(count_bytes: float) -> str:
    """Bytes with a binary unit, three significant digits."""
    value, unit = float(count_bytes), BINARY_UNITS[0]
    for unit in BINARY_UNITS:
        if value < 1024 or unit == BINARY_UNITS[-1]:
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.3g} {unit}"


def moment(seconds_since_epoch: float | None, now: float | None = None) -> str:
    """Local time of day, with the date where it is not today."""
    if seconds_since_epoch is None:
        return ""
    when = time.localtime(seconds_since_epoch)
    today = time.localtime(now)
    same_day = (when.tm_year, when.tm_yday) == (today.tm_year, today.tm_yday)
    return time.strftime("%H:%M:%S" if same_day else "%Y-%m-%d %H:%M", when)


def run_seconds(info: JobInfo, now: float) -> float | None:
    """How long the job has run, or ran, without its pauses; None before it started."""
    return info.run_s(now)


def limit_left_s(info: JobInfo, now: float) -> float | None:
    """Seconds after which the time limit ends a run at the latest; None where it has none, or has not begun."""
    ran_s, job = run_seconds(info, now), info.job
    if ran_s is None or isinstance(job, InspectJob):
        return None
    limit_s = (
        sum(each.timeout_s for each in job.instances) if isinstance(job, InstancesJob) else job.timeout_s
    )
    return max(0.0, limit_s - ran_s)


def outcome_word(info: JobInfo) -> str:
    """The verdict; "measured" where a run measured what was asked for; "" where there is neither."""
    if isinstance(info.job, InstancesJob):
        return _benchmark_word(info)
    if info.verdict is not None:
        return info.verdict.replace("_", " ")
    measured = isinstance(info.job, VariabilityJob) and info.state is JobState.FINISHED
    return "measured" if measured else ""


def _benchmark_word(info: JobInfo) -> str:
    """Of a benchmark that has ended: whether all instances were solved."""
    if info.state is not JobState.FINISHED:
        return ""
    if info.verdict is None:
        return "all solved"
    return "some errors" if info.verdict.value == "error" else "some unsolved"


def progress_fraction(progress: Progress | None) -> float | None:
    """Between 0 and 1; None where the total is not known."""
    if progress is None or progress.total <= 0:
        return None
    return min(1.0, max(0.0, progress.done / progress.total))


def progress_text(progress: Progress | None, limit_left_s: float | None = None) -> str:
    """Count, rest and stage; the stage last, because it may be cut off where there is little room.

    Where nobody knows the rest, it is what the time limit leaves.

    Of a branch and bound, whose end nobody knows, the count is what was done and what waits.
    """
    if progress is None:
        return ""
    parts = []
    if progress.open is not None:
        parts.append(f"{count(progress.done, 'domain')}, {count(progress.open, 'open', 'open')}")
    elif progress.total > 0:
        parts.append(f"{progress.done}/{progress.total}")
    if progress.eta_s is not None and math.isfinite(progress.eta_s):
        parts.append(f"{rest(progress.eta_s)} left")
    elif limit_left_s is not None:
        parts.append(f"{at_most(limit_left_s)} left")
    return " · ".join(part for part in (*parts, progress.stage) if part)


def count(number: int, singular: str, plural: str = "") -> str:
    """ "1 clause", "12 345 clauses"."""
    word = singular if number == 1 else plural or singular + "s"
    return f"{number:,} {word}".replace(",", "\u202f")


def network_line(network: NetworkSummary) -> str:
    """One line: operators, parameters, shapes."""
    shapes = ", ".join(shape_text(tensor.shape) for tensor in network.inputs)
    outputs = ", ".join(shape_text(tensor.shape) for tensor in network.outputs)
    return (
        f"{count(len(network.nodes), 'node')}, {count(network.parameters, 'parameter')} "
        f"({size(network.weight_bytes)}), input {shapes}, output {outputs}, opset {network.opset}"
    )


def shape_text(shape: tuple[int, ...]) -> str:
    return "×".join(str(side) for side in shape) or "scalar"
