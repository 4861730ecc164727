"""The layers table and the log: sorted, filtered, copied, and grown in place."""

from __future__ import annotations

import math

import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from pytestqt.qtbot import QtBot

from app.views import sample_noise
from app.views import sample_records as samples
from boundscope.protocol import EventRecord, JobInfo, JobState, LayerBounds, LogLine
from boundscope.records import JobRecord
from boundscope_app.views import LayersView, LogView
from boundscope_app.views.layers_model import COLUMNS


def layers(qtbot: QtBot, record: JobRecord, info: JobInfo | None = None) -> LayersView:
    view = LayersView()
    qtbot.addWidget(view)
    view.resize(900, 400)
    view.set_run(info or samples.job_info(), record)
    view.show()
    view.refresh()
    return view


def log(qtbot: QtBot, record: JobRecord) -> LogView:
    view = LogView()
    qtbot.addWidget(view)
    view.resize(700, 240)
    view.set_run(samples.job_info(), record)
    view.show()
    view.refresh()
    return view


def layer(node: str, width: float = 1.0, unstable: int | None = None) -> LayerBounds:
    return LayerBounds(
        case=0,
        node=node,
        op="Gemm",
        size=8,
        lower_min=-width,
        upper_max=width,
        width_mean=width,
        width_max=2 * width,
        unstable=unstable,
        method="crown",
    )


def append(record: JobRecord, event: LayerBounds | LogLine) -> None:
    record.apply(EventRecord(number=record.last_number + 1, time_s=samples.EPOCH_S, rank=0, event=event))


def test_layers_sort_as_numbers_with_nan_last_and_the_table_follows(qtbot: QtBot) -> None:
    record = samples.record_of((0, layer(f"n{w}", w)) for w in (2.0, 10.0, math.nan, -1e-3, 1e12))
    view = layers(qtbot, record)
    view.table.sortByColumn(7, Qt.SortOrder.AscendingOrder)
    nodes = [row[1] for row in view.tables()[0].rows]
    assert nodes == ["n-0.001", "n2.0", "n10.0", "n1000000000000.0", "nnan"]


def test_layers_in_the_order_of_the_network_until_sorted(qtbot: QtBot) -> None:
    record = samples.record_of(samples.layer_events())
    rows = layers(qtbot, record).tables()[0].rows
    assert rows == record.layer_table().rows, "as `boundscope export` writes them"
    assert rows[2][-1] == pytest.approx(85 / 256)


def test_layers_are_filtered_by_node_operator_and_method(qtbot: QtBot) -> None:
    view = layers(qtbot, samples.record_of(samples.layer_events()))
    view.filter.setText("relu")
    assert view.proxy.rowCount() == 3
    assert view.count.text() == "3 of 7 layers"
    assert len(view.tables()[0].rows) == 3
    view.filter.setText("ibp")
    assert [row[1] for row in view.tables()[0].rows] == ["/fc1/Gemm"]


def test_better_bounds_of_a_layer_replace_the_row(qtbot: QtBot) -> None:
    record = samples.record_of(samples.layer_events())
    view = layers(qtbot, record)
    append(record, layer("/fc2/Gemm", 0.125, unstable=3))
    view.mark_dirty()
    view.refresh()
    assert view.model.rowCount() == 7
    shown = [view.model.index(2, column).data() for column in range(view.model.columnCount())]
    assert shown[5:10] == ["0.12500", "0.12500", "0.25000", "3", "37.5 %"]


def test_selected_layers_are_copied_with_a_header(qtbot: QtBot) -> None:
    view = layers(qtbot, samples.record_of(samples.layer_events()))
    view.table.selectRow(1)
    view.copy_selection()
    lines = QGuiApplication.clipboard().text().split("\n")
    assert len(lines) == 2
    assert lines[0].startswith("Node\tCase\tOperator")
    assert lines[1].startswith("/relu1/Relu\t0\tRelu\t256\t0.0\t")


def test_the_log_is_filtered_by_level_and_text(qtbot: QtBot) -> None:
    view = log(qtbot, samples.record_of(samples.log_events()))
    assert view.model.rowCount() == 6
    view.level.setCurrentIndex(1)
    assert view.model.rowCount() == 5
    view.level.setCurrentIndex(2)
    assert [line.text for _, _, line in view.model.lines] == ["resident memory is within 10 % of its limit"]
    view.level.setCurrentIndex(0)
    view.filter.setText("CROWN")
    assert view.count.text() == "1 of 6 lines"
    assert [row[3] for row in view.tables()[0].rows] == ["crown: every clause excluded, smallest margin 0.02"]


def test_the_filter_holds_for_lines_that_come_later(qtbot: QtBot) -> None:
    record = samples.record_of(samples.log_events())
    view = log(qtbot, record)
    view.filter.setText("rows")
    append(record, LogLine(text="another line"))
    append(record, LogLine(text="more rows"))
    view.mark_dirty()
    view.refresh()
    assert [line.text for _, _, line in view.model.lines] == [
        "the memory budget allows 512 rows at a time",
        "more rows",
    ]


def test_the_log_follows_the_end_unless_scrolled_up(qtbot: QtBot) -> None:
    record = samples.record_of((0, LogLine(text=f"line {i}")) for i in range(200))
    view = log(qtbot, record)
    bar = view.table.verticalScrollBar()
    qtbot.waitUntil(lambda: bar.maximum() > 0 and bar.value() == bar.maximum())
    append(record, LogLine(text="one more"))
    view.mark_dirty()
    view.refresh()
    qtbot.waitUntil(lambda: bar.value() == bar.maximum())
    bar.setValue(20)
    append(record, LogLine(text="yet one more"))
    view.mark_dirty()
    view.refresh()
    assert bar.value() == 20


