"""Parts that sweeps bound are decided as any others, boxes of one property together; CROWN takes what they leave."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

from boundscope.properties.types import Clause, LinearConstraint
from boundscope.protocol import Arithmetic
from boundscope.search.checkpoint import Checkpoint, SearchState
from boundscope.search.input_bounds import PartBounder
from boundscope.search.input_split import InputSplit, split_inputs
from boundscope.search.sweeps import SweepBounder, sweeps_pay
from boundscope.search.task import SearchOutcome
from support.models import mlp, save
from support.searches import Search as TaskSearch
from support.searches import case

WIDE = (2, 200, 160, 3)  # enough neurons for two free inputs


def clause(*rows: tuple[Sequence[float], float]) -> Clause:
    """coefficients · y ≤ bound, for each row."""
    index = np.arange(3)
    return Clause(
        tuple(LinearConstraint(index, np.array(each, np.float64), Fraction(bound)) for each, bound in rows)
    )


class Search(TaskSearch):
    def run(self) -> SearchOutcome:
        assert sweeps_pay(self.engine, self.cases)
        return split_inputs(self.task)


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("seed", range(3))
def test_verdicts_are_those_of_a_fine_grid(seed: int, arithmetic: Arithmetic, tmp_path: Path) -> None:
    """For single constraints and for conjunctions that only a mixture of their rows refutes."""
    network = mlp(tmp_path / "n.onnx", WIDE, seed=seed)
    lower, upper = [-1.0, -0.5], [1.0, 0.8]
    probe = Search(network, [case(lower, upper, clause(([1, 0, 0], 0)))])
    axes = [np.linspace(*ends, 61) for ends in zip(lower, upper, strict=True)]
    outputs = probe.outputs(np.array(list(itertools.product(*axes))))
    one, other = outputs[:, 0] - outputs[:, 1], outputs[:, 2] - outputs[:, 1]
    both, single = float(np.maximum(one, other).min()), float(outputs[:, 0].min())

    def pair(bound: float) -> Clause:
        return clause(([1, -1, 0], bound), ([0, -1, 1], bound))

    safe = case(lower, upper, pair(both - 0.05), clause(([1, 0, 0], single - 0.05)))
    outcome = Search(network, [safe], arithmetic=arithmetic).run()
    assert outcome.proven == {(0, 0), (0, 1)}
    for unsafe in (pair(both + 1e-3), clause(([1, 0, 0], single + 1e-3))):
        found = Search(network, [case(lower, upper, unsafe)], arithmetic=arithmetic).run()
        assert found.counterexample is not None


def test_boxes_of_a_property_are_swept_together_whatever_is_free_in_each(tmp_path: Path) -> None:
    """Each box has its own fixed input, and its own bound; the one box that violates is found."""
    network = mlp(tmp_path / "n.onnx", [3, 200, 200, 3], seed=5)
    random = np.random.default_rng(1)
    ends = []
    for number in range(30):
        low = random.uniform(-1, 1, 3)
        high = low + random.uniform(0.05, 0.3, 3)
        fixed = number % 3
        high[fixed] = low[fixed]
        ends.append((low.tolist(), high.tolist()))
    probe = Search(network, [case(*one, clause(([1, 0, 0], 0))) for one in ends])
    share = random.uniform(0, 1, (400, 3)).round(2)
    least = [
        float(probe.outputs(np.array(low) + share * (np.array(high) - np.array(low)))[:, 0].min())
        for low, high in ends
    ]
    cases = [case(*one, clause(([1, 0, 0], value - 0.05))) for one, value in zip(ends, least, strict=True)]
    search = Search(network, cases)
    split = InputSplit(search.task)
    outcome = split.run()
    assert outcome.proven == search.task.open
    cases[17] = case(*ends[17], clause(([1, 0, 0], least[17] + 0.01)))
    found = Search(network, cases).run().counterexample
    assert found is not None
    assert found.case == 17


def touching(path: Path) -> Path:
    """y = 64·|x| in its first output: y ≤ 0 holds at 0 alone, and nothing decides it without the judge."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["z"], "both"),
        helper.make_node("Relu", ["z"], ["a"], "relu"),
        helper.make_node("MatMul", ["a", "V"], ["y"], "sum"),
    ]
    constants = {
        "W": np.tile(np.array([[1, -1]], np.float32), 64),
        "V": np.tile(np.array([[1, 0, 0]], np.float32), (128, 1)),
    }
    return save(path, nodes, constants, [1, 1], [1, 3])


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of bounder that were asked, in order."""
    names: list[str] = []
    for kind in (SweepBounder, PartBounder):
        bound = kind.bound

        def noted(self, *args, _bound=bound, _name=kind.__name__):
            names.append(_name)
            return _bound(self, *args)

        monkeypatch.setattr(kind, "bound", noted)
    return names


def test_crown_goes_on_where_sweeps_are_stuck(tmp_path: Path, tried: list[str]) -> None:
    """Both try what nothing decides without the judge."""
    network = touching(tmp_path / "n.onnx")
    safe, reached = clause(([1, 0, 0], -0.5)), clause(([1, 0, 0], 0))
    outcome = Search(network, [case([-1.0], [1.7], safe, reached)], judged=False).run()
    assert outcome.proven == {(0, 0)}
    assert outcome.counterexample is None
    assert "cannot be split further" in outcome.stuck
    assert list(dict.fromkeys(tried)) == ["SweepBounder", "PartBounder"]


@pytest.mark.parametrize("boxes", [2, 5], ids=["apart", "together"])
def test_what_sweeps_gave_up_goes_on_with_crown_after_a_pause(
    tmp_path: Path, tried: list[str], boxes: int
) -> None:
    """From a checkpoint at any moment of CROWN's turn; where one box was given up for good, that is still said."""
    network = touching(tmp_path / "n.onnx")
    cases = [case([-1.0], [1.1 + number], clause(([1, 0, 0], 0))) for number in range(boxes)]
    searches = [Search(network, cases, judged=False, batch=64) for _ in range(5)]

    class StopError(Exception):
        pass

    def run(search: Search, pause: int, state: SearchState | None = None) -> tuple[SearchOutcome, int]:
        """Stopped after so many batches of CROWN's, of which it tells the number."""
        batches = 0

        def between(running: InputSplit) -> None:
            nonlocal batches
            batches += "PartBounder" in tried
            if batches == pause:
                checkpoint.save(running.state())
                raise StopError

        return split_inputs(search.task, state, between), batches

    with Checkpoint(tmp_path / "c", {}) as checkpoint:
        whole, batches = run(searches[0], pause=-1)
        steps = tried.copy()
        for number, pause in enumerate((1, batches - 1)):
            tried.clear()
            with pytest.raises(StopError):
                run(searches[2 * number + 1], pause)
            before = tried.copy()
            tried.clear()
            rest = searches[2 * number + 2]
            outcome, _ = run(rest, pause=-1, state=checkpoint.load(folder=tmp_path))
            assert "SweepBounder" not in tried
            assert before + tried == steps
            assert outcome == whole
            assert rest.standings[-1].done == searches[0].standings[-1].done


