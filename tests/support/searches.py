"""Searches of branch and bound on small networks, without a job around them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.properties.types import Box, Case, Clause
from boundscope.protocol import Arithmetic, Counterexample, Method
from boundscope.search.task import SearchOutcome, SearchTask, Standing
from boundscope.sharding.ranks import RankGroup
from boundscope.sharding.weights import WholeWeights


def case(lower: Sequence[float], upper: Sequence[float], *clauses: Clause) -> Case:
    low, high = np.array(lower, np.float64), np.array(upper, np.float64)
    return Case(Box(tuple(map(str, lower)), tuple(map(str, upper)), low, high), clauses)


class Search:
    """A search task of a network, with a judge that evaluates points itself; subclasses say what searches."""

    def __init__(
        self,
        network: Path,
        cases: Sequence[Case],
        *,
        arithmetic: Arithmetic = Arithmetic.REAL,
        monitor: Monitor | None = None,
        ranks: RankGroup | None = None,
        judged: bool = True,
        **options: Any,
    ) -> None:
        self.network = load_network(network)
        self.monitor = monitor or Monitor(timeout_s=60.0)
        ledger = MemoryLedger()
        weights = WholeWeights(self.network.constants, ledger, torch.device("cpu"), torch.float64)
        self.engine = BoundEngine(
            self.network, weights, ledger, arithmetic=arithmetic, monitor=self.monitor, ranks=ranks
        )
        self.cases, self._judged = tuple(cases), judged
        self.standings: list[Standing] = []
        self.task = SearchTask(
            engine=self.engine,
            cases=self.cases,
            open=frozenset((c, k) for c, one in enumerate(cases) for k in range(len(one.clauses))),
            root=lambda number: self.engine.context(self.cases[number].box, Method.CROWN),
            judge=self.judge,
            report=self.standings.append,
            monitor=self.monitor,
            ranks=ranks or RankGroup(),
            **options,
        )

    def outputs(self, points: NDArray[np.float64]) -> NDArray[np.float64]:
        (info,) = self.network.inputs
        found = [
            self.network.evaluate({info.name: torch.from_numpy(point).reshape(info.shape)})
            for point in points
        ]
        name = self.network.outputs[0].name
        return np.stack([one[name].flatten().numpy() for one in found])

    def judge(self, number: int, points: NDArray[np.float64]) -> Counterexample | None:
        box = self.cases[number].box
        assert bool((points >= box.lower).all())
        assert bool((points <= box.upper).all())
        outputs = self.outputs(points)
        for index, clause in enumerate(self.cases[number].clauses):
            holds = np.ones(len(points), np.bool_)
            for one in clause.constraints:
                left = outputs[:, one.output_indices] @ one.output_coeffs
                left = left + points[:, one.input_indices] @ one.input_coeffs
                holds &= (left < float(one.bound)) if one.strict else (left <= float(one.bound))
            if self._judged and holds.any():
                point = tuple(map(repr, points[holds.argmax()].tolist()))
                return Counterexample(point, (), number, index, "", None)  # type: ignore[arg-type]
        return None

    def run(self) -> SearchOutcome:
        raise NotImplementedError
