"""Affine forms through nodes that are not linear: two lines about a function of one tensor; products and quotients."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.affine_forms import LEAST, Forms, both_ends, sum_of
from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule
from boundscope.bounds.operators.bilinear import ProductRule, corners
from boundscope.bounds.operators.relaxation import Lines
from boundscope.bounds.rounding import ENGINE, INFLATION, RoundingModel, gamma
from boundscope.errors import BoundError


def through_lines(
    model: RoundingModel, rule: Rule[Any], view: NodeView[Any], forms: dict[int, Forms]
) -> Forms:
    """Two lines become one of the upper one's slope, and a rest between `lowest` and `highest`."""
    tall = _tall(view, {index: form.ends for index, form in forms.items()})
    lines = rule.relax(tall)
    if not isinstance(lines, Lines):
        raise BoundError(f"node '{view.node.name}' ({view.op.onnx_type}) is not bounded by two lines")
    form = forms[lines.position]
    x, slope, highest = form.ends, lines.upper_slope, lines.upper_intercept
    count = len(form.loose)
    unit = (count + 1) * gamma(32 + count, ENGINE.unit) * INFLATION
    sizes = form.moved[1:].abs() + form.loose
    total = sum_of(sizes)
    steep = slope.abs()
    # Lines are computed, and carried: what either rounds.
    error = (total + form.moved[0].abs()).mul_(steep).add_(highest.abs())
    lowest: Tensor | float = 0.0
    if rule.slope_free:
        # Of the lower lines through the origin the parallel one leaves the least. Outside the kink both lines are
        # the function, 0 or x: nothing is rounded.
        error.mul_(unit).add_(ENGINE.absolute(16)).mul_(rule.wanted(view.op, lines.position, x))
    else:
        tilt = lines.lower_slope - slope
        lowest = torch.minimum(tilt * x.lower, tilt * x.upper)
        if lines.lower_intercept is not None:
            lowest = lowest + lines.lower_intercept
        error += tilt.abs() * x.magnitude + lowest.abs() + rule.relax_magnitude(tall, lines)
        error.mul_(unit).add_(ENGINE.absolute(16))
    ends = rule.interval(tall)[0]
    if not rule.exact:
        terms = rule.terms(tall)
        magnitude = rule.magnitude(tall)[0]
        deployed = magnitude * (model.relative(terms) * INFLATION)
        deployed = deployed + model.absolute(terms)
        own = magnitude * (gamma(terms + 8, ENGINE.unit) * INFLATION) + ENGINE.absolute(terms)
        ends = ends.widened(deployed + own)
        error = error + deployed
    half = (highest - lowest).clamp_(min=0).div_(2)
    # Every input's part of the rest, together no less than the whole; equal parts where none moves.
    still = total <= LEAST
    each = half.mul(1.0 + 2.0**-40).div_(total.masked_fill(still, 1.0))
    loose = sizes.mul_(each).add_((error + half.masked_fill_(~still, 0.0)).div_(count))
    loose += steep * form.loose
    moved = slope * form.moved
    moved[0] += (highest + lowest) / 2
    return Forms(moved, loose, ends)


def of_two(model: RoundingModel, rule: Rule[Any], view: NodeView[Any], forms: dict[int, Forms]) -> Forms:
    """x·y or x/y. With ρ for how far each is from its centre, x·y is off its linear part by ρ_x·ρ_y at most, and
    x/y, which is x/c_y − x·(y − c_y)/(c_y·y), by |x|·ρ_y/|c_y·y|."""
    rank = len(view.output_shapes[0])
    x, y = (_operand(view, forms, index, rank) for index in (0, 1))
    count = len(x.loose)
    (far_x, off_x), (far_y, off_y) = ((one.moved[1:].abs() + one.loose, one.moved[0]) for one in (x, y))
    rho_x, rho_y = far_x.sum(0), far_y.sum(0)
    unit = (count + 4) * gamma(count + 24, ENGINE.unit) * INFLATION
    absolute = model.absolute(1) + ENGINE.absolute(16)
    if isinstance(rule, ProductRule):
        size = x.reach * y.reach
        moved = off_x * y.moved + off_y * x.moved
        moved[0] = off_x * off_y
        loose = off_x.abs() * y.loose + off_y.abs() * x.loose
        rest, ends = rho_x * rho_y, corners(x.ends, y.ends)
    else:
        least = torch.minimum(y.ends.lower.abs(), y.ends.upper.abs())
        apart = torch.where((y.ends.lower > 0) | (y.ends.upper < 0), least, 0.0)
        inverse = 1.0 / off_y
        size = x.reach * y.reach / (apart * apart)
        moved, loose = x.moved * inverse, x.loose * inverse.abs()
        rest = x.ends.magnitude * rho_y / (off_y.abs() * apart)
        quotients = [a / b for a in both_ends(x.ends) for b in both_ends(y.ends)]
        low, high = (torch.stack(quotients).amin(0), torch.stack(quotients).amax(0))
        ends = Interval(torch.where(apart > 0, low, -torch.inf), torch.where(apart > 0, high, torch.inf))
    error = size * (unit + model.relative(1) * INFLATION) + absolute
    blame = far_x / rho_x.clamp(min=LEAST) + far_y / rho_y.clamp(min=LEAST)
    share = torch.where((rho_x > LEAST) | (rho_y > LEAST), blame, 1.0)
    share = share / share.sum(0).clamp(min=LEAST) * (1.0 + 2.0**-40)
    loose = loose + share * rest + error / count
    form = Forms(moved, loose, ends.widened(error))
    return form.within(form.ends, view.node.outputs[0])


def _operand(view: NodeView[Any], forms: dict[int, Forms], index: int, rank: int) -> Forms:
    """An operand with as many axes as the output has; a constant as a form that does not move."""
    form = forms.get(index)
    if form is not None:
        ends = Interval(*(_ranked(one, rank, 1) for one in both_ends(form.ends)))
        return Forms(_ranked(form.moved, rank, 2), _ranked(form.loose, rank, 2), ends)
    other, constant = forms[1 - index], view.constant(index)
    assert constant is not None
    value = constant.to(torch.float64).expand(view.output_shapes[0])[None]
    moved = value.new_zeros(len(other.moved), *value.shape)
    moved[0] = value
    return Forms(moved, torch.zeros_like(moved[1:]), Interval.point(value))


def _tall(view: NodeView[Any], ends: Mapping[int, Interval]) -> NodeView[Any]:
    """The node over all boxes."""
    count = len(next(iter(ends.values())).lower)
    rank = len(view.output_shapes[0])
    inputs = tuple(
        None if index not in ends else Interval(*(_ranked(one, rank, 1) for one in both_ends(ends[index])))
        for index in range(len(view.inputs))
    )
    shapes = tuple((count, *shape) for shape in view.output_shapes)
    return dataclasses.replace(view, inputs=inputs, output_shapes=shapes, kept=None, deviations=())


def _ranked(value: Tensor, rank: int, leading: int) -> Tensor:
    """[…, *S] with ones between the leading axes and S, so that S has `rank` axes."""
    missing = rank + leading - value.dim()
    return (
        value
        if missing <= 0
        else value.reshape((*value.shape[:leading], *(1,) * missing, *value.shape[leading:]))
    )
