"""What a rank of a sharded auto_LiRPA does in a test; in a module of its own, for processes to import."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from boundscope.bounds import MemoryLedger
from boundscope.errors import BoundscopeError, CancelledError, OutOfMemoryError
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties import read_property
from boundscope.properties.types import Case, LinearConstraint
from boundscope.protocol import Method, Sharding
from boundscope.reference import engine as reference_engine
from boundscope.reference.engine import Ends, ReferenceEngine
from boundscope.reference.parallel import SplitLayers
from boundscope.reference.shards import Shards
from boundscope.sharding import sums
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.files import JobFiles


class Stopped(Monitor):
    """Cancelled at its fifth check, which is between two steps of the search for slopes."""

    checks = 0

    def check(self) -> None:
        self.checks += 1
        if self.checks == 5:
            raise CancelledError("cancelled")


def _case(files: JobFiles) -> tuple[Network, Case, list[LinearConstraint]]:
    network = load_network(files.network)
    prop = read_property(files.property, input_count=network.input_count, output_count=network.output_count)
    case = prop.cases[0]
    return network, case, [one for clause in case.clauses for one in clause.constraints]


def stopped(ranks: RankGroup, files: JobFiles, sharding: Sharding = Sharding.FSDP) -> str:
    network, case, constraints = _case(files)
    engine = ReferenceEngine(network, Stopped() if ranks.rank else Monitor(), ranks=ranks, sharding=sharding)
    try:
        engine.bounds(case.box, constraints, Method.ALPHA_CROWN)
    except CancelledError:
        return "cancelled"
    return "finished"


def short_of_memory(ranks: RankGroup, files: JobFiles) -> tuple[str, bool]:
    """What a rank raises where one of them may hold too little, and whether both compute afterwards."""
    network, case, constraints = _case(files)
    ledger = MemoryLedger(401 * 333 * 4 if ranks.rank else None)  # its shards, and not a gathered weight
    engine = ReferenceEngine(network, ranks=ranks, ledger=ledger)
    said = ""
    try:
        engine.bounds(case.box, constraints, Method.CROWN)
    except OutOfMemoryError:
        said = "out of memory"
    ledger.limit_bytes = None
    again = engine.bounds(case.box, constraints, Method.CROWN).margins
    return said, bool(
        torch.equal(again, ReferenceEngine(network).bounds(case.box, constraints, Method.CROWN).margins)
    )


def gathers(ranks: RankGroup, files: JobFiles) -> tuple[int, int, int]:
    """Gathers of CROWN; of alpha-CROWN; and of that where autograd keeps whole weights."""
    network, case, constraints = _case(files)
    counts = []
    for method, keeping in ((Method.CROWN, True), (Method.ALPHA_CROWN, True), (Method.ALPHA_CROWN, False)):
        engine = ReferenceEngine(network, ranks=ranks)
        with pytest.MonkeyPatch.context() as patch:
            if not keeping:
                patch.setattr(Shards, "kept_as_shards", lambda self: contextlib.nullcontext())
            engine.bounds(case.box, constraints, method)
        (traced,) = engine._bounded.values()
        assert traced.shards is not None
        counts.append(traced.shards.gathers)
    return counts[0], counts[1], counts[2]


def unlent(ranks: RankGroup, files: JobFiles) -> str:
    network, case, constraints = _case(files)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Shards, "attach", lambda self, bounded: None)
        try:
            ReferenceEngine(network, ranks=ranks).bounds(case.box, constraints, Method.CROWN)
        except BoundscopeError as error:
            return "NaN" if "nan" in str(error).lower() else str(error)
    return "proven"


# ---------------------------------------------------------------- layers split over the ranks

Found = tuple[Tensor, Mapping[str, Ends]]  # margins, and hidden intervals


def split_beside_alone(
    ranks: RankGroup, cases: Sequence[tuple[JobFiles, Method, torch.dtype]]
) -> list[tuple[Found, Found, Found, int]]:
    """Of each case what one rank finds, what all of them find with layers split, and what one rank finds that bounds
    the inside of zones by intervals as they do; and how many zones there are. Slopes are searched for in few steps."""
    reference_engine.STEPS = 6
    results = []
    for files, method, dtype in cases:
        network, case, constraints = _case(files)
        alone, zoned = ReferenceEngine(network, dtype=dtype), ReferenceEngine(network, dtype=dtype)
        zoned._split = SplitLayers(network, RankGroup())
        together = ReferenceEngine(network, dtype=dtype, ranks=ranks, sharding=Sharding.TP)
        found = []
        for engine in (alone, together, zoned):
            bounds = engine.bounds(case.box, constraints, method)
            found.append((bounds.margins, dict(bounds.layers)))
        results.append((found[0], found[1], found[2], together.zones))
    return results


def split_faults(ranks: RankGroup, files: JobFiles) -> tuple[str, str, bool]:
    """What ranks raise where one of them is cancelled, and where it is short of memory in the middle of a pass; and
    whether all compute again."""
    cancelled = stopped(ranks, files, Sharding.TP)
    network, case, constraints = _case(files)
    engine = ReferenceEngine(network, ranks=ranks, sharding=Sharding.TP)
    said, calls = "", 0
    add_up = sums.add_up

    def short(own: Tensor, group: RankGroup) -> Tensor:
        nonlocal calls
        calls += 1
        if calls == 6 and ranks.rank:
            raise MemoryError
        return add_up(own, group)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sums, "add_up", short)
        try:
            engine.bounds(case.box, constraints, Method.CROWN)
        except OutOfMemoryError:
            said = "out of memory"
    again = engine.bounds(case.box, constraints, Method.CROWN).margins
    fresh = ReferenceEngine(network, ranks=ranks, sharding=Sharding.TP)
    return cancelled, said, torch.equal(again, fresh.bounds(case.box, constraints, Method.CROWN).margins)
