"""Weights of a network as the bound engine reads them: whole on every rank, or one shard a rank, gathered for use."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor

from boundscope.sharding.ranks import RankGroup


class Ledger(Protocol):
    def hold(self, tensor: Tensor, category: str) -> Tensor: ...


class WeightStore:
    """Constants by name, as tensors of the engine's dtype. `use` lends them; do not keep what it lends.

    Where `collective`, every rank must enter `use` with the same names in the same order.
    """

    collective = False

    @contextmanager
    def use(self, names: tuple[str, ...], dtype: torch.dtype | None = None) -> Iterator[dict[str, Tensor]]:
        """Lend constants, the floating ones in `dtype` (None: the engine's)."""
        raise NotImplementedError


def _floating(array: NDArray[Any], dtype: torch.dtype) -> Tensor:
    tensor = torch.from_numpy(np.array(array))
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _shared(array: NDArray[Any]) -> Tensor:
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(array)


class WholeWeights(WeightStore):
    """Every constant whole on this rank (sharding `none`)."""

    def __init__(
        self, constants: Mapping[str, NDArray[Any]], ledger: Ledger, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._tensors = {
            name: ledger.hold(_floating(array, dtype).to(device), "weights")
            for name, array in constants.items()
        }

        self._constants = constants
        self._ledger = ledger
        self._device = device
        self._dtype = dtype
        self._others: dict[tuple[str, torch.dtype], Tensor] = {}

    @contextmanager
    def use(self, names: tuple[str, ...], dtype: torch.dtype | None = None) -> Iterator[dict[str, Tensor]]:
        yield {name: self._in(name, dtype) for name in names}

    def _in(self, name: str, dtype: torch.dtype | None) -> Tensor:
        tensor = self._tensors[name]
        if dtype is None or dtype == self._dtype or not tensor.is_floating_point():
            return tensor
        if (name, dtype) not in self._others:
            self._others[(name, dtype)] = self._converted(name, dtype)
        return self._others[(name, dtype)]

    def _converted(self, name: str, dtype: torch.dtype) -> Tensor:
        """The network's own memory where it is of this type; it is only read."""
        if self._device.type == "cpu":
            shared = _shared(self._constants[name])
            if shared.dtype == dtype:
                return shared
        return self._ledger.hold(self._tensors[name].to(dtype), "weights")


class RowShardedWeights(WeightStore):
    """Each large constant as 1/P flat shards, gathered just before use and freed right after.

    Shards keep the file's own dtype, so that they travel and rest at the file's size; the gathered copy is
    converted to the engine's dtype. Constants under `whole_below` elements stay whole: a collective would cost
    more than it saves.
    """

    collective = True

    def __init__(
        self,
        constants: Mapping[str, NDArray[Any]],
        ledger: Ledger,
        device: torch.device,
        dtype: torch.dtype,
        ranks: RankGroup,
        whole_below: int = 4096,
    ) -> None:
        self._ledger = ledger
        self._ranks = ranks
        self._dtype = dtype
        self._shapes = {name: tuple(array.shape) for name, array in constants.items()}
        self._whole: dict[str, Tensor] = {}
        self._shards: dict[str, Tensor] = {}
        for name, array in constants.items():
            if array.size < whole_below or array.dtype.kind != "f":
                self._whole[name] = ledger.hold(_floating(array, dtype).to(device), "weights")
            else:
                self._shards[name] = ledger.hold(self._shard(array).to(device), "weights")

    def _shard(self, array: NDArray[Any]) -> Tensor:
        length = -(-array.size // self._ranks.size)
        flat = array.reshape(-1)[self._ranks.rank * length : (self._ranks.rank + 1) * length]
        shard = torch.zeros(length, dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype)
        shard[: flat.size] = torch.from_numpy(np.array(flat))
        return shard

    def _gather(self, name: str, dtype: torch.dtype) -> Tensor:
        shard = self._shards[name]
        flat = torch.empty(shard.numel() * self._ranks.size, dtype=shard.dtype, device=shard.device)
        dist.all_gather_into_tensor(flat, shard)
        shape = self._shapes[name]
        return flat[: int(np.prod(shape))].reshape(shape).to(dtype)

    @contextmanager
    def use(self, names: tuple[str, ...], dtype: torch.dtype | None = None) -> Iterator[dict[str, Tensor]]:
        wanted = dtype or self._dtype
        lent = {}
        for name in names:
            if name in self._whole:
                whole = self._whole[name]
                lent[name] = whole.to(wanted) if whole.is_floating_point() else whole
            else:
                lent[name] = self._ledger.hold(self._gather(name, wanted), "gathered")
        yield lent
        lent.clear()
