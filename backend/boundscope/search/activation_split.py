"""Complete search by splitting activations: domains are sides of neurons, bounded by β-CROWN (Wang et al. 2021,
arXiv 2103.06624), the worst first, all clauses of a case together.

Every rank keeps the keys of all domains and takes the same decisions. The slopes and multipliers of a domain lie on one
rank; they go to the rank that bounds it, which keeps those of its children.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.beta import Aims, BetaSearch, BetaSettings, Neurons, RowBlock
from boundscope.bounds.spans import Ranges, Spans, splits_at_points
from boundscope.protocol import Counterexample
from boundscope.search.branching import Candidates, all_candidates, children, filtered
from boundscope.search.checkpoint import SearchState
from boundscope.search.leaf import solve_leaf
from boundscope.search.pool import Column
from boundscope.search.rounds import Crew, agreed
from boundscope.search.spread import SpreadPool, Taken
from boundscope.search.task import Key, SearchOutcome, SearchTask, Standing

REPORT_S = 0.4
LEAST_ROWS = 4
KEPT_BYTES = 16  # an element and row of a search pass, with its gradient
LINES = 4  # as many more for an element whose lines are each row's own
ACTIVE_CASES = 8  # whose contexts are held at a time
JUDGED = 8  # minimisers a round
FIXED_CHUNKS = 4  # of a round that is the same for any number of ranks
LARGEST_STORED = 60000.0  # of a multiplier, in float16
ROOT = BetaSettings(steps=30, least_steps=30, alpha_rate=0.25)
DOMAIN = BetaSettings()
IDLE = BetaSettings(steps=1, least_steps=1)
LEAF = BetaSettings(steps=400, least_steps=400, decay=0.99)


@dataclass(frozen=True)
class SplitSettings:
    """Of the search: `root` before anything is split, `domain` of each domain, `leaf` where nothing is left to split.

    `candidates` neurons of each domain are compared by bounds of their children; `chunk_rows` rows are carried
    together, and `batch_chunks` chunks make a round.
    """

    root: BetaSettings = ROOT
    domain: BetaSettings = DOMAIN
    leaf: BetaSettings = LEAF
    candidates: int = 6
    chunk_rows: int = 64
    batch_chunks: int = 2


@dataclass
class _Part:
    """Children of a chunk, and what is known of them. Tensors have one row a child."""

    block: RowBlock
    lower: Tensor
    found: Candidates
    points: Tensor  # minimisers of the worst, [k, n]


@dataclass
class _Children:
    """Those of a round: what every rank knows of all D of them, and the rows of those that this rank has, in order.

    `made` is the rank [D] that has the rows of each child; None: every rank has all of them.
    """

    which: Tensor
    lower: Tensor
    leaf: Tensor  # nothing is left to split
    points: Tensor  # minimisers of the worst of chunks, [k, n]
    made: NDArray[np.int64] | None
    block: RowBlock
    found: Candidates

    def has(self, rank: int) -> NDArray[np.bool_]:
        """[D] whether the rank has the rows of a child."""
        if self.made is None:
            return np.ones(len(self.lower), np.bool_)
        mark: NDArray[np.bool_] = self.made == rank
        return mark


@dataclass
class _Progress:
    done: int = 0
    depth: int = 0
    lower: dict[Key, float] = field(default_factory=dict)
    proven: set[Key] = field(default_factory=set)


class ActivationSearch:
    """One search of one task."""

    def __init__(
        self,
        task: SearchTask,
        settings: SplitSettings | None = None,
        state: SearchState | None = None,
        between: Callable[[ActivationSearch], None] | None = None,
    ) -> None:
        """`state` is of a search of the same task, which goes on; `between` is called between rounds, when `state` may
        be asked for."""
        self._task, self._state, self._between = task, state, between
        ranks = task.ranks if task.engine.ranks.splits_rows else task.ranks.with_all_rows()
        self.crew = Crew(ranks, task.monitor, collective=task.engine.weights.collective)
        self._settings = self._fitting(settings or SplitSettings())
        self._progress = _Progress()
        self._running: list[_CaseSearch] = []
        self._reported_s = -math.inf

    def _fitting(self, settings: SplitSettings) -> SplitSettings:
        """Chunks as small as the memory budget asks for: autograd keeps the coefficients of a pass."""
        engine, ranks = self._task.engine, self._task.ranks
        if self._task.force_synchronous:
            return dataclasses.replace(settings, batch_chunks=FIXED_CHUNKS)
        if self.crew.apart:
            settings = dataclasses.replace(settings, batch_chunks=max(settings.batch_chunks, ranks.size))
        limit = engine.ledger.limit_bytes
        if limit is None:
            return settings
        tensors = engine.network.tensors.items()
        elements = sum(info.size for name, info in tensors if name not in engine.network.constants)
        for node in engine.network.nodes:  # lines of each row's own
            if splits_at_points(node, engine.network):
                elements += LINES * sum(engine.network.tensors[name].size for name in node.outputs)
        free = (limit - engine.ledger.total_bytes) // 2
        rows = max(LEAST_ROWS, free // (KEPT_BYTES * max(1, elements)) // 2 * 2)
        return dataclasses.replace(settings, chunk_rows=ranks.least(min(settings.chunk_rows, rows)))

    def run(self) -> SearchOutcome:
        """
        Raises:
            DeadlineError, CancelledError, OutOfMemoryError: on all ranks together.
            BoundError: a margin is NaN.
        """
        for number, clause in sorted(self._task.open):
            if not self._task.cases[number].clauses[clause].constraints:
                return self._outcome(None, f"clause {clause} of case {number} has no constraint")
        if self._state is not None:
            self._go_on_from(self._state)
        waiting = sorted({case for case, _ in self._task.open - self._progress.proven})
        stuck: list[str] = []
        while waiting or self._running:
            while waiting and len(self._running) < ACTIVE_CASES:
                number = waiting.pop(0)
                clauses = sorted(clause for one, clause in self._task.open if one == number)
                case = _CaseSearch(self, number, clauses)
                if self._state is not None:
                    case.restore(self._state)
                self._running.append(case)
            for case in list(self._running):
                counterexample = case.round()
                self._report()
                if counterexample is not None:
                    return self._outcome(counterexample)
                if case.finished:
                    stuck += case.stuck
                    case.end()
                    self._running.remove(case)
                if self._between is not None:
                    self._between(self)
        return self._outcome(None, "; ".join(dict.fromkeys(stuck)))

    def state(self) -> SearchState:
        """What is left to do, between rounds; pools in it are the search's own."""
        progress = self._progress
        found = SearchState(counters={"done": progress.done, "depth": progress.depth})
        found.arrays["proven"] = np.array(sorted(progress.proven), np.int64).reshape(-1, 2)
        for case in self._running:
            case.save(found)
        return found

    def _go_on_from(self, state: SearchState) -> None:
        self._progress.done, self._progress.depth = int(state.counters["done"]), int(state.counters["depth"])
        self._progress.proven |= {(int(case), int(clause)) for case, clause in state.arrays["proven"]}

    def _outcome(self, counterexample: Counterexample | None, stuck: str = "") -> SearchOutcome:
        self._report(now=True)
        progress = self._progress
        return SearchOutcome(frozenset(progress.proven), dict(progress.lower), counterexample, stuck)

    def _report(self, *, now: bool = False) -> None:
        monitor = self._task.monitor
        if not now and monitor.now_s - self._reported_s < REPORT_S:
            return
        self._reported_s = monitor.now_s
        for case in self._running:
            case.note_bounds()
        progress = self._progress
        self._task.report(
            Standing(
                {key: low for key, low in progress.lower.items() if key not in progress.proven},
                frozenset(progress.proven),
                progress.done,
                sum(case.open for case in self._running),
                progress.depth,
            )
        )

    def check(self) -> None:
        """Stop where the monitor says so."""
        self._report()
        self.crew.check()


