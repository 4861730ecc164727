"""Whatever fails inside a job, and wherever: the answer is an error that names the place, or unknown, but no verdict.

Errors are raised by the interpreter as a function of ours is called, so that no function has to be listed here. By
default a part of all functions fails, another one for each way of running a job; BOUNDSCOPE_FAULTS=all takes them all.
"""

from __future__ import annotations

import dataclasses
import inspect
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import torch

import boundscope
from boundscope.bounds import backward, sweep
from boundscope.bounds.affine_forms import Forms, Swept, SweptMargins
from boundscope.bounds.alpha import optimised
from boundscope.bounds.backward import BackwardPass
from boundscope.bounds.chunks import RowChunks
from boundscope.bounds.context import BoxContext
from boundscope.bounds.engine import BoundEngine
from boundscope.bounds.forward import ForwardPass
from boundscope.bounds.interval import Interval
from boundscope.bounds.operators.base import Enclosure
from boundscope.bounds.operators.linear import GemmRule
from boundscope.bounds.operators.relaxation import Lines
from boundscope.bounds.operators.relu import ReluRule
from boundscope.bounds.relaxing import Relaxing
from boundscope.bounds.support import Block
from boundscope.bounds.sweep import Sweeper
from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.protocol import Branching, LogLine, Method, PropertyFile, Verdict, VerifyJob, VerifyResult
from boundscope.search.clipping import LinearRows
from boundscope.search.evaluation import POINT_ERRORS
from boundscope.search.sweeps import SweepBounder
from boundscope.sharding.ranks import RankGroup
from boundscope.worker import engines as engines_module
from boundscope.worker import networks as networks_module
from boundscope.worker import reading as reading_module
from boundscope.worker import witness as witness_module
from boundscope.worker.files import JobFiles
from boundscope.worker.verify import run_verify
from support.jobs import ref
from support.models import box_property, mlp

OURS = str(Path(boundscope.__file__).parent) + os.sep
ALL = os.environ.get("BOUNDSCOPE_FAULTS") == "all"
PART = 1 if ALL else 28  # every so-manieth function
DECIDED = (Verdict.VERIFIED, Verdict.VIOLATED)


class LinAlgLikeError(torch.linalg.LinAlgError):
    """What torch's own decompositions raise: a RuntimeError."""


KINDS: tuple[type[Exception], ...] = (
    ZeroDivisionError,
    ValueError,
    IndexError,
    AssertionError,
    StopIteration,
    LinAlgLikeError,
)
# Functions that the interpreter calls when it lets go of something: what they raise is shown and forgotten.
FINALIZERS = ("MemoryLedger._collected",)
# What makes the result of an outcome, and tells of it: an error in there leaves no result at all.
AROUND = (
    "bounds/ledger.py",
    "command.py",
    "monitor.py",
    "pace.py",
    "worker/proof.py",
    "worker/versions.py",
    "protocol/",
)
AROUND_FUNCTIONS = ("run_verify", "_VerifyRun.__init__", "_VerifyRun.result", "_VerifyRun._guarded")
AROUND_FUNCTIONS += ("_VerifyRun._settled", "_VerifyRun._peaks", "_VerifyRun._tell_traffic")
AROUND_FUNCTIONS += ("_budget", "RankGroup.", "Steps.__init__", "Reading.__init__")


@dataclasses.dataclass(frozen=True)
class Example:
    """A job, and the verdict that it rightly has."""

    network: Path
    property: Path
    method: Method
    verdict: Verdict
    branching: Branching = Branching.AUTO
    limit_s: float = 60.0

    def run(self, told: list[str] | None = None) -> VerifyResult:
        job = VerifyJob(
            network=ref(self.network),
            property=PropertyFile(file=ref(self.property)),
            method=self.method,
            branching=self.branching,
        )

        def listen(event: object) -> None:
            if told is not None and isinstance(event, LogLine):
                told.append(event.text)

        return run_verify(
            job, JobFiles(self.network, self.property), Monitor(listen, timeout_s=self.limit_s), RankGroup()
        )


