"""The native engine's `rows` and `fsdp` on real ranks against one rank: Δ, memory, time, and what gathers hide.

    python tests/benchmarks/sharding.py [--quick] [--networks NAME ...] [--methods ibp crown alpha-crown]
        [--modes rows fsdp] [--ranks 2 3 4 8] [--repeats N]

Δ is the largest difference, over everything that is told of each layer's bounds (least, greatest, mean and largest
width, unstable neurons) and over all margins, between the run and one rank; it must be 0. The ledger's peak and the
resident peak above the idle process are of the rank that needs most. Runs of one network and method are interleaved,
and their times are medians: `solve` is the wall time of bounding, CPU that of all ranks with their start. One rank has
every core's threads, and P ranks share them out. `--quick` takes small networks and two ranks.
"""

from __future__ import annotations

import argparse
import gzip
import re
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime

sys.path.insert(0, str(Path(__file__).parent.parent))
from boundscope.protocol import Event, LayerBounds, LogLine, Method, PropertyFile, Sharding, VerifyJob
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from conftest import SHARED
from support.jobs import ref
from support.models import box_property, mlp

MIB = 2**20
METHODS = (Method.IBP, Method.CROWN, Method.ALPHA_CROWN)
HEAD = (
    f"{'network':20} {'method':12} {'mode':5} {'P':>2} {'Δ':>8} {'ledger':>9} {'less':>6} {'resident':>9} {'less':>6} "
    f"{'solve [s]':>9} {'ratio':>6} {'CPU [s]':>8} {'gather [s]':>10} {'hidden':>6}"
)


@dataclass(frozen=True)
class Case:
    name: str
    files: Callable[[Path], tuple[Path, Path]]  # given a folder, the network and the property
    methods: tuple[Method, ...] = METHODS


def _mlp(width: int, layers: int) -> Case:
    def files(folder: Path) -> tuple[Path, Path]:
        network = mlp(folder / f"mlp_{width}x{layers}.onnx", [784, *[width] * layers, 10], seed=1)
        centre = np.random.default_rng(0).random(784)
        session = onnxruntime.InferenceSession(str(network))
        (outputs,) = session.run(None, {"x": centre[None].astype(np.float32)})
        # Above what an attack reaches, so that bounds decide.
        clauses = " ".join(f"(and (>= Y_{i} {float(y) + 0.3!r}))" for i, y in enumerate(outputs[0]))
        prop = folder / f"mlp_{width}x{layers}.vnnlib"
        lower, upper = (centre - 0.01).tolist(), (centre + 0.01).tolist()
        prop.write_text(box_property(lower, upper, 10, f"(assert (or {clauses}))"))
        return network, prop

    return Case(f"784-{'-'.join([str(width)] * layers)}-10", files, METHODS if width <= 4096 else METHODS[:2])


def _published(name: str, network: str, prop: str) -> Case:
    def files(folder: Path) -> tuple[Path, Path]:
        found = []
        for path in (network, prop):
            target = folder / Path(path).name.removesuffix(".gz")
            target.write_bytes(gzip.decompress((SHARED / "vnncomp" / path).read_bytes()))
            found.append(target)
        return found[0], found[1]

    return Case(name, files)


CASES = (
    *(_mlp(width, layers) for width in (1024, 4096, 16384) for layers in (2, 3)),
    _published(
        "mnist_fc 256x4", "mnist_fc/onnx/mnist-net_256x4.onnx.gz", "mnist_fc/vnnlib/prop_1_0.05.vnnlib.gz"
    ),
    _published(
        "resnet_2b",
        "cifar10_resnet/onnx/resnet_2b.onnx.gz",
        "cifar10_resnet/vnnlib/prop_39_eps_0.008.vnnlib.gz",
    ),
    _published("vit pgd_2_3_16", "vit/onnx/pgd_2_3_16.onnx.gz", "vit/vnnlib/pgd_2_3_16_9159.vnnlib.gz"),
)
QUICK = ("784-1024-1024-10", "mnist_fc 256x4")


@dataclass(frozen=True)
class Measured:
    told: tuple[tuple[float, ...], ...]  # of each layer, and the margins last
    names: tuple[tuple[str, str], ...]
    ledger_bytes: int
    resident_bytes: int
    solve_s: float
    cpu_s: float
    gather: str


