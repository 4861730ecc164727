"""A run that says RATE events a second, of all kinds: `python -m app.streaming_job FOLDER`, without torch.

Its time limit says for how long; its seed, how many nodes the network has.
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from boundscope.daemon.jobspec import read_spec
from boundscope.errors import CancelledError, DeadlineError
from boundscope.protocol import (
    Branching,
    Event,
    GapPoint,
    LayerBounds,
    LogLine,
    MemorySample,
    NetworkSummary,
    NodeSummary,
    Progress,
    SearchPoint,
    TensorSummary,
)
from boundscope.worker import process
from boundscope.worker.observer import Observer

RATE = 1000  # events a second
TICKS = 50  # pieces that a second's events come in
CLAUSES = 8
BRANCH = 7  # every so many nodes, one feeds a node further on as well


def network(nodes: int) -> NetworkSummary:
    """A chain with a skip past every BRANCH-th node, as residual networks have them."""

    def node(number: int) -> NodeSummary:
        sources = [f"t{number}"]
        if number >= BRANCH and number % BRANCH == 0:
            sources.append(f"t{number - BRANCH + 1}")
        op = "Add" if len(sources) > 1 else "Relu" if number % 2 else "Gemm"
        return NodeSummary(
            f"node_{number}", op, tuple(sources), (f"t{number + 1}",), (1, 64), 4160 * (op == "Gemm")
        )

    return NetworkSummary(
        name="stream",
        opset=17,
        inputs=(TensorSummary("t0", (1, 64), "float32"),),
        outputs=(TensorSummary(f"t{nodes}", (1, 64), "float32"),),
        nodes=tuple(node(number) for number in range(nodes)),
        parameters=4160 * nodes // 2,
        weight_bytes=16640 * nodes // 2,
    )


def events(nodes: int) -> Iterator[Event]:
    """Without end, in the mixture of a busy complete verification: margins, layers, memory, search, log."""
    number = 0
    while True:
        elapsed_s = number / RATE
        for clause in range(CLAUSES):
            lower = -math.exp(-elapsed_s / 20) * (1 + clause) + 0.02 * math.sin(number)
            yield GapPoint(
                elapsed_s=elapsed_s, case=0, clause=clause, lower=lower, upper=1.0 + clause, step="α"
            )
        for layer in range(number // 4, number // 4 + 5):
            yield LayerBounds(
                case=0, node=f"node_{layer % nodes}", op="Gemm", size=64, lower_min=-1.0 - number % 9,
                upper_max=2.0, width_mean=1.5, width_max=3.0 + number % 9, unstable=layer % 64, method="CROWN",
            )  # fmt: skip
        yield MemorySample(
            elapsed_s=elapsed_s,
            by_category={"weights": 1 << 28, "rows": (number * 7919) % (1 << 28), "slopes": 1 << 20},
            resident_bytes=1 << 30,
            limit_bytes=1 << 31,
        )
        yield SearchPoint(
            elapsed_s=elapsed_s, branching=Branching.AUTO, done=number, open=number % 977, depth=number % 40,
            clauses_open=CLAUSES, worst=-1.0 / (1 + elapsed_s), best=-0.1 / (1 + elapsed_s),
        )  # fmt: skip
        yield Progress(stage="branch and bound", done=number, total=0, open=number % 977)
        yield LogLine(
            text=f"round {number // 17}: {number % 977} domains open, the worst margin rose a little"
        )
        number += 17


def stream(observer: Observer, nodes: int) -> None:
    """Say RATE events in every second until the time limit; where this machine is too slow for that, as many as go."""
    observer.emit(network(nodes))
    made = events(nodes)
    start_s = time.monotonic()
    for piece in range(1, sys.maxsize):
        observer.check()
        for _ in range(RATE // TICKS):
            observer.emit(next(made))
        time.sleep(max(0.0, start_s + piece / TICKS - time.monotonic()))


if __name__ == "__main__":
    process.begin()
    spec = read_spec(Path(sys.argv[1]))
    with Observer(spec, 0) as observer, suppress(CancelledError, DeadlineError):
        observer.begin(spec.job.timeout_s)
        stream(observer, spec.job.seed)
    process.end(0)
