"""The graph as the file has it: names made unique, dead nodes dropped, what cannot be used refused by name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from boundscope.errors import NetworkError, UnsupportedOperatorError
from boundscope.network.arrays import count_where
from boundscope.network.graph import TensorInfo
from boundscope.network.operators import class_of
from boundscope.network.operators.base import Array
from boundscope.network.stored import Place

OLDEST_OPSET = 7
NEWEST_OPSET = 22
DEFAULT_DOMAINS = ("", "ai.onnx")
NUMPY_DTYPES = ("f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "b1")
INPUT_DTYPES: Mapping[int, np.dtype[Any]] = {
    onnx.TensorProto.FLOAT: np.dtype(np.float32),
    onnx.TensorProto.DOUBLE: np.dtype(np.float64),
    onnx.TensorProto.FLOAT16: np.dtype(np.float16),
}
LARGEST_INPUT = 1 << 31  # elements
LISTED = 5  # how many faults of one kind a message names in full
_STATIC = ("Shape", "Size")
_INDICES = {  # input positions that say where, or how much, is taken
    "Slice": (1, 2),
    "Gather": (1,),
    "GatherElements": (1,),
    "GatherND": (1,),
    "OneHot": (0,),
    "ScatterElements": (1,),
    "ScatterND": (1,),
}


def type_name(element_type: int) -> str:
    """ONNX's name of an element type."""
    known = element_type in onnx.TensorProto.DataType.values()
    return str(onnx.TensorProto.DataType.Name(element_type)) if known else f"unknown type {element_type}"


def as_array(tensor: onnx.TensorProto) -> Array:
    """A tensor's value, writable (torch warns of arrays that are not)."""
    value = np.asarray(onnx.numpy_helper.to_array(tensor))
    return value if value.flags.writeable else value.copy()


@dataclass(frozen=True)
class SourceNode:
    """One node of the file with a unique name."""

    name: str
    onnx_type: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    proto: onnx.NodeProto = field(compare=False, repr=False)

    @property
    def label(self) -> str:
        return f"node '{self.name}' ({self.qualified_type})"

    @property
    def qualified_type(self) -> str:
        return self.onnx_type if self.domain in DEFAULT_DOMAINS else f"{self.domain}.{self.onnx_type}"

    @cached_property
    def attributes(self) -> Mapping[str, Any]:
        return {a.name: onnx.helper.get_attribute_value(a) for a in self.proto.attribute}

    def may_be_infinite(self, index: int) -> bool:
        """Clip's limits may be infinite: that is no limit."""
        return self.onnx_type == "Clip" and index in (1, 2)


