"""`boundscope variability` in a process of its own: what it prints, writes and answers."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from cli.conftest import Command
from support.models import box_property, convnet


@pytest.fixture
def work(tmp_path: Path) -> Path:
    """A network, three points of it and a property, in the folder where commands run."""
    folder = tmp_path / "work"
    convnet(folder / "net.onnx")
    np.save(folder / "x.npy", np.random.default_rng(0).random((3, 2, 6, 6)).astype(np.float32))
    (folder / "p.vnnlib").write_text(box_property([0.4] * 72, [0.6] * 72, 3, "(assert (<= Y_0 Y_1))"))
    return folder


def test_a_run_is_summed_up_in_lines_and_written_as_tables(boundscope: Command, work: Path) -> None:
    done = boundscope(
        "variability",
        "net.onnx",
        "--inputs",
        "x.npy",
        "--samples",
        4,
        "--seed",
        7,
        "--out",
        "run",
        "--json",
        "r.json",
    )
    assert done.returncode == 0, done.stderr
    lines = {line[:16].strip(): line[16:] for line in done.stdout.splitlines()}
    assert lines["measured"] == "4 samples of 3 points of x.npy"
    assert lines["arithmetic"] == "stochastic rounding, seed 7"
    assert lines["baseline"].startswith("bit-stable")
    assert lines["coverage"].startswith("100 %")
    assert "of 3 decisions flip" in lines["decisions"]
    (row,) = [line for line in done.stdout.splitlines() if line.split()[:1] == ["fc3"]]
    assert row.split()[1] == "9"
    assert "████" in row
    assert "reproduce" in lines
    result = json.loads((work / "r.json").read_text())
    assert result["verdict"] is None
    assert [layer["layer"] for layer in result["layers"]][-1] == "fc3"
    assert {"moments.npz", "variability_layers.csv"} <= {path.name for path in (work / "run").iterdir()}


def test_proof_sources_and_precision(boundscope: Command, work: Path) -> None:
    done = boundscope(
        *("variability", "net.onnx", "--property", "p.vnnlib", "--draw", 2, "--samples", 4, "--mode", "ud"),
        *("--source", "bisect", "--precision", "bf16"),
    )
    assert done.returncode == 0, done.stderr
    assert "up-down rounding to 8 bits" in done.stdout
    assert "of the outputs' variance" in done.stdout
    assert "proven rounding" in done.stdout
    assert "--draw 2 --mode ud --samples 4 --seed 0 --precision 8 --source bisect" in done.stdout


def test_ranks_and_compare(boundscope: Command, work: Path) -> None:
    for mode, ranks in (("sr", 2), ("ud", 1)):
        done = boundscope(
            "variability",
            "net.onnx",
            "--inputs",
            "x.npy",
            "--samples",
            4,
            "--mode",
            mode,
            "--ranks",
            ranks,
            "--out",
            mode,
        )
        assert done.returncode == 0, done.stderr
    done = boundscope("variability", "compare", "sr", "ud", "--out", "both")
    assert done.returncode == 0, done.stderr
    assert "ud keeps" in done.stdout
    assert "bits fewer than sr" in done.stdout
    assert (work / "both" / "variability_comparison.csv").read_text().count("\n") == 11


def test_a_folder_of_images(boundscope: Command, work: Path) -> None:
    (work / "images").mkdir()
    for number in range(2):
        pixels = np.random.default_rng(number).integers(0, 256, (1, 72), dtype=np.uint8)
        Image.fromarray(pixels).save(work / "images" / f"{number}.png")
    done = boundscope("variability", "net.onnx", "--inputs", "images", "--samples", 2, "--layers", "fc3")
    assert done.returncode == 0, done.stderr
    assert "2 samples of 2 points of PNG images" in done.stdout


@pytest.mark.parametrize(
    ("words", "status", "said"),
    [
        (("--inputs", "x.npy", "--samples", 1), 2, "--samples 1: noise shows in at least 2 samples"),
        (("--inputs", "x.npy", "--samples", 2, "--ranks", 3), 2, "--ranks 3"),
        (("--inputs", "x.npy", "--precision", "half"), 2, "'half' is neither a number"),
        (("--inputs", "x.npy", "--draw", 3), 2, "one of the two"),
        (("--draw", 3), 2, "--draw 3 needs --property"),
        ((), 2, "give --inputs FILE, or --property P"),
        (("--inputs", "none.npy"), 1, "none.npy does not exist; INPUTS must be points"),
        (("--inputs", "work"), 1, "work does not exist"),
        (("x.npy",), 2, "only `compare` takes more than NET"),
        (("--inputs", "x.npy", "--mode", "rn"), 2, "'rn' is none of sr, ud, rr"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    boundscope: Command, work: Path, words: tuple[object, ...], status: int, said: str
) -> None:
    done = boundscope("variability", "net.onnx", *words)
    assert done.returncode == status
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_compare_takes_two_runs_that_exist(boundscope: Command, work: Path) -> None:
    assert "compare takes two runs" in boundscope("variability", "compare", "one").stderr
    done = boundscope("variability", "compare", "one", "two")
    assert done.returncode == 1
    assert "one: there is no such file" in done.stderr


def test_points_of_another_shape_are_an_error_in_the_summary(boundscope: Command, work: Path) -> None:
    np.save(work / "x.npy", np.ones((3, 5)))
    done = boundscope("variability", "net.onnx", "--inputs", "x.npy", "--json", "-")
    assert done.returncode == 1
    result = json.loads(done.stdout)
    assert result["verdict"] == "error"
    assert "got an array of shape [3, 5]" in result["reason"]
