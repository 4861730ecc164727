"""A job's record as events again, for the process that draws its pictures."""

from __future__ import annotations

from collections.abc import Iterator

from boundscope.protocol import (
    Event,
    EventRecord,
    GapPoint,
    JobInfo,
    MemorySample,
    StateChanged,
)
from boundscope.records import JobRecord


def events_of(record: JobRecord, info: JobInfo) -> tuple[EventRecord, ...]:
    """Events that, applied to an empty JobRecord, give the same tables, summaries, result and state."""
    timed = sorted(_timed(record), key=lambda item: item[0])
    started_s = info.started_s if info.started_s is not None else info.created_s
    whole: list[tuple[float, int, Event]] = [(started_s, 0, event) for event in _summaries(record)]
    whole += [(started_s + elapsed_s, rank, event) for elapsed_s, rank, event in timed]
    whole += [(started_s, 0, layer) for layer in record.layers.values()]
    whole += [(time_s, rank, line) for time_s, rank, line in record.log]
    ended_s = info.ended_s if info.ended_s is not None else started_s
    whole += [(ended_s, 0, failure) for failure in record.failures]
    if record.progress is not None:
        whole.append((ended_s, 0, record.progress))
    whole += [
        (started_s + one.elapsed_s, rank, one) for (rank, _), told in record.noise.items() for one in told
    ]
    whole += [(ended_s, 0, each) for each in record.maps.values()]
    if record.result is not None:
        whole.append((ended_s, 0, record.result))
    if record.variability is not None:
        whole.append((ended_s, 0, record.variability))
    whole += [(started_s, 0, row) for _, row in sorted(record.instances.items())]
    if record.benchmark is not None:
        whole.append((ended_s, 0, record.benchmark))
    whole.append((ended_s, -1, StateChanged(state=record.state, reason=record.state_reason)))
    return tuple(
        EventRecord(number=number, time_s=time_s, rank=rank, event=event)
        for number, (time_s, rank, event) in enumerate(whole, start=1)
    )


def _summaries(record: JobRecord) -> Iterator[Event]:
    if record.network is not None:
        yield record.network
    if record.property is not None:
        yield record.property


def _timed(record: JobRecord) -> Iterator[tuple[float, int, Event]]:
    for point in record.search:
        yield point.elapsed_s, 0, point
    for (case, clause), gap in record.gaps.items():
        for elapsed_s, lower, upper, step in zip(gap.elapsed_s, gap.lower, gap.upper, gap.step, strict=True):
            yield (
                elapsed_s,
                0,
                GapPoint(elapsed_s=elapsed_s, case=case, clause=clause, lower=lower, upper=upper, step=step),
            )
    for rank, memory in record.memory.items():
        for index, elapsed_s in enumerate(memory.elapsed_s):
            yield (
                elapsed_s,
                rank,
                MemorySample(
                    elapsed_s=elapsed_s,
                    by_category={name: values[index] for name, values in memory.by_category.items()},
                    resident_bytes=memory.resident_bytes[index],
                    limit_bytes=memory.limit_bytes,
                ),
            )
