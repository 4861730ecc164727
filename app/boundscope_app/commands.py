"""What the window's menus do with files and with the selected run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QDockWidget, QFileDialog, QWidget

from boundscope.comparison import LEAST_RUNS, MOST_RUNS
from boundscope.protocol import InstancesJob, Sharding, VariabilityJob, VerifyJob
from boundscope_app import export, files
from boundscope_app.benchmark_draft import benchmark_draft_of
from boundscope_app.draft import draft_of
from boundscope_app.format import count
from boundscope_app.noise_draft import noise_draft_of
from boundscope_app.views.text import file_stem

if TYPE_CHECKING:
    from boundscope_app.window import MainWindow


class Commands:
    """Open, copy, use again, delete, export: each asks what it must and tells what came of it."""

    def __init__(self, window: MainWindow) -> None:
        self._window = window
        self._exporter: export.Exporter | None = None

    def open(self) -> None:
        names, _ = QFileDialog.getOpenFileNames(
            self._window,
            "Open networks, properties or inputs",
            self._window.settings.last_folder,
            ";;".join(
                (
                    files.ALL_FILTER,
                    files.NETWORK_FILTER,
                    files.PROPERTY_FILTER,
                    files.CENTER_FILTER,
                    files.INSTANCES_FILTER,
                )
            ),
        )
        if names:
            self._window.opener.open_paths([Path(name) for name in names])

    def open_folder(self) -> None:
        name = QFileDialog.getExistingDirectory(
            self._window, "Add a folder to the library", self._window.settings.last_folder
        )
        if name:
            self._window.opener.open_paths([Path(name)])

    def copy_command(self) -> None:
        draft = self._window.form.draft
        if draft.complete:
            QGuiApplication.clipboard().setText(draft.command())
            self._window.tell("success", f"Copied: {draft.command()}")

    def use_again(self) -> None:
        info = self._window.runs.selected_info
        if info is not None and isinstance(info.job, VerifyJob):
            self._window.form.set_draft(draft_of(info.job))
            go_to(self._window.form, self._window.form.run_button)
        elif info is not None and isinstance(info.job, VariabilityJob):
            self._window.form.set_draft(noise_draft_of(info.job))
            go_to(self._window.form, self._window.form.run_button)
        elif info is not None and isinstance(info.job, InstancesJob):
            self._window.form.set_draft(benchmark_draft_of(info.job))
            go_to(self._window.form, self._window.form.run_button)

    def compare(self) -> None:
        """Put the runs that are marked in the Jobs table side by side, or say how to mark them."""
        window, picked = self._window, self._window.jobs.marked
        if not LEAST_RUNS <= len(picked) <= MOST_RUNS:
            window.tell(
                "info",
                f"Tick the boxes of {LEAST_RUNS} to {MOST_RUNS} runs in the Jobs table, or press Space on each, then "
                f"compare them. Ticked now: {len(picked)}.",
            )
            go_to(window.jobs, window.jobs.table)
            return
        window.compare(picked)

    def compare_with_fsdp(self) -> None:
        """Fill the form with the selected run's job under FSDP; the two are compared as soon as it runs."""
        window, info = self._window, self._window.runs.selected_info
        if info is None or not isinstance(info.job, VerifyJob):
            return
        draft = draft_of(info.job)
        options = replace(draft.options, sharding=Sharding.FSDP, ranks=max(2, info.job.ranks))
        window.form.set_draft(replace(draft, options=options))
        window.compare_next_with = info.id
        window.tell(
            "info", "The form holds the same job with its weights sharded (FSDP). Run it to compare the two."
        )
        go_to(window.form, window.form.run_button)

    def ask_delete(self) -> None:
        info = self._window.runs.selected_info
        if info is None:
            return
        if not info.state.ended:
            self._window.tell("warning", f"{info.title} still runs: cancel it before it is deleted.")
            return
        text = f"Delete {info.title} and its whole history? This cannot be undone."
        delete = ("Delete", lambda: self._window.session.delete(info.id))
        self._window.messages.show_message("warning", text, delete, ("Keep", lambda: None))

    def export_all(self) -> None:
        info = self._window.runs.selected_info
        if info is None:
            return
        name = QFileDialog.getExistingDirectory(
            self._window, "Export into a folder", self._window.settings.last_folder
        )
        if name:
            self.begin_export(Path(name) / f"{file_stem(info)}_{info.id[:8]}")

    def begin_export(self, folder: Path) -> None:
        """Write all plots and tables of the selected run while the window goes on, with progress and Cancel."""
        window = self._window
        if self._exporter is not None:
            window.tell("info", "An export is under way; it is shown below.")
            return
        exporter = self._exporter = export.Exporter(window.tabs.all_views, folder, window)
        name = f"Export to {folder.name}"

        def show(progress: export.ExportProgress) -> None:
            window.work.show_work(
                name, progress.name, progress.done, progress.total, progress.eta_s, exporter.cancel
            )

        def end(exported: export.Exported) -> None:
            self._exporter = None
            window.work.end_work(name)
            self._tell_exported(exported, folder)
            exporter.deleteLater()

        exporter.progressed.connect(show)
        exporter.finished.connect(end)
        exporter.start()

    @property
    def exporting(self) -> bool:
        """Whether an export is under way."""
        return self._exporter is not None

    def end_export(self) -> None:
        """The window closes."""
        if self._exporter is not None:
            self._exporter.abandon()
            self._exporter = None

    def export_to(self, folder: Path) -> None:
        """The same, before returning: for whoever scripts the window."""
        QApplication.setOverrideCursor(Qt.CursorShape.WaitCursor)
        try:
            exported = export.export_all(self._window.tabs.all_views, folder)
        finally:
            QApplication.restoreOverrideCursor()
        self._tell_exported(exported, folder)

    def _tell_exported(self, exported: export.Exported, folder: Path) -> None:
        if exported.problems:
            self._window.tell("error", "\n".join(exported.problems))
        if exported.files:
            self._window.tell("success", f"{count(len(exported.files), 'file')} written to {folder}")
        elif not exported.problems:
            self._window.tell("info", "This run has nothing to export yet.")


def go_to(dock: QDockWidget, widget: QWidget) -> None:
    """Show a dock and put the keyboard focus on a widget in it."""
    dock.show()
    dock.raise_()
    widget.setFocus(Qt.FocusReason.ShortcutFocusReason)
