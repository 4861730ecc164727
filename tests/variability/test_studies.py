"""The studies of tests/benchmarks/studies.py in short: what must hold whatever the figures are."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks.studied.networks import (
    Study,
    accuracy,
    dice,
    digits_study,
    drawn_digits,
    scikit_digits,
    segmentation_study,
    speech_study,
)
from benchmarks.studies import (
    BFLOAT16,
    DENSE,
    PRODUCTS,
    Measured,
    expected_loss_bits,
    layers_of_kind,
    measure,
    sr_against_ud,
    zero_terms,
)

NAMES = ("digits", "segmentation", "speech")


@dataclass(frozen=True)
class Runs:
    study: Study
    sr: Measured
    ud: Measured
    sr_bfloat16: Measured
    ud_bfloat16: Measured

    def all(self) -> tuple[Measured, ...]:
        return self.sr, self.ud, self.sr_bfloat16, self.ud_bfloat16


def _study(name: str) -> Study:
    if name == "digits":
        return digits_study(*drawn_digits(440), training=400, epochs=8)
    if name == "segmentation":
        return segmentation_study(steps=50, images=3)
    return speech_study(waves=1, points=1600)


@pytest.fixture(scope="module", params=NAMES)
def runs(request: pytest.FixtureRequest) -> Runs:
    study = _study(request.param)
    return Runs(
        study,
        measure(study, "sr"),
        measure(study, "ud"),
        measure(study, "sr", precision=BFLOAT16),
        measure(study, "ud", precision=BFLOAT16),
    )


def test_all_is_inside(runs: Runs) -> None:
    """Every operation of these networks is rounded one by one, and every leaf module is a layer."""
    leaves = {name for name, module in runs.study.model.named_modules() if not any(module.children())}
    for run in runs.all():
        assert run.coverage.complete, run.coverage.sentence()
        assert run.coverage.total > 0
        assert set(run.layers) == leaves


def test_flips(runs: Runs) -> None:
    """Flips are the samples that decide otherwise than the baseline; with 8 significand bits there are some."""
    for run in runs.all():
        baseline = run.baseline_scores.argmax(axis=runs.study.axis)
        otherwise = run.scores.argmax(axis=runs.study.axis + 1) != baseline
        assert (run.decisions.flips == otherwise.sum(axis=0)).all()
    assert runs.sr.decisions.flips.sum() <= runs.sr_bfloat16.decisions.flips.sum()
    assert runs.study.name == "digits" or runs.ud_bfloat16.decisions.flips.sum() > 0


def test_values(runs: Runs) -> None:
    """Accuracy, Dice and agreement of each sample are those of its own decisions, and within [0, 1]."""
    study = runs.study
    for run in runs.all():
        baseline = run.baseline_scores.argmax(axis=study.axis)
        truth = baseline if study.truth is None else study.truth
        again = _dice_by_counts if study.name == "segmentation" else _share_equal
        for scores, value in zip(run.scores, run.values, strict=True):
            assert 0 <= value <= 1
            assert value == pytest.approx(again(scores.argmax(axis=study.axis), truth), rel=1e-12)
        assert run.baseline_value == pytest.approx(again(baseline, truth), rel=1e-12)


def test_networks_have_learned(runs: Runs) -> None:
    """A study of a network that decides by chance would say nothing about decisions."""
    if runs.study.truth is None:
        pytest.skip("the weights of this network are random")
    assert runs.sr.baseline_value >= {"digits": 0.8, "segmentation": 0.3}[runs.study.name]


def test_ud_loses_bits_against_sr(runs: Runs) -> None:
    """The band: log2 √6 = 1.29 bits where all roundings are inexact, up to ½·log2 6.5 = 1.35 behind inexact layers,
    and ½·log2(1/(1 − z)) more where a share z of the terms is zero; z up to 2/3, and 0.2 for sampling error."""
    for sr, ud in ((runs.sr, runs.ud), (runs.sr_bfloat16, runs.ud_bfloat16)):
        products = sr_against_ud(sr, ud, layers_of_kind(runs.study, PRODUCTS))
        assert products.layers
        for layer in products.layers:
            assert layer.difference_bits is not None
            assert -2.1 < layer.difference_bits < -1.1, layer
        dense = sr_against_ud(sr, ud, layers_of_kind(runs.study, DENSE)).mean_difference_bits
        assert dense is None or -1.7 < dense < -1.2


@pytest.mark.parametrize("name", NAMES)
def test_same_seed_same_bits(name: str) -> None:
    """Mode, seed and sample decide every bit of every layer."""
    study = _study(name) if name == "speech" else _untrained(name)
    first, again, other = (measure(study, "sr", samples=2, seed=seed) for seed in (1, 1, 2))
    assert first.digest == again.digest
    assert first.digest != other.digest


def _untrained(name: str) -> Study:
    if name == "digits":
        return digits_study(*drawn_digits(40), training=32, epochs=0)
    return segmentation_study(steps=0, images=1)


@pytest.mark.parametrize(("zeros", "expected"), [(0, np.log2(6) / 2), (128, np.log2(12) / 2)])
def test_exact_terms_cost_ud_only(zeros: int, expected: float) -> None:
    """Why UD loses more than 1.29 bits behind ReLU: adding a product of zero is exact, which SR leaves and UD moves."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(64, 256, generator=generator)
    for row in x:
        row[torch.randperm(256, generator=generator)[:zeros]] = 0
    layer = nn.Linear(256, 32, bias=False)
    with torch.no_grad():
        layer.weight.copy_(torch.randn(32, 256, generator=generator))
    study = Study("linear", nn.Sequential(layer), x, None, "agreement", accuracy)
    (share,) = zero_terms(study).values()
    assert share == pytest.approx(zeros / 256)
    assert expected_loss_bits(share) == pytest.approx(expected)
    sr, ud = (measure(study, mode, samples=30) for mode in ("sr", "ud"))
    assert sr_against_ud(sr, ud, ("0",)).mean_difference_bits == pytest.approx(-expected, abs=0.04)


