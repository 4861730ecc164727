"""The bound engine's driver: which tensors are bounded over a box, and by which rows. It knows no operator."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from boundscope.bounds.allocator import keep_freed_memory
from boundscope.bounds.alpha import AlphaSettings, BoundOf, optimised
from boundscope.bounds.backward import BackwardPass, Rows
from boundscope.bounds.chunks import Chunk, RowChunks
from boundscope.bounds.constraints import coefficient_rows, exact_margins
from boundscope.bounds.context import BoxContext
from boundscope.bounds.forward import ForwardPass
from boundscope.bounds.in_step import InStep
from boundscope.bounds.interval import Interval
from boundscope.bounds.layer_reports import LayerReports
from boundscope.bounds.ledger import MemoryLedger
from boundscope.bounds.outward import round_up
from boundscope.bounds.rounding import LEAST_NORMAL_FLOAT32, RoundingModel
from boundscope.monitor import Monitor
from boundscope.network.arrays import count_where
from boundscope.network.graph import Network, Node
from boundscope.network.lowering import lowered
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Arithmetic, Method, Precision, Progress
from boundscope.sharding.ranks import RankGroup
from boundscope.sharding.weights import WeightStore, WholeWeights
from boundscope.sharding.zones import Zones

REFINED = (Method.CROWN, Method.ALPHA_CROWN)  # hidden bounds by backward passes
OPTIMISED = (Method.ALPHA_CROWN,)


class BoundEngine:
    """Bounds one network, box after box. Every rank of the job holds one and calls it in step."""

    def __init__(
        self,
        network: Network,
        weights: WeightStore,
        ledger: MemoryLedger,
        *,
        arithmetic: Arithmetic = Arithmetic.REAL,
        ranks: RankGroup | None = None,
        monitor: Monitor | None = None,
        device: torch.device | None = None,
        chunk_rows: int | None = None,
        alpha: AlphaSettings | None = None,
        precision: Precision = Precision.MIXED,
        whole: Network | None = None,
        exact_zones: bool = False,
    ) -> None:
        """
        Args:
            network, weights, ledger: what to bound, its constants in float64, and where memory is counted.
            arithmetic: what the bounds must enclose.
            ranks, monitor, device: who works together, whom to tell, and where.
            chunk_rows: rows carried together, a multiple of 16; None: by the ledger's limit.
            alpha: settings of alpha-crown's search.
            precision: `mixed` carries the rows of hidden layers in float32, where the network's weights are float32
                numbers, and counts that rounding; margins are float64 always.
            whole: of a network that is this rank's part of one, that one.
            exact_zones: bound what lies inside zones by rows on all ranks, too; else by intervals from their entries.
        """
        self.network = lowered(network)
        self._whole = whole
        self._exact_zones = exact_zones
        self._zones = Zones.of(self.network)
        self.weights = weights
        self.ledger = ledger
        self.model = RoundingModel.of(arithmetic)
        self.ranks = ranks or RankGroup()
        self.monitor = monitor or Monitor()
        self.device = device or torch.device("cpu")
        if self.device.type == "cpu":
            keep_freed_memory()
        self.alpha = alpha or AlphaSettings()
        if self.device.type == "cuda":
            _refuse_shortcuts()
        self._hidden_dtype = _hidden_dtype(network, precision, self.device)
        sizes = [t.size for name, t in self.network.tensors.items() if name not in self.network.constants]
        self._in_step = InStep(self.ranks, self.monitor, ledger)
        self._reports = LayerReports(self.ranks, self.monitor)
        self._chunks = RowChunks(
            self._in_step,
            weights,
            self.device,
            widest=max(sizes, default=1),
            item_bytes=self._hidden_dtype.itemsize,
            asked=chunk_rows,
        )
        # When, on the monitor's clock, α-CROWN ends its searches: what they have found by then is proven and used.
        self.search_until_s = math.inf
        self._subnormal = _with_subnormals(network) if self.model.underflow else frozenset[str]()

    def alone(self) -> BoundEngine:
        """The same network on this rank only, silent and without a deadline."""
        ledger = MemoryLedger()
        weights = self.weights
        network = self._whole or self.network
        if weights.collective or self._whole is not None:
            weights = WholeWeights(network.constants, ledger, self.device, torch.float64)
        return BoundEngine(network, weights, ledger, device=self.device)

    # ------------------------------------------------------------ one box

    def inputs_of(self, box: Box) -> BoxContext:
        """A context that knows nothing of its box but the inputs."""
        return BoxContext.over(
            box, self.network, self.weights, self.ledger, self.model, self.device, self._subnormal
        )

    def context(
        self, box: Box, method: Method, *, case: int = 0, known: Mapping[str, Interval] | None = None
    ) -> BoxContext:
        """Intervals and relaxations of every tensor over a box.

        `ibp` and `crown-ibp` take the intervals forward; `crown` first bounds the inputs of each non-linear node
        backward, for those elements whose relaxation would not be exact; `alpha-crown` optimises these bounds.

        Args:
            box, method, case: what to bound, how, and the case's number in what is reported.
            known: intervals that this engine has proven over the same box; none of the context is looser. For
                `alpha-crown` they should be those of `crown`, which are proven first where they are not given.

        Raises:
            BoundError: a bound is not finite or crosses; names the tensor.
            DeadlineError, CancelledError: from the monitor, between chunks.
            OutOfMemoryError: the smallest chunk does not fit the budget.
        """
        context = self._in_step.do(partial(self.inputs_of, box))
        if known is None and method in OPTIMISED:
            known = self.context(box, Method.CROWN, case=case).intervals
        context.known = known or {}
        producers = {name: node for node in self.network.nodes for name in node.outputs}
        refined: set[str] = set()
        forward = None
        if method in REFINED and not self._zones.tensors:
            forward = self._in_step.do(partial(ForwardPass.where_it_pays, context))
        for done, node in enumerate(self.network.nodes):
            if context.rule(node).relaxed:
                self._refine(context, node, producers, refined, method, case)
            self._in_step.do(partial(_advance, context, forward, node, shared=self.ranks.size > 1))
            self.monitor.emit(
                Progress(stage=f"{method} bounds", done=done + 1, total=len(self.network.nodes))
            )
        for info in self.network.outputs:
            if info.name in producers:
                self._report(context, producers[info.name], info.name, None, method, case)
        return context

    def margins(
        self, context: BoxContext, constraints: Sequence[LinearConstraint], method: Method = Method.CROWN
    ) -> Tensor:
        """Lower bound of each constraint's margin (left side minus bound) over the context's box: [R] float64.

        The rows are merged into the network's last layers, so that what outputs share cancels. `ibp` stops at
        the last non-linear nodes; the other methods go back to the input.
        """
        goals = torch.tensor(
            [round_up(c.bound) for c in constraints], dtype=torch.float64, device=self.device
        )

        def bound(chunk: Chunk, count: int) -> Tensor:
            part = constraints[chunk.start : chunk.stop]
            if method is Method.IBP:
                return BackwardPass(context, relax=False).lower(self._constraint_rows(part, count), count)

            def enough(lower: Tensor) -> bool:
                return bool((lower[: len(part)] > goals[chunk.start : chunk.stop]).all())

            return self._bounded(
                context,
                lambda one: one.lower(self._constraint_rows(part, count), count),
                alpha=method in OPTIMISED,
                enough=enough,
            )

        lower = self._chunks.lower(len(constraints), bound, stage="margins", searched=method in OPTIMISED)
        margins = exact_margins(context, constraints, lower.tolist())
        return torch.tensor(margins, dtype=torch.float64)

    def _constraint_rows(self, constraints: Sequence[LinearConstraint], count: int) -> Rows:
        """Coefficients of the constraints, padded with zero rows to `count`, by tensor."""
        rows = coefficient_rows(self.network, constraints, count, self.device)
        return {name: self.ledger.hold(part, "rows") for name, part in rows.items()}

    # ------------------------------------------------------------ hidden layers

    def _refine(
        self,
        context: BoxContext,
        node: Node,
        producers: dict[str, Node],
        refined: set[str],
        method: Method,
        case: int,
    ) -> None:
        """Tighten the inputs of a non-linear node by CROWN, where that can change its relaxation."""
        rule = context.rule(node)
        for position, name in enumerate(node.inputs):
            if name not in context.intervals:
                continue
            backward = method in REFINED or (method is Method.CROWN_IBP and rule.final)
            backward = backward and (self._exact_zones or name not in self._zones.tensors)
            if backward and name not in refined and context.quality[name] == "loose":
                refined.add(name)
                stage = f"{method} bounds of {producers[name].name if name in producers else name}"
                self._refine_tensor(context, node, position, method, stage)
            if name in producers:
                unstable = len(_wanted(context, node, position)) if rule.kinked else None
                self._report(context, producers[name], name, unstable, method, case)

    def _refine_tensor(
        self, context: BoxContext, node: Node, position: int, method: Method, stage: str
    ) -> None:
        name = node.inputs[position]
        inside = name in self._zones.tensors
        wanted = _wanted(context, node, position)
        # Over the same earlier layers plain CROWN says again what is known.
        crown = not context.known or (context.ahead and not self.out_of_time())
        if self._any(wanted, inside) and crown:
            self._tighten(context, name, self.element_bounds(context, name, wanted, stage))
        if method not in OPTIMISED or self.out_of_time():
            return
        # Only what is still unstable after plain CROWN is worth the search.
        wanted = _wanted(context, node, position)
        if self._any(wanted, inside):
            self._tighten(context, name, self.element_bounds(context, name, wanted, stage, alpha=True))
            context.ahead = True

    def _any(self, wanted: Tensor, inside: bool) -> bool:
        """Whether there are elements to bound; of a tensor that ranks hold in parts, on any of them."""
        counts = self.ranks.gather(len(wanted)) if inside else [len(wanted)]
        return max(counts) > 0

    def _tighten(self, context: BoxContext, name: str, interval: Interval) -> None:
        self._in_step.do(partial(context.tighten, name, interval))

    def out_of_time(self) -> bool:
        """Whether the time for searches is over, as rank 0 sees it; all ranks call together."""
        return self.ranks.of_rank_0(self.monitor.now_s >= self.search_until_s)

    def _bounded(
        self,
        context: BoxContext,
        bound: BoundOf,
        *,
        alpha: bool,
        enough: Callable[[Tensor], bool] | None,
        dtype: torch.dtype = torch.float64,
    ) -> Tensor:
        """One chunk by plain CROWN, or with its relaxations optimised."""
        if not alpha:
            return bound(BackwardPass(context, dtype=dtype))
        return optimised(
            context,
            bound,
            self.alpha,
            self.monitor,
            enough=enough,
            until_s=self.search_until_s,
            ranks=self.ranks,
        )

    def element_bounds(
        self, context: BoxContext, name: str, wanted: Tensor, stage: str, *, alpha: bool = False
    ) -> Interval:
        """CROWN (or α-CROWN) bounds of the chosen elements (flat indices) of a tensor; the others keep theirs.

        Where ranks hold parts of the tensor, each chooses among its own, and all carry all rows.
        """
        counts = self.ranks.gather(len(wanted)) if name in self._zones.tensors else [len(wanted)]
        count, first = sum(counts), sum(counts[: self.ranks.rank]) if len(counts) > 1 else 0
        own = slice(first, first + len(wanted))
        lines = context.only_lines
        if self._zones.tensors:
            lines = all(self.ranks.gather(lines))
        dtype = self._hidden_dtype if lines else torch.float64

        # Rows 2k and 2k+1 are +e and −e of the same element: its lower and its upper bound. Rows of elements that
        # other ranks hold, and those that fill a chunk, are zero.
        around = (2 * first, 2 * (count - first - len(wanted)))
        signs = torch.ones(2 * len(wanted), dtype=torch.float64, device=self.device)
        signs[1::2] = -1.0
        signs, elements = F.pad(signs, around), F.pad(wanted.repeat_interleave(2), around)

        def bound(chunk: Chunk, rows: int) -> Tensor:
            fill = (0, rows - (chunk.stop - chunk.start))
            element, sign = (F.pad(each[chunk.start : chunk.stop], fill) for each in (elements, signs))
            return self._bounded(
                context,
                lambda one: one.lower_elements(name, element, sign),
                alpha=alpha,
                enough=None,
                dtype=dtype,
            )

        pairs = self._chunks.lower(2 * count, bound, stage=stage, searched=alpha)
        if dtype is torch.float32 and not bool(torch.isfinite(pairs).all()):
            dtype = torch.float64  # beyond the range of float32
            pairs = self._chunks.lower(2 * count, bound, stage=stage, searched=alpha)
        pairs = pairs.reshape(count, 2)[own]
        interval = context.intervals[name]
        lower, upper = interval.lower.flatten().clone(), interval.upper.flatten().clone()
        lower.index_copy_(0, wanted, pairs[:, 0])
        upper.index_copy_(0, wanted, -pairs[:, 1])
        # The interval's own bounds stay where they are tighter; `tighten` reports a true crossing.
        return Interval(lower.reshape(interval.lower.shape), upper.reshape(interval.upper.shape))

    def _report(
        self, context: BoxContext, node: Node, name: str, unstable: int | None, method: Method, case: int
    ) -> None:
        in_parts = name in self._zones.tensors
        self._reports.tell(node, context.intervals[name], unstable, method, case, in_parts=in_parts)


def _wanted(context: BoxContext, node: Node, position: int) -> Tensor:
    """Flat indices of the elements of an input, tighter bounds of which would tighten the node's relaxation."""
    interval = context.intervals[node.inputs[position]]
    return context.rule(node).wanted(node.op, position, interval).flatten().nonzero().flatten()


