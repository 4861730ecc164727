"""The folder of a run: the moments of the samples taken so far, from which it goes on.

Rank 0 keeps `moments.npz`; every other rank writes its own samples beside it, and rank 0 takes them in at the end, or
when a run that was cut short is started again in the same folder.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from boundscope.errors import VariabilityError
from boundscope.variability.moments_file import RunMoments
from boundscope.variability.sampling import Tensors

MOMENTS = "moments.npz"
_PART = "moments.rank-{}.npz"


@dataclass(frozen=True)
class RunFolder:
    """`identity` says by name what decides the numbers (network, points, mode, seed, …)."""

    path: Path
    identity: Mapping[str, str]

    @property
    def moments(self) -> Path:
        return self.path / MOMENTS

    def part(self, rank: int) -> Path:
        return self.path / _PART.format(rank)

    def start(self, baseline: Tensors, classes: Mapping[str, int]) -> RunMoments:
        """A run without samples."""
        return RunMoments.start(json.dumps(dict(self.identity)), baseline, classes)

    def resume(self, baseline: Tensors, classes: Mapping[str, int]) -> RunMoments:
        """What was taken before in this folder, or a run without samples.

        Raises:
            VariabilityError: the folder holds another run, a damaged file, or one whose baseline has other bits.
        """
        total = self.start(baseline, classes)
        for path in (self.moments, *sorted(self.path.glob(_PART.format("*")))):
            if path.exists():
                self._take(total, path)
        return total

    def finish(self, total: RunMoments, ranks: int) -> None:
        """Take in what the other ranks wrote, write all of it, and remove the parts."""
        for rank in range(1, ranks):
            self._take(total, self.part(rank))
        total.save(self.moments)
        for path in self.path.glob(_PART.format("*")):
            path.unlink()

    def _take(self, total: RunMoments, path: Path) -> None:
        part = RunMoments.load(path)
        self._refuse_other_run(part, path)
        # Taken in before, by a run that ended before it could remove the part.
        if set(part.numbers) <= set(total.numbers):
            return
        total.merge(part)

    def _refuse_other_run(self, found: RunMoments, path: Path) -> None:
        try:
            other = json.loads(found.identity)
        except json.JSONDecodeError:
            other = None
        if not isinstance(other, dict):
            raise VariabilityError(
                f"{path} was not written by `boundscope variability`; choose another folder"
            )
        differing = [
            name for name in {**other, **self.identity} if other.get(name) != self.identity.get(name)
        ]
        if differing:
            what = "; ".join(
                f"{name}: {other.get(name, 'none')} there, {self.identity.get(name, 'none')} here"
                for name in differing
            )
            raise VariabilityError(
                f"{path} holds the samples of another run ({what}); choose another folder (--out), or remove it"
            )
