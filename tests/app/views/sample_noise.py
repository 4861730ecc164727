"""Records of variability jobs for the tests of the views: every kind of layer that there is."""

from __future__ import annotations

from app.views import sample_records as samples
from boundscope.protocol import (
    CoverageSummary,
    DecisionNoise,
    DeployedLayer,
    Event,
    FileRef,
    JobInfo,
    JobState,
    LayerNoise,
    NoiseSource,
    OperatorCoverage,
    Progress,
    RankMemory,
    RoundingMode,
    Seconds,
    StateChanged,
    VariabilityJob,
    VariabilityResult,
    Verdict,
)

NAN, EXACT, NOISE_ONLY = "/attention/Softmax", "/Flatten", "/head/Sub"
LAYERS = (
    ("/conv1/Conv", "Conv", 22.1),
    ("/relu1/Relu", "Relu", 22.4),
    ("/encoder/layer.0/attention/self/query/MatMul", "MatMul", 19.3),
    (NAN, "Softmax", None),
    (EXACT, "Flatten", None),
    (NOISE_ONLY, "Sub", 3.2),
    ("/head/Gemm", "Gemm", 17.8),
)


def noise(name: str, op: str, bits: float | None, taken: int = 10, elapsed_s: float = 1.0) -> LayerNoise:
    """One layer of 1024 elements after so many samples."""
    least = None if bits is None else bits - 8
    return LayerNoise(
        elapsed_s=elapsed_s,
        layer=name,
        op=op,
        samples=taken,
        elements=1024,
        exact=1024 if name == EXACT else 12,
        zero_mean=0,
        nan=1012 if name == NAN else 0,
        infinite=0,
        without=40 if name == NOISE_ONLY else 0,
        mean_bits=bits,
        least_bits=least,
        q05_bits=None if bits is None else bits - 3,
        median_bits=None if bits is None else bits + 0.2,
        q95_bits=None if bits is None else bits + 1.4,
    )


def told(rank: int, taken: int) -> list[tuple[int, Event]]:
    """What a rank tells of all layers after so many of its samples."""
    wobble = 0.8 / taken * (1 if rank else -1)
    return [
        (rank, noise(name, op, None if bits is None else bits + wobble, taken, 0.2 * taken))
        for name, op, bits in LAYERS
    ]


def result(verdict: Verdict | None = None) -> VariabilityResult:
    layers = tuple(noise(name, op, bits) for name, op, bits in LAYERS)
    return VariabilityResult(
        verdict=verdict,
        reason="10 samples of 2 points drawn from the box of prop.vnnlib (seed 0)",
        samples_asked=10,
        seconds=Seconds(load=0.2, parse=0.01, solve=4.2),
        arithmetic="up-down rounding, seed 0",
        points=2,
        inputs="2 points drawn from the box of prop.vnnlib (seed 0)",
        samples=10,
        baseline="bit-stable: two unperturbed runs have the same bits in every layer",
        layers=layers,
        decisions=(
            DecisionNoise(
                layer="/head/Gemm",
                samples=10,
                decisions=2,
                flipped=1,
                flips=3,
                undecided=0,
                least_noise_margin=0.8,
                median_noise_margin=41.0,
                sentence="1 of 2 decisions flip in at least one of 10 samples (3 flips in all)",
            ),
        ),
        coverage=CoverageSummary(
            share_inside=0.98,
            sentence="98 % of 1.2 M floating-point operations were rounded inside.",
            operators=(
                OperatorCoverage(operator="aten.conv", calls=4, inside=1000, at_output=0, untouched=20),
            ),
        ),
        sources=(
            NoiseSource(
                layer="/head/Gemm",
                op="Gemm",
                layers=1,
                deviation=1e-6,
                share=0.71,
                caused_bits=18.1,
                shown_bits=17.8,
            ),
        ),
        deployed=tuple(
            DeployedLayer(
                layer=name, op=op, elements=1024, width=0.4, rounding=1.9e-5, observed=9.5e-7, used=0.05
            )
            for name, op, bits in LAYERS
            if bits is not None
        ),
        peak_bytes=(
            RankMemory(rank=0, ledger_peak_bytes=1 << 20, resident_peak_bytes=1 << 27, by_category={}),
        ),
        versions={"boundscope": "0.1"},
        command="boundscope variability net.onnx --property prop.vnnlib --draw 2 --mode ud --samples 10 --seed 0",
    )


def running_events(ranks: int = 2) -> list[tuple[int, Event]]:
    """Samples are being taken."""
    events: list[tuple[int, Event]] = [(-1, StateChanged(state=JobState.RUNNING))]
    for taken in (2, 3, 4):
        for rank in range(ranks):
            events += told(rank, taken)
    return [*events, (0, Progress(stage="samples", done=8, total=10, eta_s=1.0))]


def finished_events(verdict: Verdict | None = None) -> list[tuple[int, Event]]:
    """Two ranks, the whole run told by the first, and the result."""
    found = result(verdict)
    return [
        *running_events(),
        *((0, layer) for layer in found.layers),
        *samples.memory_events(2),
        (0, found),
        (-1, StateChanged(state=JobState.FINISHED)),
    ]


def job_info(
    state: JobState = JobState.FINISHED,
    mode: RoundingMode = RoundingMode.UD,
    precision: int | None = None,
    verdict: Verdict | None = None,
) -> JobInfo:
    job = VariabilityJob(
        network=FileRef(name="net.onnx", sha256="3f" * 32, size_bytes=2_400_000),
        inputs=(FileRef(name="points.npy", sha256="a1" * 32, size_bytes=4096),),
        mode=mode,
        precision=precision,
        ranks=2,
    )
    return JobInfo(
        id="20260921-104512-77aa",
        kind="variability",
        title="net.onnx · UD · points.npy",
        state=state,
        job=job,
        created_s=samples.EPOCH_S,
        started_s=samples.EPOCH_S,
        host="wren",
        verdict=verdict,
    )
