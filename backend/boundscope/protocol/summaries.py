"""Networks and properties read back."""

from __future__ import annotations

from boundscope.protocol.base import Struct


class TensorSummary(Struct):
    name: str
    shape: tuple[int, ...]
    dtype: str


class NodeSummary(Struct):
    """One node of the graph as loaded: ONNX name, operator, tensor names, output shape, parameter count."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    shape: tuple[int, ...]
    parameters: int = 0


class NetworkSummary(Struct, tag="network_summary"):
    name: str
    opset: int
    inputs: tuple[TensorSummary, ...]
    outputs: tuple[TensorSummary, ...]
    nodes: tuple[NodeSummary, ...]
    parameters: int
    weight_bytes: int
    unsupported: tuple[str, ...] = ()  # one sentence each: operator and node that have no bound rule


class InputRow(Struct):
    """One row of the input table: bounds as written in the file."""

    variable: str
    lower: str
    upper: str


class ClauseRow(Struct):
    """One row of the clause table: the conjunction that would violate the property, as text."""

    case: int
    clause: int
    text: str


class PropertySummary(Struct, tag="property_summary"):
    """A property read back. `words` are sentences; the tables hold at most the first rows, counts are whole."""

    name: str
    format: str  # "VNN-LIB 1.0", "VNN-LIB 2.0", "ε-ball"
    words: tuple[str, ...]
    input_count: int
    output_count: int
    case_count: int
    clause_count: int
    inputs: tuple[InputRow, ...]
    clauses: tuple[ClauseRow, ...]
    inputs_total: int
    clauses_total: int
