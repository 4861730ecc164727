"""Places for the nodes of a network and ways for its edges: layers by depth, few crossings, straight chains. No Qt.

After Sugiyama, Tagawa and Toda, "Methods for visual understanding of hierarchical system structures", IEEE
Transactions on Systems, Man, and Cybernetics 11 (1981): longest-path layering, a virtual node in every layer that an
edge passes, barycentre ordering, and places that keep each node near its neighbours.
"""

from __future__ import annotations

import itertools
from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np

from boundscope.protocol import NetworkSummary, NodeSummary

NODE_WIDTH, NODE_HEIGHT = 172.0, 42.0
GAP_X, GAP_Y = 22.0, 30.0
ROW = NODE_HEIGHT + GAP_Y  # from one layer to the next
LANE = 16.0  # width that a passing edge takes
ORDER_SWEEPS, PLACE_SWEEPS, LAST_SWEEPS = 12, 14, 6
MOST_SPAN, MOST_VIRTUAL = 256, 20_000  # longer edges, and those beyond so many, go their way behind the nodes
VIRTUAL_PULL, CHAIN_PULL, CENTRE_PULL = 6.0, 3.0, 0.08
YIELD_ROWS = 400
INPUT, OUTPUT = "Input", "Output"
Floats = np.ndarray[tuple[int, ...], np.dtype[np.float64]]


@dataclass(frozen=True)
class GraphNode:
    """A node of the network, or one of its inputs or outputs (op INPUT or OUTPUT, named after the tensor)."""

    name: str
    op: str
    shape: tuple[int, ...] = ()
    parameters: int = 0

    @property
    def terminal(self) -> bool:
        return self.op in (INPUT, OUTPUT)


@dataclass(frozen=True)
class Graph:
    """Nodes in the network's order, inputs first and outputs last; edges as pairs of their numbers, without doubles."""

    nodes: tuple[GraphNode, ...] = ()
    edges: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Layout:
    """`x`, `y` [nodes]: centres; `depth` [nodes]: layer from the top; a route of (x, y) an edge, from node to node."""

    graph: Graph
    x: Floats
    y: Floats
    depth: tuple[int, ...]
    routes: tuple[tuple[tuple[float, float], ...], ...]
    width: float
    height: float


def graph_of(network: NetworkSummary) -> Graph:
    """The data flow of a network; constants are no nodes."""
    made: dict[str, int] = {}
    nodes: list[GraphNode] = []
    for tensor in network.inputs:
        made[tensor.name] = len(nodes)
        nodes.append(GraphNode(tensor.name, INPUT, tensor.shape))
    edges: dict[tuple[int, int], None] = {}
    for node in network.nodes:
        number = len(nodes)
        nodes.append(_graph_node(node))
        for name in node.inputs:
            if name in made:
                edges[made[name], number] = None
        made.update((name, number) for name in node.outputs if name)
    for output in network.outputs:
        if output.name in made:
            edges[made[output.name], len(nodes)] = None
            nodes.append(GraphNode(output.name, OUTPUT, output.shape))
    return Graph(tuple(nodes), tuple(edges))


def _graph_node(node: NodeSummary) -> GraphNode:
    return GraphNode(node.name, node.op, node.shape, node.parameters)


def depths(graph: Graph) -> list[int]:
    """The longest way from a start to each node; starts stand right above the first node that reads them."""
    count = len(graph.nodes)
    result, readers = [0] * count, [count] * count
    for start, end in sorted(graph.edges, key=lambda edge: edge[1]):
        result[end] = max(result[end], result[start] + 1)
    fed = {end for _, end in graph.edges}
    for start, end in graph.edges:
        readers[start] = min(readers[start], result[end])
    for number in range(count):
        if number not in fed and readers[number] < count:
            result[number] = max(0, readers[number] - 1)
    return result


def lay_out(graph: Graph) -> Layout:
    """Places for all nodes; deterministic, about linear in nodes and edges."""
    steps = laying_out(graph)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            layout: Layout = done.value
            return layout


def laying_out(graph: Graph) -> Generator[None, None, Layout]:
    """As `lay_out`, in steps of a few milliseconds each for some thousand nodes, so that a window can live between."""
    if not graph.nodes:
        none = np.zeros(0)
        return Layout(graph, none, none, (), (), 0.0, 0.0)
    depth = depths(graph)
    places = _Places(depth, graph.edges)
    yield
    yield from places.ordering()
    x = yield from places.placing()
    half = np.array(places.width) / 2
    x -= float((x - half).min())
    y = np.array(places.depth) * ROW + NODE_HEIGHT / 2
    routes = tuple(tuple((float(x[k]), float(y[k])) for k in places.chains[edge]) for edge in graph.edges)
    count = len(graph.nodes)
    width, height = float((x + half).max()), float(y.max() + NODE_HEIGHT / 2)
    return Layout(graph, x[:count], y[:count], tuple(depth), routes, width, height)


