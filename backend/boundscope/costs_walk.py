"""What a pass of rows back through a network holds, moment by moment."""

from __future__ import annotations

from collections.abc import Iterator

from boundscope.protocol import NetworkCosts, NodeCosts


class Walk:
    """The coefficients of a pass that are held while it goes back; sizes are elements, times `unit` bytes."""

    def __init__(self, unit: float, keeps: bool) -> None:
        self._unit, self._keeps = unit, keeps
        self._pending: dict[str, float] = {}
        self._first = 0.0  # who began the pass holds its rows to the end
        self._fresh: set[str] = set()
        self._kept = 0.0

    def begin(self, pending: dict[str, float], first: float) -> None:
        self._pending, self._first, self._fresh = dict(pending), first, set(pending)

    def reaches(self, node: NodeCosts) -> bool:
        return any(name in self._pending for name in node.outputs)

    def leave(self, node: NodeCosts) -> float:
        """Elements that rows have at a node's outputs, which are pending no more."""
        out = sum(self._pending.pop(name, 0.0) for name in node.outputs)
        self._own = 0.0 if self._fresh.issuperset(node.outputs) else out
        return out

    def moments(
        self, out: float, sizes: dict[str, float], gathered: float, *, charges: bool
    ) -> Iterator[tuple[float, float, float]]:
        """Bytes of rows, workspace and gathered: while rows are charged, in the product, and after it."""
        others = sum(size for name, size in self._pending.items() if name not in self._fresh)
        base = self._first + others + self._kept + self._own
        if charges:
            yield self._unit * base, self._unit * out, 0.0
        yield self._unit * base, 0.0, gathered
        joined = sum(size for name, size in sizes.items() if name in self._pending)
        yield self._unit * (base + sum(sizes.values()) + joined), 0.0, 0.0

    def arrive(self, sizes: dict[str, float]) -> None:
        if self._keeps:
            self._kept += self._own
        for name, size in sizes.items():
            self._pending[name] = max(size, self._pending.get(name, 0.0))
            self._fresh.discard(name)


def before(costs: NetworkCosts, start: str) -> list[NodeCosts]:
    """The nodes up to the one that gives a tensor."""
    found = []
    for node in costs.nodes:
        found.append(node)
        if start in node.outputs:
            return found
    return found


def inside_zones(costs: NetworkCosts) -> frozenset[str]:
    """Tensors that ranks hold in parts: from one linear layer to the next, every other time."""
    inside: set[str] = set()
    for node in costs.nodes:
        split = any(name in inside for name in node.inputs)
        if node.mixes:
            split = not split
        if split and not set(node.outputs) & set(costs.outputs):
            inside.update(node.outputs)
    return frozenset(inside)


def relaxed_depths(costs: NetworkCosts) -> dict[str, int]:
    """How many non-linear nodes there are at most on the way to each tensor."""
    depths = dict.fromkeys(costs.inputs, 0)
    for node in costs.nodes:
        depth = max((depths.get(name, 0) for name in node.inputs), default=0) + node.relaxed
        depths.update(dict.fromkeys(node.outputs, depth))
    return {one.name: depths.get(one.name, 0) for one in costs.tensors}
