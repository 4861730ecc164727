"""Runs are picked in the Jobs table and stand side by side in the window; the command line prints the same."""

from __future__ import annotations

import csv
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QItemSelectionModel, Qt
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from app.views import sample_noise, sample_records
from app.window_support import example_draft
from boundscope.cli import main
from boundscope.protocol import Method, RoundingMode, Sharding
from boundscope_app.noise_draft import NoiseDraft, NoiseOptions
from boundscope_app.plots.heatmap import difference_color
from boundscope_app.settings import Settings
from boundscope_app.views import (
    CompareFactsView,
    CompareGapView,
    CompareMemoryView,
    CompareNoiseView,
    CompareView,
)
from boundscope_app.views.compare import run_style
from boundscope_app.window import MainWindow


def view_of(window: MainWindow, kind: type[CompareView]) -> CompareView:
    return next(view for view in window.tabs.compare_views if isinstance(view, kind))


def run(qtbot: QtBot, window: MainWindow, draft: object) -> str:
    """Run a draft to its end; its id."""
    before = set(window.runs.ids)
    window.session.run(draft)  # type: ignore[arg-type]
    qtbot.waitUntil(lambda: bool(set(window.runs.ids) - before))
    (job_id,) = set(window.runs.ids) - before
    qtbot.waitUntil(lambda: window.runs.info(job_id).state.ended)  # type: ignore[union-attr]
    return job_id


def show(qtbot: QtBot, window: MainWindow, kind: type[CompareView]) -> CompareView:
    view = view_of(window, kind)
    window.tabs.show_view(view.view_id)
    assert window.tabs.currentWidget() is view
    qtbot.waitUntil(lambda: not view.dirty)
    return view


def complete(window: MainWindow, job_id: str) -> bool:
    info = window.runs.info(job_id)
    return info is not None and window.runs.record(job_id).last_number >= info.last_number > 0


def fill(window: MainWindow) -> None:
    """Three proofs and two measurements that no daemon knows of."""
    infos, records = [], {}
    for number, (ranks, method) in enumerate(((1, Method.CROWN), (2, Method.CROWN), (1, Method.IBP))):
        info = sample_records.job_info(ranks=ranks)
        job = msgspec.structs.replace(info.job, method=method)
        infos.append(msgspec.structs.replace(info, id=f"p{number}", job=job, created_s=1.0 + number))
        records[f"p{number}"] = sample_records.records(sample_records.finished_events(ranks=ranks))
    for number, mode in enumerate((RoundingMode.SR, RoundingMode.UD)):
        info = sample_noise.job_info(mode=mode)
        infos.append(msgspec.structs.replace(info, id=f"n{number}", created_s=9.0 + number))
        records[f"n{number}"] = sample_records.records(sample_noise.running_events(1))
    window.runs.set_jobs(infos)
    for job_id, events in records.items():
        window.runs.apply(job_id, events)


def pick(window: MainWindow, *job_ids: str) -> None:
    """Select these rows of the Jobs table, as Ctrl+click does."""
    table, flags = window.jobs.table, QItemSelectionModel.SelectionFlag
    table.clearSelection()
    for job_id in job_ids:
        row = window.jobs.model.row_of(job_id)
        index = window.jobs._proxy.mapFromSource(window.jobs.model.index(row, 0))
        table.selectionModel().select(index, flags.Select | flags.Rows)


def test_rows_picked_together_are_compared_and_one_alone_is_shown(lone_window: MainWindow) -> None:
    fill(lone_window)
    pick(lone_window, "p0")
    assert lone_window.runs.selected_id == "p0"
    pick(lone_window, "p0", "p2")
    assert lone_window.jobs.picked() == ("p0", "p2")
    lone_window.actions_by_id["run.compare"].trigger()
    assert lone_window.runs.compared == ("p0", "p2")
    assert lone_window.runs.selected_id == "p0"
    assert lone_window.tabs.current_view_id == "compare"


def test_one_row_alone_says_how_to_mark_more(lone_window: MainWindow) -> None:
    fill(lone_window)
    pick(lone_window, "p0")
    lone_window.actions_by_id["run.compare"].trigger()
    assert lone_window.runs.compared == ()
    assert "Tick the boxes of 2 to 8 runs" in " ".join(lone_window.messages.texts)


def test_plots_of_several_stand_in_the_place_of_those_of_one(lone_window: MainWindow) -> None:
    fill(lone_window)
    lone_window.runs.select("p0")
    tabs = lone_window.tabs
    tabs.show_view("memory")
    lone_window.runs.compare(("p0", "p1"))
    assert tabs.current_view_id == "compare_memory"
    assert not tabs.isTabVisible(tabs.indexOf(next(v for v in tabs.views if v.view_id == "memory")))
    lone_window.runs.compare(())
    assert tabs.current_view_id == "memory"
    assert not any(tabs.isTabVisible(tabs.indexOf(view)) for view in tabs.compare_views)


