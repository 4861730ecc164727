"""Affine forms of every tensor on thousands of boxes at once: one pass forward through the network, a sweep.

On each box a tensor is an affine function of the inputs that are free there, and a rest. What the rest is made of is
charged to those inputs, by what they move where it arises, so that a search knows which of them to halve. Intervals
are the intersection of what forms say and of interval arithmetic. For few free inputs and many neurons this costs next
to nothing beside a backward row a neuron; it is looser than those, and as sharp where no neuron is unstable. (Affine
arithmetic; Singh et al. 2018, "Fast and Effective Robustness Certification", for the parallel lines.)

A sweep needs nothing of the box that holds the boxes, not even that bounds of it exist.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.constraints import Constraints
from boundscope.bounds.context import BoxContext
from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import NodeView, Rule, rule_of
from boundscope.bounds.operators.bilinear import ProductRule, QuotientRule, corners
from boundscope.bounds.operators.relaxation import Lines
from boundscope.bounds.products import (
    AffineMap,
    Matrices,
    added_constant,
    affine_map,
    links,
    rows_of_links,
    slack_of,
)
from boundscope.bounds.rounding import ENGINE, INFLATION, LARGEST_FLOAT32, gamma
from boundscope.errors import BoundError
from boundscope.network.graph import Network, Node

MOST_FREE_INPUTS = 12
LEAST = 2.0**-1000  # of a sum of sizes that is divided by


@dataclass(frozen=True)
class Forms:
    """A tensor [*S] on D boxes as a function of z in [−1, 1]^K, the K inputs that are free there.

    Attributes:
        moved: [K + 1, D, *S], the centre, then the slope of each z.
        loose: [K, D, *S], what the tensor may differ from that by, in parts charged to each input.
        ends: its interval, [D, *S].
    """

    moved: Tensor
    loose: Tensor
    ends: Interval

    @property
    def reach(self) -> Tensor:
        """No less than any absolute value, [D, *S]."""
        return _sum_of_sizes(self.moved).add_(_sum(self.loose))


@dataclass(frozen=True)
class SweptMargins:
    """Of R constraints on each of D boxes: `least` [D, R] is below the margin all over the box, which is at least that
    and Σ |slope_k| for each unit of x_k away from the end that makes it least; `loose` [D, R, K] is what relaxing cost,
    by input. Where nothing was proven, `least` is −∞."""

    least: Tensor
    slope: Tensor
    loose: Tensor


def sweepable(network: Network, subnormal: frozenset[str] = frozenset()) -> bool:
    """Whether sweeps of the network can be made: every node is linear, element-wise, or a product or quotient of two
    tensors, its constants are what the file says, and none of `subnormal` constants may be flushed by a runtime."""
    for node in network.nodes:
        rule = rule_of(node.op)
        if rule is None or any(
            name in network.rounded_constants or name in subnormal for name in node.inputs
        ):
            return False
        rule = rule.use([bool(name) and name not in network.constants for name in node.inputs])
        if rule.collective or any(network.tensors[name].dtype.kind != "f" for name in node.outputs if name):
            return False
        if rule.relaxed and not (rule.by_element or isinstance(rule, QuotientRule)):
            return False
    return all(info.name not in network.constants for info in network.outputs)


class Sweeper:
    """Makes sweeps over boxes of one network's inputs."""

    def __init__(self, context: BoxContext) -> None:
        """`context` lends constants and says what arithmetic to enclose; of its box nothing is used."""
        self._context = context
        self._matrices = Matrices(context)
        network = context.network
        self._links = links(network)
        self._joined: dict[
            str, tuple[AffineMap, str]
        ] = {}  # by their first node: the map, and the tensor it gives
        skipped = [link.added for link in self._links.values() if link.added is not None]
        for row in rows_of_links(network, self._links):
            while len(row) > 1:
                found = self._matrices.joined(row)
                if found is not None:
                    way, count = found
                    self._joined[row[0].node.name] = way, row[count - 1].output
                    skipped += [node for link in row[1:count] for node in link.nodes]
                row = row[1 if found is None else found[1] :]
        self._skipped = {node.name for node in skipped}
        self._last_use = {
            name: node.name
            for node in network.nodes
            if node.name not in self._skipped
            for name in node.inputs
        }
        self._kept = {info.name for info in (*network.outputs, *network.inputs)}

    @property
    def elements(self) -> int:
        """Of the widest tensor."""
        tensors = self._context.network.tensors
        return max(info.size for name, info in tensors.items() if name not in self._context.network.constants)

    def sweep(self, lower: Tensor, upper: Tensor, free: Tensor) -> Swept:
        """Forms of the outputs and inputs on D boxes.

        Args:
            lower, upper: ends of all inputs in order, [D, N] float64, as a runtime may read them.
            free: positions [D, K] among these of the inputs whose ends differ, each once; with others where a box has
                fewer. What is not among them is no function of an input, and loose.

        Raises:
            BoundError: two sound intervals do not meet.
            RuntimeError: torch.vmap cannot take some operator over an axis of boxes.
        """
        network = self._context.network
        forms = self._of_inputs(lower, upper, free)
        finite = torch.ones(len(lower), dtype=torch.bool, device=lower.device)
        for node in network.nodes:
            if node.name in self._skipped:
                continue
            for name, form in self._of_node(node, forms).items():
                forms[name] = form
                finite &= self._trusted(form)
            for name in node.inputs:
                if self._last_use.get(name) == node.name and name not in self._kept:
                    forms.pop(name, None)
        radius = Interval(lower, upper).ball[1].gather(1, free)
        return Swept({name: forms[name] for name in self._kept}, finite, radius)

    def _trusted(self, form: Forms) -> Tensor:
        """Boxes [D] whose form is finite, and within float32 where a runtime is to be enclosed: NaN is never proof."""
        own = tuple(range(1, form.ends.lower.dim()))
        size = (form.ends.upper - form.ends.lower).add_(_sum(form.loose)).sum(own)
        if self._context.model.unit:
            # What a sum may reach on its way is charged by the unit at least.
            return size < LARGEST_FLOAT32 * self._context.model.unit / 2
        return torch.isfinite(size)

    def _of_inputs(self, lower: Tensor, upper: Tensor, free: Tensor) -> dict[str, Forms]:
        count, inputs = lower.shape
        centre, radius = Interval(lower, upper).ball
        moved = centre.new_zeros(free.shape[1] + 1, count, inputs)
        moved[0] = centre
        others = radius.scatter(1, free, 0.0)
        box = torch.arange(count, device=lower.device)
        for number in range(free.shape[1]):
            index = free[:, number]
            moved[number + 1, box, index] = radius[box, index]
        found: dict[str, Forms] = {}
        first = 0
        for info in self._context.network.inputs:
            part = slice(first, first + info.size)
            first += info.size
            shape = (count, *info.shape)
            loose = moved.new_zeros(free.shape[1], *shape)
            loose[0] = others[:, part].reshape(shape)
            found[info.name] = Forms(
                moved[:, :, part].reshape(-1, *shape),
                loose,
                Interval(lower[:, part].reshape(shape), upper[:, part].reshape(shape)),
            )
        return found

    def _of_node(self, node: Node, forms: Mapping[str, Forms]) -> dict[str, Forms]:
        rule = self._context.rule(node)
        with self._context.view(node) as view:
            perturbed = {
                index: forms[name]
                for index, name in enumerate(node.inputs)
                if name and name not in self._context.network.constants
            }
            # Rules ask a view for shapes; one box's ends have those of the tensors.
            first = [
                Interval(*(end[0] for end in _both(perturbed[index].ends))) if index in perturbed else None
                for index in range(len(node.inputs))
            ]
            view = dataclasses.replace(view, inputs=tuple(first), deviations=(), kept=None)
            if not rule.relaxed:
                return self._through_map(node, rule, view, perturbed)
            (name,) = node.outputs
            if isinstance(rule, (ProductRule, QuotientRule)) and len(set(node.inputs)) > 1:
                return {name: self._of_two(rule, view, perturbed)}
            return {name: self._through_lines(rule, view, perturbed)}

    # ------------------------------------------------------------ linear nodes

    def _through_map(
        self, node: Node, rule: Rule[Any], view: NodeView[Any], forms: dict[int, Forms]
    ) -> dict[str, Forms]:
        """Plain products carry centres, slopes and middles of intervals; products with absolute values carry what is
        loose, radii, and the rounding of all of these."""
        count = len(next(iter(forms.values())).loose)
        way, names = self._way(node, rule, view, forms)
        slack, absolute = slack_of(way, count)
        plain, spread, margins = {}, {}, {}
        for index, form in forms.items():
            middle, radius = form.ends.lower + form.ends.upper, form.ends.upper - form.ends.lower
            plain[index] = _stacked(form.moved, middle.div_(2))
            margin = form.reach.mul_(slack)
            if way.error is None:
                spread[index] = _stacked(form.loose + margin / count, radius.div_(2).add_(margin))
            else:
                spread[index], margins[index] = _stacked(form.loose, radius.div_(2)), margin[None]
        lost = [None] * len(names) if way.error is None else way.error(margins)
        found = {}
        outputs = zip(
            names, way.through(plain), way.absolute(spread), way.offset, way.size, lost, strict=True
        )
        for name, moved, loose, offset, size, error in outputs:
            if not name:
                continue
            far = size * slack + absolute
            far = far if error is None else far + error[0]
            moved[0] += offset
            moved[-1] += offset
            loose[:-1] += far / count
            loose[-1] += far
            ends = Interval(moved[-1] - loose[-1], moved[-1] + loose[-1])
            form = Forms(moved[:-1], loose[:-1], ends)
            found[name] = dataclasses.replace(form, ends=self._ends(form).intersected(ends, name))
        return found

    def _way(
        self, node: Node, rule: Rule[Any], view: NodeView[Any], forms: Mapping[int, Forms]
    ) -> tuple[AffineMap, tuple[str, ...]]:
        """The map from what a node reads, and the tensors that it leads to."""
        if node.name in self._joined:
            way, name = self._joined[node.name]
            return way, (name,)
        link = self._links.get(node.name)
        added = None if link is None or link.added is None else added_constant(self._context, link.added)
        shapes = {index: tuple(form.ends.lower.shape[1:]) for index, form in forms.items()}
        way = affine_map(rule, view, shapes, self._matrices, added)
        return way, node.outputs if link is None else (link.output,)

    def _ends(self, form: Forms) -> Interval:
        """What a form takes on its box, with the rounding of these sums."""
        centre = form.moved[0]
        radius = _sum_of_sizes(form.moved[1:]).add_(_sum(form.loose))
        error = gamma(2 * len(form.moved) + 16, ENGINE.unit) * INFLATION
        radius += (centre.abs() + radius).mul_(error) + ENGINE.absolute(8)
        return Interval(centre - radius, centre + radius)

    # ------------------------------------------------------------ other nodes

    def _through_lines(self, rule: Rule[Any], view: NodeView[Any], forms: dict[int, Forms]) -> Forms:
        """Two lines become one of the upper one's slope, and a rest between `lowest` and `highest`."""
        tall = self._tall(view, {index: form.ends for index, form in forms.items()})
        lines = rule.relax(tall)
        if not isinstance(lines, Lines):
            raise BoundError(f"node '{view.node.name}' ({view.op.onnx_type}) is not bounded by two lines")
        form = forms[lines.position]
        x, slope, highest = form.ends, lines.upper_slope, lines.upper_intercept
        count = len(form.loose)
        unit = (count + 1) * gamma(32 + count, ENGINE.unit) * INFLATION
        sizes = form.moved[1:].abs() + form.loose
        total = _sum(sizes)
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
            deployed = magnitude * (self._context.model.relative(terms) * INFLATION)
            deployed = deployed + self._context.model.absolute(terms)
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

    def _tall(self, view: NodeView[Any], ends: Mapping[int, Interval]) -> NodeView[Any]:
        """The node over all boxes."""
        count = len(next(iter(ends.values())).lower)
        rank = len(view.output_shapes[0])
        inputs = tuple(
            None if index not in ends else Interval(*(_ranked(one, rank, 1) for one in _both(ends[index])))
            for index in range(len(view.inputs))
        )
        shapes = tuple((count, *shape) for shape in view.output_shapes)
        return dataclasses.replace(view, inputs=inputs, output_shapes=shapes, kept=None, deviations=())

    def _of_two(self, rule: Rule[Any], view: NodeView[Any], forms: dict[int, Forms]) -> Forms:
        """x·y or x/y. With ρ for how far each is from its centre, x·y is off its linear part by ρ_x·ρ_y at most, and
        x/y, which is x/c_y − x·(y − c_y)/(c_y·y), by |x|·ρ_y/|c_y·y|."""
        rank = len(view.output_shapes[0])
        x, y = (self._operand(view, forms, index, rank) for index in (0, 1))
        count = len(x.loose)
        (far_x, off_x), (far_y, off_y) = ((one.moved[1:].abs() + one.loose, one.moved[0]) for one in (x, y))
        rho_x, rho_y = far_x.sum(0), far_y.sum(0)
        unit = (count + 4) * gamma(count + 24, ENGINE.unit) * INFLATION
        absolute = self._context.model.absolute(1) + ENGINE.absolute(16)
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
            quotients = [a / b for a in _both(x.ends) for b in _both(y.ends)]
            low, high = (torch.stack(quotients).amin(0), torch.stack(quotients).amax(0))
            ends = Interval(torch.where(apart > 0, low, -torch.inf), torch.where(apart > 0, high, torch.inf))
        error = size * (unit + self._context.model.relative(1) * INFLATION) + absolute
        blame = far_x / rho_x.clamp(min=LEAST) + far_y / rho_y.clamp(min=LEAST)
        share = torch.where((rho_x > LEAST) | (rho_y > LEAST), blame, 1.0)
        share = share / share.sum(0).clamp(min=LEAST) * (1.0 + 2.0**-40)
        loose = loose + share * rest + error / count
        form = Forms(moved, loose, ends.widened(error))
        return dataclasses.replace(form, ends=self._ends(form).intersected(form.ends, view.node.outputs[0]))

    def _operand(self, view: NodeView[Any], forms: dict[int, Forms], index: int, rank: int) -> Forms:
        """An operand with as many axes as the output has; a constant as a form that does not move."""
        form = forms.get(index)
        if form is not None:
            ends = Interval(*(_ranked(one, rank, 1) for one in _both(form.ends)))
            return Forms(_ranked(form.moved, rank, 2), _ranked(form.loose, rank, 2), ends)
        other, constant = forms[1 - index], view.constant(index)
        assert constant is not None
        value = constant.to(torch.float64).expand(view.output_shapes[0])[None]
        moved = value.new_zeros(len(other.moved), *value.shape)
        moved[0] = value
        return Forms(moved, torch.zeros_like(moved[1:]), Interval.point(value))


