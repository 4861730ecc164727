"""Slowdown of stochastic addition against torch.add on the same arrays.

    python tests/benchmarks/prism.py [--size N ...] [--targets all|NAME ...] [--rounds R]

One thread. Each round times every column once, in an order that rotates, so that a busy moment of the machine meets all
of them; the table has medians. A time is that of one call from Python into an existing output. "in cache" is
the largest size whose three arrays fit together into 3/4 of the second-level cache.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

import boundscope_prism

VARIABLE = "BOUNDSCOPE_PRISM_TARGET"
REPEATS = 8


def cache_size() -> int:
    """The largest power of two of float32 elements that fits three times into 3/4 of the second-level cache."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
        cache_bytes = int(text.removesuffix("K")) * 1024
    except (OSError, ValueError):
        cache_bytes = 1024 * 1024
    return 1 << ((cache_bytes * 3 // 4 // 12).bit_length() - 1)


def columns(size: int) -> dict[str, Callable[[], object]]:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, size, generator=generator)
    out = torch.empty(size)
    arrays = a.numpy(), b.numpy()
    result = out.numpy()
    return {
        "torch.add": lambda: torch.add(a, b, out=out),
        "rn": lambda: boundscope_prism.add(*arrays, mode="rn", out=result),
        "ud": lambda: boundscope_prism.add(*arrays, mode="ud", seed=1, out=result),
        "sr": lambda: boundscope_prism.add(*arrays, mode="sr", seed=1, out=result),
    }


def medians_ns(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds + 3):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            call = calls[name]
            start = time.perf_counter_ns()
            for _ in range(REPEATS):
                call()
            elapsed = (time.perf_counter_ns() - start) / REPEATS
            if number >= 3:
                times[name].append(elapsed)
    return {name: statistics.median(values) for name, values in times.items()}


def print_rows(sizes: list[int], rounds: int) -> None:
    for size in sizes:
        times = medians_ns(columns(size), rounds)
        native = times["torch.add"]
        cells = "".join(f"{value / 1000:9.2f} {value / native:6.2f}x" for value in times.values())
        print(f"{boundscope_prism.target():8} {size:9} {cells}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=int, nargs="+", metavar="N", help="elements (default: in cache)")
    parser.add_argument(
        "--targets", nargs="+", metavar="NAME", help="'all' or names of targets (default: the one in use)"
    )
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--no-header", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.no_header:
        names = "".join(f"{name + ' µs':>17}" for name in ("torch.add", "rn", "ud", "sr"))
        print(f"{'target':8} {'elements':>9} {names}", flush=True)
    if not options.targets:
        print_rows(options.size or [cache_size()], options.rounds)
        return
    chosen = boundscope_prism.targets() if options.targets == ["all"] else options.targets
    arguments = [argument for argument in sys.argv[1:] if argument not in ("--targets", *options.targets)]
    for target in chosen:
        command = [sys.executable, __file__, "--no-header", *arguments]
        subprocess.run(command, env={**os.environ, VARIABLE: target}, check=True)


if __name__ == "__main__":
    main()
