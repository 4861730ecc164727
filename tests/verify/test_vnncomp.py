"""On networks with known answers a verdict is never wrong, and everything of the first families loads."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from boundscope.protocol import Arithmetic, Verdict
from support.jobs import verify

FAMILIES = ("acasxu", "mnist_fc", "oval21")


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("family", FAMILIES)
def test_no_verdict_is_wrong(vnncomp: Path, family: str, arithmetic: Arithmetic) -> None:
    instances = [row for row in csv.DictReader((vnncomp / "manifest.csv").open()) if row["family"] == family]
    assert instances
    solved = 0
    for row in instances:
        result = verify(vnncomp / row["onnx"], vnncomp / row["vnnlib"], arithmetic=arithmetic)
        where = f"{row['onnx']} {row['vnnlib']}: {result.verdict}, {result.reason}"
        allowed = {Verdict.UNKNOWN, Verdict.VERIFIED if row["verdict"] == "unsat" else Verdict.VIOLATED}
        assert result.verdict in allowed, where
        if result.verdict is Verdict.VIOLATED:
            assert result.counterexample is not None
            assert result.counterexample.replay.inside_box, where
            assert result.counterexample.replay.violates, where
        solved += result.verdict is not Verdict.UNKNOWN
    assert solved > 0, f"nothing of {family} was solved"


def test_the_margin_of_mnist_256x4_is_the_known_one(vnncomp: Path) -> None:
    """CROWN's smallest margin on this instance is known from an independent prototype: 0.973."""
    folder = vnncomp / "mnist_fc"
    network, prop = folder / "onnx/mnist-net_256x4.onnx.gz", folder / "vnnlib/prop_0_0.03.vnnlib.gz"
    real = verify(network, prop)
    assert real.verdict is Verdict.VERIFIED
    assert real.margin.smallest == pytest.approx(0.973, abs=5e-4)
    deployed = verify(network, prop, arithmetic=Arithmetic.FLOAT32)
    assert deployed.verdict is Verdict.VERIFIED
    assert deployed.arithmetic == "float32 (any order)"
    assert deployed.margin.smallest is not None
    assert deployed.margin.smallest < real.margin.smallest
    assert deployed.margin.smallest == pytest.approx(0.97, abs=0.01)
