"""What a pool keeps of a domain that is split at activations, and the way from there to rows and back."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.beta import RowBlock
from boundscope.bounds.spans import Ranges
from boundscope.search.activation_bounds import CaseBounds
from boundscope.search.branching import Candidates
from boundscope.search.pool import Column

LARGEST_STORED = 60000.0  # of a multiplier, in float16


def kept_columns(bounds: CaseBounds) -> tuple[dict[str, Column], dict[str, Column]]:
    """Columns of a domain: those that every rank holds, and those that one does."""
    neurons, many = len(bounds.neurons), bounds.many
    wide = {
        "state": Column(np.int8, (neurons,)),
        "value": Column(np.float16, (neurons,)),
        "weight": Column(np.float32, (bounds.aims.width,)),
        "found": Column(np.int32, (many,)),
        "above": Column(np.float32, (many,)),
    }
    if len(bounds.spans):
        elements, parameters = (len(bounds.spans),), (len(bounds.spans.starts),)
        wide |= {
            "low": Column(np.float32, elements),
            "high": Column(np.float32, elements),
            "multiplier": Column(np.float16, elements),
            "parameter": Column(np.float16, parameters),
        }
    return {"clause": Column(np.int32), "depth": Column(np.int32)}, wide


def as_columns(block: RowBlock, found: Candidates) -> dict[str, NDArray[np.generic]]:
    """The wide columns of domains."""
    columns = {
        "state": block.states.cpu().numpy(),
        "value": block.values.clamp(max=LARGEST_STORED).half().cpu().numpy(),
        "weight": block.weights.cpu().numpy(),
        "found": found.column.cpu().numpy().astype(np.int32),
        "above": found.above.cpu().numpy(),
    }
    ranges = block.ranges
    if ranges is not None:
        columns |= {
            "low": ranges.low.cpu().numpy(),
            "high": ranges.high.cpu().numpy(),
            "multiplier": ranges.multipliers.clamp(-LARGEST_STORED, LARGEST_STORED).half().cpu().numpy(),
            "parameter": ranges.thetas.half().cpu().numpy(),
        }
    return columns


def as_rows(
    clause: NDArray[np.generic], wide: dict[str, NDArray[np.generic]], device: torch.device
) -> tuple[RowBlock, Candidates]:
    """Domains of clauses [D] from their wide columns."""

    def tensor(array: NDArray[np.generic]) -> Tensor:
        return torch.from_numpy(array).to(device)

    ranges = None
    if "low" in wide:
        low, high = tensor(wide["low"]), tensor(wide["high"])
        ranges = Ranges(low, high, tensor(wide["multiplier"]).float(), tensor(wide["parameter"]).float())
    block = RowBlock(
        tensor(clause).long(),
        tensor(wide["state"]),
        tensor(wide["value"]).float(),
        tensor(wide["weight"]),
        ranges,
    )
    return block, Candidates(tensor(wide["found"]).long(), tensor(wide["above"]))
