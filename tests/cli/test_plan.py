"""`boundscope plan` says what fits, recommends what can be run as it stands, and never runs anything."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from boundscope.cli import parser
from boundscope.examples import Example
from cli.conftest import Command
from support.models import mlp


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 MB of weights: too much for a device of 48 MiB, not for several."""
    return mlp(tmp_path_factory.mktemp("plan") / "mlp.onnx", [784, 2048, 2048, 2048, 10])


def test_table_and_json_say_the_same(boundscope: Command, robust: Example) -> None:
    words = ("plan", robust.network, robust.property, "--ranks", "2,4")
    table, told = boundscope(*words), boundscope(*words, "--json")
    assert table.returncode == told.returncode == 0
    report = json.loads(told.stdout)
    shown = [
        line.split()[:2]
        for line in table.stdout.splitlines()
        if line.startswith(("none", "rows", "fsdp", "tp"))
    ]
    assert shown == [[row["sharding"], str(row["ranks"])] for row in report["rows"]]
    assert ["none", "1"] in shown
    for row in report["rows"]:
        for one in (row["expected"], row["worst"]):
            assert one["peak_bytes"] == sum(one["by_category"].values())


def test_what_fits_is_recommended(boundscope: Command, network: Path) -> None:
    """One device is too small for the weights; enough of them are not, and the fewest are named."""
    words = ("plan", network, "--ranks", "2,8", "--sharding", "none,rows", "--device-memory", "48MiB")
    report = json.loads(boundscope(*words, "--json").stdout)
    fits = {(row["sharding"], row["ranks"]): row["fits"] for row in report["rows"]}
    assert fits == {("none", 1): "no", ("rows", 2): "yes", ("rows", 8): "yes"}
    assert report["fewest_ranks"]["ranks"] == 2
    text = boundscope(*words).stdout
    line = next(line for line in text.splitlines() if line.strip().startswith("boundscope verify"))
    arguments = parser.build().parse_args(shlex.split(line)[1:])
    assert arguments.ranks == 2
    assert arguments.sharding == "rows"
    assert arguments.memory_budget.bytes == int(0.8 * (48 << 20))


def test_nothing_that_fits_is_said(boundscope: Command, network: Path) -> None:
    done = boundscope("plan", network, "--ranks", "2", "--device-memory", "8MiB")
    assert done.returncode == 0
    assert "nothing fits" in done.stdout


def test_looser_bounds_are_never_recommended(boundscope: Command, network: Path) -> None:
    words = ("plan", network, "--ranks", "2,8", "--sharding", "none,tp", "--device-memory", "48MiB", "--json")
    report = json.loads(boundscope(*words).stdout)
    assert any(row["sharding"] == "tp" and row["fits"] == "yes" for row in report["rows"])
    assert report["fewest_ranks"] is None


def test_a_named_device_is_taken_at_its_word(boundscope: Command, network: Path) -> None:
    words = ("plan", network, "--ranks", "8", "--json", "--device", "H100", "--bandwidth", "25GB")
    slow, fast = (json.loads(boundscope(*words, "--tflops", speed).stdout) for speed in ("0.01", "60"))
    assert fast["device"]["bytes_per_s"] == 25e9
    assert fast["device"]["single_flops"] == 60e12
    for one, other in zip(slow["rows"], fast["rows"], strict=True):
        assert one["expected"]["seconds"] > other["expected"]["seconds"]
        assert one["expected"]["peak_bytes"] == other["expected"]["peak_bytes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--device", "H100"), "--tflops"),
        (("--ranks", "0"), "at least one rank"),
        (("--ranks", "two"), "whole number"),
        (("--sharding", "rows,all"), "'all' is none of"),
        (("--device-memory", "1KiB"), "at least 2 MiB"),
        (("--bandwidth", "0"), "--bandwidth"),
        (("--chunk-rows", "7", "--sharding", "none"), "multiples of 16"),
        (("--method", "complete", "--sharding", "tp"), "complete"),
    ],
)
def test_what_is_wrong_is_said_in_a_sentence(
    boundscope: Command, robust: Example, words: tuple[str, ...], said: str
) -> None:
    done = boundscope("plan", robust.network, robust.property, *words)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_network_that_is_not_there(boundscope: Command) -> None:
    done = boundscope("plan", "gone.onnx")
    assert done.returncode == 1
    assert "gone.onnx does not exist" in done.stderr
