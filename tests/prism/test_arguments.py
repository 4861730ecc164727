"""What add() takes, without a copy, and what it refuses, in words."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from boundscope.errors import BoundscopeError
from boundscope_prism import PrismArgumentError, add

A = np.ones((4, 6), np.float32)
READ_ONLY = A.copy()
READ_ONLY.flags.writeable = False
MISALIGNED = np.zeros(97, np.uint8)[1:].view(np.float32).reshape(4, 6)
BUFFER = np.zeros(25, np.float32)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": [1.0]}, "a: expected a numpy array or a torch tensor of float32, got list."),
        ({"a": A.astype(np.float64)}, "a: expected float32, got float64."),
        ({"b": A.astype(">f4")}, "b: expected float32, got float32 in the other byte order."),
        ({"b": A.T.copy()}, "b: expected the shape of a, (4, 6), got (6, 4)."),
        ({"b": A.reshape(-1)}, "b: expected the shape of a, (4, 6), got (24,)."),
        ({"a": A[:, ::2]}, "a: expected a C-contiguous array, got shape (4, 3) with strides (24, 8)"),
        (
            {"b": MISALIGNED},
            "b: expected a C-contiguous array, got shape (4, 6) with memory that is not aligned",
        ),
        (
            {"a": np.ma.masked_array(A)},
            "a: expected a numpy array or a torch tensor of float32, got MaskedArray.",
        ),
        ({"mode": "rz"}, "mode: expected one of 'rn', 'sr', 'ud', got 'rz'."),
        ({"seed": -1}, "seed: expected an integer from 0 to 18446744073709551615, got -1."),
        (
            {"sample": 2**64},
            "sample: expected an integer from 0 to 18446744073709551615, got 18446744073709551616.",
        ),
        ({"operation": 1.5}, "operation: expected an integer, got float."),
        ({"first": 2**64 - 23}, "first: expected an integer from 0 to 18446744073709551591, got"),
        ({"out": A.astype(np.float64)}, "out: expected float32, got float64."),
        ({"out": A[:2].copy()}, "out: expected the shape of a, (4, 6), got (2, 6)."),
        ({"out": READ_ONLY}, "out: expected an array that can be written, got a read-only one."),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(arguments: dict[str, object], message: str) -> None:
    with pytest.raises(PrismArgumentError) as caught:
        add(**{"a": A, "b": A, **arguments})
    assert message in str(caught.value)
    assert isinstance(caught.value, BoundscopeError)


def test_an_output_that_overlaps_in_part_is_refused_untouched() -> None:
    buffer = np.arange(25, dtype=np.float32)
    with pytest.raises(PrismArgumentError, match="got an overlap in part"):
        add(buffer[:24], buffer[:24], out=buffer[1:])
    assert np.array_equal(buffer, np.arange(25))


@pytest.mark.parametrize("mode", ["rn", "sr", "ud"])
def test_the_output_may_take_an_operands_place(mode: str) -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float32)
    want = add(a, b, mode=mode)
    for target in (a.copy(), b.copy()):
        left, right = (target, b) if np.array_equal(target, a) else (a, target)
        assert add(left, right, mode=mode, out=target) is target
        assert np.array_equal(target, want)


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 5)])
def test_any_number_of_dimensions(shape: tuple[int, ...]) -> None:
    a = np.full(shape, 1.5, np.float32)
    result = add(a, a)
    assert result.shape == shape
    assert np.all(result == 3.0)


def test_indices_count_in_c_order() -> None:
    a = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)
    assert np.array_equal(
        add(a, a[::-1].copy(), mode="ud").reshape(-1), add(a.reshape(-1), a[::-1].reshape(-1), mode="ud")
    )


def test_integers_of_numpy_are_integers() -> None:
    assert np.array_equal(add(A, A, seed=np.uint64(7)), add(A, A, seed=7))


def test_tensors_share_their_memory_and_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    a, b = torch.randn(2, 7, 9)
    out = torch.empty(7, 9)
    result = add(a, b, mode="ud", seed=1, out=out)
    assert result is out
    fresh = add(a, b, mode="ud", seed=1)
    assert isinstance(fresh, torch.Tensor)
    assert torch.equal(fresh, out)
    assert np.array_equal(add(a.numpy(), b.numpy(), mode="ud", seed=1), out.numpy())


def test_a_tensor_that_cannot_be_used_is_refused_in_words() -> None:
    torch = pytest.importorskip("torch")
    a = torch.ones(4, 6)
    for wrong, message in [
        (a.double(), "a: expected float32, got float64."),
        (a.bfloat16(), "a: expected float32, got bfloat16."),
        (a.clone().requires_grad_(), "pass a.detach()."),
        (a.T, "a: expected a C-contiguous array"),
        (a.to("meta"), "a: expected a dense tensor on the CPU, got torch.strided on meta."),
        (a.to_sparse(), "a: expected a dense tensor on the CPU, got torch.sparse_coo on cpu."),
    ]:
        with pytest.raises(PrismArgumentError) as caught:
            add(wrong, a)
        assert message in str(caught.value)


def test_torch_is_not_imported() -> None:
    program = "import sys, boundscope_prism; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