def measure(network: Path, prop: Path, method: Method, mode: Sharding, ranks: int) -> Measured:
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        method=method,
        sharding=mode,
        ranks=ranks,
        timeout_s=3600.0,
    )
    layers: list[LayerBounds] = []
    gathers: list[str] = []

    def listen(_: int, event: Event) -> None:
        if isinstance(event, LayerBounds):
            layers.append(event)
        if isinstance(event, LogLine) and (
            found := re.match(r"gathers: ([\d.]+) s under way, (\d+) %", event.text)
        ):
            gathers.append(f"{float(found[1]):10.2f} {found[2]:>5}%")

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    result = run_local(job, JobFiles(network, prop), listen)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    margins = tuple(np.nan if one.lower is None else one.lower for one in result.margin.per_clause)
    values = [(e.lower_min, e.upper_max, e.width_mean, e.width_max, float(e.unstable or 0)) for e in layers]
    return Measured(
        told=(*values, margins),
        names=tuple((e.node, e.method) for e in layers),
        ledger_bytes=max(one.ledger_peak_bytes for one in result.peak_bytes),
        resident_bytes=max(one.resident_peak_bytes for one in result.peak_bytes),
        solve_s=result.seconds.solve,
        cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        gather=gathers[-1] if gathers else f"{'-':>10} {'-':>6}",
    )


def difference(one: Measured, other: Measured) -> float:
    """The largest difference of anything told; infinite where not the same was told."""
    if one.names != other.names or [len(t) for t in one.told] != [len(t) for t in other.told]:
        return float("inf")
    worst = 0.0
    for left, right in zip(one.told, other.told, strict=True):
        for a, b in zip(left, right, strict=True):
            if a != b and not (np.isnan(a) and np.isnan(b)):
                worst = max(worst, abs(a - b))
    return worst


def _table(case: Case, method: Method, args: argparse.Namespace, folder: Path) -> None:
    network, prop = case.files(folder)
    setups = [(Sharding.NONE, 1)] + [(Sharding(mode), ranks) for mode in args.modes for ranks in args.ranks]
    runs: dict[tuple[Sharding, int], list[Measured]] = {setup: [] for setup in setups}
    for _ in range(args.repeats):
        for setup in setups:
            runs[setup].append(measure(network, prop, method, *setup))
    alone = runs[setups[0]]
    base_s = statistics.median(one.solve_s for one in alone)
    for (mode, ranks), found in runs.items():
        delta = max(difference(alone[0], one) for one in found)
        ledger, resident = (
            max(getattr(one, name) for one in found) for name in ("ledger_bytes", "resident_bytes")
        )
        solve_s = statistics.median(one.solve_s for one in found)
        cpu_s = statistics.median(one.cpu_s for one in found)
        less = (1 - ledger / alone[0].ledger_bytes, 1 - resident / max(1, alone[0].resident_bytes))
        print(
            f"{case.name:20} {method:12} {mode:5} {ranks:2} {delta:8.2g} {ledger / MIB:9.1f} {less[0]:6.0%} "
            f"{resident / MIB:9.1f} {less[1]:6.0%} {solve_s:9.2f} {solve_s / base_s:6.2f} {cpu_s:8.2f} "
            f"{found[-1].gather}",
            flush=True,
        )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    names = [case.name for case in CASES]
    methods = [str(method) for method in METHODS]
    parser.add_argument("--quick", action="store_true", help="small networks on two ranks")
    parser.add_argument("--networks", nargs="+", choices=names, metavar="NAME", help=", ".join(names))
    parser.add_argument("--methods", nargs="+", choices=methods, default=methods)
    parser.add_argument("--modes", nargs="+", choices=["rows", "fsdp"], default=["rows", "fsdp"])
    parser.add_argument("--ranks", nargs="+", type=int)
    parser.add_argument("--repeats", type=int, default=1)
    args = parser.parse_args()
    args.networks = args.networks or (QUICK if args.quick else names)
    args.ranks = args.ranks or ([2] if args.quick else [2, 3, 4, 8])
    return args


def main() -> None:
    args = _arguments()
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if case.name in args.networks:
                for method in case.methods:
                    if str(method) in args.methods:
                        _table(case, method, args, Path(folder))


if __name__ == "__main__":
    main()
