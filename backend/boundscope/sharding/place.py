"""How a sharding places a network on the ranks: what each holds of the weights, and which rows it carries."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from boundscope.network.arrays import release
from boundscope.network.graph import Network
from boundscope.network.lowering import lowered
from boundscope.protocol import Sharding
from boundscope.sharding.ranks import RankGroup
from boundscope.sharding.weights import Ledger, RowShardedWeights, WeightStore, WholeWeights
from boundscope.sharding.zones import split_network

TENSOR_PARALLEL = (Sharding.TP, Sharding.TP_EXACT)


def cuts_shards(sharding: Sharding, ranks: RankGroup) -> bool:
    """Whether each rank keeps its part of every large constant, so that none needs them whole after `place`."""
    return ranks.size > 1 and sharding in (Sharding.ROWS, Sharding.FSDP)


@dataclass(frozen=True)
class Placed:
    """What this rank bounds.

    Attributes:
        network: the network, or this rank's part of it where layers are split.
        weights: where its constants lie.
        ranks: the ranks, and whether they divide rows among them.
        whole: of a rank's part of a network, the network.
    """

    network: Network
    weights: WeightStore
    ranks: RankGroup
    whole: Network | None = None


def place(
    network: Network, sharding: Sharding, ledger: Ledger, device: torch.device, ranks: RankGroup
) -> Placed:
    """Place a network on the ranks; all of them call together.

    Raises:
        NetworkError: a file that constants are views of was changed since it was opened.
    """
    if ranks.size == 1 or sharding is Sharding.NONE:
        return Placed(network, WholeWeights(network.constants, ledger, device, torch.float64), ranks)
    if sharding in TENSOR_PARALLEL:
        together = ranks.with_all_rows()
        part = split_network(lowered(network), together)
        own = WholeWeights(part.constants, ledger, device, torch.float64)
        return Placed(part, own, together, network)
    weights = RowShardedWeights(network.constants, ledger, device, torch.float64, ranks)
    release(network.constants)
    for file in network.files:
        file.require()
    return Placed(network, weights, ranks.with_all_rows() if sharding is Sharding.FSDP else ranks)
