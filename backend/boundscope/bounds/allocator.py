"""What the C library does with memory that a pass has freed and the next one takes again."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os

# Of mallopt(3), and what a pass on a small network frees at most.
_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3
TRIM_ABOVE_BYTES = 64 << 20
MAPPED_FROM_BYTES = 32 << 20  # the largest that glibc takes


@functools.cache
def keep_freed_memory() -> None:
    """Have this process keep freed blocks of some MiB, where its C library is glibc, once for all.

    By itself glibc gives them back to the system after each chunk of rows, and every page that the next chunk takes
    again is a fault and is zeroed: up to a third of a pass's CPU time. What a user has set in the environment stays.
    """
    if any(
        name in os.environ for name in ("MALLOC_TRIM_THRESHOLD_", "MALLOC_MMAP_THRESHOLD_", "GLIBC_TUNABLES")
    ):
        return
    with contextlib.suppress(OSError, AttributeError, TypeError):  # another C library
        library = ctypes.CDLL(None)
        library.mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
        library.mallopt(_M_TRIM_THRESHOLD, TRIM_ABOVE_BYTES)
