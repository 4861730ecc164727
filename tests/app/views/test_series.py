"""Thinning keeps what people look for, scales keep order and sign, and cutting loses nothing inside."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PySide6.QtCore import QRectF

from boundscope_app.plots.clip import clip_line
from boundscope_app.plots.scale import LinearScale, SignedLogScale, signed_log_for
from boundscope_app.plots.series import Growing, from_time, hold, last_before, thin_line, thin_stack

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False)


def test_growing_converts_only_what_is_new_and_counts_what_is_not_finite() -> None:
    values: list[float | None] = [1.0, None, math.nan]
    array = Growing()
    assert array.follow(values)
    values += [math.inf, -2.5] + [3.0] * 200
    assert array.follow(values)
    assert not array.follow(values)
    assert array.bad == 2
    assert len(array.values) == len(values)
    np.testing.assert_array_equal(array.values[:5], [1.0, np.nan, np.nan, np.nan, -2.5])


@given(st.integers(0, 2**32 - 1), st.integers(1, 900), st.integers(10, 60))
def test_thinning_keeps_the_extremes_and_the_ends(seed: int, count: int, buckets: int) -> None:
    random = np.random.default_rng(seed)
    y = random.standard_cauchy(count)
    x = np.cumsum(random.exponential(size=count))
    thin_x, thin_y = thin_line(x, y, buckets)
    assert thin_y.max() == y.max()
    assert thin_y.min() == y.min()
    assert (thin_x[0], thin_x[-1]) == (x[0], x[-1])
    assert thin_y[-1] == y[-1]
    assert np.all(np.diff(thin_x) >= 0)
    assert len(thin_x) <= max(4 * buckets, 2 * buckets + 2)


def test_a_long_stretch_of_nan_stays_a_gap() -> None:
    y = np.ones(10_000)
    y[4000:6000] = np.nan
    _, thin_y = thin_line(np.arange(10_000.0), y, 500)
    assert 98 <= np.count_nonzero(np.isnan(thin_y)) / 2 <= 100


def test_a_stack_keeps_the_moment_of_its_peak_whole() -> None:
    total = np.sin(np.arange(20_000) * 0.01) + 2
    total[13_777] = 9.0
    kept = thin_stack(np.arange(20_000.0), total, 300)
    assert 13_777 in kept
    assert len(kept) <= 602
    assert np.all(np.diff(kept) > 0)


def test_a_bound_holds_until_the_next_one_and_the_last_until_the_end() -> None:
    x, y = hold(np.array([1.0, 2.0]), np.array([5.0, 7.0]), 4.0)
    assert list(zip(x, y, strict=True)) == [(1, 5), (2, 5), (2, 7), (4, 7)]
    x, y = from_time(x, y, 1.5)
    assert list(zip(x, y, strict=True)) == [(1.5, 5), (2, 5), (2, 7), (4, 7)]


def test_reading_at_a_time_gives_the_last_finite_value_before() -> None:
    x, y = np.array([1.0, 2.0, 3.0]), np.array([5.0, np.nan, 7.0])
    assert last_before(x, y, 0.5) is None
    assert last_before(x, y, 2.5) == 5.0
    assert last_before(x, y, 3.0) == 7.0


@given(NUMBERS, NUMBERS)
def test_signed_log_keeps_order_sign_and_zero(first: float, second: float) -> None:
    scale = SignedLogScale(1e-3)
    places = scale.to(np.array([first, second, 0.0]))
    assert places[2] == 0.0
    assert np.sign(places[0]) == np.sign(first)
    if first < second:
        assert places[0] <= places[1]
    assert scale.back(float(places[0])) == pytest.approx(first, rel=1e-6, abs=1e-12)


def test_the_linear_part_reaches_to_the_smallest_sizes_but_not_to_a_stray_one() -> None:
    assert signed_log_for(np.array([0.0, -250.0, 0.03, np.nan])).threshold == pytest.approx(0.01)
    noisy = np.concatenate((np.linspace(0.2, 5, 200), [1e-9]))
    assert signed_log_for(noisy).threshold == pytest.approx(0.1)
    assert signed_log_for(np.array([0.0, np.nan])).threshold == 1.0


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3.7, 12), (1e12, 1e12 + 2000), (0, 1e-9), (-1e6, 1e6), (0.3, 0.30001)]
)
def test_linear_ticks_are_within_the_axis_and_their_labels_differ(low: float, high: float) -> None:
    ticks = LinearScale().ticks(low, high, 8)
    labels = [tick.label for tick in ticks if tick.label]
    assert 2 <= len(labels) <= 12
    assert len(set(labels)) == len(labels)
    span = high - low
    assert all(low - 1e-6 * span <= tick.place <= high + 1e-6 * span for tick in ticks)


@pytest.mark.parametrize(("low", "high"), [(-6.2, 4.1), (0.2, 0.9), (2.1, 2.8), (-12.0, 14.0), (-0.5, 0.5)])
def test_signed_log_ticks_are_within_the_axis_and_their_labels_differ(low: float, high: float) -> None:
    ticks = SignedLogScale(1e-3).ticks(low, high, 9)
    labels = [tick.label for tick in ticks if tick.label]
    assert 2 <= len(labels) <= 12
    assert len(set(labels)) == len(labels)
    assert all(low - 1e-6 <= tick.place <= high + 1e-6 for tick in ticks)


def test_ticks_write_true_minus_signs_and_powers_of_ten() -> None:
    labels = {tick.label for tick in SignedLogScale(1e-6).ticks(-8.0, 14.0, 25)}
    assert {"0", "−10⁻³", "10⁰", "10⁷", "−10⁻⁵"} <= labels


@given(st.lists(st.tuples(st.floats(-50, 150), st.floats(-50, 150)), min_size=2, max_size=30))
def test_a_cut_line_lies_within_the_rectangle_and_keeps_its_inner_points(
    points: list[tuple[float, float]],
) -> None:
    x, y = np.array(points).T
    rect = QRectF(0, 0, 100, 100)
    pieces = clip_line(x, y, rect)
    cut = {(round(float(a), 6), round(float(b), 6)) for px, py in pieces for a, b in zip(px, py, strict=True)}
    for a, b in cut:
        assert -1e-6 <= a <= 100 + 1e-6
        assert -1e-6 <= b <= 100 + 1e-6
    for a, b in points:
        if 0 < a < 100 and 0 < b < 100:
            assert (round(a, 6), round(b, 6)) in cut


def test_a_line_that_crosses_the_rectangle_is_cut_at_its_edges() -> None:
    ((x, y),) = clip_line(np.array([-10.0, 110.0]), np.array([-10.0, 110.0]), QRectF(0, 0, 100, 100))
    np.testing.assert_allclose(x, [0, 100])
    np.testing.assert_allclose(y, [0, 100])
    assert clip_line(np.array([-10.0, -5.0]), np.array([0.0, 50.0]), QRectF(0, 0, 100, 100)) == []
