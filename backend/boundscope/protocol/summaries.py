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


class ConstantCosts(Struct):
    """A constant that a node reads: elements and bytes each, as the file has it, and how the engine takes it."""

    name: str
    elements: int
    item_bytes: int
    floating: bool
    tiled: bool = False  # a large matrix that ranks never hold whole
    as_stored: bool = False  # a large one is read in the file's dtype


class NodeCosts(Struct):
    """What one node of the network, as it is bounded, costs. Inputs are those that depend on the network's input."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    multiply_adds: int  # of one evaluation, and so of one row carried backward
    constants: tuple[ConstantCosts, ...] = ()
    inner: int = 0  # of a product with a matrix: output elements, which a row's sums run over
    mixes: bool = False  # a linear layer: a product with a constant
    relaxed: bool = False
    refined: tuple[str, ...] = ()  # inputs whose bounds CROWN takes backward
    free_slopes: bool = False  # has slopes for alpha-crown to choose


class TensorCosts(Struct):
    """Elements of a tensor; `drops` where rows leave out neurons that cannot move."""

    name: str
    elements: int
    drops: bool = False


class NetworkCosts(Struct):
    """What the cost model (boundscope.costs) needs to know of a network, in the order of its nodes."""

    tensors: tuple[TensorCosts, ...]
    nodes: tuple[NodeCosts, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    constants: tuple[ConstantCosts, ...]
    single: bool = True  # all constants are float32 numbers, so that hidden rows may be


class MachineCosts(Struct):
    """What a machine can do, measured by a short product of matrices: both speeds with every core, in operations a
    second; the memory that is free, and all of it; its cores. Of a GPU, where it has one that torch can use."""

    single_flops: float
    double_flops: float
    free_bytes: int
    total_bytes: int
    cores: int
    gpu: str = ""


class NetworkSummary(Struct, tag="network_summary"):
    name: str
    opset: int
    inputs: tuple[TensorSummary, ...]
    outputs: tuple[TensorSummary, ...]
    nodes: tuple[NodeSummary, ...]
    parameters: int
    weight_bytes: int
    unsupported: tuple[str, ...] = ()  # one sentence each: operator and node that have no bound rule
    # Of an inspection, where all can be bounded: what that costs, and on what machine it was read.
    costs: NetworkCosts | None = None
    machine: MachineCosts | None = None


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
