"""Job records as runs make them, for the tests of the views: real structures, numbers from known curves."""

from __future__ import annotations

import math
from collections.abc import Iterable

from boundscope.protocol import (
    Arithmetic,
    ClauseMargin,
    ClauseRow,
    Counterexample,
    Event,
    EventRecord,
    Failure,
    FileRef,
    GapPoint,
    InputRow,
    JobInfo,
    JobState,
    LayerBounds,
    LogLine,
    Margin,
    MemorySample,
    Method,
    NetworkSummary,
    NodeSummary,
    Progress,
    PropertyFile,
    PropertySummary,
    RankMemory,
    Replay,
    Seconds,
    Sharding,
    StateChanged,
    TensorSummary,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.records import JobRecord

MIB = 1 << 20
EPOCH_S = 1_790_000_000.0


def records(events: Iterable[tuple[int, Event]]) -> list[EventRecord]:
    """Numbered records of (rank, event), a tenth of a second apart."""
    return [
        EventRecord(number=i + 1, time_s=EPOCH_S + 0.1 * i, rank=rank, event=event)
        for i, (rank, event) in enumerate(events)
    ]


def record_of(events: Iterable[tuple[int, Event]]) -> JobRecord:
    record = JobRecord()
    record.apply_all(records(events))
    return record


def job_info(
    state: JobState = JobState.FINISHED,
    *,
    ranks: int = 1,
    network: str = "mnist-net_256x4.onnx",
    cause: str = "",
) -> JobInfo:
    job = VerifyJob(
        network=FileRef(name=network, sha256="3f" * 32, size_bytes=2_400_000),
        property=PropertyFile(file=FileRef(name="prop_7_0.05.vnnlib", sha256="a1" * 32, size_bytes=90_000)),
        method=Method.CROWN,
        sharding=Sharding.ROWS if ranks > 1 else Sharding.NONE,
        ranks=ranks,
        arithmetic=Arithmetic.FLOAT32,
    )
    return JobInfo(
        id="20260921-104512-7c1e",
        kind="verify",
        title="mnist-net_256x4 prop_7_0.05",
        state=state,
        job=job,
        created_s=EPOCH_S,
        started_s=EPOCH_S,
        host="wren",
        cause=cause,
    )


def clause_text(label: int, other: int) -> str:
    return f"Y_{other} ≥ Y_{label}"


def gap_events(clauses: int = 9, verified: bool = True) -> list[tuple[int, Event]]:
    """IBP, then CROWN, then an attack: margins of very different size, both signs, one of exactly zero."""
    events: list[tuple[int, Event]] = []
    for clause in range(clauses):
        size = 10 ** (2 - 0.31 * clause)
        events.append(
            (0, GapPoint(elapsed_s=0.06, case=0, clause=clause, lower=-40 * size, upper=None, step="ibp"))
        )
    for clause in range(clauses):
        lower = 0.02 * 10 ** (0.35 * clause) * (1 if verified or clause != 2 else -1)
        at = 0.4 + 1.1 * (clause + 1) / clauses
        events.append(
            (0, GapPoint(elapsed_s=at, case=0, clause=clause, lower=lower, upper=None, step="crown"))
        )
    for clause in range(clauses):
        upper = 0.9 * 10 ** (0.35 * clause)
        at = 1.6 + 0.5 * (clause + 1) / clauses
        if not verified and clause == 2:
            upper = -0.004
        events.append(
            (0, GapPoint(elapsed_s=at, case=0, clause=clause, lower=None, upper=upper, step="attack"))
        )
    return events


def long_gap_events(points: int, clauses: int) -> list[tuple[int, Event]]:
    """Bounds that close over a long run, as in branch and bound."""
    events: list[tuple[int, Event]] = []
    for i in range(points):
        for clause in range(clauses):
            closing = math.exp(-4 * i / points) * (1 + 0.3 * clause)
            wave = 0.02 * math.sin(i * 0.7 + clause)
            step = "crown" if i < points // 5 else "branch and bound"
            events.append(
                (
                    0,
                    GapPoint(
                        elapsed_s=60 * i / points,
                        case=0,
                        clause=clause,
                        lower=0.03 - closing + wave,
                        upper=0.03 + 0.4 * closing + abs(wave),
                        step=step,
                    ),
                )
            )
    return events


def memory_events(ranks: int = 4, samples: int = 120, limit_mib: int | None = 768) -> list[tuple[int, Event]]:
    """Row chunks growing and shrinking on each rank, beside weights that stay."""
    events: list[tuple[int, Event]] = []
    for i in range(samples):
        for rank in range(ranks):
            phase = (i / samples * 5 + rank * 0.13) % 1
            categories = {
                "weights": 96 * MIB,
                "gathered": int((40 if 0.2 < phase < 0.5 else 0) * MIB),
                "rows": int((60 + 220 * phase * (1 + 0.1 * rank)) * MIB),
                "slopes": int(18 * MIB * min(1, 3 * i / samples)),
                "workspace": int((30 + 20 * math.sin(i)) * MIB),
                "other": 6 * MIB,
            }
            held = sum(categories.values())
            events.append(
                (
                    rank,
                    MemorySample(
                        elapsed_s=2.1 * (i + 1) / samples,
                        by_category=categories,
                        resident_bytes=held + 120 * MIB,
                        limit_bytes=None if limit_mib is None else limit_mib * MIB,
                    ),
                )
            )
    return events


def layer_events() -> list[tuple[int, Event]]:
    names = ("/fc1/Gemm", "/relu1/Relu", "/fc2/Gemm", "/relu2/Relu", "/fc3/Gemm", "/relu3/Relu", "/out/Gemm")
    events: list[tuple[int, Event]] = []
    for depth, name in enumerate(names):
        gemm = name.endswith("Gemm")
        events.append(
            (
                0,
                LayerBounds(
                    case=0,
                    node=name,
                    op="Gemm" if gemm else "Relu",
                    size=10 if "out" in name else 256,
                    lower_min=-1.7 * 2.3**depth if gemm else 0.0,
                    upper_max=2.1 * 2.4**depth,
                    width_mean=0.31 * 2.1**depth,
                    width_max=0.9 * 2.2**depth,
                    unstable=None if not gemm or "out" in name else 23 + 31 * depth,
                    method="crown" if depth else "ibp",
                ),
            )
        )
    return events


def summaries() -> list[tuple[int, Event]]:
    network = NetworkSummary(
        name="mnist-net_256x4.onnx",
        opset=13,
        inputs=(TensorSummary(name="input", shape=(1, 784, 1), dtype="float32"),),
        outputs=(TensorSummary(name="output", shape=(1, 10), dtype="float32"),),
        nodes=(NodeSummary(name="/fc1/Gemm", op="Gemm", inputs=("input",), outputs=("h1",), shape=(1, 256)),),
        parameters=335_114,
        weight_bytes=1_340_456,
    )
    prop = PropertySummary(
        name="prop_7_0.05.vnnlib",
        format="VNN-LIB 1.0",
        words=(
            "For every input within the box below, output 7 stays larger than every other output.",
            "The box has 784 inputs; the widest bound is 0.1 wide.",
        ),
        input_count=784,
        output_count=10,
        case_count=1,
        clause_count=9,
        inputs=tuple(InputRow(variable=f"X_{i}", lower="0.0", upper="0.05") for i in range(8)),
        clauses=tuple(
            ClauseRow(case=0, clause=i, text=clause_text(7, i if i < 7 else i + 1)) for i in range(9)
        ),
        inputs_total=784,
        clauses_total=9,
    )
    return [(0, network), (0, prop)]


def log_events() -> list[tuple[int, Event]]:
    return [
        (-1, LogLine(text="started 4 ranks with gloo on wren")),
        (0, LogLine(text="mnist-net_256x4.onnx: 9 nodes, 335 114 parameters, opset 13")),
        (
            0,
            LogLine(
                text="compared with ONNX Runtime at 12 points: largest difference 1.9e-06", level="debug"
            ),
        ),
        (2, LogLine(text="the memory budget allows 512 rows at a time", level="info")),
        (1, LogLine(text="resident memory is within 10 % of its limit", level="warning")),
        (0, LogLine(text="crown: every clause excluded, smallest margin 0.02")),
    ]


def result(verdict: Verdict = Verdict.VERIFIED, ranks: int = 4, image: bool = True) -> VerifyResult:
    violated = verdict is Verdict.VIOLATED
    margins = tuple(
        ClauseMargin(
            case=0,
            clause=clause,
            lower=0.02 * 10 ** (0.35 * clause) * (-1 if violated and clause == 2 else 1),
            upper=-0.004 if violated and clause == 2 else 0.9 * 10 ** (0.35 * clause),
            text=clause_text(7, clause if clause < 7 else clause + 1),
            excluded=not (violated and clause == 2),
        )
        for clause in range(9)
    )
    return VerifyResult(
        verdict=verdict,
        reason="crown excluded all 9 clauses" if not violated else "the attack found an input",
        arithmetic="float32 (any order)",
        margin=Margin(smallest=-0.100237 if violated else 0.02, per_clause=margins),
        seconds=Seconds(load=0.112, parse=0.034, solve=2.087),
        peak_bytes=tuple(
            RankMemory(
                rank=rank,
                ledger_peak_bytes=(430 + 20 * rank) * MIB,
                resident_peak_bytes=(550 + 20 * rank) * MIB,
                by_category={"weights": 96 * MIB, "rows": (270 + 20 * rank) * MIB, "workspace": 50 * MIB},
            )
            for rank in range(ranks)
        ),
        counterexample=counterexample(image) if violated else None,
        versions={"boundscope": "0.1.0", "torch": "2.13.0", "onnxruntime": "1.23.0", "python": "3.11.7"},
        command="boundscope verify mnist-net_256x4.onnx prop_7_0.05.vnnlib --method crown --sharding rows --ranks 4",
    )


def counterexample(image: bool = True) -> Counterexample:
    """A ring on 28 × 28 pixels, or five numbers."""
    if image:
        values = [
            f"{max(0.0, 1 - abs(math.hypot(row - 13.5, column - 13.5) - 8) / 3):.4f}"
            for row in range(28)
            for column in range(28)
        ]
    else:
        values = ["0.6", "-0.25", "0.003125", "0.45", "-0.5"]
    outputs = (-1.2, 0.4, 3.104, 0.2, -0.7, 0.1, -2.2, 3.1, 0.9, 1.3)
    return Counterexample(
        inputs=tuple(values),
        outputs=outputs,
        case=0,
        clause=2,
        clause_text="Y_2 ≥ Y_7",
        replay=Replay(
            inside_box=True,
            violates=True,
            violates_unoptimized=True,
            outputs=tuple(y + 1e-7 for y in outputs),
            note="float32 session, CPU",
        ),
        input_shape=(1, 1, 28, 28) if image else (1, 5),
    )


def finished_events(
    verdict: Verdict = Verdict.VERIFIED, ranks: int = 4, image: bool = True
) -> list[tuple[int, Event]]:
    return [
        (-1, StateChanged(state=JobState.RUNNING)),
        *summaries(),
        *log_events(),
        *gap_events(verified=verdict is not Verdict.VIOLATED),
        *memory_events(ranks),
        *layer_events(),
        (0, result(verdict, ranks, image)),
        (-1, StateChanged(state=JobState.FINISHED)),
    ]


def running_events() -> list[tuple[int, Event]]:
    return [
        (-1, StateChanged(state=JobState.RUNNING)),
        *summaries(),
        *log_events(),
        *gap_events()[:13],
        *memory_events(2, 40),
        *layer_events()[:3],
        (0, Progress(stage="bounds of /fc3/Gemm", done=5, total=16, eta_s=42.0)),
    ]


def failed_events() -> list[tuple[int, Event]]:
    return [
        (-1, StateChanged(state=JobState.RUNNING)),
        *summaries(),
        (-1, Failure(cause="rank 2 was killed by signal 9; the host ran out of memory", rank=2)),
        (
            -1,
            StateChanged(
                state=JobState.FAILED, reason="rank 2 was killed by signal 9; the host ran out of memory"
            ),
        ),
    ]
