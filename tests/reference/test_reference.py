"""auto_LiRPA as an engine: the same numbers as ours where both do the same, and its own ways made visible."""

from __future__ import annotations

import dataclasses
import io
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
import torch
from onnx import helper

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.errors import BoundscopeError, DeadlineError, UnsupportedOperatorError
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.properties import read_property
from boundscope.properties.types import Case, LinearConstraint
from boundscope.protocol import Engine, Event, LayerBounds, LogLine, Method, Verdict
from boundscope.reference import compat, guard
from boundscope.reference.engine import ReferenceEngine
from boundscope.sharding.weights import WholeWeights
from boundscope.worker.engines import ReferenceCases, Step
from support.jobs import verify
from support.models import box_property, convnet, mlp, save

pytestmark = pytest.mark.skipif(not compat.version(), reason="auto_LiRPA is not installed")

ASSERTS = "(assert (or (and (>= Y_1 Y_0)) (and (>= Y_2 Y_0) (<= Y_2 9.25))))"


def native(network: Network) -> BoundEngine:
    ledger = MemoryLedger()
    return BoundEngine(
        network, WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64), ledger
    )


def only_case(network: Network, prop: Path) -> tuple[Case, list[LinearConstraint]]:
    case = read_property(prop, input_count=network.input_count, output_count=network.output_count).cases[0]
    return case, [one for clause in case.clauses for one in clause.constraints]


def small(tmp_path: Path, kind: str) -> tuple[Path, Path]:
    """A network that is unstable all over the box, and a property of it."""
    prop = tmp_path / "p.vnnlib"
    if kind == "mlp":
        network = mlp(tmp_path / "n.onnx", [6, 30, 30, 30, 3], seed=3)
        prop.write_text(box_property([-0.3] * 6, [0.25] * 6, 3, ASSERTS))
    else:
        network = convnet(tmp_path / "n.onnx", seed=4)
        prop.write_text(box_property([-0.2] * 72, [0.2] * 72, 3, ASSERTS))
    return network, prop


def assert_agree(network: Network, case: Case, constraints: list[LinearConstraint]) -> None:
    """IBP and CROWN-IBP as they are; CROWN's backward pass on the same hidden bounds; α-CROWN comparable.

    IBP's rows are merged into the last layer by both, and by us into linear layers before it too: not looser then.
    """
    ours, theirs = native(network), ReferenceEngine(network)
    merged = network.nodes[-2].op.onnx_type == "Relu"
    for method in (Method.IBP, Method.CROWN_IBP):
        context = ours.context(case.box, method)
        expected = ours.margins(context, constraints, method)
        found = theirs.bounds(case.box, constraints, method).margins
        if method is Method.IBP and not merged:
            assert bool((found <= expected + 1e-4 * expected.abs().max()).all())
            continue
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4 * float(expected.abs().max()))
    context = ours.context(case.box, Method.CROWN)
    crown = ours.margins(context, constraints, Method.CROWN)
    hidden = {name: (one.lower, one.upper) for name, one in context.intervals.items()}
    found = theirs.bounds(case.box, constraints, Method.CROWN, hidden=hidden).margins
    torch.testing.assert_close(found, crown, rtol=1e-4, atol=1e-4 * float(crown.abs().max()))
    alpha = ours.margins(ours.context(case.box, Method.ALPHA_CROWN), constraints, Method.ALPHA_CROWN)
    best = theirs.bounds(case.box, constraints, Method.ALPHA_CROWN).margins
    slack = 0.1 * (alpha - crown).abs().max() + 0.02 * crown.abs().max()
    assert bool(((alpha - best).abs() <= slack).all()), (alpha, best)


@pytest.mark.parametrize("kind", ["mlp", "convnet"])
def test_margins_agree_on_small_networks(tmp_path: Path, kind: str) -> None:
    onnx, prop = small(tmp_path, kind)
    network = load_network(onnx)
    assert_agree(network, *only_case(network, prop))


