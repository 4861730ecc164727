"""Weights of auto_LiRPA's graph as one shard a rank, gathered for one visit of the operator that reads them.

This is fully sharded data parallelism (Zhao et al., "PyTorch FSDP", 2023) for bounds: every rank carries all rows, and
holds 1/P of each large weight. auto_LiRPA is not changed: what it traces has placeholders of one NaN, stretched to
a weight's shape, and the operators that read them get the gathered weight as an argument. Where one were read past
them, bounds would be NaN, which is never a proof.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from boundscope.sharding.ranks import TILE_BYTES, RankGroup
from boundscope.sharding.weights import Ledger

WHOLE_BELOW = 4096  # elements: a collective would cost more than it saves
LAYERS = (nn.Linear, nn.Conv1d, nn.Conv2d, nn.Conv3d)
IN_FLIGHT = 2  # pieces of a gather that travel at once


class _Saved(NamedTuple):
    """A gathered weight, or a view of it, as autograd keeps it: by name."""

    name: str
    size: torch.Size
    stride: tuple[int, ...]
    offset: int


class _Shard:
    """This rank's 1/P of a weight's elements, in their order; those past the end are zero."""

    def __init__(self, whole: Tensor, ranks: RankGroup, ledger: Ledger) -> None:
        assert ranks.frames is not None
        self._frames, self._size, self._shape = ranks.frames, ranks.size, whole.shape
        self._length = -(-whole.numel() // ranks.size)
        flat = whole.reshape(-1)[ranks.rank * self._length : (ranks.rank + 1) * self._length]
        own = whole.new_zeros(self._length)
        own[: flat.numel()] = flat
        self._own = ledger.hold(own, "weights")

    def gathered(self) -> Tensor:
        """The weight. All ranks call together.

        Raises:
            PeerStoppedError: another rank has failed.
        """
        whole = self._own.new_empty(self._size, self._length)
        step = TILE_BYTES // self._size // self._own.element_size()
        starts = range(0, self._length, step)
        travelling = [self._post(start, step) for start in starts[:IN_FLIGHT]]
        for number, start in enumerate(starts):
            count = min(step, self._length - start)
            parts = self._frames.take(travelling.pop(0), count, self._own.dtype)
            for rank, part in enumerate(parts):
                whole[rank, start : start + count].copy_(part)
            if number + IN_FLIGHT < len(starts):
                travelling.append(self._post(starts[number + IN_FLIGHT], step))
        return whole.view(-1)[: self._shape.numel()].view(self._shape)

    def _post(self, start: int, step: int) -> Any:
        return self._frames.post(self._own[start : start + step])


class Shards:
    """The large weights of one traced network.

    `place` takes them out of the layers before the trace, `attach` lends them to the operators after it. Every rank
    must run the same operators in the same order.
    """

    def __init__(self, ranks: RankGroup, ledger: Ledger) -> None:
        self._ranks, self._ledger = ranks, ledger
        self._shards: dict[str, _Shard] = {}
        self._lent: dict[int, str] = {}  # by the address of what is lent now
        self.gathers = 0

    def __contains__(self, name: object) -> bool:
        return name in self._shards

    def place(self, prefix: str, module: nn.Module) -> None:
        """Keep this rank's part of the large weights in a module, `prefix` being its name in the network's.

        They are those of linear layers and convolutions: rules for other operators read more than their arguments.
        """
        for path, layer in module.named_modules(prefix=prefix):
            if not isinstance(layer, LAYERS):
                continue
            names = {
                f"{path}.{own}": own
                for own, value in layer.named_parameters(recurse=False)
                if value.numel() >= WHOLE_BELOW and value.is_floating_point()
            }
            for name, own in names.items():
                whole = layer._parameters[own]
                assert whole is not None
                self._shards[name] = _Shard(whole.detach(), self._ranks, self._ledger)
                nothing = torch.full((1,), torch.nan, dtype=whole.dtype).expand(whole.shape)
                layer._parameters[own] = nn.Parameter(nothing, requires_grad=False)
            if names:
                self._lend_to_layer(layer, names)

    def _lend_to_layer(self, layer: nn.Module, names: Mapping[str, str]) -> None:
        """Outside the trace, the layer computes with the weights themselves."""
        compute = layer.forward
        placeholders = {own: layer._parameters[own] for own in names.values()}

        def forward(*inputs: Tensor) -> Any:
            if torch.jit.is_tracing():  # type: ignore[attr-defined, no-untyped-call]
                return compute(*inputs)
            with self._gathered(list(names)) as weights:
                for own, weight in zip(names.values(), weights, strict=True):
                    layer._parameters[own] = nn.Parameter(weight, requires_grad=False)
                try:
                    return compute(*inputs)
                finally:
                    layer._parameters.update(placeholders)

        layer.forward = forward

    def attach(self, bounded: Any) -> None:
        """Lend weights to the operators of a BoundedModule that read them."""
        for node in list(bounded._modules.values()):
            inputs = [str(getattr(one, "ori_name", "")) for one in getattr(node, "inputs", ())]
            read = {position: name for position, name in enumerate(inputs) if name in self}
            if read:
                self._lend_to_operator(node, read)

    def _lend_to_operator(self, node: Any, read: Mapping[int, str]) -> None:
        """One gather for each visit, whichever of the three ways it is visited in."""
        evaluate, propagate, substitute = node.forward, node.interval_propagate, node.bound_backward
        names = list(read.values())

        def forward(*values: Any, **options: Any) -> Any:
            with self._gathered(names) as weights:
                return evaluate(*_with(values, read, weights), **options)

        def interval_propagate(*ends: Any, **options: Any) -> Any:
            with self._gathered(names) as weights:
                return propagate(*_with(ends, read, [(one, one) for one in weights]), **options)

        def bound_backward(last_lower: Any, last_upper: Any, *inputs: Any, **options: Any) -> Any:
            with self._gathered(names) as weights, contextlib.ExitStack() as stack:
                for position, weight in zip(read, weights, strict=True):
                    stack.enter_context(_known(inputs[position], weight))
                return substitute(last_lower, last_upper, *inputs, **options)

        node.forward, node.interval_propagate, node.bound_backward = (
            forward,
            interval_propagate,
            bound_backward,
        )

    @contextlib.contextmanager
    def _gathered(self, names: Sequence[str]) -> Iterator[list[Tensor]]:
        weights = [self._ledger.hold(self._gather(name), "gathered") for name in names]
        addresses = [one.untyped_storage().data_ptr() for one in weights]
        self._lent.update(zip(addresses, names, strict=True))
        try:
            yield list(weights)
        finally:
            for address in addresses:
                del self._lent[address]

    def _gather(self, name: str) -> Tensor:
        self.gathers += 1
        return self._shards[name].gathered()

    def kept_as_shards(self) -> contextlib.AbstractContextManager[object]:
        """While it is entered, autograd keeps the names of the weights that it needs, and they are gathered again where
        the gradient does."""

        def pack(value: Tensor) -> Tensor | _Saved:
            name = self._lent.get(value.untyped_storage().data_ptr())
            if name is None:
                return value
            return _Saved(name, value.size(), value.stride(), int(value.storage_offset()))

        def unpack(kept: Tensor | _Saved) -> Tensor:
            if isinstance(kept, Tensor):
                return kept
            whole = self._gather(kept.name)
            return self._ledger.hold(torch.as_strided(whole, kept.size, kept.stride, kept.offset), "gathered")

        return torch.autograd.graph.saved_tensors_hooks(pack, unpack)


def _with(values: Sequence[Any], read: Mapping[int, str], weights: Sequence[Any]) -> list[Any]:
    changed = list(values)
    for position, weight in zip(read, weights, strict=True):
        changed[position] = weight
    return changed


@contextlib.contextmanager
def _known(leaf: Any, weight: Tensor) -> Iterator[None]:
    """A leaf whose bounds are the weight, for as long as one operator reads them."""
    before = getattr(leaf, "lower", None), getattr(leaf, "upper", None)
    leaf.lower = leaf.upper = weight
    try:
        yield
    finally:
        leaf.lower, leaf.upper = before
