"""Writes every plot and table of a run into a folder."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from boundscope.errors import BoundscopeError
from boundscope_app.views.base import View


@dataclass(frozen=True)
class Exported:
    """What was written, and a sentence for each thing that could not be."""

    files: tuple[Path, ...]
    problems: tuple[str, ...]


def export_all(views: Iterable[View], folder: Path, *, width_px: int = 1600) -> Exported:
    """PNG, SVG and CSV of every view that has data. One that fails leaves the others."""
    written: list[Path] = []
    problems: list[str] = []

    def attempt(write: Callable[[], object], *paths: Path) -> None:
        try:
            write()
        except (BoundscopeError, OSError) as error:
            problems.append(str(error))
        else:
            written.extend(paths)

    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return Exported((), (f"The folder {folder} cannot be made: {error.strerror}",))
    for view in views:
        if view.record is None or not view.has_data(view.record):
            continue
        view.refresh()
        png, svg = folder / f"{view.view_id}.png", folder / f"{view.view_id}.svg"
        attempt(partial(view.export_png, png, width_px=width_px), png)
        attempt(partial(view.export_svg, svg, width_px=width_px), svg)
        for table in view.tables():
            csv = folder / f"{table.name}.csv"
            attempt(partial(_write_text, csv, table.to_csv()), csv)
    return Exported(tuple(dict.fromkeys(written)), tuple(problems))


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise BoundscopeError(f"cannot write {path}: {error.strerror}") from error
