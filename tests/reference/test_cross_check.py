"""Two engines that cannot both be right are an error with both numbers; honest differences are only reported."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
import torch

from boundscope.errors import BoundscopeError, UsageError
from boundscope.network.graph import Network
from boundscope.protocol import Event, InspectJob, JobInfo, JobState, LogLine, Method, Verdict
from boundscope.records import JobRecord
from boundscope.reference import compat
from boundscope.reference.engine import ReferenceEngine
from boundscope.report.page import page
from boundscope.report.pictures import Pictures
from boundscope.worker import crosscheck
from support.jobs import verify
from support.models import box_property, convnet, mlp

pytestmark = pytest.mark.skipif(not compat.version(), reason="auto_LiRPA is not installed")


def small(tmp_path: Path, asserts: str) -> tuple[Path, Path]:
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-0.1] * 6, [0.1] * 6, 3, asserts))
    return mlp(tmp_path / "n.onnx", [6, 20, 20, 3], seed=3), prop


def plant(monkeypatch: pytest.MonkeyPatch, name: str, index: tuple[int, ...], change: float) -> None:
    """Give auto_LiRPA the network with one number changed."""

    class Other(ReferenceEngine):
        def __init__(self, network: Network, *rest: object) -> None:
            constants = {key: np.array(value) for key, value in network.constants.items()}
            constants[name][index] += np.float32(change)
            super().__init__(dataclasses.replace(network, constants=constants), *rest)  # type: ignore[arg-type]

        @property
        def precise(self) -> ReferenceEngine:
            return ReferenceEngine(self.network, self.monitor, torch.float64)

    monkeypatch.setattr(crosscheck, "ReferenceEngine", Other)


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN, Method.ALPHA_CROWN])
def test_engines_that_agree_change_no_verdict(tmp_path: Path, method: Method) -> None:
    onnx, prop = small(tmp_path, "(assert (or (and (>= Y_1 4)) (and (>= Y_2 3))))")
    events: list[Event] = []
    result = verify(onnx, prop, method=method, cross_check=True, emit=events.append)
    plain = verify(onnx, prop, method=method)
    assert (result.verdict, result.reason) == (plain.verdict, plain.reason)
    assert [one.lower for one in result.margin.per_clause] == [one.lower for one in plain.margin.per_clause]
    assert "--cross-check" in result.command
    check = result.cross_check
    assert check is not None
    assert check.engine == f"auto_LiRPA {compat.version()}"
    assert check.disagreements == ()
    assert {layer.tensor for layer in check.layers} >= {"z1", "z2"}
    assert all(layer.unlike == 0 for layer in check.layers)
    assert check.margin_difference is not None
    if method is not Method.IBP:
        assert check.same_layers_difference is not None
        assert check.same_layers_difference < 1e-5
    lines = [event.text for event in events if isinstance(event, LogLine)]
    assert any(
        line.startswith("cross-check with auto_LiRPA") and "margins differ by at most" in line
        for line in lines
    )
    assert plain.cross_check is None


def test_a_changed_bias_is_found_in_its_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One bias moved by more than the layer's range: intervals without a common point, and both are told."""
    onnx, prop = small(tmp_path, "(assert (>= Y_1 4))")
    plant(monkeypatch, "b1", (7,), 3.0)
    result = verify(onnx, prop, cross_check=True)
    assert result.verdict is Verdict.ERROR
    assert result.verdict.exit_code == 1
    assert "the engines disagree: case 0, tensor 'z1', element 7: native proves" in result.reason
    assert result.cross_check is not None
    assert any(layer.tensor == "z1" and layer.unlike == 1 for layer in result.cross_check.layers)


def test_a_changed_output_bias_is_found_in_the_margins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The hidden layers agree, but a margin is proven that inputs of the box do not have."""
    onnx, prop = small(tmp_path, "(assert (>= Y_1 4))")
    plant(monkeypatch, "b3", (1,), -3.0)
    result = verify(onnx, prop, cross_check=True)
    assert result.verdict is Verdict.ERROR
    assert f"auto_LiRPA {compat.version()} proves a margin of at least" in result.reason
    assert "and an input of the box gives" in result.reason


def test_a_proof_against_a_counterexample_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attack violates what the other engine proves."""
    onnx, prop = small(tmp_path, "(assert (>= Y_1 -4))")
    assert verify(onnx, prop, cross_check=True).verdict is Verdict.VIOLATED
    plant(monkeypatch, "b3", (1,), -20.0)
    result = verify(onnx, prop, cross_check=True)
    assert result.verdict is Verdict.ERROR
    assert "Y_1" in result.reason
    assert result.counterexample is not None


