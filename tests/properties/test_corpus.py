"""Every property of the VNN-COMP instances and of the hard cases is read as its network and its verdict ask."""

from __future__ import annotations

import csv
import functools
import gzip
import json
import math
import re
from fractions import Fraction
from pathlib import Path

import onnx
import pytest

from boundscope.errors import PropertyError
from boundscope.properties import read_property, summarize
from boundscope.properties.exact import inside, violated_clause
from properties.oracle import satisfied, text_of, trees, variables

_LARGE_NETWORK = "nn4sys_2021"  # unpacks to 336 MB


@functools.cache
def element_counts(path: Path) -> tuple[int, int]:
    """Inputs and outputs of an ONNX file; symbolic axes count as 1."""
    data = path.read_bytes()
    graph = onnx.load_from_string(gzip.decompress(data) if path.suffix == ".gz" else data).graph
    constants = {tensor.name for tensor in graph.initializer}
    shapes = [
        [max(dim.dim_value, 1) for dim in value.type.tensor_type.shape.dim]
        for value in (next(each for each in graph.input if each.name not in constants), graph.output[0])
    ]
    return math.prod(shapes[0]), math.prod(shapes[1])


def instances(vnncomp: Path) -> list[dict[str, str]]:
    with (vnncomp / "manifest.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_instance_fits_its_network(vnncomp: Path) -> None:
    rows = instances(vnncomp)
    assert len(rows) > 100
    for row in rows:
        counts = {}
        if row["family"] != _LARGE_NETWORK:
            inputs, outputs = element_counts(vnncomp / row["onnx"])
            counts = {"input_count": inputs, "output_count": outputs}
        found = read_property(vnncomp / row["vnnlib"], **counts)
        summary = summarize(found)
        assert summary.clause_count >= 1, row["vnnlib"]
        assert summary.case_count <= summary.clause_count


def test_disjuncts_and_fixed_inputs_are_as_documented(vnncomp: Path) -> None:
    """Boxes, disjuncts and fixed inputs of some families, as the table in the instances' README has them."""
    documented = {
        "acasxu/vnnlib/prop_6.vnnlib": (2, 8, 0),
        "acasxu/vnnlib/prop_8.vnnlib": (1, 3, 0),
        "mnist_fc/vnnlib/prop_0_0.03.vnnlib.gz": (1, 9, 0),
        "metaroom/vnnlib/spec_idx_62_eps_0.00001000.vnnlib.gz": (1, 19, 5376),
        "nn4sys/vnnlib/lindex_200.vnnlib.gz": (200, 400, 0),
        "dist_shift/vnnlib/index1561_delta0.13.vnnlib.gz": (1, 1, 784),
        "ml4acopf_2024/vnnlib/14_ieee_prop1.vnnlib": (1, 56, 0),
    }
    for name, (boxes, clauses, fixed) in documented.items():
        found = read_property(vnncomp / name)
        box = found.cases[0].box
        assert len(found.cases) == boxes, name
        assert sum(len(case.clauses) for case in found.cases) == clauses, name
        assert sum(map(str.__eq__, box.lower_text, box.upper_text)) == fixed, name


def test_recorded_counterexamples_are_judged_as_the_text_judges_them(vnncomp: Path) -> None:
    judged = 0
    for row in instances(vnncomp):
        match = re.search(r"cex=([^;]+)", row["notes"])
        if row["verdict"] != "sat" or match is None:
            continue
        pairs = re.findall(r"\(?\(([XY])_\d+\s+([^\s()]+)\)", text_of(vnncomp / match[1].strip()))
        inputs = [Fraction(value) for letter, value in pairs if letter == "X"]
        outputs = [Fraction(value) for letter, value in pairs if letter == "Y"]
        path = vnncomp / row["vnnlib"]
        found = read_property(path)
        expected = satisfied(trees(text_of(path)), variables(inputs, outputs))
        assert (violated_clause(found, inputs, outputs) is not None) == expected, row["vnnlib"]
        judged += expected
    assert judged >= 10


def test_hard_cases_are_read_as_expected(cases: Path) -> None:
    for folder in sorted(cases.glob("VNN-*")):
        expected = json.loads((folder / "expected.json").read_text())
        for name, wanted in expected["props"].items():
            path = folder / name
            if wanted["kind"] == "error":
                with pytest.raises(PropertyError, match=re.escape(wanted["error"])):
                    read_property(path)
                continue
            found = read_property(path)
            witness = wanted["checked"].get("witness_exact")
            if witness is not None:
                inputs = [Fraction(text) for text in witness["X"]]
                outputs = [Fraction(text) for text in witness["Y"]]
                assert violated_clause(found, inputs, outputs) is not None, path
            else:
                assert wanted["verdict"] == "unsat"
                _check_range(path)


def _check_range(path: Path) -> None:
    """At a grid over box and outputs the property says what the text says."""
    found = read_property(path)
    commands = trees(text_of(path))
    steps = [Fraction(step, 4) for step in range(-6, 7)]
    for value in steps:
        for other in steps:
            inputs = [value] * found.input_count
            outputs = [other, *([value] * (found.output_count - 1))]
            expected = satisfied(commands, variables(inputs, outputs))
            assert (violated_clause(found, inputs, outputs) is not None) == expected, path


def test_all_other_hard_cases_are_read(cases: Path) -> None:
    for path in sorted(cases.glob("[!V]*/*.vnnlib")):
        found = read_property(path)
        corner = [Fraction(text) for text in found.cases[0].box.lower_text]
        assert inside(found.cases[0].box, corner), path
