"""What every element must be, computed a second way: rational arithmetic, and AES from its definition.

Written from the text (FIPS 197 for AES; docs/prism.md for the stream and the four modes), not from the kernels.

A value is an exact real number: a Fraction, a Root where it is a square root, or a float where it is zero (with its
sign), an infinity or NaN. `rounded` turns one into the bits of a result; `expected` does an operation from operands.
"""

from __future__ import annotations

import functools
import math
import struct
from dataclasses import dataclass
from fractions import Fraction
from typing import TypeAlias

MASK64 = 2**64 - 1
WEYL = (0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B)
ROUNDS = 3
GROUP = 16
BIT_STEPS = 32


# ---------------------------------------------------------------- random words


def _multiply(a: int, b: int) -> int:
    """The product in GF(2^8) modulo x^8 + x^4 + x^3 + x + 1 (FIPS 197, section 4.2)."""
    product = 0
    for bit in range(8):
        if b >> bit & 1:
            product ^= a << bit
    for degree in range(14, 7, -1):
        if product >> degree & 1:
            product ^= 0x11B << (degree - 8)
    return product


def _substitute(x: int) -> int:
    """The S-box (FIPS 197, section 5.1.1): the inverse, x^254, then an affine map over the bits."""
    inverse = 1
    for _ in range(254):
        inverse = _multiply(inverse, x)
    bits = [inverse >> i & 1 for i in range(8)]
    mapped = [
        bits[i] ^ bits[(i + 4) % 8] ^ bits[(i + 5) % 8] ^ bits[(i + 6) % 8] ^ bits[(i + 7) % 8]
        for i in range(8)
    ]
    return sum(bit << i for i, bit in enumerate(mapped)) ^ 0x63


SBOX = [_substitute(x) for x in range(256)]
MATRIX = [[2, 3, 1, 1], [1, 2, 3, 1], [1, 1, 2, 3], [3, 1, 1, 2]]
PRODUCT = {factor: [_multiply(factor, x) for x in range(256)] for factor in (1, 2, 3)}


def aes_round(state: bytes, key: bytes, *, last: bool = False) -> bytes:
    """One round of AES; state[4 * column + row]."""
    shifted = [[SBOX[state[4 * ((column + row) % 4) + row]] for row in range(4)] for column in range(4)]
    if not last:
        shifted = [
            [
                PRODUCT[m[0]][c[0]] ^ PRODUCT[m[1]][c[1]] ^ PRODUCT[m[2]][c[2]] ^ PRODUCT[m[3]][c[3]]
                for m in MATRIX
            ]
            for c in shifted
        ]
    return bytes(x ^ k for x, k in zip((x for column in shifted for x in column), key, strict=True))


def mix(z: int) -> int:
    """The finalizer of SplitMix64."""
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
    return z ^ z >> 31


@dataclass(frozen=True)
class Key:
    """What names the random words of one stage of one operation of one sample."""

    seed: int = 0
    sample: int = 0
    operation: int = 0
    stage: int = 0


@functools.lru_cache(maxsize=4096)
def _stream(key: Key, rounds: int) -> tuple[int, int, tuple[bytes, ...]]:
    """The start of the counters (low, high) and the keys of the rounds."""
    low, high = key.seed, key.sample
    for number in range(1, 5):
        low, high = high, low ^ mix(high + number * WEYL[0] & MASK64)
    keys = tuple(
        struct.pack("<QQ", mix(low + number * WEYL[1] & MASK64), mix(high + number * WEYL[0] & MASK64))
        for number in range(1, rounds + 1)
    )
    start = high + mix((key.operation << 8 | key.stage) + WEYL[0] & MASK64) & MASK64
    return low, start, keys


