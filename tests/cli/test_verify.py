"""`boundscope verify` on real networks: verdicts, exit status, JSON, CSV, and quiet where nobody watches."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx

from boundscope.examples import Example
from boundscope.protocol import EXIT_CODES
from cli.conftest import Command

KEYS = {
    "verdict",
    "reason",
    "arithmetic",
    "margin",
    "seconds",
    "peak_bytes",
    "counterexample",
    "versions",
    "cross_check",
    "search",
    "command",
}


def test_verified_is_zero_and_quiet(boundscope: Command, robust: Example) -> None:
    """Off a terminal nothing is said about progress; each line of the summary starts with its name."""
    done = boundscope("verify", robust.network, robust.property)
    assert (done.returncode, done.stderr) == (0, "")
    lines = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert lines["verdict"] == "verified"
    assert lines["arithmetic"] == "real"
    assert {"reason", "property", "margin", "clauses", "time", "memory", "reproduce"} <= set(lines)
    assert "\x1b" not in done.stdout


def test_json_alone_on_standard_output(boundscope: Command, fooled: Example) -> None:
    """`--json -` prints one JSON object with the promised keys and nothing else; a violation is status 10."""
    done = boundscope("verify", fooled.network, fooled.property, "--json", "-")
    result = json.loads(done.stdout)
    assert (done.returncode, done.stderr) == (10, "")
    assert set(result) == KEYS
    assert result["verdict"] == "violated"
    assert set(result["margin"]) == {"smallest", "per_clause"}
    assert len(result["margin"]["per_clause"]) == 9
    assert set(result["seconds"]) == {"load", "parse", "solve"}
    assert [peak["rank"] for peak in result["peak_bytes"]] == [0]
    found = result["counterexample"]
    assert len(found["inputs"]) == 64
    assert found["outputs"][6] <= max(found["outputs"][:6] + found["outputs"][7:])
    assert found["replay"]["inside_box"]
    assert found["replay"]["violates"]
    assert {"boundscope", "torch", "onnxruntime"} <= set(result["versions"])


def test_command_of_a_result_gives_the_result_again(boundscope: Command, robust: Example) -> None:
    """The line under `command`, run again, gives the same verdict and margins."""
    first = json.loads(boundscope("verify", robust.network, robust.property, "--json", "-").stdout)
    program, *words = shlex.split(first["command"])
    assert program == "boundscope"
    again = json.loads(boundscope(*words, "--json", "-").stdout)
    assert (again["verdict"], again["margin"]) == (first["verdict"], first["margin"])


def test_unknown_is_twenty(boundscope: Command, robust: Example, tmp_path: Path) -> None:
    """Intervals alone cannot prove this one; the JSON goes to the file and the summary to the screen."""
    target = tmp_path / "result.json"
    done = boundscope("verify", robust.network, robust.property, "--method", "ibp", "--json", target)
    assert done.returncode == 20
    assert done.stdout.startswith("verdict         unknown\n")
    assert json.loads(target.read_text())["verdict"] == "unknown"


def test_timeout_is_twenty_one(boundscope: Command, robust: Example) -> None:
    done = boundscope("verify", robust.network, robust.property, "--timeout", "0.01", "--json", "-")
    assert done.returncode == 21
    assert json.loads(done.stdout)["verdict"] == "timeout"


def test_out_of_memory_is_twenty_two(boundscope: Command, robust: Example, tmp_path: Path) -> None:
    """Weights that do not fit into the budget: a verdict with the breakdown, not a failure."""
    weights = [np.zeros((4096, 64), np.float32), np.zeros((10, 4096), np.float32)]
    nodes = [
        onnx.helper.make_node("Flatten", ["X"], ["flat"]),
        onnx.helper.make_node("Gemm", ["flat", "W0"], ["hidden"], transB=1),
        onnx.helper.make_node("Relu", ["hidden"], ["active"]),
        onnx.helper.make_node("Gemm", ["active", "W1"], ["Y"], transB=1),
    ]
    graph = onnx.helper.make_graph(
        nodes,
        "wide",
        [onnx.helper.make_tensor_value_info("X", onnx.TensorProto.FLOAT, [1, 1, 8, 8])],
        [onnx.helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, [1, 10])],
        [onnx.numpy_helper.from_array(weight, f"W{index}") for index, weight in enumerate(weights)],
    )
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    path = tmp_path / "wide.onnx"
    onnx.save(model, path)
    done = boundscope("verify", path, robust.property, "--memory-budget", "1MiB", "--json", "-")
    assert done.returncode == 22, done.stdout + done.stderr
    result = json.loads(done.stdout)
    assert result["verdict"] == "out_of_memory"
    assert "weights" in result["reason"]


def test_broken_files_are_one_and_name_the_fault(
    boundscope: Command, robust: Example, tmp_path: Path
) -> None:
    """A file that is no network, and a property with a fault in line 2: status 1, also in the JSON, no traceback."""
    broken = tmp_path / "broken.onnx"
    broken.write_bytes(b"\x08\x07 this is not a network")
    done = boundscope("verify", broken, robust.property, "--json", "-")
    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"] == "error"
    assert "broken.onnx" in json.loads(done.stdout)["reason"]
    assert "Traceback" not in done.stderr

    property = tmp_path / "broken.vnnlib"
    property.write_text("(declare-const X_0 Real)\n(assert (>= X_0\n")
    done = boundscope("verify", robust.network, property)
    assert done.returncode == 1
    assert "line 2" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_missing_file_in_json(boundscope: Command, robust: Example) -> None:
    """A program that reads the JSON gets a verdict even where there was nothing to run."""
    done = boundscope("verify", "absent.onnx", robust.property, "--json", "-")
    assert done.returncode == 1
    assert json.loads(done.stdout)["verdict"] == "error"
    assert set(json.loads(done.stdout)) == KEYS


def test_csv_of_every_table(boundscope: Command, robust: Example, tmp_path: Path) -> None:
    """One CSV a table, with units in the header and one row per clause in margins.csv."""
    folder = tmp_path / "made" / "here"
    assert boundscope("verify", robust.network, robust.property, "--csv", folder).returncode == 0
    names = {path.name for path in folder.iterdir()}
    assert names == {"bound_gap.csv", "memory.csv", "layers.csv", "graph.csv", "margins.csv", "log.csv"}
    with (folder / "margins.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 9
    assert all(float(row["lower bound"]) > 0 for row in rows)
    assert "elapsed [s]" in (folder / "bound_gap.csv").read_text().splitlines()[0]
    assert len((folder / "layers.csv").read_text().splitlines()) > 1


def test_ball_in_place_of_a_property(boundscope: Command, robust: Example, tmp_path: Path) -> None:
    """An ε-ball around the centre of the example's box is verified where the box was."""
    bounds: dict[str, dict[int, float]] = {">=": {}, "<=": {}}
    for line in robust.property.read_text().splitlines():
        if line.startswith("(assert (") and " X_" in line:
            sign, name, value = line.removeprefix("(assert (").rstrip(")").split()
            bounds[sign][int(name[2:])] = float(value)
    center = tmp_path / "center.npy"
    np.save(
        center, np.array([(bounds[">="][i] + bounds["<="][i]) / 2 for i in range(64)]).reshape(1, 1, 8, 8)
    )
    options = ("--ball", center, "--label", 6, "--clip", 0, 1)
    assert boundscope("verify", robust.network, *options, "--epsilon", "0.02").returncode == 0
    assert boundscope("verify", robust.network, *options, "--epsilon", "0.4").returncode == 10
    done = boundscope("verify", robust.network, "--ball", center, "--epsilon", "0.02", "--label", "10")
    assert done.returncode == 1
    assert "10" in done.stdout + done.stderr


