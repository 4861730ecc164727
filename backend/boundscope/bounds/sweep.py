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
from typing import Any

import torch
from torch import Tensor

from boundscope.bounds.affine_forms import Forms, Swept, both_ends, sum_of
from boundscope.bounds.context import BoxContext
from boundscope.bounds.interval import Interval
from boundscope.bounds.links import links, rows_of_links
from boundscope.bounds.operators.base import NodeView, Rule, rule_of
from boundscope.bounds.operators.bilinear import ProductRule, QuotientRule
from boundscope.bounds.products import (
    AffineMap,
    Matrices,
    added_constant,
    affine_map,
    slack_of,
)
from boundscope.bounds.relaxed_forms import of_two, through_lines
from boundscope.bounds.rounding import LARGEST_FLOAT32
from boundscope.network.graph import Network, Node

MOST_FREE_INPUTS = 12


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
        size = (form.ends.upper - form.ends.lower).add_(sum_of(form.loose)).sum(own)
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
                Interval(*(end[0] for end in both_ends(perturbed[index].ends)))
                if index in perturbed
                else None
                for index in range(len(node.inputs))
            ]
            view = dataclasses.replace(view, inputs=tuple(first), deviations=(), kept=None)
            if not rule.relaxed:
                return self._through_map(node, rule, view, perturbed)
            (name,) = node.outputs
            if isinstance(rule, (ProductRule, QuotientRule)) and len(set(node.inputs)) > 1:
                return {name: of_two(self._context.model, rule, view, perturbed)}
            return {name: through_lines(self._context.model, rule, view, perturbed)}

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
            found[name] = Forms(moved[:-1], loose[:-1], ends).within(ends, name)
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
