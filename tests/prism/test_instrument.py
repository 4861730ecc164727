"""The context itself: what it counts, how it names layers, whom it perturbs, what it leaves behind."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import boundscope_prism
from boundscope_prism import PrismArgumentError, instrument


class Answers(nn.Module):
    """Two inputs, a dictionary of outputs, a submodule that runs twice."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = nn.Linear(6, 6)
        self.activation = nn.Tanh()
        self.head = nn.Sequential(nn.Linear(6, 3), nn.Softmax(-1))

    def forward(self, x: Tensor, shift: Tensor) -> dict[str, Tensor]:
        hidden = self.activation(self.dense(x) + shift)
        return {"hidden": self.activation(hidden), "share": self.head(hidden)}


@pytest.fixture
def x() -> Tensor:
    return torch.randn(4, 6, generator=torch.Generator().manual_seed(0))


@pytest.fixture
def model() -> Answers:
    torch.manual_seed(0)
    return Answers()


def switches() -> tuple[Any, ...]:
    return (
        torch.backends.mha.get_fastpath_enabled(),
        torch._C._get_mkldnn_enabled(),
        torch.backends.cuda.flash_sdp_enabled(),  # type: ignore[no-untyped-call]
        torch.backends.cuda.mem_efficient_sdp_enabled(),  # type: ignore[no-untyped-call]
        torch.backends.cuda.math_sdp_enabled(),  # type: ignore[no-untyped-call]
    )


def hooks(model: nn.Module) -> int:
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


# ------------------------------------------------------------ coverage


def test_operations_are_counted_by_operator_and_layer(model: Answers, x: Tensor) -> None:
    """A fused multiply-add is two operations; a copy is none."""
    with instrument("sr", model=model) as run:
        model(x, x)
    coverage = run.coverage
    assert coverage.complete
    counted = {(row.operator, row.layer): (row.calls, row.inside) for row in coverage.by_place}
    assert counted["addmm", "dense"] == (1, 4 * 6 * 6 * 2)
    assert counted["addmm", "head.0"] == (1, 4 * 3 * 6 * 2)
    assert counted["tanh", "activation"] == (2, 2 * 24)
    assert counted["add", "(model)"] == (1, 24)
    assert {row.operator: row.calls for row in coverage.rows()}["addmm"] == 2
    assert [row.layer for row in coverage.layers()] == ["dense", "(model)", "activation", "head.0", "head.1"]
    assert coverage.sentence() == f"100 % of {coverage.total} floating-point operations were rounded inside."


def test_complete_is_said_only_where_it_is_true(x: Tensor) -> None:
    """An operator that torch computes itself is listed with its share, which never rounds up to all."""
    with instrument("sr") as run:
        for _ in range(600):
            torch.mm(x.t(), x)
        torch.linalg.svdvals(x)
    coverage = run.coverage
    assert not coverage.complete
    assert 0.99 < coverage.share_inside < 1
    assert coverage.at_output() == ("_linalg_svd",)
    assert "100 %" not in coverage.sentence()
    assert "at the output only (_linalg_svd)" in coverage.sentence()


def test_nothing_seen_is_said() -> None:
    with instrument("sr") as run:
        torch.arange(4) + 1
    assert run.coverage.sentence() == "No floating-point operation was seen."
    assert run.coverage.share_inside == 1.0


def test_numbers_read_into_python_are_said(x: Tensor) -> None:
    with instrument("sr") as run:
        x.sum().item()
    assert run.coverage.values_read == 1
    assert "read into Python once" in run.coverage.sentence()


def test_composites_count_as_what_the_program_called(x: Tensor) -> None:
    """An operator that is taken apart is one row, whatever it consists of."""
    with instrument("sr") as run:
        torch.logsumexp(x, 1)
    assert [row.operator for row in run.coverage.by_place] == ["logsumexp"]
    assert run.treated["aten.logsumexp.default"] == "lowered"
    assert run.treated["aten.log.default"] == "inside"


# ------------------------------------------------------------ layers


def test_layers_without_a_model_are_operators(x: Tensor) -> None:
    with instrument("sr") as run:
        (x @ x.t()) @ x
        x + 1
    assert [row.layer for row in run.coverage.layers()] == ["mm_0", "mm_1", "add_0"]


def test_scopes_name_layers_and_the_innermost_counts(model: Answers, x: Tensor) -> None:
    with instrument("sr", model=model) as run:
        with run.scope("outer"):
            x + 1
            with run.scope("inner"):
                x * 2
            model.dense(x)
        x - 1
    assert [(row.operator, row.layer) for row in run.coverage.by_place] == [
        ("add", "outer"),
        ("mul", "inner"),
        ("addmm", "dense"),
        ("sub", "sub_0"),
    ]


