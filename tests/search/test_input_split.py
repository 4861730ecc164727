"""Splitting the input box decides small networks rightly, alone or on several ranks, and stops when it is told to."""

from __future__ import annotations

import dataclasses
import gc
import itertools
import os
import subprocess
import sys
import time
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from onnx import helper

from boundscope.bounds.context import BoxContext
from boundscope.errors import CancelledError, DeadlineError, OutOfMemoryError
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.properties.types import Clause, LinearConstraint
from boundscope.protocol import Arithmetic, Branching, Counterexample, Method
from boundscope.search.checkpoint import Checkpoint
from boundscope.search.clipping import Boxes, LinearRows, clipped
from boundscope.search.complete import plan
from boundscope.search.input_bounds import PartBounder
from boundscope.search.input_split import InputSplit, split_inputs
from boundscope.search.task import SearchOutcome
from boundscope.sharding.ranks import RankGroup
from boundscope.worker import process
from support.models import mlp, save
from support.searches import Search as TaskSearch
from support.searches import case


def tent(path: Path) -> Path:
    """y = |x| written with two Relus: least value 0, at 0 only."""
    nodes = [
        helper.make_node("MatMul", ["x", "W"], ["z"], "both"),
        helper.make_node("Relu", ["z"], ["a"], "relu"),
        helper.make_node("MatMul", ["a", "V"], ["y"], "sum"),
    ]
    constants = {"W": np.array([[1, -1]], np.float32), "V": np.array([[1], [1]], np.float32)}
    return save(path, nodes, constants, [1, 1], [1, 1])


def below(bound: Fraction | float, *, strict: bool = False) -> Clause:
    """y ≤ bound."""
    return Clause((LinearConstraint(np.array([0]), np.array([1.0]), Fraction(bound), strict),))


class Search(TaskSearch):
    def run(self) -> SearchOutcome:
        return split_inputs(self.task)


def test_a_thin_margin_is_proven_and_a_thin_violation_is_found(tmp_path: Path) -> None:
    """y = |x| over a box whose middle is not 0, so that no first guess lies on the violation."""
    network = tent(tmp_path / "n.onnx")
    proven = Search(network, [case([-1.0], [1.7], below(-1e-6))]).run()
    assert proven.proven == {(0, 0)}
    assert proven.counterexample is None
    violated = Search(network, [case([-1.0], [1.7], below(1e-7))]).run()
    assert violated.counterexample is not None
    assert abs(float(violated.counterexample.inputs[0])) <= 1e-7


def test_what_cannot_be_split_further_is_named(tmp_path: Path) -> None:
    """y ≤ 0 holds at 0 alone, which only the judge could tell; without it the search ends at that point."""
    outcome = Search(tent(tmp_path / "n.onnx"), [case([-1.0], [1.7], below(0))], judged=False).run()
    assert outcome.counterexample is None
    assert (0, 0) not in outcome.proven
    assert "cannot be split further" in outcome.stuck
    assert "of case 0 " in outcome.stuck  # counted as everywhere else: from 0


def test_a_box_that_is_a_point_is_decided_at_the_point(tmp_path: Path) -> None:
    network = tent(tmp_path / "n.onnx")
    point = [case([0.5], [0.5], below(0.4), below(0.6))]
    outcome = Search(network, point, judged=False).run()
    assert outcome.proven == {(0, 0)}
    assert outcome.stuck
    found = Search(network, point).run().counterexample
    assert found is not None
    assert found.clause == 1


