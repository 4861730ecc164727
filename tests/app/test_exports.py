"""What leaves the window: all of a run in one folder, the same bytes as without a window, pages that stand alone."""

from __future__ import annotations

import base64
import os
import re
import shutil
import subprocess
import sys
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from app.test_session import run_example, wait_ended
from app.window_support import APP_PATHS, LIMIT_S
from boundscope_app import export
from boundscope_app.export import Exporter, ExportProgress
from boundscope_app.window import MainWindow

PNG = b"\x89PNG\r\n\x1a\n"


_runs: dict[Path, str] = {}  # by home; a daemon keeps them


@pytest.fixture
def fooled(window: MainWindow, qtbot: QtBot, shared_home: Path) -> str:
    """A run that has found a counterexample, selected and with all that it said; made once for all tests."""
    job_id = _runs.get(shared_home, "")
    if job_id in window.runs.ids:
        window.runs.select(job_id)
    else:
        job_id = _runs[shared_home] = run_example(qtbot, window, "digits-fooled")
    wait_ended(qtbot, window, job_id)
    return job_id


def boundscope(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "boundscope", *map(str, words)],
        env={**os.environ, "PYTHONPATH": APP_PATHS},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )


def test_every_csv_is_the_same_to_the_byte_with_and_without_a_window(
    window: MainWindow, qtbot: QtBot, shared_home: Path, tmp_path: Path, fooled: str
) -> None:
    """The window's tables have the names that the command line's have, and not one byte differs."""
    window.commands.export_to(tmp_path / "window")
    done = boundscope("export", fooled, "--home", shared_home, "--all", tmp_path / "line")
    assert (done.returncode, done.stderr) == (0, "")
    ours = {path.name: path.read_bytes() for path in (tmp_path / "window").glob("*.csv")}
    theirs = {path.name: path.read_bytes() for path in (tmp_path / "line").glob("*.csv")}
    assert ours == theirs
    assert {"margins.csv", "layers.csv", "counterexample_inputs.csv"} <= ours.keys()


def test_export_all_goes_piece_by_piece_with_progress_and_writes_the_same_files(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, fooled: str
) -> None:
    window.commands.export_to(tmp_path / "at_once")
    told: list[ExportProgress] = []
    exporter = Exporter(window.tabs.views, tmp_path / "pieces")
    exporter.progressed.connect(told.append)
    with qtbot.waitSignal(exporter.finished) as finished:
        exporter.start()
    (result,) = finished.args
    assert result.problems == ()
    assert {path.name for path in result.files} == {path.name for path in (tmp_path / "at_once").iterdir()}
    for path in result.files:
        if path.suffix == ".csv":
            assert path.read_bytes() == (tmp_path / "at_once" / path.name).read_bytes()
        if path.suffix == ".png":
            assert path.read_bytes().startswith(PNG)
    told = [each for each in told if each.total]
    assert [each.done for each in told] == list(range(len(result.files)))
    assert told[0].eta_s is None
    assert all(each.eta_s is not None and each.total == len(result.files) for each in told[1:])


def test_the_menu_shows_the_work_below_and_cancel_ends_it(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, fooled: str
) -> None:
    window.commands.begin_export(tmp_path / "out")
    qtbot.waitUntil(window.work.isVisible)
    assert "Export to out" in window.work.text.text()
    window.work.button.click()
    qtbot.waitUntil(lambda: not window.work.works)
    assert "were not written" in window.messages.messages[0].text + window.messages.messages[-1].text
    window.commands.begin_export(tmp_path / "out")
    qtbot.waitUntil(lambda: any("written to" in text for text in window.messages.texts))
    assert (tmp_path / "out" / "verdict.png").exists()


def test_closing_in_the_middle_of_an_export_leaves_no_thread(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, fooled: str
) -> None:
    window.commands.begin_export(tmp_path / "out")
    qtbot.waitUntil(window.work.isVisible)
    window.close()


def test_a_folder_that_cannot_be_made_is_one_sentence(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, fooled: str
) -> None:
    (tmp_path / "file").write_text("")
    window.commands.begin_export(tmp_path / "file" / "out")
    assert any("cannot be made" in text for text in window.messages.texts)
    assert export.export_all(window.tabs.views, tmp_path / "file" / "out").files == ()


class References(HTMLParser):
    """Every address that a page names, in attributes and styles."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.tags: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "srcset", "data", "action", "poster", "background"):
                self.found.append(value or "")
            if name == "style" and "url(" in (value or ""):
                self.found.append(value or "")

    def handle_data(self, data: str) -> None:
        assert "url(" not in data
        assert "@import" not in data


def test_the_verdict_as_html_stands_alone_with_the_counterexample_inside(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, fooled: str
) -> None:
    """No reference leads out of the file, and the picture in it is a whole PNG."""
    view = window.tabs.views[0]
    path = tmp_path / "verdict.html"
    view.export_html(path)  # type: ignore[attr-defined]
    text = path.read_text(encoding="utf-8")
    page = References()
    page.feed(text)
    assert page.found, "the counterexample's picture is missing"
    assert all(each.startswith(("data:", "#")) for each in page.found)
    assert not {"script", "link", "iframe", "object", "embed"} & set(page.tags)
    kind, _, encoded = page.found[0].partition(";base64,")
    image = QImage.fromData(base64.b64decode(encoded))
    assert (kind, image.isNull(), image.width() >= 64) == ("data:image/png", False, True)
    record = window.runs.record(fooled)
    assert record.result is not None
    assert record.result.counterexample is not None
    assert "Violated" in text
    assert record.result.command in unescape(text)


@pytest.mark.skipif(shutil.which("pdftotext") is None, reason="pdftotext (poppler-utils) is not installed")
def test_the_verdict_as_pdf_has_selectable_text_and_no_page_that_is_cut(
    window: MainWindow, qtbot: QtBot, tmp_path: Path, fooled: str
) -> None:
    """All words of the page are in the PDF as text, and all lie within their A4 page."""
    view = window.tabs.views[0]
    path = tmp_path / "verdict.pdf"
    view.export_pdf(path)  # type: ignore[attr-defined]
    subprocess.run(["pdftotext", "-bbox", path, tmp_path / "words.html"], check=True, timeout=LIMIT_S)
    text = (tmp_path / "words.html").read_text(encoding="utf-8")
    pages = re.findall(r'<page width="([\d.]+)" height="([\d.]+)">(.*?)</page>', text, re.DOTALL)
    assert len(pages) >= 1
    words = []
    for width, height, content in pages:
        assert (round(float(width)), round(float(height))) == (595, 842)
        for *box, word in re.findall(
            r'<word xMin="([\d.-]+)" yMin="([\d.-]+)" xMax="([\d.-]+)" yMax="([\d.-]+)">([^<]*)<', content
        ):
            left, top, right, bottom = map(float, box)
            assert 0 < left < right < 595, word
            assert 0 < top < bottom < 842, word
            words.append(unescape(word))
    shown = " ".join(words)
    assert "Violated" in shown
    assert "The same from the command line" in shown
    record = window.runs.record(fooled)
    assert record.result is not None
    assert record.result.command.split()[0] in words
