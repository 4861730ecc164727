"""What befalls rank 1 in the middle of a real job, by the job's seed."""

from __future__ import annotations

import atexit
import os
from collections.abc import Callable
from typing import Any

from torch import Tensor

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.bounds.context import BoxContext
from boundscope.errors import OutOfMemoryError
from boundscope.protocol import VerifyJob, VerifyResult
from boundscope.sharding.ranks import LEAST_PART
from boundscope.worker import verify
from boundscope.worker.verify import run_verify
from support.faults import fail


def run(job: VerifyJob, files: Any, monitor: Any, ranks: Any) -> VerifyResult:
    """A verification; rank 1 fails where the margins are to be bounded, with the other in its collectives."""
    if ranks.rank == 1:

        def margins(*given: object, **named: object) -> None:
            fail(job.seed)
            raise AssertionError("the fault did not come about")

        BoundEngine.margins = margins  # type: ignore[assignment, method-assign]
    return run_verify(job, files, monitor, ranks)


def run_without_a_way_out(job: VerifyJob, files: Any, monitor: Any, ranks: Any) -> VerifyResult:
    """A verification in ranks that would abort if the interpreter were taken apart; with a seed, rank 1 fails first."""
    atexit.register(os.abort)
    if ranks.rank == 1 and job.seed:
        fail(job.seed)
    return run_verify(job, files, monitor, ranks)


# ---------------------------------------------------------------- memory that only rank 1 lacks

WEIGHTS, INTERVALS, LAYERS, MARGINS, ONCE = range(5, 10)


def run_short(job: VerifyJob, files: Any, monitor: Any, ranks: Any) -> VerifyResult:
    """A verification; from some point on, or once, rank 1's ledger has no room for anything more."""
    if ranks.rank == 1:
        match job.seed:
            case 5:
                _tight_before(verify, "place", lambda network, sharding, ledger, *rest: ledger)
            case 6:
                _tight_before(BoxContext, "advance", lambda context, node: context.ledger)
            case 7:
                _tight_before(BoundEngine, "element_bounds", lambda engine, *rest: engine.ledger)
            case 8:
                _tight_before(BoundEngine, "_constraint_rows", lambda engine, *rest: engine.ledger)
            case 9:
                _refuse_rows_once()
    return run_verify(job, files, monitor, ranks)


def _tight_before(owner: Any, name: str, ledger_of: Callable[..., MemoryLedger]) -> None:
    function = getattr(owner, name)

    def tight(*given: Any, **named: Any) -> Any:
        ledger_of(*given).limit_bytes = 1
        return function(*given, **named)

    setattr(owner, name, tight)


def _refuse_rows_once() -> None:
    hold, refused = MemoryLedger.hold, False

    def refusing(ledger: MemoryLedger, tensor: Tensor, category: str) -> Tensor:
        nonlocal refused
        if category == "rows" and len(tensor) >= LEAST_PART and not refused:
            refused = True
            raise OutOfMemoryError("no room for these rows")
        return hold(ledger, tensor, category)

    MemoryLedger.hold = refusing  # type: ignore[assignment, method-assign]