@dataclass(frozen=True)
class Swept:
    """Forms of a network's inputs and outputs on D boxes.

    `finite` [D]: boxes on which all went well; `radius` [D, K] of the free inputs.
    """

    forms: dict[str, Forms]
    finite: Tensor
    radius: Tensor

    def margins(self, constraints: Constraints, index: Tensor) -> SweptMargins:
        """Of the constraints with these numbers, [D, R], on each box; any where a number is negative."""
        free = self.radius.shape[1]
        number = index.clamp(min=0)
        moved = self.radius.new_zeros(free + 1, *index.shape)
        loose = self.radius.new_zeros(free, *index.shape)
        size = self.radius.new_zeros(index.shape)
        terms = 8
        for name, rows in constraints.rows.items():
            form = self.forms[name]
            rows = rows.reshape(len(rows), -1)[number]  # [D, R, m]
            sizes = rows.abs()
            moved += torch.einsum("drm,kdm->kdr", rows, form.moved.flatten(2))
            loose += torch.einsum("drm,kdm->kdr", sizes, form.loose.flatten(2))
            size += torch.einsum("drm,dm->dr", sizes, form.reach.flatten(1))
            terms += rows.shape[2] + 2
        error = size * ((free + 4) * gamma(terms + free, ENGINE.unit) * INFLATION) + ENGINE.absolute(terms)
        goals = constraints.goals[number]
        error += (goals.abs() + moved.abs().sum(0) + loose.sum(0)) * gamma(4 * free + 16, ENGINE.unit)
        least = moved[0] - moved[1:].abs().sum(0) - loose.sum(0) - error - goals
        # A slope that is not a number of float64 says nothing.
        slope = moved[1:].permute(1, 2, 0) / self.radius[:, None].clamp(min=LEAST)
        slope = torch.where(self.radius[:, None] > LEAST, slope, 0.0)
        sound = self.finite[:, None] & torch.isfinite(least) & torch.isfinite(slope).all(2)
        return SweptMargins(
            torch.where(sound, least, -torch.inf),
            torch.where(sound[:, :, None], slope, 0.0),
            torch.nan_to_num(loose.permute(1, 2, 0), nan=0.0),
        )


