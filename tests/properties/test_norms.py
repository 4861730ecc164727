"""ε-balls of the L2, L1 and L0 norms as properties: what lies inside, exactly, and how they are read back."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from boundscope.errors import PropertyError
from boundscope.properties import Property, ball_property, summarize, to_vnnlib
from boundscope.properties.exact import inside
from boundscope.properties.types import Box, NormBall
from boundscope.protocol import EpsilonBall, FileRef, Norm
from boundscope.search.ball_reader import judge


def ball(path: Path, norm: Norm, **options: Any) -> EpsilonBall:
    center = FileRef(name=path.name, sha256="", size_bytes=0)
    return EpsilonBall(center=center, norm=norm, **{"epsilon": "0.5", "label": 0, **options})


def made(path: Path, norm: Norm, shape: tuple[int, ...], **options: Any) -> Property:
    return ball_property(ball(path, norm, **options), path, input_shape=shape, output_count=2)


def npy(folder: Path, values: Any) -> Path:
    path = folder / "x.npy"
    np.save(path, np.asarray(values, dtype=np.float32))
    return path


def box_of(found: Property) -> tuple[Box, NormBall]:
    box = found.cases[0].box
    assert box.ball is not None
    return box, box.ball


def at(*values: str) -> list[Fraction]:
    return [Fraction(value) for value in values]


def test_the_l2_ball_ends_where_the_squares_add_up(tmp_path: Path) -> None:
    box, _ = box_of(made(npy(tmp_path, [0, 0]), Norm.L2, (2,)))
    assert inside(box, at("0.3", "0.4"))
    assert not inside(box, at("0.3", "0.4000000000000000000000001"))
    assert inside(box, at("0.5", "0"))
    assert not inside(box, at("0.5", "0.5"))


def test_the_l1_ball_ends_where_the_changes_add_up(tmp_path: Path) -> None:
    box, _ = box_of(made(npy(tmp_path, [1, -1]), Norm.L1, (2,)))
    assert inside(box, at("1.2", "-0.7"))
    assert not inside(box, at("1.2", "-0.6999999999999999999999999"))


def test_the_l0_ball_counts_changed_inputs_and_lets_them_go_anywhere_in_the_clip_range(
    tmp_path: Path,
) -> None:
    box, _ = box_of(made(npy(tmp_path, [0.25, 0.5, 0.75]), Norm.L0, (3,), epsilon="2", lower="0", upper="1"))
    assert box.lower_text == ("0", "0", "0")
    assert box.upper_text == ("1", "1", "1")
    assert inside(box, at("0", "0.5", "1"))
    assert inside(box, at("0.25", "0.5", "0.75"))
    assert not inside(box, at("0", "0.4999999999999999999999999999", "1"))
    assert not inside(box, at("1.5", "0.5", "0.75"))


def test_no_change_at_all_leaves_the_centre_alone(tmp_path: Path) -> None:
    for norm in (Norm.L2, Norm.L1, Norm.L0):
        box, _ = box_of(made(npy(tmp_path, [0.25, 0.5]), norm, (2,), epsilon="0", lower="0", upper="1"))
        assert box.lower_text == box.upper_text == ("0.25", "0.5")


def test_distances_count_before_mean_and_deviation(tmp_path: Path) -> None:
    """With std ½ the network sees twice the change: (0.6, 0.8) is 0.3 and 0.4 of the centre's own numbers."""
    options = {"mean": ("0.5",), "std": ("0.5",)}
    box, set_ = box_of(made(npy(tmp_path, [0.5, 0.5]), Norm.L2, (2,), **options))
    assert set_.scale == (Fraction(1, 2), Fraction(1, 2))
    assert inside(box, at("0.6", "0.8"))
    assert not inside(box, at("0.6", "0.8000000001"))