def test_observe_sees_each_layers_output(model: Answers, x: Tensor) -> None:
    """In order, detached, a layer that runs again with its number, a structure with each tensor's place."""
    seen: list[tuple[str, Tensor]] = []

    def observe(name: str, tensor: Tensor) -> None:
        assert not tensor.requires_grad
        # What the observer computes is its own: neither perturbed nor counted.
        assert torch.equal(tensor + 1, tensor.add(1))
        seen.append((name, tensor))

    with instrument("ud", model=model, observe=observe) as run:
        out = model(x, x)
        with run.scope("mine") as mine:
            mine.output(out["share"] * 2)
    assert [name for name, _ in seen] == [
        "dense",
        "activation",
        "activation#2",
        "head.0",
        "head.1",
        "head",
        "(model)['hidden']",
        "(model)['share']",
        "mine",
    ]
    assert torch.equal(dict(seen)["(model)['share']"], out["share"])
    assert run.coverage.by_place[-1].layer == "mine"
    assert sum(row.calls for row in run.coverage.rows() if row.operator == "add") == 1


def test_select_perturbs_some_layers_with_the_words_that_they_have_anyway(model: Answers, x: Tensor) -> None:
    """One layer alone, and all but one: what is not selected rounds to nearest by the same kernels."""

    def run(mode: boundscope_prism.Mode, select: Callable[[str], bool] | None = None) -> dict[str, Tensor]:
        seen: dict[str, Tensor] = {}
        with instrument(mode, seed=5, model=model, select=select, observe=seen.__setitem__):
            model(x, x)
        return seen

    nearest, all_of_them = run("rn"), run("ud")
    none = run("ud", lambda name: False)
    assert all(torch.equal(none[name], nearest[name]) for name in nearest)
    one = run("ud", lambda name: name == "dense")
    assert torch.equal(one["dense"], all_of_them["dense"])
    assert not torch.equal(one["dense"], nearest["dense"])
    rest = run("ud", lambda name: name != "dense")
    assert torch.equal(rest["dense"], nearest["dense"])
    assert not torch.equal(rest["head"], nearest["head"])
    # Where the inputs are the same the words are too: the head alone, on an unperturbed dense layer.
    head = run("ud", lambda name: name.startswith("head"))
    assert torch.equal(head["activation"], nearest["activation"])
    assert not torch.equal(head["head.0"], nearest["head.0"])


def test_backward_belongs_to_the_layers(model: Answers, x: Tensor) -> None:
    """Backward operators are perturbed and counted with their module's name."""

    def gradient(mode: boundscope_prism.Mode) -> tuple[Tensor, Any]:
        model.zero_grad()
        with instrument(mode, seed=1, model=model) as run:
            model(x, x)["share"].pow(2).sum().backward()
        assert model.dense.weight.grad is not None
        return model.dense.weight.grad.clone(), run.coverage

    nearest, _ = gradient("rn")
    perturbed, coverage = gradient("ud")
    assert not torch.equal(perturbed, nearest)
    assert torch.allclose(perturbed, nearest, rtol=1e-4, atol=1e-6)
    layers = {row.layer: row.inside for row in coverage.layers()}
    assert layers["dense (backward)"] >= 2 * 4 * 6 * 6
    assert layers["head.0 (backward)"] > 0
    assert coverage.complete


def test_a_training_step_is_all_inside(model: Answers, x: Tensor) -> None:
    """Forward, backward, clipping and the optimizer, in place as it is; RN is torch's own step but for rounding."""

    def step(mode: boundscope_prism.Mode | None, **settings: Any) -> tuple[Tensor, Any]:
        torch.manual_seed(0)
        trained = Answers()
        optimizer = torch.optim.AdamW(trained.parameters(), lr=0.1, **settings)

        def once() -> None:
            optimizer.zero_grad()
            trained(x, x)["share"].pow(2).sum().backward()
            nn.utils.clip_grad_norm_(trained.parameters(), 0.1)
            optimizer.step()

        if mode is None:
            once()
            return trained.dense.weight.detach(), None
        with instrument(mode, seed=1) as run:
            once()
        return trained.dense.weight.detach(), run.coverage

    plain, _ = step(None)
    for settings in ({"foreach": False}, {"foreach": True}):
        nearest, coverage = step("rn", **settings)
        assert torch.allclose(nearest, plain, atol=1e-4)
        assert coverage.complete, coverage.sentence()
        perturbed, _ = step("sr", **settings)
        assert not torch.equal(perturbed, nearest)


