"""Torch's fused paths, off while a program is instrumented: no operator could be seen inside them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel


@contextmanager
def separate_operators() -> Iterator[None]:
    """oneDNN's kernels (whole recurrent layers), attention's fast path and fused attention off; compiled code eager.

    These switches are the process's; they are put back at the end.
    """
    fast_path = torch.backends.mha.get_fastpath_enabled()
    onednn = torch._C._get_mkldnn_enabled()
    with ExitStack() as stack:
        stack.callback(torch.backends.mha.set_fastpath_enabled, fast_path)
        torch.backends.mha.set_fastpath_enabled(False)
        stack.callback(torch._C._set_mkldnn_enabled, onednn)
        torch._C._set_mkldnn_enabled(False)
        stack.enter_context(sdpa_kernel(SDPBackend.MATH))
        # Since torch 2.6; before, a compiled module breaks its graph at every operator that a mode sees.
        if hasattr(torch.compiler, "set_stance"):
            stack.enter_context(torch.compiler.set_stance("force_eager"))
        yield