def test_a_centre_whose_decimals_never_end_is_rounded_and_still_counts_as_unchanged(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    Image.fromarray(np.array([[1, 2, 4]], dtype=np.uint8)).save(path)
    box, set_ = box_of(made(path, Norm.L0, (1, 1, 1, 3), epsilon="1", lower="0", upper="1"))
    for lower, upper, pixel in zip(set_.centre_lower_text, set_.centre_upper_text, (1, 2, 4), strict=True):
        assert Fraction(lower) < Fraction(pixel, 255) < Fraction(upper)
    assert inside(
        box, [Fraction(set_.centre_lower_text[0]), Fraction(set_.centre_upper_text[1]), Fraction(1)]
    )
    assert not inside(box, [Fraction(0), Fraction(1), Fraction(set_.centre_lower_text[2])])


def test_float64_encloses_what_is_described(tmp_path: Path) -> None:
    path = tmp_path / "x.png"
    Image.fromarray(np.arange(12, dtype=np.uint8).reshape(2, 2, 3) * 20).save(path)
    options = {"mean": ("0.485", "0.456", "0.406"), "std": ("0.229", "0.224", "0.225"), "epsilon": "1/3"}
    _, set_ = box_of(made(path, Norm.L2, (1, 3, 2, 2), lower="0", upper="1", **options))
    assert Fraction(set_.radius_above) >= set_.radius == Fraction(1, 3)
    for index in range(12):
        assert Fraction(set_.scale_below[index]) <= set_.scale[index]
        assert Fraction(set_.centre_lower[index]) <= Fraction(set_.centre_lower_text[index])
        assert Fraction(set_.centre_upper[index]) >= Fraction(set_.centre_upper_text[index])
    assert set_.scale[0] == set_.scale[3] == Fraction("0.229")
    assert set_.scale[11] == Fraction("0.225")


@pytest.mark.parametrize(
    ("norm", "options", "says"),
    [
        (Norm.L0, {"epsilon": "1"}, "clip range"),
        (Norm.L0, {"epsilon": "1.5", "lower": "0", "upper": "1"}, "whole number"),
        (Norm.L0, {"epsilon": "1", "lower": "0.5", "upper": "1"}, "outside the clip range"),
        (Norm.L2, {"epsilon": "0.5", "lower": "0.7", "upper": "1"}, "no input of the clip range lies within"),
        (Norm.L1, {"epsilon": "0.5", "lower": "0.6", "upper": "1"}, "no input of the clip range lies within"),
        (Norm.L2, {"epsilon": "-1"}, "negative"),
    ],
)
def test_what_makes_no_ball_is_said(tmp_path: Path, norm: Norm, options: dict[str, str], says: str) -> None:
    """Also where every input reaches the clip range on its own, but not all of them together."""
    with pytest.raises(PropertyError, match=says):
        made(npy(tmp_path, [0.25, 0.25]), norm, (2,), **options)


def test_vnnlib_cannot_say_a_ball(tmp_path: Path) -> None:
    found = made(npy(tmp_path, [0.25, 0.25]), Norm.L2, (2,))
    with pytest.raises(PropertyError, match="L2"):
        to_vnnlib(found)
    assert "(assert (<= X_0 0.75))" in to_vnnlib(found, enclosing_box=True)


def test_the_words_say_the_norm(tmp_path: Path) -> None:
    path = npy(tmp_path, [0.25, 0.25])
    clip = {"lower": "0", "upper": "1"}
    texts = {
        norm: "\n".join(summarize(made(path, norm, (2,), epsilon=epsilon, **clip)).words)
        for norm, epsilon in ((Norm.L2, "0.5"), (Norm.L1, "1/3"), (Norm.L0, "2"), (Norm.LINF, "0.5"))
    }
    assert "change by at most 0.5 together, by the square root of the sum" in texts[Norm.L2]
    assert "change by at most 1/3 together, by the sum of their changes" in texts[Norm.L1]
    assert "at most 2 inputs differ from the centre" in texts[Norm.L0]
    assert all("everywhere in the ball" in texts[norm] for norm in (Norm.L2, Norm.L1, Norm.L0))
    assert "ball" not in texts[Norm.LINF]
    assert summarize(made(path, Norm.L2, (2,))).name == "x.npy, L2 ε = 0.5, label 0"


@pytest.mark.parametrize(
    ("norm", "options", "within", "beyond"),
    [
        (Norm.L2, {}, ("0.3", "0.4"), ("0.3", "0.4000000000000000000000001")),
        (Norm.L1, {}, ("0.2", "-0.3"), ("0.2", "-0.3000000000000000000000001")),
        (Norm.L0, {"epsilon": "1", "lower": "-1", "upper": "1"}, ("1", "0"), ("1", "1e-30")),
        (Norm.L0, {"epsilon": "1", "lower": "-1", "upper": "1"}, ("1", "0"), ("1.0000000000000001", "0")),
        (Norm.LINF, {}, ("0.5", "-0.5"), ("0.5", "-0.5000000000000000000001")),
    ],
)
def test_the_second_reader_knows_where_a_ball_ends(
    tmp_path: Path, norm: Norm, options: dict[str, str], within: tuple[str, ...], beyond: tuple[str, ...]
) -> None:
    path = npy(tmp_path, [0, 0])
    assert judge(ball(path, norm, **options), path, (2,), within).inside
    assert not judge(ball(path, norm, **options), path, (2,), beyond).inside


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    norm=st.sampled_from(Norm),
    seed=st.integers(0, 10**6),
    shrink=st.sampled_from([0.5, 0.999999, 1.0, 1.000001, 2.0]),
    normalised=st.booleans(),
)
def test_two_readers_agree_on_what_lies_inside(
    tmp_path_factory: pytest.TempPathFactory, norm: Norm, seed: int, shrink: float, normalised: bool
) -> None:
    """The solver's description of the ball and the replay's own reader, near the boundary of a colour image's ball."""
    folder = tmp_path_factory.mktemp("ball")
    random = np.random.default_rng(seed)
    path = folder / "x.png"
    Image.fromarray(random.integers(0, 256, (2, 2, 3), dtype=np.uint8)).save(path)
    shape = (1, 3, 2, 2) if seed % 2 else (1, 2, 2, 3)
    options: dict[str, Any] = {"epsilon": "3" if norm is Norm.L0 else "0.25", "lower": "0", "upper": "1"}
    if normalised:
        options |= {"mean": ("0.485", "0.456", "0.406"), "std": ("0.229", "0.224", "0.225")}
    description = ball(path, norm, **options)
    box = ball_property(description, path, input_shape=shape, output_count=2).cases[0].box
    plain = made(path, Norm.L2, shape, **{**options, "epsilon": "9"}).cases[0].box.ball
    assert plain is not None
    direction = random.standard_normal(12) * (random.random(12) < 0.5)
    power = {Norm.L2: 2, Norm.L1: 1}.get(norm, np.inf)
    size = max(float(np.linalg.norm(direction * plain.scale_below, ord=power)), 1e-9)
    moved = plain.centre_lower + direction * (shrink * 0.25 / size)
    texts = [
        middle if not change else repr(value)
        for middle, change, value in zip(
            plain.centre_lower_text, direction.tolist(), moved.tolist(), strict=True
        )
    ]
    assert judge(description, path, shape, texts).inside == inside(box, [Fraction(text) for text in texts])
