"""Each hard case gives its right answer, or an honest "unknown" where the case allows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundscope.protocol import Arithmetic, Method, Precision, Verdict
from support.jobs import verify

NAMES = {"sat": Verdict.VIOLATED, "unsat": Verdict.VERIFIED}


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN])
def test_every_case(cases: Path, method: Method) -> None:
    seen = 0
    for folder in sorted(path for path in cases.iterdir() if path.is_dir()):
        for name, expected in json.loads((folder / "expected.json").read_text())["props"].items():
            if expected["kind"] == "prism":
                continue
            result = verify(folder / "model.onnx", folder / name, method=method)
            where = f"{folder.name}/{name}: {result.verdict}, {result.reason}"
            seen += 1
            if expected["kind"] == "error":
                assert result.verdict is Verdict.ERROR, where
                continue
            allowed = {NAMES[expected["verdict"]]}
            if "unknown" in expected.get("acceptable_if_incomplete", ()):
                allowed.add(Verdict.UNKNOWN)
            assert result.verdict in allowed, where
    assert seen > 20


# What an incomplete method cannot give, and why; everything else of the bounds and the operators must be decided.
UNDECIDED = {
    ("BND-02", "prop.vnnlib"): "ibp",  # the two ReLUs share an input, which intervals forget
    ("BND-04", "prop_b.vnnlib"): "float32",  # absorption: what float32 makes of it is known to no bound
    ("BND-09", "prop_b.vnnlib"): "float32",  # its margin is smaller than the rounding of the network
}


@pytest.mark.parametrize("precision", list(Precision))
@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN])
def test_bounds_and_operators_are_decided_by_every_method_that_can(
    cases: Path, method: Method, arithmetic: Arithmetic, precision: Precision
) -> None:
    """Each case of bounds or of operators is decided, rightly, in either arithmetic and either precision."""
    seen = 0
    for folder in sorted(path for path in cases.iterdir() if path.name.startswith(("BND-", "ONX-"))):
        for name, expected in json.loads((folder / "expected.json").read_text())["props"].items():
            result = verify(
                folder / "model.onnx",
                folder / name,
                method=method,
                arithmetic=arithmetic,
                precision=precision,
            )
            where = f"{folder.name}/{name}: {result.verdict}, {result.reason}"
            seen += 1
            if UNDECIDED.get((folder.name, name)) in (str(method), str(arithmetic)):
                assert result.verdict is Verdict.UNKNOWN, where
            elif expected["kind"] == "error":
                assert result.verdict is Verdict.ERROR, where
            elif expected.get("ort_violates") and arithmetic is Arithmetic.FLOAT32:
                assert result.verdict is Verdict.VIOLATED, where
            else:
                assert result.verdict is NAMES[expected["verdict"]], where
    assert seen > 15


def test_refusals_name_what_is_wrong(cases: Path) -> None:
    nan = verify(cases / "ONX-08/model.onnx", cases / "ONX-08/prop.vnnlib")
    assert "'W1'" in nan.reason
    assert "layer1_gemm" in nan.reason
    unbounded = verify(cases / "VNN-07/model.onnx", cases / "VNN-07/prop.vnnlib")
    assert "X_1 has no upper bound" in unbounded.reason


def test_both_arithmetics_of_absorption_are_told_apart(cases: Path) -> None:
    """16777216 + x absorbs x in float32: proven over the reals, violated as deployed, and the other way round."""
    folder = cases / "BND-04"
    real = verify(folder / "model.onnx", folder / "prop.vnnlib")
    assert (real.verdict, real.arithmetic) == (Verdict.VERIFIED, "real")
    assert "ONNX Runtime in float32 violates" in real.reason
    assert real.counterexample is not None
    deployed = verify(folder / "model.onnx", folder / "prop.vnnlib", arithmetic=Arithmetic.FLOAT32)
    assert deployed.verdict is Verdict.VIOLATED
    other = verify(folder / "model.onnx", folder / "prop_b.vnnlib")
    assert other.verdict is Verdict.VIOLATED
    assert "over the reals, but not when replayed" in other.reason
    assert verify(folder / "model.onnx", folder / "prop_b.vnnlib", arithmetic=Arithmetic.FLOAT32).verdict in (
        Verdict.VERIFIED,
        Verdict.UNKNOWN,
    )
