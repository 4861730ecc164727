"""One picked layer for all views, in a real window on real runs, by pointer and by keys; kept until the next start."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.window_support import APP_PATHS, LIMIT_S, close, example_draft
from boundscope.protocol import JobState
from boundscope_app import settings as settings_store
from boundscope_app.draft import Draft
from boundscope_app.noise_draft import NoiseDraft, NoiseOptions
from boundscope_app.selection import LayerSelection
from boundscope_app.view_tabs import ViewTabs
from boundscope_app.views import GraphView, LayersView, VariabilityView
from boundscope_app.window import MainWindow

PICKED = "dense2"
Views = tuple[GraphView, LayersView, VariabilityView]


def views_of(tabs: ViewTabs) -> Views:
    found = {type(view): view for view in tabs.views}
    return found[GraphView], found[LayersView], found[VariabilityView]  # type: ignore[return-value]


def noise_draft() -> NoiseDraft:
    draft = example_draft("digits-robust")
    return NoiseDraft(draft.network, None, draft.property_source, 1, options=NoiseOptions(samples=3))


def run(qtbot: QtBot, window: MainWindow, draft: Draft | NoiseDraft) -> str:
    """Show a finished run of the draft with its whole history; run it where the daemon has none. Its id."""
    title = draft.title
    known = [
        info for info in map(window.runs.info, window.runs.ids) if info is not None and info.title == title
    ]
    job_id = next((info.id for info in known if info.state is JobState.FINISHED), "")
    if job_id:
        window.runs.select(job_id)
    else:
        with qtbot.waitSignal(window.session.run_accepted):
            window.session.run(draft)
        job_id = window.runs.selected_id
    whole(qtbot, window, job_id)
    return job_id


def whole(qtbot: QtBot, window: MainWindow, job_id: str) -> None:
    """Wait until a run has ended and all that it said is here."""
    info, record = window.runs.info, window.runs.record
    qtbot.waitUntil(lambda: info(job_id).state.ended)  # type: ignore[union-attr]
    qtbot.waitUntil(
        lambda: record(job_id).last_number >= info(job_id).last_number  # type: ignore[union-attr]
    )


def show(qtbot: QtBot, window: MainWindow, view: GraphView | LayersView | VariabilityView) -> None:
    window.tabs.show_view(view.view_id)
    qtbot.waitUntil(lambda: not view.dirty)


def marked(views: Views) -> tuple[str, str, str]:
    """The layer that graph, table and heatmap mark, "" where one marks none."""
    graph, layers, noise = views
    number, row = graph.graph.emphasis.current, noise.heatmap.current
    node = graph.graph.scene.layout.graph.nodes[number].name if number >= 0 else ""
    return node, layers.picked_layer(), noise.heatmap.heat.rows[row].name if row >= 0 else ""


def test_a_layer_picked_in_one_view_is_marked_in_the_others(window: MainWindow, qtbot: QtBot) -> None:
    run(qtbot, window, noise_draft())
    views = graph, layers, noise = views_of(window.tabs)
    for view in views:
        show(qtbot, window, view)
    assert marked(views) == ("", "", "")
    show(qtbot, window, graph)
    at = graph.graph.node_center(graph._numbers[PICKED]).toPoint()
    qtbot.mouseClick(graph.graph.viewport(), Qt.MouseButton.LeftButton, pos=at)
    assert marked(views) == (PICKED,) * 3
    show(qtbot, window, layers)
    layers.table.setFocus()
    qtbot.keyClick(layers.table, Qt.Key.Key_Down)
    assert marked(views) == ("relu2",) * 3
    show(qtbot, window, noise)
    qtbot.keyClick(noise.heatmap, Qt.Key.Key_Down)
    assert marked(views) == ("dense3",) * 3
    show(qtbot, window, graph)
    qtbot.keyClick(graph.graph, Qt.Key.Key_Up)
    assert marked(views) == ("relu2",) * 3
    layers.table.sortByColumn(0, Qt.SortOrder.DescendingOrder)
    noise.layers.sortByColumn(2, Qt.SortOrder.DescendingOrder)
    graph.search.setText("flatten")
    qtbot.keyClick(graph.search, Qt.Key.Key_Return)
    assert marked(views) == ("flatten1",) * 3


def test_each_run_keeps_its_layer_and_one_of_the_same_network_takes_it_over(
    window: MainWindow, qtbot: QtBot
) -> None:
    first = run(qtbot, window, noise_draft())
    window.tabs.layer_selection.pick(PICKED)
    second = run(qtbot, window, example_draft("digits-robust"))
    graph, layers, _ = views_of(window.tabs)
    show(qtbot, window, layers)
    assert layers.picked_layer() == PICKED
    show(qtbot, window, graph)
    assert graph.graph.emphasis.current == graph._numbers[PICKED]
    window.tabs.layer_selection.pick("dense1")
    window.runs.select(first)
    assert window.tabs.layer_selection.layer == PICKED
    window.runs.select(second)
    show(qtbot, window, layers)
    assert layers.picked_layer() == "dense1"


def test_the_picked_layer_is_there_at_the_next_start(
    open_on: Callable[..., MainWindow], qtbot: QtBot, shared_home: Path
) -> None:
    window = open_on(shared_home)
    job_id = run(qtbot, window, example_draft("digits-robust"))
    window.tabs.layer_selection.pick(PICKED)
    close(window)
    kept, problem = settings_store.load()
    assert (problem, kept.selected_job, kept.selected_layer) == ("", job_id, PICKED)
    again = open_on(shared_home, kept)
    qtbot.waitUntil(lambda: again.runs.selected_id == job_id)
    whole(qtbot, again, job_id)
    _, layers, _ = views_of(again.tabs)
    show(qtbot, again, layers)
    qtbot.waitUntil(lambda: layers.picked_layer() == PICKED)


@pytest.mark.parametrize("noise", [False, True], ids=["verify", "variability"])
def test_the_command_line_writes_the_same_bytes_for_layers_and_graph(
    window: MainWindow, qtbot: QtBot, shared_home: Path, tmp_path: Path, noise: bool
) -> None:
    job_id = run(qtbot, window, noise_draft() if noise else example_draft("digits-robust"))
    window.commands.export_to(tmp_path / "window")
    command = [sys.executable, "-m", "boundscope", "export", job_id, "--home", shared_home]
    done = subprocess.run(
        [*map(str, command), "--all", str(tmp_path / "line")],
        env={**os.environ, "PYTHONPATH": APP_PATHS},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("layers.csv", "graph.csv"):
        assert (tmp_path / "window" / name).read_bytes() == (tmp_path / "line" / name).read_bytes()
    header, *rows = (tmp_path / "line" / "graph.csv").read_text().splitlines()
    assert ("mean [bits]" in header, len(rows)) == (True, 8)


def test_a_selection_of_another_network_is_not_taken_over(qapp: object) -> None:
    selection = LayerSelection()
    told: list[str] = []
    selection.changed.connect(told.append)
    selection.show_run("a", "net")
    selection.pick("conv")
    selection.show_run("b", "other")
    assert selection.layer == ""
    selection.show_run("a", "net")
    selection.show_run("c", "net")
    selection.show_run("d", "")
    assert told == ["conv", "", "conv", ""]