def test_the_least_bound_that_is_reported_holds(tmp_path: Path) -> None:
    network = mlp(tmp_path / "n.onnx", [3, 16, 16, 1], seed=2)
    search = Search(network, [case([-1.0] * 3, [1.0] * 3, below(-100.0))])
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 15), repeat=3)))
    least = float(search.outputs(grid).min())
    thin = Search(network, [case([-1.0] * 3, [1.0] * 3, below(least - 0.02))], batch=8)
    outcome = thin.run()
    assert outcome.proven == {(0, 0)}
    for standing in thin.standings:
        for value in standing.lower.values():
            assert value <= 0.02 + 1e-9


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize("seed", range(4))
def test_verdicts_of_random_networks_are_those_of_a_fine_grid(
    tmp_path: Path, seed: int, arithmetic: Arithmetic
) -> None:
    """Bounds just below and just above what a grid reaches, for conjunctions and single constraints."""
    network = mlp(tmp_path / "n.onnx", [2, 12, 12, 3], seed=seed)
    probe = Search(network, [case([-1.0, -0.5], [1.0, 0.8], below(0))])
    axes = np.linspace(-1.0, 1.0, 121), np.linspace(-0.5, 0.8, 121)
    outputs = probe.outputs(np.array(list(itertools.product(*axes)))[::3])

    def pair(bound: float) -> Clause:
        """y0 − y1 ≤ bound and y2 − y1 ≤ bound."""
        exact = Fraction(bound)
        rows = (([0, 1], [1.0, -1.0]), ([2, 1], [1.0, -1.0]))
        return Clause(tuple(LinearConstraint(np.array(i), np.array(c), exact) for i, c in rows))

    both = float(np.maximum(outputs[:, 0] - outputs[:, 1], outputs[:, 2] - outputs[:, 1]).min())
    single = float(outputs[:, 0].min())
    safe = case([-1.0, -0.5], [1.0, 0.8], pair(both - 0.03), below(single - 0.03))
    outcome = Search(network, [safe], arithmetic=arithmetic).run()
    assert outcome.proven == {(0, 0), (0, 1)}
    for clause in (pair(both + 1e-3), below(single + 1e-3)):
        unsafe = case([-1.0, -0.5], [1.0, 0.8], clause)
        assert Search(network, [unsafe], arithmetic=arithmetic).run().counterexample is not None


def test_thousands_of_boxes_are_searched_together(tmp_path: Path) -> None:
    """Boxes of one property share a context; the one that is violated is found among them."""
    network = mlp(tmp_path / "n.onnx", [2, 12, 1], seed=5)
    ends = np.linspace(-1.0, 1.0, 41)
    tiles = [((a, c), (b, d)) for a, b in itertools.pairwise(ends) for c, d in itertools.pairwise(ends)]
    probe = Search(network, [case([-1.0, -1.0], [1.0, 1.0], below(0))])
    corners = probe.outputs(np.array(list(itertools.product(ends, ends))))
    least = float(corners.min())
    safe = Search(network, [case(low, high, below(least - 0.05)) for low, high in tiles]).run()
    assert len(safe.proven) == 1600
    unsafe = Search(network, [case(low, high, below(least + 1e-4)) for low, high in tiles]).run()
    assert unsafe.counterexample is not None


def test_a_deadline_and_a_cancel_end_the_search_after_its_standing(tmp_path: Path) -> None:
    network = mlp(tmp_path / "n.onnx", [8, 40, 40, 1], seed=1)
    endless = [case([-1.0] * 8, [1.0] * 8, below(5.0))]  # violated everywhere, which no judge tells
    late = Search(network, endless, monitor=Monitor(timeout_s=0.6), judged=False)
    begin_s = time.process_time()  # what others on the machine compute does not count
    with pytest.raises(DeadlineError):
        late.run()
    assert late.standings
    assert (time.process_time() - begin_s) / torch.get_num_threads() < 2.6
    stopped = Search(network, endless, judged=False)
    stopped.monitor.cancel()
    with pytest.raises(CancelledError):
        stopped.run()


def test_the_batch_changes_no_verdict(tmp_path: Path) -> None:
    network = mlp(tmp_path / "n.onnx", [3, 16, 16, 1], seed=2)
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 15), repeat=3)))
    box = [-1.0] * 3, [1.0] * 3
    least = float(Search(network, [case(*box, below(0))]).outputs(grid).min())
    for batch in (2, 7, 300):
        search = Search(network, [case(*box, below(least - 0.05))], batch=batch)
        assert search.run().proven == {(0, 0)}
        assert search.standings[-1].done > 1


