"""Statistical tests of the generator behind boundscope_prism, on the words themselves.

    python tests/benchmarks/prism_generator.py [--rounds 3] [--log2-bytes 32] [--orders NAME ...] [--dieharder]

The words come in the orders in which kernels and studies meet them (prism_words.h). Each order gets the battery of
prism_battery.cc over 2**log2-bytes bytes: about 140 tests, each decided once, at ALPHA; one decision below ALPHA
fails. With --dieharder each order also goes through those tests of Debian's `dieharder` that its author calls good.

`--rounds 1` is the negative control: it must fail. The rounds of stream.h are compiled in, so that a C++17 compiler
is needed (the environment variable CXX, else c++).
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from scipy import stats  # type: ignore[import-untyped]

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "native_prism"
ALPHA = 1e-8
ORDERS = (
    "tiles",
    "lane",
    "rows:1024:65536",
    "rows:1048576:4096",
    "operations",
    "stages",
    "samples",
    "seeds",
)
# dieharder -d, and -n where it takes one.
DIEHARDER: list[tuple[int, int | None]] = [
    (d, None) for d in (0, 1, 2, 3, 4, 8, 9, 10, 11, 12, 13, 15, 16, 17)
]
DIEHARDER += [(d, None) for d in (100, 101, 102, 202, 204, 205, 206, 207, 208, 209)]
DIEHARDER += [(200, n) for n in (1, 2, 4, 8)] + [(201, 3)] + [(203, n) for n in (0, 1, 3, 15, 31)]


@dataclass(frozen=True)
class Decision:
    name: str
    statistic: float
    parameter: float
    p: float


def two_sided(law: str, statistic: float, parameter: float) -> float:
    """Twice the smaller tail: words that are too even are as wrong as uneven ones."""
    if law == "chi2":
        tails = stats.chi2.sf(statistic, parameter), stats.chi2.cdf(statistic, parameter)
    elif law == "normal":
        tails = stats.norm.sf(statistic), stats.norm.cdf(statistic)
    elif law == "poisson":
        tails = stats.poisson.sf(statistic - 1, parameter), stats.poisson.cdf(statistic, parameter)
    else:
        raise ValueError(f"the battery wrote an unknown law, {law!r}")
    return min(1.0, 2 * float(min(tails)))


def build(rounds: int, folder: Path) -> Path:
    program = folder / f"prism_battery_{rounds}"
    subprocess.run(
        [
            *(os.environ.get("CXX", "c++"), "-std=c++17", "-O3", "-march=native", f"-DPRISM_ROUNDS={rounds}"),
            *(f"-I{NATIVE / 'include'}", f"-I{NATIVE / 'src'}"),
            *(str(HERE / "prism_battery.cc"), str(NATIVE / "src" / "stream.cc"), "-o", str(program)),
        ],
        check=True,
    )
    return program


def decisions(program: Path, order: str, log2_bytes: int) -> list[Decision]:
    output = subprocess.run(
        [program, order, str(log2_bytes)], check=True, capture_output=True, text=True
    ).stdout
    found = []
    for line in output.splitlines():
        name, law, statistic, parameter = line.split()
        values = float(statistic), float(parameter)
        found.append(Decision(name, *values, two_sided(law, *values)))
    return found


def dieharder(program: Path, order: str) -> Iterator[str]:
    """Its lines: name, n-tuple, samples, p-samples, p, assessment. The tests read one stream in turn."""
    with subprocess.Popen([program, order, "raw"], stdout=subprocess.PIPE) as words:
        for test, size in DIEHARDER:
            command = [
                "dieharder",
                "-g",
                "200",
                "-d",
                str(test),
                *([] if size is None else ["-n", str(size)]),
            ]
            for field in ("test_name", "ntuple", "tsamples", "psamples", "pvalues", "assessment"):
                command += ["-D", field]
            yield from subprocess.run(
                command, stdin=words.stdout, check=True, capture_output=True, text=True
            ).stdout.splitlines()
        words.kill()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--log2-bytes", type=int, default=32)
    parser.add_argument("--orders", nargs="*", default=ORDERS)
    parser.add_argument("--dieharder", action="store_true")
    options = parser.parse_args()
    failures = 0
    with tempfile.TemporaryDirectory() as folder:
        program = build(options.rounds, Path(folder))
        for order in options.orders:
            start = time.monotonic()
            found = sorted(decisions(program, order, options.log2_bytes), key=lambda decision: decision.p)
            failed = [decision for decision in found if decision.p < ALPHA]
            failures += len(failed)
            print(
                f"{order}: 2^{options.log2_bytes} bytes, {len(found)} tests, {len(failed)} failed, least p "
                f"{found[0].p:.2g} ({found[0].name}), {time.monotonic() - start:.0f} s",
                flush=True,
            )
            for decision in failed:
                value = f"{decision.statistic:.8g} of {decision.parameter:.8g}"
                print(f"  FAILED {decision.name}: {value}, p {decision.p:.2g}")
            if options.dieharder:
                for line in dieharder(program, order):
                    print(f"  dieharder {line}", flush=True)
                    failures += "FAILED" in line
    print("failed" if failures else "passed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