def _sum(parts: Tensor) -> Tensor:
    """Σ over the first axis, which is short."""
    total = parts[0].clone()
    for part in parts[1:]:
        total += part
    return total


def _sum_of_sizes(parts: Tensor) -> Tensor:
    total = parts[0].abs()
    for part in parts[1:]:
        total += part.abs()
    return total


def _both(interval: Interval) -> tuple[Tensor, Tensor]:
    return interval.lower, interval.upper


def _ranked(value: Tensor, rank: int, leading: int) -> Tensor:
    """[…, *S] with ones between the leading axes and S, so that S has `rank` axes."""
    missing = rank + leading - value.dim()
    return (
        value
        if missing <= 0
        else value.reshape(*value.shape[:leading], *(1,) * missing, *value.shape[leading:])
    )


def _stacked(many: Tensor, one: Tensor) -> Tensor:
    """[C, D, *S] and [D, *S] as [C + 1, D, *S], in memory as the former is: the tensor's own axes may be outermost."""
    shape = (len(many) + 1, *one.shape)
    if many.is_contiguous():
        found = many.new_empty(shape)
    else:
        axes = (*range(2, len(shape)), 0, 1)
        order = torch.argsort(torch.tensor(axes)).tolist()
        found = many.new_empty([shape[axis] for axis in axes]).permute(order)
    found[:-1], found[-1] = many, one
    return found
