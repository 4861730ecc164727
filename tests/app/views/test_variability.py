"""Noise as it is shown: bits are never made up for exact or NaN layers, and heatmap and table agree."""

from __future__ import annotations

import math

import numpy as np
import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtGui import QColor
from pytestqt.qtbot import QtBot

from app.views import sample_noise
from app.views import sample_records as samples
from boundscope.protocol import JobState, MemorySample, RoundingMode, Verdict, VerifyJob
from boundscope.records import JobRecord
from boundscope_app import theme
from boundscope_app.docks.jobs_model import METHOD, RANKS, VERDICT, JobsModel
from boundscope_app.notify import outcome
from boundscope_app.plots.heat import HeatCell
from boundscope_app.plots.heatmap import HeatmapDrawing, color_of, text_on, ticks
from boundscope_app.plots.style import live_style
from boundscope_app.runs import RunModel
from boundscope_app.views import BoundGapView, MemoryView, VariabilityView, VerdictView, View
from boundscope_app.views import variability_text as words
from boundscope_app.views.variability_model import (
    MOST_TELLINGS,
    by_distribution,
    by_samples,
    layers_now,
    thinned,
)
from boundscope_app.views.verdict_text import IN_WORDS, verdict_text


def finished() -> JobRecord:
    return samples.record_of(sample_noise.finished_events())


def shown(
    qtbot: QtBot, record: JobRecord, view_type: type[View] = VariabilityView, width: int = 1000
) -> View:
    view = view_type()
    qtbot.addWidget(view)
    view.resize(width, 600)
    view.set_run(sample_noise.job_info(), record)
    view.show()
    qtbot.waitExposed(view)
    view.refresh()
    return view


def variability(qtbot: QtBot, record: JobRecord, width: int = 1000) -> VariabilityView:
    view = shown(qtbot, record, VariabilityView, width)
    assert isinstance(view, VariabilityView)
    return view


# ---------------------------------------------------------------- what is shown


def test_exact_and_nan_layers_have_a_mark_and_no_bits() -> None:
    heat = by_distribution(None, finished())
    rows = {row.name: row for row in heat.rows}
    assert {(cell.bits, cell.mark, cell.wrong) for cell in rows[sample_noise.EXACT].cells} == {
        (None, "exact", False)
    }
    assert {(cell.bits, cell.mark, cell.wrong) for cell in rows[sample_noise.NAN].cells} == {
        (None, "NaN", True)
    }
    assert rows[sample_noise.NAN].flag == "1012 NaN"
    assert rows[sample_noise.NOISE_ONLY].flag == "40 noise ≥ value"


def test_rows_are_in_the_order_of_the_network_whatever_the_ranks_told_first() -> None:
    names = [name for name, _, _ in sample_noise.LAYERS]
    assert [row.name for row in by_distribution(None, finished()).rows] == names
    assert [
        row.name for row in by_samples(None, samples.record_of(sample_noise.running_events())).rows
    ] == names


def test_every_rank_shows_its_own_samples_and_the_whole_run_comes_last() -> None:
    heat = by_samples(None, finished())
    assert [(column.group, column.name) for column in heat.columns] == [
        *(("rank 0", str(taken)) for taken in (2, 3, 4)),
        *(("rank 1", str(taken)) for taken in (2, 3, 4)),
        ("all", "10"),
    ]
    conv = heat.rows[0].cells
    assert conv[0].bits == pytest.approx(22.1 - 0.4)
    assert conv[3].bits == pytest.approx(22.1 + 0.4)
    assert conv[-1].bits == 22.1


def test_while_it_runs_the_rank_with_most_samples_speaks_for_a_layer() -> None:
    events = [*sample_noise.told(0, 3), *sample_noise.told(1, 5), *sample_noise.told(0, 4)]
    assert {layer.samples for layer in layers_now(samples.record_of(events))} == {5}


def test_colours_go_to_the_precision_of_the_job() -> None:
    assert by_distribution(sample_noise.job_info(), finished()).full_bits == 24
    assert by_distribution(sample_noise.job_info(precision=8), finished()).full_bits == 8
    for bits in range(2, 54):
        places = ticks(bits)
        assert places[0] == 0
        assert places[-1] == bits
        assert 2 <= len(places) <= 9


