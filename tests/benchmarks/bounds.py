"""CROWN and α-CROWN: our engine against auto_LiRPA, on the same networks and boxes, with one thread each.

    python tests/benchmarks/bounds.py [--rows NAME ...] [--methods crown alpha] [--no-memory] [--seconds S]

Prints medians of CPU seconds, interleaved, and ours / theirs (below 1 we are faster); for CROWN the time of its
matrix products alone in float32 and the mean width of the outputs' bounds; for α-CROWN (20 steps each) the mean
lower bound of the outputs (more is tighter). Peak memory, each measured in a process of its own: resident, above the
idle process; and of tensors alone, as torch's allocator has lent them, which is what grows with the network. Of a
network of two neurons both are below 0.3 MiB on either side. Our bounds account for every rounding; theirs are plain
float32.
"""

from __future__ import annotations

import argparse
import itertools
import math
import statistics
import subprocess
import sys
import warnings
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.engines.cases import ROWS, WARM_UPS, Row
from benchmarks.engines.sides import Ours, Theirs, peak_bytes, products_alone
from boundscope.errors import BoundscopeError
from boundscope.reference.guard import alpha_helps

REPEATS = 9
MIB = 2**20
SIDES = ("ours", "theirs")
HEAD = "{:>9} {:>8} {:>6} {:>8}  {:>9} {:>9}  {:>6} {:>7}  {:>6} {:>7}".format(
    "ours [s]", "theirs", "ratio", "products", *SIDES, *SIDES, *SIDES
)


def _peaks(row: Row, method: str, side: str) -> tuple[float, float]:
    """MiB resident and of tensors, from a process of its own; NaN where that fails."""
    command = [sys.executable, __file__, "--peak", side, "--rows", row.name, "--methods", method]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return math.nan, math.nan
    resident, tensors = (int(word) / MIB for word in done.stdout.split()[-2:])
    return resident, tensors


def _line(row: Row, method: str, seconds: float, memory: bool) -> str:
    network, box = row.load()
    ours = Ours(network, box)
    try:
        theirs: Theirs | None = Theirs(network, box)
        note = ""
    except BoundscopeError as error:
        theirs, note = None, f"  ({str(error).splitlines()[0]})"
    mine, other, products = [], [], []
    spent = 0.0
    for number in itertools.count():
        mine.append(ours.run(method))
        other += [theirs.run(method)] if theirs else []
        products.append(products_alone(network, ours.rows) if method == "crown" else math.nan)
        if number:  # the first round warms up
            spent += mine[-1].cpu_s + sum(one.cpu_s for one in other[-1:])
        if number >= REPEATS or (number and spent > seconds) or (not number and mine[0].cpu_s > seconds):
            break
    skip = 1 if len(mine) > 1 else 0
    ours_s = statistics.median(one.cpu_s for one in mine[skip:])
    theirs_s = statistics.median(one.cpu_s for one in other[skip:]) if other else math.nan
    alone = statistics.median(products[skip:])
    peaks = [_peaks(row, method, side) if memory else (math.nan, math.nan) for side in SIDES]
    bounds = (mine[-1].bound, other[-1].bound if other else math.nan)
    values = (
        f"{ours_s:9.4f} {theirs_s:8.4f} {ours_s / theirs_s:6.2f} {alone:8.4f}  "
        f"{bounds[0]:9.4g} {bounds[1]:9.4g}  "
        + "  ".join(f"{ours_mib:6.1f} {theirs_mib:7.1f}" for ours_mib, theirs_mib in zip(*peaks, strict=True))
    )
    return f"{row.name:20} {values.replace('nan', '  -')}{note}"


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [row.name for row in ROWS]
    parser.add_argument(
        "--rows", nargs="+", choices=names, default=names, metavar="NAME", help=", ".join(names)
    )
    parser.add_argument("--methods", nargs="+", choices=["crown", "alpha"], default=["crown", "alpha"])
    parser.add_argument(
        "--no-memory", action="store_true", help="leave out the processes that measure the peak"
    )
    parser.add_argument("--seconds", type=float, default=5.0, help="about how long each line repeats")
    parser.add_argument("--peak", choices=SIDES, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = _arguments()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows = [row for row in ROWS if row.name in arguments.rows]
    if arguments.peak:
        print(*peak_bytes(arguments.peak, arguments.methods[0], rows[0].load, WARM_UPS))
        return
    for method in arguments.methods:
        what = "mean width" if method == "crown" else "mean lower bound"
        title = {"crown": "CROWN", "alpha": "α-CROWN, 20 steps"}[method]
        print(
            f"{title:20} {'CPU of one thread':34}  {what:^19}  {'peak [MiB]':^14}  {'of tensors':^14}\n"
            f"{'':20} {HEAD}",
            flush=True,
        )
        if method == "alpha" and not alpha_helps():
            print("auto_LiRPA's optimiser returns its start values with this torch: nothing to compare with")
            continue
        for row in rows:
            if method in row.methods:
                line = f"{row.name:20} left out: {row.missing}" if row.missing else None
                print(line or _line(row, method, arguments.seconds, not arguments.no_memory), flush=True)
        print()


if __name__ == "__main__":
    main()
