"""Each hard case gives its right answer, or an honest "unknown" where the case allows it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from boundscope import capabilities
from boundscope.errors import UsageError
from boundscope.monitor import Monitor
from boundscope.protocol import (
    Arithmetic,
    Branching,
    Method,
    Precision,
    PropertyFile,
    Sharding,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.files import JobFiles
from boundscope.worker.verify import run_verify
from support.jobs import ref, verify

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


def completely(
    network: Path, prop: Path, branching: Branching, batch: int | None, limit_s: float
) -> VerifyResult:
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        method=Method.COMPLETE,
        branching=branching,
        batch=batch,
    )
    return run_verify(job, JobFiles(network, prop), Monitor(timeout_s=limit_s), RankGroup())


@pytest.mark.parametrize("batch", [1, 7, None])
@pytest.mark.parametrize("branching", list(Branching))
def test_branch_and_bound_gives_every_case_its_answer(
    cases: Path, branching: Branching, batch: int | None
) -> None:
    """The same whatever is split, and in whatever batches; what is touched by equality alone may stay open."""
    for folder in sorted(path for path in cases.iterdir() if path.is_dir()):
        for name, expected in json.loads((folder / "expected.json").read_text())["props"].items():
            if expected["kind"] == "prism":
                continue
            may_stay_open = expected.get("checked", {}).get("exact_slack") == "0"
            limit_s = 20 if may_stay_open else 120
            result = completely(folder / "model.onnx", folder / name, branching, batch, limit_s)
            where = f"{folder.name}/{name}: {result.verdict}, {result.reason}"
            if expected["kind"] == "error":
                assert result.verdict is Verdict.ERROR, where
                continue
            allowed = {NAMES[expected["verdict"]]}
            if may_stay_open:
                allowed |= {Verdict.UNKNOWN, Verdict.TIMEOUT}
            assert result.verdict in allowed, where


def test_options_go_together_or_are_refused_by_name(cases: Path) -> None:
    """Every combination of methods with what belongs to one of them runs, or names the option that does not fit."""
    network, prop = cases / "BND-06/model.onnx", cases / "BND-06/prop.vnnlib"
    for method in Method:
        for branching in Branching:
            for batch in (None, 3):
                for ranks, sharding in ((1, Sharding.NONE), (1, Sharding.ROWS), (2, Sharding.NONE)):
                    job = VerifyJob(
                        network=ref(network),
                        property=PropertyFile(file=ref(prop)),
                        method=method,
                        branching=branching,
                        batch=batch,
                        ranks=ranks,
                        sharding=sharding,
                    )
                    try:
                        capabilities.check(job)
                    except UsageError as error:
                        named = ("--branching", "--batch", "--ranks")
                        assert any(word in str(error) for word in named)  # noqa: PT017 - a refusal is one of two ends
                        continue
                    result = run_verify(job, JobFiles(network, prop), Monitor(timeout_s=120), RankGroup())
                    assert result.verdict is Verdict.VERIFIED, (job, result.reason)