@pytest.mark.parametrize("same_root", [True, False])
def test_a_search_goes_on_from_a_checkpoint(tmp_path: Path, same_root: bool) -> None:
    """It bounds no part twice, and comes to the same end; also where hidden bounds no longer fit the root's."""
    network = mlp(tmp_path / "n.onnx", [4, 24, 24, 1], seed=3)
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 6), repeat=4)))
    box = [-1.0] * 4, [1.0] * 4
    least = float(Search(network, [case(*box, below(0))]).outputs(grid).min())
    cases = [case(*box, below(least - 0.02))]
    whole = Search(network, cases, batch=8)
    assert whole.run().proven == {(0, 0)}
    path = tmp_path / "search.checkpoint"
    first = Search(network, cases, batch=8)
    rounds = 0

    def stop_later(search: InputSplit) -> None:
        nonlocal rounds
        rounds += 1
        if rounds == 6:
            with Checkpoint(path, {"job": "this"}) as checkpoint:
                checkpoint.save(search.state())
            first.monitor.cancel()

    with pytest.raises(CancelledError):
        split_inputs(first.task, between=stop_later)
    second = Search(network, cases, batch=8)
    if not same_root:
        second.task = dataclasses.replace(
            second.task, root=lambda number: second.engine.context(cases[number].box, Method.IBP)
        )
    with Checkpoint(path, {"job": "this"}) as checkpoint:
        state = checkpoint.load()
        assert state is not None
        outcome = split_inputs(second.task, state)
    assert outcome.proven == {(0, 0)}
    if same_root:
        assert second.standings[-1].done == whole.standings[-1].done
    else:
        assert second.standings[-1].done > first.standings[-1].done


