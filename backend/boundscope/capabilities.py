"""What this version can do, in one place: the command line, the daemon and the window's form all ask here."""

from __future__ import annotations

import importlib.util

from boundscope.errors import UsageError
from boundscope.protocol import (
    Arithmetic,
    Branching,
    Engine,
    InstancesJob,
    Method,
    Precision,
    Sharding,
    VariabilityJob,
    VerifyJob,
)

METHODS = (Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN, Method.COMPLETE)
ENGINES = (Engine.NATIVE, Engine.AUTO_LIRPA)
SHARDINGS = (Sharding.NONE, Sharding.ROWS, Sharding.FSDP, Sharding.TP, Sharding.TP_EXACT)
REFERENCE_SHARDINGS = (Sharding.NONE, Sharding.FSDP, Sharding.TP)  # of --engine auto_lirpa
ARITHMETICS = (Arithmetic.REAL, Arithmetic.FLOAT32)


def check(job: VerifyJob) -> None:
    """Raise UsageError, naming the option, for what is not available or does not go together."""
    for option, value, available in (
        ("method", job.method, METHODS),
        ("engine", job.engine, ENGINES),
        ("sharding", job.sharding, SHARDINGS),
        ("arithmetic", job.arithmetic, ARITHMETICS),
    ):
        if value not in available:
            names = ", ".join(available)
            raise UsageError(f"--{option} {value} is not in this version yet; it has: {names}")
    _check_reference(job)
    _check_complete(job)
    if job.ranks < 1:
        raise UsageError(f"--ranks {job.ranks}: there must be at least one rank")
    if job.ranks > 1 and job.sharding is Sharding.NONE:
        others = ", ".join(each for each in SHARDINGS if each is not Sharding.NONE)
        raise UsageError(
            f"--ranks {job.ranks} needs a --sharding ({others}); --sharding none runs on one rank"
        )
    _check_nodes(job)
    if job.timeout_s <= 0:
        raise UsageError(f"--timeout {job.timeout_s:g}: the limit must be more than 0 s")
    if job.chunk_rows is not None and (job.chunk_rows < 16 or job.chunk_rows % 16):
        raise UsageError(f"--chunk-rows {job.chunk_rows}: rows are carried in multiples of 16")
    if job.memory_budget_bytes is not None and job.memory_budget_bytes < 1 << 20:
        raise UsageError(
            f"a memory budget of {job.memory_budget_bytes} bytes is too small; give at least 1 MiB"
        )
    if job.memory_budget_share is not None:
        if job.memory_budget_bytes is not None:
            raise UsageError(
                "a memory budget is a number of bytes or a share of the device; give one of the two"
            )
        if not 0 < job.memory_budget_share <= 1:
            raise UsageError(
                f"a memory budget of {job.memory_budget_share:g} of the device is not above 0 and at most 1"
            )


def check_hosts(hosts: tuple[str, ...]) -> None:
    """Raise UsageError for hosts that ssh would take for options, or that are named twice."""
    names = ",".join(hosts)
    for host in hosts:
        if not host or host.startswith("-") or any(letter.isspace() or letter == "," for letter in host):
            raise UsageError(f"--nodes {names}: {host!r} is no host name")
    if len(set(hosts)) != len(hosts):
        raise UsageError(f"--nodes {names}: a host is named twice; more ranks a node: --ranks-per-node")


def _check_nodes(job: VerifyJob) -> None:
    """Hosts as ssh knows them, with as many ranks each."""
    check_hosts(job.nodes)
    if job.nodes and job.ranks % len(job.nodes):
        raise UsageError(
            f"--ranks {job.ranks} cannot be shared evenly by {len(job.nodes)} nodes; every node runs as many"
        )


def _check_complete(job: VerifyJob) -> None:
    """What belongs to branch and bound."""
    if job.batch is not None and job.batch < 1:
        raise UsageError(f"--batch {job.batch}: at least one domain is bounded at a time")
    if job.method is Method.COMPLETE:
        if job.sharding in (Sharding.TP, Sharding.TP_EXACT):
            raise UsageError(
                f"--sharding {job.sharding} does not go with --method complete: a split neuron would be one rank's "
                "alone; use --sharding rows or fsdp"
            )
        return
    for option, given in (
        (f"--branching {job.branching}", job.branching is not Branching.AUTO),
        (f"--batch {job.batch}", job.batch is not None),
        ("--force-synchronous", job.force_synchronous),
    ):
        if given:
            raise UsageError(f"{option} goes with --method complete; --method {job.method} does not split")


