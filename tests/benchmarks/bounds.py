"""CROWN and α-CROWN on fully connected networks: our engine against auto_LiRPA, in one process, one thread.

Prints medians of seconds, interleaved, and their ratio (auto_LiRPA / ours: above 1 we are faster). For CROWN the
mean width of the outputs' bounds on both sides; for α-CROWN, 20 steps each, the mean lower bound of the
outputs on both sides (more is tighter), beside CROWN's. Our bounds account for every rounding; theirs are float32.
"""

from __future__ import annotations

import itertools
import statistics
import sys
import tempfile
import time
import warnings
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import torch
from onnx import helper
from torch import nn

sys.path.insert(0, str(Path(__file__).parent.parent))
from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.alpha import AlphaSettings
from boundscope.network import Network, load_network
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Method
from boundscope.reference import import_auto_lirpa
from boundscope.reference.compat import bound_options, quiet
from boundscope.reference.guard import alpha_helps
from boundscope.sharding.weights import WholeWeights
from support.models import save

SHAPES = (
    [784, 256, 256, 10],
    [784, 256, 256, 256, 256, 10],
    [784, 1024, 1024, 1024, 10],
    [784, 4096, 4096, 10],
)
RADIUS = 0.01
REPEATS = 5
ALPHA_SHAPES = ([784, 256, 256, 10], [784, 256, 256, 256, 256, 10], [784, 256, 256, 256, 256, 256, 256, 10])
ALPHA_RADIUS = 0.03
ALPHA_REPEATS = 3


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


def _case(widths: list[int], radius: float) -> tuple[nn.Sequential, Network, torch.Tensor, Box]:
    """A random network, and the box of this radius around a random input."""
    torch.manual_seed(0)
    module = _module(widths)
    centre = torch.rand(1, widths[0])
    with tempfile.TemporaryDirectory() as folder:
        network = load_network(_onnx(module, Path(folder)))
    lower, upper = ((centre + sign * radius).double().flatten().numpy() for sign in (-1, 1))
    box = Box(tuple(map(repr, lower.tolist())), tuple(map(repr, upper.tolist())), lower, upper)
    return module, network, centre, box


def _engine(network: Network, ledger: MemoryLedger) -> BoundEngine:
    weights = WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64)
    return BoundEngine(network, weights, ledger)


def crown(lirpa: ModuleType) -> None:
    heads = (
        f"{'ours [s]':>10}",
        f"{'theirs [s]':>10}",
        f"{'ratio':>7}",
        f"{'our width':>10}",
        f"{'theirs':>10}",
        "our peak [MiB]",
    )
    print(f"{'CROWN':28}", *heads)
    for widths in SHAPES:
        module, network, centre, box = _case(widths, RADIUS)
        ours_s, theirs_s, peak = [], [], 0
        for _ in range(REPEATS):
            ledger = MemoryLedger()
            engine = _engine(network, ledger)
            start = time.perf_counter()
            context = engine.context(box, Method.CROWN)
            rows = engine.element_bounds(context, "y", torch.arange(widths[-1]), "outputs")
            ours_s.append(time.perf_counter() - start)
            peak = max(peak, ledger.peaks(0).ledger_peak_bytes)
            bounded = lirpa.BoundedModule(module, torch.empty_like(centre))
            ball = lirpa.PerturbationLpNorm(norm=np.inf, eps=RADIUS)
            start = time.perf_counter()
            low, high = bounded.compute_bounds(x=(lirpa.BoundedTensor(centre, ball),), method="CROWN")
            theirs_s.append(time.perf_counter() - start)
        width, their_width = float((rows.upper - rows.lower).mean()), float((high - low).mean())
        mine, other = statistics.median(ours_s), statistics.median(theirs_s)
        name = "-".join(map(str, widths))
        print(
            f"{name:28} {mine:10.3f} {other:10.3f} {other / mine:7.2f} {width:10.4f} {their_width:10.4f} "
            f"{peak / 2**20:14.1f}"
        )


def alpha_crown(lirpa: ModuleType) -> None:
    heads = (
        f"{'ours [s]':>10}",
        f"{'theirs [s]':>10}",
        f"{'ratio':>7}",
        f"{'our mean':>10}",
        f"{'theirs':>10}",
        f"{'our CROWN':>10}",
        f"{'theirs':>10}",
    )
    print(f"\n{'α-CROWN, mean lower bound':28}", *heads)
    for widths in ALPHA_SHAPES:
        module, network, centre, box = _case(widths, ALPHA_RADIUS)
        module.requires_grad_(False)
        one = np.ones(1)
        rows = [LinearConstraint(np.array([index]), one, Fraction(0)) for index in range(widths[-1])]
        ours_s, theirs_s = [], []
        for _ in range(ALPHA_REPEATS):
            start = time.perf_counter()
            engine = _engine(network, MemoryLedger())
            found = engine.margins(engine.context(box, Method.ALPHA_CROWN), rows, Method.ALPHA_CROWN)
            ours_s.append(time.perf_counter() - start)
            options = bound_options(patches=False, steps=AlphaSettings().steps, between_steps=lambda: None)
            bounded = lirpa.BoundedModule(module, torch.empty_like(centre), bound_opts=options)
            ball = lirpa.PerturbationLpNorm(norm=np.inf, eps=ALPHA_RADIUS)
            ends = (lirpa.BoundedTensor(centre, ball),)
            start = time.perf_counter()
            with quiet():
                low, _ = bounded.compute_bounds(x=ends, method="CROWN-Optimized", bound_upper=False)
            theirs_s.append(time.perf_counter() - start)
        plain = engine.margins(engine.context(box, Method.CROWN), rows, Method.CROWN)
        with quiet():
            their_plain, _ = bounded.compute_bounds(x=ends, method="CROWN", bound_upper=False)
        mine, other = statistics.median(ours_s), statistics.median(theirs_s)
        means = [float(value.detach().mean()) for value in (found, low, plain, their_plain)]
        name = "-".join(map(str, widths))
        print(
            f"{name:28} {mine:10.3f} {other:10.3f} {other / mine:7.2f}",
            *(f"{value:10.5g}" for value in means),
        )


def main() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    lirpa = import_auto_lirpa()
    crown(lirpa)
    if not alpha_helps():
        print("\nauto_LiRPA's optimiser returns its start values with this torch: no α-CROWN to compare with")
        return
    alpha_crown(lirpa)


if __name__ == "__main__":
    main()
