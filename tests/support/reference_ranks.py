"""What a rank of a sharded auto_LiRPA does in a test; in a module of its own, for processes to import."""

from __future__ import annotations

import contextlib

import pytest
import torch

from boundscope.bounds import MemoryLedger
from boundscope.errors import BoundscopeError, CancelledError, OutOfMemoryError
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties import read_property
from boundscope.properties.types import Case, LinearConstraint
from boundscope.protocol import Method
from boundscope.reference.engine import ReferenceEngine
from boundscope.reference.shards import Shards
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


def stopped(ranks: RankGroup, files: JobFiles) -> str:
    network, case, constraints = _case(files)
    engine = ReferenceEngine(network, Stopped() if ranks.rank else Monitor(), ranks=ranks)
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