@dataclass
class SourceGraph:
    """The live part of an ONNX graph, nodes in topological order."""

    path: Path
    opset: int
    inputs: list[TensorInfo]
    outputs: list[str]
    nodes: list[SourceNode]
    initializers: Mapping[str, onnx.TensorProto]
    symbolic: list[str]  # axes other than the batch that were set to 1
    places: Mapping[str, Place] = field(
        default_factory=dict
    )  # of initializers whose data is not in the model
    _values: dict[str, Array] = field(default_factory=dict)

    @classmethod
    def from_model(
        cls, model: onnx.ModelProto, path: Path, places: Mapping[str, Place] | None = None
    ) -> SourceGraph:
        """Take a model apart.

        Raises:
            NetworkError: a wrong opset, no input or output, an input that is no tensor of numbers, a name that
                nobody produces, a cycle, or a node that its operator's definition does not allow.
        """
        graph = model.graph
        opset = _opset(model, path)
        if graph.sparse_initializer:
            raise NetworkError(f"{path}: sparse initializers are not supported; store the weights densely")
        initializers = {tensor.name: tensor for tensor in graph.initializer}
        symbolic: list[str] = []
        inputs = [_input_info(v, path, symbolic) for v in graph.input if v.name not in initializers]
        outputs = [value.name for value in graph.output]
        if not inputs or not outputs:
            raise NetworkError(f"{path}: the network has no {'input' if not inputs else 'output'}")
        known = {info.name for info in inputs} | set(initializers)
        nodes = _named(graph.node)
        _refuse_duplicates(nodes, known, path)
        nodes = _sorted(_live(nodes, outputs), known, outputs, path)
        source = cls(path, opset, inputs, outputs, nodes, initializers, symbolic, places or {})
        source._check_nodes(model)
        return source

    @cached_property
    def read(self) -> frozenset[str]:
        """Names that a live node or the outside reads."""
        return frozenset(name for node in self.nodes for name in node.inputs) | frozenset(self.outputs)

    @cached_property
    def last_reader(self) -> Mapping[str, str]:
        """For each tensor, the name of the last node that reads it."""
        return {name: node.name for node in self.nodes for name in node.inputs}

    @property
    def symbolic_hint(self) -> str:
        if not self.symbolic:
            return ""
        return f" (axes without a fixed size were taken as 1: {', '.join(self.symbolic)}; export with fixed sizes)"

    def producer_name(self, output: str) -> str:
        return next((node.name for node in self.nodes if output in node.outputs), output)

    def value(self, name: str) -> Array:
        """Value of an initializer, read once."""
        if name not in self._values:
            place = self.places.get(name)
            self._values[name] = as_array(self.initializers[name]) if place is None else place.array
        return self._values[name]

    def initializer(self, name: str, node: SourceNode) -> Array:
        """Value of an initializer that `node` reads.

        Raises:
            NetworkError: its element type has no counterpart in torch.
        """
        try:
            value = self.value(name)
        except (ValueError, TypeError, KeyError) as error:
            raise NetworkError(
                f"{self.path}: initializer '{name}' of {node.label} is damaged: {error}"
            ) from error
        if value.dtype.str.lstrip("<|=") not in NUMPY_DTYPES:
            kind = type_name(self.initializers[name].data_type)
            raise NetworkError(
                f"{self.path}: initializer '{name}' of {node.label} has element type {kind}, which is not supported; "
                "export the network in float32 or float64"
            )
        return value

    @cached_property
    def moves_by_values(self) -> bool:
        """Whether shapes, or whether there is a result at all, may depend on computed values: some node takes indices
        that are not initializers."""
        return any(
            index < len(node.inputs) and node.inputs[index] not in self.initializers
            for node in self.nodes
            for index in _INDICES.get(node.onnx_type, ())
        )

    def refuse_unsupported(self) -> None:
        """Name every node that depends on an input and has no operator class, all at once.

        Raises:
            UnsupportedOperatorError: there is one.
        """
        moving = {info.name for info in self.inputs}
        missing: dict[str, list[str]] = {}
        for node in self.nodes:
            depends = any(name in moving for name in node.inputs)
            foreign = node.domain not in DEFAULT_DOMAINS
            if foreign or (class_of(node.onnx_type) is None and (depends or _has_subgraph(node.proto))):
                missing.setdefault(node.qualified_type, []).append(f"'{node.name}'")
            if depends and node.onnx_type not in _STATIC:
                moving.update(node.outputs)
        if missing:
            listed = "; ".join(f"{kind} (node {', '.join(names)})" for kind, names in missing.items())
            raise UnsupportedOperatorError(
                f"{self.path}: operators that Boundscope cannot evaluate: {listed}"
            )

    def refuse_nonfinite(self) -> None:
        """Name initializers that hold NaN or Inf, how many, and the node that uses each.

        Raises:
            NetworkError: there is one.
        """
        seen: set[str] = set()
        faults = []
        for node in self.nodes:
            for index, name in enumerate(node.inputs):
                if name not in self.initializers or name in seen or node.may_be_infinite(index):
                    continue
                seen.add(name)
                value = self.initializer(name, node)
                count = count_where(value, lambda part: ~np.isfinite(part)) if value.dtype.kind == "f" else 0
                if count:
                    plural = "s" if count > 1 else ""
                    faults.append(
                        f"initializer '{name}' ({count} non-finite value{plural}), used by {node.label}"
                    )
        if faults:
            more = f" and {len(faults) - LISTED} more" if len(faults) > LISTED else ""
            raise NetworkError(
                f"{self.path}: NaN or Inf among the weights: {'; '.join(faults[:LISTED])}{more}. Runtimes disagree on "
                "such values, so no verdict could be defended; export the network again"
            )

    def _check_nodes(self, model: onnx.ModelProto) -> None:
        """Check each node against the definition of its operator at this opset."""
        context = onnx.checker.C.CheckerContext()
        context.ir_version = min(model.ir_version, onnx.IR_VERSION)
        context.opset_imports = {"": self.opset}
        for node in self.nodes:
            if node.domain in DEFAULT_DOMAINS and class_of(node.onnx_type) is not None:
                try:
                    onnx.checker.check_node(node.proto, context)
                except onnx.checker.ValidationError as error:
                    reason = str(error).strip().splitlines()[0]
                    raise NetworkError(f"{self.path}: {node.label} is not valid: {reason}") from error