def test_the_rank_of_a_line_is_named_and_the_daemon_by_word(qtbot: QtBot) -> None:
    view = log(qtbot, samples.record_of(samples.log_events()))
    assert [view.model.index(row, 1).data() for row in range(4)] == ["daemon", "0", "0", "2"]


def test_a_long_line_is_folded_so_that_all_of_it_can_be_read(qtbot: QtBot) -> None:
    """Words, and a word that is longer than the column; the row has the height, and folds anew with the width."""
    words = " ".join(["seventeen"] * 24)
    view = log(qtbot, samples.record_of([(0, LogLine(text=t)) for t in ("short", words, "x" * 300)]))
    table, metrics = view.table, view._metrics
    plain = table.rowHeight(0)
    for row in (1, 2):
        assert table.rowHeight(row) > plain
        needed = metrics.horizontalAdvance("x") * len(view.model.lines[row][2].text)
        lines = (table.rowHeight(row) - 4) // metrics.lineSpacing()
        assert lines * table.columnWidth(3) > needed
    before = table.rowHeight(1)
    view.resize(1600, 240)
    qtbot.waitUntil(lambda: table.rowHeight(1) < before)
    view.filter.setText("short")
    assert table.rowHeight(0) == plain


def test_counts_speak_of_one_and_of_many(qtbot: QtBot) -> None:
    assert log(qtbot, samples.record_of([(0, LogLine(text="a"))])).count.text() == "1 line"
    assert layers(qtbot, samples.record_of([(0, layer("a"))])).count.text() == "1 layer"


def test_columns_fill_the_table_and_stay_as_somebody_set_them(qtbot: QtBot) -> None:
    """Room goes to all columns, so that no table ends in the middle; a head that was moved is left alone."""
    view = layers(qtbot, samples.record_of([(0, layer("dense1")), (0, layer("dense2"))]))
    table, header = view.table, view.table.horizontalHeader()
    assert header.length() == table.viewport().width()
    for column in range(view.model.columnCount()):
        if not table.isColumnHidden(column):
            assert table.columnWidth(column) >= header.fontMetrics().horizontalAdvance(COLUMNS[column]) + 8
    table.setColumnWidth(0, 200)
    view.resize(1100, 400)
    qtbot.waitUntil(lambda: table.viewport().width() > 1000)
    assert table.columnWidth(0) == 200


def test_a_column_that_comes_later_takes_its_part_of_the_width(qtbot: QtBot) -> None:
    view = layers(qtbot, samples.record_of([(0, layer("dense1"))]))
    table, unstable = view.table, COLUMNS.index("Unstable")
    assert table.isColumnHidden(unstable)
    table.setColumnHidden(unstable, False)
    head = table.horizontalHeader()
    qtbot.waitUntil(lambda: table.columnWidth(unstable) > 0 and head.length() == table.viewport().width())


def test_numbers_of_a_column_have_equally_many_digits(qtbot: QtBot) -> None:
    view = layers(qtbot, samples.record_of([(0, layer("a", 2.5)), (0, layer("b", 3.14159))]))
    upper = COLUMNS.index("Upper")
    assert [view.model.index(row, upper).data() for row in range(2)] == ["2.5000", "3.1416"]


def test_selected_lines_are_copied_as_text(qtbot: QtBot) -> None:
    view = log(qtbot, samples.record_of(samples.log_events()))
    view.table.selectRow(4)
    view.copy_selection()
    copied = QGuiApplication.clipboard().text()
    assert copied.endswith("warning  resident memory is within 10 % of its limit")


def test_a_measured_run_has_proof_and_noise_side_by_side_and_no_empty_columns(qtbot: QtBot) -> None:
    record = samples.record_of(sample_noise.finished_events())
    view = layers(qtbot, record, sample_noise.job_info())
    shown = [COLUMNS[k] for k in range(len(COLUMNS)) if not view.table.isColumnHidden(k)]
    assert {"Max width", "Proven rounding", "Observed", "Of proven", "Mean bits", "Digits", "Noise"} <= set(
        shown
    )
    assert not {"Case", "Lower", "Unstable", "Method"} & set(shown)
    (table,) = view.tables()
    rows = {row[1]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    head = rows["/head/Gemm"]
    assert (head["greatest width"], head["proven rounding"], head["mean [bits]"]) == (0.4, 1.9e-5, 17.8)
    assert rows[sample_noise.NAN]["mean [bits]"] is None
    noise = [view.model.index(row, len(COLUMNS) - 1).data() for row in range(view.model.rowCount())]
    assert noise[3:5] == ["NaN", "exact"]


def test_another_run_without_layers_leaves_no_count_behind(qtbot: QtBot) -> None:
    view = layers(qtbot, samples.record_of(samples.layer_events()))
    assert view.count.text() == "7 layers"
    view.set_run(sample_noise.job_info(JobState.RUNNING), JobRecord())
    view.refresh()
    assert view.count.text() == ""
    assert "two samples" in view._empty.text()


def test_the_picked_layer_stays_marked_through_sort_filter_and_growth(qtbot: QtBot) -> None:
    record = samples.record_of(samples.layer_events())
    view = layers(qtbot, record)
    view.table.selectRow(2)
    assert view.selection.layer == view.picked_layer() == "/fc2/Gemm"
    view.table.sortByColumn(6, Qt.SortOrder.DescendingOrder)
    view.filter.setText("relu")
    assert (view.picked_layer(), view.selection.layer) == ("", "/fc2/Gemm")
    view.filter.clear()
    append(record, layer("/late/Gemm"))
    view.mark_dirty()
    view.refresh()
    assert view.picked_layer() == "/fc2/Gemm"
    view.selection.pick("")
    assert view.picked_layer() == ""
