"""The search of one case by activations: its open clauses share a pool of domains, of which the worst go first."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.protocol import Counterexample
from boundscope.search.activation_bounds import CaseBounds
from boundscope.search.activation_leaves import Leaves
from boundscope.search.activation_rounds import JUDGED, Children, Rounds
from boundscope.search.activation_rows import as_columns, kept_columns
from boundscope.search.activation_settings import SplitSettings
from boundscope.search.checkpoint import SearchState
from boundscope.search.rounds import Crew
from boundscope.search.spread import SpreadPool
from boundscope.search.task import Key, SearchTask

ACTIVE_CASES = 8  # whose contexts are held at a time


@dataclass
class Progress:
    """Of a search: domains bounded, the deepest split, and what is proven of clauses."""

    done: int = 0
    depth: int = 0
    lower: dict[Key, float] = field(default_factory=dict)
    proven: set[Key] = field(default_factory=set)


class _Room(TypedDict):
    """Where a pool may keep its domains."""

    limit_bytes: int
    folder: Path | None
    device: torch.device


class CaseSearch:
    """The open clauses of one case."""

    def __init__(
        self,
        task: SearchTask,
        crew: Crew,
        settings: SplitSettings,
        progress: Progress,
        check: Callable[[], None],
        number: int,
    ) -> None:
        """`progress` is the search's own; `check` is called between steps, and what it raises ends the work."""
        self._task, self._crew, self._settings, self._progress = task, crew, settings, progress
        self._number = number
        self._clauses = clauses = sorted(clause for one, clause in task.open if one == number)
        self._keys: list[Key] = [(number, clause) for clause in clauses]
        self.stuck: list[str] = []
        self._domains = np.zeros(len(clauses), np.int64)  # open ones of each clause
        self._lost = np.zeros(len(clauses), bool)  # has a domain that cannot be excluded
        self._root = np.full(len(clauses), -math.inf)
        case = task.cases[number]
        self._bounds = CaseBounds(
            task.root(number), [case.clauses[clause] for clause in clauses], settings, crew, check
        )
        self._rounds = Rounds(self._bounds, crew, settings.chunk_rows)
        self._leaves = Leaves(self._bounds, crew, settings.leaf, check)
        self._pool: SpreadPool | None = None
        self._in_hand: NDArray[np.float64] = np.zeros(0)  # bounds of the domains that are being split

    @property
    def open(self) -> int:
        return 1 if self._pool is None else len(self._pool) + len(self._in_hand)

    @property
    def finished(self) -> bool:
        return self._pool is not None and not len(self._pool)

    @property
    def _name(self) -> str:
        return f"activations {self._number}"

    def save(self, state: SearchState) -> None:
        """Add what is left of this case. A case that was not begun needs nothing."""
        if self._pool is None:
            return
        state.pools[self._name] = self._pool
        scales, span_scales = self._bounds.scales()
        for name, array in (
            ("domains", self._domains),
            ("lost", self._lost),
            ("root", self._root),
            ("scales", scales),
            ("span scales", span_scales),
            ("neurons", self._bounds.names()),
        ):
            state.arrays[f"{self._name} {name}"] = array.copy()

    def restore(self, state: SearchState) -> None:
        """Go on with a saved pool, where its columns are the same neurons; else the case begins anew."""
        if self._name not in state.pools:
            return

        def saved(name: str) -> NDArray[np.generic]:
            return state.arrays[f"{self._name} {name}"]

        names = self._bounds.names()
        if not np.array_equal(saved("neurons"), names) or len(saved("domains")) != len(self._keys):
            return
        self._bounds.scale(np.array(saved("scales"), np.float64), np.array(saved("span scales"), np.float64))
        small, wide = kept_columns(self._bounds)
        self._pool = SpreadPool.of(state.pools[self._name], self._task.ranks, small, wide, **self._room())
        self._domains = np.array(saved("domains"), np.int64)
        self._lost, self._root = np.array(saved("lost"), bool), np.array(saved("root"), np.float64)

    def end(self) -> None:
        """Give back what its domains took."""
        if self._pool is not None:
            self._pool.close()
        self._note(0, 0)

    def _note(self, payload_bytes: int, key_bytes: int) -> None:
        ledger = self._task.engine.ledger
        ledger.note("slopes", self._name, payload_bytes)
        ledger.note("other", self._name, key_bytes)

    def _room(self) -> _Room:
        return {
            "limit_bytes": max(1 << 20, self._task.memory_bytes // 2 // ACTIVE_CASES),
            "folder": self._task.folder,
            "device": self._bounds.device,
        }

    def note_bounds(self) -> None:
        """Record what is proven of each clause by now."""
        if self._pool is None:
            return
        waiting = self._pool.least()
        least = min([*self._in_hand, math.inf if waiting is None else waiting])
        for number, key in enumerate(self._keys):
            lower = (
                self._root[number]
                if least == math.inf or self._lost[number]
                else max(self._root[number], least)
            )
            progress = self._progress
            progress.lower[key] = max(progress.lower.get(key, -math.inf), float(lower))

    # ------------------------------------------------------------ rounds

    def round(self) -> Counterexample | None:
        """Bound the next domains; a counterexample where a minimiser is one."""
        if self._pool is None:
            return self._first_round()
        settings = self._settings
        size = self._task.batch or settings.chunk_rows * settings.batch_chunks // 2
        parents = self._pool.pop(size)
        self._in_hand = parents.priority
        np.subtract.at(self._domains, parents.small["clause"], 1)
        new = self._rounds.split(parents)
        depth = parents.small["depth"].repeat(len(new.lower) // len(parents))
        taken = self._taken(new, depth + 1)
        self._in_hand = parents.priority[:0]
        return taken

    def _first_round(self) -> Counterexample | None:
        new = self._rounds.root()
        self._pool = SpreadPool(self._task.ranks, *kept_columns(self._bounds), **self._room())
        self._root = new.lower.cpu().numpy().copy()
        return self._taken(new, np.zeros(len(new.lower), np.int32))

    def _taken(self, new: Children, depth: NDArray[np.int32]) -> Counterexample | None:
        """Put what is left open into the pool."""
        assert self._pool is not None
        progress = self._progress
        progress.done += len(new.lower)
        progress.depth = max(progress.depth, int(depth.max(initial=0)))
        left = ~(new.lower > 0)
        leaves = left & new.leaf
        if bool(leaves.any()):
            counterexample = self._at_leaves(new, leaves.nonzero().flatten())
            if counterexample is not None:
                return counterexample
            left &= ~leaves
        index = left.nonzero().flatten()
        clause = new.which[index].cpu().numpy().astype(np.int32)
        np.add.at(self._domains, clause, 1)
        kept = left.cpu().numpy()
        here = torch.from_numpy(np.flatnonzero(kept[new.has(self._task.ranks.rank)])).to(self._bounds.device)
        self._pool.push(
            {"clause": clause, "depth": depth[kept].astype(np.int32)},
            new.lower[index].cpu().numpy(),
            as_columns(new.block.of_rows(here), new.found.of_rows(here)),
            None if new.made is None else new.made[kept],
        )
        self._note(self._pool.payload_bytes, self._pool.key_bytes)
        for number, key in enumerate(self._keys):
            if not self._domains[number] and not self._lost[number]:
                progress.proven.add(key)
        return self._judged(new.points) if bool(left.any()) else None

    def _judged(self, points: Tensor) -> Counterexample | None:
        found: Counterexample | None = None
        if self._task.ranks.rank == 0:
            found = self._task.judge(self._number, points[:JUDGED].cpu().numpy())
        return self._task.ranks.of_rank_0(found)

    def _at_leaves(self, new: Children, at: Tensor) -> Counterexample | None:
        """Note which clauses cannot be excluded at the leaves `at`, whose points may be counterexamples."""
        stuck, points = self._leaves.decide(new, at)
        for clause, bound in stuck:
            self._lost[clause] = True
            self.stuck.append(
                f"clause {self._clauses[clause]} of case {self._number} cannot be excluded where the sides of all its "
                f"{len(self._bounds.neurons)} neurons are chosen{self._narrow}: the margin there is {bound:.3g}"
            )
        return self._judged(points) if len(points) else None

    @property
    def _narrow(self) -> str:
        many = len(self._bounds.spans)
        return f" and the ranges of {many} elements are as narrow as they get" if many else ""
