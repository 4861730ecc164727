"""The typed graph that an ONNX file becomes. Imports nothing else of ours but errors."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from boundscope.errors import NetworkError

if TYPE_CHECKING:
    import torch

    from boundscope.network.arrays import FileState

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorInfo:
    """Name, static shape (symbolic batch axes are 1) and numpy dtype of a tensor of the graph."""

    name: str
    shape: Shape
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


class Operator:
    """Base of all operators: a frozen dataclass of attributes; one class an ONNX operator.

    Class attribute `onnx_type` is the ONNX name. Shapes come from evaluating on zeros at load.
    """

    onnx_type: str = ""

    @property
    def only_rounds(self) -> bool:
        """Whether it changes nothing but the precision; an evaluation in another dtype than the file's skips it."""
        return False

    def evaluate(self, inputs: Sequence[torch.Tensor | None]) -> tuple[torch.Tensor, ...]:
        """The outputs for these inputs (None: an optional input left out); any floating dtype, any device."""
        raise NotImplementedError(type(self).__name__)


@dataclass(frozen=True)
class Node:
    """One operator applied: tensor names in and out. Inputs "" are optional ones left out."""

    name: str
    op: Operator
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """A network with constants folded: nodes in topological order, each depending on some network input.

    `constants` holds every tensor that no input reaches, in the file's dtype; `tensors` describes all tensors.
    Nodes that compute on shapes or constants only are gone.
    """

    name: str
    opset: int
    inputs: tuple[TensorInfo, ...]
    outputs: tuple[TensorInfo, ...]
    nodes: tuple[Node, ...]
    constants: Mapping[str, np.ndarray]
    tensors: Mapping[str, TensorInfo]
    source: str = ""  # path of the file it came from, for replay
    node_by_output: Mapping[str, Node] = field(default_factory=dict)
    # Folded constants whose value is rounded: largest |value in the file's dtype − value in float64|, by name.
    rounded_constants: Mapping[str, float] = field(default_factory=dict)
    # What others may write to while constants are views of it.
    files: tuple[FileState, ...] = field(default=(), compare=False, repr=False)

    @property
    def input_count(self) -> int:
        """Elements of all inputs together (X_0 … X_{n−1} of a property, in order)."""
        return sum(info.size for info in self.inputs)

    @property
    def output_count(self) -> int:
        return sum(info.size for info in self.outputs)

    def evaluate(
        self,
        inputs: Mapping[str, torch.Tensor],
        *,
        constants: Mapping[str, torch.Tensor] | None = None,
        visit: Callable[[Node, tuple[torch.Tensor, ...]], None] | None = None,
        lean: bool = False,
    ) -> dict[str, torch.Tensor]:
        """Run the graph. `inputs` have each network input's shape; returns the outputs by name.

        `constants` overrides the constants as torch tensors (float64 copies, or on another device); floating
        constants that it leaves out are converted to the inputs' dtype and device. `visit` is called after
        every node with its outputs. Intermediate tensors are freed after their last use. `lean`: wide matrices that
        `constants` leaves out are read a band at a time.

        Raises:
            NetworkError: an input is missing or has another shape.
        """
        import torch

        from boundscope.network.arrays import as_tensor
        from boundscope.network.products import WideProduct

        values = self._checked_inputs(inputs)
        sample = values[self.inputs[0].name]
        in_file_dtype = sample.dtype == torch.from_numpy(np.zeros(0, self.inputs[0].dtype)).dtype
        dtype = None if in_file_dtype else sample.dtype
        given = constants or {}

        def value_of(name: str) -> torch.Tensor | None:
            if not name:
                return None
            if name in values:
                return values[name]
            if name in given:
                return given[name]
            return _converted(as_tensor(self.constants[name]), dtype).to(sample.device)

        kept = {info.name for info in self.outputs}
        last_use = {name: i for i, node in enumerate(self.nodes) for name in node.inputs}
        for i, node in enumerate(self.nodes):
            wide = WideProduct.of(self, node) if lean and not given.keys() & node.inputs[1:2] else None
            arguments = [
                None if wide is not None and index == 1 else value_of(name)
                for index, name in enumerate(node.inputs)
            ]
            first = arguments[0] if arguments else None
            if wide is not None:
                results: tuple[torch.Tensor, ...] = (wide.evaluate(arguments),)
            elif dtype is not None and first is not None and node.op.only_rounds:
                results = (first,)
            else:
                results = node.op.evaluate(arguments)
            results = tuple(_converted(result, dtype) for result in results)
            if visit is not None:
                visit(node, results)
            values.update((name, r) for name, r in zip(node.outputs, results, strict=False) if name)
            for name in (*node.inputs, *node.outputs):
                if name not in kept and last_use.get(name, i) == i:
                    values.pop(name, None)
        outputs = {name: value_of(name) for name in kept}
        return {info.name: out for info in self.outputs if (out := outputs[info.name]) is not None}

    def _checked_inputs(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The network's inputs by name, their shapes checked."""
        for info in self.inputs:
            if info.name not in inputs:
                raise NetworkError(f"network '{self.name}' needs a value for its input '{info.name}'")
            shape = tuple(inputs[info.name].shape)
            if shape != info.shape:
                raise NetworkError(
                    f"input '{info.name}' of network '{self.name}' has shape {list(info.shape)}; got {list(shape)}"
                )
        return {info.name: inputs[info.name] for info in self.inputs}


def _converted(tensor: torch.Tensor, dtype: torch.dtype | None) -> torch.Tensor:
    """Floating tensors in the dtype of the evaluation (None: the file's own), all others as they are."""
    return tensor.to(dtype) if dtype is not None and tensor.is_floating_point() else tensor
