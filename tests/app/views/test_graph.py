"""The graph of a network: edges lead down and no node covers another, and colours never make up a value."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations, pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QEvent, QPoint, QPointF, Qt
from PySide6.QtGui import QHelpEvent, QWheelEvent
from PySide6.QtWidgets import QApplication, QToolTip
from pytestqt.qtbot import QtBot

from app.views import sample_noise
from app.views import sample_records as samples
from boundscope.layers import BOUND_COLUMNS, NODE_COLUMNS
from boundscope.network import load_network
from boundscope.protocol import (
    EventRecord,
    LayerBounds,
    NetworkSummary,
    NodeSummary,
    TensorSummary,
)
from boundscope.records import JobRecord
from boundscope.worker.summary import network_summary
from boundscope_app.graph_layout import (
    INPUT,
    NODE_HEIGHT,
    NODE_WIDTH,
    OUTPUT,
    ROW,
    Graph,
    GraphNode,
    Layout,
    graph_of,
    lay_out,
    laying_out,
)
from boundscope_app.plots.graph_drawing import RampBar, piece_within
from boundscope_app.plots.ramp import Ramp, ramp_for
from boundscope_app.plots.style import live_style
from boundscope_app.theme import LIGHT
from boundscope_app.views import GraphView
from boundscope_app.views.graph_columns import columns_for


def tensor(name: str) -> TensorSummary:
    return TensorSummary(name=name, shape=(1, 8), dtype="float32")


def network(nodes: Sequence[tuple[str, str, tuple[str, ...]]], outputs: tuple[str, ...]) -> NetworkSummary:
    """Nodes as (name, operator, names of what feeds them); a node's output tensor has its name."""
    return NetworkSummary(
        name="net.onnx",
        opset=17,
        inputs=(tensor("x"),),
        outputs=tuple(map(tensor, outputs)),
        nodes=tuple(
            NodeSummary(name=name, op=op, inputs=(*feeds, f"{name}_w"), outputs=(name,), shape=(1, 8))
            for name, op, feeds in nodes
        ),
        parameters=1,
        weight_bytes=4,
    )


RESIDUAL = network(
    (
        ("conv1", "Conv", ("x",)),
        ("relu1", "Relu", ("conv1",)),
        ("conv2", "Conv", ("relu1",)),
        ("down", "Conv", ("conv1",)),
        ("add", "Add", ("conv2", "down")),
        ("head", "Gemm", ("add",)),
    ),
    ("head",),
)


def bounds(node: str, width: float, case: int = 0, unstable: int | None = None) -> LayerBounds:
    return LayerBounds(
        case=case,
        node=node,
        op="Conv",
        size=8,
        lower_min=-width,
        upper_max=width,
        width_mean=width / 2,
        width_max=width,
        unstable=unstable,
        method="crown",
    )


def shown(qtbot: QtBot, record: JobRecord, noise: bool = False) -> GraphView:
    view = GraphView()
    qtbot.addWidget(view)
    view.resize(1000, 640)
    view.set_run(sample_noise.job_info() if noise else samples.job_info(), record)
    view.show()
    qtbot.waitExposed(view)
    redraw(qtbot, view)
    return view


def redraw(qtbot: QtBot, view: GraphView) -> None:
    def drawn() -> bool:
        view.refresh()
        return not view.dirty

    view.mark_dirty()
    qtbot.waitUntil(drawn)


def residual(*events: LayerBounds) -> JobRecord:
    return samples.record_of([(0, RESIDUAL), *((0, event) for event in events)])


# ---------------------------------------------------------------- places


def check(layout: Layout) -> None:
    """Every edge leads down, its route goes from row to row, and no two nodes of a row touch."""
    graph = layout.graph
    for (start, end), route in zip(graph.edges, layout.routes, strict=True):
        assert layout.depth[start] < layout.depth[end]
        assert route[0] == (layout.x[start], layout.y[start])
        assert route[-1] == (layout.x[end], layout.y[end])
        assert all(low[1] > high[1] for high, low in pairwise(route))
    for row in set(layout.depth):
        at = np.sort(layout.x[[k for k, depth in enumerate(layout.depth) if depth == row]])
        assert np.all(np.diff(at) >= NODE_WIDTH)
    assert layout.x.min() >= NODE_WIDTH / 2 - 1e-6
    assert layout.x.max() <= layout.width - NODE_WIDTH / 2 + 1e-6
    assert layout.height == max(layout.depth) * ROW + NODE_HEIGHT


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 30))
    pairs = list(combinations(range(count), 2))
    chosen = draw(st.lists(st.sampled_from(pairs), max_size=60, unique=True)) if pairs else []
    return Graph(tuple(GraphNode(f"n{k}", "Add") for k in range(count)), tuple(chosen))


