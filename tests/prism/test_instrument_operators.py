"""Types, layouts, variants and corners of operators under instrument()."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import boundscope_prism
from boundscope_prism import PrismArgumentError, instrument, rounding


def drawn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def under(mode: boundscope_prism.Mode, program: Callable[[], Any], **settings: Any) -> tuple[Any, Any]:
    with instrument(mode, seed=1, threads=1, **settings) as run:
        result = program()
    return result, run


X, Y = drawn(4, 6), drawn(4, 6, seed=1)


# ------------------------------------------------------------ the same as the kernels


@pytest.mark.parametrize("mode", ["rn", "sr", "ud", "rr"])
def test_operators_are_the_kernels(mode: boundscope_prism.Mode) -> None:
    """One operator is one kernel, with operation numbers in the order of execution."""
    how = rounding(mode, seed=1)

    def program() -> tuple[Tensor, ...]:
        return X + Y, X * 0.1, torch.addmm(Y[0, :4], X, Y.t()), X / Y

    got, _ = under(mode, program)
    expected = (
        boundscope_prism.add(X, Y, how, operation=0),
        boundscope_prism.multiply(X, 0.1, how, operation=1),
        boundscope_prism.matmul(X, Y.t(), how, bias=Y[0, :4], operation=2),
        boundscope_prism.divide(X, Y, how, operation=3),
    )
    for ours, kernel in zip(got, expected, strict=True):
        assert torch.equal(ours, kernel)


def test_scaled_sums_are_one_fma() -> None:
    got, _ = under("ud", lambda: torch.add(X, Y, alpha=0.3))
    assert torch.equal(got, boundscope_prism.fma(Y, 0.3, X, rounding("ud", seed=1)))


@pytest.mark.parametrize(
    "program",
    [
        lambda: torch.addmm(Y[:, :4], X, Y.t(), alpha=0.7, beta=-1.3),
        lambda: torch.addmm(Y[0, :4], X, Y.t(), alpha=0.7),
        lambda: torch.addmm(Y[:, :4] * float("nan"), X, Y.t(), beta=0),
        lambda: torch.addmv(Y[:, 0], X, Y[0], alpha=0.7, beta=2),
        lambda: torch.baddbmm(drawn(2, 4, 4), drawn(2, 4, 3), drawn(2, 3, 4), alpha=0.7, beta=2),
        lambda: torch.addbmm(drawn(4, 4), drawn(2, 4, 3), drawn(2, 3, 4), alpha=0.7, beta=2),
        lambda: torch.special.polygamma(2, X.abs() + 1),
        lambda: functional.interpolate(drawn(1, 2, 4, 5).double(), size=(7, 9), mode="bilinear"),
        lambda: functional.soft_margin_loss(X * 9, Y.sign()),
        lambda: X.gather(1, torch.empty(0, dtype=torch.long)),
    ],
)
def test_factors_and_corners_are_torchs(program: Callable[[], Tensor]) -> None:
    got, run = under("rn", program)
    assert torch.allclose(got, program(), rtol=1e-5, atol=1e-6)
    assert run.coverage.complete


def test_gradients_of_pools_without_a_batch() -> None:
    def program() -> Tensor:
        volume = drawn(2, 4, 5, 6).requires_grad_()
        pooled = (
            functional.adaptive_avg_pool3d(volume, (2, 2, 3)).sum() + functional.avg_pool3d(volume, 2).sum()
        )
        return torch.autograd.grad(pooled, volume)[0]

    got, _ = under("rn", program)
    assert torch.allclose(got, program(), rtol=1e-6)
    assert got.stride() == program().stride()


def test_jagged_tensors_are_what_they_are_made_of() -> None:
    rows = [drawn(2, 6), drawn(4, 6)]
    layer = nn.Linear(6, 3)

    def program() -> Tensor:
        values: Tensor = layer(torch.nested.nested_tensor(rows, layout=torch.jagged)).values()
        return values

    got, run = under("ud", program)
    assert not torch.equal(got, program())
    assert torch.allclose(got, program(), rtol=1e-4, atol=1e-6)
    assert run.coverage.complete


# ------------------------------------------------------------ types


@pytest.mark.parametrize(("dtype", "bits"), [(torch.bfloat16, 8), (torch.float16, 11)])
def test_half_types_are_computed_in_float32_and_rounded_once_more(dtype: torch.dtype, bits: int) -> None:
    """As torch's kernels do: SR's mean over samples is the float32 result, far finer than the type."""
    a, b = X.to(dtype), Y.to(dtype)

    def sample(number: int) -> Tensor:
        with instrument("sr", seed=1, sample=number, threads=1) as run:
            result = a + b
        assert result.dtype == dtype
        assert run.coverage.complete
        return result.double()

    exact = a.double() + b.double()
    spread = torch.stack([sample(number) for number in range(400)])
    unit = 2.0 ** (1 - bits) * exact.abs().clamp(min=2.0**-4)
    assert ((spread - exact).abs() <= 1.01 * unit).all()
    assert ((spread.mean(0) - exact).abs() <= unit * 0.5 * 5 / 20).all()


def test_half_layers_keep_their_type() -> None:
    layer = nn.Sequential(nn.Linear(6, 6), nn.LayerNorm(6), nn.GELU(), nn.Softmax(-1)).bfloat16()
    got, run = under("sr", lambda: layer(X.bfloat16()))
    assert got.dtype == torch.bfloat16
    assert run.coverage.complete
    assert torch.allclose(got, layer(X.bfloat16()), atol=0.03)


def test_autocast_is_followed() -> None:
    def program() -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return nn.functional.linear(X, Y)

    got, run = under("ud", program)
    assert got.dtype == torch.bfloat16
    assert run.coverage.complete


def test_float64_is_rounded_to_its_own_53_bits() -> None:
    a, b = X.double() / 3, Y.double() / 7
    got, run = under("ud", lambda: a @ b.t())
    error = (got - a @ b.t()).abs().max()
    assert 0 < error < 1e-14
    assert run.coverage.complete


def test_functions_of_float64_are_perturbed_at_the_output_and_listed() -> None:
    """There is nothing more accurate to round from."""
    got, run = under("sr", lambda: X.double().exp())
    assert not torch.equal(got, X.double().exp())
    assert torch.allclose(got, X.double().exp(), rtol=1e-15)
    assert run.coverage.at_output() == ("exp",)


def test_mixtures_of_types_are_torchs() -> None:
    """What torch refuses is refused; a norm with finer weights is not."""
    with pytest.raises(RuntimeError, match="same dtype"):
        under("sr", lambda: X @ Y.t().double())
    norm = nn.LayerNorm(6)
    got, _ = under("rn", lambda: norm(X.bfloat16()))
    assert got.dtype == norm(X.bfloat16()).dtype
    assert torch.allclose(got, norm(X.bfloat16()), atol=0.03)


@pytest.mark.parametrize("precision", [8, 11, 16])
def test_virtual_precision_reaches_every_operator(precision: int) -> None:
    """Results have no more bits than asked for."""
    layer = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Softmax(-1))
    got, _ = under("sr", lambda: layer(X), precision=precision)
    cut = got.detach().view(torch.int32) & ((1 << (24 - precision)) - 1)
    assert not cut.any()


@pytest.mark.parametrize(
    "program",
    [
        lambda: (X.double() / 3).float(),
        lambda: (X.double() / 3).to(torch.bfloat16),
        lambda: torch.empty(4, 6).copy_(X.double() / 3),
        lambda: X.bfloat16(),
        lambda: (X / 3).half(),
    ],
)
def test_conversions_to_narrower_types_are_rounded(program: Callable[[], Tensor]) -> None:
    """By the mode, to neighbours of the value: never further."""
    (got, run), plain = under("sr", program), program()
    assert got.dtype == plain.dtype
    assert not torch.equal(got, plain)
    bits = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}[plain.dtype]
    assert ((got - plain).double().abs() <= 2.0 ** (1 - bits) * plain.double().abs() * 1.01).all()
    assert run.coverage.complete


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
def test_conversions_are_seen_in_every_grad_mode(guard: Callable[[], Any]) -> None:
    """In inference mode the operator is one that may return its argument itself."""
    wide = X.double() / 3
    with guard():
        got, run = under("ud", lambda: (wide.to(torch.float32), wide.to(torch.float64), wide.float()))
    assert not torch.equal(got[0], wide.float())
    assert not torch.equal(got[2], wide.float())
    assert got[1] is wide
    assert run.coverage.total == 2 * X.numel()


def test_whole_numbers_are_left_alone_and_not_counted() -> None:
    def program() -> tuple[Tensor, ...]:
        whole = torch.arange(5)
        return whole * 2 + 1, whole.sum(), (X > 0).sum(), whole // 2, X.argmax(), whole.float()

    got, run = under("ud", program)
    for ours, plain in zip(got, program(), strict=True):
        assert torch.equal(ours, plain)
    assert run.coverage.total == 0


def test_whole_numbers_that_become_fractions_are_rounded() -> None:
    got, run = under("ud", lambda: (torch.arange(1, 5) / 3, torch.arange(5) * 0.5))
    assert got[0].dtype == got[1].dtype == torch.float32
    assert not torch.equal(got[0], torch.arange(1, 5) / 3)
    assert run.coverage.total == 9


def test_complex_sums_by_parts_and_products_at_the_output() -> None:
    """Both are moved; only what mixes real and imaginary parts is torch's own and listed."""
    a, b = torch.complex(X, Y), torch.complex(Y, X)
    for program, listed in (
        (lambda: a + b, ()),
        (lambda: a * 0.1, ()),
        (lambda: a * b, ("mul",)),
        (lambda: a.abs(), ("abs",)),
        (lambda: X * 1j, ("mul",)),
    ):
        got, run = under("ud", program)
        plain = program()  # type: ignore[no-untyped-call]
        assert got.dtype == plain.dtype
        assert torch.allclose(got, plain, rtol=1e-5, atol=1e-6)
        assert not torch.equal(got, plain)
        assert run.coverage.at_output() == listed


