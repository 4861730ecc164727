"""Pictures of a recorded job without a display, from a process that never imports torch; errors are sentences."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from PySide6.QtGui import QImage

from app.views import sample_records as samples
from app.window_support import LIMIT_S
from boundscope.protocol import Verdict
from boundscope_app import render, theme


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    events = samples.records(samples.finished_events(Verdict.VIOLATED))
    path = tmp_path / "job.msgpack"
    path.write_bytes(msgspec.msgpack.encode([samples.job_info(ranks=4), events]))
    return path


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    environment = {
        k: v for k, v in os.environ.items() if k not in ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    }
    command = [sys.executable, "-m", "boundscope_app.render", *map(str, arguments)]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )


def test_a_picture_of_every_view_without_a_display(recorded: Path, tmp_path: Path) -> None:
    done = run(recorded, tmp_path / "pictures", "--theme", "dark")
    assert (done.returncode, done.stderr) == (0, "")
    names = ["verdict.png", "bound_gap.png", "memory.png", "layers.png", "graph.png", "log.png"]
    assert [Path(line).name for line in done.stdout.splitlines()] == names
    for name in names:
        image = QImage(str(tmp_path / "pictures" / name))
        assert image.width() == 1600
        assert image.height() >= 900
        assert image.pixelColor(1, 1).name() == theme.DARK.base
    assert QImage(str(tmp_path / "pictures" / "bound_gap.png")).height() == 900


def test_scale_gives_more_pixels(recorded: Path, tmp_path: Path) -> None:
    written = render.render(recorded, tmp_path / "twice", "light", 2.0)
    image = QImage(str(next(path for path in written if path.name == "memory.png")))
    assert (image.width(), image.height()) == (3200, 1800)


def test_views_with_nothing_to_show_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "job.msgpack"
    events = samples.records(samples.failed_events())
    path.write_bytes(msgspec.msgpack.encode([samples.job_info(), events]))
    written = render.render(path, tmp_path / "pictures", "light", 1.0)
    assert [each.name for each in written] == ["verdict.png", "graph.png"]


def test_errors_are_one_sentence_and_status_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken.msgpack"
    broken.write_bytes(b"\xc1 not msgpack")
    (tmp_path / "file").write_text("in the way")
    for record, expected in ((tmp_path / "none.msgpack", "cannot read"), (broken, "is not a recorded job")):
        assert render.main([str(record), str(tmp_path / "out")]) == 1
        said = capsys.readouterr().err
        assert expected in said
        assert said.startswith("error: ")
        assert said.count("\n") == 1


def test_a_folder_that_cannot_be_made_is_a_sentence(
    recorded: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").write_text("in the way")
    assert render.main([str(recorded), str(tmp_path / "file" / "pictures")]) == 1
    assert "cannot make the folder" in capsys.readouterr().err


def test_the_views_never_import_torch() -> None:
    code = "import sys, boundscope_app.views, boundscope_app.render; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], timeout=LIMIT_S, check=False).returncode == 0
