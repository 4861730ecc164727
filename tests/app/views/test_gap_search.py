"""Branch and bound in the bound gap view: domains bounded and open, on the time axis of the margins."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pytestqt.qtbot import QtBot

from app.views import sample_records as samples
from boundscope.protocol import Branching, Event, EventRecord, SearchPoint
from boundscope.records import JobRecord
from boundscope_app.plots.scale import LinearScale, SignedLogScale
from boundscope_app.views import BoundGapView
from boundscope_app.views.gap_search import SearchModel


def point(elapsed_s: float, done: int, open: int, depth: int = 3) -> tuple[int, Event]:
    return 0, SearchPoint(
        elapsed_s=elapsed_s, branching=Branching.INPUT, done=done, open=open, depth=depth, clauses_open=2
    )


SEARCH = [point(3.0, 0, 1, 0), point(4.0, 900, 410), point(5.0, 12_345, 0, 17)]


def shown(qtbot: QtBot, events: list[tuple[int, Event]]) -> BoundGapView:
    view = BoundGapView()
    qtbot.addWidget(view)
    view.resize(1000, 640)
    view.set_run(samples.job_info(), samples.record_of(events))
    view.show()
    view.refresh()
    return view


@pytest.fixture
def view(qtbot: QtBot) -> BoundGapView:
    return shown(qtbot, [*samples.gap_events(4), *SEARCH])


def test_a_run_without_a_search_has_no_panel_for_one(qtbot: QtBot) -> None:
    view = shown(qtbot, samples.gap_events(4))
    assert view.plot.figure.visible_panels() == [view.plot.panel]
    assert len(view.tables()) == 1
    view.set_run(samples.job_info(), samples.record_of([*samples.gap_events(4), *SEARCH]))
    view.refresh()
    assert view.plot.figure.visible_panels() == [view.plot.panel, view.plot.search.panel]
    view.set_run(samples.job_info(), samples.record_of(samples.gap_events(4)))
    view.refresh()
    assert view.plot.figure.visible_panels() == [view.plot.panel]


def test_the_header_counts_and_names_both_lines(view: BoundGapView) -> None:
    header = [text for text, _ in view.plot.search.panel.header]
    assert header[:3] == ["━ 12\u202f345 bounded", "╌ 0 open", "deepest 17 splits"]
    assert view.plot.search.panel.header[0][1] != view.plot.search.panel.header[1][1]
    assert view.plot.search.panel.y_label == "Domains"


def test_both_panels_have_one_time_axis_to_the_pixel(view: BoundGapView) -> None:
    upper, lower = view.plot.panel, view.plot.search.panel
    assert upper.box.viewRange()[0] == lower.box.viewRange()[0]
    left, right = (panel.box.sceneBoundingRect() for panel in (upper, lower))
    assert (left.left(), left.right()) == pytest.approx((right.left(), right.right()))
    assert left.height() > right.height() > 60
    assert lower.box.viewRange()[0][1] > 5.0


def test_zooming_into_one_gives_the_other_its_times_and_no_more(view: BoundGapView) -> None:
    upper, lower = view.plot.panel, view.plot.search.panel
    full, counts = upper.box.viewRange()[0], lower.box.viewRange()[1]
    upper.box.setRange(xRange=(3.5, 4.5), yRange=(-1.0, 1.0), padding=0, disableAutoRange=False)
    upper.box.sigRangeChangedManually.emit([True, True])
    assert lower.box.viewRange() == [[3.5, 4.5], counts]
    view.show_all_button.click()
    assert upper.box.viewRange()[0] == lower.box.viewRange()[0] == full
    assert not view.plot.figure.zoomed


def test_zero_has_its_place_on_both_scales(view: BoundGapView) -> None:
    panel = view.plot.search.panel
    for index, scale in ((0, SignedLogScale), (1, LinearScale)):
        view.scale.setCurrentIndex(index)
        view.refresh()
        assert isinstance(panel.scale_, scale)
        low, high = panel.box.viewRange()[1]
        assert low < 0.0 < float(panel.scale_.to(np.array([12_345.0]))[0]) < high
        assert "0" in [tick.label for tick in panel.y_ticks()]


def test_the_reading_tells_the_search_of_that_moment(view: BoundGapView) -> None:
    assert "domain" not in view.reading_at(2.9)
    assert view.reading_at(4.5).endswith("900 domains, 410 open, deepest 3 splits, 2 clauses left")
    view.time_cursor.move(4.5)
    assert view.plot.search.panel.cursor_s == 4.5


def test_the_table_of_the_search_goes_with_that_of_the_margins(view: BoundGapView, tmp_path: Path) -> None:
    assert view.record is not None
    assert view.tables()[1] == view.record.search_table()
    view.clause_model.set_checked([(0, clause) for clause in range(4)], False)
    view.refresh()
    assert view.tables()[1] == view.record.search_table()
    written = view.export_csv(tmp_path / "gap.csv")
    assert [path.name for path in written] == ["gap.csv", "gap_search.csv"]
    assert written[1].read_text().splitlines()[2] == "4.0,input,900,410,3,2,,"


def test_an_exported_figure_explains_both_lines(view: BoundGapView, tmp_path: Path) -> None:
    legend = [entry.text for entry in view.plot.legend(view.model, view.choice())]
    assert legend[-3:] == ["Domains of branch and bound", "bounded so far", "open, waiting"]
    view.export_png(tmp_path / "gap.png")
    assert (tmp_path / "gap.png").stat().st_size > 10_000


def test_a_growing_search_is_taken_up_without_reading_the_past_again() -> None:
    record, model = JobRecord(), SearchModel()
    for number in range(1, 201):
        event = point(float(number), 10 * number, number)[1]
        record.apply(EventRecord(number=number, time_s=0.0, rank=0, event=event))
        assert model.update(record)
    assert not model.update(record)
    times, done, waiting = model.arrays()
    assert (times[-1], done[-1], waiting[-1]) == (200.0, 2000.0, 200.0)
    assert model.at(0.5) is None
    assert model.at(150.5) is record.search[149]
