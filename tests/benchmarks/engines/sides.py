"""How each engine is run once, and what it is measured by: CPU seconds of one thread, bounds, peak memory."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path

import numpy as np
import torch

from benchmarks.engines.memory import peaks_of_tensors
from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.alpha import AlphaSettings
from boundscope.bounds.context import BoxContext
from boundscope.errors import BoundscopeError
from boundscope.monitor import Monitor
from boundscope.network import Network
from boundscope.network.operators.linear import Gemm
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Event, Method, Progress
from boundscope.reference import import_auto_lirpa
from boundscope.reference.compat import bound_options, quiet
from boundscope.reference.engine import ReferenceEngine
from boundscope.reference.module import NetworkModule
from boundscope.sharding.weights import WholeWeights

Load = Callable[[], tuple[Network, Box]]
CHUNK_ROWS = 512  # of the matrix products alone


@dataclass(frozen=True)
class Measured:
    """CPU seconds, and for `crown` the mean width of the outputs' bounds, for `alpha` their mean lower bound."""

    cpu_s: float
    bound: float


def _cpu_seconds(work: Callable[[], float]) -> Measured:
    start = time.process_time()
    bound = work()
    return Measured(time.process_time() - start, bound)


class Ours:
    """boundscope's engine, with the rounding of every operation counted."""

    def __init__(self, network: Network, box: Box) -> None:
        self.network, self.box = network, box
        ledger = MemoryLedger()
        weights = WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64)
        self.rows: dict[str, int] = {}  # bounded in each stage of the last run
        self._engine = BoundEngine(network, weights, ledger, monitor=Monitor(self._note))

    def _note(self, event: Event) -> None:
        if isinstance(event, Progress) and " bounds of " in event.stage:
            self.rows[event.stage.split(" bounds of ")[1]] = event.total

    def run(self, method: str) -> Measured:
        self.rows.clear()
        return _cpu_seconds(self._crown if method == "crown" else self._alpha)

    def _context(self, method: Method) -> BoxContext:
        return self._engine.context(self.box, method)

    def _crown(self) -> float:
        context = self._context(Method.CROWN)
        (info,) = self.network.outputs
        rows = self._engine.element_bounds(context, info.name, torch.arange(info.size), "outputs")
        return float((rows.upper - rows.lower).mean())

    def _alpha(self) -> float:
        one = np.ones(1)
        rows = [LinearConstraint(np.array([i]), one, Fraction(0)) for i in range(self.network.output_count)]
        context = self._context(Method.ALPHA_CROWN)
        return float(self._engine.margins(context, rows, Method.ALPHA_CROWN).mean())


class Theirs:
    """auto_LiRPA in float32, without account of rounding; convolutions as patches where it can."""

    def __init__(self, network: Network, box: Box) -> None:
        """
        Raises:
            BoundscopeError: it cannot bound the network.
        """
        self._lirpa = import_auto_lirpa()
        self._module = NetworkModule(network, torch.float32)
        lower, upper = (
            torch.from_numpy(ends.astype(np.float32)).reshape(network.inputs[0].shape)
            for ends in (box.lower, box.upper)
        )
        ball = self._lirpa.PerturbationLpNorm(norm=np.inf, x_L=lower, x_U=upper)
        self._x = (self._lirpa.BoundedTensor((lower + upper) / 2, ball),)
        self._patches = True
        with quiet():
            _require_bounds(network, box)
            try:
                self._bounded("crown").compute_bounds(x=self._x, method="CROWN")
            except Exception:  # noqa: BLE001 - whatever a library without declared errors raises
                self._patches = False

    def _bounded(self, method: str):  # type: ignore[no-untyped-def]
        options = bound_options(
            patches=self._patches, steps=AlphaSettings().steps, between_steps=lambda: None
        )
        return self._lirpa.BoundedModule(self._module, torch.zeros_like(self._x[0]), bound_opts=options)

    def run(self, method: str) -> Measured:
        with quiet():
            bounded = self._bounded(method)

            def work() -> float:
                if method == "crown":
                    with torch.no_grad():
                        low, high = bounded.compute_bounds(x=self._x, method="CROWN")
                    return float((high - low).mean())
                low, _ = bounded.compute_bounds(x=self._x, method="CROWN-Optimized", bound_upper=False)
                return float(low.detach().mean())

            return _cpu_seconds(work)


def _require_bounds(network: Network, box: Box) -> None:
    """Our adapter says in words why auto_LiRPA fails, and where it misreads a network."""
    one = LinearConstraint(np.array([0]), np.ones(1), Fraction(0))
    ReferenceEngine(network).bounds(box, [one], Method.IBP)


def products_alone(network: Network, rows: dict[str, int]) -> float:
    """CPU seconds of CROWN's matrix products for these numbers of rows by node, in float32 and nothing else; NaN
    where the network is not a chain of matrix products."""
    layers = [node for node in network.nodes if node.op.onnx_type != "Relu"]
    if not all(isinstance(node.op, Gemm) for node in layers):
        return math.nan
    matrices = []
    for node in layers:
        weight = torch.from_numpy(network.constants[node.inputs[1]].copy())
        matrices.append(weight if node.op.transpose_b else weight.T.contiguous())
    wanted = [rows.get(node.name, 0) for node in layers]
    wanted[-1] = 2 * network.output_count

    def work() -> float:
        for number in range(1, len(matrices)):
            for first in range(0, wanted[number], CHUNK_ROWS):
                flat = torch.ones(min(CHUNK_ROWS, wanted[number] - first), len(matrices[number - 1]))
                for matrix in reversed(matrices[:number]):
                    flat = flat @ matrix
        return 0.0

    return _cpu_seconds(work).cpu_s


def peak_bytes(
    side: str,
    method: str,
    load: Load,
    warm_ups: Sequence[Load],
) -> tuple[int, int]:
    """The most that one run holds: resident, above the process with everything imported, the network loaded, and the
    engine used on other networks; and, of a second run, in tensors. For a process of its own.

    Raises:
        BoundscopeError: the peak cannot be reset here (Linux only).
    """
    engine = {"ours": Ours, "theirs": Theirs}[side]
    for warm_up in warm_ups:
        engine(*warm_up()).run(method)
    network, box = load()
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):
        # What loading has freed would be used again without being seen.
        ctypes.CDLL(None).malloc_trim(0)
    try:
        Path("/proc/self/clear_refs").write_text("5")
    except OSError as error:
        raise BoundscopeError(f"the peak of resident memory cannot be reset: {error}") from error
    idle = _status_kib("VmRSS")
    engine(network, box).run(method)
    resident = (_status_kib("VmHWM") - idle) * 1024
    gc.collect()
    (tensors,) = peaks_of_tensors(lambda: engine(network, box).run(method))
    return resident, tensors


def _status_kib(key: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{key}:"):
            return int(line.split()[1])
    raise BoundscopeError(f"/proc/self/status has no {key}")