def test_a_change_within_the_bounds_is_reported_and_no_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A looser bound contradicts nothing, but on equal hidden bounds the difference shows."""
    onnx, prop = small(tmp_path, "(assert (>= Y_1 4))")
    plant(monkeypatch, "b3", (1,), 1e-3)
    result = verify(onnx, prop, cross_check=True)
    assert result.verdict is Verdict.VERIFIED
    assert result.cross_check is not None
    assert result.cross_check.same_layers_difference is not None
    assert result.cross_check.same_layers_difference > 1e-5


def test_what_cannot_be_compared_leaves_the_verdict_and_is_said(tmp_path: Path) -> None:
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-0.01] * 72, [0.01] * 72, 3, "(assert (>= Y_0 50))"))
    onnx = convnet(tmp_path / "n.onnx", seed=4)
    assert verify(onnx, prop, cross_check=True).verdict is Verdict.VERIFIED
    prop.write_text(box_property([-0.01] * 72, [0.01] * 72, 3, "(assert (>= (+ Y_0 X_0) 50))"))
    result = verify(onnx, prop, cross_check=True)
    assert result.verdict is Verdict.VERIFIED
    assert result.cross_check is not None
    assert result.cross_check.margin_difference is None
    assert result.cross_check.layers


def test_options_that_do_not_go_together_are_refused() -> None:
    from boundscope import capabilities
    from boundscope.protocol import Arithmetic, Engine, FileRef, PropertyFile, Sharding, VerifyJob

    some = FileRef(name="n.onnx", sha256="0" * 64, size_bytes=1)

    def job(**fields: object) -> VerifyJob:
        return VerifyJob(network=some, property=PropertyFile(file=some), **fields)  # type: ignore[arg-type]

    capabilities.check(job(engine=Engine.AUTO_LIRPA))
    for sharding in (Sharding.FSDP, Sharding.TP):
        capabilities.check(job(engine=Engine.AUTO_LIRPA, sharding=sharding, ranks=2))
    capabilities.check(job(cross_check=True))
    for wrong, said in (
        (job(engine=Engine.AUTO_LIRPA, arithmetic=Arithmetic.FLOAT32), "speak of the reals only"),
        (job(engine=Engine.AUTO_LIRPA, sharding=Sharding.ROWS, ranks=2), "--sharding fsdp or tp goes"),
        (job(engine=Engine.AUTO_LIRPA, sharding=Sharding.TP_EXACT, ranks=2), "--sharding fsdp or tp goes"),
        (
            job(engine=Engine.AUTO_LIRPA, sharding=Sharding.TP, ranks=2, method=Method.COMPLETE),
            "its bounds are never proofs of parts of a box",
        ),
        (
            job(engine=Engine.AUTO_LIRPA, chunk_rows=16),
            "--chunk-rows 16 does not go with --engine auto_lirpa",
        ),
        (job(engine=Engine.AUTO_LIRPA, cross_check=True), "compares --engine native with it"),
        (job(cross_check=True, sharding=Sharding.ROWS, ranks=2), "--cross-check runs on one rank"),
    ):
        with pytest.raises(UsageError, match=said):
            capabilities.check(wrong)


def test_the_report_and_the_tables_tell_of_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One CSV more and a section of the page, with the tensors and what the engines disagree about."""
    onnx, prop = small(tmp_path, "(assert (>= Y_1 4))")
    plant(monkeypatch, "b1", (7,), 3.0)
    result = verify(onnx, prop, cross_check=True)
    record = JobRecord(result=result)
    table = record.tables()[-1]
    assert table.name == "cross_check"
    assert (0, "z1", 20) in [row[:3] for row in table.rows]
    info = JobInfo(id="1", kind="verify", title="t", state=JobState.FINISHED, job=InspectJob(), created_s=0.0)
    text = page(record, info, Pictures(()))
    assert "<h2>Cross-check</h2>" in text
    assert "tensor &#x27;z1&#x27;, element 7: native proves" in text
    assert JobRecord(result=verify(onnx, prop)).tables()[-1].name == "log"


def test_where_the_other_engine_fails_the_verdict_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A case that auto_LiRPA cannot bound is no disagreement: our verdict stays, and its reason says so."""

    def fail(self: ReferenceEngine, *_: object, **__: object) -> None:
        raise BoundscopeError("auto_LiRPA fails on this network")

    onnx, prop = small(tmp_path, "(assert (>= Y_1 4))")
    monkeypatch.setattr(ReferenceEngine, "bounds", fail)
    result = verify(onnx, prop, cross_check=True)
    assert result.verdict is Verdict.VERIFIED
    assert "not cross-checked: auto_LiRPA fails on this network" in result.reason
