"""The typed graph that an ONNX file becomes. Imports nothing else of ours but errors."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import torch

Shape = tuple[int, ...]


@dataclass(frozen=True)
class TensorInfo:
    """Name, static shape (symbolic batch axes are 1) and numpy dtype of a tensor of the graph."""

    name: str
    shape: Shape
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64))


class Operator:
    """Base of all operators: a frozen dataclass of attributes; one class an ONNX operator.

    Class attribute `onnx_type` is the ONNX name. Shapes come from evaluating on zeros at load.
    """

    onnx_type: str = ""

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
    ) -> dict[str, torch.Tensor]:
        """Run the graph. `inputs` have each network input's shape; returns the outputs by name.

        `constants` overrides the constants as torch tensors (float64 copies, or on another device);
        `visit` is called after every node with its outputs.
        """
        raise NotImplementedError
