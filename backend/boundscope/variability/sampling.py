"""Inference of an ONNX network repeated under stochastic arithmetic: one evaluation, and a rank's part of a run.

The network's own operators are evaluated node by node, each as the layer of its name. One sample is one pass over all
points under one sample number; operations are numbered through the points, so that each has random words of its own.
"""

from __future__ import annotations

import dataclasses
import fnmatch
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.errors import OutOfMemoryError, VariabilityError
from boundscope.monitor import Monitor
from boundscope.network.graph import Network, Node, Operator
from boundscope.variability.inputs import Inputs
from boundscope.variability.moments import Floats
from boundscope.variability.moments_file import RunMoments

if TYPE_CHECKING:
    from boundscope_prism import Mode
    from boundscope_prism.instrument import Coverage as Coverage
    from boundscope_prism.instrument.run import Run

Tensors = dict[str, Floats]
Select = Callable[[str], bool]


@dataclass(frozen=True)
class Perturbation:
    """How a run is rounded, as `boundscope_prism.rounding` takes it. `threads` changes no bit."""

    mode: Mode = "sr"
    seed: int = 0
    precision: int | None = None
    threads: int | None = None


@dataclass(frozen=True)
class Layer:
    """A floating-point tensor that is watched: `name` is its node's, with the output's number where it has several."""

    name: str
    tensor: str
    node: str
    op: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    output: bool  # whether the network gives it out

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def layers_of(network: Network, patterns: Sequence[str] = ()) -> tuple[Layer, ...]:
    """The layers to watch, in order: all, or those whose names match one of the patterns (`*` and `?`), and outputs.

    Raises:
        VariabilityError: a pattern matches no layer, or there is no layer at all.
    """
    outputs = {info.name for info in network.outputs}
    found: list[Layer] = []
    for node in network.nodes:
        given = [name for name in node.outputs if name]
        for position, tensor in enumerate(given):
            info = network.tensors[tensor]
            if info.dtype.kind != "f":
                continue
            name = node.name if position == 0 else f"{node.name}#{position}"
            found.append(
                Layer(name, tensor, node.name, node.op.onnx_type, info.shape, info.dtype, tensor in outputs)
            )
    if not found:
        raise VariabilityError(f"network '{network.name}' computes no floating-point tensor")
    for pattern in patterns:
        if not any(fnmatch.fnmatchcase(layer.name, pattern) for layer in found):
            names = ", ".join(layer.name for layer in found[:8]) + (", …" if len(found) > 8 else "")
            raise VariabilityError(f"no layer is called {pattern!r}; the network has {names}")
    return tuple(
        layer
        for layer in found
        if not patterns
        or layer.output
        or any(fnmatch.fnmatchcase(layer.name, pattern) for pattern in patterns)
    )


def bytes_needed(layers: Sequence[Layer], points: int, samples: int) -> int:
    """What a rank holds: for each element the sample, the baseline, the extremes and a count, and 16 bytes for each
    block of samples that is not joined yet. 48 bytes an element at least."""
    elements = points * sum(layer.size for layer in layers)
    return elements * max(48, 24 + 16 * max(1, samples).bit_length())


def require_memory(layers: Sequence[Layer], points: int, samples: int, budget_bytes: int) -> None:
    """
    Raises:
        OutOfMemoryError: the run would hold more than the budget; it says which layers take most.
    """
    needed = bytes_needed(layers, points, samples)
    if needed <= budget_bytes:
        return
    largest = sorted(layers, key=lambda layer: -layer.size)[:3]
    names = ", ".join(f"{layer.name} ({layer.size * points} elements)" for layer in largest)
    raise OutOfMemoryError(
        f"moments of {len(layers)} layers over {points} points need {needed / 2**20:.0f} MiB on each rank, and the "
        f"budget is {budget_bytes / 2**20:.0f} MiB; the largest are {names}. Watch fewer layers (--layers), give "
        "fewer points or ranks, or a larger --memory-budget"
    )


# ------------------------------------------------------------ one evaluation


@dataclass(frozen=True)
class _Scoped(Operator):
    """An operator that runs as the layer of its node's name."""

    inner: Operator
    name: str
    run: Run
    monitor: Monitor

    @property
    def only_rounds(self) -> bool:
        return self.inner.only_rounds

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        self.monitor.check()
        with self.run.scope(self.name):
            return self.inner.evaluate(inputs)


