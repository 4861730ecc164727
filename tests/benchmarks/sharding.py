"""The native engine's `rows` and `fsdp` on real ranks against one rank: Δ, memory, time, and how weights travel.

    python tests/benchmarks/sharding.py [--quick] [--networks NAME ...] [--methods ibp crown alpha-crown]
        [--modes rows fsdp] [--ranks 1 2 3 4 8] [--repeats N] [--bounds-only] [--apart] [--steps N]

Δ is the largest difference, over the ends of every interval of every element of every tensor, as each rank has them,
and over all margins, between the run and one rank; it must be 0. The ledger's peak and the resident peak above the idle
process are of the rank that needs most. Runs of one network and method are interleaved, and their times are medians:
`solve` is the wall time of bounding (with an attack before it, but for `--bounds-only`), CPU that of all ranks with
their start. One rank has every core's threads, and P ranks share them out. `weights` tells of rank 0 for how long it
read in memory that ranks share, or, with `--apart`, as ranks of several machines do, for how long gathers were under
way, and how much of that was hidden behind work. `--steps` cuts the search of alpha-crown short; where cheaper bounds
decide, so that a method has no turn, its line says so. `--quick` takes small networks and two ranks.
"""

from __future__ import annotations

import argparse
import gzip
import os
import re
import resource
import statistics
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import onnxruntime
from onnx import TensorProto, helper

sys.path.insert(0, str(Path(__file__).parent.parent))
from boundscope.daemon.jobspec import KINDS, Kind
from boundscope.protocol import Event, LogLine, Method, PropertyFile, Sharding, Verdict, VerifyJob
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from conftest import SHARED
from support import recorded
from support.jobs import ref
from support.models import box_property, mlp

MIB = 2**20
TESTS = str(Path(__file__).parent.parent)  # where ranks find `support`
MOST_IN_ONE_FILE = 2_000_000_000  # protobuf's limit is 2 GiB
METHODS = (Method.IBP, Method.CROWN, Method.ALPHA_CROWN)
HEAD = (
    f"{'network':21} {'method':12} {'mode':5} {'P':>2} {'Δ':>8} {'ledger':>9} {'less':>6} {'resident':>9} {'less':>6} "
    f"{'solve [s]':>9} {'ratio':>6} {'CPU [s]':>8} {'weights [s]':>11} {'hidden':>6}"
)


@dataclass(frozen=True)
class Case:
    name: str
    files: Callable[[Path], tuple[Path, Path]]  # given a folder, the network and the property
    methods: tuple[Method, ...] = METHODS


def _outside(path: Path, widths: list[int]) -> Path:
    """As `mlp`, of weights too large for one protobuf message: they lie in a file beside it, written layer by layer."""
    random, nodes, tensors, name = np.random.default_rng(1), [], [], "x"
    data = path.with_suffix(".data")
    with data.open("wb") as file:
        for layer, (fan_in, fan_out) in enumerate(pairwise(widths), 1):
            out = "y" if layer == len(widths) - 1 else f"z{layer}"
            weight = random.standard_normal((fan_out, fan_in), dtype=np.float32)
            weight *= np.float32(1.0 / np.sqrt(fan_in))
            bias = np.float32(0.3) * random.standard_normal(fan_out, dtype=np.float32)
            for key, array in ((f"W{layer}", weight), (f"b{layer}", bias)):
                tensor = TensorProto(name=key, data_type=TensorProto.FLOAT, dims=array.shape)
                tensor.data_location = TensorProto.EXTERNAL
                place = {"location": data.name, "offset": file.tell(), "length": array.nbytes}
                for entry, value in place.items():
                    tensor.external_data.add(key=entry, value=str(value))
                file.write(array)
                tensors.append(tensor)
            nodes.append(
                helper.make_node("Gemm", [name, f"W{layer}", f"b{layer}"], [out], f"fc{layer}", transB=1)
            )
            if out != "y":
                name = f"a{layer}"
                nodes.append(helper.make_node("Relu", [out], [name], f"relu{layer}"))
    ends = [
        helper.make_tensor_value_info(end, TensorProto.FLOAT, [1, width])
        for end, width in (("x", widths[0]), ("y", widths[-1]))
    ]
    graph = helper.make_graph(nodes, "wide", ends[:1], ends[1:], tensors)
    opset = helper.make_opsetid("", 13)
    path.write_bytes(helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString())
    return path


