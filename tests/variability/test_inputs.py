"""Points come from files exactly as written, fit the network or are refused by name and shape, or lie in the box."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from boundscope.errors import VariabilityError
from boundscope.network.graph import TensorInfo
from boundscope.properties.types import Box, Case, NormBall, Property
from boundscope.protocol import Norm
from boundscope.variability.inputs import draw_inputs, read_inputs
from boundscope.variability.inputs_images import png_files

X = TensorInfo("x", (1, 2, 3), np.dtype(np.float32))
PAIR = (X, TensorInfo("z", (4,), np.dtype(np.float64)))


def saved(path: Path, array: object) -> Path:
    np.save(path, array)
    return path


@pytest.mark.parametrize("shape", [(5, 1, 2, 3), (5, 2, 3), (5, 6)])
def test_points_may_leave_out_the_batch_axis_or_be_flat(tmp_path: Path, shape: tuple[int, ...]) -> None:
    array = np.arange(30, dtype=np.float64).reshape(shape)
    found = read_inputs([saved(tmp_path / "x.npy", array)], [X])
    assert found.count == 5
    assert found.values["x"].dtype == np.float32
    assert np.array_equal(found.values["x"], array.reshape(5, 1, 2, 3))
    assert found.source == "5 points of x.npy"


@pytest.mark.parametrize("shape", [(1, 2, 3), (2, 3), (6,)])
def test_one_point(tmp_path: Path, shape: tuple[int, ...]) -> None:
    assert read_inputs([saved(tmp_path / "x.npy", np.ones(shape))], [X]).count == 1


def test_a_wrong_shape_is_told_with_file_expected_and_found(tmp_path: Path) -> None:
    with pytest.raises(
        VariabilityError, match=r"x\.npy: expected points for input 'x' as \[points, 1, 2, 3\].*\[5, 7\]"
    ):
        read_inputs([saved(tmp_path / "x.npy", np.ones((5, 7)))], [X])


def test_values_that_are_no_finite_numbers_are_refused_with_their_place(tmp_path: Path) -> None:
    array = np.ones((2, 6))
    array[1, 4] = 1e300
    with pytest.raises(VariabilityError, match=r"element \[0, 1, 1\] of point 1 is 1e\+300.*finite float32"):
        read_inputs([saved(tmp_path / "x.npy", array)], [X])


@pytest.mark.parametrize(
    ("array", "words"),
    [(np.array(["a"] * 6), "expected numbers"), (np.ones((0, 6)), "holds no points")],
)
def test_what_is_no_points(tmp_path: Path, array: object, words: str) -> None:
    with pytest.raises(VariabilityError, match=words):
        read_inputs([saved(tmp_path / "x.npy", array)], [X])


def test_files_that_are_missing_damaged_or_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "bad.npy").write_bytes(b"\x93NUMPY\x01\x00")
    (tmp_path / "x.csv").write_text("1")
    for name, words in (
        ("none.npy", "no such file"),
        ("bad.npy", "not a whole array"),
        ("x.csv", "expected one .npy"),
    ):
        with pytest.raises(VariabilityError, match=words):
            read_inputs([tmp_path / name], [X])


def test_an_archive_has_one_array_an_input_by_name(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, x=np.ones((3, 6)), z=np.zeros((3, 4)))
    found = read_inputs([path], PAIR)
    assert [found.values[info.name].shape for info in PAIR] == [(3, 1, 2, 3), (3, 4)]
    np.savez(path, x=np.ones((3, 6)), w=np.zeros((3, 4)))
    with pytest.raises(VariabilityError, match=r"expected one array for each input.*'x', 'z'.*got 'x', 'w'"):
        read_inputs([path], PAIR)
    np.savez(path, x=np.ones((3, 6)), z=np.zeros((2, 4)))
    with pytest.raises(VariabilityError, match="same number of points"):
        read_inputs([path], PAIR)
    np.savez(path, anything=np.ones((3, 6)))
    assert read_inputs([path], [X]).count == 3


def test_images_by_name_divided_by_255_and_normalised(tmp_path: Path) -> None:
    image = TensorInfo("x", (1, 3, 2, 4), np.dtype(np.float32))
    pixels = np.random.default_rng(0).integers(0, 256, (2, 2, 4, 3), dtype=np.uint8)
    for name, picture in (("b.png", pixels[1]), ("a.png", pixels[0])):
        Image.fromarray(picture).save(tmp_path / name)
    files = png_files(tmp_path)
    assert [path.name for path in files] == ["a.png", "b.png"]
    found = read_inputs(files, [image], mean=(0.5, 0.25, 0.0), std=(0.5,))
    expected = (pixels / 255.0 - np.array([0.5, 0.25, 0.0])) / 0.5
    assert np.array_equal(found.values["x"], expected.transpose(0, 3, 1, 2)[:, None].astype(np.float32))


def test_images_of_another_size_and_folders_without_any(tmp_path: Path) -> None:
    with pytest.raises(VariabilityError, match="the folder has none"):
        png_files(tmp_path)
    Image.fromarray(np.zeros((2, 2), np.uint8)).save(tmp_path / "a.png")
    with pytest.raises(
        VariabilityError, match=r"a\.png: expected an image.*\[1, 2, 3\].*got 2 × 2 pixels of 1"
    ):
        read_inputs(png_files(tmp_path), [X])


def box(lower: list[float], upper: list[float], ball: NormBall | None = None) -> Property:
    text = tuple("0" for _ in lower)
    case = Case(Box(text, text, np.array(lower), np.array(upper), ball=ball), ())
    return Property("p", "test", len(lower), 1, (case,))


def test_drawn_points_lie_in_the_box_in_the_networks_type() -> None:
    """Also where the box is narrower than the distance of two float32, if it holds one at all."""
    tenth = float(np.float32(0.1))
    prop = box([0.0, 0.1, tenth, -1.0, 5.0, 1.0 - 2.0**-26], [1.0, 0.2, tenth + 1e-12, -1.0, 5.0 + 1e-7, 1.0])
    found = draw_inputs(prop, [X], 200, seed=1)
    flat = found.values["x"].reshape(200, 6).astype(np.float64)
    (case,) = prop.cases
    assert found.values["x"].dtype == np.float32
    assert (flat >= case.box.lower).all()
    assert (flat <= case.box.upper).all()
    again = draw_inputs(prop, [X], 200, seed=1)
    assert again.digest() == found.digest() != draw_inputs(prop, [X], 200, seed=2).digest()


@pytest.mark.parametrize(("norm", "order"), [(Norm.L1, 1), (Norm.L2, 2), (Norm.L0, 0)])
def test_drawn_points_lie_in_the_ball(norm: Norm, order: int) -> None:
    centre = np.full(6, 0.5)
    ball = NormBall(norm, Fraction(1), ("",), ("",), centre, centre, (Fraction(1),) * 6, np.ones(6), 1.0)
    found = draw_inputs(box([-0.5] * 6, [1.5] * 6, ball), [X], 50, seed=0)
    distances = np.linalg.norm(found.values["x"].reshape(50, 6) - centre, order, axis=1)
    assert (distances <= 1.0).all()
    assert distances.max() > 0.5


def test_cases_take_turns() -> None:
    one, two = box([0.0] * 6, [1.0] * 6), box([2.0] * 6, [3.0] * 6)
    both = Property("p", "test", 6, 1, (*one.cases, *two.cases))
    found = draw_inputs(both, [X], 4, seed=0)
    assert found.cases == (0, 1, 0, 1)
    assert [bool((point >= 2).all()) for point in found.values["x"]] == [False, True, False, True]