@pytest.mark.parametrize(
    ("onnx", "prop"),
    [
        ("mnist_fc/onnx/mnist-net_256x2.onnx.gz", "mnist_fc/vnnlib/prop_11_0.03.vnnlib.gz"),
        ("mnist_fc/onnx/mnist-net_256x2.onnx.gz", "mnist_fc/vnnlib/prop_6_0.05.vnnlib.gz"),
        (
            "oval21/onnx/cifar_base_kw.onnx.gz",
            "oval21/vnnlib/cifar_base_kw-img4549-eps0.00392156862745098.vnnlib.gz",
        ),
    ],
)
def test_margins_agree_on_known_instances(vnncomp: Path, onnx: str, prop: str) -> None:
    network = load_network(vnncomp / onnx)
    assert_agree(network, *only_case(network, vnncomp / prop))


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN_IBP, Method.CROWN, Method.ALPHA_CROWN])
def test_hidden_bounds_contain_samples_and_have_our_names(tmp_path: Path, method: Method) -> None:
    """Tensors are told apart by name: each interval holds the values of the tensor that it is said to be of."""
    for kind in ("mlp", "convnet"):
        onnx, prop = small(tmp_path, kind)
        network = load_network(onnx)
        case, constraints = only_case(network, prop)
        layers = ReferenceEngine(network).bounds(case.box, constraints, method).layers
        needed = {node.inputs[0] for node in network.nodes if node.op.onnx_type == "Relu"}
        assert needed <= set(layers)
        random = np.random.default_rng(1)
        for _ in range(20):
            point = random.uniform(case.box.lower, case.box.upper)
            values: dict[str, torch.Tensor] = {}
            network.evaluate(
                {"x": torch.from_numpy(point).reshape(network.inputs[0].shape)},
                visit=lambda node, results, seen=values: seen.update({node.outputs[0]: results[0]}),
            )
            for name, (lower, upper) in layers.items():
                room = 1e-5 * float(upper.abs().max() + lower.abs().max())
                assert bool((values[name] >= lower - room).all()), name
                assert bool((values[name] <= upper + room).all()), name


def test_a_float32_box_encloses_the_decimal_one(tmp_path: Path) -> None:
    """0.1 is no float32 number: the ends move outwards, never inwards."""
    network = load_network(mlp(tmp_path / "n.onnx", [2, 3, 2]))
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-0.1, 0.1], [0.1, 0.3], 2, "(assert (>= Y_0 Y_1))"))
    case, _ = only_case(network, prop)
    ((lower, upper),) = ReferenceEngine(network)._inputs(case.box)
    assert bool((lower.double().flatten().numpy() <= case.box.lower).all())
    assert bool((upper.double().flatten().numpy() >= case.box.upper).all())
    assert float((upper.double().flatten() - torch.from_numpy(case.box.upper)).abs().max()) < 1e-7


def test_positive_margins_lose_what_float32_may_have_lost(tmp_path: Path) -> None:
    """A margin counts by the lesser of two precisions less an estimate that is at least their difference and at least
    some float32 units of the outputs; a negative one is left as it is."""
    onnx, _ = small(tmp_path, "mlp")
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-0.1] * 6, [0.1] * 6, 3, "(assert (or (and (>= Y_1 4)) (and (>= Y_2 0))))"))
    network = load_network(onnx)
    case, constraints = only_case(network, prop)
    engine = ReferenceEngine(network)
    once = engine.bounds(case.box, constraints, Method.CROWN).margins
    again = engine.precise.bounds(case.box, constraints, Method.CROWN).margins
    counted = engine.careful(case.box, constraints, Method.CROWN)
    assert once[0] > 0 > once[1]
    assert again[0] != once[0]
    lost = float((once - again).abs()[0])
    assert counted.margins[0] == torch.minimum(once, again)[0] - counted.rounding
    assert max(lost, 2.0**-24) < counted.rounding < 1e-4
    assert counted.margins[1] == once[1]


def test_a_verdict_says_whose_numbers_it_rests_on(tmp_path: Path) -> None:
    onnx, _ = small(tmp_path, "mlp")
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-0.1] * 6, [0.1] * 6, 3, "(assert (>= Y_1 4))"))
    events: list[Event] = []
    result = verify(onnx, prop, engine=Engine.AUTO_LIRPA, emit=events.append)
    assert result.verdict is Verdict.VERIFIED
    assert result.arithmetic == "real"
    assert f"auto_LiRPA {compat.version()}, float32, rounding not accounted for" in result.reason
    assert "--engine auto_lirpa" in result.command
    layers = {event.node for event in events if isinstance(event, LayerBounds)}
    assert {"fc1", "fc2", "fc3"} <= layers


