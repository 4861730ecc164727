"""Times the reading of a large property: 150 000 inputs and 1 000 clauses, about 16 MB of VNN-LIB 1.0.

    python tests/benchmarks/properties.py [--inputs N] [--clauses N] [--repeat N]

The peer is the `vnnlib` package, which reads version 2.0 only: the same property is written in both versions.
Its times are for parsing and type checking alone, and with its transformation into boxes and clauses of float64
(`vnnlib.compat`), which is the nearest to what ours returns (ours keeps all digits). Each time is the least of
the repetitions.
"""

from __future__ import annotations

import argparse
import gzip
import random
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import vnnlib
import vnnlib.compat

from boundscope.properties import read_property


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--inputs", type=int, default=150_000)
    parser.add_argument("--clauses", type=int, default=1000)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        first, second, packed = (Path(folder) / name for name in ("v1.vnnlib", "v2.vnnlib", "v1.vnnlib.gz"))
        write(first, second, options.inputs, options.clauses)
        packed.write_bytes(gzip.compress(first.read_bytes(), 6))
        text = second.read_text()
        megabytes = {path: path.stat().st_size / 1e6 for path in (first, second, packed)}
        works: list[tuple[str, Path, Callable[[], object]]] = [
            ("ours, VNN-LIB 1.0", first, lambda: read_property(first)),
            ("ours, VNN-LIB 1.0, gzip", packed, lambda: read_property(packed)),
            ("ours, VNN-LIB 2.0", second, lambda: read_property(second)),
            ("vnnlib, 2.0, parse only", second, lambda: vnnlib.parse_query_string(text)),
            ("vnnlib, 2.0, boxes", second, lambda: boxes(text)),
        ]
        print(f"{options.inputs} inputs, {options.clauses} clauses, Python {sys.version.split()[0]}")
        ours = None
        for label, path, work in works:
            seconds = least(work, options.repeat)
            ours = ours or seconds
            print(f"{label:26} {megabytes[path]:6.1f} MB {seconds:7.2f} s   {seconds / ours:5.2f} × ours")


def write(first: Path, second: Path, inputs: int, clauses: int) -> None:
    """The same property in both versions."""
    values = random.Random(0)
    label = clauses
    header = f"(vnnlib-version <2.0>)\n(declare-network N (declare-input X real [{inputs}]) "
    header += f"(declare-output Y real [{clauses + 1}]))\n"
    with first.open("w") as old, second.open("w") as new:
        old.writelines(f"(declare-const X_{index} Real)\n" for index in range(inputs))
        old.writelines(f"(declare-const Y_{index} Real)\n" for index in range(clauses + 1))
        new.write(header)
        for index in range(inputs):
            centre = values.random()
            for op, value in (("<=", centre + 0.01), (">=", centre - 0.01)):
                old.write(f"(assert ({op} X_{index} {value:.14f}))\n")
                new.write(f"(assert ({op} X[{index}] {value:.14f}))\n")
        old.write("(assert (or\n")
        new.write("(assert (or\n")
        for index in range(clauses):
            old.write(f"  (and (>= Y_{index} Y_{label}))\n")
            new.write(f"  (and (>= Y[{index}] Y[{label}]))\n")
        old.write("))\n")
        new.write("))\n")


def boxes(text: str) -> object:
    transform: Callable[[object], object] = vnnlib.compat.transform
    return transform(vnnlib.parse_query_string(text))


def least(work: Callable[[], object], repeat: int) -> float:
    """Seconds of the fastest of some repetitions."""
    found = []
    for _ in range(repeat):
        start = time.perf_counter()
        work()
        found.append(time.perf_counter() - start)
    return min(found)


if __name__ == "__main__":
    main()
