"""Feature maps hold what the elements' digits say: no cell makes bits up, and none is lost where layers are large."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from boundscope.variability.digits import Confidence, Digits, Kind
from boundscope.variability.maps import TILE_CELLS, bits_map

EVERYTHING = 1 << 20


def digits_of(bits: NDArray[np.float64], kinds: NDArray[np.int8] | None = None) -> Digits:
    held = np.full(bits.shape, Kind.RELATIVE, np.int8) if kinds is None else kinds
    return Digits(10, Confidence(), held, bits, bits, bits)


def test_a_small_layer_is_shown_element_by_element_at_the_mean_of_its_points() -> None:
    bits = np.arange(2 * 3 * 4 * 5, dtype=np.float64).reshape(2, 3, 4, 5) / 10
    found = bits_map(digits_of(bits), EVERYTHING)
    assert found is not None
    assert (found.channels, found.of_channels, found.block) == ((0, 1, 2), 3, 1)
    np.testing.assert_allclose(found.bits, bits.mean(axis=0), rtol=1e-6)
    assert (found.kinds == Kind.RELATIVE).all()


@pytest.mark.parametrize(
    ("shape", "planes"),
    [((7,), (1, 1, 7)), ((3, 7), (1, 3, 7)), ((2, 3, 7), (2, 3, 7)), ((2, 5, 3, 7), (10, 3, 7))],
)
def test_the_last_two_axes_are_a_picture_and_those_before_are_channels(
    shape: tuple[int, ...], planes: tuple[int, ...]
) -> None:
    found = bits_map(digits_of(np.random.default_rng(0).normal(20, 2, (2, *shape))), EVERYTHING)
    assert found is not None
    assert found.bits.shape == planes


def test_a_cell_is_called_by_the_worst_of_its_points_and_its_bits_are_of_the_inexact_ones() -> None:
    kinds = np.array(
        [
            [Kind.EXACT, Kind.EXACT, Kind.EXACT, Kind.RELATIVE, Kind.RELATIVE, Kind.ZERO_MEAN],
            [Kind.EXACT, Kind.RELATIVE, Kind.ZERO_MEAN, Kind.NAN, Kind.INFINITE, Kind.ZERO_MEAN],
        ],
        np.int8,
    )
    bits = np.where(kinds == Kind.RELATIVE, 12.0, np.nan)
    found = bits_map(digits_of(bits, kinds), EVERYTHING)
    assert found is not None
    assert found.kinds[0, 0].tolist() == [
        Kind.EXACT,
        Kind.RELATIVE,
        Kind.ZERO_MEAN,
        Kind.NAN,
        Kind.INFINITE,
        Kind.ZERO_MEAN,
    ]
    np.testing.assert_array_equal(found.bits[0, 0], np.float32([np.nan, 12, np.nan, 12, 12, np.nan]))


def test_a_large_picture_is_told_in_blocks_that_hold_all_of_its_elements() -> None:
    """The mean over all cells, weighed by their elements, is that of the layer, also where sides are no multiple."""
    bits = np.random.default_rng(1).normal(20, 2, (3, 2, 131, 77))
    found = bits_map(digits_of(bits), EVERYTHING)
    assert found is not None
    assert found.block == 2
    assert found.bits.shape == (2, 66, 39)
    rows, columns = (np.minimum(2, side - np.arange(0, side, 2)) for side in (131, 77))
    weights = np.outer(rows, columns)
    np.testing.assert_allclose(
        (found.bits * weights).sum(axis=(1, 2)), bits.mean(axis=0).sum(axis=(1, 2)), rtol=1e-5
    )
    assert found.bits[0].size <= TILE_CELLS


def test_of_too_many_channels_the_worst_are_kept_in_their_order() -> None:
    bits = np.full((1, 8, 4, 4), 22.0)
    kinds = np.full(bits.shape, Kind.RELATIVE, np.int8)
    bits[0, 5], bits[0, 2] = 3.0, 9.0
    kinds[0, 7, 0, 0], bits[0, 7, 0, 0] = Kind.NAN, np.nan
    found = bits_map(digits_of(bits, kinds), 3 * 16)
    assert found is not None
    assert (found.channels, found.of_channels) == ((2, 5, 7), 8)
    assert found.bits.shape == (3, 4, 4)


@pytest.mark.parametrize("shape", [(2,), (2, 0), (0, 3, 3)])
def test_what_has_no_axes_or_elements_has_no_map(shape: tuple[int, ...]) -> None:
    assert bits_map(digits_of(np.zeros(shape)), EVERYTHING) is None
