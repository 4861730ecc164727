"""Tensor parallelism (Shoeybi et al. 2019, arXiv 1909.08053): each rank's part of a network, as a network of its own.

A zone begins where a layer's output features are split over the ranks and ends at the layers that sum over them: a
rank holds its own rows of the first weight and its own columns of the last, and all that lies between works on its
own part. Rows that go back through a zone meet on all ranks at its entry (`ZoneEntry`); values that go forward meet at
its end (`SummedGemm`, `SummedMatMul`, `SummedConv`), once each.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from boundscope.network.graph import Network, Node, Operator, TensorInfo
from boundscope.network.operators.linear import Conv, Gemm, MatMul
from boundscope.network.operators.shape import Reshape
from boundscope.sharding.ranks import RankGroup
from boundscope.sharding.split import CannotSplitError, Split, Step, propagated

_ALONE = RankGroup()


@dataclass(frozen=True)
class ZoneEntry(Operator):
    """The identity on a tensor that every rank has; coefficients of it are summed over the ranks."""

    onnx_type = "Identity"
    ranks: RankGroup = _ALONE

    def evaluate(self, inputs: Sequence[Tensor | None]) -> tuple[Tensor, ...]:
        (x,) = inputs
        assert x is not None
        return (x,)


@dataclass(frozen=True)
class SummedGemm(Gemm):
    """A Gemm over this rank's part of the summed axis, of `fan_in` elements in all. `evaluate` gives the partial sum;
    the node's output is the sum over the ranks."""

    ranks: RankGroup = _ALONE
    fan_in: int = 0


@dataclass(frozen=True)
class SummedMatMul(MatMul):
    """The same of a MatMul with a constant on its right."""

    ranks: RankGroup = _ALONE
    fan_in: int = 0


@dataclass(frozen=True)
class SummedConv(Conv):
    """The same of a Conv over this rank's part of the input channels."""

    ranks: RankGroup = _ALONE
    fan_in: int = 0


SUMMED = (SummedGemm, SummedMatMul, SummedConv)


@dataclass(frozen=True)
class Zones:
    """Of a rank's own network: the tensors of which it holds a part, or whose coefficients are only its part of a sum,
    and who has the others."""

    tensors: frozenset[str] = frozenset()
    ranks: RankGroup = _ALONE

    @classmethod
    def of(cls, network: Network) -> Zones:
        inside: set[str] = set()
        ranks = _ALONE
        for node in network.nodes:
            if isinstance(node.op, ZoneEntry):
                ranks = node.op.ranks
                inside.update(node.outputs)
            elif not isinstance(node.op, SUMMED) and not inside.isdisjoint(node.inputs):
                inside.update(node.outputs)
        return cls(frozenset(inside), ranks)


@dataclass
class _Zone:
    """A zone on trial: how its tensors are split, and what becomes of its nodes."""

    starts: tuple[Node, ...]
    splits: dict[str, Split] = field(default_factory=dict)
    steps: dict[str, Step] = field(default_factory=dict)


def split_network(
    network: Network, ranks: RankGroup, only: Callable[[Node], bool] = lambda node: True
) -> Network:
    """This rank's part of a network (lowered for bounds): the network itself where no layer can be split.

    `only` tells of a node whether it may be in a zone.
    """
    zones = _zones(network, ranks.size, only)
    return network if not zones else _Builder(network, ranks, zones).network()


def _zones(network: Network, size: int, only: Callable[[Node], bool]) -> list[_Zone]:
    readers: dict[str, list[Node]] = {}
    for node in network.nodes:
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    found: list[_Zone] = []
    taken: set[str] = set()  # nodes in a zone
    for node in network.nodes:
        if node.name in taken or _features(network, node) is None or not only(node):
            continue
        together = tuple(
            one
            for one in readers[node.inputs[0]]
            if one.name not in taken and _features(network, one) == _features(network, node) and only(one)
        )
        for starts in (together, (node,)) if len(together) > 1 else ((node,),):
            zone = _trial(network, starts, size, only)
            if zone is not None and taken.isdisjoint(zone.steps):
                found.append(zone)
                taken.update(zone.steps)
                break
    return found


def _features(network: Network, node: Node) -> int | None:
    """How many output features a layer has that may begin a zone; None of any other node."""
    op = node.op
    if any(name and name not in network.constants for name in node.inputs[1:]) or len(node.inputs) < 2:
        return None
    if node.inputs[0] in network.constants:
        return None
    shape = network.tensors[node.inputs[1]].shape
    if isinstance(op, Gemm) and not op.transpose_a:
        return shape[0] if op.transpose_b else shape[1]
    if isinstance(op, MatMul) and len(shape) == 2:
        return shape[1]
    if isinstance(op, Conv) and op.group == 1:
        return shape[0]
    return None


