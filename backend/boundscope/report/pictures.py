"""Pictures of a run's views, drawn by the window's own code in a process of its own, without a display."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec

from boundscope.protocol import JobInfo
from boundscope.records import JobRecord
from boundscope.report.events import events_of

RENDER_TIMEOUT_S = 120.0


@dataclass(frozen=True)
class Pictures:
    """PNG files, in the views' order; `left_out` says why there are none, with the remedy, or is empty."""

    paths: tuple[Path, ...]
    left_out: str = ""


def draw(record: JobRecord, info: JobInfo, folder: Path) -> Pictures:
    """One PNG a view in `folder`. Never fails: what cannot be drawn is left out, and said."""
    if find_spec("boundscope_app") is None or find_spec("PySide6") is None:
        return Pictures((), "The pictures need PySide6: pip install 'boundscope[app]'")
    before = {path: path.stat().st_mtime_ns for path in folder.glob("*.png")}
    with tempfile.TemporaryDirectory(prefix="boundscope-") as temporary:
        recorded = Path(temporary) / "record.msgpack"
        recorded.write_bytes(msgspec.msgpack.encode([info, events_of(record, info)]))
        environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
        command = [sys.executable, "-m", "boundscope_app.render", str(recorded), str(folder.absolute())]
        try:
            done = subprocess.run(
                command,
                env=environment,
                capture_output=True,
                text=True,
                errors="replace",
                timeout=RENDER_TIMEOUT_S,
                stdin=subprocess.DEVNULL,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Pictures((), f"The pictures were not drawn within {RENDER_TIMEOUT_S:g} s.")
    drawn = [path for path in folder.glob("*.png") if before.get(path) != path.stat().st_mtime_ns]
    drawn.sort(key=lambda path: path.stat().st_mtime_ns)
    if done.returncode == 0 and drawn:
        return Pictures(tuple(drawn))
    said = (done.stderr.strip() or done.stdout.strip() or f"exit status {done.returncode}").splitlines()[-1]
    return Pictures(
        tuple(drawn), f"Pictures could not be drawn: {said} (`boundscope doctor` says what is missing.)"
    )
