"""Splitting activations decides small networks rightly, alone or on several ranks, and stops when it is told to."""

from __future__ import annotations

import dataclasses
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

from boundscope.errors import CancelledError, DeadlineError
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.properties import read_property
from boundscope.properties.types import Clause, LinearConstraint
from boundscope.protocol import Arithmetic, Counterexample
from boundscope.search.activation_split import ActivationSearch, split_activations
from boundscope.search.checkpoint import SearchState
from boundscope.search.task import SearchOutcome
from boundscope.sharding.ranks import RankGroup
from boundscope.worker import process
from support.models import convnet, mlp, save
from support.planted import planted
from support.searches import Search as TaskSearch
from support.searches import case


def below(bound: float, *rows: list[float]) -> Clause:
    """row · y ≤ bound for every row at once; by default the first output."""
    return Clause(
        tuple(
            LinearConstraint(np.arange(len(row)), np.array(row), Fraction(bound)) for row in rows or ([1.0],)
        )
    )


class Search(TaskSearch):
    def run(self) -> SearchOutcome:
        return split_activations(self.task)


def tent(path: Path) -> Path:
    """y0 = |x| and y1 = x − |x|/2 of one input, from two neurons each of which there is twice, and a dead one."""
    nodes = [
        helper.make_node("Gemm", ["x", "W", "b"], ["z"], "both", transB=1),
        helper.make_node("Relu", ["z"], ["a"], "relu"),
        helper.make_node("Gemm", ["a", "V", "c"], ["y"], "sum", transB=1),
    ]
    constants = {
        "W": np.array([[1], [-1], [1], [-1], [1]], np.float32),
        "b": np.array([0, 0, 0, 0, -9], np.float32),
        "V": np.array([[0.5, 0.5, 0.5, 0.5, 7], [0.25, -0.75, 0.25, -0.75, 7]], np.float32),
        "c": np.zeros(2, np.float32),
    }
    return save(path, nodes, constants, [1, 1], [1, 2])


def test_a_thin_margin_is_proven_and_a_thin_violation_is_found(tmp_path: Path) -> None:
    network = tent(tmp_path / "n.onnx")
    proven = Search(network, [case([-1.0], [1.7], below(-1e-6))]).run()
    assert proven.proven == {(0, 0)}
    assert proven.counterexample is None
    violated = Search(network, [case([-1.0], [1.7], below(1e-7))]).run()
    assert violated.counterexample is not None
    assert abs(float(violated.counterexample.inputs[0])) <= 1e-7


def test_where_everything_is_held_and_nothing_proven_the_search_says_so(tmp_path: Path) -> None:
    """y ≤ 0 holds at 0 alone, which only the judge could tell."""
    outcome = Search(tent(tmp_path / "n.onnx"), [case([-1.0], [1.7], below(0.0))], judged=False).run()
    assert outcome.counterexample is None
    assert outcome.proven == frozenset()
    assert "all its 4 neurons" in outcome.stuck


def test_constraints_that_only_together_are_impossible_exclude_a_clause(tmp_path: Path) -> None:
    """y0 ≤ 0.1 and y0 + y1 ≥ 0.3 can each hold, and so can each pair but not both: |x| ≤ 0.1 and x + |x|/2 ≥ 0.3."""
    network = tent(tmp_path / "n.onnx")
    both = Clause(
        (
            LinearConstraint(np.array([0]), np.array([1.0]), Fraction(1, 10)),
            LinearConstraint(np.array([0, 1]), np.array([-1.0, -1.0]), Fraction(-3, 10)),
        )
    )
    outcome = Search(network, [case([-1.0], [1.0], both)]).run()
    assert outcome.proven == {(0, 0)}
    either = below(0.1, [1.0, 0.0], [-1.0, -1.0])
    assert Search(network, [case([-1.0], [1.0], either)]).run().counterexample is not None


@pytest.mark.parametrize("seed", [0, 8, 15, 16, 17, 23, 24, 31, 33, 39])
def test_planted_answers(tmp_path: Path, seed: int) -> None:
    """A hair to either side of the exact least margin the search is right, and on networks of Relus never stuck."""
    instance = planted(seed, tmp_path)
    network = load_network(instance.network)
    prop = read_property(
        instance.property, input_count=network.input_count, output_count=network.output_count
    )
    outcome = Search(instance.network, prop.cases).run()
    proven = sum(len(one.clauses) for one in prop.cases) == len(outcome.proven)
    assert (outcome.counterexample is not None) == instance.violated, str(instance)
    assert proven == (not instance.violated), str(instance)


