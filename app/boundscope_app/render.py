"""Draws every view of a recorded job as PNG, without a display.

`python -m boundscope_app.render RECORD.msgpack FOLDER [--theme light|dark] [--scale 1]`, where RECORD.msgpack is
msgpack of `[JobInfo, list[EventRecord]]`. Views that have nothing to show are left out.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec

from boundscope.errors import BoundscopeError
from boundscope.protocol import EventRecord, JobInfo
from boundscope.records import JobRecord

WIDTH_PX = 1600
HEIGHT_PX = 900


def read_recorded(path: Path) -> tuple[JobInfo, JobRecord]:
    """The job and what it said; raises BoundscopeError naming the file."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise BoundscopeError(f"cannot read {path}: {error.strerror}") from error
    try:
        info, events = msgspec.msgpack.decode(data, type=tuple[JobInfo, list[EventRecord]])
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise BoundscopeError(
            f"{path} is not a recorded job (msgpack of [JobInfo, events]): {error}"
        ) from error
    record = JobRecord()
    record.apply_all(events)
    return info, record


def render(recorded: Path, folder: Path, theme_name: str, scale: float) -> tuple[Path, ...]:
    """Write `<view_id>.png` for every view that has something to show; returns the paths written."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    from PySide6.QtWidgets import QApplication

    from boundscope_app import theme as themes
    from boundscope_app.views import VIEWS

    info, record = read_recorded(recorded)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise BoundscopeError(f"cannot make the folder {folder}: {error.strerror}") from error
    app = QApplication.instance() or QApplication([sys.argv[0]])
    assert isinstance(app, QApplication)
    themes.apply(app, themes.THEMES[theme_name])
    written = []
    for view_type in VIEWS:
        view = view_type()
        view.set_run(info, record)
        if view.has_data(record):
            path = folder / f"{view.view_id}.png"
            view.export_png(path, width_px=WIDTH_PX, height_px=HEIGHT_PX, scale=scale)
            written.append(path)
    return tuple(written)


def main(argv: Sequence[str] | None = None) -> int:
    """Exit status 0; 1 with one sentence on standard error where something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m boundscope_app.render", description=__doc__)
    parser.add_argument("record", type=Path, help="recorded job, msgpack of [JobInfo, events]")
    parser.add_argument("folder", type=Path, help="where the pictures go; made where it is missing")
    parser.add_argument("--theme", choices=("light", "dark"), default="light")
    parser.add_argument("--scale", type=float, default=1.0, help="pixels per unit: 2 gives 3200 pixels width")
    options = parser.parse_args(argv)
    if not 0 < options.scale <= 8:
        parser.error(f"--scale {options.scale:g}: give a number above 0 and at most 8")
    try:
        for path in render(options.record, options.folder, options.theme, options.scale):
            print(path)
    except BoundscopeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
