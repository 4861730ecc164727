"""Two runs against each other, layer by layer: SR against UD, float32 against virtual bfloat16.

Layers are joined by name. Where both tensors have one shape, their elements are compared in pairs, over those that
both runs have digits for; otherwise the layers' means are. Compared is the deviation estimate; its difference is in
bits, positive where the second run keeps more of them. Runs should have the same number of samples: with few, the
estimate is high (`digits.deviation_bias_bits`), and where numbers differ the sentences say by how much that shifts it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from boundscope.variability.digits import Digits, deviation_bias_bits, summarise


@dataclass(frozen=True)
class LayerDifference:
    """One layer in both runs. Bits are means over the inexact elements of each run; None where it has none.

    `difference_bits` is second minus first: the mean over `paired` elements, or of the two means where the layers'
    shapes differ (`paired` is None then); None where a run has no digits there, or no element has them in both.
    """

    layer: str
    samples_first: int
    samples_second: int
    elements_first: int
    elements_second: int
    first_bits: float | None
    second_bits: float | None
    paired: int | None
    difference_bits: float | None
    exact_first: int
    exact_second: int
    not_finite_first: int
    not_finite_second: int


@dataclass(frozen=True)
class Comparison:
    """Two runs by the names that they are to be called; layers in the order of the first run."""

    first: str
    second: str
    layers: tuple[LayerDifference, ...]
    only_first: tuple[str, ...]
    only_second: tuple[str, ...]

    @property
    def mean_difference_bits(self) -> float | None:
        """Mean over layers of their difference, each layer counting once; None where no layer has one."""
        differences = [layer.difference_bits for layer in self.layers if layer.difference_bits is not None]
        return float(np.mean(differences)) if differences else None

    def sentences(self) -> str:
        """The comparison in words, one sentence a fact."""
        facts = [self._difference(), *self._samples(), *self._exactness()]
        for name, only in ((self.first, self.only_first), (self.second, self.only_second)):
            if only:
                facts.append(f"Only {name} has {_count(len(only), 'layer')}: {', '.join(only)}.")
        return " ".join(facts)

    def _difference(self) -> str:
        compared = [layer for layer in self.layers if layer.difference_bits is not None]
        if not self.layers:
            return f"{self.first} and {self.second} have no layer in common."
        if not compared:
            return f"No layer of {self.first} and {self.second} has inexact elements in both."
        differences = np.array([layer.difference_bits for layer in compared])
        text = _keeps(self.first, self.second, float(differences.mean()))
        if len(compared) == 1:
            return f"{text}, in {compared[0].layer}."
        low, high = int(differences.argmin()), int(differences.argmax())
        return (
            f"{text}, on the mean of {len(compared)} layers (median {np.median(differences):+.2f}; "
            f"from {differences[low]:+.2f} in {compared[low].layer} to {differences[high]:+.2f} "
            f"in {compared[high].layer})."
        )

    def _samples(self) -> list[str]:
        """That numbers of samples differ, and what that alone does; of the layer where it does most."""
        shifts = [
            (deviation_bias_bits(layer.samples_second) - deviation_bias_bits(layer.samples_first), layer)
            for layer in self.layers
            if layer.difference_bits is not None
        ]
        shift, layer = max(shifts, key=lambda pair: abs(pair[0]), default=(0.0, None))
        if layer is None or not shift:
            return []
        return [
            f"{self.first} has {layer.samples_first} samples and {self.second} {layer.samples_second} "
            f"in {layer.layer}, which alone shifts the difference by {shift:+.2f} bits."
        ]

    def _exactness(self) -> list[str]:
        facts = []
        for name, first, exact in (
            (self.first, self.second, [layer.layer for layer in self.layers if _exact_in_first(layer)]),
            (self.second, self.first, [layer.layer for layer in self.layers if _exact_in_second(layer)]),
        ):
            if exact:
                facts.append(
                    f"{name} is exact and {first} is not in {_count(len(exact), 'layer')}: {', '.join(exact)}."
                )
        for name, broken in (
            (self.first, sum(layer.not_finite_first for layer in self.layers)),
            (self.second, sum(layer.not_finite_second for layer in self.layers)),
        ):
            if broken:
                facts.append(f"{name} has NaN or Inf in {_count(broken, 'element')} of these layers.")
        return facts


def compare(
    first: Mapping[str, Digits],
    second: Mapping[str, Digits],
    names: tuple[str, str] = ("the first", "the second"),
) -> Comparison:
    """Compare two runs, each its layers' digits by name. Runs without a common layer compare to nothing, by name."""
    return Comparison(
        *names,
        layers=tuple(_layer(name, found, second[name]) for name, found in first.items() if name in second),
        only_first=tuple(name for name in first if name not in second),
        only_second=tuple(name for name in second if name not in first),
    )


def _layer(name: str, first: Digits, second: Digits) -> LayerDifference:
    summaries = summarise(first), summarise(second)
    means = [None if one.deviation_bits is None else one.deviation_bits.mean for one in summaries]
    paired, difference = None, None
    if first.kind.shape == second.kind.shape:
        both = first.relative & second.relative
        paired = int(np.count_nonzero(both))
        if paired:
            difference = float((second.deviation_bits[both] - first.deviation_bits[both]).mean())
    elif means[0] is not None and means[1] is not None:
        difference = means[1] - means[0]
    return LayerDifference(
        layer=name,
        samples_first=first.samples,
        samples_second=second.samples,
        elements_first=summaries[0].elements,
        elements_second=summaries[1].elements,
        first_bits=means[0],
        second_bits=means[1],
        paired=paired,
        difference_bits=difference,
        exact_first=summaries[0].exact,
        exact_second=summaries[1].exact,
        not_finite_first=summaries[0].nan + summaries[0].infinite,
        not_finite_second=summaries[1].nan + summaries[1].infinite,
    )


def _exact_in_first(layer: LayerDifference) -> bool:
    return layer.exact_first == layer.elements_first and layer.exact_second < layer.elements_second


def _exact_in_second(layer: LayerDifference) -> bool:
    return layer.exact_second == layer.elements_second and layer.exact_first < layer.elements_first


def _keeps(first: str, second: str, difference_bits: float) -> str:
    if abs(difference_bits) < 0.005:
        return f"{second} keeps as many bits as {first} (within 0.005)"
    return f"{second} keeps {abs(difference_bits):.2f} bits {'more' if difference_bits > 0 else 'fewer'} than {first}"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