def _ranked(rank: int, size: int, folder: Path) -> None:
    """One rank of several, in its own process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    found = _outcome_of(folder / "n.onnx", RankGroup.of_process_group())
    (folder / f"found{rank}").write_text(found)
    dist.barrier()
    dist.destroy_process_group()


def _outcome_of(network: Path, ranks: RankGroup) -> str:
    """How a search stands after some batches, to the last bit; its judge says that it found something then."""
    judged = 0

    def judge(number: int, points: NDArray[np.float64]) -> Counterexample | None:
        nonlocal judged
        judged += 1
        return Counterexample((), (), number, 0, "", None) if judged == 4 else None  # type: ignore[arg-type]

    grid = np.array(list(itertools.product(np.linspace(-1, 1, 4), repeat=5)))
    box = [-1.0] * 5, [1.0] * 5
    least = float(Search(network, [case(*box, below(0))]).outputs(grid).min())
    search = Search(network, [case(*box, below(least - 0.1))], ranks=ranks, batch=600)
    outcome = split_inputs(dataclasses.replace(search.task, judge=judge))
    last = search.standings[-1]
    return repr((outcome.lower, outcome.counterexample is None, last.done, last.open, last.depth))


def test_two_ranks_bound_the_same_parts(tmp_path: Path) -> None:
    network = mlp(tmp_path / "n.onnx", [5, 40, 40, 1], seed=3)
    alone = _outcome_of(network, RankGroup())
    assert "{(0, 0): -" in alone
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen([sys.executable, __file__, str(rank), "2", str(tmp_path)], env=environment)
        for rank in range(2)
    ]
    assert [worker.wait(200) for worker in workers] == [0, 0]
    assert [(tmp_path / f"found{rank}").read_text() for rank in range(2)] == [alone, alone]


def test_clipping_keeps_every_point_where_the_rows_may_be_nonpositive() -> None:
    random = np.random.default_rng(0)
    count, inputs, rows = 60, 3, 4
    low = torch.from_numpy(random.uniform(-1, 0, (count, inputs)))
    high = low + torch.from_numpy(random.uniform(0, 1, (count, inputs)))
    slope = torch.from_numpy(random.standard_normal((count, rows, inputs)))
    least = torch.from_numpy(random.uniform(-0.8, 0.05, (count, rows)))
    clause = torch.tensor([0, 0, 1, -1]).expand(count, rows)
    open_ = torch.ones(count, 2, dtype=torch.bool)
    cut = clipped(Boxes(low, high), LinearRows(least, slope, clause), open_)
    assert bool((cut.boxes.width < high - low).any())
    assert not bool(cut.open.all())
    for box in range(count):
        points = low[box] + torch.rand(500, inputs, dtype=torch.float64) * (high[box] - low[box])
        away = torch.where(slope[box][:, None] > 0, points - low[box], high[box] - points)
        value = least[box][:, None] + (slope[box].abs()[:, None] * away).sum(2)  # [rows, points]
        holds = [bool((value[:2, p] <= 0).all()) or bool(value[2, p] <= 0) for p in range(500)]
        inside = ((points >= cut.boxes.lower[box]) & (points <= cut.boxes.upper[box])).all(1)
        for point in np.flatnonzero(holds):
            assert bool(cut.open[box].any())
            assert bool(inside[point])
            first, second = bool((value[:2, point] <= 0).all()), bool(value[2, point] <= 0)
            assert bool(cut.open[box, 0]) or not first
            assert bool(cut.open[box, 1]) or not second


if __name__ == "__main__":
    _ranked(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    process.end(0)  # as a rank of a job: the interpreter's own way out may meet threads of gloo


def test_when_memory_runs_short_fewer_parts_are_bounded_at_a_time(tmp_path: Path) -> None:
    """The search decides what it decides with room for whole batches; it ends where not even one part fits."""
    network = mlp(tmp_path / "n.onnx", [3, 40, 40, 1], seed=4)
    box = case([-0.5] * 3, [0.5] * 3)
    free = Search(network, [box])
    least = float(free.outputs(np.random.default_rng(0).uniform(-0.5, 0.5, (4000, 3))).min())
    box = case([-0.5] * 3, [0.5] * 3, below(least - 0.05))

    def search(room_bytes: int | None) -> SearchOutcome:
        one = Search(network, [box])
        ledger = one.engine.ledger

        def root(number: int) -> BoxContext:
            context = one.engine.context(one.cases[number].box, Method.CROWN)
            gc.collect()
            ledger.limit_bytes = None if room_bytes is None else ledger.total_bytes + room_bytes
            return context

        return split_inputs(dataclasses.replace(one.task, root=root))

    assert search(None).proven == {(0, 0)}
    assert search(100_000).proven == {(0, 0)}
    with pytest.raises(OutOfMemoryError):
        search(100)


def test_where_a_rank_has_given_up_nothing_is_tried_with_less(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = 0

    def given_up(*_: object) -> None:
        nonlocal calls
        calls += 1
        error = OutOfMemoryError("no room for anything")
        error.final = True
        raise error

    monkeypatch.setattr(PartBounder, "bound", given_up)
    search = Search(
        mlp(tmp_path / "n.onnx", [3, 40, 40, 1], seed=4), [case([-0.5] * 3, [0.5] * 3, below(0.0))]
    )
    with pytest.raises(OutOfMemoryError, match="no room for anything"):
        search.run()
    assert calls == 1


@pytest.mark.parametrize(
    ("inputs", "neurons", "first"),
    [
        (12, 300, Branching.INPUT),
        (30, 128, Branching.INPUT),
        (30, 300, Branching.ACTIVATION),
        (41, 128, Branching.ACTIVATION),
    ],
)
def test_boxes_are_split_first_where_inputs_or_neurons_are_few(
    tmp_path: Path, inputs: int, neurons: int, first: Branching
) -> None:
    network = load_network(mlp(tmp_path / "n.onnx", [inputs, neurons, 2], seed=1))
    cases = [case([0.0] * inputs, [1.0] * inputs, below(0))]
    assert plan(Branching.AUTO, network, cases)[0] is first