def _mlp(width: int, layers: int) -> Case:
    def files(folder: Path) -> tuple[Path, Path]:
        path, widths = folder / f"mlp_{width}x{layers}.onnx", [784, *[width] * layers, 10]
        large = 4 * sum(a * b for a, b in pairwise(widths)) > MOST_IN_ONE_FILE
        network = _outside(path, widths) if large else mlp(path, widths, seed=1)
        centre = np.random.default_rng(0).random(784)
        session = onnxruntime.InferenceSession(str(network))
        (outputs,) = session.run(None, {"x": centre[None].astype(np.float32)})
        # Above what an attack reaches, so that bounds decide.
        clauses = " ".join(f"(and (>= Y_{i} {float(y) + 0.3!r}))" for i, y in enumerate(outputs[0]))
        prop = folder / f"mlp_{width}x{layers}.vnnlib"
        lower, upper = (centre - 0.01).tolist(), (centre + 0.01).tolist()
        prop.write_text(box_property(lower, upper, 10, f"(assert (or {clauses}))"))
        return network, prop

    name = f"784-{width}x{layers}-10" if layers > 3 else f"784-{'-'.join([str(width)] * layers)}-10"
    return Case(name, files, METHODS if width <= 4096 else METHODS[:2])


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
    _mlp(256, 6),  # as mnist_fc's deepest
    _published(
        "mnist_fc 256x4", "mnist_fc/onnx/mnist-net_256x4.onnx.gz", "mnist_fc/vnnlib/prop_1_0.05.vnnlib.gz"
    ),
    _published(
        "resnet_2b",
        "cifar10_resnet/onnx/resnet_2b.onnx.gz",
        "cifar10_resnet/vnnlib/prop_47_eps_0.008.vnnlib.gz",
    ),
    _published("vit pgd_2_3_16", "vit/onnx/pgd_2_3_16.onnx.gz", "vit/vnnlib/pgd_2_3_16_6275.vnnlib.gz"),
)
QUICK = ("784-1024-1024-10", "mnist_fc 256x4")


@dataclass(frozen=True)
class Measured:
    recorded: tuple[Path, ...]  # every bound, of each rank
    margins: tuple[float, ...]
    ledger_bytes: int
    resident_bytes: int
    solve_s: float
    cpu_s: float
    travel: str
    methods: tuple[str, ...]  # that hidden layers were bounded by


def measure(
    network: Path, prop: Path, method: Method, mode: Sharding, ranks: int, folder: Path, entry: str
) -> Measured:
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        method=method,
        sharding=mode,
        ranks=ranks,
        timeout_s=3600.0,
    )
    travel = [f"{'-':>11} {'-':>6}"]

    def listen(_: int, event: Event) -> None:
        if not isinstance(event, LogLine):
            return
        if found := re.match(r"gathers: ([\d.]+) s under way, (\d+) %", event.text):
            if entry == "run_apart":
                travel.append(f"{float(found[1]):11.2f} {found[2]:>5}%")
        elif found := re.match(r"weights in memory .* read in ([\d.]+) s", event.text):
            travel.append(f"{float(found[1]):11.2f} {'-':>6}")

    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    os.environ[recorded.FOLDER] = str(folder)
    kinds = {**KINDS, "verify": Kind("boundscope.worker.launch", f"support.recorded:{entry}")}
    result = run_local(job, JobFiles(network, prop), listen, kinds=kinds)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if result.verdict is Verdict.ERROR:
        raise SystemExit(f"{network.name}: {result.reason}")
    return Measured(
        recorded=tuple(folder / f"rank-{rank}.npz" for rank in range(ranks)),
        margins=tuple(np.nan if one.lower is None else one.lower for one in result.margin.per_clause),
        ledger_bytes=max(one.ledger_peak_bytes for one in result.peak_bytes),
        resident_bytes=max(one.resident_peak_bytes for one in result.peak_bytes),
        solve_s=result.seconds.solve,
        cpu_s=after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        travel=travel[-1],
        methods=tuple(recorded.spent(folder, 0).methods),
    )


