"""Complete search by splitting activations: domains are sides of neurons, bounded by β-CROWN (Wang et al. 2021,
arXiv 2103.06624), the worst first, all clauses of a case together.

Every rank keeps the same pool and takes the same decisions; each bounds its own chunks of domains. Chunks are the same
whatever the number of ranks, and so are the bounds.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.bounds.beta import Aims, BetaSearch, BetaSettings, Neurons, RowBlock
from boundscope.errors import BoundscopeError, CancelledError, DeadlineError, OutOfMemoryError
from boundscope.protocol import Counterexample
from boundscope.search.branching import Candidates, candidates, children, filtered
from boundscope.search.checkpoint import SearchState
from boundscope.search.leaf import solve_leaf
from boundscope.search.pool import Column, DomainPool
from boundscope.search.task import Key, SearchOutcome, SearchTask, Standing

REPORT_S = 0.4
LEAST_ROWS = 4
KEPT_BYTES = 16  # an element and row of a search pass, with its gradient
ACTIVE_CASES = 8  # whose contexts are held at a time
JUDGED = 8  # minimisers a round
LARGEST_STORED = 60000.0  # of a multiplier, in float16
ROOT = BetaSettings(steps=30, least_steps=30, alpha_rate=0.25)
DOMAIN = BetaSettings()
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
        self._settings = self._fitting(settings or SplitSettings())
        self._progress = _Progress()
        self._running: list[_CaseSearch] = []
        self._reported_s = -math.inf

    def _fitting(self, settings: SplitSettings) -> SplitSettings:
        """Chunks as small as the memory budget asks for: autograd keeps the coefficients of a pass."""
        engine = self._task.engine
        limit = engine.ledger.limit_bytes
        if limit is None:
            return settings
        tensors = engine.network.tensors.items()
        elements = sum(info.size for name, info in tensors if name not in engine.network.constants)
        free = (limit - engine.ledger.total_bytes) // 2
        rows = max(LEAST_ROWS, free // (KEPT_BYTES * max(1, elements)) // 2 * 2)
        rows = self._task.ranks.of_rank_0(min(settings.chunk_rows, rows))
        return dataclasses.replace(settings, chunk_rows=rows)

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

    # ------------------------------------------------------------ ranks

    def check(self) -> None:
        """Stop where the monitor says so: on all ranks together where weights are gathered from all of them."""
        self._report()
        if not self._task.engine.weights.collective:
            self._task.monitor.check()
            return
        error: BoundscopeError | None = None
        try:
            self._task.monitor.check()
        except (DeadlineError, CancelledError) as caught:
            error = caught
        self._task.ranks.agree(error)

    def agreed(self, work: Callable[[], None]) -> None:
        """Do this rank's work; what one rank raises, all ranks raise."""
        error: BoundscopeError | None = None
        try:
            work()
        except (torch.OutOfMemoryError, MemoryError) as caught:
            error = OutOfMemoryError(str(caught))
        except BoundscopeError as caught:
            error = caught
        self._task.ranks.agree(error)

    def mine(self, chunk: int) -> bool:
        return self._task.engine.weights.collective or self._task.ranks.owns(chunk)

    def shared(self, tensor: Tensor) -> Tensor:
        """The sum over ranks of what each filled in."""
        return tensor if self._task.engine.weights.collective else self._task.ranks.sum_parts(tensor)


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
        neurons = Neurons.of(context)
        self._search = BetaSearch(context, neurons, self._aims, search.check)
        self._neurons = neurons
        self._pool: DomainPool | None = None
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
        self._search = BetaSearch(self._context, self._neurons, self._aims, self._all.check)
        self._pool = state.pools[self._name]
        self._domains = np.array(saved("domains"), np.int64)
        self._lost, self._root = np.array(saved("lost"), bool), np.array(saved("root"), np.float64)

    def _columns(self) -> NDArray[np.int64]:
        """Which neurons the columns are: the place of the node and the flat index, [M, 2]."""
        found = [np.zeros((0, 2), np.int64)]
        for place, node in enumerate(self._neurons.nodes):
            index = self._context.free_slopes(node).cpu().numpy()
            found.append(np.stack([np.full(len(index), place), index], 1))
        return np.concatenate(found)

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
        columns, lower = self._pool.pop(size)
        self._in_hand = lower
        clause = columns["clause"]
        np.subtract.at(self._domains, clause, 1)
        block = self._block_of(columns)
        found = Candidates(
            torch.from_numpy(columns["found"].astype(np.int64)).to(self._device),
            torch.from_numpy(columns["above"]).to(self._device),
        )
        part = self._split_all(block, found, torch.from_numpy(lower).to(self._device))
        depth = columns["depth"].repeat(len(part.lower) // len(lower))
        taken = self._taken(part, depth + 1)
        self._in_hand = lower[:0]
        return taken

    # ------------------------------------------------------------ the root

    @property
    def _device(self) -> torch.device:
        return self._context.device

    def _first_round(self) -> Counterexample | None:
        result: list[_Part] = []
        self._all.agreed(lambda: result.append(self._bound_root()))
        (part,) = result
        neurons = len(self._neurons)
        many = min(self._settings.candidates, max(neurons, 1))
        self._pool = DomainPool(
            {
                "clause": Column(np.int32),
                "depth": Column(np.int32),
                "state": Column(np.int8, (neurons,)),
                "value": Column(np.float16, (neurons,)),
                "weight": Column(np.float32, (self._aims.width,)),
                "found": Column(np.int32, (many,)),
                "above": Column(np.float32, (many,)),
            },
            limit_bytes=max(1 << 20, self._task.memory_bytes // 2 // ACTIVE_CASES),
            folder=self._task.folder,
        )
        self._root = part.lower.cpu().numpy().copy()
        return self._taken(part, np.zeros(len(part.lower), np.int32))

    def _bound_root(self) -> _Part:
        """Every clause by the best mixture of its constraints."""
        neurons, aims = self._neurons, self._aims
        which, weights = aims.alone()
        block = self._unsplit(which, weights)
        first = self._search.prove(block)
        neurons = self._neurons = neurons.scaled(first.coefficients)
        self._search = BetaSearch(self._context, neurons, aims, self._all.check)
        best = [
            int(torch.where(which == clause, first.lower, -torch.inf).argmax())
            for clause in range(len(self._clauses))
        ]
        index = torch.tensor(best, device=self._device)
        if not len(neurons):
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
        )

    # ------------------------------------------------------------ domains

    def _block_of(self, columns: dict[str, NDArray[np.generic]]) -> RowBlock:
        def tensor(name: str) -> Tensor:
            return torch.from_numpy(columns[name]).to(self._device)

        return RowBlock(tensor("clause").long(), tensor("state"), tensor("value").float(), tensor("weight"))

    def _split_all(self, block: RowBlock, found: Candidates, lower: Tensor) -> _Part:
        """Split domains and bound their children, chunk by chunk, over the ranks."""
        step = max(1, self._settings.chunk_rows // 2)
        levels = self._levels(found.column)
        many = 2**levels
        count = len(block) * many
        width = sum(info.size for info in self._task.engine.network.inputs)
        chunks = [slice(first, min(first + step, len(block))) for first in range(0, len(block), step)]
        whole = _Part(
            RowBlock(
                block.which.repeat_interleave(many),
                torch.zeros(count, len(self._neurons), dtype=torch.int8, device=self._device),
                torch.zeros(count, len(self._neurons), device=self._device),
                torch.zeros(count, self._aims.width, device=self._device),
            ),
            torch.zeros(count, dtype=torch.float64, device=self._device),
            Candidates(
                torch.zeros(count, found.column.shape[1], dtype=torch.int64, device=self._device),
                torch.zeros(count, found.column.shape[1], device=self._device),
            ),
            torch.zeros(len(chunks), width, dtype=torch.float64, device=self._device),
        )

        def work() -> None:
            for number, chunk in enumerate(chunks):
                if not self._all.mine(number):
                    continue
                rows = torch.arange(chunk.start, chunk.stop, device=self._device)
                part = self._split(block.of_rows(rows), found.of_rows(chunk), lower[chunk], levels)
                to = slice(chunk.start * many, chunk.stop * many)
                whole.block.states[to], whole.block.values[to] = part.block.states, part.block.values
                whole.block.weights[to] = part.block.weights
                whole.lower[to] = part.lower
                whole.found.column[to], whole.found.above[to] = part.found.column, part.found.above
                whole.points[number] = part.points[0]

        self._all.agreed(work)
        for tensor in (
            whole.block.states,
            whole.block.values,
            whole.block.weights,
            whole.lower,
            whole.found.column,
            whole.found.above,
            whole.points,
        ):
            self._all.shared(tensor)
        return whole

    def _levels(self, found: Tensor) -> int:
        """How many neurons are split at once, so that a first round fills a chunk."""
        wanted = max(1, int(math.log2(max(2, self._settings.chunk_rows // 2 / max(1, len(found))))))
        full = int((found >= 0).all(0).sum())
        return max(1, min(wanted, full))

    def _split(self, block: RowBlock, found: Candidates, lower: Tensor, levels: int) -> _Part:
        self._all.check()
        order = filtered(self._search, block, found, lower)
        for level in range(levels):
            column, above = (one[:, level].repeat_interleave(2**level) for one in (order.column, order.above))
            block = children(self._neurons, block, column, above)
        better = self._search.search(block, self._settings.domain)
        return self._known(better, lower.repeat_interleave(2**levels))

    def _known(self, block: RowBlock, parent: Tensor) -> _Part:
        """Prove a block, and choose where to split its rows next."""
        proven = self._search.prove(block)
        lower = torch.fmax(proven.lower, parent)
        many = min(self._settings.candidates, max(len(self._neurons), 1))
        points = self._search.points(block)
        found = candidates(self._neurons, block, proven.coefficients, points, many)
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

    def _taken(self, part: _Part, depth: NDArray[np.int32]) -> Counterexample | None:
        """Put what is left open into the pool."""
        assert self._pool is not None
        progress = self._all._progress
        progress.done += len(part.lower)
        progress.depth = max(progress.depth, int(depth.max(initial=0)))
        left = ~(part.lower > 0)
        leaves = left & (part.found.column[:, 0] < 0)
        if bool(leaves.any()):
            at = leaves.nonzero().flatten()
            counterexample = self._at_leaves(part.block.of_rows(at), part.lower[at])
            if counterexample is not None:
                return counterexample
            left &= ~leaves
        index = left.nonzero().flatten()
        block = part.block.of_rows(index)
        clause = block.which.cpu().numpy().astype(np.int32)
        np.add.at(self._domains, clause, 1)
        self._pool.push(
            {
                "clause": clause,
                "depth": depth[left.cpu().numpy()].astype(np.int32),
                "state": block.states.cpu().numpy(),
                "value": block.values.clamp(max=LARGEST_STORED).half().cpu().numpy(),
                "weight": block.weights.cpu().numpy(),
                "found": part.found.column[index].cpu().numpy().astype(np.int32),
                "above": part.found.above[index].cpu().numpy(),
            },
            part.lower[index].cpu().numpy(),
        )
        for number, key in enumerate(self._keys):
            if not self._domains[number] and not self._lost[number]:
                progress.proven.add(key)
        return self._judged(part.points) if bool(left.any()) else None

    def _judged(self, points: Tensor) -> Counterexample | None:
        found: Counterexample | None = None
        if self._task.ranks.rank == 0:
            found = self._task.judge(self._number, points[:JUDGED].cpu().numpy())
        return self._task.ranks.of_rank_0(found)

    def _at_leaves(self, block: RowBlock, lower: Tensor) -> Counterexample | None:
        """Domains whose neurons are all held: their network is linear, and a linear program decides."""
        result: list[tuple[Tensor, list[NDArray[np.float64]]]] = []
        self._all.agreed(lambda: result.append(self._leaves(block, lower)))
        ((lower, points),) = result
        left = (~(lower > 0)).nonzero().flatten().tolist()
        for row in left:
            clause = int(block.which[row])
            self._lost[clause] = True
            self.stuck.append(
                f"clause {self._clauses[clause]} of case {self._number} cannot be excluded where the sides of all its "
                f"{len(self._neurons)} neurons are chosen: the margin there is {float(lower[row]):.3g}"
            )
        return self._judged(torch.from_numpy(np.stack(points))) if points else None

    def _leaves(self, block: RowBlock, lower: Tensor) -> tuple[Tensor, list[NDArray[np.float64]]]:
        found, points = lower.clone(), []
        for row in range(len(block)):
            self._all.check()
            one = block.of_rows(torch.tensor([row], device=self._device))
            answer = solve_leaf(self._search, one)
            if answer is not None:
                found[row] = torch.fmax(found[row], self._search.prove(answer.block).lower[0])
                if not float(found[row]) > 0:
                    points.append(answer.point)
            else:
                better = self._search.search(one, self._settings.leaf)
                found[row] = torch.fmax(found[row], self._search.prove(better).lower[0])
        return found, points


def split_activations(
    task: SearchTask,
    state: SearchState | None = None,
    between: Callable[[ActivationSearch], None] | None = None,
) -> SearchOutcome:
    """Search a task by splitting activations. See ActivationSearch for the arguments and for what it raises."""
    return ActivationSearch(task, None, state, between).run()