def test_report_on_request(boundscope: Command, robust: Example, tmp_path: Path) -> None:
    done = boundscope("verify", robust.network, robust.property, "--report", tmp_path / "report")
    assert done.returncode == 0
    assert (tmp_path / "report" / "report.html").exists()
    assert f"report          {tmp_path / 'report' / 'report.html'}" in done.stdout


def test_two_ranks_without_a_daemon(boundscope: Command, robust: Example) -> None:
    """Ranks of this process tree: the same verdict, and the memory of each rank."""
    words = ("--sharding", "rows", "--ranks", "2", "--json", "-")
    done = boundscope("verify", robust.network, robust.property, *words)
    assert done.returncode == 0, done.stderr
    assert [peak["rank"] for peak in json.loads(done.stdout)["peak_bytes"]] == [0, 1]


def test_every_verdict_has_its_own_status() -> None:
    """The table that the help, the README and scripts rely on."""
    assert EXIT_CODES == {
        "verified": 0,
        "error": 1,
        "violated": 10,
        "unknown": 20,
        "timeout": 21,
        "out_of_memory": 22,
    }


def test_a_reader_that_leaves_is_no_error(environment: dict[str, str]) -> None:
    """`boundscope … | true` ends without a word on standard error."""
    line = f"{shlex.quote(sys.executable)} -m boundscope example --list | true"
    done = subprocess.run(["bash", "-c", line], env=environment, capture_output=True, text=True, check=False)
    assert done.stderr == ""
