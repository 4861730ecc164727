"""instrument() on torch's own samples of every operator that it tests: some 700 operators, forward and backward.

The samples are in torch.testing._internal, which needs `expecttest`; without it this is skipped.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves, tree_map_only

from boundscope_prism import Mode, instrument

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("expecttest") is None, reason="torch's samples need the package expecttest"
    ),
]

SAMPLES = 4
# Memory that is not filled, and draws whose number of random words depends on the kernel.
UNDEFINED = ("empty", "rand", "normal", "bernoulli", "uniform", "multinomial", "dropout", "exponential", "geometric",
             "cauchy", "poisson", "svd_lowrank", "pca_lowrank", "resize", "jiterator")  # fmt: skip
# Where the plain run's own rounding noise exceeds the tolerance: variances that vanish, gradients that cancel.
NOISY = {"corrcoef", "cov", "nn.functional.layer_norm", "special.ndtr"}
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.bfloat16: 0.1}


def operators(dtype: torch.dtype, backward: bool) -> Iterator[tuple[str, Any, Any]]:
    """Name, operator and sample."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    for op in op_db:
        name = f"{op.name}.{op.variant_test_name}".rstrip(".")
        if any(word in name for word in UNDEFINED) or op.name in NOISY or dtype not in op.dtypes:
            continue
        if backward and not op.supports_autograd:
            continue
        for _, sample in zip(
            range(SAMPLES), op.sample_inputs("cpu", dtype, requires_grad=backward), strict=False
        ):
            yield name, op, sample


def evaluate(op: Any, sample: Any, backward: bool) -> list[Tensor]:
    """The operator's results on fresh copies, or the gradients of its inputs."""

    def fresh(tensor: Tensor) -> Tensor:
        copied = tensor.detach().clone(memory_format=torch.preserve_format)
        return copied.requires_grad_(tensor.requires_grad)

    args, kwargs = tree_map_only(Tensor, fresh, ((sample.input, *sample.args), sample.kwargs))
    torch.manual_seed(0)
    results = [leaf for leaf in tree_leaves(op(*args, **kwargs)) if isinstance(leaf, Tensor)]
    if not backward:
        return results
    ends = [leaf for leaf in results if leaf.requires_grad and leaf.is_floating_point()]
    inputs = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor) and leaf.requires_grad]
    if not ends or not inputs:
        return []
    generator = torch.Generator().manual_seed(3)
    seeds = [torch.randn(end.shape, generator=generator).to(end.dtype) for end in ends]
    gradients = torch.autograd.grad(ends, inputs, seeds, allow_unused=True)
    return [gradient for gradient in gradients if gradient is not None]


def difference(ours: Tensor, plain: Tensor, tolerance: float) -> str | None:
    if (ours.shape, ours.dtype) != (plain.shape, plain.dtype):
        return f"{ours.shape} {ours.dtype}, torch has {plain.shape} {plain.dtype}"
    if ours.layout != torch.strided or plain.layout != torch.strided:
        return None
    a, b = ours.detach().to(torch.complex128), plain.detach().to(torch.complex128)
    finite = b[b.isfinite()]
    scale = float(finite.abs().max()) if finite.numel() else 1.0
    if torch.allclose(a, b, rtol=tolerance, atol=tolerance * max(scale, 1e-3), equal_nan=True):
        return None
    return f"differs by {float((a - b).abs().nan_to_num().max()):.2e} of {scale:.2e}"


@pytest.mark.parametrize(
    ("dtype", "backward"),
    [(torch.float32, False), (torch.float64, False), (torch.bfloat16, False), (torch.float32, True)],
)
def test_unperturbed_equals_torch(dtype: torch.dtype, backward: bool) -> None:
    """With RN every operator gives what torch gives but for rounding: values, shapes and types."""
    assert not list(_wrong("rn", dtype, backward))


def test_perturbed_operators_run() -> None:
    """SR of any sample raises nothing that torch does not raise, and keeps shapes and types."""
    wrong = [line for line in _wrong("sr", torch.float32, False) if "differs" not in line]
    assert not wrong


def _wrong(mode: Mode, dtype: torch.dtype, backward: bool) -> Iterator[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, op, sample in operators(dtype, backward):
            try:
                plain = evaluate(op, sample, backward)
            except (RuntimeError, NotImplementedError, IndexError, ValueError, TypeError):
                continue
            with instrument(mode, seed=1, threads=1):
                got = evaluate(op, sample, backward)
            if "grid_sampler" in name and dtype == torch.bfloat16:
                # torch has the coordinates themselves in bfloat16.
                continue
            if len(got) != len(plain):
                yield f"{name}: {len(got)} results, torch has {len(plain)}"
            for ours, expected in zip(got, plain, strict=False):
                said = difference(ours, expected, TOLERANCE[dtype])
                if said is not None:
                    yield f"{name}: {said}"
