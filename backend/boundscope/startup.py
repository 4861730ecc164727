"""What makes a process that imports torch start and end sooner."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def large_imports() -> Iterator[None]:
    """Imports without garbage collection; what they leave is not looked at again.

    The modules of torch and onnx make hundreds of thousands of objects that live as long as the process: the collector
    would go through them while they come, at every full collection, and once more at the end, half of the CPU time of
    `import torch` in all. Where torch is there already, this does nothing.
    """
    if "torch" in sys.modules or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
        gc.freeze()
    finally:
        gc.enable()