def test_a_margin_within_rounding_counts_for_nothing(tmp_path: Path) -> None:
    """True margins of 10⁻⁹, where float32 sees some that are larger by its own rounding: none is left positive."""
    prop = tmp_path / "p.vnnlib"
    believed = 0
    for seed in range(12):
        onnx = mlp(tmp_path / "n.onnx", [3, 4, 1], seed=seed)
        network = load_network(onnx)
        prop.write_text(box_property([0.1] * 3, [0.1] * 3, 1, "(assert (>= Y_0 0))"))
        case, (zero,) = only_case(network, prop)
        least = -float(native(network).margins(native(network).context(case.box, Method.CROWN), [zero])[0])
        prop.write_text(box_property([0.1] * 3, [0.1] * 3, 1, f"(assert (>= Y_0 {Decimal(least + 1e-9):f}))"))
        case, constraints = only_case(network, prop)
        engine = ReferenceEngine(network)
        believed += float(engine.bounds(case.box, constraints, Method.CROWN).margins[0]) > 2e-9
        assert float(engine.careful(case.box, constraints, Method.CROWN).margins[0]) <= 0
        assert float(engine.precise.bounds(case.box, constraints, Method.CROWN).margins[0]) > 0
    assert believed > 0


def test_constraints_on_inputs_prove_nothing(tmp_path: Path) -> None:
    """A row that names an input has no place in auto_LiRPA's matrix: it excludes nothing, the others still do."""
    onnx, prop = small(tmp_path, "mlp")
    network = load_network(onnx)
    prop.write_text(box_property([-0.1] * 6, [0.1] * 6, 3, "(assert (and (>= (+ Y_1 X_0) 9) (>= Y_2 9)))"))
    case, constraints = only_case(network, prop)
    margins = ReferenceEngine(network).bounds(case.box, constraints, Method.CROWN).margins
    assert margins[0] == -torch.inf
    assert margins[1] > 0
    assert verify(onnx, prop, engine=Engine.AUTO_LIRPA).verdict is Verdict.VERIFIED


def test_alpha_helps_here_and_is_not_trusted_where_it_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert guard.alpha_helps()
    assert guard.start_values_note() == ""
    onnx, prop = small(tmp_path, "mlp")
    network = load_network(onnx)
    case, constraints = only_case(network, prop)
    monkeypatch.setattr(guard, "alpha_helps", lambda: False)
    events: list[Event] = []
    cases = ReferenceCases(network, Monitor(events.append))
    cases.margins(0, case, constraints, Step(Method.CROWN, Method.CROWN))
    assert "optimise" not in cases.note
    cases.margins(0, case, constraints, Step(Method.ALPHA_CROWN, Method.ALPHA_CROWN))
    assert "does not optimise slopes with torch" in cases.note
    assert [event.level for event in events if isinstance(event, LogLine)] == ["warning"]


def test_alpha_stops_between_steps(tmp_path: Path) -> None:
    onnx, prop = small(tmp_path, "mlp")
    network = load_network(onnx)
    case, constraints = only_case(network, prop)

    class Late(Monitor):
        asked = 0

        def check(self) -> None:
            self.asked += 1
            if self.asked > 4:
                raise DeadlineError("the time limit passed")

    monitor = Late()
    with pytest.raises(DeadlineError):
        ReferenceEngine(network, monitor).bounds(case.box, constraints, Method.ALPHA_CROWN)
    assert monitor.asked == 5


def test_an_unsupported_operator_is_named(tmp_path: Path) -> None:
    constants = {"W": np.eye(3, dtype=np.float32)}
    nodes = [
        helper.make_node("Gemm", ["x", "W"], ["a"], "first"),
        helper.make_node("Sign", ["a"], ["s"], "the sign"),
        helper.make_node("Gemm", ["s", "W"], ["y"], "last"),
    ]
    network = load_network(save(tmp_path / "n.onnx", nodes, constants, [1, 3], [1, 3]))
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-1.0] * 3, [1.0] * 3, 3, "(assert (>= Y_0 5))"))
    case, constraints = only_case(network, prop)
    with pytest.raises(UnsupportedOperatorError, match="cannot bound operator Sign of node 'the sign'"):
        ReferenceEngine(network).bounds(case.box, constraints, Method.CROWN)


