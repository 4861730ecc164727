"""Three small networks under stochastic arithmetic: bits of every layer, decisions, and what UD loses against SR.

    pip install scikit-learn && python tests/benchmarks/studies.py [--only NAME ...] [--samples N] [--seed S]

- **digits**: a CNN of MNIST's class, trained here on the 8x8 digits of scikit-learn; accuracy on held-out images.
- **segmentation**: a U-Net, trained here on discs and rectangles in noise; Dice on images that it has not seen.
- **speech**: WavLM's shape in small (strided convolutions on the waveform, grouped positional convolution, encoder
  layers with gated relative positions), random weights; each frame decides for one of 32 units, and what is reported
  is its agreement with the unperturbed run.

Each is run in float32 and in virtual bfloat16 (8 significand bits). Layers are the modules without submodules. Without
scikit-learn the digits are left out, and said to be.
"""

from __future__ import annotations

import argparse
import hashlib
import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

sys.path.insert(0, str(Path(__file__).parent.parent))
from benchmarks.studied.networks import (
    SEED,
    Floats,
    Study,
    digits_study,
    scikit_digits,
    segmentation_study,
    speech_study,
)
from boundscope.variability.compare import Comparison, compare
from boundscope.variability.decisions import Decisions, DecisionTotals
from boundscope.variability.digits import Digits, digits, summarise
from boundscope.variability.moments import Moments
from boundscope_prism import Mode
from boundscope_prism.instrument import Coverage, instrument

SAMPLES = 10
BFLOAT16 = 8
DENSE = (nn.Linear,)
PRODUCTS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.ConvTranspose2d)


@dataclass(frozen=True)
class Measured:
    """One study under one mode. `scores` are [samples, *S], `values` one a sample, layers in order of execution."""

    mode: Mode
    layers: dict[str, Digits]
    decisions: DecisionTotals
    baseline_scores: Floats
    scores: Floats
    baseline_value: float
    values: tuple[float, ...]
    coverage: Coverage
    digest: str


def measure(
    study: Study, mode: Mode, samples: int = SAMPLES, seed: int = SEED, precision: int | None = None
) -> Measured:
    """Moments of every leaf module over the samples. `digest` is of all bits of all layers in all samples."""
    reference, baseline_scores, _ = _pass(study, "rn", 0, seed, precision)
    moments = {name: Moments(array, name) for name, array in reference.items()}
    decisions = Decisions(baseline_scores, study.axis)
    digest, scores = hashlib.sha256(), []
    for sample in range(samples):
        layers, found, coverage = _pass(study, mode, sample, seed, precision)
        for name, array in layers.items():
            moments[name].update(sample, array)
            digest.update(array.tobytes())
        decisions.update(sample, found)
        scores.append(found)
    truth = study.decided(baseline_scores) if study.truth is None else study.truth
    return Measured(
        mode=mode,
        layers={name: digits(one) for name, one in moments.items()},
        decisions=decisions.totals(),
        baseline_scores=baseline_scores,
        scores=np.stack(scores),
        baseline_value=study.value(study.decided(baseline_scores), truth),
        values=tuple(study.value(study.decided(found), truth) for found in scores),
        coverage=coverage,
        digest=digest.hexdigest(),
    )


def _pass(
    study: Study, mode: Mode, sample: int, seed: int, precision: int | None
) -> tuple[dict[str, Floats], Floats, Coverage]:
    leaves = {name for name, module in study.model.named_modules() if not any(module.children())}
    layers: dict[str, Floats] = {}

    def observe(name: str, value: Tensor) -> None:
        if name in leaves:
            # A later layer may write in place.
            layers[name] = value.numpy().copy()

    with (
        torch.no_grad(),
        instrument(
            mode, seed=seed, sample=sample, precision=precision, model=study.model, observe=observe
        ) as run,
    ):
        scores = study.model(study.inputs)
    return layers, scores.numpy(), run.coverage


def layers_of_kind(study: Study, kinds: tuple[type[nn.Module], ...]) -> tuple[str, ...]:
    return tuple(name for name, module in study.model.named_modules() if isinstance(module, kinds))


def sr_against_ud(sr: Measured, ud: Measured, names: tuple[str, ...]) -> Comparison:
    """UD minus SR, in bits, over the layers of such names."""
    first, second = ({name: found for name, found in run.layers.items() if name in names} for run in (sr, ud))
    return compare(first, second, ("SR", "UD"))