# ------------------------------------------------------------ layouts and variants


def variants() -> list[Tensor]:
    """In place through views, into given memory, and into an operand."""
    a = X.clone()
    a.t().add_(1.0)
    a[:, 1:3].mul_(2)
    torch.add(a, Y, out=a)
    a += Y
    a.abs_().sqrt_().clamp_(0.1)
    fresh = torch.empty(0)
    torch.mul(a, Y, out=fresh)
    torch.mm(X, Y.t(), out=fresh)
    torch.sum(a, 1, out=fresh)
    total, index = torch.empty(0), torch.empty(0, dtype=torch.long)
    torch.max(a, 1, out=(total, index))
    return [a, fresh, total, index]


def test_in_place_and_out_variants() -> None:
    """They write where they should, return what they should, and are rounded."""
    got, run = under("rn", variants)
    for ours, plain in zip(got, variants(), strict=True):
        assert torch.allclose(ours, plain, rtol=1e-6)
    moved, _ = under("ud", variants)
    assert not torch.equal(moved[0], got[0])
    assert run.coverage.complete


def test_in_place_keeps_the_tensor_and_its_gradient() -> None:
    def program() -> Tensor:
        leaf = X.clone().requires_grad_()
        hidden = leaf * 2
        same = hidden.add_(1.0)
        assert same is hidden
        torch.relu_(hidden).sum().backward()  # type: ignore[no-untyped-call]
        assert leaf.grad is not None
        return leaf.grad

    got, _ = under("rn", program)
    assert torch.equal(got, program())


