"""`boundscope plan`: what each rank of a run will need, before there is a machine to run it on."""

from __future__ import annotations

import argparse
import shlex
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from boundscope import capabilities, costs
from boundscope.cli import inputs
from boundscope.cli.output import complain, seconds_text, size_text
from boundscope.cli.progress import Waiting
from boundscope.costs import Device, Prediction, Setup
from boundscope.errors import UsageError
from boundscope.protocol import FileRef, Method, NetworkCosts, PropertyFile, Sharding, VerifyJob
from boundscope.startup import large_imports

if TYPE_CHECKING:
    from boundscope.worker.costs import Asked

FITTING_PART = 0.8  # of a device's memory; the rest is for what the ledger does not count
LEAST_MEMORY_BYTES = 2 << 20
DEFAULT_SHARDINGS = (Sharding.NONE, Sharding.ROWS, Sharding.FSDP, Sharding.TP_EXACT)
GPU_GATHER_BYTES_PER_S = 25e9  # a link of 200 Gbit/s
GPU_MEMORY_BYTES_PER_S = 1e12
NOT_PREDICTED = {  # what a plan does not speak of
    Method.COMPLETE: "of complete, only the bounds at the root are predicted; a search takes the time it is given",
}


@dataclass(frozen=True)
class Row:
    """One way to run it: expected, and the most that it may need."""

    setup: Setup
    expected: Prediction
    worst: Prediction
    seconds: tuple[float, float]
    fits: str  # "yes", "perhaps", "no", or "" where no device memory was given


def run(arguments: argparse.Namespace) -> int:
    """Exit status 0, also where nothing fits: that is an answer."""
    _check(arguments)
    for given, role in ((arguments.network, "NET"), (arguments.property, "PROPERTY")):
        if given is not None:
            inputs.describe(given, role)
    if arguments.property is not None:
        inputs.check_order(arguments.network, arguments.property)
    with Waiting(f"reading {arguments.network.name}") as waiting:
        with large_imports():
            from boundscope.worker.costs import look_at, machine_costs

        asked = look_at(arguments.network, arguments.property)
        waiting.tell("measuring this machine")
        machine = machine_costs()
    device = _device(arguments, Device(machine.single_flops, machine.double_flops, cores=machine.cores))
    rows = _rows(arguments, asked, device)
    if arguments.json:
        sys.stdout.write(
            msgspec.json.format(msgspec.json.encode(_report(arguments, device, rows)), indent=2).decode()
        )
        sys.stdout.write("\n")
        return 0
    _print(arguments, device, rows, asked.constraints)
    return 0


def _check(arguments: argparse.Namespace) -> None:
    for count in arguments.ranks:
        if count < 1:
            raise UsageError(f"--ranks {count}: there must be at least one rank")
    if arguments.ranks_per_node is not None and arguments.ranks_per_node < 1:
        raise UsageError(f"--ranks-per-node {arguments.ranks_per_node}: there must be at least one rank")
    if arguments.tflops is not None and arguments.tflops <= 0:
        raise UsageError(f"--tflops {arguments.tflops:g}: a speed must be more than 0")
    if arguments.bandwidth is not None and arguments.bandwidth <= 0:
        raise UsageError("--bandwidth must be more than 0 bytes a second")
    if arguments.device_memory is not None and arguments.device_memory < LEAST_MEMORY_BYTES:
        raise UsageError(
            f"--device-memory {arguments.device_memory}: a rank needs at least {LEAST_MEMORY_BYTES >> 20} MiB"
        )
    if arguments.device != "cpu" and arguments.tflops is None:
        raise UsageError(
            f"--device {arguments.device} needs --tflops: what it computes in float32, in 10^12 operations a second"
        )
    for sharding in arguments.sharding or ():
        _check_job(arguments, sharding)


def _check_job(arguments: argparse.Namespace, sharding: Sharding) -> None:
    """UsageError for what no run could be asked for."""
    file = FileRef(name="net.onnx", sha256="", size_bytes=0)
    ranks = 1 if sharding is Sharding.NONE else max(arguments.ranks)
    capabilities.check(
        VerifyJob(
            network=file,
            property=PropertyFile(file=file),
            method=arguments.method,
            sharding=sharding,
            ranks=ranks,
            chunk_rows=arguments.chunk_rows,
        )
    )


