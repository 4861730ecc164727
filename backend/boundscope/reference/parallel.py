"""auto_LiRPA with pairs of linear layers split over the ranks: tensor parallelism as it is published for bounds
(Vorobyov and Ilyushin 2026, arXiv 2606.09377, after Shoeybi et al. 2019, arXiv 1909.08053).

A zone is a column-parallel layer, activations, and a row-parallel layer. A rank holds its rows of the first weight and
its columns of the second, and bounds its own neurons in between. Ranks meet at the two layers only: values that go
forward are summed at the end of the zone, coefficients that go back at its beginning. Bounds of the neurons inside are
intervals, propagated from what enters the zone; all other bounds are the method's.

auto_LiRPA is not changed: the two layers are subclasses of its linear operator, given as custom operators, and a
subclass of its module asks for intervals inside a zone.
"""

from __future__ import annotations

import dataclasses
import functools
import importlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from boundscope.network.graph import Network, Node
from boundscope.network.operators.activation import LeakyRelu, Neg, Relu, Sigmoid, Tanh
from boundscope.network.operators.arithmetic import Add
from boundscope.network.operators.linear import Gemm, MatMul
from boundscope.network.operators.shape import Identity
from boundscope.reference import compat
from boundscope.sharding.ranks import RankGroup
from boundscope.sharding.sums import spread_over, summed_parts
from boundscope.sharding.zones import SUMMED, ZoneEntry, Zones, split_network

ACTIVATIONS = (Relu, LeakyRelu, Sigmoid, Tanh, Neg, Identity)
TOGETHER = 1 << 14  # elements: two tensors of so few are summed as one


class SplitLayers:
    """This rank's part of a network, and how auto_LiRPA is to trace it.

    Attributes:
        network: the part; of a network in which no two layers make a zone, all of it.
    """

    def __init__(self, network: Network, ranks: RankGroup) -> None:
        """Raises BoundscopeError: auto_LiRPA is not installed."""
        whole = _with_biases(network)
        self.network = split_network(whole, ranks, functools.partial(_fits_zone, whole))
        self._ranks = ranks
        self._kinds: dict[str, type[Any]] = {}  # by the weight's name in the network's module
        self._summed: set[str] = set()  # steps of it
        entries = {node.outputs[0] for node in self.network.nodes if isinstance(node.op, ZoneEntry)}
        for number, node in enumerate(self.network.nodes):
            step = f"_steps.{number}"
            if isinstance(node.op, SUMMED):
                self._summed.add(step)
                self._kinds[f"{step}.weight"] = _classes().row
            elif node.inputs[0] in entries:
                self._kinds[f"{step}.weight"] = _classes().column

    @property
    def zones(self) -> int:
        """How many zones there are: layers that sum over the ranks."""
        return len(self._summed)

    def place(self, step: str, layer: nn.Module) -> None:
        """Let the last layer of a zone, a step of the network's module, sum over the ranks outside the trace."""
        if step not in self._summed:
            return
        compute, ranks = layer.forward, self._ranks

        def forward(x: Tensor) -> Tensor:
            part: Tensor = compute(x)
            if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
                return part
            return _sum(part, ranks)

        layer.forward = forward

    def joined(self, layers: Mapping[str, tuple[Tensor, Tensor]]) -> dict[str, tuple[Tensor, Tensor]]:
        """Intervals of tensors of the part, as those of the network's; all ranks call together."""
        inside = Zones.of(self.network).tensors
        own = {name: ends for name, ends in layers.items() if name in inside}
        parts = self._ranks.gather(own)
        whole = {
            name: (
                torch.cat([part[name][0] for part in parts], -1),
                torch.cat([part[name][1] for part in parts], -1),
            )
            for name in own
        }
        return {**layers, **whole}

    def bounded_module(self, *arguments: Any, **options: Any) -> Any:
        """auto_LiRPA's module of this rank's part; all ranks call together."""
        bounded = _classes().module(*arguments, custom_ops={"onnx::Gemm": self._operator}, **options)
        bounded.find_zones(self._ranks)
        return bounded

    def _operator(self, attributes: Any, inputs: Any, *rest: Any) -> Any:
        """The operator of a product, by whose weight it reads."""
        kind = self._kinds.get(str(getattr(inputs[1], "ori_name", "")), _classes().linear)
        made = kind(attributes, inputs, *rest)
        made.ranks = self._ranks
        return made


