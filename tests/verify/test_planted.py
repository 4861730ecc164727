"""200 small networks whose answer an exact enumeration knows: no way of running a job gives the opposite one.

Violations are hidden in a thousandth of a box, or a threshold lies so little beyond reach. BOUNDSCOPE_PLANTED=all runs
every way on every instance (about half an hour); otherwise each way takes its share of them.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from boundscope.monitor import Monitor
from boundscope.protocol import (
    Arithmetic,
    Branching,
    Counterexample,
    Event,
    Instance,
    InstanceResult,
    InstancesJob,
    Method,
    PropertyFile,
    Sharding,
    Verdict,
    VerifyJob,
)
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.files import InstancesFiles, JobFiles
from boundscope.worker.local import run_local
from boundscope.worker.verify import run_verify
from support.jobs import ref, verify
from support.models import box_property, save
from support.planted import SEEDS, Answer, Planted, planted

WHOLE = os.environ.get("BOUNDSCOPE_PLANTED") == "all"
LIMIT_S = 30.0
TOUCHING_LIMIT_S = 2.0  # floating point may never see that there is an answer
FLOAT32_LIMIT_S = 4.0  # nor that a margin is larger than what float32 rounds


@dataclass(frozen=True)
class Way:
    """How a job is run, and that it takes every `share`-th instance."""

    method: Method
    share: int
    branching: Branching = Branching.AUTO
    batch: int | None = None
    ranks: int = 1
    arithmetic: Arithmetic = Arithmetic.REAL

    def __str__(self) -> str:
        words = [self.method.value]
        if self.method is Method.COMPLETE:
            words += [
                f"{self.branching}-splitting",
                "any-batch" if self.batch is None else f"batch-{self.batch}",
            ]
        return "-".join([*words, str(self.arithmetic), f"ranks-{self.ranks}"])

    def job(self, one: Planted) -> VerifyJob:
        return VerifyJob(
            network=ref(one.network),
            property=PropertyFile(file=ref(one.property)),
            method=self.method,
            branching=self.branching,
            batch=self.batch,
            ranks=self.ranks,
            sharding=Sharding.ROWS if self.ranks > 1 else Sharding.NONE,
            arithmetic=self.arithmetic,
            timeout_s=self.limit_s(one),
        )

    def limit_s(self, one: Planted) -> float:
        if self.arithmetic is Arithmetic.FLOAT32:
            return FLOAT32_LIMIT_S
        return TOUCHING_LIMIT_S if one.answer is Answer.TOUCHES else LIMIT_S


INCOMPLETE = (Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN)
BATCHES = (1, 7, 1024)
SPLITS = (Branching.INPUT, Branching.ACTIVATION)
WAYS = (
    *(Way(method, 4) for method in INCOMPLETE),
    *(Way(method, 8, arithmetic=Arithmetic.FLOAT32) for method in (Method.CROWN, Method.ALPHA_CROWN)),
    Way(Method.COMPLETE, 1),
    *(Way(Method.COMPLETE, 8, split, batch) for split in SPLITS for batch in BATCHES),
    *(Way(Method.COMPLETE, 8, batch=batch) for batch in BATCHES),
    Way(Method.COMPLETE, 8, arithmetic=Arithmetic.FLOAT32),
)
WAYS_OF_TWO_RANKS = (
    *(Way(method, 20, ranks=2) for method in (Method.CROWN, Method.ALPHA_CROWN)),
    *(
        Way(Method.COMPLETE, 20, split, batch, ranks=2)
        for split in SPLITS
        for batch in ((1, 7, 1024) if WHOLE else (7,))
    ),
    Way(Method.COMPLETE, 20, ranks=2),
)


@pytest.fixture(scope="module")
def instance(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], Planted]:
    """The instance of a seed, made when it is first asked for."""
    folder = tmp_path_factory.mktemp("planted")
    made: dict[int, Planted] = {}

    def make(seed: int) -> Planted:
        if seed not in made:
            made[seed] = planted(seed, folder)
        return made[seed]

    return make


def seeds(way: Way, ways: Sequence[Way]) -> list[int]:
    """Every seed, or the way's share of them: another one for its neighbours."""
    return list(SEEDS) if WHOLE else list(SEEDS)[ways.index(way) % way.share :: way.share]


