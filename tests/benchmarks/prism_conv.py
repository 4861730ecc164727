"""Slowdown of rounded convolutions against torch's own on the same data, beside the matrix product's.

    python tests/benchmarks/prism_conv.py [--modes MODE ...] [--rounds R] [--images N]

One thread, float32; times are the thread's own on the processor, so that waiting for it does not count. Each round
times every call once, in an order that rotates, so that a busy moment of the machine meets all of them; printed are
medians in microseconds and their ratios to torch's call in the same rounds. The matrix product is 512 x 512 x 512,
and "to product" is the ratio of a convolution's slowdown to the product's.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch

import boundscope_prism

PRODUCT_SIZE = 512
WARM_UP_ROUNDS = 2


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    channels: int
    out_channels: int
    kernel: int
    size: int
    groups: int = 1
    transposed: bool = False


CASES = (
    Case("64->64 3x3, 32x32", 64, 64, 3, 32),
    Case("3->32 5x5, 28x28", 3, 32, 5, 28),
    Case("128->128 1x1, 16x16", 128, 128, 1, 16),
    Case("depthwise 64 3x3, 32x32", 64, 64, 3, 32, groups=64),
    Case("transposed 32->32 4x4/2, 16x16", 32, 32, 4, 16, transposed=True),
)


def product_calls(modes: list[str]) -> dict[str, Callable[[], object]]:
    a, b = torch.randn(2, PRODUCT_SIZE, PRODUCT_SIZE, generator=torch.Generator().manual_seed(0))
    out = torch.empty(PRODUCT_SIZE, PRODUCT_SIZE)
    calls: dict[str, Callable[[], object]] = {"torch": partial(torch.mm, a, b, out=out)}
    for mode in modes:
        rounding = boundscope_prism.rounding(mode, seed=1, threads=1)  # type: ignore[arg-type]
        calls[mode] = partial(boundscope_prism.matmul, a, b, rounding, out=out)
    return calls


def convolution_calls(case: Case, images: int, modes: list[str]) -> dict[str, Callable[[], object]]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(images, case.channels, case.size, case.size, generator=generator)
    shape = (case.out_channels, case.channels // case.groups, case.kernel, case.kernel)
    weight = torch.randn(shape, generator=generator)
    bias = torch.randn(case.out_channels, generator=generator)
    stride = 2 if case.transposed else 1
    padding = case.kernel // 2 - (1 if case.transposed else 0)
    peer = torch.conv_transpose2d if case.transposed else torch.conv2d
    calls: dict[str, Callable[[], object]] = {
        "torch": partial(peer, x, weight, bias, stride=stride, padding=padding, groups=case.groups)
    }
    for mode in modes:
        calls[mode] = partial(
            boundscope_prism.convolution,
            x,
            weight,
            boundscope_prism.rounding(mode, seed=1, threads=1),  # type: ignore[arg-type]
            bias=bias,
            stride=stride,
            padding=padding,
            groups=case.groups,
            transposed=case.transposed,
        )
    return calls


def medians_us(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    with torch.inference_mode():
        for number in range(rounds + WARM_UP_ROUNDS):
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                start = time.thread_time_ns()
                calls[name]()
                if number >= WARM_UP_ROUNDS:
                    times[name].append((time.thread_time_ns() - start) / 1000)
    return {name: statistics.median(values) for name, values in times.items()}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--modes", nargs="+", default=["rn", "ud", "rr", "sr"], metavar="MODE")
    parser.add_argument("--rounds", type=int, default=31)
    parser.add_argument("--images", type=int, default=4)
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"target {boundscope_prism.target()}, {options.images} images")
    product = medians_us(product_calls(options.modes), options.rounds)
    print(f"{'product 512':32} torch {product['torch']:9.1f} us")
    for mode in options.modes:
        print(f"{'':32} {mode:5} {product[mode]:9.1f} us {product[mode] / product['torch']:7.2f}x")
    for case in CASES:
        times = medians_us(convolution_calls(case, options.images, options.modes), options.rounds)
        print(f"{case.name:32} torch {times['torch']:9.1f} us")
        for mode in options.modes:
            slowdown = times[mode] / times["torch"]
            relative = slowdown / (product[mode] / product["torch"])
            print(f"{'':32} {mode:5} {times[mode]:9.1f} us {slowdown:7.2f}x, to product {relative:5.2f}")


if __name__ == "__main__":
    main()
