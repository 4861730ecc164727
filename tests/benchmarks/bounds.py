"""CROWN on fully connected networks: our engine against auto_LiRPA, in one process, interleaved, one thread.

Prints medians of seconds and their ratio (auto_LiRPA / ours: above 1 we are faster), and the largest difference
between the two engines' output bounds. Ours works in float64 with every rounding accounted for; theirs in float32.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch
from onnx import helper
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent))
from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.network import load_network
from boundscope.properties.types import Box
from boundscope.protocol import Method
from boundscope.reference import import_auto_lirpa
from boundscope.sharding.weights import WholeWeights
from support.models import save

SHAPES = ([784, 256, 256, 10], [784, 256, 256, 256, 256, 10], [784, 1024, 1024, 1024, 10])
RADIUS = 0.01
REPEATS = 5


def _module(widths: list[int]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for fan_in, fan_out in itertools.pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def _onnx(module: nn.Sequential, folder: Path) -> Path:
    nodes, constants, name = [], {}, "x"
    for number, layer in enumerate(module):
        out = "y" if number == len(module) - 1 else f"t{number}"
        if isinstance(layer, nn.Linear):
            constants[f"W{number}"] = layer.weight.detach().numpy()
            constants[f"b{number}"] = layer.bias.detach().numpy()
            nodes.append(
                helper.make_node("Gemm", [name, f"W{number}", f"b{number}"], [out], f"fc{number}", transB=1)
            )
        else:
            nodes.append(helper.make_node("Relu", [name], [out], f"relu{number}"))
        name = out
    return save(
        folder / "net.onnx", nodes, constants, [1, module[0].in_features], [1, module[-1].out_features]
    )


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lirpa = import_auto_lirpa()
    heads = (
        f"{'ours [s]':>10}",
        f"{'theirs [s]':>10}",
        f"{'ratio':>7}",
        f"{'largest difference':>19}",
        "our peak [MiB]",
    )
    print(f"{'network':28}", *heads)
    for widths in SHAPES:
        torch.manual_seed(0)
        module = _module(widths)
        centre = torch.rand(1, widths[0])
        with tempfile.TemporaryDirectory() as folder:
            network = load_network(_onnx(module, Path(folder)))
        lower, upper = ((centre + sign * RADIUS).double().flatten().numpy() for sign in (-1, 1))
        box = Box(tuple(map(repr, lower.tolist())), tuple(map(repr, upper.tolist())), lower, upper)
        ours_s, theirs_s, peak = [], [], 0
        for _ in range(REPEATS):
            ledger = MemoryLedger()
            weights = WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64)
            start = time.perf_counter()
            engine = BoundEngine(network, weights, ledger)
            context = engine.context(box, Method.CROWN)
            rows = engine.element_bounds(context, "y", torch.arange(widths[-1]), "outputs")
            ours_s.append(time.perf_counter() - start)
            peak = max(peak, ledger.peaks(0).ledger_peak_bytes)
            bounded = lirpa.BoundedModule(module, torch.empty_like(centre))
            ball = lirpa.PerturbationLpNorm(norm=np.inf, eps=RADIUS)
            start = time.perf_counter()
            low, high = bounded.compute_bounds(x=(lirpa.BoundedTensor(centre, ball),), method="CROWN")
            theirs_s.append(time.perf_counter() - start)
        difference = max(
            float((rows.lower.flatten() - low.detach().flatten()).abs().max()),
            float((rows.upper.flatten() - high.detach().flatten()).abs().max()),
        )
        mine, other = statistics.median(ours_s), statistics.median(theirs_s)
        name = "-".join(map(str, widths))
        print(
            f"{name:28} {mine:10.3f} {other:10.3f} {other / mine:7.2f} {difference:19.2e} {peak / 2**20:16.1f}"
        )


if __name__ == "__main__":
    main()