def fault(
    one: Planted, way: Way, verdict: Verdict, reason: str, counterexample: Counterexample | None
) -> str | None:
    """What is wrong with an answer; None where it may be given."""
    allowed = {Verdict.VIOLATED if one.violated else Verdict.VERIFIED}
    if way.arithmetic is Arithmetic.FLOAT32:
        # What is proven for any float32 runtime holds over the reals; what one of them violates need not.
        allowed |= {Verdict.VIOLATED, Verdict.UNKNOWN, Verdict.TIMEOUT}
    elif way.method is not Method.COMPLETE:
        allowed.add(Verdict.UNKNOWN)
    elif one.answer is Answer.TOUCHES:
        allowed |= {Verdict.UNKNOWN, Verdict.TIMEOUT}
    said = f"{one}: {verdict}, {reason}"
    if verdict not in allowed:
        return said
    if verdict is not Verdict.VIOLATED:
        return None
    if counterexample is None or not counterexample.replay.inside_box:
        return f"{said}, without a witness inside the box"
    if way.arithmetic is Arithmetic.REAL:
        return (
            None
            if one.violates(counterexample.inputs)
            else f"{said}, at {counterexample.inputs}, which does not"
        )
    replay = counterexample.replay
    return None if replay.violates or replay.violates_unoptimized else f"{said}, which no replay says"


def skip_unless_there(way: Way) -> None:
    for split, module in ((Branching.INPUT, "input_split"), (Branching.ACTIVATION, "activation_split")):
        needed = way.method is Method.COMPLETE and way.branching in (split, Branching.AUTO)
        if needed and importlib.util.find_spec(f"boundscope.search.{module}") is None:
            pytest.skip(f"no search splits by {split} yet")


def test_half_of_the_instances_are_violated(instance: Callable[[int], Planted]) -> None:
    answers = [instance(seed).answer for seed in SEEDS]
    assert len(answers) == 200
    assert answers.count(Answer.VIOLATED) > 80
    assert answers.count(Answer.SAFE) > 80
    assert answers.count(Answer.TOUCHES) >= 10


@pytest.mark.timeout(3600 if WHOLE else 300)
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_no_answer_is_wrong(instance: Callable[[int], Planted], way: Way) -> None:
    skip_unless_there(way)
    faults = []
    for seed in seeds(way, WAYS):
        one = instance(seed)
        result = run_verify(
            way.job(one),
            JobFiles(one.network, one.property),
            Monitor(timeout_s=way.limit_s(one)),
            RankGroup(),
        )
        faults.append(fault(one, way, result.verdict, result.reason, result.counterexample))
    assert not any(faults), "\n".join(filter(None, faults))


@pytest.mark.timeout(3600 if WHOLE else 300)
@pytest.mark.parametrize("way", WAYS_OF_TWO_RANKS, ids=str)
def test_no_answer_of_two_ranks_is_wrong(instance: Callable[[int], Planted], way: Way) -> None:
    """All instances in one pair of processes, as a benchmark runs them."""
    skip_unless_there(way)
    chosen = [instance(seed) for seed in seeds(way, WAYS_OF_TWO_RANKS)]
    job = InstancesJob(
        networks=tuple(ref(one.network) for one in chosen),
        properties=tuple(ref(one.property) for one in chosen),
        instances=tuple(
            Instance(network=k, property=k, timeout_s=way.limit_s(one)) for k, one in enumerate(chosen)
        ),
        verify=way.job(chosen[0]),
    )
    files = InstancesFiles(
        networks=tuple(one.network for one in chosen), properties=tuple(one.property for one in chosen)
    )
    rows: list[InstanceResult] = []

    def listen(rank: int, event: Event) -> None:
        if isinstance(event, InstanceResult):
            rows.append(event)

    run_local(job, files, listen)
    assert [row.number for row in rows] == list(range(len(chosen)))
    faults = [
        fault(one, way, row.verdict, row.reason, row.counterexample)
        for one, row in zip(chosen, rows, strict=True)
    ]
    assert not any(faults), "\n".join(filter(None, faults))


# ---------------------------------------------------------------- what planted instances have found


@pytest.mark.parametrize("method", INCOMPLETE)
def test_a_coefficient_that_float64_cannot_hold_certifies_no_witness(tmp_path: Path, method: Method) -> None:
    """0.3·y < 0.03 fails on all of [0.1, 0.2], by nothing at 0.1, where float32 numbers seem to meet it."""
    identity = helper.make_node("Gemm", ["x", "W"], ["y"], "fc")
    network = save(tmp_path / "n.onnx", [identity], {"W": np.ones((1, 1), dtype=np.float32)}, [1, 1], [1, 1])
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([0.1], [0.2], 1, "(assert (< (* 0.3 Y_0) 0.03))"))
    assert verify(network, prop, method=method).verdict in (Verdict.UNKNOWN, Verdict.VERIFIED)
