"""Slowdown of stochastic sums, normalizations, softmax and pooling against torch's own kernels on the same data.

    python tests/benchmarks/prism_rows.py [--rounds R] [--target NAME]

One thread, float32. Each round times every column of a row of the table once, in an order that rotates, so that a busy
moment of the machine meets all of them; the table has medians over the rounds. A time is that of one call from Python.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

VARIABLE = "BOUNDSCOPE_PRISM_TARGET"
MODES = ("rn", "ud", "sr", "rr")
LEAST_NS = 200_000

Call = Callable[[], object]


def cases() -> dict[str, dict[str, Call]]:
    """For each case torch's own call and ours by mode."""
    import torch

    import boundscope_prism as prism
    from boundscope_prism import rounding

    generator = torch.Generator().manual_seed(0)
    rows = torch.randn(256, 768, generator=generator)
    scores = torch.randn(512, 197, generator=generator) * 3
    images = torch.randn(8, 64, 56, 56, generator=generator)
    weight, bias = torch.randn(2, 768, generator=generator)
    mean, scale, shift = torch.randn(3, 64, generator=generator)
    variance = torch.rand(64, generator=generator) + 0.5
    functional = torch.nn.functional

    def ours(function: Callable[..., object], *arguments: Any, **keywords: Any) -> dict[str, Call]:
        def bound(mode: Any) -> Call:
            r = rounding(mode, seed=1, threads=1)
            return lambda: function(*arguments, r, **keywords)

        return {mode: bound(mode) for mode in MODES}

    return {
        "sum 256x768": {"torch": lambda: rows.sum(-1)} | ours(prism.sum, rows),
        "variance 256x768": {"torch": lambda: rows.var(-1)} | ours(prism.variance, rows),
        "layer_norm 256x768": {"torch": lambda: functional.layer_norm(rows, (768,), weight, bias)}
        | ours(prism.layer_norm, rows, weight=weight, bias=bias),
        "batch_norm 8x64x56x56": {
            "torch": lambda: functional.batch_norm(images, mean, variance, scale, shift)
        }
        | ours(prism.batch_norm, images, mean, variance, weight=scale, bias=shift),
        "softmax 512x197": {"torch": lambda: torch.softmax(scores, -1)} | ours(prism.softmax, scores),
        "log_softmax 512x197": {"torch": lambda: torch.log_softmax(scores, -1)}
        | ours(prism.log_softmax, scores),
        "avg_pool2d 2 8x64x56x56": {"torch": lambda: functional.avg_pool2d(images, 2)}
        | ours(prism.avg_pool2d, images, 2),
        "avg_pool2d 3, pad 1": {"torch": lambda: functional.avg_pool2d(images, 3, 2, 1)}
        | ours(prism.avg_pool2d, images, 3, stride=2, padding=1),
        "global average": {"torch": lambda: functional.adaptive_avg_pool2d(images, 1)}
        | ours(prism.adaptive_avg_pool2d, images, 1),
    }


def medians_ns(calls: dict[str, Call], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    start = time.perf_counter_ns()
    calls["torch"]()
    repeats = max(1, LEAST_NS // max(1, time.perf_counter_ns() - start))
    for number in range(rounds + 2):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            call = calls[name]
            start = time.perf_counter_ns()
            for _ in range(repeats):
                call()
            if number >= 2:
                times[name].append((time.perf_counter_ns() - start) / repeats)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--target", help="an instruction set, in Highway's names; the best one without")
    options = parser.parse_args()
    if options.target:
        os.environ[VARIABLE] = options.target
    import torch

    import boundscope_prism

    torch.set_num_threads(1)
    print(f"target {boundscope_prism.target()}, one thread, torch {torch.__version__}")
    print(f"{'':24}{'torch us':>10}" + "".join(f"{mode:>9}" for mode in MODES))
    for name, calls in cases().items():
        medians = medians_ns(calls, options.rounds)
        ratios = "".join(f"{medians[mode] / medians['torch']:8.2f}x" for mode in MODES)
        print(f"{name:24}{medians['torch'] / 1000:10.1f}{ratios}", flush=True)


if __name__ == "__main__":
    main()
