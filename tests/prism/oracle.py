"""What every element must be, computed a second way: rational arithmetic, and AES from its definition.

Written from the text (FIPS 197 for AES; Salmon et al., SC 2011, for ARS; native_prism/README.md for the rest),
not from the kernels.
"""

from __future__ import annotations

import math
import struct
from fractions import Fraction

MASK64 = 2**64 - 1
LARGEST = Fraction(2**24 - 1) * 2**104
OVERFLOW = LARGEST + Fraction(2) ** 103
NAN_BITS = 0x7FC00000


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


def _mix(z: int) -> int:
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK64
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK64
    return z ^ z >> 31


def round_keys(seed: int, sample: int) -> list[bytes]:
    left, right = seed, sample
    for number in range(1, 5):
        left, right = right, left ^ _mix(right + number * 0x9E3779B97F4A7C15 & MASK64)
    weyl = 0x9E3779B97F4A7C15, 0xBB67AE8584CAA73B
    return [
        struct.pack("<QQ", left + weyl[0] * number & MASK64, right + weyl[1] * number & MASK64)
        for number in range(6)
    ]


def block(seed: int, sample: int, operation: int, number: int) -> tuple[int, int, int, int]:
    """The four words of one block of the stream."""
    keys = round_keys(seed, sample)
    state = bytes(x ^ k for x, k in zip(struct.pack("<QQ", number, operation), keys[0], strict=True))
    for index in range(1, 6):
        state = aes_round(state, keys[index], last=index == 5)
    return struct.unpack("<4I", state)


def word(seed: int, sample: int, operation: int, index: int) -> int:
    return block(seed, sample, operation, index // 4)[index % 4]


# ---------------------------------------------------------------- float32


def bits_of(x: float) -> int:
    return struct.unpack("<I", struct.pack("<f", x))[0]


def from_bits(bits: int) -> float:
    return struct.unpack("<f", struct.pack("<I", bits))[0]


def _exponent(x: Fraction) -> int:
    """The exponent of the spacing of float32 at x != 0."""
    exponent = abs(x.numerator).bit_length() - x.denominator.bit_length()
    while Fraction(2) ** exponent > abs(x):
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= abs(x):
        exponent += 1
    return max(exponent, -126) - 23


def neighbours(x: Fraction) -> tuple[Fraction, Fraction]:
    """The greatest float32 that is not above x and the smallest that is not below, exponent unlimited."""
    if x == 0:
        return x, x
    unit = Fraction(2) ** _exponent(x)
    return math.floor(x / unit) * unit, math.ceil(x / unit) * unit


def nearest(x: Fraction) -> Fraction:
    """x rounded to nearest even, exponent unlimited."""
    return round(x / (unit := Fraction(2) ** _exponent(x))) * unit if x else x


def _special(a: float, b: float) -> float | None:
    """The sum where it is not a non-zero real number below overflow, as IEEE 754 has it."""
    if not (math.isfinite(a) and math.isfinite(b)):
        return a + b
    x = Fraction(a) + Fraction(b)
    if x == 0:
        return -0.0 if math.copysign(1, a) == math.copysign(1, b) == -1 else 0.0
    return math.copysign(math.inf, x) if abs(x) >= OVERFLOW else None


def _bits(x: Fraction | float, sign: int) -> int:
    if isinstance(x, float):
        return NAN_BITS if math.isnan(x) else bits_of(x)
    infinite = abs(x) > LARGEST
    return bits_of(math.copysign(math.inf if infinite else float(abs(x)), sign))


def add_nearest(a: float, b: float) -> int:
    special = _special(a, b)
    if special is not None:
        return _bits(special, 1)
    x = Fraction(a) + Fraction(b)
    return _bits(nearest(x), 1 if x > 0 else -1)


def add_stochastic(a: float, b: float, random_word: int) -> int:
    """The bits of the sum; the magnitude goes up where the word's upper 29 bits reach what is left of the gap.

    The distance is taken to 2**-29 of the gap as float64 gives it, so |x| is first rounded to 53 bits.
    """
    special = _special(a, b)
    if special is not None:
        return _bits(special, 1)
    exact = Fraction(a) + Fraction(b)
    sign = 1 if exact > 0 else -1
    magnitude = Fraction(abs(float(exact)))
    if magnitude > LARGEST:
        return _bits(LARGEST, sign)
    low, high = neighbours(magnitude)
    if low == high:
        return _bits(low, sign)
    distance = (magnitude - low) / (high - low) * 2**29
    return _bits(high if (random_word >> 3) + distance >= 2**29 else low, sign)


def add_up_down(a: float, b: float, away: bool) -> int:
    """The bits of the sum; `away` from zero or towards it."""
    bits = add_nearest(a, b)
    if bits & 0x7FFFFFFF in (0, 0x7F800000) or bits == NAN_BITS:
        return bits
    return bits + (1 if away else -1)


def expected(a: float, b: float, mode: str, seed: int, sample: int, operation: int, index: int) -> int:
    """The bits of element `index` of add(a, b)."""
    if mode == "rn":
        return add_nearest(a, b)
    if mode == "sr":
        return add_stochastic(a, b, word(seed, sample, operation, index))
    bit = index // 16 % 32
    return add_up_down(a, b, bool(word(seed, sample, operation, index // 512 * 16 + index % 16) >> bit & 1))