def _device(arguments: argparse.Namespace, here: Device) -> Device:
    """The device as the options say it, or this machine's CPU as it was measured just now."""
    single, double = here.single_flops, here.double_flops
    if arguments.tflops is not None:
        single = double = arguments.tflops * 1e12
        double /= 2
    gpu = arguments.device != "cpu"
    bandwidth = arguments.bandwidth or (GPU_GATHER_BYTES_PER_S if gpu else here.bytes_per_s)
    memory = GPU_MEMORY_BYTES_PER_S if gpu else here.memory_bytes_per_s
    return Device(single, double, float(bandwidth), memory, cores=1 if gpu else here.cores)


def _rows(arguments: argparse.Namespace, asked: Asked, device: Device) -> list[Row]:
    found = []
    for sharding in arguments.sharding or _default_shardings(arguments.method):
        for ranks in [1] if sharding is Sharding.NONE else arguments.ranks:
            if sharding is not Sharding.NONE and ranks == 1:
                continue
            budget = arguments.device_memory
            setup = Setup(
                method=arguments.method,
                sharding=sharding,
                ranks=ranks,
                constraints=asked.constraints,
                cases=asked.cases,
                chunk_rows=arguments.chunk_rows,
                budget_bytes=None if budget is None else int(FITTING_PART * budget),
                timeout_s=arguments.timeout,
                shares_memory=arguments.device == "cpu" and ranks <= (arguments.ranks_per_node or ranks),
            )
            found.append(_row(arguments, asked.costs, setup, device))
    return found


def _default_shardings(method: Method) -> tuple[Sharding, ...]:
    """Those that go with the method."""
    splits = method is Method.COMPLETE
    return tuple(one for one in DEFAULT_SHARDINGS if not (splits and one is Sharding.TP_EXACT))


def _row(arguments: argparse.Namespace, counts: NetworkCosts, setup: Setup, device: Device) -> Row:
    if arguments.device == "cpu":
        device = costs.device_of_ranks(device, setup, arguments.ranks_per_node)
    expected, worst = costs.predict(counts, setup), costs.worst(counts, setup)
    fits = ""
    if setup.budget_bytes is not None:
        fits = "no" if expected.peak_bytes > setup.budget_bytes else "perhaps"
        fits = "yes" if worst.peak_bytes <= setup.budget_bytes else fits
    return Row(setup, expected, worst, (expected.seconds(device), worst.seconds(device)), fits)


# ---------------------------------------------------------------- what is said


def recommended(rows: list[Row]) -> tuple[Row | None, Row | None]:
    """Of those that fit, surely or else perhaps: the one with the fewest ranks (of equals the fastest), and the
    fastest. `tp` is not among them, for its bounds are looser."""
    for answer in ("yes", "perhaps", ""):
        fitting = [row for row in rows if row.fits == answer and row.setup.sharding is not Sharding.TP]
        if fitting:
            fewest = min(fitting, key=lambda row: (row.setup.ranks, row.seconds[0]))
            fastest = min(fitting, key=lambda row: (row.seconds[0], row.setup.ranks))
            return fewest, fastest
    return None, None


