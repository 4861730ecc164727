"""A whole benchmark in the window: dropped, read back, run as one job, and used again."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from pytestqt.qtbot import QtBot

from app.test_drop import drop
from app.test_session import wait_ended
from app.window_support import EXAMPLES
from boundscope.cli import parser
from boundscope.protocol import InstancesJob, JobState, Method, Verdict
from boundscope_app.benchmark_draft import BenchmarkDraft, benchmark_draft_of
from boundscope_app.draft import Options, named_only
from boundscope_app.window import MainWindow

NETWORK = EXAMPLES / "networks" / "digits_mlp.onnx"
LINES = (("digits-robust", 60), ("digits-fooled", 30.5))


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    path = tmp_path / "digits" / "instances.csv"
    path.parent.mkdir()
    text = "".join(f"{NETWORK},{EXAMPLES / name / 'property.vnnlib'},{limit}\n" for name, limit in LINES)
    path.write_text(text)
    return path


def test_a_dropped_file_is_ready_to_run(lone_window: MainWindow, bench: Path) -> None:
    """The form says what it names; network and property make way, and come back with a file of theirs."""
    form = lone_window.form
    drop(lone_window, [bench])
    assert form.benchmarks
    assert form.draft == BenchmarkDraft(bench, form.choices.options)
    assert form.draft.title == "digits · 2 instances"
    assert form.benchmark.words.startswith("2 instances of 1 network and 2 properties, one after the other")
    assert "1 min 30 s at most in all" in form.benchmark.words
    assert form.problem == ""
    assert form.run_button.isEnabled()
    assert not form.choices.timeout.isEnabled()
    hidden = (form.network, form.property_file, form.ball, form.read_back, form.noise)
    assert all(part.isHidden() for part in hidden)
    assert not form.benchmark.isHidden()
    drop(lone_window, [NETWORK])
    assert not form.benchmarks
    assert form.draft.network == NETWORK
    assert form.benchmark.isHidden()
    assert not form.network.isHidden()
    assert form.choices.timeout.isEnabled()


def test_a_wrong_line_is_told_and_stops_the_run(lone_window: MainWindow, bench: Path) -> None:
    bench.write_text(bench.read_text() + "none.onnx,none.vnnlib,1\n")
    drop(lone_window, [bench])
    form = lone_window.form
    assert "line 3: there is no network" in form.problem
    assert not form.run_button.isEnabled()
    assert not form.copy_button.isEnabled()
    assert form.draft.title == ""


def test_a_folder_with_its_instances_runs_them(lone_window: MainWindow, bench: Path) -> None:
    """Other tables in the folder are no benchmarks."""
    (bench.parent / "digits_results.csv").write_text("a,b\n")
    drop(lone_window, [bench.parent])
    assert lone_window.form.draft.source == bench
    assert lone_window.messages.texts == ()


def test_the_keyboard_chooses_it_and_says_what_is_missing(qtbot: QtBot, lone_window: MainWindow) -> None:
    form = lone_window.form
    form.as_proof.setFocus()
    for button in (form.as_proof, form.as_measurement):
        qtbot.keyClick(button, Qt.Key.Key_Right)
    assert form.as_benchmark.isChecked()
    assert form.problem == "Choose a benchmark's instances.csv."


def test_the_command_line_says_the_same(bench: Path) -> None:
    draft = BenchmarkDraft(bench, Options(method=Method.IBP, seed=4))
    words = shlex.split(draft.command())
    arguments = parser.build().parse_args(words[1:])
    assert arguments.instances == bench
    assert (arguments.method, arguments.seed, arguments.timeout) == (Method.IBP, 4, None)


def test_used_again_it_needs_no_file(bench: Path) -> None:
    job = BenchmarkDraft(bench, Options(seed=4)).job(named_only)
    again = benchmark_draft_of(job)
    assert again.complete
    assert again.job(named_only) == job
    assert again.title == "digits · 2 instances"


def test_run_as_one_job(qtbot: QtBot, window: MainWindow, bench: Path) -> None:
    """One job, its table in front, rows that come, and the form filled again from it."""
    drop(window, [bench])
    window.form.choices.set_options(Options(method=Method.CROWN, threads_per_rank=1))
    before = set(window.runs.ids)
    window.run()
    qtbot.waitUntil(lambda: bool(set(window.runs.ids) - before))
    (job_id,) = set(window.runs.ids) - before
    qtbot.waitUntil(lambda: window.runs.selected_id == job_id)
    assert window.tabs.current_view_id == "instances"
    wait_ended(qtbot, window, job_id)
    info, record = window.runs.info(job_id), window.runs.record(job_id)
    assert info is not None
    assert isinstance(info.job, InstancesJob)
    assert info.state is JobState.FINISHED, info.cause
    qtbot.waitUntil(lambda: record.benchmark is not None)
    verdicts = [record.instances[number].verdict for number in range(2)]
    assert verdicts == [Verdict.VERIFIED, Verdict.VIOLATED]
    window.commands.use_again()
    assert window.form.benchmarks
    assert window.form.draft.kept == info.job
    assert window.form.problem == ""