@given(graphs())
def test_places_of_any_graph(graph: Graph) -> None:
    check(lay_out(graph))


@pytest.mark.parametrize("name", ["vit/onnx/pgd_2_3_16.onnx.gz", "cctsdb_yolo/onnx/patch-1.onnx.gz"])
def test_places_of_networks_with_many_branches(vnncomp: Path, name: str) -> None:
    """Every node of the file stands in the graph once, in its order, and hangs together with the rest."""
    summary = network_summary(load_network(vnncomp / name))
    layout = lay_out(graph_of(summary))
    check(layout)
    inner = [node.name for node in layout.graph.nodes if not node.terminal]
    assert inner == [node.name for node in summary.nodes]
    ends = {end for edge in layout.graph.edges for end in edge}
    assert ends == set(range(len(layout.graph.nodes)))


def test_a_network_s_inputs_and_outputs_are_ends_and_its_constants_no_nodes() -> None:
    graph = graph_of(RESIDUAL)
    assert [(node.name, node.op) for node in graph.nodes if node.terminal] == [("x", INPUT), ("head", OUTPUT)]
    names = [node.name for node in graph.nodes]
    edges = {(names[start], names[end]) for start, end in graph.edges[:-1]}
    assert edges == {
        ("x", "conv1"),
        ("conv1", "relu1"),
        ("relu1", "conv2"),
        ("conv1", "down"),
        ("conv2", "add"),
        ("down", "add"),
        ("add", "head"),
    }


def test_a_chain_stands_upright_and_an_edge_passes_beside_the_nodes_that_it_skips() -> None:
    layout = lay_out(graph_of(RESIDUAL))
    check(layout)
    names = [node.name for node in layout.graph.nodes]
    x = {name: layout.x[number] for number, name in enumerate(names)}
    assert x["relu1"] == pytest.approx(x["conv2"], abs=1)
    skip = layout.routes[
        next(k for k, (a, b) in enumerate(layout.graph.edges) if (names[a], names[b]) == ("down", "add"))
    ]
    at_conv2 = next(place for place in skip if place[1] == layout.y[names.index("conv2")])
    assert abs(at_conv2[0] - x["conv2"]) > NODE_WIDTH / 2


def test_a_large_network_is_arranged_in_many_steps() -> None:
    """The window lives on between two steps, so no step may be the whole work."""
    nodes, last = [], "x"
    for block in range(300):
        nodes += [(f"c{block}", "Conv", (last,)), (f"r{block}", "Relu", (f"c{block}",))]
        nodes.append((f"a{block}", "Add", (f"r{block}", last)))
        last = f"a{block}"
    steps = laying_out(graph_of(network(nodes, (last,))))
    count = 0
    while True:
        try:
            next(steps)
        except StopIteration as done:
            layout: Layout = done.value
            break
        count += 1
    check(layout)
    assert count >= 15
    assert layout.width < 4 * NODE_WIDTH, "a long network does not wander sideways"


@pytest.mark.parametrize("length", [3, 40, 600])
def test_a_page_holds_every_row_once_and_stubs_where_it_is_cut(length: int) -> None:
    chain = [(f"n{k}", "Relu", ("x" if not k else f"n{k - 1}",)) for k in range(length)]
    layout = lay_out(graph_of(network(chain, (chain[-1][0],))))
    columns = columns_for(layout, 1500, 700)
    rows = [row for _, first, last in columns.parts for row in range(first, last)]
    assert rows == list(range(length + 2))
    assert columns.parts[-1][0] + layout.width * columns.scale <= 1500
    assert columns.height <= 9000
    for _, first, last in columns.parts[:-1]:
        cut = next(route for route in layout.routes if round(route[0][1] / ROW - 0.3) == last - 1)
        assert not piece_within(cut, first, last).isEmpty()
        assert not piece_within(cut, last, last + 1).isEmpty()
        assert piece_within(cut, last + 1, last + 2).isEmpty()


# ---------------------------------------------------------------- colours


def test_a_ramp_goes_by_decades_where_values_lie_far_apart() -> None:
    near = ramp_for([0.5, 2.0, 8.0], "u")
    assert (near.low, near.high, near.log) == (0.0, 8.0, False)
    far = ramp_for([0.0, 3e-4, 20.0, math.inf, math.nan], "u")
    assert (far.low, far.high, far.log) == (pytest.approx(1e-4), 100.0, True)
    assert far.share(0.1) == pytest.approx(0.5)
    assert (far.share(0.0), far.share(1e9)) == (0.0, 1.0)
    labels = [tick.label for tick in far.ticks()]
    assert labels[0] == "10⁻⁴"
    assert labels[-1] == "10²"  # beside a power all are powers
    assert ramp_for([], "u") == Ramp(unit="u")


