"""The shell line that reproduces a job. Imports neither torch nor Qt."""

from __future__ import annotations

import shlex
from pathlib import Path

from boundscope.protocol import EpsilonBall, InstancesJob, SourceSearch, VariabilityJob, VerifyJob


def command_line(job: VerifyJob, network: str | Path, property: str | Path) -> str:
    """`boundscope verify …` for a POSIX shell; `property` is the property file, or an ε-ball's centre.

    What decides the verdict is always written out, so that the line keeps its meaning when defaults change;
    what only decides speed and memory is written where it was chosen.
    """
    words = ["boundscope", "verify", str(network)]
    if isinstance(job.property, EpsilonBall):
        words += _ball_options(job.property, property)
    else:
        words.append(str(property))
    return shlex.join(words + _how(job, job.timeout_s))


def instances_command(job: InstancesJob, instances: str | Path, timeout_s: float | None) -> str:
    """`boundscope verify --instances …`, written as `command_line` writes it; `timeout_s` where it was chosen."""
    return shlex.join(["boundscope", "verify", "--instances", str(instances), *_how(job.verify, timeout_s)])


def _how(job: VerifyJob, timeout_s: float | None) -> list[str]:
    words: list[str] = ["--method", job.method, "--engine", job.engine, "--arithmetic", job.arithmetic]
    words += ["--precision", job.precision]
    if timeout_s is not None:
        words += ["--timeout", str(timeout_s).removesuffix(".0")]
    words += ["--seed", str(job.seed)]
    if job.cross_check:
        words.append("--cross-check")
    if job.branching != "auto":
        words += ["--branching", job.branching]
    if job.force_synchronous:
        words.append("--force-synchronous")
    if job.sharding != "none" or job.ranks != 1:
        words += ["--sharding", job.sharding, "--ranks", str(job.ranks)]
    if job.nodes:
        words += ["--nodes", ",".join(job.nodes)]
    for option, value in (
        ("--chunk-rows", job.chunk_rows),
        ("--memory-budget", _budget(job)),
        ("--batch", job.batch),
        ("--threads", job.threads_per_rank),
    ):
        if value is not None:
            words += [option, str(value)]
    return words


def _budget(job: VerifyJob) -> str | None:
    if job.memory_budget_bytes is not None:
        return str(job.memory_budget_bytes)
    return None if job.memory_budget_share is None else f"{100 * job.memory_budget_share!r}%"


def _ball_options(ball: EpsilonBall, center: str | Path) -> list[str]:
    words = ["--ball", str(center), "--norm", ball.norm, f"--epsilon={ball.epsilon}"]
    words += ["--label", str(ball.label)]
    if ball.lower is not None and ball.upper is not None:
        words += ["--clip", ball.lower, ball.upper]
    if ball.mean:
        words.append(f"--mean={','.join(ball.mean)}")
    if ball.std:
        words.append(f"--std={','.join(ball.std)}")
    return words


def variability_command(
    job: VariabilityJob,
    network: str | Path,
    inputs: str | Path | None = None,
    property: str | Path | None = None,
) -> str:
    """`boundscope variability …` for a POSIX shell; `inputs` is a file or the folder of images, `property` as above.

    What decides the numbers is always written out; ranks and threads change no bit, and are left out.
    """
    words = ["boundscope", "variability", str(network)]
    if inputs is not None:
        words += ["--inputs", str(inputs)]
    if job.property is not None and property is not None:
        if isinstance(job.property, EpsilonBall):
            words += _ball_options(job.property, property)
        else:
            words += ["--property", str(property)]
    if job.draw:
        words += ["--draw", str(job.draw)]
    words += ["--mode", job.mode, "--samples", str(job.samples), "--seed", str(job.seed)]
    for option, value in (("--precision", job.precision), ("--class-axis", job.class_axis)):
        if value is not None:
            words += [option, str(value)]
    for pattern in job.layers:
        words += ["--layers", pattern]
    for option, values in (("--mean", job.mean), ("--std", job.std)):
        if values:
            words.append(f"{option}={','.join(values)}")
    if job.source is not SourceSearch.NONE:
        words += ["--source", job.source]
    return shlex.join(words)
