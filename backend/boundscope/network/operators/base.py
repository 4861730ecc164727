"""What the ONNX operators have in common, and the table that finds an operator's class by its ONNX name."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NoReturn, Self, TypeVar

import numpy as np
from torch import Tensor

from boundscope.errors import NetworkError, UnsupportedOperatorError
from boundscope.network.graph import Operator, TensorInfo

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class OnnxNode:
    """A node as the file has it, with what is known of its inputs: all that an operator is built from.

    `constants[i]` is the value of input i where no network input reaches it; `tensors[i]` describes every input.
    Outputs after the last one that somebody reads do not count in `used_output_count`.
    """

    name: str
    onnx_type: str
    opset: int
    attributes: Mapping[str, Any]
    tensors: tuple[TensorInfo | None, ...]
    constants: tuple[Array | None, ...]
    output_count: int = 1
    used_output_count: int = 1

    @property
    def label(self) -> str:
        return f"node '{self.name}' ({self.onnx_type})"

    def fail(self, what: str) -> NoReturn:
        raise NetworkError(f"{self.label}: {what}")

    def unsupported(self, what: str) -> NoReturn:
        raise UnsupportedOperatorError(f"{self.label}: {what} is not supported")

    def tensor(self, index: int = 0) -> TensorInfo:
        info = self.tensors[index] if index < len(self.tensors) else None
        if info is None:
            self.fail(f"input {index} is missing")
        return info

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the first input."""
        return self.tensor(0).shape

    @property
    def rank(self) -> int:
        return len(self.shape)

    def integer(self, name: str, default: int | None = None) -> int:
        return int(self._attribute(name, default))

    def number(self, name: str, default: float | None = None) -> float:
        return float(self._attribute(name, default))

    def text(self, name: str, default: str) -> str:
        value = self._attribute(name, default)
        return value.decode() if isinstance(value, bytes) else str(value)

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A list of integers, or None where the attribute is left out."""
        value = self.attributes.get(name)
        return None if value is None else tuple(int(v) for v in value)

    def numbers(self, name: str) -> tuple[float, ...] | None:
        value = self.attributes.get(name)
        return None if value is None else tuple(float(v) for v in value)

    def constant(self, index: int) -> Array | None:
        return self.constants[index] if index < len(self.constants) else None

    def constant_integers(self, index: int) -> tuple[int, ...] | None:
        """A constant input as integers, or None where it is left out."""
        value = self.constant(index)
        return None if value is None else tuple(int(v) for v in value.reshape(-1))

    def axis(self, value: int, rank: int | None = None) -> int:
        """A non-negative axis of a tensor of this rank (default: of the first input)."""
        rank = self.rank if rank is None else rank
        if not -rank <= value < rank:
            self.fail(f"axis {value} does not exist in a tensor of {rank} axes")
        return value % rank

    def axes(self, values: Sequence[int], rank: int | None = None) -> tuple[int, ...]:
        axes = tuple(self.axis(value, rank) for value in values)
        if len(set(axes)) != len(axes):
            self.fail(f"axes {list(values)} name one axis twice")
        return axes

    def _attribute(self, name: str, default: Any) -> Any:
        value = self.attributes.get(name, default)
        if value is None:
            self.fail(f"attribute '{name}' is missing")
        return value


class OnnxOperator(Operator):
    """Base of the operators: frozen dataclasses whose attributes are resolved against the input's static shape.

    Class attributes:
        parameters: input positions that hold attributes, not data. They must be constant; they are folded into
            the operator, and the node has no such inputs.
        rounds: False where floating-point arithmetic computes the operator exactly (moving, comparing, negating).
    """

    parameters: ClassVar[tuple[int, ...]] = ()
    rounds: ClassVar[bool] = True

    @classmethod
    def form(cls, constant: Sequence[bool]) -> type[OnnxOperator]:
        """The class of a node whose inputs are constant (or left out) as told: this one, or one that takes as data
        what this one folds."""
        return cls

    @classmethod
    def from_onnx(cls, node: OnnxNode) -> Self:
        """Build the operator of a node.

        Raises:
            NetworkError: the attributes do not make sense.
            UnsupportedOperatorError: they ask for a variant that is not there.
        """
        return cls()

    def term_count(self, inputs: Sequence[Tensor | None]) -> int:
        """How many products or terms are summed in one output element."""
        return 1

    def term_magnitude(self, inputs: Sequence[Tensor | None], output: Tensor) -> Tensor:
        """Σ|terms| of each element of the first output (its shape, or one that broadcasts to it).

        Two correct float evaluations differ by at most a few (term_count) units in the last place of this.
        """
        return output.abs()


_CLASSES: dict[str, type[OnnxOperator]] = {}
C = TypeVar("C", bound=type[OnnxOperator])


def operator(onnx_type: str) -> Any:
    """Class decorator: this class is the ONNX operator `onnx_type` of the default domain."""

    def register(cls: C) -> C:
        cls.onnx_type = onnx_type
        _CLASSES[onnx_type] = cls
        return cls

    return register


def class_of(onnx_type: str) -> type[OnnxOperator] | None:
    """The class of an ONNX operator, or None."""
    return _CLASSES.get(onnx_type)


def known_operators() -> frozenset[str]:
    """ONNX names of all operators that can be evaluated."""
    return frozenset(_CLASSES)


def require(value: Tensor | None) -> Tensor:
    """An input that the operator cannot do without."""
    if value is None:
        raise NetworkError("a required input was left out")
    return value