def test_nodes_without_a_value_are_marked_and_not_coloured(qtbot: QtBot) -> None:
    view = shown(
        qtbot, residual(bounds("conv1", 0.2, unstable=3), bounds("conv2", math.inf), bounds("add", 0.0))
    )
    nodes = view.graph.scene.layout.graph.nodes
    cells = dict(zip((node.name for node in nodes), view.graph.scene.cells, strict=True))
    assert cells["conv1"].share == 1.0
    assert cells["add"].share == 0.0
    assert (cells["conv2"].share, cells["conv2"].mark, cells["conv2"].wrong) == (None, "Inf", True)
    assert (cells["relu1"].share, cells["relu1"].text) == (None, "")
    assert view.graph.scene.marks == (("", False), ("Inf", True))
    bar = RampBar(view.graph.scene, live_style(LIGHT), 400)
    assert "layer’s unit" in view.graph.scene.ramp.unit
    assert bar.height > RampBar(shown(qtbot, residual()).graph.scene, live_style(LIGHT), 400).height


def test_of_several_cases_a_node_shows_the_widest(qtbot: QtBot) -> None:
    record = residual(bounds("conv1", 0.2), bounds("conv1", 0.7, case=1), bounds("conv1", 0.4, case=2))
    view = shown(qtbot, record)
    number = view._numbers["conv1"]
    assert view.graph.scene.cells[number].text == "0.7"
    row = view.tables()[0].rows[0]
    assert row[NODE_COLUMNS.index("case")] == 1


def test_only_quantities_that_the_run_has_can_be_chosen(qtbot: QtBot) -> None:
    record = residual(bounds("conv1", 0.2))

    def choices(view: GraphView) -> list[str]:
        model = view.measure.model()
        return [
            str(view.measure.itemData(k))
            for k in range(view.measure.count())
            if model.flags(model.index(k, 0)) & Qt.ItemFlag.ItemIsEnabled
        ]

    view = shown(qtbot, record)
    assert choices(view) == ["width"]
    add(record, bounds("conv2", 3.0, unstable=2))
    redraw(qtbot, view)
    assert choices(view) == ["width", "unstable"]
    named = network([(name, op, ("x",)) for name, op, _ in sample_noise.LAYERS], ("/head/Gemm",))
    noise = samples.record_of([(0, named), *((rank, e) for rank, e in sample_noise.running_events())])
    view.set_run(sample_noise.job_info(), noise)
    redraw(qtbot, view)
    assert choices(view) == ["digits"]
    assert view.measure.currentData() == "digits"
    assert view.graph.scene.ramp.high == pytest.approx(24 * math.log10(2))
    texts = [view.graph.scene.cells[view._numbers[name]].text for name, _, _ in sample_noise.LAYERS]
    assert texts[3:5] == ["NaN", "exact"]
    assert float(texts[0]) == pytest.approx(22.1 * math.log10(2), abs=0.1)


def add(record: JobRecord, event: LayerBounds) -> None:
    record.apply(EventRecord(number=record.last_number + 1, time_s=samples.EPOCH_S, rank=0, event=event))


def test_bounds_that_come_later_colour_their_nodes_and_keep_zoom_and_place(qtbot: QtBot) -> None:
    record = residual()
    view = shown(qtbot, record)
    layout = view.graph.scene.layout
    view.graph.zoom(1.7)
    scale = view.graph.scale
    add(record, bounds("head", 2.5))
    redraw(qtbot, view)
    assert view.graph.scene.cells[view._numbers["head"]].text == "2.5"
    assert (view.graph.scene.layout is layout, view.graph.scale) == (True, scale)


# ---------------------------------------------------------------- pointer, keys, search


def test_arrow_keys_follow_the_edges_and_neighbours(qtbot: QtBot) -> None:
    view = shown(qtbot, residual())
    nodes = view.graph.scene.layout.graph.nodes

    def press(key: Qt.Key) -> str:
        qtbot.keyClick(view.graph, key)
        return nodes[view.graph.emphasis.current].name

    assert [press(Qt.Key.Key_Down) for _ in range(2)] == ["x", "conv1"]
    below = press(Qt.Key.Key_Down)
    assert below in ("relu1", "down")
    side = {Qt.Key.Key_Left, Qt.Key.Key_Right}
    beside = {press(key) for key in side}
    assert beside == {"relu1", "down"}
    assert press(Qt.Key.Key_End) == "head"
    assert press(Qt.Key.Key_Home) == "x"
    before = view.graph.scale
    qtbot.keyClick(view.graph, Qt.Key.Key_Minus)
    assert view.graph.scale < before


