"""Decimals: text and value agree, and every rounding goes the way it says."""

from __future__ import annotations

import math
from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from boundscope.properties.decimals import (
    enclosure,
    exact_text,
    parse_decimal,
    parse_rational,
    rational_text,
    rounded_text,
)

rationals = st.fractions(max_denominator=10**9) | st.builds(
    lambda a, b: Fraction(a) * Fraction(10) ** b, st.integers(-(10**20), 10**20), st.integers(-400, 300)
)


@given(
    st.decimals(allow_nan=False, allow_infinity=False, places=20)
    | st.floats(allow_nan=False, allow_infinity=False).map(Decimal)
)
def test_enclosures_are_the_nearest_float64_on_both_sides(value: Decimal) -> None:
    text = str(value)
    below, above = enclosure(text, parse_decimal(text))
    assert Fraction(below) <= Fraction(value) <= Fraction(above)
    if Fraction(below) == Fraction(value):
        assert below == above
    else:
        assert math.nextafter(below, math.inf) == above


@given(rationals)
def test_exact_text_is_exact_or_none(value: Fraction) -> None:
    text = exact_text(value)
    if text is None:
        rest = value.denominator
        for prime in (2, 5):
            while rest % prime == 0:
                rest //= prime
        assert rest > 1
    else:
        assert Fraction(text) == value
        assert Fraction(parse_decimal(text)) == value


@given(rationals, st.booleans())
def test_rounded_text_is_on_the_asked_side_and_near(value: Fraction, up: bool) -> None:
    rounded = Fraction(rounded_text(value, up=up))
    assert rounded >= value if up else rounded <= value
    assert abs(rounded - value) <= abs(value) / 10**23


@pytest.mark.parametrize(
    "text", ["", "-", ".", "e5", "1e", "0x1", "1_0", "inf", "nan", "１", "1 2", "--1", "1e2001", "9" * 2001]
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError):
        parse_decimal(text)


@pytest.mark.parametrize(
    ("text", "value"), [("8/255", Fraction(8, 255)), (" 1e-2 / .5", Fraction(1, 50)), ("-3.", Fraction(-3))]
)
def test_quotients(text: str, value: Fraction) -> None:
    assert parse_rational(text) == value


def test_numbers_beyond_float64_are_refused() -> None:
    for text in ("1e309", "-1e309", "1.7976931348623158e308"):
        with pytest.raises(ValueError, match="beyond the range"):
            enclosure(text, Decimal(text))
    assert enclosure("1e-400", Decimal("1e-400")) == (0.0, 5e-324)


def test_how_people_read_them() -> None:
    assert rational_text(Fraction("0.50")) == "0.5"
    assert rational_text(Fraction(120)) == "120"
    assert rational_text(Fraction(1, 3)) == "1/3"
    assert rational_text(Fraction(10) ** 400) == "1e+400"
    assert rational_text(Fraction(1, 3**200)).startswith("≈3.76486194959902")
