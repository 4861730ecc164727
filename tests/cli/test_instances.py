"""`boundscope verify --instances`: a benchmark to its end, in parts, on a daemon; and VNN-COMP's result file."""

from __future__ import annotations

import csv
import json
import re
import signal
import time
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from boundscope.examples import example
from cli.conftest import Command
from cli.test_terminal import LIMIT_S, terminal
from daemon.small_files import write_network, write_property


@pytest.fixture
def bench(tmp_path: Path) -> Path:
    """instances.csv of one small network: one property that holds, one that does not, one with another's inputs."""
    folder = tmp_path / "small"
    folder.mkdir()
    write_network(folder / "net.onnx")
    for name, inputs, threshold in (("proven", 2, 100.0), ("refuted", 2, -100.0), ("wrong", 3, 100.0)):
        write_property(folder / f"{name}.vnnlib", inputs=inputs, threshold=threshold)
    path = folder / "instances.csv"
    path.write_text("net.onnx,proven.vnnlib,60\nnet.onnx,refuted.vnnlib,60\nnet.onnx,wrong.vnnlib,60\n")
    return path


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def parsed(text: str) -> dict[str, float]:
    """A counterexample as the competition's checker takes it: names and values between parentheses."""
    body = text.strip()
    assert body.startswith("((")
    assert body.endswith("))")
    pairs = re.findall(r"\(([XY]_\d+)\s+([^\s()]+)\)", body[1:-1])
    assert len(pairs) == body.count("(") - 1
    return {name: float(value) for name, value in pairs}


def assert_replays(found: dict[str, float], network: Path) -> None:
    """The outputs named are those that ONNX Runtime gives for the inputs named."""
    session = onnxruntime.InferenceSession(str(network))
    (given,) = session.get_inputs()
    values = [value for name, value in found.items() if name.startswith("X_")]
    array = np.array(values, dtype=np.float32).reshape(given.shape)
    outputs = session.run(None, {given.name: array})[0].ravel()
    named = [value for name, value in found.items() if name.startswith("Y_")]
    np.testing.assert_allclose(named, outputs, rtol=1e-5, atol=1e-6)


def test_a_benchmark_to_its_end_and_again(boundscope: Command, bench: Path, tmp_path: Path) -> None:
    """A row an instance in the results and on the screen; the same command again runs nothing, a longer file only what
    is new, and other options say so."""
    work = tmp_path / "work"
    done = boundscope("verify", "--instances", bench, "--json", "all.json", "--csv", "tables")
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [
        ["1/3", "verified"],
        ["2/3", "violated"],
        ["3/3", "error"],
    ]
    said = "\n".join(lines[3:])
    assert "2 of 3 instances solved: 1 verified, 1 violated, 1 error" in said
    assert "unsolved        3: net.onnx · wrong.vnnlib: error: " in said
    rows = rows_of(work / "small_results.csv")
    assert [(row["vnnlib"], row["verdict"]) for row in rows] == [
        ("proven.vnnlib", "verified"),
        ("refuted.vnnlib", "violated"),
        ("wrong.vnnlib", "error"),
    ]
    assert float(rows[0]["margin lower bound"]) > 0
    found = parsed((work / rows[1]["counterexample"]).read_text())
    assert set(found) == {"X_0", "X_1", "Y_0", "Y_1"}
    assert_replays(found, bench.parent / "net.onnx")
    whole = json.loads((work / "all.json").read_text())
    assert whole["tally"]["counts"] == {"verified": 1, "violated": 1, "error": 1}
    assert [row["verdict"] for row in whole["instances"]] == ["verified", "violated", "error"]
    assert [row["verdict"] for row in rows_of(work / "tables" / "instances.csv")] == [
        "verified",
        "violated",
        "error",
    ]

    before = (work / "small_results.csv").read_text()
    # What a power cut leaves of a row is no row: the instance is run again.
    torn = before.splitlines(keepends=True)
    (work / "small_results.csv").write_text("".join(torn[:-1]) + torn[-1][:30])
    with bench.open("a") as file:
        file.write("net.onnx,proven.vnnlib,59\n")
    again = boundscope("verify", "--instances", bench, "--report", "report")
    page = (work / "report" / "report.html").read_text()
    assert "3 of 4 solved" in page
    assert page.count("proven.vnnlib") >= 2
    assert again.stdout.splitlines()[0] == "2 of 4 instances are in small_results.csv already"
    assert [line.split()[:2] for line in again.stdout.splitlines()[1:3]] == [
        ["3/4", "error"],
        ["4/4", "verified"],
    ]
    assert len(rows_of(work / "small_results.csv")) == 4

    other = boundscope("verify", "--instances", bench, "--method", "ibp")
    assert other.returncode == 2
    assert "small_results.csv, line 2: " in other.stderr
    assert "options or version were others" in other.stderr
    write_property(bench.parent / "refuted.vnnlib", threshold=-99.0)
    other = boundscope("verify", "--instances", bench)
    assert (
        "line 3: since this row was written, the property has changed (net.onnx, refuted.vnnlib)"
        in other.stderr
    )


