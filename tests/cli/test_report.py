"""A report stands alone, holds exactly the record's tables, and says what was left out."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from boundscope.protocol import (
    Branching,
    ClauseMargin,
    ClauseRow,
    Counterexample,
    Event,
    EventRecord,
    FileRef,
    GapPoint,
    InputRow,
    JobInfo,
    JobState,
    LayerBounds,
    LogLine,
    Margin,
    MemorySample,
    PropertyFile,
    PropertySummary,
    RankMemory,
    Replay,
    SearchPoint,
    SearchSummary,
    Seconds,
    StateChanged,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.records import JobRecord
from boundscope.report import make_report, pictures
from boundscope.report.events import events_of
from boundscope.report.page import page

NASTY = "<script>alert('1')</script> & \"ε\""


def file(name: str) -> FileRef:
    return FileRef(name=name, sha256="ab" * 32, size_bytes=1234)


JOB = VerifyJob(network=file(NASTY), property=PropertyFile(file=file("p.vnnlib")))
INFO = JobInfo(
    id="1",
    kind="verify",
    title=NASTY,
    state=JobState.FINISHED,
    job=JOB,
    created_s=1e9,
    started_s=1e9,
    ended_s=1e9 + 2,
)
FOUND = Counterexample(
    inputs=tuple(f"0.{n:03d}" for n in range(64)),
    outputs=(0.25, -1.5),
    case=0,
    clause=0,
    clause_text="Y_0 ≥ Y_1",
    replay=Replay(inside_box=True, violates=True, violates_unoptimized=True, outputs=(0.25, -1.5)),
    input_shape=(1, 1, 8, 8),
)
RESULT = VerifyResult(
    verdict=Verdict.VIOLATED,
    reason=NASTY,
    arithmetic="real",
    margin=Margin(
        smallest=-0.5, per_clause=(ClauseMargin(case=0, clause=0, lower=-0.5, upper=-0.25, text="Y_0 ≥ Y_1"),)
    ),
    seconds=Seconds(load=0.1, parse=0.2, solve=0.3),
    peak_bytes=(
        RankMemory(rank=0, ledger_peak_bytes=10, resident_peak_bytes=20, by_category={"weights": 10}),
    ),
    counterexample=FOUND,
    versions={"boundscope": "0"},
    command="boundscope verify a b",
    search=SearchSummary(branching=Branching.INPUT, domains=12_345, depth=17, open=410),
)
SUMMARY = PropertySummary(
    name="p.vnnlib",
    format="VNN-LIB 1.0",
    words=("Output 1 stays above output 0.",),
    input_count=64,
    output_count=2,
    case_count=1,
    clause_count=1,
    inputs=(InputRow(variable="X_0", lower="0.10", upper="0.2"),),
    clauses=(ClauseRow(case=0, clause=0, text="Y_0 ≥ Y_1"),),
    inputs_total=64,
    clauses_total=1,
)


def memory(elapsed_s: float, count: int) -> MemorySample:
    return MemorySample(
        elapsed_s=elapsed_s, by_category={"weights": count, "rows": 5}, resident_bytes=99, limit_bytes=1000
    )


@pytest.fixture
def record() -> JobRecord:
    """A run of two ranks that said something of every kind."""
    events: list[tuple[int, Event]] = [
        (-1, StateChanged(state=JobState.RUNNING)),
        (0, SUMMARY),
        (0, GapPoint(elapsed_s=0.5, case=0, clause=0, lower=None, upper=1.0, step="attack")),
        (0, memory(0.1, 7)),
        (1, memory(0.2, 8)),
        (
            0,
            LayerBounds(
                case=0, node=NASTY, op="Relu", size=3, lower_min=-1.0, upper_max=1, width_mean=1, width_max=2
            ),
        ),
        (0, GapPoint(elapsed_s=0.9, case=0, clause=0, lower=-0.5, upper=-0.25, step="crown")),
        (0, SearchPoint(elapsed_s=0.8, branching=Branching.INPUT, done=9, open=4, depth=3, clauses_open=1)),
        (1, LogLine(text=NASTY, level="warning")),
        (0, memory(0.9, 9)),
        (0, RESULT),
        (-1, StateChanged(state=JobState.FINISHED)),
    ]
    gathered = JobRecord()
    gathered.apply_all(
        EventRecord(number=number, time_s=1e9 + number / 8, rank=rank, event=event)
        for number, (rank, event) in enumerate(events, start=1)
    )
    return gathered


class Outline(HTMLParser):
    """Tags and addresses of a page; a tag left open is an error."""

    VOID = frozenset({"meta", "img", "link", "br"})

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()
        self.sources: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.seen.add(tag)
        self.sources += [value or "" for name, value in attrs if name in ("src", "href")]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_events_give_the_record_again(record: JobRecord) -> None:
    """What the drawing process gets makes the same tables, summaries and result."""
    again = JobRecord()
    again.apply_all(events_of(record, INFO))
    assert again.tables() == record.tables()
    assert (again.property, again.result, again.state) == (record.property, record.result, record.state)


def test_page_stands_alone_and_escapes(record: JobRecord) -> None:
    """No address outside the page, well-formed, and nothing from a file becomes markup."""
    text = page(record, INFO, pictures.Pictures((), "without Qt"))
    outline = Outline(text)
    assert "script" not in outline.seen
    assert all(source.startswith("data:image/png;base64,") for source in outline.sources)
    assert not re.search(r"https?://|@import|url\(", text)
    for words in (
        "violated",
        "Output 1 stays above output 0.",
        "without Qt",
        "Branch and bound: 12\u202f345 domains, deepest 17 splits, splitting inputs, 410 domains left open.",
        "-0.5",
        "ab" * 32,
        "yes",
        "prefers-color-scheme",
    ):
        assert words in text
    assert outline.sources, "the 8×8 counterexample is shown as an image"


def test_page_of_a_job_without_a_result() -> None:
    text = page(
        JobRecord(state=JobState.FAILED, state_reason="rank 1 was killed"), INFO, pictures.Pictures(())
    )
    Outline(text)
    assert "no result" in text
    assert "Rank 1 was killed." in text


def test_report_holds_the_tables_and_the_pictures(record: JobRecord, tmp_path: Path) -> None:
    """Every CSV is the record's table, byte for byte; every picture is a PNG and is on the page or beside it."""
    report = make_report(record, INFO, tmp_path / "report")
    assert report.left_out == ""
    html, *others = report.paths
    assert html.name == "report.html"
    for table in record.tables():
        assert (tmp_path / "report" / f"{table.name}.csv").read_bytes() == table.to_csv().encode()
    drawn = [path for path in others if path.suffix == ".png"]
    assert {"bound_gap.png", "memory.png"} <= {path.name for path in drawn}
    assert all(path.read_bytes().startswith(b"\x89PNG\r\n") for path in drawn)
    assert html.read_text().count("data:image/png;base64,") >= 3


def test_report_without_qt_says_so_and_writes_the_rest(
    record: JobRecord, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A drawing process that cannot load Qt leaves the pictures out; the page names the reason and the remedy."""
    (tmp_path / "broken" / "PySide6").mkdir(parents=True)
    (tmp_path / "broken" / "PySide6" / "__init__.py").write_text(
        "raise ImportError('libEGL.so.1: cannot open')"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "broken"))
    report = make_report(record, INFO, tmp_path / "report")
    assert "libEGL.so.1" in report.left_out
    assert "libEGL.so.1" in report.paths[0].read_text()
    assert (tmp_path / "report" / "bound_gap.csv").exists()
