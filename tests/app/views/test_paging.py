"""Pages of the verdict end where a reader turns them gladly: no heading alone at the foot, no row of a table in two."""

from __future__ import annotations

import re
import shutil
import subprocess
from html import unescape
from pathlib import Path

import msgspec
import pytest
from PySide6.QtCore import QSizeF
from PySide6.QtGui import QTextBlock, QTextDocument, QTextTable
from pytestqt.qtbot import QtBot

from app.views import sample_records as samples
from app.window_support import LIMIT_S
from boundscope.protocol import VerifyResult
from boundscope.records import JobRecord
from boundscope_app.theme import LIGHT
from boundscope_app.views import VerdictView
from boundscope_app.views.html import Html, document
from boundscope_app.views.paging import keep_together, pages_of, row_pages

PAGE = QSizeF(680, 1000)


def sections(rows: int) -> QTextDocument:
    """Ten headings with a paragraph and a table of so many rows of one to four lines each."""
    h = Html(LIGHT)
    words = [(f"row {row}", "some words " * (4 + 7 * row % 30)) for row in range(rows)]
    markup = "".join(
        h.heading(f"Heading {number}")
        + h.paragraph("What the table says. " * (number % 4))
        + h.grid(("name", "words"), words, left=frozenset({0, 1}), wide=True)
        for number in range(10)
    )
    made = document(markup, LIGHT)
    made.setPageSize(PAGE)
    return made


def blocks(made: QTextDocument) -> list[QTextBlock]:
    found, block = [], made.begin()
    while block.isValid():
        found.append(block)
        block = block.next()
    return found


def tables(made: QTextDocument) -> list[QTextTable]:
    return [frame for frame in made.rootFrame().childFrames() if isinstance(frame, QTextTable)]


def lone_headings(made: QTextDocument) -> list[str]:
    """Headings that do not have the first row of their table whole on their page; each table here belongs to one."""
    headings = [block for block in blocks(made) if block.blockFormat().headingLevel()]
    assert len(headings) == len(tables(made)) == 10
    return [
        heading.text()
        for heading, table in zip(headings, tables(made), strict=True)
        if row_pages(made, table, 1) != pages_of(made, heading)
    ]


def cut_rows(made: QTextDocument) -> list[tuple[int, int]]:
    """Rows that begin on one page and end on another: the table, and the row in it."""
    return [
        (number, row)
        for number, table in enumerate(tables(made))
        for row in range(table.rows())
        if len(row_pages(made, table, row)) > 1
    ]


def texts(made: QTextDocument) -> list[str]:
    return [block.text() for block in blocks(made) if block.text()]


def test_no_heading_stands_alone_and_no_row_is_cut_however_long_the_tables_are(qtbot: QtBot) -> None:
    loose = cut = 0
    for rows in range(1, 24):
        made = sections(rows)
        loose, cut, before = loose + len(lone_headings(made)), cut + len(cut_rows(made)), texts(made)
        keep_together(made)
        assert (lone_headings(made), cut_rows(made)) == ([], []), rows
        assert texts(made) == before, "no word is lost or added"
    assert loose > 5, "without it, headings would stand alone"
    assert cut > 20, "without it, rows would be cut"


def test_pages_are_used(qtbot: QtBot) -> None:
    """What is moved leaves less than a heading and a row below: no page is given away."""
    for rows in (5, 12, 19):
        before, made = sections(rows), sections(rows)
        keep_together(made)
        assert before.pageCount() <= made.pageCount() <= before.pageCount() + 2


def test_a_row_higher_than_a_page_is_left_to_flow(qtbot: QtBot) -> None:
    h = Html(LIGHT)
    made = document(h.heading("Long") + h.grid(("a",), [("some words " * 3000,)], left=frozenset({0})), LIGHT)
    made.setPageSize(PAGE)
    pages = made.pageCount()
    keep_together(made)
    assert pages > 2
    assert made.pageCount() <= pages + 1


def test_a_table_that_goes_on_has_its_head_again(qtbot: QtBot) -> None:
    made = sections(3)
    assert {table.format().toTableFormat().headerRowCount() for table in tables(made)} == {1}


def test_a_heading_looks_as_it_is_written(qtbot: QtBot) -> None:
    """It is one for screen readers and browsers, and no larger than the markup says."""
    made = document(Html(LIGHT).heading("What was run"), LIGHT)
    block = made.begin()
    assert block.blockFormat().headingLevel() == 2
    assert block.begin().fragment().charFormat().font().pixelSize() == 16


def with_clauses(count: int) -> JobRecord:
    """A finished proof of so many clauses."""
    record = samples.record_of(samples.finished_events())
    assert isinstance(record.result, VerifyResult)
    margin = record.result.margin
    clauses = tuple(msgspec.structs.replace(margin.per_clause[0], clause=number) for number in range(count))
    margin = msgspec.structs.replace(margin, per_clause=clauses)
    record.result = msgspec.structs.replace(record.result, margin=margin)
    return record


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext (poppler-utils) is not installed")
def test_no_page_of_the_pdf_ends_with_a_heading(qtbot: QtBot, tmp_path: Path) -> None:
    view = VerdictView()
    qtbot.addWidget(view)
    headings = {
        "Margin of each clause",
        "What was run",
        "Time and memory",
        "Versions",
        "The property in words",
        "The same from the command line",
    }
    seen = set()
    for count in range(2, 30, 3):
        view.set_run(samples.job_info(), with_clauses(count))
        path = tmp_path / f"{count}.pdf"
        view.export_pdf(path)
        said = subprocess.run(
            ["pdftotext", "-layout", path, "-"], check=True, capture_output=True, timeout=LIMIT_S
        )
        pages = unescape(said.stdout.decode()).split("\f")
        for page in pages:
            lines = [line.strip() for line in page.splitlines() if line.strip()]
            seen |= headings & set(lines)
            assert not lines or lines[-1] not in headings, (count, lines[-3:])
        assert re.search(r"clause\s+" + str(count - 1), " ".join(pages))
    assert len(seen) >= 4, "the headings are found by their words"
