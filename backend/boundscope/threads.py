"""How many threads a process gets, and that idle ones sleep: two spinning threads on busy cores cost a factor of ten.

These are environment variables that OpenMP and BLAS read when they are loaded, so they are set before torch is.
"""

from __future__ import annotations

import os

# The thread of a rank that runs inside this process. Where it had to be left behind, the process leaves by os._exit:
# the interpreter's own way out would take libraries apart that the thread still runs in.
RANK_THREAD = "boundscope-rank"


def core_count() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_variables(threads: int) -> dict[str, str]:
    """Environment for a process of `threads` threads that wait without spinning."""
    return {
        "OMP_NUM_THREADS": str(threads),
        "MKL_NUM_THREADS": str(threads),
        "OPENBLAS_NUM_THREADS": str(threads),
        "OMP_WAIT_POLICY": "passive",
        "GOMP_SPINCOUNT": "0",
        "KMP_BLOCKTIME": "0",
    }