def _print(arguments: argparse.Namespace, device: Device, rows: list[Row], constraints: int) -> None:
    memory = arguments.device_memory
    if arguments.device == "cpu":
        shared = arguments.ranks_per_node or "all"
        what = f"this CPU, {device.single_flops / 1e9:.0f} GFLOP/s in float32, which {shared} ranks share"
    else:
        what = f"{arguments.device}, {device.single_flops / 1e12:g} TFLOP/s in float32"
    print(f"{arguments.network.name}: {arguments.method}, {constraints} inequalities a case")
    print(f"device: {what}; {size_text(device.bytes_per_s)}/s to each rank")
    if memory is not None:
        print(
            f"fits: within {FITTING_PART:.0%} of {size_text(memory)}; {100 - 100 * FITTING_PART:.0f} % are left free"
        )
    print(f"expected: {costs.EXPECTED_SHARE:.0%} of the neurons unstable; worst: any share of them\n")
    head = f"{'sharding':9} {'ranks':>5}  {'expected':>10} {'worst':>10}  {'fits':7}  {'received':>10}  "
    print(head + f"{'time':>22}   weights / gathered / rows / slopes / workspace")
    for row in rows:
        parts = row.expected.by_category
        share = " / ".join(
            size_text(parts[name]) for name in ("weights", "gathered", "rows", "slopes", "workspace")
        )
        ends = [seconds_text(seconds) for seconds in row.seconds]
        time = " to ".join(dict.fromkeys(ends))
        print(
            f"{row.setup.sharding:9} {row.setup.ranks:5}  {size_text(row.expected.peak_bytes):>10} "
            f"{size_text(row.worst.peak_bytes):>10}  {row.fits:7}  {size_text(row.expected.received_bytes):>10}  "
            f"{time:>22}   {share}"
        )
    _print_advice(arguments, rows)


def _print_advice(arguments: argparse.Namespace, rows: list[Row]) -> None:
    if rows and rows[0].expected.domain_bytes:
        print(f"\na domain of a search takes {size_text(rows[0].expected.domain_bytes)}")
    if arguments.method in NOT_PREDICTED:
        complain(NOT_PREDICTED[arguments.method])
    fewest, fastest = recommended(rows)
    if fewest is None or fastest is None:
        print("\nnothing fits: take more ranks, devices with more memory, or a cheaper --method")
        return
    sure = "" if fewest.fits != "perhaps" else ", unless more neurons are unstable than expected"
    print(f"\nfewest ranks: {_words(fewest)}{sure}\n  {_command(arguments, fewest)}")
    if fastest is not fewest:
        print(f"fastest: {_words(fastest)}\n  {_command(arguments, fastest)}")


def _words(row: Row) -> str:
    ranks = "1 rank" if row.setup.ranks == 1 else f"{row.setup.ranks} ranks"
    return (
        f"{row.setup.sharding} on {ranks}, about {size_text(row.expected.peak_bytes)} a rank and "
        f"{seconds_text(row.seconds[0])}"
    )


def _command(arguments: argparse.Namespace, row: Row) -> str:
    setup = row.setup
    words = ["boundscope", "verify", str(arguments.network)]
    words.append("PROPERTY" if arguments.property is None else str(arguments.property))
    words += ["--method", setup.method]
    if setup.ranks > 1:
        words += ["--sharding", setup.sharding, "--ranks", str(setup.ranks)]
    if setup.budget_bytes is not None:
        words += ["--memory-budget", str(setup.budget_bytes)]
    if setup.chunk_rows is not None:
        words += ["--chunk-rows", str(setup.chunk_rows)]
    return shlex.join(words)


def _report(arguments: argparse.Namespace, device: Device, rows: list[Row]) -> dict[str, object]:
    fewest, fastest = recommended(rows)
    return {
        "network": str(arguments.network),
        "method": arguments.method,
        "device": {
            "name": arguments.device,
            "single_flops": device.single_flops,
            "double_flops": device.double_flops,
            "bytes_per_s": device.bytes_per_s,
            "memory_bytes": arguments.device_memory,
        },
        "expected_unstable_share": costs.EXPECTED_SHARE,
        "rows": [_row_report(row) for row in rows],
        "fewest_ranks": None if fewest is None else _row_report(fewest),
        "fastest": None if fastest is None else _row_report(fastest),
    }


def _row_report(row: Row) -> dict[str, object]:
    return {
        "sharding": row.setup.sharding,
        "ranks": row.setup.ranks,
        "fits": row.fits,
        "expected": _prediction_report(row.expected, row.seconds[0]),
        "worst": _prediction_report(row.worst, row.seconds[1]),
    }


def _prediction_report(one: Prediction, seconds: float) -> dict[str, object]:
    return {
        "peak_bytes": one.peak_bytes,
        "by_category": one.by_category,
        "received_bytes": round(one.received_bytes),
        "seconds": seconds,
        "domain_bytes": one.domain_bytes,
    }
