"""What a job finds out."""

from __future__ import annotations

from boundscope.protocol.base import Struct
from boundscope.protocol.choices import Branching, Method, Verdict


class ClauseMargin(Struct):
    """Margin of one clause of one case: `lower` is proven, `upper` was reached by a concrete input (or None).

    `excluded` says that the clause is proven to hold nowhere. Branch and bound may know that and no more, for it asks
    of each domain whether a margin is above zero, not by how much; `lower` is then 0.
    """

    case: int
    clause: int
    lower: float | None
    upper: float | None
    text: str = ""
    excluded: bool = False


class Margin(Struct):
    smallest: float | None
    per_clause: tuple[ClauseMargin, ...] = ()


class Seconds(Struct):
    load: float
    parse: float
    solve: float


class RankMemory(Struct):
    """Peaks of one rank: of the ledger (by category at the ledger's peak), and of resident memory above idle."""

    rank: int
    ledger_peak_bytes: int
    resident_peak_bytes: int
    by_category: dict[str, int]


class Replay(Struct):
    """What ONNX Runtime says of a counterexample, on the original file, by code apart from the solver's."""

    inside_box: bool
    violates: bool
    violates_unoptimized: bool
    outputs: tuple[float, ...]
    note: str = ""


class Counterexample(Struct):
    """`inputs` are decimal texts inside the box as written; case and clause count from 0."""

    inputs: tuple[str, ...]
    outputs: tuple[float, ...]
    case: int
    clause: int
    clause_text: str
    replay: Replay
    input_shape: tuple[int, ...] = ()


class LayerDifference(Struct):
    """How far two engines' intervals of one hidden tensor lie apart: the largest difference of an end, over all
    elements. `unlike` counts elements whose two intervals have no point in common."""

    case: int
    tensor: str
    elements: int
    difference: float
    unlike: int = 0


class CrossCheck(Struct):
    """What auto_LiRPA says of the same cases by the same method. Differences are no faults, for the engines relax
    hidden layers in their own ways; a sentence in `disagreements` is one: both cannot be right."""

    engine: str
    method: Method
    layers: tuple[LayerDifference, ...]
    margin_difference: (
        float | None
    )  # the largest, over all inequalities; None where nothing could be compared
    same_layers_difference: float | None  # with our intervals of hidden tensors given to it
    disagreements: tuple[str, ...] = ()
    left_out: str = ""  # why something was not compared


class SearchSummary(Struct):
    """What branch and bound did: domains bounded, the deepest one's number of splits, and how many were left."""

    branching: Branching
    domains: int
    depth: int
    open: int


class VerifyResult(Struct, tag="verify_result"):
    verdict: Verdict
    reason: str
    arithmetic: str
    margin: Margin
    seconds: Seconds
    peak_bytes: tuple[RankMemory, ...]
    counterexample: Counterexample | None
    versions: dict[str, str]
    command: str
    cross_check: CrossCheck | None = None
    search: SearchSummary | None = (
        None  # of the method complete, where bounds alone did not settle everything
    )
