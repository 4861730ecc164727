"""Branch and bound on 1, 2 and 4 real ranks: what of it a rank holds, and how long the same work takes.

    python tests/benchmarks/sharding_search.py [--ranks 1 2 4] [--domains N] [--repeats N] [--sharding rows|fsdp]
        [--example]

With --force-synchronous every run bounds the same domains in the same order; each is stopped once it has bounded
--domains of them, which must not yet decide the property. Sizes are the largest until then, of the rank that holds
most: `weights`; `α+β`, the slopes and multipliers of domains that wait; the ledger's `total`. Ratios are against the
first number of ranks. Runs are interleaved and times are medians. Each rank has one thread.

The instance is one of mnist_fc of VNN-COMP; without it, or with --example, a digit of resources/examples in a box twice
as wide.
"""

from __future__ import annotations

import argparse
import gzip
import re
import statistics
import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from boundscope.errors import CancelledError
from boundscope.protocol import (
    Branching,
    Event,
    MemorySample,
    Method,
    PropertyFile,
    SearchPoint,
    Sharding,
    VerifyJob,
)
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from conftest import SHARED
from support.jobs import ref

KIB = 2**10
NETWORK = "mnist_fc/onnx/mnist-net_256x4.onnx.gz"
PROPERTY = "mnist_fc/vnnlib/prop_10_0.05.vnnlib.gz"
EXAMPLES = Path(__file__).parents[2] / "resources" / "examples"
END = re.compile(r"\(assert \((<=|>=) (X_\d+) (\S+)\)\)")
HEAD = (
    f"{'P':>2} {'weights [KiB]':>14} {'ratio':>6} {'α+β [KiB]':>11} {'ratio':>6} {'total [KiB]':>12} {'ratio':>6} "
    f"{'domains':>8} {'open':>6} {'wall [s]':>9} {'ratio':>6}"
)


@dataclass(frozen=True)
class Measured:
    """Until the domains were bounded; bytes of the rank that holds most."""

    weights: int
    slopes: int
    total: int
    domains: int
    open: int
    wall_s: float


def published(folder: Path) -> tuple[Path, Path]:
    found = []
    for name in (NETWORK, PROPERTY):
        target = folder / Path(name).name.removesuffix(".gz")
        target.write_bytes(gzip.decompress((SHARED / "vnncomp" / name).read_bytes()))
        found.append(target)
    return found[0], found[1]


def example(folder: Path) -> tuple[Path, Path]:
    """The digit that CROWN proves, in a box twice as wide, which takes splits."""
    text = (EXAMPLES / "digits-robust" / "property.vnnlib").read_text(encoding="utf-8")
    ends: dict[str, dict[str, float]] = {}
    for side, name, value in END.findall(text):
        ends.setdefault(name, {})[side] = float(value)

    def moved(match: re.Match[str]) -> str:
        low, high = ends[match[2]][">="], ends[match[2]]["<="]
        middle, width = (low + high) / 2, high - low
        return f"(assert ({match[1]} {match[2]} {middle + width if match[1] == '<=' else middle - width!r}))"

    prop = folder / "wide.vnnlib"
    prop.write_text(END.sub(moved, text), encoding="utf-8")
    return EXAMPLES / "networks" / "digits_mlp.onnx", prop


def measure(network: Path, prop: Path, ranks: int, domains: int, sharding: Sharding) -> Measured:
    """
    Raises:
        SystemExit: the property is decided before.
    """
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        method=Method.COMPLETE,
        branching=Branching.ACTIVATION,
        sharding=sharding if ranks > 1 else Sharding.NONE,
        ranks=ranks,
        timeout_s=3600.0,
        threads_per_rank=1,
        force_synchronous=True,
    )
    samples: list[MemorySample] = []
    points: list[SearchPoint] = []
    enough = threading.Event()

    def listen(_: int, event: Event) -> None:
        if isinstance(event, MemorySample):
            samples.append(event)
        if isinstance(event, SearchPoint) and not enough.is_set():
            points.append(event)
            if event.done >= domains:
                enough.set()

    try:
        result = run_local(job, JobFiles(network, prop), listen, cancel=enough)
    except CancelledError:
        last = points[-1]
        until = [one.by_category for one in samples if one.elapsed_s <= last.elapsed_s]
        return Measured(
            weights=max(one["weights"] for one in until),
            slopes=max(one["slopes"] for one in until),
            total=max(sum(one.values()) for one in until),
            domains=last.done,
            open=last.open,
            wall_s=last.elapsed_s - points[0].elapsed_s,
        )
    raise SystemExit(f"{prop.name} is {result.verdict} before {domains} domains; ask for fewer --domains")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--ranks", nargs="+", type=int, default=[1, 2, 4])
    parser.add_argument("--domains", type=int, default=4000)
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--sharding", choices=["rows", "fsdp"], default="rows")
    parser.add_argument("--example", action="store_true", help="the digit, also where mnist_fc is there")
    args = parser.parse_args()
    missing = not (SHARED / "vnncomp" / NETWORK).exists()
    if missing and not args.example:
        print(f"{SHARED / 'vnncomp' / NETWORK} is not there: a digit of resources/examples takes its place")
    with tempfile.TemporaryDirectory() as folder:
        files = example if missing or args.example else published
        network, prop = files(Path(folder))
        print(f"{network.stem} {prop.stem}, --sharding {args.sharding}")
        print(HEAD)
        runs: dict[int, list[Measured]] = {ranks: [] for ranks in args.ranks}
        for _ in range(args.repeats):
            for ranks in args.ranks:
                runs[ranks].append(measure(network, prop, ranks, args.domains, Sharding(args.sharding)))
        first = runs[args.ranks[0]]
        for ranks, found in runs.items():
            print(_row(ranks, found, first), flush=True)


def _row(ranks: int, found: list[Measured], first: list[Measured]) -> str:
    words = [f"{ranks:2}"]
    for name, width in (("weights", 14), ("slopes", 11), ("total", 12)):
        size, base = (max(getattr(one, name) for one in runs) for runs in (found, first))
        words.append(f"{size / KIB:{width}.1f} {size / max(1, base):6.2f}")
    wall_s, base_s = (statistics.median(one.wall_s for one in runs) for runs in (found, first))
    words += [f"{found[-1].domains:8} {found[-1].open:6} {wall_s:9.1f} {wall_s / base_s:6.2f}"]
    return " ".join(words)


if __name__ == "__main__":
    main()
