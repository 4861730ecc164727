"""What a graph shows, before it is drawn. No Qt."""

from __future__ import annotations

from dataclasses import dataclass, field

from boundscope_app.graph_layout import Graph, Layout, lay_out
from boundscope_app.plots.ramp import Ramp


@dataclass(frozen=True)
class NodeCell:
    """How far along the colours a node's value lies, 0 to 1, or why it has none; `text` stands on the node."""

    share: float | None = None
    text: str = ""
    mark: str = ""
    wrong: bool = False  # whether the mark is of something that should not be, such as NaN


@dataclass(frozen=True)
class GraphScene:
    """A graph with its places, a cell a node, and the colours' scale."""

    layout: Layout = field(default_factory=lambda: lay_out(Graph()))
    cells: tuple[NodeCell, ...] = ()
    ramp: Ramp = field(default_factory=Ramp)

    @property
    def marks(self) -> tuple[tuple[str, bool], ...]:
        """Marks that there are, in the order met, with whether they are wrong; "" for nodes without a value."""
        nodes = zip(self.layout.graph.nodes, self.cells, strict=True)
        return tuple(
            dict.fromkeys(
                (cell.mark, cell.wrong) for node, cell in nodes if cell.share is None and not node.terminal
            )
        )