def test_in_place_on_whole_numbers_is_refused_as_torch_does() -> None:
    with pytest.raises(RuntimeError, match="can't be cast"):
        under("sr", lambda: torch.arange(5).mul_(1.5))


@pytest.mark.parametrize(
    "program",
    [
        lambda: X.t() + 1,
        lambda: X.t()[:, :1] * Y.t(),
        lambda: X[:, ::2] / 3,
        lambda: X.t().exp(),
        lambda: drawn(2, 3, 4, 5).to(memory_format=torch.channels_last) * 2,
        lambda: functional.conv2d(drawn(2, 3, 5, 5).to(memory_format=torch.channels_last), drawn(4, 3, 3, 3)),
        lambda: drawn(3, 4, 5).transpose(0, 2) @ drawn(3, 2),
        lambda: drawn(3, 4, 5).transpose(0, 2).softmax(1),
        lambda: drawn(3, 4, 5).transpose(0, 2).sum(1),
        lambda: X.t().to(torch.bfloat16),
    ],
)
def test_layouts_are_torchs(program: Callable[[], Tensor]) -> None:
    """Results of operands that are not contiguous have the strides that they have in torch, so views of them work."""
    (got, _), plain = under("rn", program), program()
    assert got.stride() == plain.stride()
    assert torch.allclose(got, plain, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "program",
    [
        lambda: torch.zeros(0, 3) @ torch.zeros(3, 2) + 1,
        lambda: torch.zeros(2, 0) @ torch.zeros(0, 2),
        lambda: functional.linear(torch.zeros(2, 0), torch.zeros(3, 0), torch.ones(3)),
        lambda: torch.zeros(0, 3).sum(0),
        lambda: torch.zeros(0, 3).sum(1),
        lambda: torch.zeros(0, 3).mean(),
        lambda: torch.zeros(0, 3).softmax(1),
        lambda: nn.LayerNorm(3)(torch.zeros(0, 3)),
        lambda: nn.Conv2d(3, 2, 1)(torch.zeros(0, 3, 4, 4)),
        lambda: torch.zeros(0).cumsum(0),
        lambda: torch.zeros(0, 3).prod(0),
        lambda: torch.tensor(2.0) * torch.tensor(3.0) + torch.tensor(1.0).softmax(0),
        lambda: torch.tensor(4.0).sum() + torch.tensor(1.0).cumsum(0),
    ],
)
def test_empty_tensors_and_numbers(program: Callable[[], Tensor]) -> None:
    (got, _), plain = under("rn", program), program()
    assert (got.shape, got.dtype) == (plain.shape, plain.dtype)
    assert torch.equal(got, plain) or (got.isnan().all() and plain.isnan().all())