@dataclass
class Sampler:
    """Evaluates a network on all points of `inputs` under one perturbation."""

    network: Network
    inputs: Inputs
    how: Perturbation
    layers: tuple[Layer, ...]
    monitor: Monitor = field(default_factory=Monitor)

    def sample(
        self, number: int, select: Select | None = None, layers: Sequence[Layer] | None = None
    ) -> Tensors:
        """The watched tensors of sample `number`, [points, *S] by layer; S without a leading axis of length 1.

        `select` is asked for each node's name whether it is perturbed. `layers` takes the place of those watched.

        Raises:
            CancelledError, DeadlineError: from the monitor, between nodes.
            VariabilityError: the kernels refuse the network's tensors or the precision.
        """
        return self._evaluated(self.how.mode, number, select, layers)[0]

    def baseline(self) -> tuple[Tensors, Coverage]:
        """The same rounded to nearest by the same kernels, and what was instrumented."""
        return self._evaluated("rn", 0, None, None)

    def _evaluated(
        self, mode: Mode, number: int, select: Select | None, layers: Sequence[Layer] | None
    ) -> tuple[Tensors, Coverage]:
        from boundscope_prism import PrismArgumentError, PrismUnavailableError

        try:
            return self._instrumented(mode, number, select, layers)
        except (PrismArgumentError, PrismUnavailableError) as error:
            raise VariabilityError(
                f"network '{self.network.name}' cannot be instrumented: {error}"
            ) from error

    def _instrumented(
        self, mode: Mode, number: int, select: Select | None, layers: Sequence[Layer] | None
    ) -> tuple[Tensors, Coverage]:
        from boundscope_prism.instrument import instrument

        watched = {layer.tensor: layer for layer in (self.layers if layers is None else layers)}
        points = self.inputs.count
        found: Tensors = {
            layer.name: np.empty((points, *_own_axes(layer.shape)), layer.dtype) for layer in watched.values()
        }
        how = self.how
        with (
            torch.no_grad(),
            instrument(
                mode,
                seed=how.seed,
                sample=number,
                precision=how.precision,
                threads=how.threads,
                select=select,
            ) as run,
        ):
            scoped = self._scoped(run)
            for point in range(points):

                def keep(node: Node, results: tuple[Tensor, ...], point: int = point) -> None:
                    for name, result in zip(node.outputs, results, strict=False):
                        layer = watched.get(name)
                        if layer is not None:
                            found[layer.name][point] = result.detach().numpy().reshape(_own_axes(layer.shape))

                scoped.evaluate(self._point(point), visit=keep)
        return found, run.coverage

    def _scoped(self, run: Run) -> Network:
        nodes = tuple(
            dataclasses.replace(node, op=_Scoped(node.op, node.name, run, self.monitor))
            for node in self.network.nodes
        )
        return dataclasses.replace(self.network, nodes=nodes)

    def _point(self, number: int) -> dict[str, Tensor]:
        return {name: torch.from_numpy(values[number]) for name, values in self.inputs.values.items()}


def _own_axes(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape[1:] if shape and shape[0] == 1 else shape


def class_axes(layers: Sequence[Layer], axis: int | None = None) -> dict[str, int]:
    """The axis of [points, *S] along which each output's largest element is a decision; outputs without one left out.

    By default the first axis of S, where vectors of scores and segmentations have their classes.
    """
    chosen = 1 if axis is None else axis
    return {
        layer.name: chosen
        for layer in layers
        if layer.output and chosen <= len(_own_axes(layer.shape)) and _own_axes(layer.shape)[chosen - 1] >= 2
    }


def tensors_digest(tensors: Mapping[str, NDArray[Any]]) -> str:
    """SHA-256 of the bits of all tensors."""
    found = hashlib.sha256()
    for name, array in tensors.items():
        found.update(name.encode())
        found.update(array.tobytes())
    return found.hexdigest()


# ------------------------------------------------------------ a part of a run


def share(numbers: Sequence[int], rank: int, size: int) -> tuple[int, ...]:
    """The samples that a rank takes: neighbours, for their moments join at once. Sizes differ by one at most."""
    start, rest = divmod(len(numbers), size)
    first = rank * start + min(rank, rest)
    return tuple(numbers[first : first + start + (rank < rest)])


@dataclass
class Part:
    """The samples that one rank takes, added to `moments` one by one. After each, `taken(number)` is called."""

    sampler: Sampler
    moments: RunMoments
    numbers: Sequence[int]
    taken: Callable[[int], None] = lambda number: None

    def run(self) -> None:
        """
        Raises:
            CancelledError, DeadlineError: the work should stop; what was taken until then is in `moments`.
            VariabilityError: a sample does not fit the baseline.
        """
        for number in self.numbers:
            self.moments.add(number, self.sampler.sample(number))
            self.taken(number)