def test_ctrl_c_leaves_what_a_later_run_goes_on_from(
    environment: dict[str, str], bench: Path, tmp_path: Path
) -> None:
    """Status 130, the rows that there were, and no process left; the terminal has shown a bar with a count."""
    hard = example("digits-conv")
    bench.write_text("net.onnx,proven.vnnlib,60\n" + f"{hard.network},{hard.property},60\n" * 40)
    results = tmp_path / "results.csv"
    words = ["verify", "--instances", str(bench), "--results", str(results), "--method", "alpha-crown"]
    with terminal(words, environment) as run:
        run.wait_for("1/41")
        deadline = time.monotonic() + LIMIT_S
        while not results.exists() or len(rows_of(results)) < 2:
            assert time.monotonic() < deadline
            run.read()
        run.process.send_signal(signal.SIGINT)
        status, shown = run.finish()
    assert status == 130
    assert "the same command goes on with them" in run.shown
    rows = rows_of(results)
    assert 2 <= len(rows) < 41
    assert all(row["verdict"] == "verified" for row in rows)
    assert f"{len(rows)} of {len(rows)} instances solved" in shown
    assert results.read_text().endswith("\n")


def test_on_a_daemon(boundscope: Command, bench: Path, tmp_path: Path) -> None:
    """The same rows, from files that were sent; the job and its export are there afterwards."""
    try:
        done = boundscope("verify", "--instances", bench, "--daemon")
        assert done.returncode == 1, done.stderr
        rows = rows_of(tmp_path / "work" / "small_results.csv")
        assert [row["verdict"] for row in rows] == ["verified", "violated", "error"]
        assert parsed((tmp_path / "work" / rows[1]["counterexample"]).read_text())
        assert "small · 3 instances" in boundscope("jobs").stdout
        exported = boundscope("export", "last", "--json", "-")
        assert json.loads(exported.stdout)["tally"]["counts"] == {"verified": 1, "violated": 1, "error": 1}
    finally:
        boundscope("daemon", "stop", "--force")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--instances", "none.csv"), "none.csv does not exist"),
        (("--instances", "none.csv", "--vnncomp", "r.txt"), "leave --vnncomp out"),
        (("net.onnx", "--instances", "none.csv"), "leave NET out"),
        (("net.onnx", "p.vnnlib", "--results", "r.csv"), "--results goes with --instances"),
        ((), "give NET and PROPERTY, or a whole benchmark"),
    ],
)
def test_options_that_do_not_go_together(boundscope: Command, words: tuple[str, ...], says: str) -> None:
    done = boundscope("verify", *words)
    assert done.returncode == 2
    assert says in done.stderr


def test_another_runs_results_are_left_alone(boundscope: Command, bench: Path, tmp_path: Path) -> None:
    """Neither a file of something else nor one that is being written is touched."""
    import fcntl

    foreign = tmp_path / "foreign.csv"
    for text in ("a,b\n1,2\n3", "a note without an end of line"):
        foreign.write_text(text)
        done = boundscope("verify", "--instances", bench, "--results", foreign)
        assert (done.returncode, foreign.read_text()) == (2, text)
        assert "is not a file of results" in done.stderr
    with (tmp_path / "busy.csv").open("w") as busy:
        fcntl.flock(busy, fcntl.LOCK_EX)
        done = boundscope("verify", "--instances", bench, "--results", tmp_path / "busy.csv")
    assert done.returncode == 2
    assert "is being written by another run" in done.stderr


def test_the_competitions_result_file(boundscope: Command, bench: Path, tmp_path: Path) -> None:
    """One word; below `sat` inputs and outputs that ONNX Runtime confirms; `error` where there was nothing to run."""
    work, folder = tmp_path / "work", bench.parent
    for name, word in (("proven", "unsat"), ("refuted", "sat"), ("wrong", "error")):
        boundscope("verify", folder / "net.onnx", folder / f"{name}.vnnlib", "--vnncomp", f"{name}.txt")
        first, _, rest = (work / f"{name}.txt").read_text().partition("\n")
        assert first == word
        if word == "sat":
            found = parsed(rest)
            assert all(-1 <= found[name] <= 1 for name in ("X_0", "X_1"))
            assert_replays(found, folder / "net.onnx")
        else:
            assert rest == ""
    boundscope("verify", folder / "none.onnx", folder / "proven.vnnlib", "--vnncomp", "none.txt")
    assert (work / "none.txt").read_text() == "error\n"
