"""The random words: the oracle's AES is that of FIPS 197, and kernels draw the words that the text says.

A draw is read back through results that it alone decides: UD's and RR's bit from any result, SR's number from two exact
results on either side of its threshold.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boundscope_prism import add, cast, multiply, rounding
from prism import oracle

KNOWN_WORDS = Path(__file__).resolve().parents[2] / "native_prism" / "tests" / "known_words.inc"
KEYS = [
    oracle.Key(),
    oracle.Key(7, 3, 11),
    oracle.Key(2**64 - 1, 2**63, 2**56 - 1),
    oracle.Key(1, 0, 256),
]
FIRSTS = [0, 5, 510, 2**32 - 40, 2**64 - 700]
COUNT = 600


def test_the_oracle_computes_aes() -> None:
    """FIPS 197, appendix B: the first and the last round of the example."""
    start = bytes.fromhex("3243f6a8885a308d313198a2e0370734")
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    state = bytes(x ^ y for x, y in zip(start, key, strict=True))
    first = oracle.aes_round(state, bytes.fromhex("a0fafe1788542cb123a339392a6c7605"))
    assert first.hex() == "a49c7ff2689f352b6b5bea43026a5049"
    before = bytes.fromhex("eb40f21e592e38848ba113e71bc342d2")
    last = oracle.aes_round(before, bytes.fromhex("d014f9a8c9ee2589e13f0cc8b6630ca6"), last=True)
    assert last.hex() == "3925841d02dc09fbdc118597196a0b32"


def test_the_known_words_of_the_library_s_own_tests_are_those_of_the_oracle() -> None:
    numbers = [int(text, 0) for text in re.findall(r"0x[0-9A-F]+|\d+", _without_comments(KNOWN_WORDS))]
    entries = [numbers[i : i + 21] for i in range(0, len(numbers), 21)]
    assert len(entries) >= 7
    for seed, sample, operation, stage, tile, *words in entries:
        assert oracle.tile(oracle.Key(seed, sample, operation, stage), tile) == tuple(words)


def _without_comments(path: Path) -> str:
    return "\n".join(line.split("//")[0] for line in path.read_text().splitlines())


def arguments(key: oracle.Key, mode: Any, first: int) -> dict[str, Any]:
    how = rounding(mode, seed=key.seed, sample=key.sample, threads=1)
    return {"rounding": how, "operation": key.operation, "first": first}


def draws(key: oracle.Key, mode: str, first: int) -> list[oracle.Random]:
    return [oracle.random_of_element(key, mode, first + i) for i in range(COUNT)]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("first", FIRSTS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_bit_an_element_decides_ud_and_rr(key: oracle.Key, first: int, dtype: Any) -> None:
    bits = [draw.bit for draw in draws(key, "ud", first)]
    assert 0 < sum(bits) < COUNT
    moved = multiply(np.full(COUNT, -3.0, dtype), 1.0, **arguments(key, "ud", first))
    assert (moved > -3.0).tolist() == bits
    third = multiply(np.full(COUNT, -1 / 3, dtype), 0.1, **arguments(key, "rr", first))
    assert (third == third.min()).tolist() == bits


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("first", FIRSTS)
def test_every_one_of_29_bits_decides_sr_in_float32(key: oracle.Key, first: int) -> None:
    """1 + f 2^-52 goes up where f + the lane's 29 bits reach 2^29: at the threshold, and not just below it."""
    threshold = 2**29 - np.array([draw.bits29 for draw in draws(key, "sr", first)], np.int64)
    at = np.minimum(threshold, 2**29 - 1)
    up = cast(1 + at * 2.0**-52, **arguments(key, "sr", first)) > 1
    assert np.array_equal(up, threshold < 2**29)
    below = cast(1 + (threshold - 1) * 2.0**-52, **arguments(key, "sr", first)) > 1
    assert not below.any()


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("first", FIRSTS)
def test_every_one_of_32_bits_decides_sr_in_float64(key: oracle.Key, first: int) -> None:
    threshold = 2**32 - np.array([draw.word for draw in draws(key, "sr", first)], np.int64)
    ones = np.ones(COUNT)
    at = np.minimum(threshold, 2**32 - 1)
    up = add(ones, at * 2.0**-84, **arguments(key, "sr", first)) > 1
    assert np.array_equal(up, threshold < 2**32)
    below = add(ones, (threshold - 1) * 2.0**-84, **arguments(key, "sr", first)) > 1
    assert not below.any()