def _with_biases(network: Network) -> Network:
    """Each product with a constant, and the constant that is added to nothing but it, as one Gemm."""
    readers: dict[str, list[Node]] = {}
    for node in network.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    outputs = {info.name for info in network.outputs}
    nodes: list[Node] = []
    joined: set[str] = set()
    for node in network.nodes:
        if node.name in joined:
            continue
        follow = readers.get(node.outputs[0], [])
        gemm = (
            _product_with_bias(network, node, follow[0])
            if len(follow) == 1 and node.outputs[0] not in outputs
            else None
        )
        if gemm is not None:
            joined.add(follow[0].name)
        nodes.append(gemm or node)
    by_output = {name: node for node in nodes for name in node.outputs if name}
    return dataclasses.replace(network, nodes=tuple(nodes), node_by_output=by_output, rounded_constants={})


def _product_with_bias(network: Network, product: Node, addition: Node) -> Node | None:
    if not isinstance(product.op, MatMul) or not isinstance(addition.op, Add):
        return None
    biases = [name for name in addition.inputs if name in network.constants]
    if not _is_layer(network, product) or len(biases) != 1 or len(addition.inputs) != 2:
        return None
    features = network.tensors[product.outputs[0]].shape[-1]
    shape = network.tensors[biases[0]].shape
    if shape not in ((features,), (1, features)):
        return None
    return Node(addition.name, Gemm(), (*product.inputs, biases[0]), addition.outputs)


def _is_layer(network: Network, node: Node) -> bool:
    """Whether it is a product of rows with a constant matrix, with a constant bias or none."""
    x, *constants = (name for name in node.inputs if name)
    if x in network.constants or any(name not in network.constants for name in constants):
        return False
    if len(network.tensors[x].shape) != 2 or len(network.tensors[constants[0]].shape) != 2:
        return False
    if isinstance(node.op, Gemm):
        features = network.tensors[node.outputs[0]].shape[-1]
        biases = [network.tensors[name].shape for name in constants[1:]]
        return not node.op.transpose_a and all(shape in ((features,), (1, features)) for shape in biases)
    return isinstance(node.op, MatMul)


def _fits_zone(network: Network, node: Node) -> bool:
    if isinstance(node.op, Gemm | MatMul):
        return _is_layer(network, node)
    return isinstance(node.op, ACTIVATIONS)


# ---------------------------------------------------------------- sums over the ranks


def _sum(part: Tensor, ranks: RankGroup) -> Tensor:
    """The sum over the ranks, in the place of the part where no gradient is asked for."""
    return summed_parts(part, ranks, in_place=True)


def _spread(whole: Any, ranks: RankGroup) -> Any:
    return spread_over(whole, ranks) if isinstance(whole, Tensor) else whole


def _sum_two(lower: Any, upper: Any, ranks: RankGroup) -> tuple[Any, Any]:
    """Sums of the lower and the upper side's terms; a side that is not asked for has None, or the number 0."""
    tensors = isinstance(lower, Tensor) and isinstance(upper, Tensor) and upper is not lower
    if tensors and lower.shape == upper.shape and lower.numel() <= TOGETHER:
        both = _sum(torch.stack([lower, upper]), ranks)
        return both[0], both[1]
    total = _sum(lower, ranks) if isinstance(lower, Tensor) else lower
    if upper is lower:
        return total, total
    return total, _sum(upper, ranks) if isinstance(upper, Tensor) else upper


# ---------------------------------------------------------------- auto_LiRPA's classes, and ours of them


class _Classes(NamedTuple):
    linear: type[Any]
    column: type[Any]
    row: type[Any]
    module: type[Any]


