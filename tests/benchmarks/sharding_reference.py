"""auto_LiRPA on several ranks (`--engine auto_lirpa --sharding fsdp` and `tp`) against auto_LiRPA on one.

    python tests/benchmarks/sharding_reference.py [--widths 4096] [--layers 1 2] [--ranks 2 3] [--shardings fsdp tp]
        [--methods ibp crown alpha-crown] [--float64]

Networks are 784-H-…-H-10 of random weights, with one zone of `tp` for each two of their layers; bounds of 20 rows over
a box of radius 0.05. Real ranks (gloo), each a process with one thread. Δ is the largest difference of a margin or of
an end of any element's interval in any layer: 0 for `fsdp`. `margins` is the same of margins alone, and `sound` whether
these are nowhere tighter than one rank's (by more than rounding) and hold for 100 random inputs.

Of the rank that needs most, in MiB, and how much less that is than on one rank:

- `ledger`: the peak of weights, shards and gathered ones;
- `tensors`: the peak of what torch's allocator has lent since before the network was traced, as
  torch.cuda.max_memory_allocated tells of a GPU; in a run of its own, for the profiler that counts it takes memory. On
  several ranks an upper bound: what gloo's own threads free is known only once something else lies there;
- `later`: the same while the same bounds are computed once more, when no copies for the trace are held;
- `memory`: the peak of resident memory (VmHWM) above what the process held with the file read and before any bound.

Published, on two GPUs: `fsdp` 34 to 39 % less for wide networks, `tp` half.
"""

from __future__ import annotations

import argparse
import gc
import sys
import tempfile
import time
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import onnxruntime
import torch
from torch import Tensor

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.engines.memory import peaks_of_tensors
from boundscope.bounds import MemoryLedger
from boundscope.network import load_network
from boundscope.properties import read_property
from boundscope.protocol import Method, Sharding
from boundscope.reference import compat
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
    tensor_bytes: int
    later_bytes: int
    memory_bytes: int
    seconds: float


def _status_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def measure(
    ranks: RankGroup, files: JobFiles, method: Method, dtype: torch.dtype, sharding: Sharding
) -> Measured:
    network = load_network(files.network)
    prop = read_property(files.property, input_count=network.input_count, output_count=network.output_count)
    box, (clause,) = prop.cases[0].box, prop.cases[0].clauses

    def engine(ledger: MemoryLedger) -> ReferenceEngine:
        return ReferenceEngine(network, dtype=dtype, ranks=ranks, ledger=ledger, sharding=sharding)

    compat.import_auto_lirpa()
    gc.collect()
    Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts anew
    idle = _status_bytes("VmRSS")
    ranks.barrier()
    begun_s = time.perf_counter()
    ledger = MemoryLedger()
    found = engine(ledger).bounds(box, clause.constraints, method)
    seconds = time.perf_counter() - begun_s
    memory = _status_bytes("VmHWM") - idle
    peak = ledger.peaks(ranks.rank).ledger_peak_bytes
    gc.collect()
    again = engine(MemoryLedger())
    compute = partial(again.bounds, box, clause.constraints, method)
    tensors, later = peaks_of_tensors(compute, compute)
    return Measured(found.margins, dict(found.layers), peak, tensors, later, memory, seconds)


def difference(one: Measured, other: Measured) -> float:
    """Of what both have bounded; with layers split, that is all of one's layers, and some besides."""
    if not one.layers.keys() <= other.layers.keys():
        return float("inf")
    pairs = [(one.margins, other.margins)]
    pairs += [pair for name in one.layers for pair in zip(one.layers[name], other.layers[name], strict=True)]
    return max(0.0 if torch.equal(a, b) else float((a - b).abs().max()) for a, b in pairs)


def margins_difference(one: Measured, other: Measured) -> float:
    return float((one.margins - other.margins).abs().max())


def is_sound(alone: Measured, together: Measured, files: JobFiles) -> bool:
    """Nowhere tighter than one rank, and true of 100 inputs of the box."""
    network = load_network(files.network)
    prop = read_property(files.property, input_count=network.input_count, output_count=network.output_count)
    box, (clause,) = prop.cases[0].box, prop.cases[0].clauses
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(str(files.network), options)
    random, name = np.random.default_rng(1), session.get_inputs()[0].name
    room = 1e-4 * (1.0 + float(alone.margins.abs().max()))
    least = np.full(len(clause.constraints), np.inf)
    for _ in range(100):
        x = random.uniform(box.lower, box.upper).astype(np.float32)[None]
        (y,) = session.run(None, {name: x})
        values = [
            float(one.output_coeffs @ y[0][one.output_indices]) - one.bound for one in clause.constraints
        ]
        least = np.minimum(least, values)
    return bool((together.margins <= alone.margins + room).all()) and bool(
        (together.margins.numpy() <= least + room).all()
    )


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
    parser.add_argument(
        "--shardings", type=Sharding, nargs="+", default=[Sharding.FSDP, Sharding.TP], help="fsdp, tp"
    )
    parser.add_argument("--float64", action="store_true", help="as what is found positive is computed again")
    arguments = parser.parse_args()
    dtype = torch.float64 if arguments.float64 else torch.float32
    folder = Path(tempfile.mkdtemp())
    print(
        f"{'network':14} {'method':11} {'mode':4} P {'Δ':>7} {'margins':>7} {'sound':5} {'ledger':>7} {'less':>5} "
        f"{'tensors':>7} {'less':>5} {'later':>7} {'less':>5} {'memory':>7} {'less':>5} {'[s]':>7}"
    )
    for width in arguments.widths:
        for layers in arguments.layers:
            files = files_of(folder, [784, *[width] * layers, 10])
            for method in arguments.methods:
                runs(arguments, files, folder, f"784-{width}×{layers}-10", method, dtype)


def runs(
    arguments: argparse.Namespace,
    files: JobFiles,
    folder: Path,
    name: str,
    method: Method,
    dtype: torch.dtype,
) -> None:
    """Rows of one network and method."""
    alone: list[Measured] = []
    several = [(mode, size) for mode in arguments.shardings for size in arguments.ranks]
    for mode, size in ((Sharding.NONE, 1), *several):
        here = folder / f"{name}-{method}-{mode}-{size}"
        found = on_ranks(size, here, measure, files, method, dtype, mode)
        alone = alone or found
        told = [f"{name:14} {method:11} {mode:4} {size}"]
        told.append(f"{max(difference(alone[0], one) for one in found):7.2g}")
        told.append(f"{margins_difference(alone[0], found[0]):7.2g}")
        told.append(f"{'yes' if is_sound(alone[0], found[0], files) else 'NO':5}")
        for field in ("ledger_bytes", "tensor_bytes", "later_bytes", "memory_bytes"):
            now, before = (max(getattr(one, field) for one in each) / MIB for each in (found, alone))
            told.append(f"{now:7.1f} {100 - 100 * now / before:4.0f}%")
        print(*told, f"{found[0].seconds:7.2f}", flush=True)


if __name__ == "__main__":
    main()