def test_a_network_without_a_batch_axis_is_refused(tmp_path: Path) -> None:
    constants = {"W": np.ones((4, 4), dtype=np.float32)}
    nodes = [helper.make_node("MatMul", ["W", "x"], ["y"], "product")]
    network = load_network(save(tmp_path / "n.onnx", nodes, constants, [4, 1], [4, 1]))
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-1.0] * 4, [1.0] * 4, 4, "(assert (>= Y_0 5))"))
    case, constraints = only_case(network, prop)
    with pytest.raises(BoundscopeError, match=r"batch of one; tensor 'x'.*\[4, 1\]"):
        ReferenceEngine(network).bounds(case.box, constraints, Method.CROWN)


def test_clip_max_and_division_are_written_with_what_it_knows(tmp_path: Path) -> None:
    constants = {
        "W": np.array([[1, -2, 0.5], [0.3, 1, 1], [-1, 1, 2]], dtype=np.float32),
        "low": np.float32(-0.25),
        "high": np.float32(0.5),
        "two": np.full((3,), 2.0, dtype=np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "W"], ["a"], "first"),
        helper.make_node("Clip", ["a", "low", "high"], ["c"], "clip"),
        helper.make_node("Max", ["c", "x"], ["m"], "max"),
        helper.make_node("Div", ["m", "two"], ["d"], "half"),
        helper.make_node("Gemm", ["d", "W"], ["y"], "last"),
    ]
    network = load_network(save(tmp_path / "n.onnx", nodes, constants, [1, 3], [1, 3]))
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-1.0] * 3, [1.0] * 3, 3, "(assert (>= Y_0 5))"))
    case, constraints = only_case(network, prop)
    margin = float(ReferenceEngine(network).bounds(case.box, constraints, Method.CROWN).margins[0])
    x = torch.rand(4000, 3, dtype=torch.float64) * 2 - 1
    weights = torch.from_numpy(constants["W"]).double()
    y = torch.maximum((x @ weights).clamp(-0.25, 0.5), x) / 2 @ weights
    least = float((5 - y[:, 0]).min())
    assert least - 3 < margin <= least


def test_nothing_that_it_prints_or_warns_reaches_people(tmp_path: Path) -> None:
    onnx, prop = small(tmp_path, "mlp")
    network = load_network(onnx)
    case, constraints = only_case(network, prop)
    said = io.StringIO()
    with redirect_stdout(said), warnings.catch_warnings():
        warnings.simplefilter("error")
        ReferenceEngine(network).bounds(case.box, constraints, Method.ALPHA_CROWN)
    assert said.getvalue() == ""


def test_its_import_leaves_logging_and_warnings_alone() -> None:
    """It configures the root logger to write to standard output, where `--json -` writes."""
    code = (
        "import logging, warnings; before = list(warnings.filters)\n"
        "from boundscope.reference import import_auto_lirpa; import torch; import_auto_lirpa()\n"
        "logging.getLogger('somebody').error('to standard error only')\n"
        "assert not logging.getLogger().handlers, logging.getLogger().handlers\n"
        "assert not any(f[0] == 'once' for f in warnings.filters)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == ""
    assert done.stderr.strip() == "to standard error only"


def test_where_it_is_missing_the_remedy_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat, "version", lambda: "")
    onnx, prop = small(tmp_path, "mlp")
    for result in (verify(onnx, prop, engine=Engine.AUTO_LIRPA), verify(onnx, prop, cross_check=True)):
        assert result.verdict is Verdict.ERROR
        assert result.verdict.exit_code == 1
        assert (
            "auto_LiRPA is not installed; get it by: pip install --no-deps auto_LiRPA==0.3" in result.reason
        )


def test_a_misread_network_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What auto_LiRPA makes of the trace is compared with our own evaluation before a bound is believed."""
    network = load_network(small(tmp_path, "mlp")[0])
    case, constraints = only_case(network, tmp_path / "p.vnnlib")
    engine = ReferenceEngine(network)
    engine.bounds(case.box, constraints, Method.IBP)
    constants = dict(network.constants)
    constants["W1"] = constants["W1"] * 1.5
    other = ReferenceEngine(dataclasses.replace(network, constants=constants))
    other.bounds(case.box, constraints, Method.IBP)
    as_matrices = (False, False)
    mixed = dataclasses.replace(engine._bounded[as_matrices], bounded=other._bounded[as_matrices].bounded)
    monkeypatch.setattr(engine, "_traced", lambda *form: mixed)
    with pytest.raises(BoundscopeError, match="misreads this network"):
        engine.bounds(case.box, constraints, Method.IBP)
