"""ε-balls: the box holds exactly the points within ε, cut to the clip range, in the network's own order."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from boundscope.errors import PropertyError
from boundscope.properties import Property, ball_property, read_property, to_vnnlib
from boundscope.protocol import EpsilonBall, FileRef
from properties.oracle import meaning

ROUNDED = Fraction(1, 10**22)  # more than what rounding to 25 digits loses here


def ball(path: Path, **options: Any) -> EpsilonBall:
    return EpsilonBall(
        center=FileRef(name=path.name, sha256="", size_bytes=0), **{"epsilon": "0.1", "label": 0, **options}
    )


def npy(folder: Path, values: Any, dtype: str = "float32") -> Path:
    path = folder / "x.npy"
    np.save(path, np.asarray(values, dtype=dtype))
    return path


def png(folder: Path, pixels: np.ndarray, mode: str | None = None) -> Path:
    path = folder / "x.png"
    image = Image.fromarray(pixels)
    (image.convert(mode) if mode else image).save(path)
    return path


def made(path: Path, shape: tuple[int, ...], outputs: int = 3, **options: Any) -> Property:
    return ball_property(ball(path, **options), path, input_shape=shape, output_count=outputs)


def ends(found: Property) -> list[tuple[Fraction, Fraction]]:
    box = found.cases[0].box
    pairs = list(zip(map(Fraction, box.lower_text), map(Fraction, box.upper_text), strict=True))
    for index, (lower, upper) in enumerate(pairs):
        assert Fraction(box.lower[index]) <= lower <= upper <= Fraction(box.upper[index])
        assert Fraction(np.nextafter(box.lower[index], np.inf)) > lower
        assert Fraction(np.nextafter(box.upper[index], -np.inf)) < upper
    return pairs


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_stored_values_are_taken_exactly(tmp_path: Path, dtype: str) -> None:
    values = np.array([0.1, 0.7, 1e-30 if dtype == "float64" else 0.3], dtype=dtype)
    found = made(npy(tmp_path, values, dtype), (1, 3), epsilon="0.03")
    epsilon = Fraction(3, 100)
    assert ends(found) == [(Fraction(float(v)) - epsilon, Fraction(float(v)) + epsilon) for v in values]
    assert found.format == "ε-ball"


def test_the_clip_range_counts_before_mean_and_std(tmp_path: Path) -> None:
    found = made(
        npy(tmp_path, [0.0, 0.5, 1.0]), (3,), epsilon="1/4", lower="0", upper="1", mean=("0.5",), std=("0.2",)
    )
    assert ends(found) == [
        (Fraction(-5, 2), Fraction(-5, 4)),
        (Fraction(-5, 4), Fraction(5, 4)),
        (Fraction(5, 4), Fraction(5, 2)),
    ]


def test_pixels_are_divided_by_255_and_rounded_outward(tmp_path: Path) -> None:
    pixels = np.array([[0, 1, 128], [51, 254, 255]], dtype=np.uint8)
    found = made(png(tmp_path, pixels), (1, 1, 2, 3), epsilon="8/255", lower="0", upper="1", std=("0.3",))
    for value, (lower, upper) in zip(pixels.ravel().tolist(), ends(found), strict=True):
        exact_lower = max(Fraction(value - 8, 255), Fraction(0)) / Fraction(3, 10)
        exact_upper = min(Fraction(value + 8, 255), Fraction(1)) / Fraction(3, 10)
        assert exact_lower - ROUNDED < lower <= exact_lower
        assert exact_upper <= upper < exact_upper + ROUNDED


@pytest.mark.parametrize("channels", [3, 4])
@pytest.mark.parametrize("leading", [(), (1,)])
def test_channels_go_where_the_input_shape_has_them(
    tmp_path: Path, channels: int, leading: tuple[int, ...]
) -> None:
    pixels = np.arange(2 * 5 * channels, dtype=np.uint8).reshape(2, 5, channels) * 5
    mean = tuple(f"0.{channel + 1}" for channel in range(channels))
    path = png(tmp_path, pixels)
    options: dict[str, Any] = {"epsilon": "0", "mean": mean, "std": ("1",) * channels}
    first = ends(made(path, (*leading, channels, 2, 5), **options))
    last = ends(made(path, (*leading, 2, 5, channels), **options))
    for row, column, channel in product(range(2), range(5), range(channels)):
        exact = Fraction(int(pixels[row, column, channel]), 255) - Fraction(mean[channel])
        for lower, upper in (
            first[channel * 10 + row * 5 + column],
            last[(row * 5 + column) * channels + channel],
        ):
            assert exact - ROUNDED < lower <= exact <= upper < exact + ROUNDED


@pytest.mark.parametrize("shape", [(1, 1, 2, 3), (1, 2, 3, 1), (6,), (1, 6), (1, 6, 1), (1, 2, 3)])
def test_grey_images_fit_any_shape_of_their_size(tmp_path: Path, shape: tuple[int, ...]) -> None:
    pixels = np.array([[0, 51, 102], [153, 204, 255]], dtype=np.uint8)
    lowers = [lower for lower, _ in ends(made(png(tmp_path, pixels), shape, epsilon="0"))]
    assert lowers == [Fraction(step, 5) for step in range(6)]


def test_black_and_white_and_palette_images(tmp_path: Path) -> None:
    pixels = np.array([[0, 255, 255]], dtype=np.uint8)
    assert [a for a, _ in ends(made(png(tmp_path, pixels, "1"), (3,), epsilon="0"))] == [0, 1, 1]
    colours = np.array([[[255, 0, 0], [0, 255, 0], [0, 0, 255]]], dtype=np.uint8)
    path = png(tmp_path, colours, "P")
    assert [a for a, _ in ends(made(path, (1, 3, 1, 3), epsilon="0"))] == [1, 0, 0, 0, 1, 0, 0, 0, 1]


def test_every_rival_of_the_label_has_a_clause(tmp_path: Path) -> None:
    found = made(npy(tmp_path, [0.5]), (1,), outputs=4, label=2)
    assert [clause.text for clause in found.cases[0].clauses] == ["Y_0 ≥ Y_2", "Y_1 ≥ Y_2", "Y_3 ≥ Y_2"]
    assert all(not clause.constraints[0].strict for clause in found.cases[0].clauses)


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(-4, 4, width=32), min_size=1, max_size=4),
    epsilon=st.sampled_from(["0", "0.031", "8/255", "1e-9"]),
    std=st.sampled_from([(), ("0.3081",), ("7",)]),
)
def test_balls_are_written_as_vnnlib_and_read_back(
    tmp_path_factory: pytest.TempPathFactory, values: list[float], epsilon: str, std: tuple[str, ...]
) -> None:
    folder = tmp_path_factory.mktemp("ball")
    found = made(npy(folder, values), (len(values),), epsilon=epsilon, std=std)
    (folder / "ball.vnnlib").write_text(to_vnnlib(found))
    assert meaning(read_property(folder / "ball.vnnlib")) == meaning(found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"label": 3}, "0 to 2"),
        ({"label": -1}, "0 to 2"),
        ({"outputs": 1}, "at least two"),
        ({"epsilon": "-0.1"}, "must not be negative"),
        ({"epsilon": "nan"}, "'nan' is not a decimal number"),
        ({"epsilon": "1/0"}, "divides by zero"),
        ({"epsilon": ""}, "'' is not a decimal number"),
        ({"lower": "1", "upper": "0"}, "is empty"),
        ({"lower": "x"}, "lower end: 'x'"),
        ({"lower": "0.9"}, "X_0: the centre 0.5 lies further than ε outside the clip range"),
        ({"std": ("0",)}, "above 0"),
        ({"mean": ("1", "2"), "std": ("1",)}, "2 means but 1 stds"),
        ({"mean": ("1", "2"), "std": ("1", "1")}, "no axis of 2 channels"),
        ({"shape": (2,)}, "holds 3 values [3] but the network's input [2] has 2"),
    ],
)
def test_options_that_make_no_sense(tmp_path: Path, options: dict[str, Any], words: str) -> None:
    path = npy(tmp_path, [0.5, 0.5, 0.5])
    with pytest.raises(PropertyError) as caught:
        made(path, options.pop("shape", (3,)), **options)
    assert str(caught.value).startswith("x.npy")
    assert words in str(caught.value)


def test_centres_that_are_no_numbers(tmp_path: Path) -> None:
    for value in (np.nan, np.inf, -np.inf):
        with pytest.raises(PropertyError, match="value 1 is"):
            made(npy(tmp_path, [0.5, value]), (2,))
    with pytest.raises(PropertyError, match="bool"):
        made(npy(tmp_path, [True], "bool"), (1,))
    with pytest.raises(PropertyError, match=r"x\.npy"):
        made(npy(tmp_path, [object()], "object"), (1,))


def test_files_that_are_no_centres(tmp_path: Path) -> None:
    path = npy(tmp_path, [0.5, 0.5])
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(PropertyError, match=r"not a whole \.npy"):
        made(path, (2,))
    path.write_bytes(b"hello")
    with pytest.raises(PropertyError, match=r"neither a \.npy array nor a PNG"):
        made(path, (2,))
    with pytest.raises(PropertyError, match="cannot be read"):
        made(tmp_path / "none.npy", (2,))
    image = png(tmp_path, np.zeros((40, 40), dtype=np.uint8) + np.arange(40, dtype=np.uint8))
    image.write_bytes(image.read_bytes()[:60])
    with pytest.raises(PropertyError, match="not a whole PNG"):
        made(image, (1600,))


def test_images_that_do_not_fit(tmp_path: Path) -> None:
    colour = np.zeros((2, 2, 3), dtype=np.uint8)
    with pytest.raises(PropertyError, match=r"2 × 2 pixels of 3 channel\(s\), 12 values, but .* has 4"):
        made(png(tmp_path, colour), (1, 1, 2, 2))
    with pytest.raises(PropertyError, match="does not say where the 3 channels"):
        made(png(tmp_path, colour), (12,))
    with pytest.raises(PropertyError, match="pixel format I;16"):
        made(png(tmp_path, np.zeros((2, 2), dtype=np.uint16)), (4,))
    with pytest.raises(PropertyError, match="transpose"):
        made(npy(tmp_path, np.zeros((4, 5, 3))), (1, 3, 4, 5))
