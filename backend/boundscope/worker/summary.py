"""A loaded network in the form that people read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from boundscope.protocol import NetworkSummary, NodeSummary, TensorSummary

if TYPE_CHECKING:
    from boundscope.network.graph import Network, Node, TensorInfo


def network_summary(network: Network, unsupported: Iterable[str] = ()) -> NetworkSummary:
    """Names, shapes and counts of a network; `unsupported` are sentences of `boundscope.bounds.unsupported`.

    A constant that several nodes read counts once in the whole, and at each node that reads it.
    """
    read = {name for node in network.nodes for name in node.inputs if name in network.constants}
    weights = [network.constants[name] for name in read]
    return NetworkSummary(
        name=network.name,
        opset=network.opset,
        inputs=tuple(_tensor(info) for info in network.inputs),
        outputs=tuple(_tensor(info) for info in network.outputs),
        nodes=tuple(_node(network, node) for node in network.nodes),
        parameters=sum(int(array.size) for array in weights if array.dtype.kind == "f"),
        weight_bytes=sum(int(array.nbytes) for array in weights),
        unsupported=tuple(unsupported),
    )


def _tensor(info: TensorInfo) -> TensorSummary:
    return TensorSummary(name=info.name, shape=info.shape, dtype=str(info.dtype))


def _node(network: Network, node: Node) -> NodeSummary:
    constants = [network.constants[name] for name in node.inputs if name in network.constants]
    return NodeSummary(
        name=node.name,
        op=node.op.onnx_type,
        inputs=node.inputs,
        outputs=node.outputs,
        shape=network.tensors[node.outputs[0]].shape,
        parameters=sum(int(array.size) for array in constants if array.dtype.kind == "f"),
    )
