"""What torch's allocator for the CPU has lent, as its profiler tells."""

from __future__ import annotations

from collections.abc import Callable

import torch

MARK = "peak of tensors"


def peaks_of_tensors(*computes: Callable[[], object]) -> list[int]:
    """Of each computation, one after another: the most bytes that were lent at once, of what has been lent since the
    start of the first, as torch.cuda.max_memory_allocated tells of a GPU.

    The profiler itself takes memory: nothing else should be measured meanwhile.
    """
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True, acc_events=True
    ) as profile:
        for number, compute in enumerate(computes):
            with torch.profiler.record_function(f"{MARK} {number}"):
                compute()
    assert profile.profiler is not None
    nodes, lent = list(profile.profiler.kineto_results.experimental_event_tree()), []
    begun_ns = [0] * len(computes)
    while nodes:
        node = nodes.pop()
        nodes += node.children
        if node.name.startswith(f"{MARK} "):
            begun_ns[int(node.name.removeprefix(f"{MARK} "))] = node.start_time_ns
        elif node.name == "[memory]":
            lent.append((node.start_time_ns, node.extra_fields.ptr, node.extra_fields.alloc_size))
    # What threads of other libraries free is not told of: what is lent where something lies has taken its place.
    live: dict[int, int] = {}
    total, peaks = 0, [0] * len(computes)
    for at_ns, address, size in sorted(lent):
        total -= live.pop(address, 0)
        if size > 0:
            live[address] = size
            total += size
        current = sum(at_ns >= start_ns for start_ns in begun_ns[1:])
        peaks[current] = max(peaks[current], total)
    return peaks
