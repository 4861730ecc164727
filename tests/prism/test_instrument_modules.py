"""instrument() on one small module for every operator of torch.nn: all of it inside, and within a proven bound."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import boundscope_prism
from prism.modules import MORE, SMALL, Small
from prism.rounding_bound import UNITS, bounded

# Backward passes of which torch computes one operator itself, as docs/variability.md lists.
BACKWARD_AT_OUTPUT = {"EmbeddingBag", "MultiMarginLoss", "grid sample"}
EVERY = {**SMALL, **MORE}


def outputs(value: Any) -> list[Tensor]:
    return [leaf for leaf in tree_leaves(value) if isinstance(leaf, Tensor) and leaf.is_floating_point()]


def forward(module: nn.Module, inputs: list[Tensor]) -> list[Tensor]:
    """A fresh copy's outputs: batch norm changes its module."""
    torch.manual_seed(5)
    return outputs(copy.deepcopy(module)(*inputs))


def instrumented(
    module: nn.Module, inputs: list[Tensor], mode: boundscope_prism.Mode, **settings: Any
) -> tuple[list[Tensor], Any]:
    with torch.no_grad(), boundscope_prism.instrument(mode, **settings) as run:
        return forward(module, inputs), run


@pytest.mark.parametrize("name", EVERY)
def test_every_operator_is_inside(name: str) -> None:
    """Nothing fused slips through: each operator with a floating-point result is inside, exact, drawn or lowered."""
    small = EVERY[name]
    _, run = instrumented(small.module(), small.inputs(), "sr", seed=1, threads=1)
    assert set(run.treated.values()) <= {"inside", "exact", "drawn", "lowered"}, run.treated
    assert run.coverage.complete
    assert run.coverage.share_inside == 1.0


@pytest.mark.parametrize("name", SMALL)
def test_outputs_lie_within_the_proven_bound(name: str) -> None:
    """Of the exact outputs, whatever the mode and the sample: the module in float64 with its rounding bound."""
    small = SMALL[name]
    module, inputs = small.module(), small.inputs()
    for mode, unit in UNITS.items():
        torch.manual_seed(5)
        exact, bound = bounded(module, inputs, unit)
        size = exact.abs().amax()
        assert bound.isfinite().all()
        assert bound.amax() <= 5e-2 * size, f"a bound of {bound.amax()} says nothing about outputs of {size}"
        for sample in range(2):
            got, _ = instrumented(module, inputs, mode, seed=3, sample=sample, threads=1)
            excess = (got[0].double() - exact).abs() - bound
            assert excess.amax() <= 0, f"{mode}, sample {sample}: {excess.amax()} beyond the bound"


@pytest.mark.parametrize("name", EVERY)
def test_unperturbed_is_close_to_torch(name: str) -> None:
    """RN is the plain run but for the order of sums: a few units of the largest output, of the same kind as torch's."""
    small = EVERY[name]
    module, inputs = small.module(), small.inputs()
    got, _ = instrumented(module, inputs, "rn", threads=1)
    with torch.no_grad():
        expected = forward(module, inputs)
    for ours, plain in zip(got, expected, strict=True):
        assert (ours.shape, ours.dtype) == (plain.shape, plain.dtype)
        assert (ours - plain).abs().max() <= 1e-6 * max(1.0, float(plain.abs().max()))


def gradients(module: nn.Module, inputs: list[Tensor]) -> list[Tensor]:
    copied = copy.deepcopy(module)
    leaves = [x.clone().requires_grad_() if x.is_floating_point() else x for x in inputs]
    torch.manual_seed(5)
    results = [y for y in outputs(copied(*leaves)) if y.requires_grad]
    generator = torch.Generator().manual_seed(3)
    torch.autograd.backward(results, [torch.randn(y.shape, generator=generator) for y in results])
    return [t.grad for t in (*leaves, *copied.parameters()) if t.grad is not None]


@pytest.mark.parametrize("mode", ["rn", "sr", "ud"])
@pytest.mark.parametrize("name", EVERY)
def test_gradients(name: str, mode: boundscope_prism.Mode) -> None:
    """Backward passes run by the kernels too: all inside but for those that are listed, and close to torch's."""
    small = EVERY[name]
    module, inputs = small.module(), small.inputs()
    plain = gradients(module, inputs)
    with boundscope_prism.instrument(mode, seed=1, threads=1) as run:
        got = gradients(module, inputs)
    assert len(got) == len(plain)
    for ours, expected in zip(got, plain, strict=True):
        assert (ours.shape, ours.dtype) == (expected.shape, expected.dtype)
        assert (ours - expected).abs().max() <= 3e-5 * max(1e-3, float(expected.abs().max()))
    assert run.coverage.complete == (name not in BACKWARD_AT_OUTPUT), run.coverage.sentence()


@pytest.mark.parametrize("mode", ["sr", "ud", "rr"])
@pytest.mark.parametrize(
    "name", ["Linear", "Conv2d", "TransformerEncoderLayer eval", "LSTM", "BatchNorm2d", "GELU"]
)
def test_bits_depend_on_the_sample_alone(name: str, mode: boundscope_prism.Mode) -> None:
    """Any number of threads gives the same bits, another sample or seed others."""
    small = EVERY[name]
    module, inputs = small.module(), small.inputs()

    def bits(**settings: Any) -> Tensor:
        return instrumented(module, inputs, mode, **settings)[0][0].view(torch.int32)

    first = bits(seed=7, sample=3, threads=1)
    assert torch.equal(first, bits(seed=7, sample=3, threads=2))
    assert torch.equal(first, bits(seed=7, sample=3))
    assert not torch.equal(first, bits(seed=7, sample=4, threads=1))
    assert not torch.equal(first, bits(seed=8, sample=3, threads=1))


BATCHED = {
    "Linear": SMALL["Linear"],
    "Conv2d": SMALL["Conv2d"],
    "BatchNorm2d eval": SMALL["BatchNorm2d eval"],
    "LayerNorm": SMALL["LayerNorm"],
    "Softmax": SMALL["Softmax"],
    "AvgPool2d": SMALL["AvgPool2d"],
    "GELU": SMALL["GELU"],
    "network": Small(
        lambda: nn.Sequential(
            nn.Conv2d(4, 6, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(54, 20), nn.Softmax(-1)
        ),
        ((4, 4, 8, 8),),
    ),
}


@pytest.mark.parametrize("mode", ["sr", "ud", "rr"])
@pytest.mark.parametrize("name", BATCHED)
def test_first_part_of_a_batch_has_the_bits_of_the_whole(name: str, mode: boundscope_prism.Mode) -> None:
    """Random words belong to rows and images, so what comes later in the batch does not matter."""
    small = BATCHED[name]
    module, (x,) = small.module(), small.inputs()
    whole = instrumented(module, [x], mode, seed=1)[0][0]
    part = instrumented(module, [x[:1]], mode, seed=1)[0][0]
    assert torch.equal(part, whole[:1])
