"""Layers split over ranks (`tp`, `tp-exact`) against one rank: how far bounds move, and what a rank holds at most.

    python tests/benchmarks/sharding_tp.py [--width H] [--ranks 2 4] [--precision mixed|float64]

Two networks of random weights, 784-H-10 (one zone) and 784-H-H-10 (with a layer after the zone), by CROWN over a small
box. `ledger` is the peak of the rank that needs most, `less` how many times less than one rank's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
from boundscope.protocol import Method, Precision, PropertyFile, Sharding, VerifyJob, VerifyResult
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from support.jobs import ref
from support.models import box_property, mlp

MIB = 2**20


def run(files: JobFiles, sharding: Sharding, ranks: int, precision: Precision) -> VerifyResult:
    job = VerifyJob(
        network=ref(files.network),
        property=PropertyFile(file=ref(files.property)),
        sharding=sharding,
        ranks=ranks,
        method=Method.CROWN,
        precision=precision,
        timeout_s=300.0,
    )
    return run_local(job, files, lambda rank, event: None)


def lower(result: VerifyResult) -> list[float]:
    return [one.lower for one in result.margin.per_clause if one.lower is not None]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=4096)
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument("--precision", type=Precision, default=Precision.MIXED)
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    print(
        f"{'network':16} {'mode':9} P {'max |Δ|':>9} {'looser by':>9} {'ledger':>9} {'less':>6} {'solve [s]':>9}"
    )
    for hidden in (1, 2):
        network = mlp(folder / f"{hidden}.onnx", [784, *[arguments.width] * hidden, 10], seed=1)
        prop = folder / f"{hidden}.vnnlib"
        clauses = " ".join(f"(and (>= Y_{i} 2.5))" for i in range(10))
        prop.write_text(box_property([-0.02] * 784, [0.02] * 784, 10, f"(assert (or {clauses}))"))
        files = JobFiles(network, prop)
        runs = [(Sharding.NONE, 1)]
        runs += [(mode, ranks) for ranks in arguments.ranks for mode in (Sharding.TP, Sharding.TP_EXACT)]
        alone: VerifyResult | None = None
        for mode, ranks in runs:
            result = run(files, mode, ranks, arguments.precision)
            alone = alone or result
            pairs = list(zip(lower(alone), lower(result), strict=True))
            largest = max((abs(a - b) for a, b in pairs), default=float("nan"))
            mean = sum(a - b for a, b in pairs) / max(1, len(pairs))
            peaks = [max(m.ledger_peak_bytes for m in one.peak_bytes) for one in (alone, result)]
            name = "-".join(["784", *["h"] * hidden, "10"])
            print(
                f"{name:16} {mode:9} {ranks} {largest:9.2g} {mean:9.2g} {peaks[1] / MIB:7.1f} M "
                f"{peaks[0] / peaks[1]:6.2f} {result.seconds.solve:9.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
