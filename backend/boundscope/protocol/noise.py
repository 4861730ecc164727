"""What is measured of a network under stochastic arithmetic."""

from __future__ import annotations

import msgspec

from boundscope.protocol.base import Struct
from boundscope.protocol.choices import Verdict
from boundscope.protocol.results import RankMemory, Seconds


class LayerNoise(Struct, tag="layer_noise"):
    """Significant bits of one layer over the samples taken so far; from a rank while it runs: over its own samples.

    Bits are −log2 of the relative standard deviation, over the `elements` that are neither exact, nor of mean zero, nor
    NaN or infinite in any sample; None where there are none.
    """

    elapsed_s: float
    layer: str
    op: str
    samples: int
    elements: int
    exact: int
    zero_mean: int
    nan: int
    infinite: int
    without: int  # elements whose noise is at least as large as they are
    mean_bits: float | None
    least_bits: float | None
    q05_bits: float | None
    median_bits: float | None
    q95_bits: float | None


class LayerMap(Struct, tag="layer_map"):
    """Significant bits of a layer's elements at the points measured, a picture a channel: see
    `boundscope.variability.maps.BitsMap`.

    `bits` are float32 and `kinds` int8 (0 inexact, 1 exact, 2 mean zero, 3 NaN, 4 infinite), each [channels, height,
    width] in C order, little-endian; `channels` names the channels that are told, of `of_channels`.
    """

    layer: str
    channels: tuple[int, ...]
    of_channels: int
    height: int
    width: int
    block: int  # elements of the layer along each side of a cell
    bits: bytes
    kinds: bytes


class DecisionNoise(Struct):
    """Whether the decisions of one output flip: see `boundscope.variability.decisions.DecisionSummary`."""

    layer: str
    samples: int
    decisions: int
    flipped: int
    flips: int
    undecided: int
    least_noise_margin: float | None
    median_noise_margin: float | None
    sentence: str


class OperatorCoverage(Struct):
    """Floating-point operations of one operator: rounded one by one, once at the output, or not at all."""

    operator: str
    calls: int
    inside: int
    at_output: int
    untouched: int


class CoverageSummary(Struct):
    share_inside: float
    sentence: str
    operators: tuple[OperatorCoverage, ...]


class NoiseSource(Struct):
    """Noise at the network's outputs caused by one layer, or by neighbours that a search did not take apart.

    `deviation` is the root mean square of the outputs' standard deviations, `share` its square as a part of that with
    all layers perturbed. `caused_bits` are the mean significant bits that the outputs have then, `shown_bits` those of
    the layer itself when all are perturbed.
    """

    layer: str
    op: str
    layers: int
    deviation: float
    share: float | None
    caused_bits: float | None
    shown_bits: float | None


class DeployedLayer(Struct):
    """One layer between proof and measurement; everything in the layer's unit, the largest over its elements.

    `width` is proven: what inputs of the property's boxes can make of it over the reals. `rounding` is proven for the
    points measured: no two results of this arithmetic for one point differ by more. `observed` is the largest
    difference of a sample from the baseline, and `used` its largest part of the proven one, element by element.
    """

    layer: str
    op: str
    elements: int
    width: float | None
    rounding: float
    observed: float
    used: float
    violation: str = ""  # a sentence where a sample lies outside the proven interval


class VariabilityResult(Struct, tag="variability_result"):
    """`verdict` is None where the run gave what was asked for: noise is measured, not judged. `layers` are in the order
    of the network; `files` lie in `folder` on the machine that ran the job."""

    verdict: Verdict | None
    reason: str
    samples_asked: int
    seconds: Seconds
    arithmetic: str = ""
    points: int = 0
    inputs: str = ""  # where the points are from, in words
    samples: int = 0
    baseline: str = ""  # whether the unperturbed run gives the same bits again, in words
    layers: tuple[LayerNoise, ...] = ()
    decisions: tuple[DecisionNoise, ...] = ()
    coverage: CoverageSummary | None = None
    sources: tuple[NoiseSource, ...] = ()
    sources_note: str = ""
    deployed: tuple[DeployedLayer, ...] = ()
    deployed_note: str = ""
    peak_bytes: tuple[RankMemory, ...] = ()
    versions: dict[str, str] = msgspec.field(default_factory=dict)
    command: str = ""
    folder: str = ""
    files: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """As `Verdict.exit_code`; 0 where the run gave what was asked for."""
        return 0 if self.verdict is None else self.verdict.exit_code