def test_more_bits_are_lighter_and_the_number_on_them_can_be_read() -> None:
    assert color_of(-5, 24) == color_of(0, 24)
    assert color_of(30, 24) == color_of(24, 24)

    def luminance(color: QColor) -> float:
        channels = np.array(color.getRgbF()[:3])
        linear = np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)
        return float(linear @ [0.2126, 0.7152, 0.0722])

    lights = [luminance(color_of(bits, 24)) for bits in range(25)]
    assert lights == sorted(set(lights))
    for tenth in range(241):
        fill = color_of(tenth / 10, 24)
        two = sorted((luminance(fill), luminance(text_on(fill))))
        assert (two[1] + 0.05) / (two[0] + 0.05) >= 4.0


def test_long_runs_keep_the_first_and_the_last_telling() -> None:
    kept = thinned(range(2, 1000), 16)
    assert (kept[0], kept[-1], len(kept)) == (2, 999, 16)
    assert kept == sorted(set(kept))


def test_a_long_run_keeps_few_columns_of_each_rank_with_the_numbers_told_then() -> None:
    events = [event for taken in range(2, 200) for rank in (0, 1) for event in sample_noise.told(rank, taken)]
    heat = by_samples(None, samples.record_of(events[:-1]))
    assert len(heat.columns) == 2 * MOST_TELLINGS
    for index, column in enumerate(heat.columns):
        sign = 1 if column.group == "rank 1" else -1
        assert heat.rows[0].cells[index].bits == pytest.approx(22.1 + sign * 0.8 / int(column.name))
    late = heat.rows[-1].cells
    assert late[-1] == HeatCell()  # the last telling of the last layer has not arrived
    assert late[-2].bits is not None


def test_names_of_narrow_columns_are_left_out_and_never_overlap(qtbot: QtBot) -> None:
    events = [
        event for taken in range(900, 1100) for rank in (0, 1) for event in sample_noise.told(rank, taken)
    ]
    heat = by_samples(None, samples.record_of(events))
    for width in (300, 500, 900, 3000):
        drawing = HeatmapDrawing(heat, live_style(theme.LIGHT), width)
        named = drawing.named_columns()
        assert {0, MOST_TELLINGS} <= {index for index, _ in named}  # the first of each rank
        centers = [index * drawing.cell_px for index, _ in named]
        for gap, (_, room) in zip(np.diff(centers), named, strict=False):
            assert gap >= room - 1e-6
    assert len(named) == len(heat.columns)


def test_the_sentences_name_coverage_baseline_flips_and_for_ud_its_design() -> None:
    said = " ".join(words.sentences(sample_noise.job_info(), finished()))
    for part in ("98 % of 1.2 M", "bit-stable", "1 of 2 decisions flip", "by design"):
        assert part in said
    assert "by design" not in " ".join(
        words.sentences(sample_noise.job_info(mode=RoundingMode.SR), finished())
    )


# ---------------------------------------------------------------- pointer, keys, table


def test_a_click_in_the_heatmap_chooses_the_layer_in_the_table_and_reads_it(qtbot: QtBot) -> None:
    view = variability(qtbot, finished())
    qtbot.mouseClick(
        view.heatmap.viewport(), Qt.MouseButton.LeftButton, pos=QPoint(*view.heatmap.row_center(2))
    )
    assert view.layers.source_row() == 2
    name, op, _ = sample_noise.LAYERS[2]
    assert f"{name} ({op})" in view.reading.text()
    assert "5.81 decimal digits" in view.reading.text()


def test_pointing_at_a_cell_reads_its_value(qtbot: QtBot) -> None:
    view = variability(qtbot, finished())

    def reads(row: int, start: str) -> bool:
        """Point beside the cells and then at one: the pointer may be there already, and the layout settles late."""
        qtbot.mouseMove(view.heatmap.viewport(), QPoint(2, 2))
        qtbot.mouseMove(view.heatmap.viewport(), QPoint(*view.heatmap.row_center(row)))
        return view.reading.text().startswith(start)

    qtbot.waitUntil(lambda: reads(0, "least: 14.10 bits"))
    qtbot.waitUntil(lambda: reads(4, "least: exact"))


def test_keys_choose_layers_and_the_table_follows_however_it_is_sorted(qtbot: QtBot) -> None:
    view = variability(qtbot, finished())
    view.layers.sortByColumn(words.LAYER_COLUMNS.index("Mean bits"), Qt.SortOrder.DescendingOrder)
    ordered = [row[2] for row in view.layers.shown_rows()]
    numbers = [-math.inf if bits is None else bits for bits in ordered]
    assert numbers == sorted(numbers, reverse=True)
    view.heatmap.setFocus()
    for _ in range(3):
        qtbot.keyClick(view.heatmap, Qt.Key.Key_Down)
    assert view.heatmap.current == 2
    assert view.layers.source_row() == 2
    qtbot.keyClick(view.layers, Qt.Key.Key_Home)
    view.layers.selectRow(0)
    assert view.heatmap.current == view.layers.source_row() == 1


