"""Decisions: flips are counted against the baseline, and margins against their own noise."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from boundscope.errors import VariabilityError
from boundscope.variability.decisions import NO_DECISION, Decisions

BASELINE = np.array([[3, 1, 0], [0, 2, 1.5], [1, 1, 0]], np.float32)


def taken(baseline: np.ndarray, samples: np.ndarray, axis: int = -1) -> Decisions:
    decisions = Decisions(baseline, axis, "logits")
    for number, scores in enumerate(samples):
        decisions.update(number, scores)
    return decisions


def test_flips_and_margins() -> None:
    """A flip is another argmax than the baseline's; the margin is the baseline's winner minus the best other."""
    samples = np.stack([BASELINE] * 4)
    samples[1, 1] = [0, 2, 2.5]
    samples[3, 2] = [1, 1.5, 0]
    totals = taken(BASELINE, samples).totals()
    assert totals.baseline.tolist() == [0, 1, 0]
    assert totals.flips.tolist() == [0, 1, 1]
    assert totals.margin_baseline.tolist() == [2, 0.5, 0]
    np.testing.assert_allclose(totals.margin_mean, [2, 0.25, -0.125])
    np.testing.assert_allclose(totals.margin_std, [0, 0.5, 0.25])
    np.testing.assert_allclose(totals.noise_margin, [np.inf, 0.5, -0.5])
    summary = totals.summary()
    assert (summary.decisions, summary.flipped, summary.flips) == (3, 2, 2)
    assert summary.least_noise_margin == -0.5
    assert summary.sentence() == (
        "2 of 3 decisions flip in at least one of 4 samples (2 flips in all); "
        "the closest margin is -0.5 deviations of its own noise"
    )
    far = dataclasses.replace(summary, least_noise_margin=8.3327e5)
    assert "the closest margin is 833\u202f000 deviations" in far.sentence()


def test_flips_are_as_frequent_as_the_noise_says() -> None:
    """A margin of m deviations flips in a share of the samples that the normal distribution gives."""
    rng = np.random.default_rng(1)
    baseline = np.tile([1.0, 0.0], (200, 1))
    sigma = 1 / np.sqrt(2)  # of each score, so that the margin's is 1
    totals = taken(baseline, baseline + sigma * rng.normal(size=(100, 200, 2))).totals()
    expected = stats.norm.sf(1)
    share = totals.flips.sum() / 20_000
    assert abs(share - expected) < 5 * np.sqrt(expected * (1 - expected) / 20_000)
    assert np.median(totals.noise_margin) == pytest.approx(1, abs=0.05)


def test_segmentation() -> None:
    """Along another axis, every pixel is a decision."""
    scores = np.random.default_rng(2).normal(size=(5, 2, 4, 3, 3)).astype(np.float32)
    totals = taken(scores[0], scores, axis=1).totals()
    assert totals.flips.shape == (2, 3, 3)
    expected = (scores.argmax(axis=2) != scores[0].argmax(axis=1)).sum(axis=0)
    np.testing.assert_array_equal(totals.flips, expected)


def test_a_single_decision() -> None:
    """Scores without a batch are one decision."""
    scores = np.array([[1.0, 0.5], [0.0, 0.5]])
    totals = taken(scores[0], scores).totals()
    assert (totals.flips.shape, int(totals.flips), float(totals.margin_mean)) == ((), 1, 0.0)
    assert totals.summary().decisions == 1


def test_nan_scores_are_no_flips() -> None:
    """NaN scores decide nothing: such samples are counted apart, and such a baseline is not judged."""
    baseline = np.array([[1, 0], [np.nan, 0], [1, 0]], np.float32)
    samples = np.array([[[1, 0], [1, 0], [1, np.nan]], [[0, 1], [0, 1], [1, 0]]], np.float32)
    totals = taken(baseline, samples).totals()
    assert totals.baseline.tolist() == [0, NO_DECISION, 0]
    assert totals.flips.tolist() == [1, 0, 0]
    assert totals.undecided.tolist() == [0, 0, 1]
    assert np.isnan(totals.noise_margin).tolist() == [False, True, True]
    text = totals.summary().sentence()
    assert "1 have NaN scores in some sample" in text
    assert "1 have NaN scores without any perturbation" in text


def test_masked_classes() -> None:
    """Scores of -inf, as masks leave them, decide as any other score."""
    baseline = np.array([[1, 0.5, -np.inf]], np.float32)
    totals = taken(baseline, np.stack([baseline, baseline[:, [1, 0, 2]]])).totals()
    assert totals.flips.tolist() == [1]
    assert totals.margin_mean.tolist() == [0]


def test_a_tie_that_never_moves_has_no_margin() -> None:
    """Equal scores are decided by order alone: no flip, and a margin of 0 deviations and not NaN."""
    totals = taken(BASELINE, np.stack([BASELINE] * 3)).totals()
    assert totals.noise_margin.tolist() == [np.inf, np.inf, 0]
    assert totals.summary().least_noise_margin == 0


@settings(max_examples=50, deadline=None)
@given(
    count=st.integers(2, 20),
    ranks=st.integers(1, 5),
    shuffle=st.randoms(use_true_random=False),
    seed=st.integers(0, 99),
)
def test_any_grouping(count: int, ranks: int, shuffle: object, seed: int) -> None:
    """Decisions merged over ranks, through their arrays, are the same bits as those of one process."""
    samples = np.random.default_rng(seed).normal(size=(count, 4, 3)).astype(np.float32)
    expected = taken(samples[0], samples).totals()
    numbers = list(range(count))
    shuffle.shuffle(numbers)  # type: ignore[attr-defined]
    parts = []
    for rank in range(ranks):
        part = Decisions(samples[0], -1, "logits")
        for number in numbers[rank::ranks]:
            part.update(number, samples[number])
        parts.append(Decisions.from_state(part.state(), "logits"))
    while len(parts) > 1:
        parts[0].merge(parts.pop())
    assert parts[0].numbers == tuple(range(count))
    for name, value in vars(expected).items():
        assert np.asarray(vars(parts[0].totals())[name]).tobytes() == np.asarray(value).tobytes()


def test_what_is_refused() -> None:
    """No second class, other shapes, samples taken twice, other baselines and single samples are refused by name."""
    for scores, axis in ((np.zeros((3, 1)), -1), (np.zeros(()), 0), (np.zeros((3, 2)), 2)):
        with pytest.raises(VariabilityError, match="logits: a decision needs at least two classes"):
            Decisions(scores, axis, "logits")
    decisions = taken(BASELINE, BASELINE[None])
    with pytest.raises(VariabilityError, match=r"logits: .*at least 2 samples, here are 1"):
        decisions.totals()
    with pytest.raises(VariabilityError, match=r"shape \(2, 3\)"):
        decisions.update(1, BASELINE[:2])
    with pytest.raises(VariabilityError, match="sample 0 is there already"):
        decisions.update(0, BASELINE)
    with pytest.raises(VariabilityError, match="different baselines"):
        decisions.merge(Decisions(BASELINE[:, ::-1].copy(), -1, "logits"))
    with pytest.raises(VariabilityError, match="no decisions"):
        Decisions.from_state({})