def test_special_values_stay() -> None:
    """Infinities and NaN go through as in torch; a softmax row that is masked whole is as torch has it."""
    special = torch.tensor([float("inf"), -float("inf"), float("nan"), 0.0, -0.0])
    got, _ = under("ud", lambda: special * 1.0)
    assert torch.equal(got.nan_to_num(7.0), special.nan_to_num(7.0))
    assert torch.equal(torch.signbit(got[3:]), torch.tensor([False, True]))
    masked = torch.zeros(2, 4, 4, dtype=torch.bool)
    tokens = drawn(2, 4, 8)
    attended, _ = under(
        "sr", lambda: functional.scaled_dot_product_attention(tokens, tokens, tokens, attn_mask=masked)
    )
    plain = functional.scaled_dot_product_attention(tokens, tokens, tokens, attn_mask=masked)
    assert torch.equal(attended.isnan(), plain.isnan())


# ------------------------------------------------------------ what torch computes itself


@pytest.mark.parametrize("mode", ["sr", "ud", "rr"])
def test_operators_without_a_rule_are_perturbed_once_at_the_output(mode: boundscope_prism.Mode) -> None:
    """Every element that is not zero moves to a neighbour, whatever the mode."""
    got, run = under(mode, lambda: torch.linalg.inv(X[:, :4]))
    plain = torch.linalg.inv(X[:, :4])
    steps = (got.view(torch.int32) - plain.view(torch.int32)).abs()
    assert (steps == 1).all()
    assert run.coverage.at_output() == ("linalg_inv_ex",)
    same, _ = under("rn", lambda: torch.linalg.inv(X[:, :4]))
    assert torch.equal(same, plain)


def test_a_fused_optimizer_is_perturbed_in_place_and_listed() -> None:
    def program() -> Tensor:
        weight = nn.Parameter(X.clone())
        weight.grad = Y.clone()
        torch.optim.Adam([weight], lr=0.1, fused=True).step()
        return weight.detach()

    got, run = under("ud", program)
    assert not torch.equal(got, program())
    assert torch.allclose(got, program(), atol=1e-5)
    assert "_fused_adam_" in run.coverage.at_output()


def test_random_draws_are_torchs_own() -> None:
    """The same dropout mask and the same noise as in the plain run."""

    def program() -> tuple[Tensor, ...]:
        torch.manual_seed(3)
        return (
            torch.rand(4),
            torch.randn(4),
            functional.dropout(torch.ones(50), 0.5),
            torch.empty(3).normal_(),
        )

    got, _ = under("sr", program)
    for ours, plain in zip(got, program(), strict=True):
        assert torch.equal(ours, plain)


def test_constants_are_not_perturbed() -> None:
    got, run = under("ud", lambda: (torch.linspace(0, 1, 7), torch.full((3,), 0.1), torch.hann_window(8)))
    assert torch.equal(got[0], torch.linspace(0, 1, 7))
    assert torch.equal(got[1], torch.full((3,), 0.1))
    assert "linspace" not in {row.operator for row in run.coverage.rows() if row.total}


def test_sparse_tensors_are_said_to_be_untouched() -> None:
    _, run = under("sr", lambda: torch.sparse.mm(X.to_sparse(), Y.t()))
    assert not run.coverage.complete
    assert "not at all" in run.coverage.sentence()


def test_tensors_that_are_not_on_the_cpu_are_refused() -> None:
    """Those without numbers go through; a device's own cannot be computed by these kernels."""
    got, _ = under("sr", lambda: torch.empty(2, 3, device="meta") @ torch.empty(3, 2, device="meta"))
    assert got.shape == (2, 2)
    with torch.device("meta"):
        there = nn.Linear(3, 2)
    with instrument("sr", model=there):
        pass


class Elsewhere(Tensor):
    """A tensor that says it is on a GPU; there is none here."""

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", 0)


def test_a_model_on_a_gpu_is_refused_at_once() -> None:
    model = nn.Linear(3, 2)
    model.register_buffer("scale", torch.ones(2).as_subclass(Elsewhere))
    with (
        pytest.raises(PrismArgumentError, match=r"scale on cuda:0; move the model with \.cpu\(\)"),
        instrument(model=model),
    ):
        pass
