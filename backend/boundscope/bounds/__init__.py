"""The bound engine: proven intervals of every tensor, and margins of a property, over an input box."""

from boundscope.bounds.engine import BoundEngine
from boundscope.bounds.interval import Interval
from boundscope.bounds.ledger import MemoryLedger, MemorySampler
from boundscope.bounds.operators import operators_with_rules, rule_of
from boundscope.network.graph import Network

__all__ = [
    "BoundEngine",
    "Interval",
    "MemoryLedger",
    "MemorySampler",
    "supported_operators",
    "unsupported",
]


def supported_operators() -> frozenset[str]:
    """ONNX names of the operators that have a bound rule."""
    return operators_with_rules()


def unsupported(network: Network) -> tuple[str, ...]:
    """One sentence for each node that the engine cannot bound; empty where it can bound all."""
    sentences = []
    for node in network.nodes:
        rule = rule_of(node.op)
        if rule is None:
            sentences.append(f"node '{node.name}': operator {node.op.onnx_type} has no bound rule yet")
            continue
        perturbed = [bool(name) and name not in network.constants for name in node.inputs]
        reason = rule.use(perturbed).supports(perturbed, node.op)
        if reason is not None:
            sentences.append(f"node '{node.name}': {node.op.onnx_type} with {reason} has no bound rule yet")
    return tuple(sentences)