def zero_terms(study: Study) -> dict[str, float]:
    """The share of terms that are zero for their input, by layer of products; padding counts, weights do not.

    Adding such a term is exact: SR leaves the sum as it is, UD moves it.
    """
    shares: dict[str, float] = {}

    def counting(name: str) -> Callable[[nn.Module, tuple[Tensor, ...]], None]:
        def count(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
            other = (inputs[0] != 0).to(torch.float32)
            # Each input of a transposed convolution without overlap has a part in as many sums as any other.
            if isinstance(module, nn.Conv1d | nn.Conv2d):
                product = nn.functional.conv1d if isinstance(module, nn.Conv1d) else nn.functional.conv2d
                ones = torch.ones_like(module.weight)
                other = product(
                    other, ones, None, module.stride, module.padding, module.dilation, module.groups
                )
                other /= ones[0].numel()
            shares[name] = 1 - float(other.mean())

        return count

    modules = dict(study.model.named_modules())
    hooks = [
        modules[name].register_forward_pre_hook(counting(name)) for name in layers_of_kind(study, PRODUCTS)
    ]
    with torch.no_grad():
        study.model(study.inputs)
    for hook in hooks:
        hook.remove()
    return shares


def expected_loss_bits(zero_share: float) -> float:
    """What UD loses against SR in a long product of inputs that are the same in each sample.

    A rounding of a fraction f of an ulp, uniform, has the variance f(1 - f) under SR, 1/6 on average, and 1 under UD,
    also where nothing is to be rounded.
    """
    return 0.5 * math.log2(6 / (1 - zero_share))


# ------------------------------------------------------------ tables


def _bits(found: Digits) -> str:
    spread = summarise(found).deviation_bits
    return "exact" if spread is None else f"{spread.mean:.1f}"


def run_table(study: Study, runs: dict[tuple[str, Mode], Measured]) -> str:
    lines = [
        f"| {study.name} | coverage | outputs [bits] | {study.value_name}: unperturbed | least | greatest "
        "| flipped | flips |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for (precision, mode), run in runs.items():
        decisions = run.decisions.summary()
        share = "100 %" if run.coverage.complete else f"{run.coverage.share_inside:.2%}"
        lines.append(
            f"| {precision}, {mode.upper()} | {share} | {_bits(list(run.layers.values())[-1])} "
            f"| {run.baseline_value:.4f} | {min(run.values):.4f} | {max(run.values):.4f} "
            f"| {decisions.flipped} of {decisions.decisions} | {decisions.flips} |"
        )
    return "\n".join(lines)


def layer_table(study: Study, sr: Measured, ud: Measured) -> str:
    modules, zeros = dict(study.model.named_modules()), zero_terms(study)
    lines = [
        f"| {study.name}: layer | kind | SR [bits] | UD [bits] | UD − SR | zero terms | expected of the layer alone |",
        "|---|---|---|---|---|---|---|",
    ]
    for layer in sr_against_ud(sr, ud, tuple(sr.layers)).layers:
        difference = "" if layer.difference_bits is None else f"{layer.difference_bits:+.2f}"
        share, expected = "", ""
        if layer.layer in zeros:
            share = f"{zeros[layer.layer]:.0%}"
            expected = f"{-expected_loss_bits(zeros[layer.layer]):+.2f}"
        lines.append(
            f"| {layer.layer} | {type(modules[layer.layer]).__name__} | {_bits(sr.layers[layer.layer])} "
            f"| {_bits(ud.layers[layer.layer])} | {difference} | {share} | {expected} |"
        )
    return "\n".join(lines)


def kind_table(study: Study, sr: Measured, ud: Measured) -> str:
    """Means over the layers of each kind of module, each layer counting once."""
    modules = dict(study.model.named_modules())
    kinds: dict[str, list[tuple[float, float, float]]] = {}
    for layer in sr_against_ud(sr, ud, tuple(sr.layers)).layers:
        bits = (layer.first_bits, layer.second_bits, layer.difference_bits)
        if None not in bits:
            kinds.setdefault(type(modules[layer.layer]).__name__, []).append(bits)  # type: ignore[arg-type]
    lines = [f"| {study.name}: kind | layers | SR [bits] | UD [bits] | UD − SR |", "|---|---|---|---|---|"]
    for kind, rows in kinds.items():
        first, second, difference = np.mean(rows, axis=0)
        lines.append(f"| {kind} | {len(rows)} | {first:.1f} | {second:.1f} | {difference:+.2f} |")
    return "\n".join(lines)


def _studies(names: list[str]) -> list[Study]:
    found = []
    if "digits" in names:
        try:
            found.append(digits_study(*scikit_digits()))
        except ModuleNotFoundError as error:
            print(f"digits: left out, for {error.name} is not installed (pip install scikit-learn)\n")
    if "segmentation" in names:
        found.append(segmentation_study())
    if "speech" in names:
        found.append(speech_study())
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = ["digits", "segmentation", "speech"]
    parser.add_argument("--only", nargs="+", choices=names, default=names, metavar="NAME")
    parser.add_argument("--samples", type=int, default=SAMPLES)
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args()
    if options.samples < 2:
        sys.exit("--samples: one sample shows no variation; take at least 2")
    torch.set_num_threads(1)
    modes: tuple[Mode, ...] = ("sr", "ud")
    for study in _studies(options.only):
        runs = {
            (title, mode): measure(study, mode, options.samples, options.seed, precision)
            for title, precision in (("float32", None), ("bfloat16", BFLOAT16))
            for mode in modes
        }
        print(run_table(study, runs) + "\n")
        for table in (kind_table, layer_table):
            print(table(study, runs["float32", "sr"], runs["float32", "ud"]) + "\n")
        for title in ("float32", "bfloat16"):
            for words, kinds in (("dense", DENSE), ("dense and convolutional", PRODUCTS)):
                chosen = layers_of_kind(study, kinds)
                if chosen:
                    found = sr_against_ud(runs[title, "sr"], runs[title, "ud"], chosen)
                    print(f"{title}, {words} layers: {found.sentences()}")
        print(flush=True)


if __name__ == "__main__":
    main()