def _advance(context: BoxContext, forward: ForwardPass | None, node: Node, *, shared: bool) -> None:
    with context.weights.in_step(shared):
        context.advance(node)
    if forward is not None:
        forward.advance(node)


def _hidden_dtype(network: Network, precision: Precision, device: torch.device) -> torch.dtype:
    """What the rows of hidden layers are carried in: float32 where it is wanted and its rounding can be counted."""
    exact = all(a.dtype.kind != "f" or a.dtype.itemsize <= 4 for a in network.constants.values())
    if device.type == "cuda":
        # cuDNN may convolve in float32 by Winograd's algorithm, whose error no sum of products bounds.
        exact = exact and not any("Conv" in node.op.onnx_type for node in network.nodes)
    return torch.float32 if precision is Precision.MIXED and exact else torch.float64


def _with_subnormals(network: Network) -> frozenset[str]:
    """Names of the constants with an element that is not zero but below the least normal float32."""
    return frozenset(
        name
        for name, array in network.constants.items()
        if array.dtype.kind == "f"
        and count_where(array, lambda part: (part != 0) & (np.abs(part) < LEAST_NORMAL_FLOAT32))
    )


def _refuse_shortcuts() -> None:
    """Float32 means float32 on a GPU: TF32 keeps 10 bits of each factor, and what is rounded is counted for 24."""
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