def test_a_search_by_sweeps_goes_on_from_its_state(tmp_path: Path) -> None:
    network = mlp(tmp_path / "n.onnx", WIDE, seed=1)
    lower, upper = [-1.0, -1.0], [1.0, 1.0]
    probe = Search(network, [case(lower, upper, clause(([1, 0, 0], 0)))])
    axis = np.linspace(-1, 1, 81)
    least = float(probe.outputs(np.array(list(itertools.product(axis, axis))))[:, 0].min())
    safe = [case(lower, upper, clause(([1, 0, 0], least - 0.02)))]

    class StopError(Exception):
        pass

    states = []

    def stop(running: InputSplit) -> None:
        if not states and running.state().pools:
            pools = [len(pool) for pool in running.state().pools.values()]
            if sum(pools) > 4:
                states.append(running.state())
                raise StopError

    first = Search(network, safe, batch=8)
    with pytest.raises(StopError):
        split_inputs(first.task, between=stop)
    (state,) = states
    assert [name for name in state.pools if name.startswith("swept")]
    whole, rest = Search(network, safe, batch=8), Search(network, safe, batch=8)
    assert whole.run().proven == {(0, 0)}
    assert split_inputs(rest.task, state=state).proven == {(0, 0)}
    assert rest.standings[-1].done == whole.standings[-1].done


def test_networks_with_few_neurons_for_their_inputs_are_left_to_crown(tmp_path: Path) -> None:
    small = TaskSearch(
        mlp(tmp_path / "n.onnx", [5, 50, 50, 50, 50, 50, 50, 5], seed=0), [case([0.0] * 5, [1.0] * 5)]
    )
    assert not sweeps_pay(small.engine, small.cases)