def test_memory_has_one_curve_a_run_or_a_rank(lone_window: MainWindow) -> None:
    fill(lone_window)
    lone_window.runs.compare(("p0", "p1"))
    view = view_of(lone_window, CompareMemoryView)
    assert isinstance(view, CompareMemoryView)
    view.refresh()
    lines = {}
    for spread in range(3):
        view.spread.setCurrentIndex(spread)
        (table,) = view.tables()
        lines[spread] = {(row[0], row[3]) for row in table.rows}
    assert lines[0] == lines[1] == {("A", "all"), ("B", "all")}
    assert lines[2] == {("A", 0), ("B", 0), ("B", 1)}


def test_the_sum_of_ranks_is_what_they_hold_together(lone_window: MainWindow) -> None:
    fill(lone_window)
    lone_window.runs.compare(("p0", "p1"))
    view = view_of(lone_window, CompareMemoryView)
    assert isinstance(view, CompareMemoryView)
    view.refresh()
    view.spread.setCurrentIndex(1)
    held = [row[5] for row in view.tables()[0].rows if row[0] == "B"]
    series = lone_window.runs.record("p1").memory
    assert held == [sum(pair) for pair in zip(series[0].total_bytes, series[1].total_bytes, strict=True)]


def test_drawing_again_makes_no_new_lines(lone_window: MainWindow) -> None:
    fill(lone_window)
    lone_window.runs.compare(("p0", "p1", "p2"))
    for kind in (CompareMemoryView, CompareGapView):
        view = view_of(lone_window, kind)
        view.refresh()
        scene = view.plot.figure.scene()  # type: ignore[attr-defined]
        before = len(scene.items())
        for _ in range(20):
            view.redraw()  # type: ignore[attr-defined]
            view.refresh()
        assert len(scene.items()) == before


def test_the_gap_of_a_chosen_clause_is_drawn_of_every_run(lone_window: MainWindow) -> None:
    fill(lone_window)
    lone_window.runs.compare(("p0", "p1"))
    view = view_of(lone_window, CompareGapView)
    assert isinstance(view, CompareGapView)
    view.refresh()
    view.clause.setCurrentIndex(view.clause.findText("Clause 3"))
    rows = view.tables()[0].rows
    assert {(row[0], row[4]) for row in rows} == {("A", 3), ("B", 3)}


def test_runs_without_curves_say_why(lone_window: MainWindow) -> None:
    fill(lone_window)
    lone_window.runs.compare(("p0", "n0"))
    view = view_of(lone_window, CompareGapView)
    view.refresh()
    assert "proves no margin" in view.notes.text()


def test_noise_of_two_runs_has_one_scale_and_a_difference(lone_window: MainWindow) -> None:
    fill(lone_window)
    lone_window.runs.compare(("n0", "n1"))
    view = view_of(lone_window, CompareNoiseView)
    assert isinstance(view, CompareNoiseView)
    view.refresh()
    assert {column.group for column in view.pair.heat.columns} == {"A  SR", "B  UD"}
    assert view.difference.heat.diverging
    assert [row.name for row in view.difference.heat.rows] == [row.name for row in view.pair.heat.rows]
    numbers = [cell.bits for row in view.difference.heat.rows for cell in row.cells if cell.bits is not None]
    assert numbers == pytest.approx([0.0] * len(numbers))


def test_a_layer_picked_in_one_table_is_marked_in_all(lone_window: MainWindow) -> None:
    fill(lone_window)
    lone_window.runs.compare(("n0", "n1"))
    facts, maps = view_of(lone_window, CompareFactsView), view_of(lone_window, CompareNoiseView)
    facts.refresh()
    maps.refresh()
    maps._pick(2)  # type: ignore[attr-defined]
    digits = facts.parts[1]  # type: ignore[attr-defined]
    assert digits.source_row() == 2
    assert lone_window.tabs.layer_selection.layer == digits.grid_model.grid.values[2][0]


def test_a_layer_picked_after_a_comparison_reads_no_map_of_before(lone_window: MainWindow) -> None:
    """The maps go with the runs: nothing is left in which the layer would be looked up."""
    fill(lone_window)
    lone_window.runs.compare(("n0", "n1"))
    view = view_of(lone_window, CompareNoiseView)
    assert isinstance(view, CompareNoiseView)
    view.refresh()
    layer = view.pair.heat.rows[0].name
    lone_window.runs.compare(())
    assert not view.pair.heat.rows
    lone_window.tabs.layer_selection.pick(layer)
    assert view.reading.text().startswith("Point at a cell")


