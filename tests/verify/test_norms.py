"""ε-balls of every norm, from the centre's file to the verdict: proven where small, refuted where large."""

from __future__ import annotations

import dataclasses
import json
import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.properties.types import Box
from boundscope.protocol import (
    Arithmetic,
    EpsilonBall,
    Method,
    Norm,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.search import attack_side, ball_reader, regions
from boundscope.search.ball_reader import judge
from boundscope.sharding.ranks import RankGroup
from boundscope.worker import witness
from boundscope.worker.files import JobFiles
from boundscope.worker.verify import run_verify
from support.jobs import ref
from support.models import mlp

WIDTHS = [12, 24, 24, 3]
SMALL = {Norm.LINF: "0.01", Norm.L2: "0.03", Norm.L1: "0.05", Norm.L0: "0"}
LARGE = {Norm.LINF: "0.5", Norm.L2: "1.5", Norm.L1: "4", Norm.L0: "8"}


class Example:
    """A network and a centre in [0, 1] with the label that it has there."""

    def __init__(self, folder: Path) -> None:
        self.network = mlp(folder / "n.onnx", WIDTHS, seed=4)
        self.values = np.round(np.random.default_rng(2).random(12), 2).astype(np.float32)
        self.centre = folder / "centre.npy"
        np.save(self.centre, self.values)
        self.label = int(self.outputs(self.values).argmax())

    def outputs(self, point: np.ndarray) -> np.ndarray:
        x = torch.from_numpy(point.astype(np.float64)).reshape(1, 12)
        return load_network(self.network).evaluate({"x": x})["y"].numpy().ravel()

    def ball(self, norm: Norm, epsilon: str, **options: Any) -> EpsilonBall:
        clip = {"lower": "0", "upper": "1"}
        label = options.pop("label", self.label)
        return EpsilonBall(
            center=ref(self.centre), epsilon=epsilon, label=label, norm=norm, **{**clip, **options}
        )

    def verify(
        self,
        ball: EpsilonBall,
        *,
        method: Method = Method.CROWN,
        arithmetic: Arithmetic = Arithmetic.REAL,
        centre: Path | None = None,
    ) -> VerifyResult:
        job = VerifyJob(network=ref(self.network), property=ball, method=method, arithmetic=arithmetic)
        files = JobFiles(self.network, centre or self.centre)
        return run_verify(job, files, Monitor(timeout_s=120), RankGroup())


@pytest.fixture
def example(tmp_path: Path) -> Example:
    return Example(tmp_path)


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("norm", list(Norm))
def test_a_small_ball_is_verified(example: Example, norm: Norm, arithmetic: Arithmetic) -> None:
    result = example.verify(example.ball(norm, SMALL[norm]), arithmetic=arithmetic)
    assert result.verdict is Verdict.VERIFIED, result.reason
    assert result.margin.smallest is not None
    assert result.margin.smallest > 0
    assert f"--norm {norm} --epsilon={SMALL[norm]} " in result.command


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("norm", list(Norm))
def test_a_large_ball_is_violated_by_an_input_inside_it(
    example: Example, norm: Norm, arithmetic: Arithmetic
) -> None:
    """The witness is measured here once more, with numpy: within ε, within the clip range, and of another label."""
    ball = example.ball(norm, LARGE[norm])
    result = example.verify(ball, arithmetic=arithmetic)
    assert result.verdict is Verdict.VIOLATED, result.reason
    found = result.counterexample
    assert found is not None
    assert found.replay.inside_box
    assert judge(ball, example.centre, (1, 12), found.inputs).inside
    changes = [
        Fraction(text) - Fraction(float(c)) for text, c in zip(found.inputs, example.values, strict=True)
    ]
    size = {
        Norm.LINF: max(map(abs, changes)),
        Norm.L2: sum(change**2 for change in changes),
        Norm.L1: sum(map(abs, changes)),
        Norm.L0: sum(change != 0 for change in changes),
    }[norm]
    assert size <= Fraction(LARGE[norm]) ** (2 if norm is Norm.L2 else 1)
    point = np.array([float(text) for text in found.inputs])
    assert ((point >= 0) & (point <= 1)).all()
    assert example.outputs(point).argmax() != example.label


def test_a_ball_is_verified_where_the_box_around_it_is_violated(example: Example) -> None:
    """The same ε, decided differently by the norm: neither answer may stand for the other."""
    verdicts = {}
    for norm in (Norm.LINF, Norm.L2, Norm.L1):
        verdicts[norm] = example.verify(example.ball(norm, "0.4"), method=Method.ALPHA_CROWN).verdict
    assert verdicts[Norm.L1] is Verdict.VERIFIED
    assert verdicts[Norm.L2] is Verdict.VERIFIED
    assert verdicts[Norm.LINF] is Verdict.VIOLATED


def test_one_input_may_change_and_not_two(example: Example) -> None:
    """L0 with k inputs is proven for a small k and refuted for a large one, and no witness changes more than k."""
    seen = {}
    for k in range(5):
        result = example.verify(example.ball(Norm.L0, str(k)), method=Method.ALPHA_CROWN)
        seen[k] = result.verdict
        if result.counterexample is not None:
            changed = [
                Fraction(text) != Fraction(float(c))
                for text, c in zip(result.counterexample.inputs, example.values, strict=True)
            ]
            assert sum(changed) <= k
    assert seen[0] is Verdict.VERIFIED
    assert list(seen.values()) == sorted(
        seen.values(), key=[Verdict.VERIFIED, Verdict.UNKNOWN, Verdict.VIOLATED].index
    )


@pytest.mark.parametrize(
    ("norm", "small", "large"), [(Norm.L2, "0.02", "2"), (Norm.L1, "0.03", "5"), (Norm.L0, "0", "9")]
)
def test_a_png_with_mean_and_deviation(
    example: Example, tmp_path: Path, norm: Norm, small: str, large: str
) -> None:
    """Pixels / 255 are no finite decimals, so the witness of an L0 ball is written to 25 digits where unchanged."""
    path = tmp_path / "centre.png"
    Image.fromarray((example.values.reshape(1, 12) * 255).astype(np.uint8)).save(path)
    pixels = (example.values * 255).astype(np.uint8) / 255
    options = {
        "mean": ("0.1",),
        "std": ("0.7",),
        "label": int(example.outputs((pixels - 0.1) / 0.7).argmax()),
    }
    verified = example.verify(example.ball(norm, small, **options), centre=path)
    assert verified.verdict is Verdict.VERIFIED, verified.reason
    ball = example.ball(norm, large, **options)
    violated = example.verify(ball, centre=path)
    assert violated.verdict is Verdict.VIOLATED, violated.reason
    assert violated.counterexample is not None
    assert judge(ball, path, (1, 12), violated.counterexample.inputs).inside


def test_what_is_outside_the_ball_is_never_a_witness(example: Example) -> None:
    """With the centre's own label wrong everywhere, the centre itself violates; an empty ball has nothing to show."""
    result = example.verify(example.ball(Norm.L2, "0", label=(example.label + 1) % 3))
    assert result.verdict is Verdict.VIOLATED
    assert result.counterexample is not None
    assert [float(text) for text in result.counterexample.inputs] == example.values.astype(
        np.float64
    ).tolist()
    outside = example.verify(example.ball(Norm.L1, "0.1", lower="0.9", upper="1"))
    assert outside.verdict is Verdict.ERROR
    assert "clip range" in outside.reason


@pytest.mark.parametrize("trusted", ["nobody", "the solver's reader", "the replay's reader"])
def test_an_attack_that_leaves_the_ball_finds_nothing(
    example: Example, monkeypatch: pytest.MonkeyPatch, trusted: str
) -> None:
    """The box around this ball is violated and the ball is not: two readers stand in the way, each of them enough."""

    def in_the_box(boxes: Sequence[Box], dtype: torch.dtype) -> regions.Regions:
        return regions.Regions([dataclasses.replace(box, ball=None) for box in boxes], dtype)

    monkeypatch.setattr(attack_side, "Regions", in_the_box)
    monkeypatch.setattr(witness, "_may_be_inside", lambda *_: True)
    if trusted == "the replay's reader":
        monkeypatch.setattr(witness, "inside", lambda *_: True)
    elif trusted == "the solver's reader":
        monkeypatch.setattr(ball_reader, "judge", lambda *_: ball_reader.BallAnswer(True, ""))
    result = example.verify(example.ball(Norm.L2, "0.4"), method=Method.ALPHA_CROWN)
    assert result.verdict is Verdict.VERIFIED, result.reason


@pytest.mark.parametrize(
    ("norm", "epsilon", "status"), [(Norm.L2, "0.03", 0), (Norm.L1, "4", 10), (Norm.L0, "8", 10)]
)
def test_the_command_line(example: Example, norm: Norm, epsilon: str, status: int) -> None:
    line = [sys.executable, "-m", "boundscope", "verify", str(example.network), "--ball", str(example.centre)]
    line += [
        "--norm",
        norm,
        "--epsilon",
        epsilon,
        "--label",
        str(example.label),
        "--clip",
        "0",
        "1",
        "--json",
        "-",
    ]
    done = subprocess.run(line, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == status, done.stderr
    answer = json.loads(done.stdout)
    assert answer["verdict"] == ("verified" if status == 0 else "violated")
    assert f"--norm {norm} --epsilon={epsilon} " in answer["command"]
