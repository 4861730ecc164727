"""What every view has: the run that it shows, an empty state, and the ways out (PNG, SVG, CSV, clipboard)."""

from __future__ import annotations

import io
from abc import abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QContextMenuEvent, QGuiApplication
from PySide6.QtWidgets import (
    QFileDialog,
    QHBoxLayout,
    QLabel,
    QMenu,
    QMessageBox,
    QStackedWidget,
    QToolButton,
    QVBoxLayout,
    QWidget,
)

from boundscope.comparison import Run
from boundscope.errors import BoundscopeError
from boundscope.protocol import InstancesJob, JobInfo, VariabilityJob
from boundscope.records import JobRecord, Table
from boundscope_app import theme as themes
from boundscope_app.plots.cursor import TimeCursor
from boundscope_app.selection import LayerSelection
from boundscope_app.theme import Theme
from boundscope_app.views.export_dialog import ExportDialog
from boundscope_app.views.page import Page, page_image, write_png, write_svg
from boundscope_app.views.text import file_stem, run_caption

PAGE_WIDTH = 1600
ASPECT = 9 / 16
BENCHMARK_TEXT = (
    "This run is a whole benchmark; what it found of each instance is in the Instances view.\n\nTo see more of one, "
    "run its network and property alone."
)


class View(QWidget):
    """A view of one run. The window calls `refresh` when `dirty` and visible; records are live and grow.

    Subclasses give `view_id`, `title` and `empty_text`, fill `self.controls` and `set_content`, and implement
    `has_data`, `tables`, `page` and `draw`.
    """

    view_id: ClassVar[str]
    title: ClassVar[str]
    empty_text: ClassVar[str]
    noise_text: ClassVar[str] = ""  # the empty state beside a run that measures noise, where it has its own
    bar_stays: ClassVar[bool] = False  # whether the bar has something to do also where there are no data

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.info: JobInfo | None = None
        self.record: JobRecord | None = None
        self._dirty = True
        self.setAccessibleName(self.title)
        self.controls = QHBoxLayout()
        self.controls.setContentsMargins(0, 0, 0, 0)
        self._make_actions()
        self._tools = QWidget()
        bar = QHBoxLayout(self._tools)
        bar.setContentsMargins(6, 4, 6, 4)
        bar.setSpacing(6)
        self.controls.setSpacing(8)
        bar.addLayout(self.controls, 1)
        self.copy_menu, self.export_menu = QMenu(self), QMenu(self)
        self.copy_menu.addActions((self.copy_data_action, self.copy_image_action))
        self.export_menu.addActions((self.png_action, self.svg_action, self.csv_action))
        bar.addWidget(self._menu_button("Copy", self.copy_menu))
        bar.addWidget(self._menu_button("Export", self.export_menu))
        self._empty = QLabel(alignment=Qt.AlignmentFlag.AlignCenter, wordWrap=True)
        self._empty.setProperty("role", "muted")
        self._empty.setMargin(24)
        self._stack = QStackedWidget()
        self._stack.addWidget(self._empty)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._tools)
        layout.addWidget(self._stack, 1)
        themes.notifier.changed.connect(self._theme_changed)
        self._show_state()

    def _make_actions(self) -> None:
        def action(text: str, slot: Callable[[], object]) -> QAction:
            result = QAction(text, self)
            result.triggered.connect(slot)
            return result

        self.copy_data_action = action("Copy data", self.copy_data)
        self.copy_image_action = action("Copy image", self.copy_image)
        self.png_action = action("Export PNG…", lambda: self._export_dialog("png"))
        self.svg_action = action("Export SVG…", lambda: self._export_dialog("svg"))
        self.csv_action = action("Export CSV…", self._csv_dialog)

    def _menu_button(self, text: str, menu: QMenu) -> QToolButton:
        button = QToolButton(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        button.setText(f"{text} \u25be")
        button.setStyleSheet("QToolButton::menu-indicator { image: none; }")
        button.setAccessibleName(f"{text} {self.title}")
        button.setToolTip(f"{text} the picture or the data of this view")
        button.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        button.setMenu(menu)
        return button

    def set_content(self, content: QWidget) -> None:
        """Give the widget that shows the data; once, from the subclass's constructor."""
        self._stack.addWidget(content)

    # ------------------------------------------------------------ the run

    def set_run(self, info: JobInfo | None, record: JobRecord | None) -> None:
        """Show this run (None: no run). The same record with newer info keeps zoom, filters and pins."""
        changed = record is not self.record
        self.info, self.record = info, record
        if changed:
            self.reset()
        self.mark_dirty()

    def set_time_cursor(self, cursor: TimeCursor) -> None:
        """Share the cursor with other time plots; views without a time axis have nothing to share."""

    def set_selection(self, selection: LayerSelection) -> None:
        """Share the picked layer with other views; views without layers have nothing to share."""

    def set_runs(self, runs: tuple[Run, ...]) -> None:
        """Show these runs beside one another; views of one run have nothing to compare."""

    def mark_dirty(self) -> None:
        self._dirty = True

    @property
    def dirty(self) -> bool:
        """Whether `refresh` has something to draw."""
        return self._dirty

    def refresh(self) -> None:
        """Draw what changed since the last time."""
        if self._dirty:
            self._dirty = False
            if self._show_state():
                self.draw()

    def _show_state(self) -> bool:
        shows_data = self.record is not None and self.has_data(self.record)
        if not shows_data:
            text = self.empty_text if self.record is None else self.waiting_text()
            if self._empty.text() != text:
                self._empty.setText(text)
        self._stack.setCurrentIndex(1 if shows_data and self._stack.count() > 1 else 0)
        self._tools.setVisible(shows_data or self.bar_stays)
        for each in (
            self.copy_data_action,
            self.copy_image_action,
            self.png_action,
            self.svg_action,
            self.csv_action,
        ):
            each.setEnabled(shows_data)
        return shows_data

    def _theme_changed(self) -> None:
        self.theme_changed()
        self.mark_dirty()
        if self.isVisible():
            self.refresh()

    # ------------------------------------------------------------ what subclasses give

    @abstractmethod
    def has_data(self, record: JobRecord) -> bool:
        """Whether there is anything to show; otherwise the empty state is shown."""

    @abstractmethod
    def draw(self) -> None:
        """Draw what changed; only called with a record that has data."""

    @abstractmethod
    def tables(self) -> tuple[Table, ...]:
        """Exactly the data shown."""

    @abstractmethod
    def page(self, width: int, height: int | None, theme: Theme, scale: float) -> Page:
        """The view at full quality; height None lets the view choose."""

    def further_files(self) -> tuple[tuple[str, Callable[[Path], None]], ...]:
        """Files beside picture and tables that an export of everything writes: name, and what writes it."""
        return ()

    def suits(self, info: JobInfo | None) -> bool:
        """Whether there is a tab of this view for such a run."""
        return True

    def waiting_text(self) -> str:
        """What is said when there is a run but nothing to show yet."""
        if self.shows_benchmark:
            return BENCHMARK_TEXT
        return self.noise_text if self.noise_text and self.shows_variability else self.empty_text

    @property
    def shows_benchmark(self) -> bool:
        """Whether the run is a whole benchmark."""
        return self.info is not None and isinstance(self.info.job, InstancesJob)

    @property
    def shows_variability(self) -> bool:
        """Whether the run measures noise instead of proving something."""
        return self.info is not None and isinstance(self.info.job, VariabilityJob)

    def reset(self) -> None:
        """Forget zoom, pins and caches: another record is shown from now on."""

    def theme_changed(self) -> None:
        """Take colours from the current theme."""

    # ------------------------------------------------------------ ways out

    @property
    def caption(self) -> str:
        """One line that says which run an exported picture shows."""
        return run_caption(self.info, self.record)

    def export_png(
        self,
        path: Path | str,
        *,
        width_px: int = PAGE_WIDTH,
        height_px: int | None = None,
        scale: float = 1.0,
        theme: Theme | None = None,
    ) -> None:
        """Write a PNG that is round(width_px·scale) pixels wide, redrawn at full quality.

        Plots are 16:9 unless a height is given; pages of text are at least that, and as high as they need.
        Raises BoundscopeError where the picture cannot be made or written.
        """
        write_png(self.page(width_px, height_px, theme or themes.current(), scale), Path(path), scale)

    def export_svg(
        self,
        path: Path | str,
        *,
        width_px: int = PAGE_WIDTH,
        height_px: int | None = None,
        theme: Theme | None = None,
    ) -> None:
        """Write an SVG with every point as a vector; raises BoundscopeError where it cannot be written."""
        title = f"{self.title}: {self.caption}"
        write_svg(self.page(width_px, height_px, theme or themes.current(), 1.0), Path(path), title)

    def export_csv(self, path: Path | str) -> tuple[Path, ...]:
        """Write each table as CSV; the first at `path`, others beside it with the table's name appended."""
        first = Path(path)
        written = []
        for index, table in enumerate(self.tables()):
            target = first if index == 0 else first.with_name(f"{first.stem}_{table.name}{first.suffix}")
            try:
                target.write_text(table.to_csv(), encoding="utf-8", newline="")
            except OSError as error:
                raise BoundscopeError(f"cannot write {target}: {error.strerror}") from error
            written.append(target)
        return tuple(written)

    def copy_image(self) -> None:
        """Put the picture on the clipboard, at 1600 pixels width."""
        QGuiApplication.clipboard().setImage(
            page_image(self.page(PAGE_WIDTH, None, themes.current(), 1.0), 1.0)
        )

    def copy_data(self) -> None:
        """Put the tables on the clipboard as tab-separated text, one blank line between them."""
        QGuiApplication.clipboard().setText(tables_text(self.tables()))

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        menu = QMenu(self)
        self.extend_menu(menu)
        menu.addActions((self.copy_data_action, self.copy_image_action))
        menu.addSeparator()
        menu.addActions((self.png_action, self.svg_action, self.csv_action))
        menu.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        menu.popup(event.globalPos())

    def extend_menu(self, menu: QMenu) -> None:
        """Add the view's own entries on top of the context menu."""

    def _export_dialog(self, kind: str) -> None:
        dialog = ExportDialog(kind, f"{file_stem(self.info)}_{self.view_id}", self)
        if dialog.exec():
            choice = dialog.choice()
            if kind == "png":
                self.tell(
                    lambda: self.export_png(
                        choice.path, width_px=choice.width_px, scale=choice.scale, theme=choice.theme
                    )
                )
            else:
                self.tell(lambda: self.export_svg(choice.path, width_px=choice.width_px, theme=choice.theme))
        dialog.deleteLater()

    def _csv_dialog(self) -> None:
        name = f"{file_stem(self.info)}_{self.view_id}.csv"
        path, _ = QFileDialog.getSaveFileName(self, f"Export {self.title} as CSV", name, "CSV (*.csv)")
        if path:
            self.tell(lambda: self.export_csv(path))

    def tell(self, work: Callable[[], object]) -> None:
        """Do the work; where it fails, say why."""
        try:
            work()
        except BoundscopeError as error:
            QMessageBox.warning(self, f"Export {self.title}", str(error))


def tables_text(tables: tuple[Table, ...]) -> str:
    """Tables as tab-separated text that a spreadsheet takes when pasted."""
    buffer = io.StringIO()
    for index, table in enumerate(tables):
        if index:
            buffer.write("\n")
        buffer.write("\t".join(table.columns) + "\n")
        for row in table.rows:
            cells = (
                "" if cell is None else repr(cell) if isinstance(cell, float) else str(cell) for cell in row
            )
            buffer.write("\t".join(cells) + "\n")
    return buffer.getvalue()