def _check_reference(job: VerifyJob) -> None:
    """What auto_LiRPA cannot do, as the engine or beside ours."""
    if job.engine is Engine.AUTO_LIRPA:
        for option, wrong, reason in (
            (
                "--arithmetic float32",
                job.arithmetic is Arithmetic.FLOAT32,
                "its bounds speak of the reals only",
            ),
            ("--precision float64", job.precision is Precision.FLOAT64, "it computes in float32"),
            (
                f"--sharding {job.sharding}",
                job.sharding not in REFERENCE_SHARDINGS,
                "it carries all rows on every rank, and bounds what lies inside a split layer by intervals only; on "
                "several ranks --sharding fsdp or tp goes",
            ),
            (f"--chunk-rows {job.chunk_rows}", job.chunk_rows is not None, "it carries all rows together"),
            (
                "--memory-budget",
                job.memory_budget_bytes is not None or job.memory_budget_share is not None,
                "it keeps to none",
            ),
            (
                "--method complete",
                job.method is Method.COMPLETE,
                "its bounds are never proofs of parts of a box",
            ),
            ("--cross-check", job.cross_check, "that compares --engine native with it"),
        ):
            if wrong:
                raise UsageError(f"{option} does not go with --engine auto_lirpa: {reason}")
    if job.cross_check and job.ranks != 1:
        raise UsageError("--cross-check runs on one rank; leave --ranks out")


# Significand bits of the virtual precisions that have a name.
PRECISION_BITS = {"bf16": 8, "tf32": 11, "fp16": 11}
TABLE_FORMATS = ("csv", "parquet")
MOST_SIGNIFICAND_BITS = 53
LEAST_SAMPLES = 2


def check_variability(job: VariabilityJob) -> None:
    """Raise UsageError, naming the option, for what does not go together."""
    if job.samples < LEAST_SAMPLES:
        raise UsageError(
            f"--samples {job.samples}: noise shows in at least {LEAST_SAMPLES} samples; 10 are usual"
        )
    if not 1 <= job.ranks <= job.samples:
        raise UsageError(
            f"--ranks {job.ranks}: samples are shared by the ranks, so there are 1 to {job.samples} of them"
        )
    if job.timeout_s <= 0:
        raise UsageError(f"--timeout {job.timeout_s:g}: the limit must be more than 0 s")
    if not 0 <= job.seed < 1 << 64:
        raise UsageError(f"--seed {job.seed}: a seed is a whole number from 0 to 2^64 - 1")
    if job.precision is not None and not 2 <= job.precision <= MOST_SIGNIFICAND_BITS:
        names = ", ".join(f"{name} ({bits})" for name, bits in PRECISION_BITS.items())
        raise UsageError(
            f"--precision {job.precision}: a significand has 2 to {MOST_SIGNIFICAND_BITS} bits; by name: {names}"
        )
    if job.class_axis is not None and job.class_axis < 1:
        raise UsageError(
            f"--class-axis {job.class_axis}: axis 0 counts the points; classes lie along a later one"
        )
    if job.format not in TABLE_FORMATS:
        raise UsageError(f"--format {job.format}: tables are written as {' or '.join(TABLE_FORMATS)}")
    if job.format == "parquet" and importlib.util.find_spec("pyarrow") is None:
        raise UsageError("--format parquet needs pyarrow, which is not installed here: pip install pyarrow")
    if job.memory_budget_bytes is not None and job.memory_budget_bytes < 1 << 20:
        raise UsageError(
            f"a memory budget of {job.memory_budget_bytes} bytes is too small; give at least 1 MiB"
        )
    _check_points(job)


def check_instances(job: InstancesJob) -> None:
    """Raise UsageError for a benchmark that is empty, that names files that it does not have, or whose options do not
    go together."""
    if not job.instances:
        raise UsageError("the benchmark has no instances")
    for number, instance in enumerate(job.instances):
        inside = 0 <= instance.network < len(job.networks) and 0 <= instance.property < len(job.properties)
        if not inside:
            raise UsageError(f"instance {number + 1} names a file that the benchmark does not have")
        if not instance.timeout_s > 0:
            raise UsageError(f"instance {number + 1}: the time limit must be more than 0 s")
    if job.verify.nodes:
        raise UsageError("--instances runs on one machine; leave --nodes out")
    check(job.verify_job(0))


def _check_points(job: VariabilityJob) -> None:
    if bool(job.inputs) == bool(job.draw):
        raise UsageError(
            "give --inputs FILE, or --property P with --draw N points of its box; one of the two"
        )
    if job.draw < 0:
        raise UsageError(f"--draw {job.draw}: draw at least one point")
    if job.draw and job.property is None:
        raise UsageError(f"--draw {job.draw} needs --property, from whose box the points are drawn")
    if (job.mean or job.std) and job.draw:
        raise UsageError("--mean and --std go with --inputs, a folder of PNG images")