def example(folder: Path, name: str) -> Example:
    """Of the proven one, α-CROWN is what proves it: slopes of the margin alone fall short by 0.03, CROWN by 0.09.
    Sweeps bound all parts of the swept one, whose only input feeds many neurons."""
    if name == "swept":
        network, prop = mlp(folder / "n.onnx", [1, 80, 60, 3], 1), folder / "p.vnnlib"
        both = "(assert (<= Y_0 (+ Y_1 0.3)))\n(assert (<= Y_2 (+ Y_1 0.3)))"
        prop.write_text(box_property([-1.0], [1.0], 3, both))
        return Example(network, prop, Method.COMPLETE, Verdict.VERIFIED, Branching.INPUT)
    network, prop = mlp(folder / "n.onnx", [4, 12, 12, 3], 3), folder / "p.vnnlib"
    if name == "violated":
        prop.write_text(box_property([-0.1] * 4, [0.1] * 4, 3, "(assert (<= Y_0 1000.0))"))
        return Example(network, prop, Method.ALPHA_CROWN, Verdict.VIOLATED)
    bound = "0.1" if name == "proven" else "0.2"
    prop.write_text(box_property([-0.3] * 4, [0.3] * 4, 3, f"(assert (<= Y_0 (+ Y_1 {bound})))"))
    if name == "proven":
        return Example(network, prop, Method.ALPHA_CROWN, Verdict.VERIFIED)
    return Example(network, prop, Method.COMPLETE, Verdict.VERIFIED, Branching(name))


NAMES = ("proven", "violated", "input", "activation", "swept")


def skip_unless_there(name: str) -> None:
    pytest.importorskip(
        f"boundscope.search.{name}_split", reason=f"no search splits by {name} yet"
    ) if name in (
        "input",
        "activation",
    ) else None


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_have_their_verdicts(tmp_path: Path, name: str) -> None:
    skip_unless_there(name)
    one = example(tmp_path, name)
    result = one.run()
    assert result.verdict is one.verdict, result.reason
    assert (result.search is not None) == (one.method is Method.COMPLETE)


# ---------------------------------------------------------------- errors


def key(code: CodeType) -> str:
    return (
        f"{code.co_filename[len(OURS) :]}:{code.co_qualname if sys.version_info >= (3, 11) else code.co_name}"
    )


