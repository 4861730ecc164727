"""A cost model of the native bound engine: memory, traffic and time of a rank before anything has run.

It follows what the engine holds and does, pass by pass, and imports no torch, so that the window can ask it. Nobody
knows before a run how many neurons will be unstable: `share` of them is assumed, EXPECTED_SHARE or all.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from boundscope.costs_fetches import Fetches
from boundscope.costs_setup import (
    ALPHA_STEPS,
    ATTACK_PASSES,
    CHUNK_DEFAULT,
    CHUNK_MULTIPLE,
    CONTEXTS,
    DOMAIN_BYTES,
    DROPPED_FROM,
    EXPECTED_SHARE,
    FEW_ROWS,
    INTERVAL_BYTES,
    INTERVAL_CALLS,
    INTERVAL_PRODUCTS,
    INTERVAL_READS,
    LARGE_ELEMENTS,
    MARGIN_SEARCHES,
    OPTIMISED,
    REFINED,
    ROOM_FOR_PARTS,
    ROW_CALLS,
    SEARCH_CALLS,
    SHARES_TRIED,
    SLOPE_COPIES,
    STEP_PRODUCTS,
    STEPS_TAKEN,
    TOUCHES,
    WHOLE_BELOW,
    WRITING_TOUCHES,
    Device,
    Prediction,
    Setup,
    chunk_size,
    device_of_ranks,
    part_of,
    up,
)
from boundscope.costs_walk import Walk, before, inside_zones, relaxed_depths
from boundscope.protocol import ConstantCosts, Method, NetworkCosts, NodeCosts, Precision, Sharding

__all__ = [
    "EXPECTED_SHARE",
    "Device",
    "Prediction",
    "Setup",
    "device_of_ranks",
    "predict",
    "worst",
]


def predict(costs: NetworkCosts, setup: Setup, share: float = EXPECTED_SHARE) -> Prediction:
    """What one rank needs if `share` of the neurons are unstable, 0 … 1."""
    return _Model(costs, setup, share, STEPS_TAKEN).prediction()


def worst(costs: NetworkCosts, setup: Setup) -> Prediction:
    """The most memory that any share of unstable neurons asks for, with the time of the slowest."""
    tried = [_Model(costs, setup, share, 1.0).prediction() for share in SHARES_TRIED]
    most = max(tried, key=lambda one: one.peak_bytes)
    return replace(tried[-1], by_category=most.by_category)


@dataclass(frozen=True)
class _Chunk:
    """Rows that start at a tensor: how many a rank carries at once and in how many chunks, in which precision, and
    whether they are kept for the way back of a search."""

    start: str
    rows: int
    count: int
    item_bytes: int
    passes: float = 1.0
    keeps: bool = False
    selects: bool = True  # rows are single elements of the tensor


class _Model:
    """One prediction; tensors' sizes are of one rank's part."""

    def __init__(self, costs: NetworkCosts, setup: Setup, share: float, steps_taken: float) -> None:
        self._costs, self._setup, self._share = costs, setup, share
        self._steps = steps_taken * ALPHA_STEPS
        self._found = Prediction(timeout_s=setup.timeout_s, together=setup.ranks > 1)
        self._inside = inside_zones(costs) if setup.splits_layers else frozenset[str]()
        self._elements = {one.name: self._part(one.name, one.elements) for one in costs.tensors}
        self._depths = relaxed_depths(costs)
        self._live = {
            one.name: self._moving(one.name) if one.drops else self._elements[one.name]
            for one in costs.tensors
        }
        self._producer = {name: node for node in costs.nodes for name in node.outputs}
        self._fetches = Fetches(setup, self._elements, self._found)
        self._weights = sum(self._resident(one) for one in costs.constants)
        self._intervals = 0.0
        self._cuts: dict[str, float] = {}

    def prediction(self) -> Prediction:
        setup, found = self._setup, self._found
        self._weights += self._converted()
        self._intervals = 16.0 * sum(
            self._elements[name] for node in self._costs.nodes for name in node.outputs
        )
        for node in self._costs.nodes:
            self._forward(node, CONTEXTS[setup.method])
        refined = [name for node in self._costs.nodes for name in node.refined]
        if setup.method in REFINED:
            for name in dict.fromkeys(refined):
                if name not in self._inside or setup.sharding is Sharding.TP_EXACT:
                    self._refine(name)
        for output in self._costs.outputs:
            self._margins(output)
        found.attack = 2.0 * ATTACK_PASSES * sum(node.multiply_adds for node in self._costs.nodes)
        if setup.method is Method.COMPLETE:
            relaxed = sum(
                self._elements[n] for node in self._costs.nodes if node.relaxed for n in node.inputs
            )
            found.domain_bytes = DOMAIN_BYTES * relaxed
        for name in ("single", "double", "touched_bytes", "calls", "received_bytes", "read_bytes"):
            setattr(found, name, getattr(found, name) * setup.cases)
        if setup.gathers and setup.shares_memory:
            found.touched_bytes += WRITING_TOUCHES * self._weights
        return found

    # ------------------------------------------------------------ sizes

    def _part(self, name: str, elements: int) -> int:
        return -(-elements // self._setup.ranks) if name in self._inside else elements

    def _unstable(self, depth: int) -> float:
        """The part of the neurons that are unstable after so many other layers of them: bounds get looser."""
        return math.pow(self._share, 1.5 / (1 + depth))

    def _moving(self, name: str) -> int:
        """Unstable neurons, and half of the others: those that are never 0."""
        elements = self._elements[name]
        moving = math.ceil(elements * (1.0 + self._unstable(self._depths[name] - 1)) / 2.0)
        return moving if moving <= DROPPED_FROM * elements else elements

    def _resident(self, constant: ConstantCosts) -> float:
        """Bytes of a constant as it lies on a rank."""
        setup, size = self._setup, float(constant.elements * constant.item_bytes)
        if setup.gathers:
            if constant.elements < WHOLE_BELOW or not constant.floating:
                return 8.0 * constant.elements if constant.floating else size
            return size / setup.ranks
        if setup.splits_layers and constant.elements >= WHOLE_BELOW:
            return size / setup.ranks
        return size

    def _converted(self) -> float:
        """Bytes of float64 copies, which ranks with whole weights keep."""
        if self._setup.gathers:
            return 0.0
        read = {one.name: one for node in self._costs.nodes for one in node.constants}
        parts = self._setup.ranks if self._setup.splits_layers else 1
        return sum(
            8.0 * one.elements / (parts if one.elements >= WHOLE_BELOW else 1)
            for one in read.values()
            if one.floating
            and one.item_bytes < 8
            and not (one.as_stored and one.elements / parts >= LARGE_ELEMENTS)
        )

    @property
    def _row_bytes(self) -> int:
        return 4 if self._costs.single and self._setup.precision is Precision.MIXED else 8

    # ------------------------------------------------------------ phases

    def _forward(self, node: NodeCosts, times: int) -> None:
        found = self._found
        found.meet(self._held({"gathered": self._fetches.held(node, 8)}))
        width = float(sum(self._elements[name] for name in node.inputs))
        part, copied = self._fetches.part_of_passes(node)
        self._fetches.matrices(node, times * INTERVAL_READS * copied, node.inner or 1, width)
        if node.mixes:
            weights = sum(one.elements for one in node.constants if one.floating)
            found.touched_bytes += times * INTERVAL_BYTES * part * weights
        found.double += times * 2.0 * INTERVAL_PRODUCTS * part * self._products(node)
        found.calls += times * INTERVAL_CALLS

    def _products(self, node: NodeCosts) -> float:
        inside = self._setup.splits_layers and node.mixes
        return node.multiply_adds / (self._setup.ranks if inside else 1)

    def _held(self, more: dict[str, float]) -> dict[str, float]:
        held = {"weights": self._weights + sum(self._cuts.values()), "workspace": self._intervals}
        for name, size in more.items():
            held[name] = held.get(name, 0.0) + size
        return held

    def _refine(self, name: str) -> None:
        """The bounds of a tensor's elements by rows, by plain CROWN and then with slopes that are searched."""
        elements = next(one.elements for one in self._costs.tensors if one.name == name)
        self._carry(name, 2 * elements, self._row_bytes)
        if self._setup.method in OPTIMISED:
            self._search(name, 2 * math.ceil(elements * self._unstable(self._depths[name])))

    def _search(self, name: str, count: int, selects: bool = True) -> None:
        """Two proven passes, and between them the steps of a search, each forward and back."""
        slopes = self._carry(name, count, 8, passes=2, selects=selects)
        if slopes:
            self._carry(name, count, 4, passes=self._steps * STEP_PRODUCTS, keeps=True, selects=selects)

    def _margins(self, output: str) -> None:
        count = up(max(1, self._setup.constraints), CHUNK_MULTIPLE)
        if self._setup.method is Method.IBP:
            last = next((node for node in reversed(self._costs.nodes) if node.mixes), None)
            widest = 0 if last is None else sum(self._elements[name] for name in last.inputs)
            self._found.meet(
                self._held({"rows": 8.0 * min(count, CHUNK_DEFAULT) * (widest + self._elements[output])})
            )
            return
        self._carry(output, count, 8, selects=False)
        if self._setup.method in OPTIMISED:
            for _ in range(MARGIN_SEARCHES):
                self._search(output, count, selects=False)

    def _carry(
        self,
        name: str,
        count: int,
        item_bytes: int,
        *,
        passes: float = 1,
        keeps: bool = False,
        selects: bool = True,
    ) -> float:
        """Rows from a tensor to the inputs, in chunks; bytes of the slopes that they have."""
        if not count:
            return 0.0
        setup = self._setup
        size = chunk_size(self._costs, setup, count, self._weights, searched=keeps or passes != 1)
        chunk = _Chunk(
            name, part_of(size, setup), math.ceil(count / size), item_bytes, passes, keeps, selects
        )
        slopes = (
            self._slope_bytes(chunk)
            if setup.method in OPTIMISED and item_bytes * passes > 4 and (keeps or passes == 2)
            else 0.0
        )
        self._walk(chunk, slopes)
        if setup.splits_rows:
            self._fetches.reduced(8.0 * count * passes)
        return slopes

    def _slope_bytes(self, chunk: _Chunk) -> float:
        unstable = sum(
            math.ceil(self._unstable(self._depths[node.outputs[0]] - 1) * self._elements[node.outputs[0]])
            for node in before(self._costs, chunk.start)
            if node.free_slopes
        )
        return 4.0 * SLOPE_COPIES * chunk.rows * unstable

    def _walk(self, chunk: _Chunk, slopes: float) -> None:
        """One pass: what is held at each node before, in and after it, and what it multiplies and gathers."""
        unit = float(chunk.rows * chunk.item_bytes)
        walk, times = Walk(unit, chunk.keeps), chunk.count * chunk.passes
        producer = self._producer.get(chunk.start)
        first = self._elements[chunk.start]
        if chunk.selects and producer is not None and producer.inner and not self._inside:
            first = sum(self._live[name] for name in producer.inputs)
            walk.begin({name: self._live[name] for name in producer.inputs}, first)
            self._fetches.single_rows(producer, times, chunk.rows)
            skipped: str | None = producer.name
        else:
            walk.begin({chunk.start: first}, first)
            skipped = None
        for node in reversed(before(self._costs, chunk.start)):
            if node.name == skipped or not walk.reaches(node):
                continue
            out = walk.leave(node)
            sizes = {name: out if self._same_support(node) else self._live[name] for name in node.inputs}
            whole = sum(self._elements[name] for name in node.outputs)
            if node.inner and self._cut(node, out, chunk) and chunk.count > 1:
                # Each rank of those that share memory cuts its part of what all keep.
                self._fetches.matrices(node, 1.0 / self._setup.ranks, node.inner, self._inputs(node))
            held = slopes + 0.0
            gathered = self._fetches.held(node, chunk.item_bytes, min(out, whole))
            for rows, workspace, lent in walk.moments(out, sizes, gathered, charges=not chunk.keeps):
                self._found.meet(
                    self._held({"rows": rows, "workspace": workspace, "gathered": lent, "slopes": held})
                )
            walk.arrive(sizes)
            self._count(node, chunk, times, out / max(1, whole), sizes)

    def _same_support(self, node: NodeCosts) -> bool:
        """Rows on a part of a relaxed tensor live on the same part of its input."""
        return (
            node.relaxed
            and len(node.inputs) == 1
            and any(self._live[name] < self._elements[name] for name in node.outputs)
        )

    def _inputs(self, node: NodeCosts) -> float:
        return float(sum(self._elements[name] for name in node.inputs))

    def _cut(self, node: NodeCosts, out: float, chunk: _Chunk) -> bool:
        """The part of a matrix between neurons that move, which ranks with whole weights keep; those that share memory,
        together. Whether there is one."""
        setup = self._setup
        width = sum(self._live[name] for name in node.inputs)
        whole = sum(self._elements[name] for name in node.inputs) * node.inner
        size = sum(one.elements for one in node.constants if one.elements >= WHOLE_BELOW)
        apart = setup.gathers and not setup.shares_memory
        if apart or out * width >= whole or (chunk.rows < FEW_ROWS and size >= LARGE_ELEMENTS):
            return False
        stored = sum(one.elements * one.item_bytes for one in self._costs.constants)
        if setup.budget_bytes is None or ROOM_FOR_PARTS * stored < setup.budget_bytes:
            own = next((one.item_bytes for one in node.constants if one.as_stored), 8)
            self._cuts[node.name] = float(own * out * width) / (setup.ranks if setup.gathers else 1)
            return True
        return False

    def _count(
        self, node: NodeCosts, chunk: _Chunk, times: float, part: float, sizes: dict[str, float]
    ) -> None:
        found = self._found
        whole = max(1, sum(self._elements[name] for name in node.inputs))
        width = sum(sizes.values())
        products = 2.0 * times * chunk.rows * self._products(node) * part * width / whole
        if chunk.item_bytes == 4:
            found.single += products
        else:
            found.double += products
        found.touched_bytes += TOUCHES * times * chunk.rows * chunk.item_bytes * width
        found.calls += times * (SEARCH_CALLS if chunk.keeps else ROW_CALLS)
        # The parts that rows use are cut out of a matrix after the first of several chunks.
        self._fetches.matrices(node, chunk.passes, node.inner or 1, whole)
        self._fetches.matrices(node, times - chunk.passes, part * (node.inner or 1), width)
        if self._inside and node.mixes and not self._inside.issuperset(node.inputs):
            self._fetches.reduced(times * chunk.rows * chunk.item_bytes * width)
