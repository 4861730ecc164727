"""UD moves every float32 to its two neighbours: all 2^32 of them, both ways, on every target.

    python tests/benchmarks/prism_neighbours.py [--targets NAME ...] [--exponents FIRST LAST]

For each x that is not zero, infinite or NaN, UD of 1 x must be the next float32 towards zero where the element's random
bit is set and the next one away from zero where it is not; each x meets both. Zeros and infinities stay and a NaN
becomes the quiet one. On demand, for it takes minutes a target.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import numpy as np
from numpy.typing import NDArray

import boundscope_prism
from boundscope_prism import multiply, rounding

VARIABLE = "BOUNDSCOPE_PRISM_TARGET"
PLACES = 1 << 20
CHUNK = PLACES // 2 - (1 << 13)  # fewer than half, so that there are places enough of either kind
HOW = rounding("ud", seed=20261129, threads=1)
INFINITY = np.uint32(0x7F800000)
MAGNITUDE = np.uint32(0x7FFFFFFF)
QUIET_NAN = np.uint32(0x7FC00000)

Words = NDArray[np.uint32]
Places = NDArray[np.intp]


def perturbed(bits: Words) -> Words:
    result: Words = multiply(bits.view(np.float32), 1.0, HOW).view(np.uint32)
    return result


def draws() -> tuple[Places, Places]:
    """Places where numbers move towards zero, and where they move away."""
    probe = np.full(PLACES, 1.5, np.float32).view(np.uint32)
    towards = perturbed(probe) < probe
    return np.flatnonzero(towards), np.flatnonzero(~towards)


def expected(bits: Words, towards: bool) -> Words:
    magnitude = bits & MAGNITUDE
    moved = bits - np.uint32(1) if towards else bits + np.uint32(1)
    stays = (magnitude == 0) | (magnitude == INFINITY)
    return np.where(magnitude > INFINITY, QUIET_NAN, np.where(stays, bits, moved))


def check(first: int, last: int) -> int:
    """How many results of the words `first` to `last` - 1 are wrong; the first of each chunk is printed."""
    places = draws()
    assert min(place.size for place in places) >= CHUNK
    wrong = 0
    number = np.arange(CHUNK, dtype=np.uint32)
    block = np.full(PLACES, 1.5, np.float32).view(np.uint32)
    for start in range(first, last, CHUNK):
        bits = np.uint32(start) + number[: last - start]
        # Each x at a place of either kind, in one call.
        for place in places:
            block[place[: bits.size]] = bits
        result = perturbed(block)
        for towards, place in zip((True, False), places, strict=True):
            got, want = result[place[: bits.size]], expected(bits, towards)
            bad = np.flatnonzero(got != want)
            wrong += bad.size
            if bad.size:
                i = bad[0]
                print(f"{bits[i]:08x}, towards zero {towards}: expected {want[i]:08x}, got {got[i]:08x}")
    return wrong


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--targets", nargs="*", default=boundscope_prism.targets())
    parser.add_argument(
        "--exponents", nargs=2, type=int, default=(0, 511), help="0 to 511, the sign included"
    )
    options = parser.parse_args()
    first, last = options.exponents[0] << 23, options.exponents[1] + 1 << 23
    if os.environ.get(VARIABLE):
        start = time.monotonic()
        wrong = check(first, last)
        seconds = time.monotonic() - start
        print(
            f"{boundscope_prism.target()}: {last - first} float32, both ways, {wrong} wrong, {seconds:.0f} s"
        )
        return 1 if wrong else 0
    command = [sys.executable, __file__, "--exponents", *map(str, options.exponents)]
    codes = [
        subprocess.run(command, env={**os.environ, VARIABLE: target}, check=False).returncode
        for target in options.targets
    ]
    return max(codes)


if __name__ == "__main__":
    sys.exit(main())
