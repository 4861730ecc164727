"""The steps to a first answer, as the start page shows them: what is chosen, and what comes next. No Qt."""

from __future__ import annotations

from dataclasses import dataclass

from boundscope_app.benchmark_draft import BenchmarkDraft
from boundscope_app.draft import Ball, Draft, source_name
from boundscope_app.noise_draft import NoiseDraft

RUN, OPEN = "Run", "Open files…"


@dataclass(frozen=True)
class Step:
    """Something to do before there is an answer, or what was chosen where it is `done`; `button` leads there."""

    text: str
    done: bool = False
    button: str = OPEN


def steps_of(draft: Draft | NoiseDraft | BenchmarkDraft) -> tuple[Step, ...]:
    """What there is to choose before the form's run can begin, and what was chosen."""
    run = Step("Run. What comes of it is shown here while it is found out.", button=RUN)
    if isinstance(draft, BenchmarkDraft):
        return _benchmark(draft), run
    network = Step("Drop a network (ONNX) anywhere in this window, or open one.")
    if draft.network is not None:
        network = Step(f"Network: {source_name(draft.network)}", done=True)
    if isinstance(draft, NoiseDraft) and not draft.draw:
        return network, _points(draft), run
    return network, _property(draft), run


def _benchmark(draft: BenchmarkDraft) -> Step:
    if draft.source is None:
        return Step("Drop a benchmark’s instances.csv anywhere in this window, or open one.")
    return Step(f"Benchmark: {source_name(draft.source)}", done=True)


def _points(draft: NoiseDraft) -> Step:
    if draft.points is None:
        return Step(
            "Drop the points to run it at (.npy, .npz, PNG), or have them drawn from a property’s box."
        )
    return Step("Points: from files", done=True)


def _property(draft: Draft | NoiseDraft) -> Step:
    source = draft.property_source
    if source is None:
        return Step(
            "Drop what to prove (VNN-LIB), or choose “ε-ball around an input” in the run form at the right."
        )
    if isinstance(source, Ball):
        return Step(f"Property: the same answer within ε around {source_name(source.center)}", done=True)
    return Step(f"Property: {source_name(source)}", done=True)
