"""Where the noise at the outputs comes from: layers perturbed alone, all layers but one, or halves of the network.

A layer that is not perturbed runs rounded to nearest, and the others keep the random words that they have in the whole
run (`boundscope_prism.instrument(select=…)`). Errors of different operations under stochastic rounding are
uncorrelated to first order (Connolly, Higham and Mary, "Stochastic rounding and its probabilistic backward error
analysis", SIAM J. Sci. Comput. 43, 2021), so the variances that layers cause would add up, but for one thing: what a
layer that is perturbed alone hands on differs from sample to sample, and so do the errors of rounding it to nearest
further on, by about 0.3 ulp an operation. That is little beside UD's ulp, and nearly as much as SR's own noise. So
shares of layers alone may add up to more than one, and those of all but one to less; their sum is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from boundscope.errors import BoundscopeError
from boundscope.protocol import SourceSearch
from boundscope.sharding.ranks import RankGroup
from boundscope.variability.digits import digits, summarise
from boundscope.variability.moments_file import RunMoments, merged
from boundscope.variability.sampling import Layer, Sampler, Select, Tensors, share

# A half that causes less of the variance than this is not taken apart any further.
LEAST_SHARE = 0.05


@dataclass(frozen=True)
class Caused:
    """Noise of the outputs in some samples: root mean square of their standard deviations over finite elements, and
    the mean significant bits of inexact elements (None where there are none)."""

    deviation: float
    bits: float | None

    @property
    def variance(self) -> float:
        return self.deviation**2


@dataclass(frozen=True)
class Source:
    """What neighbouring nodes cause together: `share` is of the variance with all nodes perturbed; None where that is
    zero."""

    nodes: tuple[str, ...]
    caused: Caused
    share: float | None


@dataclass
class Search:
    """Samples of the outputs under selections of nodes, shared by the ranks. All ranks call the same in turn.

    `told(done, total)` is called before each trial; `total` is 0 where it is not known.
    """

    sampler: Sampler
    baseline: Tensors
    samples: int
    ranks: RankGroup = field(default_factory=RankGroup)
    told: Callable[[int, int], None] = lambda done, total: None
    _trials: int = 0

    def run(self, how: SourceSearch, nodes: Sequence[str]) -> list[Source]:
        """The nodes by what they cause, most first. `nodes` are those that compute, in order.

        Raises:
            CancelledError, DeadlineError: on every rank, where one rank should stop.
        """
        if not nodes:
            return []
        search: Mapping[SourceSearch, Callable[[Sequence[str], Caused], list[Source]]] = {
            SourceSearch.ONE: self._one,
            SourceSearch.ALL_BUT_ONE: self._all_but_one,
            SourceSearch.BISECT: self._bisect,
        }
        whole = self.caused(lambda name: True, 0)
        found = search[how](nodes, whole)
        return sorted(found, key=lambda source: -source.caused.deviation)

    def caused(self, select: Select, total: int) -> Caused:
        """Noise of the outputs with the selected nodes perturbed; the same on every rank."""
        self.told(self._trials, total)
        self._trials += 1
        outputs = [layer for layer in self.sampler.layers if layer.output]
        run = RunMoments.start("source", {layer.name: self.baseline[layer.name] for layer in outputs})
        error: BoundscopeError | None = None
        try:
            for number in share(range(self.samples), self.ranks.rank, self.ranks.size):
                run.add(number, self.sampler.sample(number, select, outputs))
        except BoundscopeError as caught:
            error = caught
        self.ranks.agree(error)
        return _caused(merged(self.ranks.gather(run)), outputs)

    def _one(self, nodes: Sequence[str], whole: Caused) -> list[Source]:
        return [self._alone((name,), whole, len(nodes) + 1) for name in nodes]

    def _alone(self, nodes: tuple[str, ...], whole: Caused, total: int = 0) -> Source:
        chosen = frozenset(nodes)
        caused = self.caused(lambda name: name in chosen, total)
        return Source(nodes, caused, _share(caused.variance, whole))

    def _all_but_one(self, nodes: Sequence[str], whole: Caused) -> list[Source]:
        """What a node causes is what is missing without it; its bits are those of the outputs without it."""
        found = []
        for name in nodes:
            rest = self.caused(lambda other, name=name: other != name, len(nodes) + 1)  # type: ignore[misc]
            missing = max(whole.variance - rest.variance, 0.0)
            found.append(Source((name,), Caused(float(np.sqrt(missing)), rest.bits), _share(missing, whole)))
        return found

    def _bisect(self, nodes: Sequence[str], whole: Caused) -> list[Source]:
        found, waiting = [], [tuple(nodes)]
        while waiting:
            part = waiting.pop()
            source = self._alone(part, whole)
            if len(part) == 1 or source.share is None or source.share < LEAST_SHARE:
                found.append(source)
                continue
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
        return found


def _share(variance: float, whole: Caused) -> float | None:
    return variance / whole.variance if whole.variance else None


def _caused(run: RunMoments, outputs: Sequence[Layer]) -> Caused:
    variances, bits = [], []
    for layer in outputs:
        moments = run.layers[layer.name]
        std = moments.totals().std(ddof=1)
        variances.append(np.square(std[np.isfinite(std)]).reshape(-1))
        summary = summarise(digits(moments)).deviation_bits
        if summary is not None:
            bits.append(summary.mean)
    everything = np.concatenate(variances)
    deviation = float(np.sqrt(everything.mean())) if everything.size else 0.0
    return Caused(deviation, float(np.mean(bits)) if bits else None)