def test_proof_and_measurement_have_a_table_only_where_there_was_a_property(qtbot: QtBot) -> None:
    view = variability(qtbot, finished())
    assert view.tabs.isTabVisible(1)
    view.set_run(sample_noise.job_info(JobState.RUNNING), samples.record_of(sample_noise.running_events()))
    view.refresh()
    assert not view.tabs.isTabVisible(1)
    assert "4 of 10" in view.words.text()


def test_tables_go_below_where_there_is_little_width(qtbot: QtBot) -> None:
    assert variability(qtbot, finished(), 1000).splitter.orientation() is Qt.Orientation.Horizontal
    assert variability(qtbot, finished(), 600).splitter.orientation() is Qt.Orientation.Vertical


def test_csv_has_the_cells_of_the_heatmap_that_is_shown(qtbot: QtBot) -> None:
    view = variability(qtbot, finished())
    assert [table.name for table in view.tables()] == [
        "noise",
        "decisions",
        "coverage",
        "sources",
        "deployed",
    ]
    view.columns.setCurrentIndex(1)
    table = view.tables()[-1]
    assert table.name == "noise_by_samples"
    assert table.rows[0] == ("/conv1/Conv", "rank 0", 2, pytest.approx(21.7), "")
    assert len(table.rows) == len(sample_noise.LAYERS) * 7


# ---------------------------------------------------------------- what other places say of such a run


def test_the_verdict_page_of_a_measurement_is_no_verdict(qtbot: QtBot) -> None:
    page = verdict_text(
        sample_noise.job_info(), finished(), theme.LIGHT, with_progress=True, width=1200
    ).markup
    for part in (
        "Measured",
        "/head/Gemm",
        "18.0 significant bits",
        "1 of 2 decisions flip",
        "98 %",
        "--mode ud",
    ):
        assert part in page
    for word, sentence in IN_WORDS.values():
        assert f">{word}<" not in page
        assert sentence not in page
    view = shown(qtbot, finished(), VerdictView)
    assert view.tables()[0].name == "noise"


def test_a_measurement_cut_short_says_so() -> None:
    record = samples.record_of(sample_noise.finished_events(Verdict.TIMEOUT))
    page = verdict_text(sample_noise.job_info(), record, theme.LIGHT, with_progress=True, width=1200).markup
    assert "before all samples were taken" in page


def test_a_ledger_that_holds_nothing_is_not_drawn_as_curves_at_zero(qtbot: QtBot) -> None:
    empty = MemorySample(elapsed_s=1.0, by_category={}, resident_bytes=1 << 27, limit_bytes=1 << 30)
    view = shown(qtbot, samples.record_of([(0, empty), (0, sample_noise.result())]), MemoryView)
    assert "Verdict page" in view._empty.text()
    assert not view.png_action.isEnabled()
    view.set_run(sample_noise.job_info(), finished())
    view.refresh()
    assert view.png_action.isEnabled()


def test_the_bound_gap_of_a_measurement_sends_the_reader_to_variability(qtbot: QtBot) -> None:
    view = shown(qtbot, finished(), BoundGapView)
    assert "Variability view" in view._empty.text()
    view.set_run(samples.job_info(), JobRecord())
    view.refresh()
    assert view._empty.text() == view.empty_text


def test_a_proof_says_that_it_measured_nothing_and_what_would(qtbot: QtBot) -> None:
    view = VariabilityView()
    qtbot.addWidget(view)
    info = samples.job_info()
    assert isinstance(info.job, VerifyJob)
    view.set_run(info, samples.record_of(samples.finished_events()))
    view.refresh()
    assert "does not measure" in view._empty.text()


def test_the_jobs_table_names_rounding_ranks_and_outcome(qtbot: QtBot) -> None:
    runs = RunModel()
    model = JobsModel(runs)
    runs.set_jobs((sample_noise.job_info(),))
    texts = [model.index(0, column).data() for column in (METHOD, RANKS, VERDICT)]
    assert texts == ["UD", "2", "measured"]
    assert outcome(sample_noise.job_info()) == "measured"
    runs.set_jobs((sample_noise.job_info(JobState.RUNNING),))
    assert model.index(0, VERDICT).data() == ""
    assert outcome(sample_noise.job_info(verdict=Verdict.TIMEOUT)) == "timeout"