def _opset(model: onnx.ModelProto, path: Path) -> int:
    versions = [entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAINS]
    if not versions:
        raise NetworkError(f"{path}: does not say which operator set (opset) it uses")
    if not OLDEST_OPSET <= max(versions) <= NEWEST_OPSET:
        raise NetworkError(
            f"{path}: uses opset {max(versions)}; opsets {OLDEST_OPSET} to {NEWEST_OPSET} are supported: "
            "export it with one of these, or convert it with onnx.version_converter"
        )
    return int(max(versions))


def _input_info(value: onnx.ValueInfoProto, path: Path, symbolic: list[str]) -> TensorInfo:
    """Describe an input; axes without a size become 1, and those that are not the first are noted."""
    tensor = value.type.tensor_type
    if not value.type.HasField("tensor_type") or not tensor.HasField("shape"):
        raise NetworkError(
            f"{path}: input '{value.name}' is no tensor with a shape; export with a fixed input shape"
        )
    dtype = INPUT_DTYPES.get(tensor.elem_type)
    if dtype is None:
        kind = type_name(tensor.elem_type)
        raise NetworkError(
            f"{path}: input '{value.name}' is of type {kind}; float32, float64 or float16 is expected"
        )
    shape = []
    for axis, size in enumerate(tensor.shape.dim):
        if size.HasField("dim_value") and size.dim_value == 0:
            raise NetworkError(
                f"{path}: axis {axis} of input '{value.name}' has size 0; export with its real size"
            )
        if size.dim_value < 1 and axis > 0:
            symbolic.append(
                f"axis {axis} of '{value.name}'" + (f" ('{size.dim_param}')" if size.dim_param else "")
            )
        shape.append(max(1, size.dim_value))
    info = TensorInfo(value.name, tuple(shape), dtype)
    if info.size > LARGEST_INPUT:
        raise NetworkError(f"{path}: input '{value.name}' of shape {shape} is too large to be handled")
    return info


def _named(nodes: Iterable[onnx.NodeProto]) -> list[SourceNode]:
    """Nodes with unique names: unnamed ones are called by operator and place."""
    result = []
    taken: Counter[str] = Counter()
    for index, proto in enumerate(nodes):
        name = proto.name or f"{proto.op_type}_{index}"
        taken[name] += 1
        if taken[name] > 1:
            name = f"{name}#{taken[name]}"
        inputs = list(proto.input)
        while inputs and not inputs[-1]:
            inputs.pop()
        outputs = tuple(proto.output)
        result.append(SourceNode(name, proto.op_type, proto.domain, tuple(inputs), outputs, proto))
    return result


def _live(nodes: list[SourceNode], outputs: list[str]) -> list[SourceNode]:
    """The nodes that some output depends on, in the file's order."""
    producer = {name: node for node in nodes for name in node.outputs if name}
    live: set[str] = set()
    pending = list(outputs)
    while pending:
        node = producer.get(pending.pop())
        if node is not None and node.name not in live:
            live.add(node.name)
            pending.extend(node.inputs)
            pending.extend(_captured(node.proto))
    return [node for node in nodes if node.name in live]


def _refuse_duplicates(nodes: list[SourceNode], known: set[str], path: Path) -> None:
    seen = set(known)
    for node in nodes:
        for name in filter(None, node.outputs):
            if name in seen:
                raise NetworkError(
                    f"{path}: tensor '{name}' is produced twice, the second time by {node.label}"
                )
            seen.add(name)


def _sorted(nodes: list[SourceNode], known: set[str], outputs: list[str], path: Path) -> list[SourceNode]:
    """Topological order, the file's own where it is one already."""
    produced = {name for node in nodes for name in node.outputs}
    for name in outputs:
        if name not in produced and name not in known:
            raise NetworkError(f"{path}: output '{name}' is produced by no node; is the file cut off?")
    known = known | {""}
    order: list[SourceNode] = []
    pending = nodes
    while pending:
        waiting = []
        for node in pending:
            if all(name in known for name in node.inputs):
                order.append(node)
                known.update(node.outputs)
            else:
                waiting.append(node)
        if len(waiting) == len(pending):
            node = waiting[0]
            name = next(name for name in node.inputs if name not in known)
            cause = "lies on a cycle" if name in produced else "is produced by no node; is the file cut off?"
            raise NetworkError(f"{path}: tensor '{name}', read by {node.label}, {cause}")
        pending = waiting
    return order


def _has_subgraph(proto: onnx.NodeProto) -> bool:
    return any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in proto.attribute)


def _captured(proto: onnx.NodeProto) -> list[str]:
    """Names that a node's subgraphs read, so that what they need counts as live."""
    return [
        name
        for attribute in proto.attribute
        if attribute.type == onnx.AttributeProto.GRAPH
        for node in attribute.g.node
        for name in node.input
    ]
