"""Reading and writing at places that depend on the network's input: the hull of all that the places can reach."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, bounds
from boundscope.bounds.operators.coarse import CoarseRule, operand, whole
from boundscope.errors import BoundError
from boundscope.network.graph import Operator
from boundscope.network.operators.movement import DynamicGather, DynamicSlice


def _reach(view: NodeView[Operator], low: float, high: float, length: int) -> tuple[int, int]:
    """Places (first, last) along an axis of `length` that an index between `low` and `high` can name; one below
    zero counts from the end.

    Raises:
        BoundError: no index there is inside the axis.
    """
    first, last = max(math.ceil(low), -length), min(math.floor(high), length - 1)
    if first > last:
        raise BoundError(f"node '{view.node.name}' reads or writes outside an axis of {length} elements")
    if last < 0:
        return first + length, last + length
    return (first, last) if first >= 0 else (0, length - 1)


@bounds(DynamicGather)
class DynamicGatherRule(CoarseRule):
    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        op = view.op
        assert isinstance(op, DynamicGather)
        data, index = operand(view, 0), whole(operand(view, 1))
        length = data.lower.shape[op.axis]
        known: dict[tuple[int, int], tuple[Tensor, Tensor]] = {}
        taken = []
        for low, high in zip(index.lower.flatten().tolist(), index.upper.flatten().tolist(), strict=True):
            first, last = _reach(view, low, high, length)
            if (first, last) not in known:
                lower, upper = (
                    end.narrow(op.axis, first, last - first + 1) for end in (data.lower, data.upper)
                )
                known[first, last] = lower.amin(op.axis), upper.amax(op.axis)
            taken.append(known[first, last])
        shape = view.output_shapes[0]
        if not taken:
            return (Interval.point(data.lower.new_zeros(shape)),)
        return (
            Interval(
                torch.stack([low for low, _ in taken], op.axis).reshape(shape),
                torch.stack([high for _, high in taken], op.axis).reshape(shape),
            ),
        )


@bounds(DynamicSlice)
class DynamicSliceRule(CoarseRule):
    """Only where the box decides what is taken: else the number of elements, and so every shape after it, could
    depend on the input."""

    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        op = view.op
        assert isinstance(op, DynamicSlice)
        data, start, stop = operand(view, 0), whole(operand(view, 1)), whole(operand(view, 2))
        if not (torch.equal(start.lower, start.upper) and torch.equal(stop.lower, stop.upper)):
            raise BoundError(
                f"what node '{view.node.name}' (Slice) takes is not the same all over the box, and so may be the "
                "shape of what follows; only static shapes can be bounded"
            )
        lower, upper = (op.evaluate([end, start.lower, stop.lower])[0] for end in (data.lower, data.upper))
        if tuple(lower.shape) != view.output_shapes[0]:
            raise BoundError(
                f"node '{view.node.name}' (Slice) gives shape {list(lower.shape)} over this box and "
                f"{list(view.output_shapes[0])} at zero; only static shapes can be bounded"
            )
        return (Interval(lower, upper),)


class WrittenRule(CoarseRule):
    """ScatterND: an element that can be written is the data or any update that can reach it; one that cannot keeps
    the data. Indices [*I, Q]."""

    def interval(self, view: NodeView[Operator]) -> tuple[Interval, ...]:
        data, index, update = operand(view, 0), whole(operand(view, 1)), operand(view, 2)
        depth = index.lower.shape[-1]
        lower, upper = data.lower.clone(), data.upper.clone()
        low, high = index.lower.reshape(-1, depth).tolist(), index.upper.reshape(-1, depth).tolist()
        inner = data.lower.shape[depth:]
        new_lower, new_upper = update.lower.reshape(-1, *inner), update.upper.reshape(-1, *inner)
        for row, (ends_low, ends_high) in enumerate(zip(low, high, strict=True)):
            box = []
            for axis, (start, stop) in enumerate(zip(ends_low, ends_high, strict=True)):
                first, last = _reach(view, start, stop, data.lower.shape[axis])
                box.append(slice(first, last + 1))
            place = tuple(box)
            lower[place] = torch.minimum(lower[place], new_lower[row])
            upper[place] = torch.maximum(upper[place], new_upper[row])
        return (Interval(lower, upper),)
