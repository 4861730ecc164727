"""The verdict page: what was found, in which arithmetic, by what, and the counterexample if there is one."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from PySide6.QtCore import QMarginsF, QSizeF, Qt, QUrl
from PySide6.QtGui import (
    QAction,
    QGuiApplication,
    QPageLayout,
    QPageSize,
    QPdfWriter,
    QResizeEvent,
    QTextDocument,
)
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QMenu,
    QProgressBar,
    QTextBrowser,
    QVBoxLayout,
    QWidget,
)

from boundscope.errors import BoundscopeError
from boundscope.protocol import Progress
from boundscope.records import JobRecord, Table, variability_tables
from boundscope_app import theme as themes
from boundscope_app.format import at_most, limit_left_s, to_go
from boundscope_app.theme import Theme
from boundscope_app.views.base import ASPECT, View
from boundscope_app.views.html import document, fill_document
from boundscope_app.views.page import Page, document_page
from boundscope_app.views.paging import keep_together
from boundscope_app.views.text import domains_text, file_stem
from boundscope_app.views.verdict_html import verdict_html
from boundscope_app.views.verdict_text import TWO_COLUMNS_PX, VerdictText, job_state, outcome_of, verdict_text

PDF_WIDTH_PX = 680
ROUNDING_PX = 6


class VerdictView(View):
    """Verdict, margins, counterexample, what was run; progress while it runs, and the cause if it failed."""

    view_id = "verdict"
    title = "Verdict"
    empty_text = (
        "No run is selected.\n\nOpen a network and a property (Ctrl+O, or drop the files on the window) and "
        "press Run, or select a job in the list below."
    )

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._shown: object = None
        self.controls.addStretch(1)
        self._stage = QLabel()
        self._bar = QProgressBar(textVisible=False)
        self._bar.setMaximumHeight(8)
        self._eta = QLabel()
        self._eta.setProperty("role", "muted")
        self._progress = QWidget()
        row = QHBoxLayout(self._progress)
        row.setContentsMargins(12, 4, 12, 4)
        row.addWidget(self._stage)
        row.addWidget(self._bar, 1)
        row.addWidget(self._eta)
        self.browser = QTextBrowser(openLinks=False)
        self.browser.setContextMenuPolicy(self.contextMenuPolicy().NoContextMenu)
        self.browser.setFrameShape(self.browser.Shape.NoFrame)
        self.browser.document().setDocumentMargin(16)
        self.browser.setAccessibleName("Verdict page")
        self.browser.document().documentLayout().documentSizeChanged.connect(self._fit_page)
        self.pdf_action = QAction("Export PDF…", self)
        self.pdf_action.triggered.connect(self._pdf_dialog)
        self.html_action = QAction("Export HTML…", self)
        self.html_action.triggered.connect(self._html_dialog)
        self.export_menu.addActions((self.pdf_action, self.html_action))
        self.copy_command_action = QAction("Copy command line", self)
        self.copy_command_action.triggered.connect(self.copy_command)
        content = QWidget()
        layout = QVBoxLayout(content)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._progress)
        layout.addWidget(self.browser, 1)
        self.set_content(content)

    def has_data(self, record: JobRecord) -> bool:
        return True

    def reset(self) -> None:
        self._shown = None
        self.browser.verticalScrollBar().setValue(0)

    def theme_changed(self) -> None:
        self._shown = None

    def draw(self) -> None:
        record = self.record
        assert record is not None
        self._draw_progress(record)
        key = (
            self.info,
            record.result,
            record.variability,
            record.benchmark,
            record.property,
            record.network,
            len(record.failures),
            record.state,
            record.state_reason,
            self.browser.width() >= TWO_COLUMNS_PX,
        )
        if self._shown is not None and key == self._shown:
            return
        self._shown = key
        bar = self.browser.verticalScrollBar()
        place = bar.value()
        theme = themes.current()
        text = verdict_text(self.info, record, theme, with_progress=False, width=self.browser.width())
        _add_images(self.browser.document(), text)
        fill_document(self.browser.document(), text.markup, theme)
        bar.setValue(place)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self.mark_dirty()

    def _fit_page(self, size: QSizeF) -> None:
        """No bar for a page that is wider than its window only because Qt rounds the widths of cells."""
        beyond = size.width() - self.browser.viewport().width()
        rounded = 0 < beyond <= ROUNDING_PX
        policy = Qt.ScrollBarPolicy
        wanted = policy.ScrollBarAlwaysOff if rounded else policy.ScrollBarAsNeeded
        if self.browser.horizontalScrollBarPolicy() is not wanted:
            self.browser.setHorizontalScrollBarPolicy(wanted)

    def _draw_progress(self, record: JobRecord) -> None:
        progress = record.progress
        running = outcome_of(record) is None and not job_state(self.info, record).ended
        self._progress.setVisible(running)
        if not running:
            return
        held = job_state(self.info, record).held
        stage = "Waiting for the first step" if progress is None else progress.stage
        if progress is not None and progress.open is not None:
            stage = f"{stage}: {domains_text(progress.done, progress.open)}"
        self._stage.setText(f"Paused: {stage}" if held else stage)
        total = 0 if progress is None else progress.total
        self._bar.setRange(0, 1 if held and not total else total)  # 0 … 0 would go on moving
        if progress is not None and total:
            self._bar.setValue(progress.done)
        self._eta.setText("" if held else self._rest(progress))

    def _rest(self, progress: Progress | None) -> str:
        """The time to go as it is reckoned, else what the time limit leaves."""
        if progress is not None and progress.eta_s is not None:
            return to_go(progress.eta_s)
        left_s = None if self.info is None else limit_left_s(self.info, time.time())
        return "" if left_s is None else f"{at_most(left_s)} to go"

    def copy_command(self) -> None:
        """Put the command line that reproduces the run on the clipboard."""
        outcome = None if self.record is None else outcome_of(self.record)
        if outcome is not None:
            QGuiApplication.clipboard().setText(outcome.command)

    def export_pdf(self, path: Path | str) -> None:
        """Write the page as A4 PDF with selectable text; raises BoundscopeError where it cannot be written."""
        assert self.record is not None
        target = Path(path)
        if not target.parent.is_dir():
            raise BoundscopeError(f"cannot write {target}: there is no folder {target.parent}")
        writer = QPdfWriter(str(target))
        writer.setPageSize(QPageSize(QPageSize.PageSizeId.A4))
        writer.setPageMargins(QMarginsF(15, 15, 15, 15), QPageLayout.Unit.Millimeter)
        writer.setResolution(96)
        writer.setTitle(f"{self.title}: {self.caption}")
        paper = self._paper(themes.LIGHT, PDF_WIDTH_PX)
        paper.setPageSize(writer.pageLayout().paintRectPixels(96).size().toSizeF())
        keep_together(paper)
        paper.print_(writer)
        if not target.is_file() or target.stat().st_size == 0:
            raise BoundscopeError(f"cannot write {target}: check that the file can be written")

    def export_html(self, path: Path | str) -> None:
        """Write the page as one HTML file that needs no other; raises BoundscopeError where it cannot be written."""
        assert self.record is not None
        target = Path(path)
        title = f"{self.title}: {self.caption}"
        text = verdict_html(self.info, self.record, themes.LIGHT, title, self.caption)
        try:
            target.write_text(text, encoding="utf-8")
        except OSError as error:
            raise BoundscopeError(f"cannot write {target}: {error.strerror}") from error

    def further_files(self) -> tuple[tuple[str, Callable[[Path], None]], ...]:
        return (("verdict.pdf", self.export_pdf), ("verdict.html", self.export_html))

    def _paper(self, theme: Theme, width: int) -> QTextDocument:
        """The whole page as a document of its own."""
        assert self.record is not None
        text = verdict_text(self.info, self.record, theme, with_progress=True, width=width)
        paper = document("", theme)
        _add_images(paper, text)
        fill_document(paper, text.markup, theme)
        return paper

    def _pdf_dialog(self) -> None:
        name = f"{file_stem(self.info)}_{self.view_id}.pdf"
        path, _ = QFileDialog.getSaveFileName(self, "Export the verdict as PDF", name, "PDF (*.pdf)")
        if path:
            self.tell(lambda: self.export_pdf(path))

    def _html_dialog(self) -> None:
        name = f"{file_stem(self.info)}_{self.view_id}.html"
        path, _ = QFileDialog.getSaveFileName(self, "Export the verdict as HTML", name, "HTML (*.html)")
        if path:
            self.tell(lambda: self.export_html(path))

    def extend_menu(self, menu: QMenu) -> None:
        copy = menu.addAction("Copy selected text", self.browser.copy)
        copy.setEnabled(self.browser.textCursor().hasSelection())
        outcome = None if self.record is None else outcome_of(self.record)
        self.copy_command_action.setEnabled(outcome is not None and bool(outcome.command))
        menu.addAction(self.copy_command_action)
        menu.addActions((self.pdf_action, self.html_action))
        menu.addSeparator()

    def tables(self) -> tuple[Table, ...]:
        """Margins and the counterexample's inputs and outputs; of a run that measured, what it found."""
        if self.record is None:
            return ()
        if self.record.instances or self.record.benchmark is not None:
            return (self.record.instance_table(),)
        if self.record.variability is not None:
            return variability_tables(self.record.variability)
        return (self.record.margin_table(), *self.record.counterexample_tables())

    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        return document_page(self._paper(theme, width), width, height or round(width * ASPECT), theme.base)


def _add_images(target: QTextDocument, text: VerdictText) -> None:
    for name, image in text.images.items():
        target.addResource(QTextDocument.ResourceType.ImageResource, QUrl(name), image)
