"""The memory view adds up, keeps one scale for all ranks, and says what lies beyond it."""

from __future__ import annotations

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.views import sample_records as samples
from boundscope.protocol import MemorySample
from boundscope.records import JobRecord
from boundscope_app.views import MemoryView
from boundscope_app.views.memory_plot import MOST_PANELS, Fit
from boundscope_app.views.text import byte_size, byte_unit

MIB = samples.MIB


def shown(qtbot: QtBot, record: JobRecord) -> MemoryView:
    view = MemoryView()
    qtbot.addWidget(view)
    view.resize(1100, 700)
    view.set_run(samples.job_info(ranks=4), record)
    view.show()
    view.refresh()
    return view


def sample(elapsed_s: float, held_mib: int, resident_mib: int, limit_mib: int | None = None, rank: int = 0):
    event = MemorySample(
        elapsed_s=elapsed_s,
        by_category={"weights": held_mib * MIB},
        resident_bytes=resident_mib * MIB,
        limit_bytes=None if limit_mib is None else limit_mib * MIB,
    )
    return (rank, event)


def test_the_stack_adds_up_to_the_ledger(qtbot: QtBot) -> None:
    record = samples.record_of(samples.memory_events(2, 60))
    view = shown(qtbot, record)
    for rank, series in view.model.ranks.items():
        np.testing.assert_array_equal(series.parts.sum(axis=0), record.memory[rank].total_bytes)
        assert series.peak()[1] == max(record.memory[rank].total_bytes)
        assert f"○ peak {byte_size(series.peak()[1])}" in [t for t, _ in view.plot.figure.panels[rank].header]


def test_all_ranks_share_one_scale_in_one_unit(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.memory_events(4)))
    panels = view.plot.figure.visible_panels()
    assert len(panels) == 4
    assert len({tuple(map(tuple, panel.box.viewRange())) for panel in panels}) == 1
    assert {panel.y_label for panel in panels} == {"Memory [MiB]"}
    widths = {round(panel.box.geometry().width()) for panel in panels}
    assert max(widths) - min(widths) <= 1


def test_a_resident_size_far_above_the_ledger_does_not_flatten_it(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of([sample(1, 2, 450, 6000), sample(2, 3, 460, 6000)]))
    (panel,) = view.plot.figure.visible_panels()
    texts = [text for text, _ in panel.header]
    assert "resident 460 MiB ↑" in texts
    assert "limit 5.86 GiB ↑" in texts
    assert panel.box.viewRange()[1][1] < 4 * MIB
    view.fit.setCurrentIndex(Fit.RESIDENT)
    view.refresh()
    assert 460 * MIB < panel.box.viewRange()[1][1] < 600 * MIB
    view.fit.setCurrentIndex(Fit.LIMIT)
    view.refresh()
    assert panel.box.viewRange()[1][1] > 6000 * MIB
    assert [level.place for level in panel.levels] == [6000 * MIB]
    assert panel.y_label == "Memory [GiB]"


def test_hidden_ranks_leave_plot_and_table(qtbot: QtBot) -> None:
    record = samples.record_of(samples.memory_events(4, 10))
    view = shown(qtbot, record)
    assert view.tables() == (record.memory_table(),)
    view.rank_model.set_checked([1, 2], False)
    view.refresh()
    assert len(view.plot.figure.visible_panels()) == 2
    assert {row[0] for row in view.tables()[0].rows} == {0, 3}


def test_more_ranks_than_panels_show_the_fullest_and_say_so(qtbot: QtBot) -> None:
    ranks = MOST_PANELS + 6
    record = samples.record_of(sample(1.0, 10 + rank, 20 + rank, rank=rank) for rank in range(ranks))
    view = shown(qtbot, record)
    assert view.choice().ranks == tuple(range(6, ranks))
    assert len(view.plot.figure.visible_panels()) == MOST_PANELS
    assert f"{MOST_PANELS} of {ranks} ranks" in [entry.text for entry in view.plot.figure.legend.entries]
    assert {row[0] for row in view.tables()[0].rows} == set(view.choice().ranks)


def test_panels_are_kept_from_one_drawing_to_the_next(qtbot: QtBot) -> None:
    record = samples.record_of(samples.memory_events(3, 20))
    view = shown(qtbot, record)
    before = list(view.plot.figure.panels)
    items = len(view.plot.figure.scene().items())
    for _ in range(20):
        view.mark_dirty()
        view.refresh()
    assert view.plot.figure.panels == before
    assert len(view.plot.figure.scene().items()) == items


def test_zooming_into_one_rank_zooms_into_all(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.memory_events(4)))
    first, *others = view.plot.figure.visible_panels()
    first.box.setRange(xRange=(0.5, 1.0), yRange=(0, 300 * MIB), padding=0)
    first.box.sigRangeChangedManually.emit(first.box.state["mouseEnabled"])
    for other in others:
        assert other.box.viewRange() == first.box.viewRange()


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1536, "1.5 KiB"), (512 * MIB, "512 MiB"), (3 * 1024 * MIB, "3 GiB")],
)
def test_sizes_are_written_in_binary_units(value: int, text: str) -> None:
    assert byte_size(value) == text


def test_the_unit_keeps_the_largest_value_below_1024() -> None:
    for value in (1, 1023, 1024, 5e6, 7e9, 3e12, 2e15):
        _, size = byte_unit(value)
        assert value / size < 1024


def test_a_peak_between_two_samples_is_said(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of([sample(1, 200, 300), (0, samples.result(ranks=1))]))
    texts = [text for text, _ in view.plot.figure.visible_panels()[0].header]
    assert {"peak 430 MiB, between samples", "○ highest sample 200 MiB"} <= set(texts)
