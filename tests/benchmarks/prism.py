"""Slowdown of stochastic arithmetic against torch's own kernel on the same data.

    python tests/benchmarks/prism.py [--only NAME ...] [--targets all|NAME ...] [--rounds R]

One thread, but for the last rows, where the same product runs on one thread and on two. Each round times every column
once, in an order that rotates, so that a busy moment of the machine meets all of them; the table has the medians
of torch's own time and of the slowdowns. A time is that of one call from Python into an existing output. Element-wise
operations act on the largest numpy arrays that fit together into 3/4 of the second-level cache. With `--targets
AVX2`, torch and its libraries are held to AVX2 too.
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

import boundscope_prism as prism

VARIABLE = "BOUNDSCOPE_PRISM_TARGET"
# What keeps torch, oneDNN and MKL from instructions that a CPU of the target would not have.
PEER = {
    "AVX2": {
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    }
}
MODES = ("rn", "ud", "rr", "sr")
Call = Callable[[], object]
Row = tuple[
    str, str, int, dict[str, Call]
]  # name, size, calls to a timing, calls by column; torch's own first


def elements_in_cache(arrays: int) -> int:
    """The largest power of two of float32 elements that fits `arrays` times into 3/4 of the second-level cache."""
    try:
        text = Path("/sys/devices/system/cpu/cpu0/cache/index2/size").read_text().strip()
        cache_bytes = int(text.removesuffix("K")) * 1024
    except (OSError, ValueError):
        cache_bytes = 1024 * 1024
    return 1 << ((cache_bytes * 3 // 4 // (4 * arrays)).bit_length() - 1)


def product_rows() -> list[Row]:
    return [_product(size) for size in (512, 1024)]


def _product(size: int) -> Row:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, size, size, generator=generator)
    out = torch.empty(size, size)
    calls: dict[str, Call] = {"torch": lambda: torch.mm(a, b, out=out)}
    for mode in MODES:
        chosen = prism.rounding(mode, seed=1, threads=1)
        calls[mode] = lambda chosen=chosen: prism.matmul(a, b, chosen, out=out)
    return "product", f"{size}x{size}", 1, calls


def elementwise_rows() -> list[Row]:
    return [
        _elementwise("add", torch.add, prism.add, 2),
        _elementwise("multiply", torch.mul, prism.multiply, 2),
        _elementwise("fma", _addcmul, prism.fma, 3),
    ]


def _addcmul(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
    return torch.addcmul(c, a, b, out=out)


def _elementwise(name: str, own: Callable[..., object], ours: Callable[..., object], operands: int) -> Row:
    size = elements_in_cache(operands + 1)
    generator = torch.Generator().manual_seed(0)
    values = torch.randn(operands, size, generator=generator).unbind()
    out = torch.empty(size)
    calls: dict[str, Call] = {"torch": lambda: own(*values, out=out)}
    arrays, result = [value.numpy() for value in values], out.numpy()
    for mode in MODES:
        chosen = prism.rounding(mode, seed=1, threads=1)
        calls[mode] = lambda chosen=chosen: ours(*arrays, chosen, out=result)
    return name, str(size), 8, calls


def thread_rows() -> list[Row]:
    size = 1024
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(2, size, size, generator=generator)
    out = torch.empty(size, size)
    rows: list[Row] = []
    for mode in MODES:
        one, two = (prism.rounding(mode, seed=1, threads=threads) for threads in (1, 2))
        calls: dict[str, Call] = {
            "one": lambda one=one: prism.matmul(a, b, one, out=out),
            "two": lambda two=two: prism.matmul(a, b, two, out=out),
        }
        rows.append((f"threads, {mode}", f"{size}x{size}", 1, calls))
    return rows


def timings(calls: dict[str, Call], repeats: int, rounds: int) -> dict[str, list[float]]:
    """Seconds of one call, by column and round."""
    names = list(calls)
    times: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        calls[name]()
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            begin = time.perf_counter()
            for _ in range(repeats):
                calls[name]()
            times[name].append((time.perf_counter() - begin) / repeats)
    return times


def print_row(row: Row, rounds: int) -> None:
    name, size, repeats, calls = row
    times = timings(calls, repeats, rounds * (10 if repeats > 1 else 1))
    first, *others = times
    base = statistics.median(times[first])
    cells = "".join(f"{other:>5} {statistics.median(times[other]) / base:5.2f}x" for other in others)
    print(f"{prism.target():8} {name:12} {size:>10} {first} {base * 1e6:9.1f} µs {cells}", flush=True)


FAMILIES: dict[str, Callable[[], list[Row]]] = {
    "product": product_rows,
    "elementwise": elementwise_rows,
    "threads": thread_rows,
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", nargs="+", choices=tuple(FAMILIES), default=tuple(FAMILIES))
    parser.add_argument(
        "--targets", nargs="+", metavar="NAME", help="'all' or names of targets (default: the one in use)"
    )
    parser.add_argument("--rounds", type=int, default=15)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if not options.targets:
        for family in options.only:
            for row in FAMILIES[family]():
                print_row(row, options.rounds)
        return
    chosen = prism.targets() if options.targets == ["all"] else options.targets
    for target in chosen:
        command = [sys.executable, __file__, "--rounds", str(options.rounds), "--only", *options.only]
        subprocess.run(command, env={**os.environ, **PEER.get(target, {}), VARIABLE: target}, check=True)


if __name__ == "__main__":
    main()