@pytest.mark.parametrize("arithmetic", [Arithmetic.REAL, Arithmetic.FLOAT32])
def test_a_residual_convolutional_network(tmp_path: Path, arithmetic: Arithmetic) -> None:
    network = convnet(tmp_path / "n.onnx", seed=1)
    box = [-0.15] * 72, [0.15] * 72
    points = np.random.default_rng(0).uniform(-0.15, 0.15, (300, 72))
    first = Search(network, [case(*box, below(0.0, [1.0, 0.0, 0.0]))])
    least = float(first.outputs(points)[:, 0].min())
    found = Search(network, [case(*box, below(least, [1.0, 0.0, 0.0]))], arithmetic=arithmetic).run()
    assert found.counterexample is not None
    assert found.proven == frozenset()


def test_a_search_stops_when_it_is_told_to(tmp_path: Path) -> None:
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
    least = float(Search(network, [case(*box, below(0.0))]).outputs(grid).min())
    for batch in (1, 7, 300):
        search = Search(network, [case(*box, below(least - 0.05), below(least - 0.1))], batch=batch)
        assert search.run().proven == {(0, 0), (0, 1)}
        assert search.standings[-1].done > 2
        for standing in search.standings:
            assert all(lower <= 0.05 * (clause + 1) for (_, clause), lower in standing.lower.items())


def test_a_search_goes_on_from_its_state(tmp_path: Path) -> None:
    """Stopped after a few rounds and begun again with what it left, it ends with the same count of domains."""
    network = mlp(tmp_path / "n.onnx", [3, 16, 16, 1], seed=2)
    grid = np.array(list(itertools.product(np.linspace(-1, 1, 15), repeat=3)))
    box = [-1.0] * 3, [1.0] * 3
    least = float(Search(network, [case(*box, below(0.0))]).outputs(grid).min())
    cases = [case(*box, below(least - 0.02), below(least - 0.2))]
    whole = Search(network, cases, batch=2)
    assert whole.run().proven == {(0, 0), (0, 1)}
    first = Search(network, cases, batch=2)
    kept: list[SearchState] = []

    def between(search: ActivationSearch) -> None:
        kept.append(search.state())
        if len(kept) == 3:
            raise CancelledError("stopped")

    with pytest.raises(CancelledError):
        split_activations(first.task, between=between)
    second = Search(network, cases, batch=2)
    assert split_activations(second.task, kept[-1]).proven == {(0, 0), (0, 1)}
    assert second.standings[-1].done == whole.standings[-1].done


def _ranked(rank: int, size: int, folder: Path) -> None:
    """One rank of several, in its own process."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=size)
    found, held_bytes = _outcome_of(folder / "n.onnx", RankGroup.of_process_group())
    (folder / f"found{rank}").write_text(found)
    (folder / f"held{rank}").write_text(str(held_bytes))
    dist.barrier()
    dist.destroy_process_group()


def _outcome_of(network: Path, ranks: RankGroup) -> tuple[str, int]:
    """How a search stands after some rounds, to the last bit; its judge says that it found something then. And the most
    bytes of slopes and multipliers that waited on this rank."""
    judged, held_bytes = 0, 0

    def judge(number: int, points: NDArray[np.float64]) -> Counterexample | None:
        nonlocal judged
        judged += 1
        return Counterexample((), (), number, 0, "", None) if judged == 5 else None  # type: ignore[arg-type]

    box = [-1.0] * 5, [1.0] * 5
    search = Search(network, [case(*box, below(-1.0))], ranks=ranks, batch=80)

    def between(_: ActivationSearch) -> None:
        nonlocal held_bytes
        held_bytes = max(held_bytes, search.engine.ledger.sample(0.0).by_category["slopes"])

    outcome = split_activations(dataclasses.replace(search.task, judge=judge), between=between)
    last = search.standings[-1]
    return repr((outcome.lower, outcome.counterexample is None, last.done, last.open, last.depth)), held_bytes


def test_two_ranks_bound_the_same_domains(tmp_path: Path) -> None:
    """Each holds about half of what one rank holds of them."""
    network = mlp(tmp_path / "n.onnx", [5, 40, 40, 1], seed=3)
    torch_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        alone, alone_bytes = _outcome_of(network, RankGroup())
    finally:
        torch.set_num_threads(torch_threads)
    assert "{(0, 0): -" in alone
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    workers = [
        subprocess.Popen([sys.executable, __file__, str(rank), "2", str(tmp_path)], env=environment)
        for rank in range(2)
    ]
    assert [worker.wait(200) for worker in workers] == [0, 0]
    assert [(tmp_path / f"found{rank}").read_text() for rank in range(2)] == [alone, alone]
    held = [int((tmp_path / f"held{rank}").read_text()) for rank in range(2)]
    assert 0 < max(held) < 0.75 * alone_bytes, (held, alone_bytes)


if __name__ == "__main__":
    _ranked(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
    process.end(0)  # as a rank of a job: the interpreter's own way out may meet threads of gloo