def difference(one: Measured, other: Measured) -> float:
    """The largest difference of any bound, on any rank, or margin; infinite where not the same was bounded."""
    found = [recorded.difference(one.recorded[0], path) for path in other.recorded]
    pairs = zip(one.margins, other.margins, strict=True)
    found += [abs(a - b) for a, b in pairs if a != b and not (np.isnan(a) and np.isnan(b))]
    return max(found, default=0.0)


def _table(case: Case, method: Method, args: argparse.Namespace, folder: Path) -> None:
    network, prop = case.files(folder)
    setups = [(Sharding.NONE, 1)] + [(Sharding(mode), ranks) for mode in args.modes for ranks in args.ranks]
    runs: dict[tuple[Sharding, int], list[Measured]] = {setup: [] for setup in setups}
    entry = "run_apart" if args.apart else "run"
    for repeat in range(args.repeats):
        for mode, ranks in setups:
            kept = folder / f"{mode}-{ranks}-{repeat}"
            kept.mkdir(exist_ok=True)
            one = measure(network, prop, method, mode, ranks, kept, entry)
            runs[mode, ranks].append(one)
            if repeat == args.repeats - 1:
                _line(case, method, (mode, ranks), runs)


def _line(
    case: Case,
    method: Method,
    setup: tuple[Sharding, int],
    runs: dict[tuple[Sharding, int], list[Measured]],
) -> None:
    alone, found = runs[Sharding.NONE, 1], runs[setup]
    mode, ranks = setup
    delta = max(difference(alone[0], one) for one in found)
    ledger, resident = (
        max(getattr(one, name) for one in found) for name in ("ledger_bytes", "resident_bytes")
    )
    solve_s = statistics.median(one.solve_s for one in found)
    base_s = statistics.median(one.solve_s for one in alone)
    cpu_s = statistics.median(one.cpu_s for one in found)
    turn = "" if str(method) in found[-1].methods else "  decided before it had its turn"
    less = (1 - ledger / alone[0].ledger_bytes, 1 - resident / max(1, alone[0].resident_bytes))
    print(
        f"{case.name:21} {method:12} {mode:5} {ranks:2} {delta:8.2g} {ledger / MIB:9.1f} {less[0]:6.0%} "
        f"{resident / MIB:9.1f} {less[1]:6.0%} {solve_s:9.2f} {solve_s / base_s:6.2f} {cpu_s:8.2f} "
        f"{found[-1].travel}{turn}",
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
    parser.add_argument("--bounds-only", action="store_true", help="no attack before the bounds")
    parser.add_argument("--apart", action="store_true", help="ranks share no memory, and gather")
    parser.add_argument("--steps", type=int, help="at most, of alpha-crown's searches")
    args = parser.parse_args()
    args.networks = args.networks or (QUICK if args.quick else names)
    args.ranks = args.ranks or ([2] if args.quick else [1, 2, 3, 4, 8])
    return args


def main() -> None:
    args = _arguments()
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (TESTS, os.environ.get("PYTHONPATH"))))
    if args.bounds_only:
        os.environ[recorded.NO_ATTACK] = "1"
    if args.steps is not None:
        os.environ[recorded.STEPS] = str(args.steps)
    print(HEAD)
    with tempfile.TemporaryDirectory() as folder:
        for case in CASES:
            if case.name in args.networks:
                for method in case.methods:
                    if str(method) in args.methods:
                        _table(case, method, args, Path(folder))


if __name__ == "__main__":
    main()