@functools.cache
def _classes() -> _Classes:
    """The operators of a zone and the module that knows zones, of the auto_LiRPA that is installed."""
    package = compat.import_auto_lirpa()
    linear: Any = importlib.import_module(f"{compat.PACKAGE}.bound_ops").BoundLinear

    class BoundLinearTPCol(linear):  # type: ignore[misc]
        """The first layer of a zone: this rank's output features of all input features."""

        ranks: RankGroup

        def interval_propagate(self, entry: Any, *weights: Any, **options: Any) -> Any:
            ends = tuple(_spread(one, self.ranks) for one in entry)
            return super().interval_propagate(ends, *weights, **options)

        def bound_backward(self, lower_rows: Any, upper_rows: Any, *x: Any, **options: Any) -> Any:
            (entry, *rest), lower, upper = super().bound_backward(lower_rows, upper_rows, *x, **options)
            return [_sum_two(entry[0], entry[1], self.ranks), *rest], *_sum_two(lower, upper, self.ranks)

    class BoundLinearTPRow(linear):  # type: ignore[misc]
        """The last layer of a zone: all output features of this rank's input features; rank 0 has the bias."""

        ranks: RankGroup

        def forward(self, *x: Any) -> Any:
            return _sum(super().forward(*x), self.ranks)

        def interval_propagate(self, *v: Any, **options: Any) -> Any:
            lower, upper = super().interval_propagate(*v, **options)
            return _sum_two(lower, upper, self.ranks)

        def bound_backward(self, lower_rows: Any, upper_rows: Any, *x: Any, **options: Any) -> Any:
            sides = [_spread(side, self.ranks) for side in (lower_rows, upper_rows)]
            coefficients, lower, upper = super().bound_backward(*sides, *x, **options)
            return coefficients, *_sum_two(lower, upper, self.ranks)

    class ZonedModule(package.BoundedModule):  # type: ignore[misc, name-defined]
        """A module that bounds the neurons inside a zone by intervals, whatever the method."""

        def find_zones(self, ranks: RankGroup) -> None:
            """To be called once, after construction."""
            inside: dict[str, Any] = {}
            reached = [node for node in self._modules.values() if isinstance(node, BoundLinearTPCol)]
            while reached:
                node = reached.pop()
                if node.name not in inside and not isinstance(node, BoundLinearTPRow):
                    inside[node.name] = node
                    reached += [self._modules[name] for name in node.output_name]
            for node in inside.values():
                if not isinstance(node, BoundLinearTPCol):
                    _sum_terms(node, ranks)
            object.__setattr__(self, "_inside", frozenset(inside))

        def compute_intermediate_bounds(self, node: Any, *arguments: Any, **options: Any) -> Any:
            if node.name not in self._inside:
                return super().compute_intermediate_bounds(node, *arguments, **options)
            if not _is_bounded(node):
                for one in node.inputs:
                    if one.perturbed:
                        self.compute_intermediate_bounds(one)
                ends = [
                    (one.lower, one.upper) if one.perturbed else (self.get_forward_value(one),) * 2
                    for one in node.inputs
                ]
                node.interval = node.lower, node.upper = node.interval_propagate(*ends)
            return None

    return _Classes(linear, BoundLinearTPCol, BoundLinearTPRow, ZonedModule)


def _is_bounded(node: Any) -> bool:
    """Whether its bounds are those of the present input; versions differ in how they tell."""
    if hasattr(node, "is_lower_bound_current"):
        return bool(node.is_lower_bound_current() and node.is_upper_bound_current())
    return getattr(node, "lower", None) is not None and getattr(node, "upper", None) is not None


def _sum_terms(node: Any, ranks: RankGroup) -> None:
    """Let a relaxation's own terms be those of the neurons of all ranks."""
    substitute = node.bound_backward

    def bound_backward(lower_rows: Any, upper_rows: Any, *inputs: Any, **options: Any) -> Any:
        coefficients, lower, upper = substitute(lower_rows, upper_rows, *inputs, **options)
        # A rank whose neurons are all off would leave out the rest of the pass, and the sums with it.
        node.zero_backward_coeffs_l = node.zero_backward_coeffs_u = False
        return coefficients, *_sum_two(lower, upper, ranks)

    node.bound_backward = bound_backward
