"""From an ONNX model to the typed graph: constants folded, shapes from an evaluation at zero."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch

from boundscope.errors import NetworkError, UnsupportedOperatorError
from boundscope.network.arrays import FileState, as_tensor, drop_pages, release
from boundscope.network.file import open_model
from boundscope.network.graph import Network, Node, TensorInfo
from boundscope.network.operators import OnnxNode, OnnxOperator, class_of
from boundscope.network.operators.base import Array
from boundscope.network.operators.constant import Shape, Size
from boundscope.network.operators.linear import Gemm, MatMul
from boundscope.network.operators.shape import Cast, Identity
from boundscope.network.source import SourceGraph, SourceNode

LARGE_WEIGHT = (
    1 << 18
)  # elements; what a product with more of them gives at zero is not computed but for its shape
EVALUATION_ERRORS = (RuntimeError, ValueError, LookupError, TypeError, MemoryError, NotImplementedError)


def load(
    path: str | os.PathLike[str],
    told: Callable[[int, int], None] | None = None,
    *,
    mapped: bool = False,
    unpacked: BinaryIO | None = None,
) -> Network:
    """Read an ONNX file. See `boundscope.network.load_network`."""
    try:
        with open_model(path, mapped=mapped, unpacked=unpacked) as opened:
            source = SourceGraph.from_model(opened.model, Path(path), opened.places)
            network = _Builder(source, told, opened.files).build()
        release(network.constants)
        return network
    except UnicodeDecodeError as error:
        raise NetworkError(
            f"{path}: is damaged: it holds a name that is not text ({error.reason})"
        ) from error


@dataclass
class _Builder:
    """Walks the file's nodes once, in topological order."""

    source: SourceGraph
    told: Callable[[int, int], None] | None = None
    files: tuple[FileState, ...] = ()
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, Array] = field(default_factory=dict)
    tensors: dict[str, TensorInfo] = field(default_factory=dict)
    at_zero: dict[str, torch.Tensor] = field(default_factory=dict)
    alias: dict[str, str] = field(default_factory=dict)
    # Folded constants in float64, where the file's dtype rounds them.
    precise: dict[str, Array] = field(default_factory=dict)
    rounded: dict[str, float] = field(default_factory=dict)

    def build(self) -> Network:
        source = self.source
        source.refuse_unsupported()
        source.refuse_nonfinite()
        for info in source.inputs:
            self._describe(
                info.name, torch.zeros(info.shape, dtype=torch.from_numpy(np.zeros(0, info.dtype)).dtype)
            )
        with torch.no_grad():
            for done, node in enumerate(source.nodes, start=1):
                self._add(node)
                if self.told is not None:
                    self.told(done, len(source.nodes))
        self._name_outputs()
        used = {name for node in self.nodes for name in node.inputs} | set(source.outputs)
        constants = {name: value for name, value in self.constants.items() if name in used}
        for name, value in constants.items():
            self.tensors[name] = TensorInfo(name, value.shape, value.dtype)
        produced = {name for node in self.nodes for name in node.outputs}
        kept = produced | set(constants) | {info.name for info in source.inputs}
        return Network(
            name=source.path.name,
            opset=source.opset,
            inputs=tuple(source.inputs),
            outputs=tuple(self.tensors[name] for name in source.outputs),
            nodes=tuple(self.nodes),
            constants=constants,
            tensors={name: info for name, info in self.tensors.items() if name in kept},
            source=str(source.path),
            node_by_output={name: node for node in self.nodes for name in node.outputs if name},
            rounded_constants={name: error for name, error in self.rounded.items() if name in constants},
            files=self.files,
        )

    def _describe(self, name: str, value: torch.Tensor) -> None:
        dtype = np.dtype(torch.zeros((), dtype=value.dtype).numpy().dtype)
        self.tensors[name] = TensorInfo(name, tuple(value.shape), dtype)
        self.at_zero[name] = value

    def _value(self, name: str) -> torch.Tensor | None:
        if not name:
            return None
        if name in self.constants:
            return as_tensor(self.constants[name])
        return self.at_zero[name]

    def _info(self, name: str) -> TensorInfo | None:
        if name in self.constants:
            value = self.constants[name]
            return TensorInfo(name, value.shape, value.dtype)
        return self.tensors[name] if name else None

    def _add(self, node: SourceNode) -> None:
        """Fold a node, drop it, or append it to the graph."""
        inputs = tuple(self.alias.get(name, name) for name in node.inputs)
        for name in inputs:
            if name in self.source.initializers and name not in self.constants:
                self.constants[name] = self.source.initializer(name, node)
        self._refuse_nonfinite(node, inputs)
        cls = class_of(node.onnx_type)
        if cls is None:
            self._fold_by_reference(node, inputs)
            return
        op, data_inputs = self._operator(cls, node, inputs)
        is_copy = isinstance(op, Identity) or (isinstance(op, Cast) and op.source == op.to)
        if is_copy:
            self.alias[node.outputs[0]] = data_inputs[0]
            return
        folds = isinstance(op, Shape | Size) or all(name in self.constants for name in data_inputs if name)
        results = None if folds else self._shaped(op, data_inputs)
        if results is None:
            results = self._evaluate(op, [self._value(name) for name in data_inputs], node)
        if folds:
            self._fold(op, data_inputs, node, results)
        for name in inputs:
            if name in self.constants:
                drop_pages(self.constants[name])
        if folds:
            return
        outputs = tuple(name if name in self.source.read else "" for name in node.outputs[: len(results)])
        for name, result in zip(outputs, results, strict=True):
            if name:
                self._describe(name, result)
        self.nodes.append(Node(node.name, op, data_inputs, outputs))
        for name in set(inputs):
            if name in self.at_zero and self.source.last_reader.get(name) == node.name:
                del self.at_zero[name]

    def _operator(
        self, cls: type[OnnxOperator], node: SourceNode, inputs: tuple[str, ...]
    ) -> tuple[OnnxOperator, tuple[str, ...]]:
        """The operator of a node, and the inputs that remain once attributes are folded into it."""
        cls = cls.form([not name or name in self.constants for name in inputs])
        for index in cls.parameters:
            name = inputs[index] if index < len(inputs) else ""
            if name and name not in self.constants:
                raise UnsupportedOperatorError(
                    f"{self.source.path}: {node.label}: its input {index} ('{name}') depends on the network's "
                    "input; only a constant is supported there"
                )
        described = OnnxNode(
            name=node.name,
            onnx_type=node.onnx_type,
            opset=self.source.opset,
            attributes=node.attributes,
            tensors=tuple(self._info(name) for name in inputs),
            constants=tuple(self.constants.get(name) for name in inputs),
            output_count=len(node.outputs),
            used_output_count=max(
                (i + 1 for i, name in enumerate(node.outputs) if name in self.source.read), default=0
            ),
        )
        try:
            op = cls.from_onnx(described)
        except UnsupportedOperatorError as error:
            raise UnsupportedOperatorError(f"{self.source.path}: {error}") from error
        except (NetworkError, *EVALUATION_ERRORS) as error:
            text = (
                str(error) if isinstance(error, NetworkError) else f"{node.label}: bad attributes ({error})"
            )
            raise NetworkError(f"{self.source.path}: {text}{self.source.symbolic_hint}") from error
        return op, tuple(name for index, name in enumerate(inputs) if index not in cls.parameters)

    def _shaped(self, op: OnnxOperator, inputs: tuple[str, ...]) -> tuple[torch.Tensor, ...] | None:
        """Zeros in place of what a product with a large weight gives, where no more than its shape is needed; None
        where the product is to be computed, be it to say what is wrong with it."""
        sizes = [self.constants[name].size for name in inputs if name in self.constants]
        if max(sizes, default=0) < LARGE_WEIGHT or self.source.moves_by_values:
            return None
        known = [self._info(name) for name in inputs]
        shapes = [None if info is None else info.shape for info in known]
        if not isinstance(op, Gemm | MatMul) or (emptied := op.without_terms(shapes)) is None:
            return None
        given = [
            None
            if info is None or shape is None
            else torch.zeros(shape, dtype=as_tensor(np.empty(0, info.dtype)).dtype)
            for info, shape in zip(known, (*emptied, *shapes[2:]), strict=True)
        ]
        try:
            return op.evaluate(given)
        except EVALUATION_ERRORS:
            return None

    def _evaluate(
        self, op: OnnxOperator, values: list[torch.Tensor | None], node: SourceNode
    ) -> tuple[torch.Tensor, ...]:
        try:
            return op.evaluate(values)
        except (NetworkError, *EVALUATION_ERRORS) as error:
            shapes = ", ".join("none" if v is None else str(list(v.shape)) for v in values)
            reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
            raise NetworkError(
                f"{self.source.path}: {node.label} cannot be applied to inputs of shape {shapes}: {reason}"
                f"{self.source.symbolic_hint}"
            ) from error

    def _fold(
        self, op: OnnxOperator, inputs: tuple[str, ...], node: SourceNode, results: tuple[torch.Tensor, ...]
    ) -> None:
        """Keep the results as constants, and how far each is from its value in float64, here or in a runtime that
        sums in another order."""
        for name, result in zip(node.outputs, results, strict=False):
            self.constants[name] = np.array(result.numpy(), order="C")
        narrow = any(r.is_floating_point() and r.dtype != torch.float64 for r in results)
        if not narrow or not (op.rounds or any(name in self.precise for name in inputs)):
            return
        values = [self._precise_value(name) for name in inputs]
        for name, exact in zip(node.outputs, op.evaluate(values), strict=False):
            with np.errstate(invalid="ignore"):  # a value that is not finite is refused where it is used
                error = np.abs(self.constants[name].astype(np.float64) - exact.numpy()).max(initial=0.0)
            error = max(float(error), _reordered(op, values, exact, self.constants[name].dtype))
            if error > 0:
                self.precise[name] = exact.numpy()
                self.rounded[name] = error

    def _precise_value(self, name: str) -> torch.Tensor | None:
        if name in self.precise:
            return torch.from_numpy(self.precise[name])
        value = self._value(name)
        return value.to(torch.float64) if value is not None and value.is_floating_point() else value

    def _fold_by_reference(self, node: SourceNode, inputs: tuple[str, ...]) -> None:
        """Fold a node whose operator has no class, by the reference implementation of the onnx package."""
        from onnx.reference import ReferenceEvaluator

        try:
            evaluator = ReferenceEvaluator(node.proto, opsets={"": self.source.opset})
            feeds = {
                name: self.constants[given] for name, given in zip(node.inputs, inputs, strict=True) if name
            }
            results: Iterable[Any] = evaluator.run(None, feeds)
            for name, result in zip(node.outputs, results, strict=False):
                self.constants[name] = np.array(result, order="C")
        except EVALUATION_ERRORS as error:
            raise UnsupportedOperatorError(
                f"{self.source.path}: {node.label} cannot be evaluated ({error})"
            ) from error

    def _refuse_nonfinite(self, node: SourceNode, inputs: tuple[str, ...]) -> None:
        """Initializers were looked at before; here are constants that the file computes."""
        for index, name in enumerate(inputs):
            value = self.constants.get(name)
            if value is None or name in self.source.initializers or node.may_be_infinite(index):
                continue
            if value.dtype.kind == "f" and not np.isfinite(value).all():
                count = int((~np.isfinite(value)).sum())
                raise NetworkError(
                    f"{self.source.path}: constant '{name}' ({count} non-finite value{'s' * (count > 1)}) of "
                    f"{node.label} is not usable: NaN or Inf in a network gives no defensible verdict"
                )

    def _name_outputs(self) -> None:
        """Give each output of the file its name back where an Identity before it was dropped."""
        for name in self.source.outputs:
            if name in self.source.initializers:
                self.constants[name] = self.source.value(name)
            target = self.alias.get(name)
            if target is None:
                continue
            producer = next((i for i, node in enumerate(self.nodes) if target in node.outputs), None)
            if target in self.constants:
                self.constants[name] = self.constants[target]
            elif producer is None or target in self.source.outputs:
                info = self.tensors[target]
                self.tensors[name] = TensorInfo(name, info.shape, info.dtype)
                self.nodes.append(Node(self.source.producer_name(name), Identity(), (target,), (name,)))
            else:
                self._rename(target, name)

    def _rename(self, old: str, new: str) -> None:
        info = self.tensors.pop(old)
        self.tensors[new] = TensorInfo(new, info.shape, info.dtype)
        self.alias = {k: new if v == old else v for k, v in self.alias.items()}
        self.nodes = [
            Node(
                node.name,
                node.op,
                tuple(new if name == old else name for name in node.inputs),
                tuple(new if name == old else name for name in node.outputs),
            )
            for node in self.nodes
        ]


def _reordered(
    op: OnnxOperator, values: list[torch.Tensor | None], exact: torch.Tensor, dtype: np.dtype[Any]
) -> float:
    """Largest error of a sum of products in any order (Higham 2002, §3.1); 0 for operators that sum nothing."""
    terms = op.term_count(values)
    if terms <= 1 or not op.rounds or dtype.kind != "f":
        return 0.0
    unit = (terms + 2) * float(np.finfo(dtype).eps) / 2
    magnitude = float(op.term_magnitude(values, exact).max()) if exact.numel() else 0.0
    return unit / (1.0 - unit) * magnitude if unit < 1.0 else float("inf")
