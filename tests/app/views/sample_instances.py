"""A benchmark as ranks tell it: four instances, two of them not run yet, or all of them ended."""

from __future__ import annotations

from boundscope.protocol import (
    Counterexample,
    Event,
    FileRef,
    Instance,
    InstanceResult,
    InstancesJob,
    InstanceStarted,
    JobInfo,
    JobState,
    Progress,
    PropertyFile,
    Replay,
    Tally,
    Verdict,
    VerifyJob,
    instances_result,
)

REPLAY = Replay(inside_box=True, violates=True, violates_unoptimized=True, outputs=(-0.5,))
FOUND = Counterexample(
    inputs=("0.25", "-1"), outputs=(-0.5,), case=0, clause=0, clause_text="Y_0 ≤ 0", replay=REPLAY
)


def ref(name: str) -> FileRef:
    return FileRef(name=name, sha256="0" * 64, size_bytes=10)


def job() -> InstancesJob:
    return InstancesJob(
        networks=(ref("a.onnx"), ref("b.onnx")),
        properties=(ref("p.vnnlib"), ref("q.vnnlib")),
        instances=tuple(
            Instance(network=net, property=prop, timeout_s=60.0)
            for net, prop in ((0, 0), (0, 1), (1, 0), (1, 1))
        ),
        verify=VerifyJob(network=ref("a.onnx"), property=PropertyFile(file=ref("p.vnnlib")), seed=3),
        name="tiny",
    )


def info(state: JobState = JobState.RUNNING, verdict: Verdict | None = None) -> JobInfo:
    return JobInfo(
        id="many",
        kind="instances",
        title="tiny · 4 instances",
        state=state,
        job=job(),
        created_s=1.0,
        started_s=2.0,
        ended_s=9.0 if state.ended else None,
        verdict=verdict,
        progress=Progress(stage="b.onnx · p.vnnlib", done=2, total=4, eta_s=6.0),
    )


def row(number: int, verdict: Verdict, **more: object) -> InstanceResult:
    instance = job().instances[number]
    names = {
        "network": job().networks[instance.network].name,
        "property": job().properties[instance.property].name,
    }
    fields = {"reason": f"reason {number}", "seconds": 1.5 * (number + 1), **names, **more}
    return InstanceResult(number=number, verdict=verdict, **fields)


def running_events() -> list[Event]:
    return [
        InstanceStarted(number=0),
        row(0, Verdict.VERIFIED, margin=0.125, reached=2.0),
        InstanceStarted(number=1),
        row(1, Verdict.VIOLATED, reached=-0.5, counterexample=FOUND),
        InstanceStarted(number=2),
    ]


def ended_events() -> list[Event]:
    rows = [row(2, Verdict.TIMEOUT, reason="the time\nlimit passed"), row(3, Verdict.VERIFIED, margin=1.0)]
    counts = {"verified": 2, "violated": 1, "timeout": 1}
    return [*running_events(), *rows, instances_result(Tally(counts=counts, seconds=15.0))]
