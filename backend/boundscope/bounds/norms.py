"""Linear functions over a ball cut by its box: the least value, proven, and where it is reached.

With gains g ≥ 0 a coordinate (what a coefficient gains for each unit that its input moves the right way) and caps (how
far it can move within the box), the question is max Σ g·e over 0 ≤ e ≤ cap, ‖scale·e‖ ≤ radius. For every split
g = u + v with u, v ≥ 0 the dual norm of the ball and the box give an upper bound,

    radius · ‖u / scale‖* + Σ v·cap,

with equality for the best split (the support function of an intersection is the infimal convolution of the support
functions: Rockafellar, Convex Analysis, Corollary 16.4.1). So any split is sound and only a good one must be found: one
price λ a row, above which an input moves as far as its box allows. An L0 ball of k inputs takes the k largest g·cap.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from boundscope.bounds.rounding import ENGINE, INFLATION, gamma
from boundscope.properties.types import NormBall
from boundscope.protocol import Norm

BLOCK_ELEMENTS = 1 << 19  # 4 MiB a temporary
PRICE_ROUNDS = 30  # the inputs at their cap only grow in number; in practice a few rounds settle them


@dataclass(frozen=True)
class BallSet:
    """Points x of a box with ‖scale·(x − c)‖ ≤ radius for a centre c between `centre_lower` and `centre_upper`.

    All tensors are [n], one entry an input; `down` and `up` are at least how far x can lie below and above c.
    """

    norm: Norm
    radius: float
    centre_lower: Tensor
    centre_upper: Tensor
    scale: Tensor
    down: Tensor
    up: Tensor

    @classmethod
    def of(cls, ball: NormBall, lower: Tensor, upper: Tensor) -> BallSet:
        """The part of a ball that lies in the box of `lower` and `upper`, [n] float64 each."""
        centre_lower, centre_upper, scale = (
            torch.from_numpy(array.copy()).to(lower.device)
            for array in (ball.centre_lower, ball.centre_upper, ball.scale_below)
        )
        return cls(
            norm=ball.norm,
            radius=ball.radius_above,
            centre_lower=centre_lower,
            centre_upper=centre_upper,
            scale=scale,
            down=_distance_above(centre_upper, lower),
            up=_distance_above(upper, centre_lower),
        )

    def to(self, dtype: torch.dtype) -> BallSet:
        """In another dtype, for passes that prove nothing."""
        tensors = (self.centre_lower, self.centre_upper, self.scale, self.down, self.up)
        return BallSet(self.norm, self.radius, *(tensor.to(dtype) for tensor in tensors))

    def lower(self, coefficients: Tensor, reference: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Lower bounds of coefficients·(x − reference), and what rounding may have added to them.

        Args:
            coefficients: [R, n] float64.
            reference: a point near the centre, so that less is rounded, [n] float64; None: the origin.

        Returns:
            [R] each: the bound holds once the second is subtracted.
        """
        low, high = self.centre_lower, self.centre_upper
        if reference is not None:
            low, high = low - reference, high - reference
        parts = [self._lower_of_block(block, low, high) for block in self._blocks(coefficients)]
        bounds, errors = zip(*parts, strict=True)
        return torch.cat(bounds), torch.cat(errors)

    def _lower_of_block(self, coefficients: Tensor, low: Tensor, high: Tensor) -> tuple[Tensor, Tensor]:
        n = coefficients.shape[1]
        middle = coefficients.clamp(min=0) @ low + coefficients.clamp(max=0) @ high
        size = coefficients.abs() @ torch.maximum(low.abs(), high.abs())
        most = self._most(coefficients.abs(), self._caps(coefficients))
        farthest = float(torch.maximum(self.down, self.up).max())
        error = (size + most) * (gamma(2 * n + 32, ENGINE.unit) * INFLATION)
        return middle - most, error + ENGINE.absolute(n) * (2.0 + self.radius + farthest)

    def estimate(self, coefficients: Tensor, reference: Tensor | None = None) -> Tensor:
        """The least value of coefficients·(x − reference) to working precision: [R], differentiable in [R, n]."""
        return (coefficients * self.lowest(coefficients.detach(), reference)).sum(1)

    def lowest(self, coefficients: Tensor, reference: Tensor | None = None) -> Tensor:
        """x − reference where coefficients·x is least, to working precision: [R, n]."""
        centre = (self.centre_lower + self.centre_upper) / 2
        if reference is not None:
            centre = centre - reference
        return torch.cat(
            [
                centre - block.sign() * self._moves(block.abs(), self._caps(block))
                for block in self._blocks(coefficients)
            ]
        )

    def _blocks(self, coefficients: Tensor) -> tuple[Tensor, ...]:
        """Rows in groups, so that what is computed beside them stays small."""
        rows = max(1, BLOCK_ELEMENTS // max(1, coefficients.shape[1]))
        return torch.split(coefficients, rows)

    def _caps(self, coefficients: Tensor) -> Tensor:
        return torch.where(coefficients > 0, self.down, self.up)

    def _most(self, gains: Tensor, caps: Tensor) -> Tensor:
        """Upper bound of Σ gains·e, [R], before rounding: a sum of non-negative terms."""
        if self.norm is Norm.L0:
            return (gains * caps).topk(self._count(gains)).values.sum(1)
        price = self._price(gains, caps)
        by_ball = torch.minimum(
            gains, price * (self.scale * (self.scale * caps if self.norm is Norm.L2 else 1))
        )
        rates = by_ball / self.scale
        largest = rates.amax(1, keepdim=True)
        dual = largest.squeeze(1)
        if self.norm is Norm.L2:  # scaled, so that no square leaves the range of float64
            safe = torch.where(largest > 0, largest, 1.0)
            dual = dual * torch.sqrt(((rates / safe) ** 2).sum(1))
        return self.radius * dual + ((gains - by_ball) * caps).sum(1)

    def _moves(self, gains: Tensor, caps: Tensor) -> Tensor:
        """e ≥ 0, [R, n], that reaches the most."""
        if self.norm is Norm.L0:
            chosen = (gains * caps).topk(self._count(gains)).indices
            return torch.zeros_like(gains).scatter(1, chosen, caps.gather(1, chosen))
        if self.norm is Norm.L2:
            pace = self._price(gains, caps) * self.scale**2
            return torch.minimum(caps, gains / pace.clamp(min=torch.finfo(gains.dtype).tiny))
        order, costs, spent = self._spending(gains, caps)
        paid = torch.minimum((self.radius - (spent - costs)).clamp(min=0), costs)
        return torch.zeros_like(gains).scatter(1, order, paid) / self.scale

    def _count(self, gains: Tensor) -> int:
        return int(min(self.radius, gains.shape[1]))

    def _price(self, gains: Tensor, caps: Tensor) -> Tensor:
        """λ of each row, [R, 1]: in L1 an input is at its cap where gain > λ·scale, in L2 where gain > λ·scale²·cap."""
        if self.norm is Norm.L1:
            order, _, spent = self._spending(gains, caps)
            critical = (spent < self.radius).sum(1, keepdim=True)
            within = critical < gains.shape[1]
            index = order.gather(1, critical.clamp(max=gains.shape[1] - 1))
            price = (gains / self.scale).gather(1, index)
            return torch.where(within, price, 0.0)
        squares, costs = (gains / self.scale) ** 2, (self.scale * caps) ** 2
        limit = torch.finfo(gains.dtype)
        capped = caps <= 0
        price = torch.zeros_like(squares[:, :1])
        for _ in range(PRICE_ROUNDS):
            rest = torch.where(capped, 0.0, squares).sum(1, keepdim=True)
            left = self.radius**2 - torch.where(capped, costs, 0.0).sum(1, keepdim=True)
            price = torch.sqrt(rest / left.clamp(min=limit.tiny)).clamp(max=limit.max)
            more = capped | (gains >= price * (self.scale**2 * caps))
            if torch.equal(more, capped):
                break
            capped = more
        return price

    def _spending(self, gains: Tensor, caps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """L1: inputs by falling gain per unit of radius, what each costs to its cap, and what is spent after it."""
        order = (gains / self.scale).argsort(1, descending=True)
        costs = (self.scale * caps).gather(1, order)
        return order, costs, costs.cumsum(1)


def _distance_above(upper: Tensor, lower: Tensor) -> Tensor:
    """upper − lower rounded up, at least 0."""
    difference = upper - lower
    above = torch.nextafter(difference, torch.full_like(difference, float("inf")))
    return torch.where(difference > 0, above, 0.0)