def test_a_terminal_that_is_picked_picks_no_layer(qtbot: QtBot) -> None:
    view = shown(qtbot, residual(bounds("conv1", 1.0)))
    view.selection.pick("conv1")
    qtbot.keyClick(view.graph, Qt.Key.Key_Up)
    assert view.selection.layer == ""
    assert view.graph.scene.layout.graph.nodes[view.graph.emphasis.current].name == "x"


def test_the_wheel_zooms_around_the_pointer_and_a_drag_moves(qtbot: QtBot) -> None:
    view = shown(qtbot, residual())
    graph = view.graph
    graph.show_all()
    graph.zoom(3.0)
    at = graph.node_center(view._numbers["conv2"])
    event = QWheelEvent(
        at,
        graph.viewport().mapToGlobal(at),
        QPoint(),
        QPoint(0, 120),
        Qt.MouseButton.NoButton,
        Qt.KeyboardModifier.NoModifier,
        Qt.ScrollPhase.NoScrollPhase,
        False,
    )
    QApplication.sendEvent(graph.viewport(), event)
    now = graph.node_center(view._numbers["conv2"])
    assert (now.x(), now.y()) == (pytest.approx(at.x(), abs=2), pytest.approx(at.y(), abs=2))
    start = QPoint(300, 200)
    qtbot.mousePress(graph.viewport(), Qt.MouseButton.LeftButton, pos=start)
    qtbot.mouseMove(graph.viewport(), start + QPoint(0, 60))
    qtbot.mouseRelease(graph.viewport(), Qt.MouseButton.LeftButton, pos=start + QPoint(0, 60))
    moved = graph.node_center(view._numbers["conv2"])
    assert moved.y() == pytest.approx(now.y() + 60, abs=2)
    assert graph.emphasis.current == -1


def test_search_marks_and_steps_through_its_finds(qtbot: QtBot) -> None:
    view = shown(qtbot, residual())
    view.search.setText("CONV")
    assert view.found.text() == "3 found"
    picked = []
    for _ in range(4):
        qtbot.keyClick(view.search, Qt.Key.Key_Return)
        picked.append(view.selection.layer)
    assert picked == ["conv1", "conv2", "down", "conv1"]
    assert view.found.text() == "1 of 3"
    qtbot.keyClick(view.search, Qt.Key.Key_Return, Qt.KeyboardModifier.ShiftModifier)
    assert view.selection.layer == "down"
    view.search.setText("nowhere")
    assert (view.found.text(), view.graph.emphasis.found) == ("0 found", frozenset())


def test_the_tip_of_a_node_has_its_values_and_names_are_escaped(qtbot: QtBot) -> None:
    odd = network((("a<b>", "Conv", ("x",)),), ("a<b>",))
    view = shown(qtbot, samples.record_of([(0, odd), (0, bounds("a<b>", 1.25, unstable=4))]))
    at = view.graph.node_center(view._numbers["a<b>"]).toPoint()
    tip = QHelpEvent(QEvent.Type.ToolTip, at, view.graph.viewport().mapToGlobal(at))
    QApplication.sendEvent(view.graph.viewport(), tip)
    text = QToolTip.text()
    QToolTip.hideText()
    for part in ("a&lt;b&gt;", "greatest 1.25", "4 of 8 (50.0\u00a0%)", "CROWN", "1×8"):
        assert part in text
    view.graph.hovered.emit(view.graph.node_at(QPointF(at)))
    assert view.reading.text().startswith("a<b> (Conv, 1×8)")


def test_the_table_has_what_feeds_each_node_and_units_in_its_head(qtbot: QtBot) -> None:
    (table,) = shown(qtbot, residual(bounds("conv2", 2.0, unstable=2))).tables()
    by_name = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert by_name["add"]["fed by"] == "conv2 down"
    assert by_name["conv2"]["greatest width"] == 2.0
    assert by_name["conv2"]["unstable share"] == 0.25
    assert by_name["relu1"]["greatest width"] is None
    assert set(BOUND_COLUMNS) - {"node", "operator"} <= set(table.columns)
    assert {"mean [bits]", "mean [decimal digits]"} <= set(table.columns)
