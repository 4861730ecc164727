"""The cost model against runs: predicted over measured, of the ledger's peak, of what is received, and of time.

    python tests/benchmarks/planning.py [--networks NAME ...] [--methods ibp crown alpha-crown]
        [--modes none rows fsdp] [--ranks 2 4 8] [--repeats N]

Peaks are of the rank that needs most, in MiB; the second prediction is the worst over all numbers of unstable neurons.
Time is of bounding alone, its median; ranks share the cores of this machine, whose speed is measured at the start, as
`boundscope plan` does. The last lines count how many ratios are within 25 %; runs that an attack or cheaper bounds
decide, before the method has its turn, need less than is predicted, and are named but not counted.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
sys.path.insert(0, str(Path(__file__).parent))
from sharding import CASES, MIB, Case, _mlp, _published, measure

from boundscope.costs import Device, Setup, device_of_ranks, predict, worst
from boundscope.network import load_network
from boundscope.properties import read_property
from boundscope.protocol import Method, NetworkCosts, Sharding
from boundscope.worker.costs import machine_costs, network_costs

WITHIN = 0.25
HEAD = (
    f"{'network':20} {'method':12} {'mode':5} {'P':>2} {'peak':>8} {'predicted':>9} {'worst':>8} {'ratio':>6} "
    f"{'solve [s]':>9} {'predicted':>9} {'ratio':>6}"
)
NETWORKS: tuple[Case, ...] = (
    *(_mlp(width, layers) for width in (512, 1024, 2048) for layers in (2, 3)),
    _published(
        "mnist_fc 256x4", "mnist_fc/onnx/mnist-net_256x4.onnx.gz", "mnist_fc/vnnlib/prop_0_0.03.vnnlib.gz"
    ),
    *(case for case in CASES if case.name == "resnet_2b"),
)


def row(
    case: Case,
    files: tuple[Path, Path],
    costs: NetworkCosts,
    setup: Setup,
    device: Device,
    repeats: int,
) -> tuple[float, float] | None:
    """Print one line; the ratios of memory and of time, None where the attack or cheaper bounds decided."""
    runs = [measure(*files, setup.method, setup.sharding, setup.ranks) for _ in range(repeats)]
    if not all(any(method == setup.method for _, method in run.names) for run in runs):
        print(
            f"{case.name:20} {setup.method:12} {setup.sharding:5} {setup.ranks:2}  decided before it came to that"
        )
        return None
    peak = max(run.ledger_bytes for run in runs)
    solve_s = statistics.median(run.solve_s for run in runs)
    expected, most = predict(costs, setup), worst(costs, setup)
    seconds = expected.seconds(device_of_ranks(device, setup))
    ratios = expected.peak_bytes / peak, seconds / solve_s
    print(
        f"{case.name:20} {setup.method:12} {setup.sharding:5} {setup.ranks:2} {peak / MIB:8.1f} "
        f"{expected.peak_bytes / MIB:9.1f} {most.peak_bytes / MIB:8.1f} {ratios[0]:6.2f} "
        f"{solve_s:9.2f} {seconds:9.2f} {ratios[1]:6.2f}",
        flush=True,
    )
    return ratios


def main() -> None:
    args = _arguments()
    machine = machine_costs()
    device = Device(machine.single_flops, machine.double_flops)
    print(f"{os.cpu_count()} cores, {machine.single_flops / 1e9:.0f} GFLOP/s in float32\n{HEAD}")
    ratios: list[tuple[float, float]] = []
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
                            shares_memory=True,
                        )
                        found = row(case, files, costs, setup, device, args.repeats)
                        ratios += [] if found is None else [found]
    for what, index in (("memory", 0), ("time", 1)) if ratios else ():
        good = sum(abs(one[index] - 1.0) <= WITHIN for one in ratios)
        least, most = min(one[index] for one in ratios), max(one[index] for one in ratios)
        print(f"{what}: {good} of {len(ratios)} within {WITHIN:.0%}; ratios {least:.2f} to {most:.2f}")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = [case.name for case in NETWORKS]
    parser.add_argument("--networks", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--methods", nargs="+", default=["ibp", "crown", "alpha-crown"])
    parser.add_argument("--modes", nargs="+", default=["none", "rows", "fsdp"])
    parser.add_argument("--ranks", nargs="+", type=int, default=[2, 4, 8])
    parser.add_argument("--repeats", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    main()
