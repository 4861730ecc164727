"""Wrong words on the command line: a sentence, a status, and never a traceback."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from boundscope.examples import Example
from cli.conftest import Command


def says(done: subprocess.CompletedProcess[str], status: int, *words: str) -> None:
    """The command ended with this status, and its standard error holds each of these words and no traceback."""
    assert done.returncode == status, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""
    assert done.stderr.startswith("boundscope: ")
    for word in words:
        assert word in done.stderr


def test_no_command_and_unknown_command(boundscope: Command) -> None:
    says(boundscope(), 2, "COMMAND", "--help")
    says(boundscope("prove"), 2, "prove")


def test_commands_of_later_issues_are_not_listed(boundscope: Command) -> None:
    """A command is in the help only when it exists."""
    listed = boundscope("--help").stdout.split()
    assert {"verify", "variability", "example", "open", "jobs", "export", "daemon", "doctor"} <= set(listed)
    assert "bench" not in listed


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "give PROPERTY"),
        (("P", "--method", "simplex"), "ibp, crown, alpha-crown, complete"),
        (("P", "--timeout", "soon"), "'soon' is not a decimal number"),
        (("P", "--timeout", "0"), "more than 0 s"),
        (("P", "--timeout", "nan"), "'nan' is not a decimal number"),
        (("P", "--timeout", "1e999"), "too large"),
        (("P", "--ranks", "two"), "'two' is not a whole number"),
        (("P", "--ranks", "0"), "at least one rank"),
        (("P", "--ranks", "2"), "--ranks 2 needs a --sharding"),
        (("P", "--threads", "0"), "at least one thread"),
        (("P", "--chunk-rows", "17"), "multiples of 16"),
        (("P", "--memory-budget", "lots"), "not a size"),
        (("P", "--memory-budget", "1KiB"), "at least 1 MiB"),
        (("P", "--memory-budget", "0%"), "above 0 %"),
        (("P", "--memory-budget", "120%"), "at most 100 %"),
        (("P", "--memory-budget", "much%"), "not a decimal number"),
        (("P", "--epsilon", "0.1"), "goes with --ball"),
        (("P", "--norm", "l2"), "goes with --ball"),
        (("--ball", "P", "--epsilon", "1", "--label", "1", "--norm", "l3"), "none of linf, l2, l1, l0"),
        (("P", "--ball", "P", "--epsilon", "0.1", "--label", "1"), "not both"),
        (("--ball", "P", "--label", "1"), "needs --epsilon"),
        (("--ball", "P", "--epsilon", "0.1"), "needs --label"),
        (("--ball", "P", "--epsilon", "8/255", "--label", "1"), "decimal number"),
        (("--ball", "P", "--epsilon", "1", "--label", "1", "--clip", "1", "-1"), "LO must not be above HI"),
        (("P", "--csv", "P"), "cannot be made a folder"),
        (("P", "--json", "."), "is a folder"),
        (("P", "--json", "absent/result.json"), "cannot be written"),
        (("P", "--metho", "crown"), "--metho"),
        (("P", "--checkpoint", "c"), "goes with --method complete; crown has no search"),
        (("P", "--method", "complete", "--checkpoint", "absent/c"), "cannot be written"),
        (("P", "--method", "complete", "--checkpoint", "."), "is a folder"),
        (("P", "--method", "complete", "--checkpoint", "c", "--daemon"), "leave --checkpoint out"),
    ],
)
def test_options_that_do_not_go(
    boundscope: Command, robust: Example, words: tuple[str, ...], said: str
) -> None:
    """Exit status 2 and one sentence that names the option."""
    given = [robust.property if word == "P" else word for word in words]
    says(boundscope("verify", robust.network, *given), 2, said)


@pytest.mark.parametrize("sharding", ["tp", "tp-exact"])
def test_a_search_is_not_split_by_layers(boundscope: Command, robust: Example, sharding: str) -> None:
    words = ("--method", "complete", "--sharding", sharding, "--ranks", "2")
    done = boundscope("verify", robust.network, robust.property, *words)
    says(done, 2, f"--sharding {sharding}", "--method complete")


def test_files_that_cannot_be_read(boundscope: Command, robust: Example, tmp_path: Path) -> None:
    """Missing and empty files are errors (1); a folder, and files the wrong way round, are misuse (2)."""
    empty = tmp_path / "empty.onnx"
    empty.touch()
    says(boundscope("verify", "absent.onnx", robust.property), 1, "absent.onnx does not exist", "NET")
    says(boundscope("verify", robust.network, "absent.vnnlib"), 1, "absent.vnnlib does not exist", "PROPERTY")
    says(boundscope("verify", empty, robust.property), 1, "empty.onnx is empty")
    says(boundscope("verify", tmp_path, robust.property), 2, "is a folder")
    says(
        boundscope("verify", robust.property, robust.network),
        2,
        "the wrong way round",
        "write: boundscope verify",
    )
    says(boundscope("verify", robust.network, robust.network), 2, "is a network")
    says(boundscope("verify", robust.property, robust.property), 2, "is a property")


def test_swapped_files_are_known_by_their_content(
    boundscope: Command, robust: Example, tmp_path: Path
) -> None:
    network, source = tmp_path / "a", tmp_path / "b"
    network.write_bytes(robust.network.read_bytes())
    source.write_bytes(robust.property.read_bytes())
    says(boundscope("verify", source, network), 2, "the wrong way round")


def test_daemon_option_that_swallows_the_network(boundscope: Command, robust: Example) -> None:
    says(boundscope("verify", "--daemon", robust.network, robust.property), 2, "write --daemon after NET")


def test_open_checks_its_files_before_a_window_is_made(boundscope: Command, robust: Example) -> None:
    says(boundscope("open", "absent.onnx"), 1, "absent.onnx does not exist")
    says(boundscope("open", robust.property, robust.network), 2, "the wrong way round")
    says(boundscope("open", robust.network, "--example", "digits-conv"), 2, "not both")


def test_unknown_example(boundscope: Command) -> None:
    says(boundscope("example", "absent"), 2, "digits-robust")


@pytest.mark.parametrize("words", [("--version",), ("--help",), ("verify", "--help"), ("example", "--list")])
def test_words_alone_need_no_torch(environment: dict[str, str], words: tuple[str, ...]) -> None:
    """Help and version come at once: neither torch nor numpy nor Qt is imported for them."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "boundscope", *words],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = {line.rsplit("|", 1)[-1].strip() for line in done.stderr.splitlines()}
    assert "boundscope.protocol" in loaded
    assert not loaded & {"torch", "numpy", "onnx", "zmq", "rich", "PySide6"}
    assert done.stdout


def test_unforeseen_errors_leave_a_crash_file(environment: dict[str, str], tmp_path: Path) -> None:
    """One sentence, status 1, and the traceback in a file that only its owner can read."""
    done = subprocess.run(
        [sys.executable, "-c", "from boundscope.cli import crash; crash.install(); 1 / 0"],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    says(done, 1, "ZeroDivisionError: division by zero")
    (crash,) = (tmp_path / "home" / "crashes").iterdir()
    assert str(crash) in done.stderr
    assert "Traceback" in crash.read_text()
    assert crash.stat().st_mode & 0o077 == 0
