"""What is told of each layer's bounds as they are found: ends, widths, and how many of its neurons are unstable."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from boundscope.bounds.interval import Interval
from boundscope.monitor import Monitor
from boundscope.network.graph import Node
from boundscope.protocol import LayerBounds, Method
from boundscope.sharding.ranks import RankGroup


@dataclass(frozen=True)
class LayerReports:
    """Told by rank 0 to the monitor; all ranks call together."""

    ranks: RankGroup
    monitor: Monitor

    def tell(
        self,
        node: Node,
        interval: Interval,
        unstable: int | None,
        method: Method,
        case: int,
        *,
        in_parts: bool,
    ) -> None:
        """The interval of an output of a node; `unstable` elements of it, None where what reads it has no kink;
        `in_parts` where each rank holds a part of the tensor."""
        if in_parts:
            own = (
                interval.lower.flatten().cpu(),
                interval.upper.flatten().cpu(),
                torch.tensor([unstable or 0]),
            )
            lower, upper, open_ = (torch.cat(parts) for parts in zip(*self.ranks.gather(own), strict=True))
            interval = Interval(lower, upper)
            unstable = None if unstable is None else int(open_.sum())
        if self.ranks.rank:
            return
        width = interval.upper - interval.lower
        ends = (interval.lower.min(), interval.upper.max(), width.mean(), width.max())
        lower_min, upper_max, width_mean, width_max = torch.stack(ends).tolist()
        self.monitor.emit(
            LayerBounds(
                case=case,
                node=node.name,
                op=node.op.onnx_type,
                size=width.numel(),
                lower_min=lower_min,
                upper_max=upper_max,
                width_mean=width_mean,
                width_max=width_max,
                unstable=unstable,
                method=str(method),
            )
        )
