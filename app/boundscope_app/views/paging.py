"""Where the pages of a printed document end: not below a heading or the head of a table, nor within a row."""

from __future__ import annotations

from collections.abc import Iterator

from PySide6.QtGui import (
    QTextBlock,
    QTextCursor,
    QTextDocument,
    QTextFormat,
    QTextTable,
    QTextTableCellFormat,
)

MOST_BETWEEN = 2  # paragraphs between a heading and the table that they belong to
MOST_SHARE = 0.8  # of a page; a higher row flows on, for it leaves too much of a page empty
TOO_LOW_PX = 12.0  # room in which no line of a row finds place, so that it begins on the next page


def keep_together(document: QTextDocument) -> None:
    """Move to the next page what would be torn: a heading from what it announces, or a row of a table in itself.

    The document has its page size. From the top down, because whatever moves, moves all that follows it.
    """
    block = document.begin()
    while block.isValid():
        table = QTextCursor(block).currentTable()
        if table is not None:
            _keep_rows(document, table)
            block = table.lastCursorPosition().block()
        elif block.blockFormat().headingLevel():
            _keep_heading(document, block)
        block = block.next()
    # Placed anew as a whole: of what was moved bit by bit, Qt forgets to print some.
    document.markContentsDirty(0, document.characterCount())


def pages_of(document: QTextDocument, block: QTextBlock) -> set[int]:
    """The pages that the lines of a block are on, from 0."""
    top, layout = document.documentLayout().blockBoundingRect(block).top(), block.layout()
    tops = [top + layout.lineAt(number).y() for number in range(layout.lineCount())] or [top]
    return {int(each // document.pageSize().height()) for each in tops}


def row_pages(document: QTextDocument, table: QTextTable, row: int) -> set[int]:
    """The pages that a row is on."""
    return {page for block in _row_blocks(table, row) for page in pages_of(document, block)}


def _row_blocks(table: QTextTable, row: int) -> Iterator[QTextBlock]:
    for column in range(table.columns()):
        cell = table.cellAt(row, column)
        block, last = cell.firstCursorPosition().block(), cell.lastCursorPosition().block()
        while block.isValid():
            yield block
            if block == last:
                break
            block = block.next()


def _flows(document: QTextDocument, table: QTextTable, row: int) -> bool:
    """Whether a row is too high to be moved as a whole."""
    layouts = [block.layout() for block in _row_blocks(table, row)]
    heights = [sum(each.lineAt(n).height() for n in range(each.lineCount())) for each in layouts]
    return max(heights, default=0.0) > MOST_SHARE * document.pageSize().height()


def _keep_heading(document: QTextDocument, heading: QTextBlock) -> None:
    if _follower_pages(document, heading) <= pages_of(document, heading):
        return
    before = heading.blockFormat()
    before.setPageBreakPolicy(QTextFormat.PageBreakFlag.PageBreak_AlwaysBefore)
    QTextCursor(heading).setBlockFormat(before)


def _follower_pages(document: QTextDocument, heading: QTextBlock) -> set[int]:
    """The pages of what must stand on the heading's own: the first line of its text, or the first row of its table."""
    found: set[int] = set()
    block = heading.next()
    for _ in range(MOST_BETWEEN + 1):
        while block.isValid() and not block.text() and QTextCursor(block).currentTable() is None:
            block = block.next()
        if not block.isValid() or block.blockFormat().headingLevel():
            break
        table = QTextCursor(block).currentTable()
        if table is not None:
            row = min(_heads(table), table.rows() - 1)
            pages = row_pages(document, table, row)
            return {min(pages)} if _flows(document, table, row) else pages
        found = found or {min(pages_of(document, block))}
        block = block.next()
    return found


def _heads(table: QTextTable) -> int:
    return table.format().toTableFormat().headerRowCount()


def _keep_rows(document: QTextDocument, table: QTextTable) -> None:
    row = _heads(table)
    while row < table.rows():
        cut = len(row_pages(document, table, row)) > 1 and not _flows(document, table, row)
        if cut and _room(document, table, row) > TOO_LOW_PX:
            _fill_page(document, table, row)
            row += 1
        row += 1


def _room(document: QTextDocument, table: QTextTable, row: int) -> float:
    """What is left of the page below the top of a row."""
    layout = document.documentLayout()
    tops = [
        layout.blockBoundingRect(table.cellAt(row, column).firstCursorPosition().block()).top()
        - table.cellAt(row, column).format().toTableCellFormat().topPadding()
        for column in range(table.columns())
    ]
    height = document.pageSize().height()
    return float(height - min(tops) % height)


def _fill_page(document: QTextDocument, table: QTextTable, row: int) -> None:
    """A row of nothing before this one, down to the end of the page: Qt knows no page break within a table."""
    room = _room(document, table, row)
    table.insertRows(row, 1)
    empty = QTextTableCellFormat()
    empty.setTopPadding(room - TOO_LOW_PX)
    empty.setProperty(QTextFormat.Property.FontPixelSize, 1)
    for column in range(table.columns()):
        table.cellAt(row, column).setFormat(empty)
