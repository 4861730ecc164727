"""What a rank does in these tests, by the job's seed."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

import psutil

from boundscope.errors import DeadlineError
from boundscope.monitor import Monitor
from boundscope.protocol import (
    GapPoint,
    LogLine,
    Margin,
    Progress,
    Seconds,
    Verdict,
    VerifyJob,
    VerifyResult,
)

(
    QUICK,
    PATIENT,
    RAISES,
    STUBBORN,
    FLOOD,
    MEETS,
    WRONG_RANK,
    DEAF,
    IN_STEP,
    TO_THE_LIMIT,
    COUNTS,
    SAYS_THREADS,
    COMES_LATE,
) = range(13)
COUNTED = 60  # by COUNTS in all; its first run stands at half of that until something cuts it short
COME = "come"  # the file in the job's folder that COMES_LATE, in a light process, waits for before its first word
FLOOD_POINTS = 6000
FLOOD_LINES = 60


def run(job: VerifyJob, files: object, monitor: Monitor, ranks: object) -> VerifyResult:
    rank: int = ranks.rank  # type: ignore[attr-defined]
    monitor.emit(LogLine(text=f"rank {rank} pid {os.getpid()}"))
    match job.seed:
        case 0:
            for step in range(50):
                monitor.emit(GapPoint(elapsed_s=float(step), case=0, clause=0, lower=float(step), upper=None))
        case 1 | 12:
            while True:
                monitor.check()
                monitor.emit(Progress(stage="waiting", done=0, total=0))
                time.sleep(0.05)
        case 2:
            if rank == 1:
                raise ValueError("this rank has had enough")
            ranks.barrier()  # type: ignore[attr-defined]
        case 3:
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(0.1)
        case 4:
            flood(monitor)
        case 5:
            ranks.barrier()  # type: ignore[attr-defined]
            time.sleep(600)
        case 7:
            monitor.emit(GapPoint(elapsed_s=0.0, case=0, clause=1, lower=0.25, upper=2.0))
            while True:
                time.sleep(0.1)
        case 8:
            while True:
                monitor.check()
                ranks.barrier()  # type: ignore[attr-defined]
                monitor.emit(Progress(stage="in step", done=0, total=0))
                time.sleep(0.02)
        case 9:
            with suppress(DeadlineError):
                while True:
                    monitor.check()
                    monitor.emit(Progress(stage="waiting", done=0, total=0))
                    time.sleep(0.02)
            return result(f"{monitor.elapsed_s}")
        case 10:
            from daemon.counting import count  # with torch, which others need not wait for

            return count(job, files, monitor, ranks)
        case 11:
            import torch

            launcher = psutil.Process(os.getppid())
            monitor.emit(LogLine(text=f"{torch.get_num_threads()} threads, imported by {launcher.ppid()}"))
    return result(f"rank {rank}")


def flood(monitor: Monitor) -> None:
    for step in range(FLOOD_POINTS):
        monitor.emit(GapPoint(elapsed_s=step / 1000, case=0, clause=0, lower=float(step), upper=None))
        if step % (FLOOD_POINTS // FLOOD_LINES) == 0:
            monitor.emit(LogLine(text=f"line {step}"))
        if step % 100 == 99:
            time.sleep(0.02)


def result(reason: str) -> VerifyResult:
    return VerifyResult(
        verdict=Verdict.UNKNOWN,
        reason=reason,
        arithmetic="real",
        margin=Margin(smallest=None),
        seconds=Seconds(load=0.0, parse=0.0, solve=0.0),
        peak_bytes=(),
        counterexample=None,
        versions={},
        command="",
    )
