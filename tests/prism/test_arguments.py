"""What the operations take, without a copy, and what they refuse, in words."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from boundscope.errors import BoundscopeError
from boundscope_prism import PrismArgumentError, add, cast, fma, rounding, sqrt

A = np.ones((4, 6), np.float32)
READ_ONLY = A.copy()
READ_ONLY.flags.writeable = False
SR = rounding("sr")
EITHER = "expected a numpy array or a torch tensor of float32 or float64, got"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"a": [1.0]}, f"a: {EITHER} list."),
        ({"a": A.astype(np.float16)}, "a: expected float32 or float64, got float16."),
        ({"b": A.astype(np.float64)}, "b: expected float32, got float64."),
        ({"b": A.astype(">f4")}, "b: expected float32, got float32 in the other byte order."),
        ({"b": A.T.copy()}, "expected shapes that broadcast together, got a (4, 6), b (6, 4)."),
        ({"a": np.ma.masked_array(A)}, f"a: {EITHER} MaskedArray."),
        ({"a": 1.0, "b": 2.0}, "a: expected a numpy array or a torch tensor, got a number alone."),
        ({"b": 10**400}, "b: expected a number that a float can hold, got 1000"),
        ({"operation": 1.5}, "operation: expected an integer, got float."),
        ({"operation": 2**56}, "operation: expected an integer from 0 to 72057594037927935, got"),
        ({"first": 2**64 - 23}, "first: expected an integer from 0 to 18446744073709551592, got"),
        ({"first": -1}, "first: expected an integer from 0 to 18446744073709551592, got -1."),
        ({"out": A.astype(np.float64)}, "out: expected float32, got float64."),
        ({"out": A[:2].copy()}, "out: expected the shape (4, 6), got (2, 6)."),
        (
            {"out": np.ones((4, 12), np.float32)[:, ::2]},
            "out: expected C-contiguous memory, got strides (48, 8)",
        ),
        ({"out": READ_ONLY}, "out: expected an array that can be written, got a read-only one."),
        ({"out": 1.0}, f"out: {EITHER} float."),
        ({"rounding": rounding("sr", precision=53)}, "precision: expected at most the 24 significand bits"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PrismArgumentError) as caught:
        add(**{"a": A, "b": A, "rounding": SR, **arguments})
    assert message in str(caught.value)
    assert isinstance(caught.value, BoundscopeError)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"mode": "rz"}, "mode: expected one of 'rn', 'sr', 'ud', 'rr', got 'rz'."),
        ({"seed": -1}, "seed: expected an integer from 0 to 18446744073709551615, got -1."),
        ({"sample": 2**64}, "sample: expected an integer from 0 to 18446744073709551615, got 1844674407370"),
        ({"precision": 1}, "precision: expected an integer from 2 to 53, got 1."),
        ({"threads": 0}, "threads: expected an integer from 1 to 4096, got 0."),
        ({"threads": "all"}, "threads: expected an integer, got str."),
    ],
)
def test_a_wrong_rounding_is_refused_when_it_is_made(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(PrismArgumentError) as caught:
        rounding(**arguments)
    assert message in str(caught.value)


def test_a_cast_takes_float64_only_and_an_output_apart() -> None:
    with pytest.raises(PrismArgumentError, match="a: expected float64, got float32"):
        cast(A, SR)
    wide = np.ones(8)
    with pytest.raises(
        PrismArgumentError, match="expected memory apart from the operands, got an overlap with a"
    ):
        cast(wide, SR, out=wide.view(np.float32)[:8])


@pytest.mark.parametrize("place", [slice(1, 25), slice(2, 26)])
def test_an_output_that_overlaps_in_part_is_refused_untouched(place: slice) -> None:
    buffer = np.arange(26, dtype=np.float32)
    with pytest.raises(
        PrismArgumentError, match=r"out: expected a or b itself or memory apart .* overlap with a"
    ):
        add(buffer[:24], buffer[:24], SR, out=buffer[place])
    assert np.array_equal(buffer, np.arange(26))


def test_an_output_over_a_row_that_is_broadcast_is_refused_untouched() -> None:
    buffer = np.arange(24, dtype=np.float32).reshape(4, 6)
    with pytest.raises(PrismArgumentError, match=r"out: expected a itself or memory apart .* overlap with b"):
        add(buffer, buffer[0], SR, out=buffer)
    assert np.array_equal(buffer.reshape(-1), np.arange(24))


@pytest.mark.parametrize("mode", ["rn", "sr", "ud", "rr"])
def test_the_output_may_take_an_operands_place(mode: str) -> None:
    a, b = np.random.default_rng(0).normal(size=(2, 1000)).astype(np.float32)
    how = rounding(mode, seed=4)
    want = add(a, b, how)
    for target in (a.copy(), b.copy()):
        left, right = (target, b) if np.array_equal(target, a) else (a, target)
        assert add(left, right, how, out=target) is target
        assert np.array_equal(target, want)
    target = a.copy()
    assert add(target, b, how, first=7, out=target) is target
    assert np.array_equal(target, add(a, b, how, first=7))


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (1,), (2, 3, 5)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_any_number_of_dimensions(shape: tuple[int, ...], dtype: Any) -> None:
    a = np.full(shape, 1.5, dtype)
    result = add(a, a, SR)
    assert result.shape == shape
    assert result.dtype == dtype
    assert np.all(result == 3.0)


@pytest.mark.parametrize(
    "other",
    [
        lambda x: np.asfortranarray(x),
        lambda x: np.repeat(x, 2, axis=1)[:, ::2],
        lambda x: x[:, ::-1].copy()[:, ::-1],
        lambda x: np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(x.dtype).reshape(x.shape),
    ],
)
def test_other_strides_and_alignments_give_the_same_bits(other: Callable[[Any], Any]) -> None:
    a, b = np.random.default_rng(1).normal(size=(2, 9, 17)).astype(np.float32)
    assert np.array_equal(add(other(a), b, SR), add(a, b, SR))
    assert np.array_equal(sqrt(other(a * a), SR), sqrt(a * a, SR))


def test_indices_count_in_c_order() -> None:
    a = np.random.default_rng(1).normal(size=(8, 16)).astype(np.float32)
    how = rounding("ud")
    assert np.array_equal(add(a, a[::-1], how).reshape(-1), add(a.reshape(-1), a[::-1].reshape(-1), how))


def test_integers_of_numpy_are_integers() -> None:
    assert np.array_equal(
        add(A, 1e-7, rounding("sr", seed=np.uint64(7)), operation=np.int32(3)),
        add(A, 1e-7, rounding("sr", seed=7), operation=3),
    )


def test_operands_are_not_written() -> None:
    assert np.array_equal(fma(READ_ONLY, READ_ONLY, READ_ONLY, SR), np.full((4, 6), 2, np.float32))


def test_tensors_share_their_memory_and_give_tensors() -> None:
    torch = pytest.importorskip("torch")
    for dtype in (torch.float32, torch.float64):
        a, b = torch.randn(2, 7, 9, dtype=dtype)
        how = rounding("ud", seed=1)
        out = torch.empty(7, 9, dtype=dtype)
        assert add(a, b, how, out=out) is out
        fresh = add(a, b, how)
        assert isinstance(fresh, torch.Tensor)
        assert torch.equal(fresh, out)
        assert np.array_equal(add(a.numpy(), b.numpy(), how), out.numpy())
        assert torch.equal(add(a.T, b.T, how), add(a.T.contiguous(), b.T.contiguous(), how))
        assert isinstance(add(2.0, a, how, first=3), torch.Tensor)
        assert isinstance(add(a, b.numpy(), how), torch.Tensor)


def test_a_tensor_that_cannot_be_used_is_refused_in_words() -> None:
    torch = pytest.importorskip("torch")
    a = torch.ones(4, 6)
    for wrong, message in [
        (a.int(), "a: expected float32 or float64, got int32."),
        (a.bfloat16(), "a: expected float32 or float64, got bfloat16."),
        (a.clone().requires_grad_(), "pass a.detach()."),
        (a.to("meta"), "a: expected a dense tensor on the CPU, got torch.strided on meta."),
        (a.to_sparse(), "a: expected a dense tensor on the CPU, got torch.sparse_coo on cpu."),
    ]:
        with pytest.raises(PrismArgumentError) as caught:
            add(wrong, a, SR)
        assert message in str(caught.value)


def test_a_tensor_that_is_a_negative_view_is_read_with_its_sign() -> None:
    torch = pytest.importorskip("torch")
    negative = torch.imag(torch.complex(torch.ones(5), torch.ones(5)).conj())
    assert negative.is_neg()
    assert add(negative, negative, SR).tolist() == [-2.0] * 5


def test_torch_is_not_imported() -> None:
    program = "import sys, boundscope_prism; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