def block(key: Key, number: int, rounds: int = ROUNDS) -> tuple[int, ...]:
    """The four words of one block: AES rounds on a 128-bit Weyl counter."""
    low, high, keys = _stream(key, rounds)
    state = struct.pack("<QQ", low + number * WEYL[0] & MASK64, high + number * WEYL[1] & MASK64)
    for round_key in keys:
        state = aes_round(state, round_key)
    return struct.unpack("<4I", state)


@functools.lru_cache(maxsize=65536)
def tile(key: Key, number: int, rounds: int = ROUNDS) -> tuple[int, ...]:
    """The 16 words of a tile: four blocks."""
    number &= MASK64
    return tuple(word for i in range(4) for word in block(key, 4 * number + i & MASK64, rounds))


@dataclass(frozen=True)
class Random:
    """What one lane draws for one step."""

    word: int = 0  # SR in float64
    bits29: int = 0  # SR in float32
    bit: bool = False  # UD: towards zero; RR: down


def random_of(key: Key, mode: str, lane: int, step: int, *, row: int = 0, steps: int | None = None) -> Random:
    """The draw of a lane (0 to 15) of a group at one of the row's `steps` steps; one endless row without `steps`."""
    if mode == "rn":
        return Random()
    if mode == "sr":
        words = tile(key, row * (steps or 0) + step)
        word = words[2 * lane + 1] if lane < 8 else words[2 * (lane - 8)]
        return Random(word=word, bits29=word >> 3 if lane < 8 else word % 2**29)
    tiles = 0 if steps is None else -(-steps // BIT_STEPS)
    words = tile(key, row * tiles + step // BIT_STEPS)
    return Random(bit=bool(words[lane] >> (31 - step % BIT_STEPS) & 1))


def random_of_element(key: Key, mode: str, index: int) -> Random:
    """The draw of element `index` of an element-wise operation (`first` added)."""
    return random_of(key, mode, index % GROUP, index // GROUP)


# ---------------------------------------------------------------- real numbers


@dataclass(frozen=True)
class Root:
    """The square root of a positive rational number."""

    square: Fraction


Real: TypeAlias = Fraction | Root
Value: TypeAlias = Fraction | Root | float


def _is_negative(x: Real) -> bool:
    return isinstance(x, Fraction) and x < 0


def _magnitude(x: Real) -> Real:
    return x if isinstance(x, Root) else abs(x)


def _floor(x: Real, exponent: int) -> tuple[int, bool]:
    """floor(x / 2^exponent) of x > 0, and whether x is a multiple of 2^exponent."""
    if isinstance(x, Root):
        square = x.square / Fraction(4) ** exponent
        whole = math.isqrt(square.numerator // square.denominator)
        return whole, whole * whole == square
    quotient = x / Fraction(2) ** exponent
    whole = quotient.numerator // quotient.denominator
    return whole, whole == quotient


def _top(x: Real) -> int:
    """The exponent of the greatest power of two that is not above x > 0."""
    if isinstance(x, Root):
        return _top(x.square) // 2
    exponent = x.numerator.bit_length() - x.denominator.bit_length()
    return exponent if Fraction(2) ** exponent <= x else exponent - 1


def _to_multiple(x: Real, exponent: int) -> Fraction:
    """x > 0 to the nearest multiple of 2^exponent, ties to even."""
    halves, exact = _floor(x, exponent - 1)
    whole = halves // 2
    if halves % 2 == 1 and (not exact or whole % 2 == 1):
        whole += 1
    return Fraction(whole) * Fraction(2) ** exponent


# ---------------------------------------------------------------- formats and rounding


@dataclass(frozen=True)
class Format:
    """Numbers of `precision` bits with the exponents of float32 (width 32) or float64 (width 64)."""

    width: int
    precision: int

    @property
    def least_exponent(self) -> int:
        """Of the smallest normal number."""
        return -126 if self.width == 32 else -1022

    @property
    def spacing(self) -> int:
        """The exponent of the spacing of the subnormal numbers."""
        return self.least_exponent - self.precision + 1

    @property
    def largest(self) -> Fraction:
        return (2 - Fraction(2) ** (1 - self.precision)) * Fraction(2) ** (1 - self.least_exponent)

    @property
    def overflow(self) -> Fraction:
        """From here on the nearest is infinite."""
        return (2 - Fraction(2) ** -self.precision) * Fraction(2) ** (1 - self.least_exponent)

    def quantum(self, x: Real) -> int:
        """The exponent of the spacing at x > 0, exponents unlimited above."""
        return max(_top(x), self.least_exponent) - self.precision + 1


def float32(precision: int = 24) -> Format:
    return Format(32, precision)


def float64(precision: int = 53) -> Format:
    return Format(64, precision)


def bits_of(x: float, width: int = 32) -> int:
    """The bits of x, which the type holds; those of the quiet NaN for any NaN."""
    if math.isnan(x):
        return 0x7FC00000 if width == 32 else 0x7FF8000000000000
    if width == 32:
        return int(struct.unpack("<I", struct.pack("<f", x))[0])
    return int(struct.unpack("<Q", struct.pack("<d", x))[0])


def from_bits(bits: int, width: int = 32) -> float:
    return float(
        struct.unpack("<f", struct.pack("<I", bits))[0]
        if width == 32
        else struct.unpack("<d", struct.pack("<Q", bits))[0]
    )


def neighbours(x: Real, fmt: Format) -> tuple[Fraction, Fraction]:
    """The greatest number that is not above x and the smallest that is not below, exponents unlimited above."""
    if x == 0:
        return Fraction(0), Fraction(0)
    magnitude = _magnitude(x)
    exponent = fmt.quantum(magnitude)
    whole, exact = _floor(magnitude, exponent)
    low, high = (units * Fraction(2) ** exponent for units in (whole, whole + (not exact)))
    return (-high, -low) if _is_negative(x) else (low, high)


def nearest(x: Real, fmt: Format) -> Fraction:
    """x to the nearest number, ties to even, exponents unlimited above."""
    magnitude = _magnitude(x)
    value = _to_multiple(magnitude, fmt.quantum(magnitude)) if magnitude != 0 else Fraction(0)
    return -value if _is_negative(x) else value


def carried(x: Real, fmt: Format) -> Real:
    """x > 0 as SR sees it: for float32 to 53 bits, and below the normal numbers to a multiple of 2^-178."""
    if fmt.width == 64:
        return x
    x = _to_multiple(x, _top(x) - 52)
    return _to_multiple(x, -178) if x < Fraction(2) ** -126 else x


def _stochastic(x: Real, fmt: Format, random: Random) -> Fraction:
    x = carried(x, fmt)
    if x == 0:
        return Fraction(0)
    if (isinstance(x, Root) and x.square > fmt.largest**2) or (isinstance(x, Fraction) and x > fmt.largest):
        return nearest(x, fmt)
    count, draw = (29, random.bits29) if fmt.width == 32 else (32, random.word)
    exponent = fmt.quantum(x)
    whole, _ = _floor(x, exponent)
    fine, _ = _floor(x, exponent - count)
    up = fine - (whole << count) + draw >= 2**count
    return Fraction(whole + up) * Fraction(2) ** exponent


def _up_down(x: Real, fmt: Format, random: Random) -> Fraction:
    value = nearest(x, fmt)
    if value == 0 or value > fmt.largest:
        return value
    if not random.bit:
        return value + Fraction(2) ** fmt.quantum(value)
    exponent = fmt.quantum(value)
    if Fraction(2) ** _top(value) == value and exponent > fmt.spacing:
        exponent -= 1
    return value - Fraction(2) ** exponent


def _random(x: Real, fmt: Format, random: Random, negative: bool) -> Fraction:
    if nearest(x, fmt) > fmt.largest:
        return nearest(x, fmt)
    low, high = neighbours(x, fmt)
    return high if random.bit == negative and high <= fmt.largest else low


def rounded(x: Value, fmt: Format, mode: str, random: Random) -> int:
    """The bits of x rounded by `mode` ("rn", "sr", "ud", "rr"); a float x must be zero, an infinity or NaN."""
    if isinstance(x, float):
        assert x == 0 or not math.isfinite(x)
        return bits_of(x, fmt.width)
    assert x != 0, "a zero has a sign: give it as a float"
    negative = _is_negative(x)
    magnitude = _magnitude(x)
    if mode == "rn":
        value = nearest(magnitude, fmt)
    elif mode == "sr":
        value = _stochastic(magnitude, fmt, random)
    elif mode == "ud":
        value = _up_down(magnitude, fmt, random)
    else:
        assert mode == "rr"
        value = _random(magnitude, fmt, random, negative)
    result = math.inf if value > fmt.largest else float(value)
    return bits_of(-result if negative else result, fmt.width)


# ---------------------------------------------------------------- operations


def value_of(x: float) -> Value:
    return x if x == 0 or not math.isfinite(x) else Fraction(x)


def _sign(x: Fraction | float) -> float:
    return math.copysign(1.0, x) if isinstance(x, float) else (-1.0 if x < 0 else 1.0)


def _add(a: Fraction | float, b: Fraction | float) -> Fraction | float:
    special = [x for x in (a, b) if isinstance(x, float) and not math.isfinite(x)]
    if special:
        return sum(special)
    total = Fraction(a) + Fraction(b)
    if total != 0:
        return total
    return -0.0 if _sign(a) < 0 and _sign(b) < 0 else 0.0


def _times(a: Fraction | float, b: Fraction | float) -> Fraction | float:
    sign = _sign(a) * _sign(b)
    infinite = any(isinstance(x, float) and math.isinf(x) for x in (a, b))
    if any(isinstance(x, float) and math.isnan(x) for x in (a, b)):
        return math.nan
    if infinite:
        return math.nan if a == 0 or b == 0 else math.copysign(math.inf, sign)
    product = Fraction(a) * Fraction(b)
    return product if product != 0 else math.copysign(0.0, sign)


def _over(a: Fraction | float, b: Fraction | float) -> Fraction | float:
    sign = _sign(a) * _sign(b)
    if any(isinstance(x, float) and math.isnan(x) for x in (a, b)):
        return math.nan
    a_infinite, b_infinite = (isinstance(x, float) and math.isinf(x) for x in (a, b))
    if (a_infinite and b_infinite) or (a == 0 and b == 0):
        return math.nan
    if a_infinite or b == 0:
        return math.copysign(math.inf, sign)
    if b_infinite or a == 0:
        return math.copysign(0.0, sign)
    return Fraction(a) / Fraction(b)


def _root(a: Fraction | float) -> Value:
    if isinstance(a, Fraction):
        return Root(a) if a > 0 else math.nan
    return math.nan if a < 0 else a


def exact(name: str, *operands: float) -> Value:
    """The exact result of add, subtract, multiply, divide, sqrt, fma or cast, as IEEE 754 has its special values."""
    values = [x if x == 0 or not math.isfinite(x) else Fraction(x) for x in operands]
    if name == "add":
        return _add(*values)
    if name == "subtract":
        return _add(values[0], -values[1])
    if name == "multiply":
        return _times(*values)
    if name == "divide":
        return _over(*values)
    if name == "sqrt":
        return _root(*values)
    if name == "fma":
        return _add(_times(values[0], values[1]), values[2])
    assert name == "cast"
    return values[0]


def expected(
    name: str,
    operands: tuple[float, ...],
    fmt: Format,
    mode: str,
    key: Key,
    index: int,
) -> int:
    """The bits of element `index` (`first` added) of an element-wise operation."""
    return rounded(exact(name, *operands), fmt, mode, random_of_element(key, mode, index))
