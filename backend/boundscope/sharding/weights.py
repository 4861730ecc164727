"""Weights of a network as the bound engine reads them: whole on every rank, or one shard a rank, gathered for use."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.network.arrays import as_tensor, bands, count_where
from boundscope.sharding.host import HostConstant, HostMatrix, HostMemory, Layout, torch_dtype
from boundscope.sharding.matrices import LentMatrix, ShardedMatrix
from boundscope.sharding.ranks import RankGroup

# A constant of fewer elements is kept in every dtype that is asked for; conversion would cost more than it saves.
LARGE_ELEMENTS = 1 << 18
SPARSE_SHARE = (
    1 / 64
)  # a large matrix with a smaller part of elements that are not zero is lent as these alone


class Ledger(Protocol):
    def hold(self, tensor: Tensor, category: str) -> Tensor: ...


class WeightStore:
    """Constants by name, as tensors of the engine's dtype. `use` lends them; do not keep what it lends.

    Where `collective`, every rank must enter `use` with the same names in the same order.
    """

    collective = False
    lends_tiles = False  # whether `use` takes `tiled`
    apart = ""  # why ranks of one machine share no memory where they should

    def __init__(self, constants: Mapping[str, NDArray[Any]], ledger: Ledger, device: torch.device) -> None:
        self._constants = constants
        self._ledger = ledger
        self._device = device
        self._sparse: dict[tuple[str, torch.dtype], Tensor | None] = {}

    @contextmanager
    def use(
        self,
        names: tuple[str, ...],
        dtype: torch.dtype | None = None,
        stored: Collection[str] = (),
        sparse: Collection[str] = (),
    ) -> Iterator[dict[str, Tensor]]:
        """Lend constants, the floating ones in `dtype` (None: the engine's).

        Large ones among `stored` come in the file's own dtype where `dtype` is wider and so holds the same values;
        large matrices among `sparse` that are nearly all zero as torch's COO tensors, coalesced, in `dtype`.
        """
        raise NotImplementedError

    @contextmanager
    def in_step(self, on: bool) -> Iterator[None]:
        """While this lasts, and `on`, every rank takes the same products with what is lent, in the same order: they may
        share them out."""
        yield

    def watch_parts(self, on: bool) -> None:
        """From now on note, or not, which parts of matrices rules keep to use them again; until `keep_parts`."""

    def keep_parts(self) -> None:
        """Give each of these parts memory of its own, if ranks share it; all of them call together.

        Raises:
            OutOfMemoryError: this rank's share of it does not fit.
            BoundscopeError: what another rank has brought to `agree` instead of coming here.
        """

    def sparse(self, name: str, dtype: torch.dtype) -> Tensor | None:
        """The elements of a large matrix that are not zero, where they are few: the same on every rank."""
        if (name, dtype) not in self._sparse:
            array, found = self._constants[name], None
            if array.dtype.kind == "f" and array.ndim == 2 and array.size >= LARGE_ELEMENTS:
                few = count_where(array, lambda part: part != 0) <= SPARSE_SHARE * array.size
                if few:
                    rows, columns = np.nonzero(array)
                    index = torch.from_numpy(np.stack([rows, columns]))
                    values = torch.from_numpy(array[rows, columns]).to(dtype)
                    coo = torch.sparse_coo_tensor(
                        index, values, array.shape, device=self._device, check_invariants=False
                    )
                    found = coo.coalesce()
            self._sparse[name, dtype] = found
        return self._sparse[name, dtype]


def _lends_stored(size: int, own: torch.dtype, dtype: torch.dtype) -> bool:
    """Whether a constant that may be lent as stored is: a matter of its size and dtypes only, so that every rank
    computes the same."""
    return size >= LARGE_ELEMENTS and torch.promote_types(own, dtype) == dtype


class WholeWeights(WeightStore):
    """Every constant whole on this rank (sharding `none`): as stored, and besides in the dtypes it is lent in."""

    def __init__(
        self, constants: Mapping[str, NDArray[Any]], ledger: Ledger, device: torch.device, dtype: torch.dtype
    ) -> None:
        super().__init__(constants, ledger, device)
        self._dtype = dtype
        self._stored = {
            name: ledger.hold(as_tensor(array).to(device), "weights") for name, array in constants.items()
        }
        self._converted: dict[tuple[str, torch.dtype], Tensor] = {}

    @contextmanager
    def use(
        self,
        names: tuple[str, ...],
        dtype: torch.dtype | None = None,
        stored: Collection[str] = (),
        sparse: Collection[str] = (),
    ) -> Iterator[dict[str, Tensor]]:
        wanted = dtype or self._dtype
        lent = {}
        for name in names:
            few = self.sparse(name, wanted) if name in sparse else None
            lent[name] = self._in(name, wanted, name in stored) if few is None else few
        yield lent

    def _in(self, name: str, dtype: torch.dtype, stored: bool) -> Tensor:
        own = self._stored[name]
        if own.dtype == dtype or not own.is_floating_point():
            return own
        if stored and _lends_stored(own.numel(), own.dtype, dtype):
            return own
        if (name, dtype) not in self._converted:
            self._converted[name, dtype] = self._ledger.hold(own.to(dtype), "weights")
        return self._converted[name, dtype]


class RowShardedWeights(WeightStore):
    """Each large constant as 1/P shards, gathered just before use and freed right after.

    Shards keep the file's own dtype, so that they travel and rest at the file's size. Large matrices are lent as
    LentMatrix where a rule reads tiles, and otherwise gathered whole, as other constants are, and converted to the
    dtype they are lent in. Constants under `whole_below` elements stay whole: a collective would cost more than it
    saves.

    Where all ranks are processes of one machine and compute on its CPUs, shards lie in memory that they share, and
    each rank reads what it needs when it needs it.
    """

    lends_tiles = True

    def __init__(
        self,
        constants: Mapping[str, NDArray[Any]],
        ledger: Ledger,
        device: torch.device,
        dtype: torch.dtype,
        ranks: RankGroup,
        whole_below: int = 4096,
    ) -> None:
        super().__init__(constants, ledger, device)
        self._ranks = ranks
        self._dtype = dtype
        self._whole: dict[str, Tensor] = {}
        self._shards: dict[str, FlatShard | HostConstant] = {}
        self._matrices: dict[str, ShardedMatrix | HostMatrix] = {}
        large = {
            name: array
            for name, array in constants.items()
            if array.size >= whole_below and array.dtype.kind == "f"
        }
        memory, layout = None, Layout.of(large)
        if large and device.type == "cpu" and ranks.on_this_machine == ranks.size:
            memory, self.apart = HostMemory.shared(ranks, layout.size)
        ranks.expect(tiles=memory is None)
        self.collective = memory is None and bool(large)
        for name, array in constants.items():
            matrix = array.ndim == 2 and array.size >= LARGE_ELEMENTS
            if name not in large:
                whole = as_tensor(array)
                whole = whole.to(device, dtype) if whole.is_floating_point() else whole.to(device)
                self._whole[name] = ledger.hold(whole, "weights")
            elif memory is None and matrix:
                self._matrices[name] = ShardedMatrix(array, ranks, ledger, device)
            elif memory is None:
                self._shards[name] = FlatShard(array, ranks, ledger, device)
            elif matrix:
                self._matrices[name] = _written(array, memory, layout.offsets[name], ranks, ledger)
            else:
                self._shards[name] = HostConstant(array, memory, layout.offsets[name], ranks, ledger)
        self._memory = memory
        self._together = False
        if memory is not None:
            ranks.agree(None)  # all have written

    @contextmanager
    def use(
        self,
        names: tuple[str, ...],
        dtype: torch.dtype | None = None,
        stored: Collection[str] = (),
        sparse: Collection[str] = (),
        tiled: Collection[str] = (),
    ) -> Iterator[dict[str, Any]]:
        """As of every store; large matrices among `tiled` come as LentMatrix."""
        wanted = dtype or self._dtype
        lent: dict[str, Any] = {}
        for name in names:
            few = self.sparse(name, wanted) if name in sparse else None
            if few is not None:
                lent[name] = few
            elif name in self._whole:
                whole = self._whole[name]
                lent[name] = whole.to(wanted) if whole.is_floating_point() else whole
            elif name in self._matrices and name in tiled:
                matrix = self._matrices[name]
                lent[name] = LentMatrix(matrix, together=self._together and not matrix.in_step)
            else:
                lent[name] = self._ledger.hold(self._gathered(name, wanted, name in stored), "gathered")
        yield lent
        lent.clear()

    @contextmanager
    def in_step(self, on: bool) -> Iterator[None]:
        before, self._together = self._together, on
        try:
            yield
        finally:
            self._together = before

    def watch_parts(self, on: bool) -> None:
        if self._memory is not None:
            self._memory.wishes = [] if on else None

    def keep_parts(self) -> None:
        if self._memory is None or self._memory.wishes is None:
            return
        wishes, self._memory.wishes = self._memory.wishes, None
        parts: list[LentMatrix] = [place[key] for place, key in wishes]
        shapes = self._ranks.gather([tuple(part.shape) for part in parts])
        if any(one != shapes[0] for one in shapes):
            return  # some rank lacks the memory
        for (place, key), part in zip(wishes, parts, strict=True):
            memory, _ = HostMemory.shared(self._ranks, max(1, part.numel() * part.dtype.itemsize))
            if memory is None:
                return
            place[key] = part.copied(memory, self._ledger)
        self._ranks.agree(None)  # all have written

    def _gathered(self, name: str, dtype: torch.dtype, stored: bool) -> Tensor:
        matrix = self._matrices.get(name)
        whole = self._shards[name].gathered() if matrix is None else LentMatrix(matrix).whole()
        return whole if stored and _lends_stored(whole.numel(), whole.dtype, dtype) else whole.to(dtype)


def _written(
    array: NDArray[Any], memory: HostMemory, offset: int, ranks: RankGroup, ledger: Ledger
) -> HostMatrix:
    matrix = HostMatrix(array.shape, torch_dtype(array), memory, offset, ranks, ledger)
    for band, values in bands(array[matrix.own_rows]):
        matrix.write(band, values)
    return matrix


class FlatShard:
    """One rank's 1/P of a constant's elements, in their order."""

    def __init__(self, array: NDArray[Any], ranks: RankGroup, ledger: Ledger, device: torch.device) -> None:
        assert ranks.frames is not None
        self._frames = ranks.frames
        self._shape = array.shape
        length = -(-array.size // ranks.size)
        flat = array.reshape(-1)[ranks.rank * length : (ranks.rank + 1) * length]
        shard = torch.zeros(length, dtype=torch.from_numpy(np.empty(0, array.dtype)).dtype)
        shard[: flat.size] = torch.from_numpy(np.array(flat))
        self._shard = ledger.hold(shard.to(device), "weights")

    def gathered(self) -> Tensor:
        frames = self._frames.post(self._shard)
        parts = self._frames.take(frames, self._shard.numel(), self._shard.dtype)
        flat = torch.cat(parts)[: int(np.prod(self._shape))]
        return flat.reshape(self._shape).to(self._shard.device)
