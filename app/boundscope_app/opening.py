"""Files that come in, by drop, dialog, library or command line: where they go, or why they cannot be used."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from PySide6.QtCore import QObject, Signal

from boundscope_app import files
from boundscope_app.docks.form import FormDock
from boundscope_app.docks.library import LibraryDock
from boundscope_app.draft import Draft
from boundscope_app.examples import Example
from boundscope_app.format import count
from boundscope_app.settings import Settings

MOST_PROBLEMS_SHOWN = 3


class Opener(QObject):
    """Signals: `told` (kind, sentence) and `opened` when something of use came in."""

    told = Signal(str, str)
    opened = Signal()

    def __init__(self, library: LibraryDock, form: FormDock, settings: Settings, parent: QObject) -> None:
        super().__init__(parent)
        self._library = library
        self._form = form
        self._settings = settings
        library.file_chosen.connect(self.use_file)
        library.example_chosen.connect(self.use_example)

    def open_paths(self, paths: Iterable[Path]) -> None:
        """Take files and folders: all go to the library, what is unambiguous into the form."""
        given = tuple(paths)
        images = files.image_folder(given) if self._form.measures else None
        if images is not None:
            self._library.add(files.images_of(images))
            self._form.set_points(images)
            self.opened.emit()
            return
        found = files.examine(given)
        self._tell_problems(found.problems)
        if found.empty:
            return
        self._library.add(
            (*found.networks, *found.properties, *found.centers, *found.points, *found.benchmarks)
        )
        left = [
            count(len(group), word, plural)
            for group, word, plural in (
                (found.networks, "network", "networks"),
                (found.properties, "property", "properties"),
                ((*found.centers, *found.points), "input", "inputs"),
                (found.benchmarks, "benchmark", "benchmarks"),
            )
            if len(group) > 1
        ]
        if len(found.benchmarks) == 1:
            self.use_file(found.benchmarks[0])  # which names its networks and properties itself
        else:
            self._use_only_ones(found)
        if left:
            verb = "are" if len(left) > 1 or not left[0].startswith("1 ") else "is"
            self.told.emit("info", f"{' and '.join(left)} {verb} in the library: a double click uses one.")
        self.opened.emit()

    def _use_only_ones(self, found: files.Found) -> None:
        """The network, the property and the input, each where there is one alone."""
        if len(found.networks) == 1:
            self.use_file(found.networks[0])
        if len(found.properties) == 1:
            self.use_file(found.properties[0])
        inputs = (*found.centers, *found.points)
        if len(inputs) == 1 and (self._form.measures or not found.properties):
            self.use_file(inputs[0])

    def use_file(self, path: Path) -> None:
        """Put one file where it belongs in the form."""
        problem = files.problem_with(path)
        if problem is not None:
            self.told.emit("warning", problem)
            return
        match files.kind_of(path):
            case files.Kind.NETWORK:
                self._form.set_network(path)
            case files.Kind.PROPERTY:
                self._form.set_property(path)
            case files.Kind.INSTANCES:
                self._form.set_benchmark(path)
            case files.Kind.CENTER if not self._form.measures:
                self._form.set_center(path)
            case _:
                self._form.set_points(path)
        self._settings.remember(path)
        self._library.set_recent(self._settings.recent)
        self.opened.emit()

    def use_example(self, example: Example) -> None:
        """Fill the form with an example's network and property."""
        if self._form.measures:
            self._form.set_network(example.network)
            self._form.set_property(example.property)
        else:
            options = replace(self._form.choices.options, method=example.method)
            self._form.set_draft(Draft(example.network, example.property, options))
        self.opened.emit()

    def _tell_problems(self, problems: tuple[str, ...]) -> None:
        shown = problems[:MOST_PROBLEMS_SHOWN]
        if len(problems) > len(shown):
            shown += (f"… and {len(problems) - len(shown)} more files that cannot be used.",)
        if shown:
            self.told.emit("warning", "\n".join(shown))
