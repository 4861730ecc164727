"""Exact decimals: reading them, enclosing them in float64, and writing rational numbers as decimal text."""

from __future__ import annotations

import math
import re
from decimal import Decimal
from fractions import Fraction

MAX_DIGITS = 2000
MAX_EXPONENT = 2000
MAX_RATIONAL_BITS = 14_000  # Python refuses to write integers of more than 4300 digits
_NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE]([+-]?[0-9]+))?")


def parse_decimal(text: str) -> Decimal:
    """The exact value of a decimal with optional sign, point and exponent; ValueError says what is wrong."""
    match = _NUMBER.fullmatch(text)
    if match is None:
        raise ValueError(f"{shortened(text)} is not a decimal number")
    if len(text) > MAX_DIGITS:
        raise ValueError(f"{shortened(text)} has {len(text)} characters; numbers may have {MAX_DIGITS}")
    exponent = match.group(1)
    if exponent is not None and abs(int(exponent)) > MAX_EXPONENT:
        raise ValueError(f"{shortened(text)} has an exponent beyond ±{MAX_EXPONENT}")
    return Decimal(text)


def parse_rational(text: str) -> Fraction:
    """The exact value of a decimal, or of a quotient of two such as 8/255; ValueError says what is wrong."""
    numerator, slash, denominator = text.strip().partition("/")
    if not slash:
        return Fraction(parse_decimal(numerator))
    divisor = Fraction(parse_decimal(denominator.strip()))
    if divisor == 0:
        raise ValueError(f"{shortened(text)} divides by zero")
    return Fraction(parse_decimal(numerator.strip())) / divisor


def enclosure(text: str, value: Decimal) -> tuple[float, float]:
    """The largest float64 ≤ value and the smallest ≥ value, `value` being what `text` says.

    Raises ValueError where one of them is infinite.
    """
    nearest = float(text)
    if value == nearest:
        return nearest, nearest
    if value < nearest:
        below, above = math.nextafter(nearest, -math.inf), nearest
    else:
        below, above = nearest, math.nextafter(nearest, math.inf)
    if math.isinf(below) or math.isinf(above):
        raise ValueError(f"{shortened(text)} is beyond the range of float64")
    return below, above


def check_size(value: Fraction) -> Fraction:
    """The value itself; ValueError where it has grown beyond what can be written."""
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_RATIONAL_BITS:
        raise ValueError("a number computed from the constants has more than 4000 digits")
    return value


def exact_text(value: Fraction) -> str | None:
    """The decimal text equal to a rational, or None where its decimals never end."""
    fives = 0
    twos = (value.denominator & -value.denominator).bit_length() - 1
    rest = value.denominator >> twos
    while rest % 5 == 0:
        rest, fives = rest // 5, fives + 1
    if rest != 1:
        return None
    places = max(twos, fives)
    return _written(value.numerator * 10**places // value.denominator, places)


def rounded_text(value: Fraction, *, up: bool, digits: int = 25, exact: bool = True) -> str:
    """The decimal text of a rational: exact where that ends (if asked), else rounded up or down to `digits`."""
    whole = exact_text(value) if exact else None
    if whole is not None:
        return whole
    numerator, denominator = value.numerator, value.denominator
    places = digits - len(str(abs(numerator))) + len(str(denominator))
    if places >= 0:
        numerator *= 10**places
    else:
        denominator *= 10**-places
    return _written(-(-numerator // denominator) if up else numerator // denominator, places)


def rational_text(value: Fraction, limit: int = 60) -> str:
    """How people read a rational: its decimals where they end soon, else numerator/denominator, else rounded."""
    for text in (exact_text(value), f"{value.numerator}/{value.denominator}"):
        if text is not None and len(text) <= limit:
            return text
    return f"≈{rounded_text(value, up=False, digits=17, exact=False)}"


def shortened(text: str, limit: int = 40) -> str:
    """The text in quotes, its middle left out where it is long, for error messages."""
    return f"'{text}'" if len(text) <= limit else f"'{text[: limit - 10]}…{text[-8:]}'"


def _written(digits: int, places: int) -> str:
    """digits · 10^−places as text: no exponent from 1e-20 to 1e20, no trailing zeros."""
    while digits and digits % 10 == 0:
        digits, places = digits // 10, places - 1
    value = Decimal(f"{digits}E{-places}")
    if value and not -20 <= value.adjusted() <= 20:
        return str(value).replace("E", "e")
    return format(value, "f")
