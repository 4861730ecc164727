"""Stochastic arithmetic inside any PyTorch program: every operator that torch dispatches runs by our kernels."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from boundscope_prism._rounding import Mode, rounding
from boundscope_prism.instrument.coverage import Coverage, CoverageRow

if TYPE_CHECKING:
    from torch import Tensor, nn

    from boundscope_prism.instrument.run import Run

__all__ = ["Coverage", "CoverageRow", "instrument"]


def instrument(
    mode: Mode = "sr",
    *,
    seed: int = 0,
    sample: int = 0,
    precision: int | None = None,
    threads: int | None = None,
    model: nn.Module | None = None,
    select: Callable[[str], bool] | None = None,
    observe: Callable[[str, Tensor], None] | None = None,
) -> AbstractContextManager[Run]:
    """A context in which every floating-point operator of torch is rounded by `mode`; see rounding().

        with boundscope_prism.instrument("sr", seed=7, sample=3) as run:
            y = model(x)
        print(run.coverage.sentence())

    Operators are seen forward and backward (where backward() is called inside), in the calling thread, in place and
    with out=, in modules of any kind; fused paths are taken apart and compiled modules run eagerly meanwhile. Each
    operator is one of:

    - inside: every operation that it consists of is rounded by the mode. Elementary functions (exp, erf, ...) are
      evaluated in float64 and rounded once.
    - exact: it never rounds (copies, comparisons, maxima, indexing, integers, constants, random draws), and runs as
      it is.
    - at output: torch computes it, and its results are perturbed once, moved to a neighbour as "ud" does.

    float16 and bfloat16 are computed in float32, as torch's kernels do, and results are rounded to 11 and 8 bits by
    the mode. The bits are a function of (mode, seed, sample, precision) and of the program alone: operations are
    numbered as they run, and random words belong to elements, never to threads. With "rn" the same kernels round to
    nearest: the baseline.

    Args:
        mode, seed, sample, precision, threads: as rounding() takes them.
        model: a module whose submodules' paths name the layers. Without it, and outside of any layer, an operator is
            its own layer, "addmm_0". What runs in a backward pass belongs to its layer's name with " (backward)".
        select: called with a layer's name; layers for which it says False run with "rn" and the others keep the
            random words that they would have.
        observe: called with a layer's name and its output, detached, when the layer ends; tensors in a structure have
            their place after the name. A layer that runs again is "name#2". Nothing that it computes is perturbed.

    Raises PrismArgumentError for arguments that are not as described, for tensors that are not dense or not on the
    CPU, and where another instrument() is active in this process.
    """
    # torch takes seconds to import, and whoever uses the kernels on numpy arrays needs none of it.
    from boundscope_prism.instrument.run import running

    chosen = rounding(mode, seed=seed, sample=sample, precision=precision, threads=threads)
    return running(chosen, model, select, observe)
