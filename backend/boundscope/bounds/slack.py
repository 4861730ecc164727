"""What rounding adds to the outputs of a node on the way forward: the deployed network's, and the engine's own."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.operators.base import NodeView, Rule
from boundscope.bounds.rounding import (
    ENGINE,
    INFLATION,
    LARGEST_FLOAT32,
    LEAST_NORMAL_FLOAT32,
    UNIT_FLOAT32,
    RoundingModel,
    gamma,
)
from boundscope.errors import BoundError, UnsupportedOperatorError
from boundscope.network.graph import Network, Node
from boundscope.network.operators.arithmetic import Add, Sub
from boundscope.network.operators.linear import Conv, Gemm, MatMul
from boundscope.sharding.matrices import LentMatrix
from boundscope.sharding.weights import LARGE_ELEMENTS
from boundscope.sharding.zones import SUMMED

GRID = 2.0**-20  # ends of intervals that are multiples of it may be summed without rounding
_PLAIN_SUMS = (Add, Sub, Gemm, MatMul, Conv)


@dataclass(frozen=True)
class ForwardRounding:
    """`model` is the deployed arithmetic; `subnormal` names constants that it may read as zero."""

    network: Network
    model: RoundingModel
    device: torch.device
    subnormal: frozenset[str]

    def slack(
        self,
        rule: Rule[Any],
        view: NodeView[Any],
        magnitudes: tuple[Tensor, ...] | None,
        around_references: Callable[[NodeView[Any]], NodeView[Any]],
    ) -> tuple[tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
        """Rounding of the deployed network, and of the engine's own interval arithmetic, for each output.

        Args:
            rule, view, magnitudes: of the node, and Σ|terms| of its outputs; none where nothing is rounded.
            around_references: the node with inputs that hold their reference points, too.

        Raises:
            BoundError: a float32 sum may leave the range of float32.
            UnsupportedOperatorError: a constant was rounded at load, and the rule cannot bound what that does.
        """
        # Integers and truth values are never rounded.
        whole = all(self.network.tensors[name].dtype.kind != "f" for name in view.node.outputs if name)
        if rule.exact or magnitudes is None:
            return self._moved(view, whole)
        terms = rule.terms(view)
        model = RoundingModel(0.0, 0.0) if whole else self.model
        relative = model.relative(terms) * INFLATION
        flushed = not self.subnormal.isdisjoint(view.node.inputs)
        if flushed or (rule.collective and model.unit):
            reached = rule.magnitude(_without_subnormals(view) if flushed else view)
        else:
            reached = magnitudes
        deployed = [m * relative + model.absolute(terms) for m in reached]
        if self.model.unit and not whole:
            _require_in_float32(view.node, reached)
        folded = self._folded_error(rule, view)
        if folded is not None:
            deployed[0] = deployed[0] + folded
        own = gamma(terms + 8, ENGINE.unit) * INFLATION
        hull = around_references(view)
        if (hull is not view or rule.collective) and not rule.relaxed:
            magnitudes = rule.magnitude(hull)
        return tuple(deployed), tuple(m * own + ENGINE.absolute(terms) for m in magnitudes)

    def _moved(
        self, view: NodeView[Any], whole: bool
    ) -> tuple[tuple[Tensor | None, ...], tuple[Tensor | None, ...]]:
        """The same for a node that moves or chooses values: its outputs are off by no more than its constants are.

        Raises:
            UnsupportedOperatorError: it compares with a constant that was rounded at load.
        """
        nothing: tuple[Tensor | None, ...] = (None,) * len(view.output_shapes)
        errors = [error for name, error in self.network.rounded_constants.items() if name in view.node.inputs]
        if not errors:
            return nothing, nothing
        if whole:
            raise _no_rule_for_folded(view.node)
        shapes = view.output_shapes
        zeros = tuple(torch.zeros(shape, dtype=torch.float64, device=self.device) for shape in shapes)
        return tuple(zero + max(errors) * INFLATION for zero in zeros), zeros

    def _folded_error(self, rule: Rule[Any], view: NodeView[Any]) -> Tensor | None:
        """What the first output can be off because a constant was folded, and rounded, at load.

        Raises:
            UnsupportedOperatorError: the operator's rule cannot tell.
        """
        errors = self.network.rounded_constants
        if not any(name in errors for name in view.node.inputs):
            return None
        constants = tuple(
            None if value is None else _filled(value, errors.get(name, 0.0) * INFLATION)
            for name, value in zip(view.node.inputs, view.constants, strict=True)
        )
        error = rule.constant_error(dataclasses.replace(view, constants=constants))
        if error is None:
            raise _no_rule_for_folded(view.node)
        return error * INFLATION

    def sums_exactly(self, view: NodeView[Any], magnitudes: tuple[Tensor, ...] | None) -> bool:
        """Whether float64 computes a sum of products without rounding: whole weights, intervals whose ends are
        multiples of GRID, and no sum beyond 2⁵⁰ of it on the way. Binarised networks are decided by such sums, which
        are often zero. Devices that may convolve by a transform, with rounding in between, are left out."""
        if self.device.type != "cpu" or not magnitudes or not isinstance(view.op, _PLAIN_SUMS):
            return False
        if isinstance(view.op, Gemm) and (view.op.alpha, view.op.beta) != (1.0, 1.0):
            return False
        if isinstance(view.op, MatMul) and len(view.perturbed) > 1:
            return False
        if isinstance(view.op, SUMMED):  # each rank sees a part of what decides
            return False
        ends = (end for x in view.inputs if x is not None for end in (x.lower, x.upper))
        return (
            all(_multiples(end, GRID) for end in ends)
            and all(_multiples(each, 1.0) for each in view.constants if each is not None)
            and all(float(each.max()) <= GRID * 2.0**50 for each in magnitudes if each.numel())
        )


def _require_in_float32(node: Node, magnitudes: tuple[Tensor, ...]) -> None:
    """Sums that may pass the largest float32 on their way have no error bound: they may end as infinity or NaN."""
    for name, magnitude in zip(node.outputs, magnitudes, strict=False):
        beyond = (magnitude * (1.0 + 2.0**-10) > LARGEST_FLOAT32).flatten().nonzero()
        if len(beyond):
            raise BoundError(
                f"tensor '{name}' may leave the range of float32 at element {int(beyond[0])}: terms of up to "
                f"{float(magnitude.flatten()[beyond[0]]):.3g} are summed"
            )


def _multiples(values: Tensor | LentMatrix, unit: float) -> bool:
    """Whether all values are multiples of a power of two, not too large to tell."""
    if isinstance(values, LentMatrix):
        step = 1 + LARGE_ELEMENTS // values.shape[1]
        columns = slice(0, values.shape[1])
        bands = [(slice(first, first + step), columns) for first in range(0, len(values), step)]
        found = [_multiples(part, unit) for part in values.tiles(bands)]  # to the end: all ranks read alike
        return all(found)
    scaled = (values._values() if values.is_sparse else values) / unit
    return bool((scaled == scaled.round()).all()) and bool(torch.isfinite(scaled).all())


def _filled(constant: Tensor, error: float) -> Tensor:
    """An error of every element of a constant; of a floating one in float64, whatever the constant's own dtype."""
    if not constant.is_floating_point():
        return torch.full_like(constant, error)
    return torch.full((), error, dtype=torch.float64, device=constant.device).expand(constant.shape)


def _no_rule_for_folded(node: Node) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        f"node '{node.name}' ({node.op.onnx_type}) uses a constant that was computed in floating point at load, and "
        "its rule cannot bound the rounding; export the network with constants folded"
    )


def _without_subnormals(view: NodeView[Any]) -> NodeView[Any]:
    """The node with its subnormal constants so much larger that one rounding of them is all that a flush can lose."""
    floor = LEAST_NORMAL_FLOAT32 / UNIT_FLOAT32
    constants = tuple(
        torch.where(
            (c != 0) & (c.abs() < LEAST_NORMAL_FLOAT32), torch.copysign(torch.full_like(c, floor), c), c
        )
        if c is not None and c.is_floating_point()
        else c
        for c in view.constants
    )
    return dataclasses.replace(view, constants=constants)
