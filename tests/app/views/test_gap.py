"""The bound gap view tells the truth about signs, zeros, gaps and what is missing."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from PySide6.QtCore import QPointF, Qt
from pytestqt.qtbot import QtBot

from app.views import sample_records as samples
from boundscope.protocol import EventRecord, GapPoint
from boundscope.records import JobRecord
from boundscope_app import theme
from boundscope_app.plots.cursor import TimeCursor
from boundscope_app.plots.scale import SignedLogScale
from boundscope_app.views import BoundGapView, MemoryView
from boundscope_app.views.gap_model import ColorSlots, GapModel
from boundscope_app.views.gap_plot import FRONT, time_range


def gap(
    elapsed_s: float, lower: float | None, upper: float | None = None, clause: int = 0, step: str = "crown"
):
    return (0, GapPoint(elapsed_s=elapsed_s, case=0, clause=clause, lower=lower, upper=upper, step=step))


def shown(qtbot: QtBot, record: JobRecord) -> BoundGapView:
    view = BoundGapView()
    qtbot.addWidget(view)
    view.resize(1000, 640)
    view.set_run(samples.job_info(), record)
    view.show()
    view.refresh()
    return view


def header(view: BoundGapView) -> str:
    return " | ".join(text for text, _ in view.plot.panel.header)


def test_nan_and_infinite_bounds_are_gaps_and_counted_and_absent_ones_are_not(qtbot: QtBot) -> None:
    record = samples.record_of(
        [gap(1, -2.0), gap(2, math.nan), gap(3, math.inf), gap(4, None), gap(5, -1.0, upper=0.5)]
    )
    view = shown(qtbot, record)
    x, y = view.model.clauses[0, 0].lower.arrays()
    np.testing.assert_array_equal(x, [1, 2, 3, 5])
    np.testing.assert_array_equal(np.isnan(y), [False, True, True, False])
    assert "2 values are NaN or ∞, drawn as gaps" in header(view)
    assert np.isfinite(view.plot.panel.box.viewRange()).all()


def test_zero_is_on_the_axis_and_marked_whatever_the_signs(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of([gap(1, -300.0), gap(2, 0.0), gap(3, 0.002)]))
    panel = view.plot.panel
    assert isinstance(panel.scale_, SignedLogScale)
    _, (low, high) = panel.box.viewRange()
    assert low < float(panel.scale_.to(np.array([-300.0]))[0]) < 0 < high
    assert panel.levels[0].place == 0.0
    assert panel.levels[0].note == "proven above this line"
    np.testing.assert_array_equal(view.model.clauses[0, 0].lower.zeros(), [2.0])
    assert "0" in [tick.label for tick in panel.y_ticks()]


def test_all_bounds_negative_still_show_the_zero_line(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of([gap(1, -5.0), gap(2, -4.0)]))
    for index in (0, 1):
        view.scale.setCurrentIndex(index)
        view.refresh()
        _, (low, high) = view.plot.panel.box.viewRange()
        assert low < 0 < high


def test_the_worst_clause_comes_first_and_hidden_ones_leave_plot_and_table(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.gap_events(9, verified=False)))
    assert "Worst: clause 2" in header(view)
    assert view.clause_model.row(0).key == (0, 2)
    view.clause_model.set_checked([(0, 2)], False)
    view.refresh()
    assert "Worst: clause 0" in header(view)
    (table,) = view.tables()
    assert {row[1] for row in table.rows} == set(range(9)) - {2}
    assert len(table.rows) == 3 * 8


def test_the_table_is_exactly_what_the_record_holds(qtbot: QtBot) -> None:
    record = samples.record_of([gap(1, -1.5, 2.0), gap(2, math.nan), gap(3, None, 0.25)])
    view = shown(qtbot, record)
    assert view.tables()[0] == record.gap_table() or view.tables()[0].to_csv() == record.gap_table().to_csv()
    assert "nan" in view.tables()[0].to_csv()


def test_steps_reach_from_the_end_of_the_one_before(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.gap_events(4)))
    spans = view.plot.panel.spans
    assert [span.name for span in spans] == ["IBP", "CROWN", "attack"]
    assert spans[0].start_s == 0.0
    assert all(a.end_s == b.start_s for a, b in itertools.pairwise(spans))
    assert spans[-1].end_s == view.model.end_s


def test_more_clauses_than_colours_are_drawn_and_said(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.long_gap_events(50, 30)))
    choice = view.choice()
    assert len(choice.slots) == FRONT
    assert set(choice.slots) == set(choice.shown[:FRONT])
    legend = [entry.text for entry in view.plot.legend(view.model, choice)]
    assert "22 other clauses, lower bound only" in legend


def test_a_clause_keeps_its_colour_while_it_stays_in_front() -> None:
    slots = ColorSlots(3)
    first = slots.assign([(0, 0), (0, 1), (0, 2)])
    second = slots.assign([(0, 2), (0, 9), (0, 0)])
    assert (second[0, 0], second[0, 2]) == (first[0, 0], first[0, 2])
    assert second[0, 9] == first[0, 1]


def test_a_growing_record_is_taken_up_without_reading_the_past_again() -> None:
    record = JobRecord()
    model = GapModel()
    for number in range(1, 301):
        record.apply(EventRecord(number=number, time_s=0.0, rank=0, event=gap(number, -1.0 / number)[1]))
        model.update(record)
        assert model.changed == {(0, 0)}
    model.update(record)
    assert model.changed == set()
    assert model.clauses[0, 0].taken == 300
    assert model.clauses[0, 0].lower.at(None) == -1.0 / 300


def test_points_out_of_order_are_drawn_in_order() -> None:
    model = GapModel()
    model.update(samples.record_of([gap(3, 3.0), gap(1, 1.0), gap(2, 2.0)]))
    x, y = model.clauses[0, 0].lower.arrays()
    np.testing.assert_array_equal(x, [1, 2, 3])
    np.testing.assert_array_equal(y, [1, 2, 3])


def test_pointing_reads_values_clicking_pins_and_both_are_shared(qtbot: QtBot) -> None:
    record = samples.record_of(samples.finished_events())
    view, memory = shown(qtbot, record), MemoryView()
    qtbot.addWidget(memory)
    memory.set_run(samples.job_info(), record)
    memory.show()
    memory.refresh()
    cursor = TimeCursor()
    view.set_time_cursor(cursor)
    memory.set_time_cursor(cursor)
    figure, panel = view.plot.figure, view.plot.panel
    where = panel.box.mapViewToScene(QPointF(1.0, 0.0))
    qtbot.mouseMove(figure.viewport(), figure.mapFromScene(where))
    qtbot.waitUntil(lambda: cursor.time_s is not None)
    assert cursor.time_s is not None
    assert abs(cursor.time_s - 1.0) < 0.05
    assert memory.plot.figure.panels[0].cursor_s == cursor.time_s
    assert "CROWN" in view._reading.text()
    assert "holds" in memory._reading.text()
    qtbot.mouseClick(figure.viewport(), Qt.MouseButton.LeftButton, pos=figure.mapFromScene(where))
    qtbot.waitUntil(lambda: len(cursor.pins) == 1)
    assert memory.plot.figure.panels[0].pins == tuple(cursor.pins)
    assert "Pinned" in view._pinned.text()
    view.clear_pins_button.click()
    assert cursor.pins == []
    assert not view._pinned.isVisible()


def test_zoom_stays_while_the_run_grows_and_show_all_ends_it(qtbot: QtBot) -> None:
    record = samples.record_of(samples.gap_events(3))
    view = shown(qtbot, record)
    box = view.plot.panel.box
    assert not view.show_all_button.isVisible()
    box.scaleBy((0.5, 0.5))
    box.sigRangeChangedManually.emit(box.state["mouseEnabled"])
    before = box.viewRange()
    record.apply(EventRecord(number=record.last_number + 1, time_s=0, rank=0, event=gap(9.0, 1.0)[1]))
    view.set_run(samples.job_info(), record)
    view.refresh()
    assert box.viewRange() == before
    assert view.show_all_button.isVisible()
    view.show_all_button.click()
    assert box.viewRange()[0][1] > 9.0
    assert not view.show_all_button.isVisible()


def test_another_run_starts_afresh(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.gap_events(9)))
    view.clause_model.set_checked([(0, 1)], False)
    view.set_run(samples.job_info(), samples.record_of(samples.gap_events(2)))
    view.refresh()
    assert set(view.model.clauses) == {(0, 0), (0, 1)}
    assert len(view.tables()[0].rows) == 6


def test_readings_that_all_come_late_are_not_squeezed_into_the_end() -> None:
    start, end = time_range(4.0, 4.2)
    assert 3.8 < start < 4.0
    assert 4.2 < end < 4.3
    assert time_range(0.4069, 0.407)[0] == 0.0
    assert time_range(1.0, 10.0)[0] == 0.0
    assert time_range(0.0, 0.0)[1] > 0.0


def test_without_any_lower_bound_the_least_margin_seen_leads(qtbot: QtBot) -> None:
    view = shown(
        qtbot, samples.record_of([gap(1, None, 0.5, 0), gap(1, None, -0.25, 1), gap(1, None, None, 2)])
    )
    assert "Worst: clause 1, margin ≤ −0.25 seen" in header(view)


def test_a_clause_that_a_search_excluded_is_above_zero_once_the_verdict_says_so(qtbot: QtBot) -> None:
    """The series ends with a bound of 0, of which nobody knows how far above it is: "≥ 0" would claim too little."""
    told = [gap(1, -1.0, 2.0, step="splitting inputs"), gap(2, 0.0, 2.0, step="splitting inputs")]
    running = shown(qtbot, samples.record_of(told))
    assert "Worst: clause 0, margin ≥ 0" in header(running)
    ended = shown(qtbot, samples.record_of([*told, (0, samples.result())]))
    assert "Worst: clause 0, margin > 0" in header(ended)
    assert ended.clause_model.row(0).values == ("> 0", "2.000")


def test_nothing_is_drawn_again_while_only_other_things_are_said(
    qtbot: QtBot, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = samples.record_of(samples.gap_events(3))
    view = shown(qtbot, record)
    drawn: list[int] = []
    show = view.plot.show
    monkeypatch.setattr(view.plot, "show", lambda model, choice: (drawn.append(1), show(model, choice)))
    view.mark_dirty()
    view.refresh()
    assert drawn == []
    view.set_run(samples.job_info(), record)
    record.apply(EventRecord(number=record.last_number + 1, time_s=0, rank=0, event=gap(9.0, 1.0)[1]))
    view.tables()
    view.page(800, None, theme.LIGHT, 1.0)
    view.refresh()
    assert drawn == [1]
    theme.notifier.changed.emit()
    assert drawn == [1, 1]


def test_keys_move_the_cursor_pin_and_undo_the_zoom(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.record_of(samples.gap_events(3)))
    figure = view.plot.figure
    for _ in range(3):
        qtbot.keyClick(figure, Qt.Key.Key_Right)
    first = view.time_cursor.time_s
    assert first is not None
    qtbot.keyClick(figure, Qt.Key.Key_Right, Qt.KeyboardModifier.ShiftModifier)
    assert view.time_cursor.time_s is not None
    assert view.time_cursor.time_s > first
    qtbot.keyClick(figure, Qt.Key.Key_Space)
    assert view.time_cursor.pins == [view.time_cursor.time_s]
    view.plot.panel.show_range(((0.0, 1.0), (0.0, 1.0)))
    qtbot.keyClick(figure, Qt.Key.Key_Home)
    assert not figure.zoomed
