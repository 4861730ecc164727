"""The cost model against runs: predicted over measured, of the ledger's peak, of processor time and of weights fetched.

    python tests/benchmarks/planning.py [--networks NAME ...] [--methods ibp crown alpha-crown]
        [--modes none rows fsdp] [--ranks 2 4 8] [--repeats N] [--apart]

All are of the rank that needs most, without an attack. Peaks are in MiB; the second prediction is the worst over all
numbers of unstable neurons. `CPU` is the processor time of that rank for its bounds, its median over the repeats: the
wall time on a core of its own, whoever shares the cores of this machine, whose speed is measured at the start as
`boundscope plan` does. `fetched` are MiB of weights that a rank copied from shared memory or, with `--apart`, as ranks
of several machines do, received. The last lines count how many ratios are within 25 %, and tell what the start of a
rank and reading took beside; runs that cheaper bounds decide, before the method has its turn, need less than is
predicted, and are named but not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))
from sharding import CASES, MIB, TESTS, Case, Measured, _mlp, _published, measure

from boundscope.costs import Device, Setup, predict, worst
from boundscope.network import load_network
from boundscope.properties import read_property
from boundscope.protocol import Method, NetworkCosts, Sharding
from boundscope.worker.costs import machine_costs, network_costs
from support import recorded

WITHIN = 0.25
LEAST_FETCHED = MIB  # less is not compared
HEAD = (
    f"{'network':20} {'method':12} {'mode':5} {'P':>2} {'peak':>8} {'predicted':>9} {'worst':>8} {'ratio':>6} "
    f"{'CPU [s]':>8} {'predicted':>9} {'ratio':>6} {'fetched':>8} {'predicted':>9} {'ratio':>6}"
)
NETWORKS: tuple[Case, ...] = (
    *(_mlp(width, layers) for width in (512, 1024, 2048, 4096) for layers in (2, 3)),
    _published(
        "mnist_fc 256x4", "mnist_fc/onnx/mnist-net_256x4.onnx.gz", "mnist_fc/vnnlib/prop_0_0.03.vnnlib.gz"
    ),
    *(case for case in CASES if case.name == "resnet_2b"),
)


@dataclass(frozen=True)
class Ratios:
    """Predicted over measured; what is fetched only where it is much. Seconds of a rank's start and of reading."""

    memory: float
    time: float
    fetched: float | None
    start_s: float
    load_s: float


def row(
    case: Case,
    files: tuple[Path, Path],
    costs: NetworkCosts,
    setup: Setup,
    device: Device,
    args: argparse.Namespace,
) -> Ratios | None:
    """Print one line; None where cheaper bounds decided."""
    runs: list[tuple[Measured, list[recorded.Spent]]] = []
    for _ in range(args.repeats):
        with tempfile.TemporaryDirectory() as folder:
            kept = Path(folder)
            entry = "run_apart" if args.apart else "run"
            run = measure(*files, setup.method, setup.sharding, setup.ranks, kept, entry)
            told = [recorded.spent(kept, rank) for rank in range(setup.ranks)]
        runs.append((run, told))
    name = f"{case.name:20} {setup.method:12} {setup.sharding:5} {setup.ranks:2}"
    if not all(str(setup.method) in told[0].methods for _, told in runs):
        print(f"{name}  decided before it came to that", flush=True)
        return None
    expected, most = predict(costs, setup), worst(costs, setup)
    peak = max(run.ledger_bytes for run, _ in runs)
    cpu_s = statistics.median(max(one.bounds_s for one in told) for _, told in runs)
    fetched = max(one.received_bytes + one.read_bytes for one in runs[-1][1])
    told_bytes = expected.received_bytes if args.apart else expected.read_bytes
    own_s = [sum(one.start_s + one.load_s + one.bounds_s for one in told) for _, told in runs]
    found = Ratios(
        memory=expected.peak_bytes / peak,
        time=expected.processor_s(device) / cpu_s,
        fetched=told_bytes / fetched if fetched >= LEAST_FETCHED else None,
        start_s=statistics.median(
            (run.cpu_s - own) / setup.ranks for (run, _), own in zip(runs, own_s, strict=True)
        ),
        load_s=statistics.median(max(one.load_s for one in told) for _, told in runs),
    )
    print(
        f"{name} {peak / MIB:8.1f} {expected.peak_bytes / MIB:9.1f} {most.peak_bytes / MIB:8.1f} {found.memory:6.2f} "
        f"{cpu_s:8.3f} {expected.processor_s(device):9.3f} {found.time:6.2f} {fetched / MIB:8.1f} "
        f"{told_bytes / MIB:9.1f} {'-' if found.fetched is None else f'{found.fetched:.2f}':>6}",
        flush=True,
    )
    return found


def main() -> None:
    args = _arguments()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))
    os.environ[recorded.NO_ATTACK] = "1"
    machine = machine_costs()
    device = Device(machine.single_flops, machine.double_flops, cores=machine.cores)
    print(
        f"{machine.cores} cores, each {machine.single_flops / machine.cores / 1e9:.0f} GFLOP/s in float32 and "
        f"{machine.double_flops / machine.cores / 1e9:.0f} in float64\n{HEAD}"
    )
    found: list[Ratios] = []
    with tempfile.TemporaryDirectory() as folder:
        for case in (case for case in NETWORKS if case.name in args.networks):
            files = case.files(Path(folder))
            network = load_network(files[0])
            prop = read_property(files[1], input_count=network.input_count, output_count=network.output_count)
            count = max(sum(len(clause.constraints) for clause in one.clauses) for one in prop.cases)
            costs = network_costs(network)
            for method in args.methods:
                for mode in args.modes:
                    for ranks in [1] if mode == "none" else args.ranks:
                        setup = Setup(
                            method=Method(method),
                            sharding=Sharding(mode),
                            ranks=ranks,
                            constraints=count,
                            cases=len(prop.cases),
                            timeout_s=3600.0,
                            shares_memory=not args.apart,
                        )
                        one = row(case, files, costs, setup, device, args)
                        found += [] if one is None else [one]
    _summary(found)


def _summary(found: list[Ratios]) -> None:
    for what in ("memory", "time", "fetched"):
        ratios = [value for one in found if (value := getattr(one, what)) is not None]
        if ratios:
            good = sum(abs(ratio - 1.0) <= WITHIN for ratio in ratios)
            print(
                f"{what}: {good} of {len(ratios)} within {WITHIN:.0%}; ratios {min(ratios):.2f} to {max(ratios):.2f}, "
                f"median {statistics.median(ratios):.2f}"
            )
    for what, name in (
        ("start_s", "start of a rank, its share of the launcher"),
        ("load_s", "reading, rank 0"),
    ):
        values = [getattr(one, what) for one in found]
        if values:
            print(
                f"{name}: {min(values):.2f} to {max(values):.2f} s of CPU, median {statistics.median(values):.2f}"
            )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = [case.name for case in NETWORKS]
    parser.add_argument("--networks", nargs="+", choices=names, default=names[:6], metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=["ibp", "crown", "alpha-crown"])
    parser.add_argument("--modes", nargs="+", default=["none", "rows", "fsdp"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--apart", action="store_true", help="ranks share no memory, and receive weights")
    return parser.parse_args()


if __name__ == "__main__":
    main()
