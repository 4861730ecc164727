"""auto_LiRPA with weights shared out (`--engine auto_lirpa --sharding fsdp`) against auto_LiRPA on one rank.

    python tests/benchmarks/sharding_reference.py [--widths 4096] [--layers 1 2] [--ranks 2 3]
        [--methods ibp crown alpha-crown] [--float64]

Networks are 784-H-10 and 784-H-H-10 of random weights; bounds of 20 rows over a box of radius 0.05. Real ranks (gloo),
each a process with one thread. Δ is the largest difference of a margin or of an end of any element's interval in any
layer, and must be 0. Of the rank that needs most, in MiB: `ledger` is the peak of weights, shards and gathered ones;
`memory` the peak of resident memory (VmHWM) above what the process held with the file read and before any bound: all
that auto_LiRPA takes. `less` is against one rank. Published: 34 to 39 % less at two ranks, each a GPU.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))
from boundscope.bounds import MemoryLedger
from boundscope.network import load_network
from boundscope.properties import read_property
from boundscope.protocol import Method
from boundscope.reference.engine import ReferenceEngine
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.files import JobFiles
from support.models import box_property, mlp
from support.ranks import on_ranks

MIB = 2**20


@dataclass(frozen=True)
class Measured:
    margins: Tensor
    layers: dict[str, tuple[Tensor, Tensor]]
    ledger_bytes: int
    memory_bytes: int
    seconds: float


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def measure(ranks: RankGroup, files: JobFiles, method: Method, dtype: torch.dtype) -> Measured:
    network = load_network(files.network)
    prop = read_property(files.property, input_count=network.input_count, output_count=network.output_count)
    box, (clause,) = prop.cases[0].box, prop.cases[0].clauses
    ledger = MemoryLedger()
    engine = ReferenceEngine(network, dtype=dtype, ranks=ranks, ledger=ledger)  # imports auto_LiRPA
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
    idle = _status_bytes("VmRSS")
    ranks.barrier()
    begun_s = time.perf_counter()
    found = engine.bounds(box, clause.constraints, method)
    seconds = time.perf_counter() - begun_s
    peak = ledger.peaks(ranks.rank).ledger_peak_bytes
    return Measured(found.margins, dict(found.layers), peak, _status_bytes("VmHWM") - idle, seconds)


def difference(one: Measured, other: Measured) -> float:
    if one.layers.keys() != other.layers.keys():
        return float("inf")
    pairs = [(one.margins, other.margins)]
    pairs += [pair for name in one.layers for pair in zip(one.layers[name], other.layers[name], strict=True)]
    return max(0.0 if torch.equal(a, b) else float((a - b).abs().max()) for a, b in pairs)


def files_of(folder: Path, widths: list[int]) -> JobFiles:
    name = "-".join(map(str, widths))
    network = mlp(folder / f"{name}.onnx", widths, seed=1)
    centre = np.random.default_rng(0).random(widths[0])
    session = onnxruntime.InferenceSession(str(network))
    (outputs,) = session.run(None, {"x": centre[None].astype(np.float32)})
    rows = " ".join(f"(>= Y_{i} {float(y)!r}) (<= Y_{i} {float(y)!r})" for i, y in enumerate(outputs[0]))
    prop = folder / f"{name}.vnnlib"
    lower, upper = (centre - 0.05).tolist(), (centre + 0.05).tolist()
    prop.write_text(box_property(lower, upper, widths[-1], f"(assert (or (and {rows})))"))
    return JobFiles(network, prop)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--widths", type=int, nargs="+", default=[4096])
    parser.add_argument("--layers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--ranks", type=int, nargs="+", default=[2])
    parser.add_argument(
        "--methods", type=Method, nargs="+", default=[Method.IBP, Method.CROWN, Method.ALPHA_CROWN]
    )
    parser.add_argument("--float64", action="store_true", help="as what is found positive is computed again")
    arguments = parser.parse_args()
    dtype = torch.float64 if arguments.float64 else torch.float32
    folder = Path(tempfile.mkdtemp())
    print(
        f"{'network':18} {'method':12} {'mode':5} P {'Δ':>7} {'ledger':>7} {'less':>6} {'memory':>7} {'less':>6} "
        f"{'[s]':>7}"
    )
    for widths in ([784, *[width] * layers, 10] for width in arguments.widths for layers in arguments.layers):
        files = files_of(folder, widths)
        for method in arguments.methods:
            alone: list[Measured] = []
            for size in (1, *arguments.ranks):
                here = folder / f"{'-'.join(map(str, widths))}-{method}-{size}"
                found = on_ranks(size, here, measure, files, method, dtype)
                alone = alone or found
                ledger, memory = (
                    [max(getattr(one, field) for one in each) / MIB for each in (found, alone)]
                    for field in ("ledger_bytes", "memory_bytes")
                )
                print(
                    f"{'-'.join(map(str, widths)):18} {method:12} {'none' if size == 1 else 'fsdp':5} {size} "
                    f"{max(difference(alone[0], one) for one in found):7.2g} "
                    f"{ledger[0]:7.1f} {100 - 100 * ledger[0] / ledger[1]:5.0f}% "
                    f"{memory[0]:7.1f} {100 - 100 * memory[0] / memory[1]:5.0f}% {found[0].seconds:7.2f}",
                    flush=True,
                )


if __name__ == "__main__":
    main()
