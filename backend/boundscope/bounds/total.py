"""What a backward pass adds up for its rows beside their coefficients: constants, and what is charged for rounding."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundscope.bounds.rounding import ENGINE, INFLATION, gamma
from boundscope.sharding.ranks import RankGroup
from boundscope.sharding.sums import summed, summed_parts


class Total:
    """Constants of rows [R], and everything that must be subtracted for rounding [R], summed at the end.

    `partial` takes those of tensors that ranks hold in parts: what each rank counts there, on all ranks together, is
    added once. Where no rank holds parts, it is the total itself.
    """

    def __init__(
        self,
        count: int,
        device: torch.device,
        rigorous: bool,
        nonzero: Tensor,
        ranks: RankGroup | None = None,
    ) -> None:
        """
        Args:
            count, device: of the rows.
            rigorous: False for a search, which takes no account of rounding.
            nonzero: [R], the rows that begin with any coefficient, on any rank; only they can lose something to
                underflow.
            ranks: those that hold parts of tensors.
        """
        self._ranks = ranks if ranks is not None and ranks.size > 1 else None
        self.partial = self if self._ranks is None else Total(count, device, rigorous, nonzero)
        self._rigorous = rigorous
        self._nonzero = nonzero
        self._zero = torch.zeros(count, dtype=torch.float64, device=device)
        self._parts: list[Tensor] = []
        self._errors: list[Tensor] = []
        self._weighed: list[Tensor] = []
        self._inflations: list[float] = []
        self._lost = 0.0

    def add(self, part: Tensor | None) -> None:
        """A constant, [R]; what its sum with the others rounds is counted in the end."""
        if part is not None:
            self._parts.append(part.to(torch.float64))

    def subtract(self, error: Tensor) -> None:
        """[R] float64, at least 0."""
        self._errors.append(error)

    def charge(self, weighed: Tensor, inflation: float) -> None:
        """Subtract weighed·inflation, [R]."""
        self._weighed.append(weighed)
        self._inflations.append(inflation)

    def lose(self, lost: float) -> None:
        """Subtract `lost` of every row that is not zero."""
        self._lost += lost

    def _value(self) -> Tensor:
        if not self._parts:
            return self._zero
        return self._parts[0] if len(self._parts) == 1 else torch.stack(self._parts).sum(0)

    def _error(self) -> Tensor:
        """What the sum of the constants, and all that is charged, may be off by: [R]."""
        error = self._zero
        if self._parts:
            error = self._size() * gamma(len(self._parts) + 2, ENGINE.unit)
        if self._errors:
            error = error + torch.stack(self._errors).sum(0)
        if self._weighed:
            inflations = self._zero.new_tensor(self._inflations)
            error = error + inflations @ torch.stack(self._weighed).double()
        return error + self._nonzero * self._lost if self._lost else error

    def _size(self) -> Tensor:
        """Σ|constants|, [R]."""
        return torch.stack(self._parts).abs().sum(0) if self._parts else self._zero

    def _join(self, ranks: RankGroup) -> None:
        """Add what all ranks have counted of their parts of tensors."""
        own = self.partial
        if not self._rigorous:
            self.add(summed_parts(own._value(), ranks))
            return
        value, size, error = summed(torch.stack([own._value(), own._size(), own._error()]), ranks)
        self.add(value)
        self.subtract(error + size * gamma(ranks.size + 2, ENGINE.unit))

    def lower(self) -> Tensor:
        """[R]; of a search pass, the plain sum. All ranks that hold parts call together."""
        if self._ranks is not None:
            self._join(self._ranks)
        value = self._value()
        if not self._rigorous:
            return value
        error = self._error() * INFLATION
        bound = value - error
        infinity = bound.new_full((), math.inf)
        bound = torch.where(error > 0, torch.nextafter(bound, -infinity), bound)
        # A sum that overflowed says nothing, and must not pass for a bound above every goal.
        return torch.where(bound == infinity, torch.nan, bound)
