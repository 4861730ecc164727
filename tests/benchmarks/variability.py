"""Slowdown of instrumented inference against plain torch on the same module and input, on one core.

    python tests/benchmarks/variability.py [--batch N ...] [--rounds R] [--profile]

The CNN is of MNIST's class (PyTorch's own example: two convolutions, two dense layers), the encoder layer is 256 wide
with 8 heads over 64 tokens. Each round times every column once, in an order that rotates, so that a busy moment of the
machine meets all of them; the table has medians of the thread's own time, in milliseconds a forward pass, and their
ratios to torch's. The context is entered anew for each forward pass, as for a sample. "dispatch" is what the context
and torch's dispatch to Python cost when each operator runs natively. --profile shows where the Python time of one mode
goes.
"""

from __future__ import annotations

import argparse
import cProfile
import pstats
import statistics
import time
from collections.abc import Callable
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import boundscope_prism
from boundscope_prism.instrument.switches import separate_operators

MODES: tuple[boundscope_prism.Mode, ...] = ("rn", "ud", "rr", "sr")
WARM_UP = 2


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 32, 3),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(9216, 128),
        nn.ReLU(),
        nn.Linear(128, 10),
        nn.LogSoftmax(1),
    )


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(256, 8, 1024, batch_first=True)


NETWORKS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "cnn": (cnn, (1, 28, 28)),
    "encoder": (encoder, (64, 256)),
}


class Native(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        return func(*args, **(kwargs or {}))


@contextmanager
def native():  # type: ignore[no-untyped-def]
    with separate_operators(), Native():  # type: ignore[no-untyped-call]
        yield


def columns(model: nn.Module, x: Tensor) -> dict[str, Callable[[], object]]:
    def plain() -> object:
        return model(x)

    def dispatched() -> object:
        with native():
            return model(x)

    def instrumented(mode: boundscope_prism.Mode) -> Callable[[], object]:
        def call() -> object:
            with boundscope_prism.instrument(mode, seed=1, threads=1, model=model):
                return model(x)

        return call

    return {"torch": plain, "dispatch": dispatched, **{mode: instrumented(mode) for mode in MODES}}


def medians_s(calls: dict[str, Callable[[], object]], rounds: int) -> dict[str, float]:
    times: dict[str, list[float]] = {name: [] for name in calls}
    names = list(calls)
    for number in range(rounds + WARM_UP):
        shift = number % len(names)
        for name in names[shift:] + names[:shift]:
            start = time.thread_time()
            calls[name]()
            elapsed = time.thread_time() - start
            if number >= WARM_UP:
                times[name].append(elapsed)
    return {name: statistics.median(values) for name, values in times.items()}


def profile(call: Callable[[], object], title: str) -> None:
    call()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(20):
        call()
    profiler.disable()
    print(title)
    pstats.Stats(profiler).sort_stats("tottime").print_stats(25)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 16], help="inputs in one forward pass")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--network", choices=NETWORKS, nargs="+", default=list(NETWORKS))
    parser.add_argument("--profile", choices=MODES, help="show where this mode's Python time goes")
    options = parser.parse_args()
    torch.set_num_threads(1)
    print(f"{boundscope_prism.target()}, one core, milliseconds (times torch's)")
    print(
        f"{'network':8} {'batch':>5} {'torch':>9}" + "".join(f"{name:>18}" for name in ("dispatch", *MODES))
    )
    for name in options.network:
        make, shape = NETWORKS[name]
        torch.manual_seed(0)
        model = make().eval()
        for batch in options.batch:
            calls = columns(model, torch.randn(batch, *shape))
            with torch.inference_mode():
                if options.profile:
                    profile(calls[options.profile], f"{name}, batch {batch}")
                    continue
                times = medians_s(calls, options.rounds)
            base = times.pop("torch")
            cells = "".join(f"{value * 1e3:10.3f} {value / base:6.2f}x" for value in times.values())
            print(f"{name:8} {batch:5} {base * 1e3:9.3f}{cells}", flush=True)


if __name__ == "__main__":
    main()