class _Places:
    """Nodes and the virtual nodes of long edges, by layer, while their order and places are looked for."""

    def __init__(self, depth: Sequence[int], edges: Sequence[tuple[int, int]]) -> None:
        self.depth = list(depth)
        self.width = [NODE_WIDTH] * len(depth)
        self.chains: dict[tuple[int, int], tuple[int, ...]] = {}
        self.above: list[list[int]] = [[] for _ in depth]
        self.below: list[list[int]] = [[] for _ in depth]
        self.real = len(depth)
        for edge in edges:
            self._add(edge)
        self.rows: list[list[int]] = [[] for _ in range(max(self.depth) + 1)]
        for number, row in enumerate(self.depth):
            self.rows[row].append(number)

    def _add(self, edge: tuple[int, int]) -> None:
        start, end = edge
        span = range(self.depth[start] + 1, self.depth[end])
        between: list[int] = []
        if len(span) <= MOST_SPAN and len(self.depth) - self.real <= MOST_VIRTUAL:
            for row in span:
                between.append(len(self.depth))
                self.depth.append(row)
                self.width.append(LANE)
                self.above.append([])
                self.below.append([])
        chain = (start, *between, end)
        self.chains[edge] = chain
        for upper, lower in itertools.pairwise(chain):
            self.below[upper].append(lower)
            self.above[lower].append(upper)

    def ordering(self) -> Generator[None, None, None]:
        """Sort each layer by the mean place of its neighbours, downwards and upwards in turn; keep the best order."""
        at = [0.0] * len(self.depth)
        for row in self.rows:
            for place, number in enumerate(row):
                at[number] = float(place)
        best, fewest = [list(row) for row in self.rows], self._crossings(at)
        for sweep in range(ORDER_SWEEPS):
            if not fewest:
                break
            down = sweep % 2 == 0
            for row in self.rows if down else reversed(self.rows):
                self._sort(row, self.above if down else self.below, at)
            yield
            crossings = self._crossings(at)
            if crossings < fewest:
                best, fewest = [list(row) for row in self.rows], crossings
            yield
        self.rows = best

    def _sort(self, row: list[int], neighbours: list[list[int]], at: list[float]) -> None:
        wanted = {
            k: sum(at[n] for n in neighbours[k]) / len(neighbours[k]) if neighbours[k] else at[k] for k in row
        }
        row.sort(key=lambda k: (wanted[k], at[k]))
        for place, number in enumerate(row):
            at[number] = float(place)

    def _crossings(self, at: Sequence[float]) -> int:
        total = 0
        for row in self.rows:
            ends = np.array([at[low] for k in row for low in sorted(self.below[k], key=lambda n: at[n])])
            if 1 < len(ends) < 2000:
                total += int(np.triu(ends[:, None] > ends[None, :], 1).sum())
        return total

    def placing(self) -> Generator[None, None, Floats]:
        """Centres across [all nodes]: each as near as its row allows to the mean of its neighbours."""
        x = np.zeros(len(self.depth))
        for row in self.rows:
            self._settle(row, x, [0.0] * len(row), [1.0] * len(row))
        for sweep in range(PLACE_SWEEPS):
            down = sweep % 2 == 0
            both = sweep >= PLACE_SWEEPS - LAST_SWEEPS
            for count, row in enumerate(self.rows if down else reversed(self.rows), start=1):
                if count % YIELD_ROWS == 0:
                    yield
                wanted, pulls = [], []
                for k in row:
                    near = self.above[k] + self.below[k] if both else self.above[k] if down else self.below[k]
                    want, pull = self._wanted(k, near or [k], x, both)
                    wanted.append(want)
                    pulls.append(pull)
                self._settle(row, x, wanted, pulls)
            yield
        return x

    def _wanted(self, number: int, near: Sequence[int], x: Floats, straighten: bool) -> tuple[float, float]:
        """Where a node wants to be, and how much: the mean of its neighbours, or their median, which bends fewer edges.

        A slight pull to the middle keeps long networks upright.
        """
        pull = [self._pull(number, n) for n in near]
        if straighten:
            return weighted_median([float(x[n]) for n in near], pull), max(pull)
        total = sum(p * float(x[n]) for p, n in zip(pull, near, strict=True))
        return total / (sum(pull) + CENTRE_PULL), max(pull)

    def _pull(self, one: int, other: int) -> float:
        """How strongly an edge wants to be straight: most where it only passes, then in a chain."""
        if one >= self.real and other >= self.real:
            return VIRTUAL_PULL
        upper, lower = (one, other) if self.depth[one] < self.depth[other] else (other, one)
        return CHAIN_PULL if len(self.below[upper]) == len(self.above[lower]) == 1 else 1.0

    def _settle(self, row: list[int], x: Floats, wanted: list[float], pulls: list[float]) -> None:
        """Least squares distance to the wanted places at the least distances, by pooling violators."""
        offset, offsets = 0.0, []
        for place, number in enumerate(row):
            if place:
                offset += (self.width[row[place - 1]] + self.width[number]) / 2 + GAP_X
            offsets.append(offset)
        blocks: list[tuple[float, float, int]] = []  # mean, weight, members
        for want, pull, shift in zip(wanted, pulls, offsets, strict=True):
            mean, weight, members = want - shift, pull, 1
            while blocks and blocks[-1][0] >= mean:
                before, heavy, many = blocks.pop()
                mean = (before * heavy + mean * weight) / (heavy + weight)
                weight, members = heavy + weight, many + members
            blocks.append((mean, weight, members))
        place = 0
        for mean, _, members in blocks:
            for _ in range(members):
                x[row[place]] = mean + offsets[place]
                place += 1


def weighted_median(values: Sequence[float], weights: Sequence[float]) -> float:
    """The value that half of the weight lies on either side of; the middle of two where there are two."""
    order = sorted(range(len(values)), key=lambda k: values[k])
    half, below = sum(weights) / 2, 0.0
    for place, k in enumerate(order):
        below += weights[k]
        if below == half and place + 1 < len(order):
            return (values[k] + values[order[place + 1]]) / 2
        if below >= half:
            return values[k]
    return values[order[-1]]