def _trial(
    network: Network, starts: tuple[Node, ...], size: int, only: Callable[[Node], bool]
) -> _Zone | None:
    """The zone that these layers begin, split as finely as its reshapes allow; None where it has no end."""
    features = _features(network, starts[0])
    assert features is not None
    grain = 1
    while features % grain == 0 and features // grain >= size:
        split = Split(0, _shares(features // grain, size, grain))
        try:
            return _grown(network, starts, split, only)
        except CannotSplitError as error:
            if error.grain <= grain:
                return None
            grain = error.grain
    return None


def _shares(blocks: int, size: int, grain: int) -> tuple[int, ...]:
    return tuple((blocks // size + (rank < blocks % size)) * grain for rank in range(size))


def _grown(network: Network, starts: tuple[Node, ...], split: Split, only: Callable[[Node], bool]) -> _Zone:
    """Raises CannotSplitError where a node inside can neither carry the split on nor end it."""
    zone = _Zone(starts)
    for start in starts:
        axis = len(network.tensors[start.outputs[0]].shape) - 1 if not isinstance(start.op, Conv) else 1
        zone.splits[start.outputs[0]] = Split(axis, split.sizes)
        zone.steps[start.name] = _begin(start, split.sizes)
    for node in network.nodes:
        inputs = {index: zone.splits[name] for index, name in enumerate(node.inputs) if name in zone.splits}
        if node.name in zone.steps or not inputs:
            continue
        if not only(node):
            raise CannotSplitError
        step = propagated(network, node, inputs)
        zone.steps[node.name] = step
        if step.output is not None:
            zone.splits[node.outputs[0]] = step.output
    if any(info.name in zone.splits for info in network.outputs):
        raise CannotSplitError
    return zone


def _begin(node: Node, sizes: tuple[int, ...]) -> Step:
    """A layer whose output features are split: its weight, and its bias with it."""
    op = node.op
    axis = (0 if op.transpose_b else 1) if isinstance(op, Gemm) else 1 if isinstance(op, MatMul) else 0
    cuts = {1: Split(axis, sizes)}
    if len(node.inputs) > 2 and node.inputs[2]:
        cuts[2] = Split(-1, sizes)
    return Step(None, cuts)


class _Builder:
    """A rank's network out of the whole one and its zones."""

    def __init__(self, network: Network, ranks: RankGroup, zones: list[_Zone]) -> None:
        self._whole = network
        self._ranks = ranks
        self._steps = {name: step for zone in zones for name, step in zone.steps.items()}
        self._splits = {name: split for zone in zones for name, split in zone.splits.items()}
        self._starts = {node.name for zone in zones for node in zone.starts}
        self._constants: dict[str, NDArray[Any]] = {}
        self._tensors: dict[str, TensorInfo] = {}
        self._errors: dict[str, float] = {}
        self._nodes: list[Node] = []

    def network(self) -> Network:
        whole = self._whole
        for name, info in whole.tensors.items():
            if name not in whole.constants:
                split = self._splits.get(name)
                shape = info.shape if split is None else split.local_shape(info.shape, self._ranks.rank)
                self._tensors[name] = dataclasses.replace(info, shape=shape)
        for node in whole.nodes:
            self._add(node)
        for info in whole.outputs:
            if info.name in whole.constants:
                self._whole_constant(info.name)
        return dataclasses.replace(
            whole,
            nodes=tuple(self._nodes),
            constants=self._constants,
            tensors=self._tensors,
            node_by_output={name: node for node in self._nodes for name in node.outputs if name},
            rounded_constants=self._errors,
        )

    def _add(self, node: Node) -> None:
        step = self._steps.get(node.name)
        cuts: Mapping[int, Split] = {} if step is None else step.cuts
        inputs = [
            self._cut(name, cuts.get(index)) if name in self._whole.constants else name
            for index, name in enumerate(node.inputs)
        ]
        op: Operator = node.op
        if node.name in self._starts:
            inputs[0] = self._entry(inputs[0])
        elif step is not None and step.output is None:
            op = self._summed(node)
            if len(inputs) > 2 and self._ranks.rank:
                inputs = inputs[:2]  # the sum over the ranks has the bias once, from rank 0
        elif isinstance(op, Reshape):
            op = Reshape(self._tensors[node.outputs[0]].shape)
        elif isinstance(op, Conv) and step is not None and op.group > 1:
            op = dataclasses.replace(op, group=self._tensors[node.outputs[0]].shape[1])
        self._nodes.append(Node(node.name, op, tuple(inputs), node.outputs))

    def _entry(self, name: str) -> str:
        entry = f"{name} (entry)"
        if entry not in self._tensors:
            self._tensors[entry] = dataclasses.replace(self._tensors[name], name=entry)
            self._nodes.append(Node(entry, ZoneEntry(self._ranks), (name,), (entry,)))
        return entry

    def _summed(self, node: Node) -> Operator:
        op, weight = node.op, self._whole.tensors[node.inputs[1]].shape
        if isinstance(op, Gemm):
            return SummedGemm(
                op.alpha,
                op.beta,
                op.transpose_a,
                op.transpose_b,
                self._ranks,
                weight[1 if op.transpose_b else 0],
            )
        if isinstance(op, Conv):
            return SummedConv(
                op.kernel_shape,
                op.strides,
                op.pads,
                op.dilations,
                op.group,
                self._ranks,
                int(np.prod(weight[1:])),
            )
        assert isinstance(op, MatMul)
        return SummedMatMul(self._ranks, weight[0])

    def _whole_constant(self, name: str) -> str:
        self._constants[name] = self._whole.constants[name]
        self._tensors[name] = self._whole.tensors[name]
        if name in self._whole.rounded_constants:
            self._errors[name] = self._whole.rounded_constants[name]
        return name

    def _cut(self, name: str, split: Split | None) -> str:
        if split is None:
            return self._whole_constant(name)
        array = self._whole.constants[name]
        axis = split.axis % array.ndim
        local = f"{name} (axis {axis} by {'+'.join(map(str, split.sizes))})"
        if local not in self._constants:
            part = array[(slice(None),) * axis + (split.part(self._ranks.rank),)]
            self._constants[local] = np.array(part, order="C")
            self._tensors[local] = TensorInfo(local, part.shape, part.dtype)
            if name in self._whole.rounded_constants:
                self._errors[local] = self._whole.rounded_constants[name]
        return local