def test_padding_counts_as_zero_terms() -> None:
    """A 3 x 3 kernel padded by one over a 2 x 2 image meets 4 pixels of its 9 everywhere."""
    model = nn.Sequential(nn.Conv2d(1, 2, 3, padding=1))
    study = Study("padding", model, torch.ones(1, 1, 2, 2), None, "agreement", accuracy)
    assert zero_terms(study)["0"] == pytest.approx(5 / 9)


def test_dice_of_known_masks() -> None:
    """Two pixels of three in common for class 1, none for class 2; a class that nobody has counts as 1."""
    truth, decided = np.array([[1, 1, 0, 2]]), np.array([[1, 1, 1, 0]])
    assert dice(decided, truth) == pytest.approx((4 / 5 + 0) / 2)
    assert dice(truth, truth) == 1
    assert dice(np.zeros((1, 4), np.int64), np.zeros((1, 4), np.int64)) == 1


def test_scikit_digits_are_learned() -> None:
    """The study's own data, where scikit-learn is installed."""
    pytest.importorskip("sklearn", reason="scikit-learn is not installed; the other tests draw their digits")
    study = digits_study(*scikit_digits(), epochs=4)
    assert measure(study, "sr", samples=2).baseline_value > 0.8


def _share_equal(decided: np.ndarray, truth: np.ndarray) -> float:
    return float(np.count_nonzero(decided == truth) / truth.size)


def _dice_by_counts(decided: np.ndarray, truth: np.ndarray) -> float:
    """2·TP/(2·TP + FP + FN), from the table of confusions."""
    table = np.zeros((3, 3))
    np.add.at(table, (truth, decided), 1)
    hit = np.diag(table)
    return float((2 * hit / (table.sum(axis=0) + table.sum(axis=1)))[1:].mean())