# ------------------------------------------------------------ what is left behind


def test_everything_is_as_before_afterwards(model: Answers, x: Tensor) -> None:
    """Switches, hooks and arithmetic, also after an exception, which comes out as it is."""
    before, plain = switches(), model(x, x)["share"]
    with instrument("ud", model=model):
        assert switches() != before
        assert hooks(model) > 0
    assert (switches(), hooks(model)) == (before, 0)
    with pytest.raises(RuntimeError, match="mat1 and mat2"), instrument("ud", model=model):
        model(x[:, :5], x)
    assert (switches(), hooks(model)) == (before, 0)
    assert torch.equal(model(x, x)["share"], plain)
    with pytest.raises(ZeroDivisionError), instrument("ud"):
        raise ZeroDivisionError
    assert switches() == before


def test_a_layer_that_fails_leaves_the_stack(model: Answers, x: Tensor) -> None:
    """A program that goes on after an exception in a module goes on outside of it."""
    with instrument("sr", model=model) as run:
        with pytest.raises(RuntimeError):
            model(x[:, :5], x)
        x + 1
    assert run.coverage.by_place[-1].layer == "add_0"


def test_one_at_a_time() -> None:
    """Inside another, in any thread, it refuses, and says why; the outer one goes on."""
    with instrument("ud") as run:
        with pytest.raises(PrismArgumentError, match="already active"), instrument("sr"):
            pass
        refused: list[str] = []

        def other() -> None:
            try:
                with instrument("sr"):
                    pass
            except PrismArgumentError as error:
                refused.append(str(error))

        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        torch.ones(3) + 1
    assert len(refused) == 1
    assert run.coverage.total == 3
    with instrument("ud"):
        pass


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"mode": "up"}, "mode: expected one of"),
        ({"seed": -1}, "seed: expected"),
        ({"precision": 1}, "precision: expected"),
        ({"threads": 0}, "threads: expected"),
        ({"model": "net"}, "model: expected a torch.nn.Module, got str"),
    ],
)
def test_arguments_are_checked(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(PrismArgumentError, match=said), instrument(**settings):
        pass


def test_precision_beyond_the_type_is_refused(x: Tensor) -> None:
    with pytest.raises(PrismArgumentError, match="at most the 24 significand bits"), instrument(precision=30):
        x + 1


# ------------------------------------------------------------ programs of all kinds


def test_compiled_modules_run_eagerly(model: Answers, x: Tensor) -> None:
    compiled = torch.compile(model)
    with instrument("sr", model=compiled) as run:  # type: ignore[arg-type]
        compiled(x, x)
    assert {row.layer for row in run.coverage.layers()} >= {"dense", "head.0"}
    assert run.coverage.complete


def test_scripted_modules_are_seen(x: Tensor) -> None:
    """TorchScript takes no hooks, so its operators are their own layers."""
    scripted = torch.jit.script(nn.Sequential(nn.Linear(6, 3), nn.ReLU()))
    with instrument("sr", model=scripted) as run:
        scripted(x)
    assert [row.layer for row in run.coverage.layers()] == ["addmm_0", "relu_0"]


@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode, torch.enable_grad])
def test_fused_paths_are_taken_apart(guard: Callable[[], Any]) -> None:
    """Eval mode's fused encoder layer and recurrent layers arrive as their operators, whatever the grad mode."""
    torch.manual_seed(0)
    modules = (nn.TransformerEncoderLayer(16, 4, 32, batch_first=True).eval(), nn.LSTM(16, 8).eval())
    tokens = torch.randn(2, 5, 16)
    with guard(), instrument("sr") as run:
        for module in modules:
            module(tokens)
    assert run.coverage.complete
    names = {row.operator for row in run.coverage.rows()}
    assert not any("encoder" in name or "mkldnn" in name or "flash" in name for name in names)


def test_functional_transforms(x: Tensor) -> None:
    with instrument("rn") as run:
        gradient = torch.func.grad(lambda a: (a * a).sum())(x)
        rows = torch.func.vmap(lambda a: (a * 2).sum())(x)
    assert torch.equal(gradient, 2 * x)
    assert rows.shape == (4,)
    assert run.coverage.complete


def test_users_hooks_still_run(model: Answers, x: Tensor) -> None:
    """A hook that replaces an output is honoured, and what it computes is perturbed with its layer."""
    handle = model.dense.register_forward_hook(lambda module, args, out: out * 0)
    with instrument("sr", model=model) as run:
        out = model(x, torch.zeros(()))
    handle.remove()
    assert not out["hidden"].any()
    assert ("mul", "dense") in {(row.operator, row.layer) for row in run.coverage.by_place}