class _Room(TypedDict):
    """Where a pool may keep its domains."""

    limit_bytes: int
    folder: Path | None
    device: torch.device


def _joined(parts: list[_Part]) -> _Part:
    if len(parts) == 1:
        return parts[0]
    found = [part.found for part in parts]
    return _Part(
        RowBlock.joined([part.block for part in parts]),
        torch.cat([part.lower for part in parts]),
        Candidates(torch.cat([one.column for one in found]), torch.cat([one.above for one in found])),
        torch.cat([part.points for part in parts]),
    )


class _CaseSearch:
    """The open clauses of one case."""

    def __init__(self, search: ActivationSearch, number: int, clauses: list[int]) -> None:
        self._all, self._number, self._clauses = search, number, clauses
        self._task, self._settings = search._task, search._settings
        self._keys: list[Key] = [(number, clause) for clause in clauses]
        self.stuck: list[str] = []
        self._domains = np.zeros(len(clauses), np.int64)  # open ones of each clause
        self._lost = np.zeros(len(clauses), bool)  # has a domain that cannot be excluded
        self._root = np.full(len(clauses), -math.inf)
        context = self._task.root(number)
        self._context = context
        case = self._task.cases[number]
        self._aims = Aims(context, [case.clauses[clause] for clause in clauses])
        self._neurons, self._spans = Neurons.of(context), Spans.of(context)
        self._search = self._begun()
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
        for name, array in (
            ("domains", self._domains),
            ("lost", self._lost),
            ("root", self._root),
            ("scales", self._neurons.scales.cpu().numpy()),
            ("span scales", self._spans.scales.cpu().numpy()),
            ("neurons", self._columns()),
        ):
            state.arrays[f"{self._name} {name}"] = array.copy()

    def restore(self, state: SearchState) -> None:
        """Go on with a saved pool, where its columns are the same neurons; else the case begins anew."""
        if self._name not in state.pools:
            return

        def saved(name: str) -> NDArray[np.generic]:
            return state.arrays[f"{self._name} {name}"]

        if not np.array_equal(saved("neurons"), self._columns()) or len(saved("domains")) != len(self._keys):
            return
        scales = torch.from_numpy(np.array(saved("scales"), np.float64)).to(self._device)
        self._neurons = dataclasses.replace(self._neurons, scales=scales)
        scales = torch.from_numpy(np.array(saved("span scales"), np.float64)).to(self._device)
        self._spans = dataclasses.replace(self._spans, scales=scales)
        self._search = self._begun()
        small, wide = self._kept()
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

    def _columns(self) -> NDArray[np.int64]:
        """Which neurons and elements of spans the columns are: the place of the node, or of the tensor below zero, and
        the flat index, [M + G, 2]."""
        found = [np.zeros((0, 2), np.int64)]
        for place, node in enumerate(self._neurons.nodes):
            index = self._context.free_slopes(node).cpu().numpy()
            found.append(np.stack([np.full(len(index), place), index], 1))
        for place, elements in enumerate(self._spans.index):
            index = elements.cpu().numpy()
            found.append(np.stack([np.full(len(index), -1 - place), index], 1))
        return np.concatenate(found)

    def _begun(self) -> BetaSearch:
        spans = self._spans if len(self._spans) else None
        return BetaSearch(self._context, self._neurons, self._aims, self._all.check, spans)

    @property
    def _many(self) -> int:
        """Candidates of a domain."""
        return min(self._settings.candidates, max(len(self._neurons) + len(self._spans), 1))

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
            progress = self._all._progress
            progress.lower[key] = max(progress.lower.get(key, -math.inf), float(lower))

    def round(self) -> Counterexample | None:
        """Bound the next domains; a counterexample where a minimiser is one."""
        if self._pool is None:
            return self._first_round()
        settings = self._settings
        size = self._task.batch or settings.chunk_rows * settings.batch_chunks // 2
        parents = self._pool.pop(size)
        self._in_hand = parents.priority
        np.subtract.at(self._domains, parents.small["clause"], 1)
        new = self._split_all(parents)
        depth = parents.small["depth"].repeat(len(new.lower) // len(parents))
        taken = self._taken(new, depth + 1)
        self._in_hand = parents.priority[:0]
        return taken

    # ------------------------------------------------------------ the root

    @property
    def _device(self) -> torch.device:
        return self._context.device

    def _first_round(self) -> Counterexample | None:
        result: list[_Part] = []
        agreed(self._task.ranks, lambda: result.append(self._bound_root()))
        (part,) = result
        self._pool = SpreadPool(self._task.ranks, *self._kept(), **self._room())
        new = self._told(part, part.block.which, np.zeros(1, np.int64), None)
        self._root = new.lower.cpu().numpy().copy()
        return self._taken(new, np.zeros(len(new.lower), np.int32))

    def _kept(self) -> tuple[dict[str, Column], dict[str, Column]]:
        """Columns of a domain: those that every rank holds, and those that one does."""
        neurons = len(self._neurons)
        many = self._many
        return {"clause": Column(np.int32), "depth": Column(np.int32)}, {
            "state": Column(np.int8, (neurons,)),
            "value": Column(np.float16, (neurons,)),
            "weight": Column(np.float32, (self._aims.width,)),
            "found": Column(np.int32, (many,)),
            "above": Column(np.float32, (many,)),
            **self._columns_of_ranges(),
        }

    def _columns_of_ranges(self) -> dict[str, Column]:
        if not len(self._spans):
            return {}
        elements, parameters = (len(self._spans),), (len(self._spans.starts),)
        return {
            "low": Column(np.float32, elements),
            "high": Column(np.float32, elements),
            "multiplier": Column(np.float16, elements),
            "parameter": Column(np.float16, parameters),
        }

    def _room(self) -> _Room:
        return {
            "limit_bytes": max(1 << 20, self._task.memory_bytes // 2 // ACTIVE_CASES),
            "folder": self._task.folder,
            "device": self._device,
        }

    def _bound_root(self) -> _Part:
        """Every clause by the best mixture of its constraints."""
        neurons, aims = self._neurons, self._aims
        which, weights = aims.alone()
        block = self._unsplit(which, weights)
        first = self._search.prove(block)
        self._neurons = neurons.scaled(first.coefficients)
        if first.at_spans is not None:
            self._spans = self._spans.scaled(first.at_spans)
        self._search = self._begun()
        best = [
            int(torch.where(which == clause, first.lower, -torch.inf).argmax())
            for clause in range(len(self._clauses))
        ]
        index = torch.tensor(best, device=self._device)
        if not len(neurons) + len(self._spans):
            return self._known(block.of_rows(index), first.lower[index])
        found = self._search.search(block.of_rows(index), self._settings.root)
        return self._known(found, first.lower[index])

    def _unsplit(self, which: Tensor, weights: Tensor) -> RowBlock:
        count, many = len(which), len(self._neurons)
        return RowBlock(
            which,
            torch.zeros(count, many, dtype=torch.int8, device=self._device),
            self._neurons.starts.expand(count, -1).clone(),
            weights,
            self._spans.whole(count) if len(self._spans) else None,
        )

    # ------------------------------------------------------------ domains

    def _brought(
        self, parents: Taken, chunks: list[NDArray[np.int64]], dealt: NDArray[np.int64]
    ) -> tuple[RowBlock, Candidates]:
        """The rows of the chunks that are dealt to this rank, one chunk after the other."""
        ranks = self._task.ranks
        wanted = [np.arange(len(parents))] * ranks.size
        if self._all.crew.apart:
            wanted = [
                np.concatenate([np.zeros(0, np.int64), *(chunks[k] for k in np.flatnonzero(dealt == rank))])
                for rank in range(ranks.size)
            ]
        wide = parents.bring(wanted)
        clause = parents.small["clause"][wanted[ranks.rank]]

        def tensor(array: NDArray[np.generic]) -> Tensor:
            return torch.from_numpy(array).to(self._device)

        block = RowBlock(
            tensor(clause).long(),
            tensor(wide["state"]),
            tensor(wide["value"]).float(),
            tensor(wide["weight"]),
            Ranges(
                tensor(wide["low"]),
                tensor(wide["high"]),
                tensor(wide["multiplier"]).float(),
                tensor(wide["parameter"]).float(),
            )
            if len(self._spans)
            else None,
        )
        return block, Candidates(tensor(wide["found"]).long(), tensor(wide["above"]))

    def _split_all(self, parents: Taken) -> _Children:
        """Split domains and bound their children, chunk by chunk, over the ranks."""
        crew, count = self._all.crew, len(parents)
        step = max(1, self._settings.chunk_rows // 2)
        chunks = [np.arange(first, min(first + step, count)) for first in range(0, count, step)]
        dealt = crew.deal(len(chunks))
        block, found = self._brought(parents, chunks, dealt)
        lower = torch.from_numpy(parents.priority).to(self._device)
        levels = self._levels(count, found.column)
        parts: list[_Part] = []

        def work() -> None:
            first = 0
            for number in crew.turns(dealt):
                if number is None:
                    self._split_for_others(levels)
                    continue
                rows = torch.arange(first, first + len(chunks[number]), device=self._device)
                first += len(rows)
                own = torch.from_numpy(chunks[number]).to(self._device)
                parts.append(self._split(block.of_rows(rows), found.of_rows(rows), lower[own], levels))

        agreed(self._task.ranks, work)
        clause = torch.from_numpy(parents.small["clause"]).to(self._device).long()
        made = np.repeat(dealt, [len(chunk) * 2**levels for chunk in chunks]) if crew.apart else None
        part = _joined(parts) if parts else self._no_part(found)
        return self._told(part, clause.repeat_interleave(2**levels), dealt, made)

    def _told(
        self, part: _Part, which: Tensor, dealt: NDArray[np.int64], made: NDArray[np.int64] | None
    ) -> _Children:
        """What all ranks know of children of `which` clauses, from what each has: one sum of what each fills in.

        Where every rank has everything, rank 0 tells: processors may differ in a last bit, and must not in a decision.

        Args:
            dealt: the ranks of the chunks, of which `part` has one point each.
            made: the ranks of children; None: every rank has all of them.
        """
        rank, device, count = self._task.ranks.rank, self._device, len(which)
        bounds = torch.zeros(2, count, dtype=torch.float64, device=device)
        points = torch.zeros(
            min(len(dealt), JUDGED), part.points.shape[1], dtype=torch.float64, device=device
        )
        if made is not None or rank == 0:
            mine = slice(None) if made is None else torch.from_numpy(np.flatnonzero(made == rank)).to(device)
            bounds[0, mine] = part.lower
            bounds[1, mine] = (part.found.column[:, 0] < 0).double()
            chunks = np.arange(len(dealt)) if made is None else np.flatnonzero(dealt == rank)
            for place, chunk in enumerate(chunks[chunks < len(points)].tolist()):
                points[chunk] = part.points[place]
        told = self._task.ranks.sum_all(torch.cat([bounds.flatten(), points.flatten()]))
        lower, leaf = told[: 2 * count].reshape(2, count)
        seen = told[2 * count :].reshape(points.shape)
        return _Children(which, lower, leaf > 0, seen, made, part.block, part.found)

    def _no_part(self, found: Candidates) -> _Part:
        """Of a rank that no chunk was dealt to."""
        none = torch.zeros(0, dtype=torch.int64, device=self._device)
        width = sum(info.size for info in self._task.engine.network.inputs)
        return _Part(
            self._unsplit(none, torch.zeros(0, self._aims.width, device=self._device)),
            torch.zeros(0, dtype=torch.float64, device=self._device),
            found.of_rows(none),
            torch.zeros(0, width, dtype=torch.float64, device=self._device),
        )

    def _split_for_others(self, levels: int) -> None:
        """Take part in the passes of other ranks' chunks, with the whole box, whose bounds nobody asked for."""
        which, weights = self._aims.alone()
        column = torch.arange(min(self._many, len(self._neurons) + len(self._spans)), device=self._device)[
            None
        ]
        of_span = (column - len(self._neurons)).clamp(min=0)
        middle = (self._spans.lower + self._spans.upper).float() / 2
        above = middle[of_span] if len(self._spans) else torch.zeros(column.shape, device=self._device)
        found = Candidates(column, torch.where(column >= len(self._neurons), above, 0.0))
        lower = torch.full((1,), -torch.inf, dtype=torch.float64, device=self._device)
        self._split(self._unsplit(which[:1], weights[:1]), found, lower, levels)

    def _levels(self, count: int, column: Tensor) -> int:
        """How many neurons `count` domains are split at at once, so that a first round fills a chunk; `column` is of
        those that this rank bounds."""
        wanted = int(math.log2(max(2, self._settings.chunk_rows // 2 / max(1, count))))
        if wanted == 1:
            return 1
        full = self._task.ranks.least(int((column >= 0).all(0).sum()))
        return max(1, min(wanted, full))

    def _split(self, block: RowBlock, found: Candidates, lower: Tensor, levels: int) -> _Part:
        self._all.check()
        order = filtered(self._search, block, found, lower)
        for level in range(levels):
            column, above = (one[:, level].repeat_interleave(2**level) for one in (order.column, order.above))
            block = children(self._neurons, block, column, above, self._spans)
        one = block.of_rows(torch.zeros(1, dtype=torch.int64, device=self._device))
        with self._all.crew.passes(lambda: self._search.search(one, IDLE)):
            better = self._search.search(block, self._settings.domain)
        return self._known(better, lower.repeat_interleave(2**levels))

    def _known(self, block: RowBlock, parent: Tensor) -> _Part:
        """Prove a block, and choose where to split its rows next."""
        proven = self._search.prove(block)
        lower = torch.fmax(proven.lower, parent)
        points = self._search.points(block)
        found = all_candidates(self._search, block, proven, points, self._many)
        worst = lower.argmin()
        return _Part(block, lower, found, self._minimiser(proven.at_inputs, worst)[None])

    def _minimiser(self, at_inputs: dict[str, Tensor], row: Tensor) -> Tensor:
        """Where the function that bounds a row is least in the box, [n] float64."""
        parts = []
        for info in self._task.engine.network.inputs:
            interval = self._context.intervals[info.name]
            lower, upper = interval.lower.flatten(), interval.upper.flatten()
            if info.name in at_inputs:
                coefficients = at_inputs[info.name][row]
                parts.append(torch.where(coefficients >= 0, lower, upper))
            else:
                parts.append((lower + upper) / 2)
        return torch.cat(parts)

    def _taken(self, new: _Children, depth: NDArray[np.int32]) -> Counterexample | None:
        """Put what is left open into the pool."""
        assert self._pool is not None
        progress = self._all._progress
        progress.done += len(new.lower)
        progress.depth = max(progress.depth, int(depth.max(initial=0)))
        left = ~(new.lower > 0)
        leaves = left & new.leaf
        if bool(leaves.any()):
            counterexample = self._at_leaves(new, leaves)
            if counterexample is not None:
                return counterexample
            left &= ~leaves
        index = left.nonzero().flatten()
        clause = new.which[index].cpu().numpy().astype(np.int32)
        np.add.at(self._domains, clause, 1)
        kept = left.cpu().numpy()
        here = torch.from_numpy(np.flatnonzero(kept[new.has(self._task.ranks.rank)])).to(self._device)
        block, found = new.block.of_rows(here), new.found.of_rows(here)
        self._pool.push(
            {"clause": clause, "depth": depth[kept].astype(np.int32)},
            new.lower[index].cpu().numpy(),
            {
                "state": block.states.cpu().numpy(),
                "value": block.values.clamp(max=LARGEST_STORED).half().cpu().numpy(),
                "weight": block.weights.cpu().numpy(),
                "found": found.column.cpu().numpy().astype(np.int32),
                "above": found.above.cpu().numpy(),
                **_as_columns(block.ranges),
            },
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

    def _at_leaves(self, new: _Children, leaves: Tensor) -> Counterexample | None:
        """Domains whose neurons are all held: their network is linear, and a linear program decides."""
        ranks, crew = self._task.ranks, self._all.crew
        at = leaves.nonzero().flatten()
        has = new.has(ranks.rank)
        mine = torch.from_numpy(np.flatnonzero(has[at.cpu().numpy()])).to(self._device)
        here = torch.from_numpy(np.flatnonzero(leaves.cpu().numpy()[has])).to(self._device)
        block = new.block.of_rows(here)
        if crew.in_step:  # the passes of a leaf are made by all ranks together
            block = self._on_all_ranks(block, mine, new.which[at])
            mine = torch.arange(len(at), device=self._device)
        told = torch.zeros(
            len(at), 2 + sum(info.size for info in self._task.engine.network.inputs), dtype=torch.float64
        ).to(self._device)

        def work() -> None:
            lower, points = self._leaves(block, new.lower[at[mine]])
            for row, bound, point in zip(mine.tolist(), lower, points, strict=True):
                told[row, 0] = bound
                if point is not None:
                    told[row, 1] = 1.0
                    told[row, 2:] = torch.from_numpy(point)

        agreed(ranks, work)
        if ranks.rank and (crew.in_step or not crew.apart):
            told.zero_()  # rank 0 tells what all have
        ranks.sum_all(told)
        for row in (~(told[:, 0] > 0)).nonzero().flatten().tolist():
            clause = int(new.which[at[row]])
            self._lost[clause] = True
            self.stuck.append(
                f"clause {self._clauses[clause]} of case {self._number} cannot be excluded where the sides of all its "
                f"{len(self._neurons)} neurons are chosen{self._narrow}: the margin there is {float(told[row, 0]):.3g}"
            )
        points = told[told[:, 1] > 0, 2:]
        return self._judged(points) if len(points) else None

    @property
    def _narrow(self) -> str:
        many = len(self._spans)
        return f" and the ranges of {many} elements are as narrow as they get" if many else ""

    def _on_all_ranks(self, block: RowBlock, at: Tensor, which: Tensor) -> RowBlock:
        """Rows of clauses `which` on every rank, of which each brings some, `at` their places."""

        def all_of(part: Tensor) -> Tensor:
            whole = part.new_zeros(len(which), part.shape[1])
            whole[at] = part
            return self._task.ranks.sum_all(whole)

        ranges = None if block.ranges is None else block.ranges.mapped(all_of)
        return RowBlock(which, all_of(block.states), all_of(block.values), all_of(block.weights), ranges)

    def _leaves(self, block: RowBlock, lower: Tensor) -> tuple[Tensor, list[NDArray[np.float64] | None]]:
        """Bounds of leaves, and for each the point where its bound is reached, unless it is proven."""
        found = lower.clone()
        points: list[NDArray[np.float64] | None] = [None] * len(block)
        for row in range(len(block)):
            self._all.check()
            one = block.of_rows(torch.tensor([row], device=self._device))
            answer = None if len(self._spans) else solve_leaf(self._search, one)
            if answer is not None:
                found[row] = torch.fmax(found[row], self._search.prove(answer.block).lower[0])
                if not float(found[row]) > 0:
                    points[row] = answer.point
            else:
                better = self._search.search(one, self._settings.leaf)
                found[row] = torch.fmax(found[row], self._search.prove(better).lower[0])
        return found, points


def _as_columns(ranges: Ranges | None) -> dict[str, NDArray[np.generic]]:
    if ranges is None:
        return {}
    return {
        "low": ranges.low.cpu().numpy(),
        "high": ranges.high.cpu().numpy(),
        "multiplier": ranges.multipliers.clamp(-LARGEST_STORED, LARGEST_STORED).half().cpu().numpy(),
        "parameter": ranges.thetas.half().cpu().numpy(),
    }


def split_activations(
    task: SearchTask,
    state: SearchState | None = None,
    between: Callable[[ActivationSearch], None] | None = None,
) -> SearchOutcome:
    """Search a task by splitting activations. See ActivationSearch for the arguments and for what it raises."""
    return ActivationSearch(task, None, state, between).run()