def counted(one: Example) -> Counter[str]:
    """How often a run calls each function of ours, except generators, which are also called to be closed."""
    calls: Counter[str] = Counter()

    def look(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(OURS) and not code.co_flags & inspect.CO_GENERATOR:
            calls[key(code)] += 1

    sys.setprofile(look)
    try:
        one.run()
    finally:
        sys.setprofile(None)
    return calls


def failing(
    one: Example, function: str, at: int, kind: type[Exception]
) -> tuple[VerifyResult | None, bool, list[str]]:
    """A run in which the call number `at` of a function raises: its result (None where it raised), whether it came so
    far, and what it logged."""
    seen, raised, told = 0, False, list[str]()

    def look(frame: FrameType, event: str, _: object) -> None:
        nonlocal seen, raised
        if event == "call" and frame.f_code.co_filename.startswith(OURS) and key(frame.f_code) == function:
            seen += 1
            if seen == at:
                raised = True
                raise kind("injected")

    sys.setprofile(look)
    try:
        result: VerifyResult | None = one.run(told)
    except kind as error:
        assert str(error) == "injected"  # noqa: PT017 - the alternative is a result
        result = None
    finally:
        sys.setprofile(None)
    return result, raised, told


def _around(function: str) -> bool:
    module, _, name = function.partition(":")
    return module.startswith(AROUND) or name.startswith(AROUND_FUNCTIONS)


def _wrong(
    one: Example, function: str, kind: type[Exception], result: VerifyResult | None, told: list[str]
) -> str:
    """What is wrong with how a run ended in which a function failed; "" where nothing."""
    if result is None:
        return "" if _around(function) else "left no result"
    if result.verdict is Verdict.ERROR:
        itself = "an error in Boundscope itself" in result.reason
        named = "injected" in result.reason or kind.__name__ in result.reason
        logged = any("Traceback" in text for text in told)
        return "" if named and (logged or not itself) else f"is not told: {result.reason}"
    # A RuntimeError, which generators make of a StopIteration, may be torch.vmap's: then points are evaluated one by
    # one, and CROWN bounds parts instead of sweeps, to the same end.
    recovered = issubclass(kind, RuntimeError | StopIteration) and result.verdict is one.verdict
    # An attack leaves out a point that the network's operators cannot take; what it finds elsewhere is replayed.
    left_out = issubclass(kind, POINT_ERRORS) and function.startswith("network/")
    recovered = recovered or (left_out and result.verdict is one.verdict is Verdict.VIOLATED)
    return "" if recovered else f"gave {result.verdict}: {result.reason}"


@pytest.mark.timeout(3600 if ALL else 300)
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", NAMES)
def test_an_error_in_any_function_is_no_verdict(tmp_path: Path, name: str) -> None:
    skip_unless_there(name)
    one = example(tmp_path, name)
    one.run()  # what is imported or made once is there from here on
    calls = sorted((f, n) for f, n in counted(one).items() if not f.endswith(FINALIZERS))
    assert len(calls) > 200
    faults, failed = [], 0
    part = PART * 2 if one.method is Method.COMPLETE and not ALL else PART  # these runs take longer
    for number, (function, count) in enumerate(calls):
        if number % part != (NAMES.index(name) * 7) % part:
            continue
        turn = number // part
        places = sorted({1, (count + 1) // 2, count})
        tried = [(at, kind) for at in places for kind in KINDS]
        for at, kind in tried if ALL else [(places[turn % len(places)], KINDS[turn % len(KINDS)])]:
            result, raised, told = failing(one, function, at, kind)
            failed += raised
            wrong = "" if not raised else _wrong(one, function, kind, result, told)
            if wrong:
                faults.append(f"{kind.__name__} at call {at} of {count} of {function} {wrong}")
    assert failed > 5
    assert not faults, "\n".join(faults)


STEPS = [
    (Network, "evaluate"),
    (networks_module, "load_network"),
    (reading_module, "read_property"),
    (reading_module, "compare_with_onnxruntime"),
    (BoxContext, "advance"),
    (BoxContext, "tighten"),
    (ForwardPass, "advance"),
    (BoundEngine, "context"),
    (BoundEngine, "margins"),
    (BackwardPass, "lower"),
    (BackwardPass, "lower_elements"),
    (GemmRule, "enclose"),
    (ReluRule, "relax"),
    (engines_module.NativeCases, "margins"),
]


@pytest.mark.parametrize("kind", [RuntimeError, LinAlgLikeError])
@pytest.mark.parametrize(("owner", "step"), STEPS, ids=lambda value: getattr(value, "__name__", value))
def test_a_step_that_fails_for_good_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, kind: type[Exception]
) -> None:
    """RuntimeErrors, which going one by one may answer once, are errors where that fails too."""
    one = example(tmp_path, "proven")

    def fail(*_: object, **__: object) -> None:
        raise kind("injected")

    monkeypatch.setattr(owner, step, fail)
    result = one.run()
    assert result.verdict is Verdict.ERROR
    assert f"{kind.__name__}: injected (in " in result.reason
    assert result.verdict.exit_code == 1


@pytest.mark.parametrize("kind", [ZeroDivisionError, LinAlgLikeError])
def test_any_step_of_a_swept_search_that_fails_is_an_error(tmp_path: Path, kind: type[Exception]) -> None:
    """The last call of each, when sweeps bound parts; whether they can at all was tried before, and CROWN goes on where
    they cannot."""
    one, calls = example(tmp_path, "swept"), Counter[str]()
    for step, count in counted(one).items():
        ours = any(f":{owner.__name__}." in step for owner in (SweepBounder, Sweeper, Swept, Forms))
        if (ours or step.startswith("bounds/relaxed_forms.py:")) and "<" not in step:
            calls[step] = count
    own = [name for name, found in vars(SweepBounder).items() if inspect.isroutine(found)]
    assert {f"search/sweeps.py:SweepBounder.{name}" for name in own} <= calls.keys()
    for step, count in calls.items():
        result, raised, _ = failing(one, step, count, kind)
        assert raised, step
        assert result is not None, step
        assert result.verdict is Verdict.ERROR, f"{step}: {result.verdict}, {result.reason}"
        assert f"{kind.__name__}: injected (in " in result.reason, step


@pytest.mark.parametrize("kind", [MemoryError, torch.OutOfMemoryError])
@pytest.mark.parametrize(
    ("owner", "step"), [(BoundEngine, "context"), (BackwardPass, "lower"), (Network, "evaluate")]
)
def test_memory_that_runs_out_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, kind: type[Exception]
) -> None:
    one = example(tmp_path, "proven")

    def fail(*_: object, **__: object) -> None:
        raise kind("injected")

    monkeypatch.setattr(owner, step, fail)
    result = one.run()
    assert result.verdict is Verdict.OUT_OF_MEMORY, result.reason
    assert "injected" in result.reason


@pytest.mark.parametrize("step", ["replay", "witness_texts"])
def test_a_witness_whose_replay_fails_refutes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    one = example(tmp_path, "violated")
    assert one.run().verdict is Verdict.VIOLATED

    def fail(*_: object, **__: object) -> None:
        raise KeyError("injected")

    monkeypatch.setattr(witness_module, step, fail)
    assert one.run().verdict is Verdict.ERROR


def test_the_terminal_shows_a_sentence_and_no_traceback(tmp_path: Path) -> None:
    one = example(tmp_path, "proven")
    program = (
        "import sys; from boundscope.cli import main; from boundscope.bounds.backward import BackwardPass\n"
        "def fail(*_): raise ZeroDivisionError('injected')\n"
        "BackwardPass.lower = fail\n"
        "sys.exit(main(sys.argv[1:]))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "verify", str(one.network), str(one.property)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert "verdict         error" in done.stdout
    assert "ZeroDivisionError: injected (in " in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


# ---------------------------------------------------------------- numbers that are none


def spoilt(value: Any, number: float | None) -> Any:
    """The same with every floating number replaced, or with tensors of a shape that fits nothing (None)."""
    if isinstance(value, torch.Tensor) and value.is_floating_point():
        return value.new_zeros(3, 5, 7, 1) if number is None else torch.full_like(value, number)
    if isinstance(value, float):
        return value if number is None else number
    if isinstance(value, list):
        return [spoilt(one, number) for one in value]
    if isinstance(value, tuple):
        return tuple(spoilt(one, number) for one in value)
    if isinstance(value, dict):
        return {name: spoilt(one, number) for name, one in value.items()}
    if isinstance(value, Interval | Lines | Enclosure | Block | Forms | SweptMargins | LinearRows):
        parts = {
            field.name: spoilt(getattr(value, field.name), number) for field in dataclasses.fields(value)
        }
        return dataclasses.replace(value, **parts)
    return value


NEEDED = [
    (GemmRule, "enclose"),
    (GemmRule, "backward_on"),
    (GemmRule, "select"),
    (ReluRule, "interval"),
    (ReluRule, "relax"),
    (ReluRule, "relax_magnitude"),
    (BackwardPass, "lower"),
    (BackwardPass, "lower_elements"),
    (BackwardPass, "_finish"),
    (BackwardPass, "_linear"),
    (Relaxing, "through"),
    (Relaxing, "_with_slopes"),
    (backward, "least_by_distance"),
    (BoxContext, "deviation"),
    (BoundEngine, "element_bounds"),
    (BoundEngine, "margins"),
    (RowChunks, "lower"),
]


def from_call(
    real: Callable[..., Any], first: int, number: float | None, calls: list[int]
) -> Callable[..., Any]:
    """The real thing, whose results are spoilt from call number `first` on; `calls` gets every number."""

    def call(*args: Any, **options: Any) -> Any:
        calls.append(len(calls) + 1)
        result = real(*args, **options)
        return spoilt(result, number) if len(calls) >= first else result

    return call


@pytest.mark.parametrize("number", [float("nan"), float("inf"), None], ids=["nan", "inf", "shape"])
@pytest.mark.parametrize(("owner", "step"), NEEDED, ids=lambda value: getattr(value, "__name__", value))
@pytest.mark.filterwarnings("ignore:The use of `x.T`:UserWarning")
def test_what_is_no_number_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, number: float | None
) -> None:
    """Spoilt from the first call on, and from the third."""
    one = example(tmp_path, "proven")
    real = getattr(owner, step)
    for first in (1, 3) if number is not None else (1,):
        with monkeypatch.context() as patch:
            calls: list[int] = []
            patch.setattr(owner, step, from_call(real, first, number, calls))
            result = one.run()
        if 1 < len(calls) < first:
            continue  # the step was over before anything was spoilt
        assert result.verdict in (Verdict.UNKNOWN, Verdict.ERROR), f"{result.verdict}, {result.reason}"
        if result.verdict is Verdict.UNKNOWN and number is not None:
            assert any(word in result.reason.lower() for word in ("nan", "inf", "not excluded")), (
                result.reason
            )


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=["nan", "inf"])
@pytest.mark.parametrize(
    ("owner", "step"),
    [
        (Sweeper, "_through_map"),
        (sweep, "through_lines"),
        (Forms, "hull"),
        (Swept, "margins"),
        (SweepBounder, "_rows"),
        (SweepBounder, "_mixed"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_sweeps_that_find_no_numbers_prove_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, step: str, number: float
) -> None:
    """From the first part on: where the sweep that is tried before shows it, CROWN bounds the parts."""
    one, bound, calls = dataclasses.replace(example(tmp_path, "swept"), limit_s=2.0), SweepBounder.bound, []

    def spoiling(*given: Any) -> Any:
        if not calls:
            monkeypatch.setattr(owner, step, from_call(getattr(owner, step), 1, number, calls))
        return bound(*given)

    monkeypatch.setattr(SweepBounder, "bound", spoiling)
    result = one.run()
    assert calls
    assert result.verdict not in DECIDED, result.reason


@pytest.mark.parametrize("number", [float("nan"), float("inf")], ids=str)
def test_a_margin_that_is_no_number_proves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    """Whatever engine gave it."""
    real = engines_module.NativeCases.margins
    monkeypatch.setattr(engines_module.NativeCases, "margins", from_call(real, 1, number, []))
    result = example(tmp_path, "proven").run()
    assert result.verdict is Verdict.UNKNOWN
    assert f"the margin of clause 0 of case 0 is {number}" in result.reason


@pytest.mark.parametrize("number", [float("nan"), float("-inf"), float("inf")], ids=str)
def test_a_search_that_finds_no_numbers_changes_no_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    """What α-CROWN's search returns is proven again; where that says nothing, plain CROWN's bound is left."""
    one = example(tmp_path, "proven")
    monkeypatch.setattr("boundscope.bounds.engine.optimised", from_call(optimised, 1, number, []))
    assert one.run().verdict not in DECIDED


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
def test_outputs_that_are_no_numbers_refute_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: float
) -> None:
    """The attack may believe what it likes: the replay and the certificate do not."""
    one = example(tmp_path, "proven")
    monkeypatch.setattr(Network, "evaluate", _spoilt_outputs(Network.evaluate, number))
    assert one.run().verdict is not Verdict.VIOLATED


def _spoilt_outputs(real: Callable[..., Any], number: float) -> Callable[..., Any]:
    def call(*args: Any, **options: Any) -> Any:
        return {name: spoilt(value, number) for name, value in real(*args, **options).items()}

    return call