def test_heads_of_many_runs_are_cut_so_that_their_columns_find_room(
    lone_window: MainWindow, qtbot: QtBot
) -> None:
    fill(lone_window)
    lone_window.runs.compare(("p0", "p1", "p2"))
    lone_window.tabs.show_view("compare")
    view = view_of(lone_window, CompareFactsView)
    assert isinstance(view, CompareFactsView)
    table = view.facts
    qtbot.waitUntil(lambda: table.horizontalHeader().length() == table.viewport().width())
    assert table.horizontalScrollBar().maximum() == 0


def test_deleting_a_compared_run_leaves_the_others(lone_window: MainWindow) -> None:
    fill(lone_window)
    lone_window.runs.compare(("p0", "p1", "p2"))
    lone_window.runs.remove("p1")
    assert lone_window.runs.compared == ("p0", "p2")
    lone_window.runs.remove("p0")
    assert lone_window.runs.compared == ()


def test_every_comparison_is_exported(lone_window: MainWindow, tmp_path: Path, qtbot: QtBot) -> None:
    fill(lone_window)
    lone_window.runs.select("n0")
    lone_window.runs.compare(("n0", "n1"))
    for view in lone_window.tabs.compare_views:
        if not view.has_data(view.record):  # type: ignore[arg-type]
            continue
        view.export_png(tmp_path / f"{view.view_id}.png")
        view.export_svg(tmp_path / f"{view.view_id}.svg")
        (first, *_) = view.export_csv(tmp_path / f"{view.view_id}.csv")
        assert len(list(csv.reader(first.open(encoding="utf-8")))) > 1
        view.copy_data()
        assert QApplication.clipboard().text()
    assert {path.stem for path in tmp_path.glob("*.svg")} == {"compare", "compare_variability"}


def test_no_two_runs_share_colour_and_line() -> None:
    from boundscope_app.theme import DARK, LIGHT

    for theme in (LIGHT, DARK):
        styles = [run_style(theme, place) for place in range(8)]
        assert len(set(styles)) == len({color for color, _ in styles}) == 8
        assert Qt.PenStyle.NoPen not in [pen for _, pen in styles]


def test_fewer_and_more_differ_in_blueness_as_well_as_in_hue() -> None:
    """Blue is what people tell apart who do not tell red from green."""
    for bits in (1, 2, 4):
        fewer, more = difference_color(-bits, 4), difference_color(bits, 4)
        assert more.blue() - more.red() > 60
        assert fewer.red() - fewer.blue() > 60


def test_real_runs_are_compared_remembered_and_printed(
    qtbot: QtBot,
    shared_home: Path,
    open_on: Callable[..., MainWindow],
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    """Through a daemon: two shardings and two roundings; a window that opens later shows the comparison again."""
    window = open_on(shared_home)
    conv = example_draft("digits-conv")
    ids = [
        run(qtbot, window, conv),
        run(qtbot, window, replace(conv, options=replace(conv.options, sharding=Sharding.ROWS, ranks=2))),
    ]
    noise = NoiseDraft(conv.network, None, conv.property_source, 1, options=NoiseOptions(samples=3))
    ids.append(run(qtbot, window, noise))
    window.compare(tuple(ids))
    qtbot.waitUntil(lambda: all(complete(window, job_id) for job_id in ids))
    view = show(qtbot, window, CompareFactsView)
    table = view.tables()[0]
    window.close()

    again = open_on(shared_home, Settings(compared=tuple(ids), view="compare"))
    assert again.runs.compared == tuple(ids)
    assert again.tabs.current_view_id == "compare"
    qtbot.waitUntil(lambda: all(complete(again, job_id) for job_id in ids))

    target = tmp_path / "table.csv"
    assert main(["compare", *ids, "--csv", str(target), "--home", str(shared_home)]) == 0
    assert target.read_text(encoding="utf-8") == table.to_csv()
    capsys.readouterr()
    assert main(["compare", *ids, "--home", str(shared_home)]) == 0
    assert "≠ sharding" in capsys.readouterr().out
    assert main(["compare", *ids, "--json", "--home", str(shared_home)]) == 0
    said = msgspec.json.decode(capsys.readouterr().out)
    assert [each["id"] for each in said["runs"]] == ids
    assert main(["compare", ids[0], "--home", str(shared_home)]) == 2


def test_compare_with_fsdp_compares_as_soon_as_the_other_runs(qtbot: QtBot, window: MainWindow) -> None:
    first = run(qtbot, window, example_draft("digits-conv"))
    window.runs.select(first)
    window.actions_by_id["run.compare_fsdp"].trigger()
    assert window.form.draft.options.sharding is Sharding.FSDP
    window.run()
    qtbot.waitUntil(lambda: len(window.runs.compared) == 2)
    assert window.runs.compared[0] == first
    second = window.runs.compared[1]
    qtbot.waitUntil(lambda: window.runs.info(second).state.ended)  # type: ignore[union-attr]
