"""auto_LiRPA as a second engine: the same margins of the same boxes, by its public interface.

It computes in float32 and takes no account of rounding. What it finds positive is therefore computed once more in
float64, and counts only by what is left of it after their difference is subtracted: an estimate of the rounding of
float32, not a proof.
"""

from __future__ import annotations

import contextlib
import dataclasses
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from boundscope.errors import BoundError, BoundscopeError, OutOfMemoryError, UnsupportedOperatorError
from boundscope.monitor import Monitor
from boundscope.network.graph import Network, Node
from boundscope.network.operators.linear import Conv
from boundscope.network.operators.pooling import AveragePool, MaxPool
from boundscope.properties.types import Box, LinearConstraint
from boundscope.protocol import Method, Sharding
from boundscope.reference import compat
from boundscope.reference.module import NetworkModule
from boundscope.reference.parallel import SplitLayers
from boundscope.reference.shards import Shards
from boundscope.sharding.frames import PeerStoppedError
from boundscope.sharding.ranks import RankGroup
from boundscope.sharding.weights import Ledger

STEPS = 20
METHODS = {
    Method.IBP: "IBP",
    Method.CROWN_IBP: "CROWN-IBP",
    Method.CROWN: "CROWN",
    Method.ALPHA_CROWN: "CROWN-Optimized",
}
# How far its own evaluation may be from ours, of the largest output: more is another network.
SAME_NETWORK = 1e-3
ULPS = 8

Ends = tuple[Tensor, Tensor]  # lower and upper end of every element of a tensor


@dataclass(frozen=True)
class ReferenceBounds:
    """What auto_LiRPA says of one box.

    Attributes:
        margins: lower bound of each constraint's margin, [R] float64; −∞ where the constraint names an input.
        layers: intervals of hidden tensors, by our names of them, in its own dtype.
        rounding: what was subtracted from the positive margins, at most.
    """

    margins: Tensor
    layers: Mapping[str, Ends]
    rounding: float = 0.0


class _AttemptError(BoundscopeError):
    """auto_LiRPA raised something undeclared on a rank."""


class ReferenceEngine:
    """Bounds one network by auto_LiRPA on the CPU.

    Of several ranks each holds a part of the weights: of every large one, gathered for use (sharding `fsdp`), or of
    pairs of layers, each rank bounding its own neurons between them (`tp`). They call together, and get the same
    result or error.
    """

    def __init__(
        self,
        network: Network,
        monitor: Monitor | None = None,
        dtype: torch.dtype = torch.float32,
        *,
        ranks: RankGroup | None = None,
        ledger: Ledger | None = None,
        sharding: Sharding = Sharding.FSDP,
    ) -> None:
        """
        Args:
            network: what to bound.
            monitor: told of warnings, asked for time.
            dtype: to compute in.
            ranks: of several, all construct and call together.
            ledger: counts weights.
            sharding: of several ranks, `fsdp` or `tp`.

        Raises:
            BoundscopeError: auto_LiRPA is not installed.
        """
        self._lirpa = compat.import_auto_lirpa()
        self.network, self.monitor, self.dtype = network, monitor or Monitor(), dtype
        self._ranks, self._ledger = ranks or RankGroup(), ledger or _Uncounted()
        self._sharding = sharding
        self._split = (
            SplitLayers(network, self._ranks) if self._ranks.size > 1 and sharding is Sharding.TP else None
        )
        self._bounded: dict[tuple[bool, bool], _Traced] = {}
        self._precise: ReferenceEngine | None = None

    @property
    def name(self) -> str:
        return f"auto_LiRPA {compat.version()}"

    @property
    def zones(self) -> int:
        """Of layers split over the ranks, how many parts of the network are."""
        return 0 if self._split is None else self._split.zones

    @property
    def precise(self) -> ReferenceEngine:
        """The same in float64."""
        if self._precise is None:
            self._precise = ReferenceEngine(
                self.network,
                self.monitor,
                torch.float64,
                ranks=self._ranks,
                ledger=self._ledger,
                sharding=self._sharding,
            )
        return self._precise

    def bounds(
        self,
        box: Box,
        constraints: Sequence[LinearConstraint],
        method: Method,
        *,
        hidden: Mapping[str, Ends] | None = None,
    ) -> ReferenceBounds:
        """Bounds in this engine's dtype, as auto_LiRPA gives them.

        Args:
            box: the input box, over all inputs in order.
            constraints: rows whose margins are wanted; those that name inputs are left out.
            method: one of METHODS.
            hidden: intervals to use for these hidden tensors instead of its own.

        Raises:
            UnsupportedOperatorError: names the operator that it has no rule for.
            BoundError: a margin is NaN, or ranks differ in one.
            DeadlineError, CancelledError: from the monitor, before and between steps of alpha-crown.
            OutOfMemoryError: torch could not allocate.
        """
        usable = [row for row, one in enumerate(constraints) if not len(one.input_indices)]
        margins = torch.full((len(constraints),), -torch.inf, dtype=torch.float64)
        rows = torch.zeros(1, len(usable) or 1, self.network.output_count, dtype=self.dtype)
        for number, row in enumerate(usable):
            one = constraints[row]
            coefficients = torch.from_numpy(one.output_coeffs.copy()).to(self.dtype)
            rows[0, number].index_add_(0, torch.from_numpy(one.output_indices.copy()), coefficients)
        lower, layers = self._compute(box, rows, method, hidden)
        self._require_same_on_all_ranks(lower)
        for number, row in enumerate(usable):
            value = float(lower[number])
            if value != value:
                raise BoundError(f"{self.name}: the margin of '{constraints[row].text}' is NaN")
            margins[row] = value - float(constraints[row].bound)
        return ReferenceBounds(margins, layers)

    def careful(self, box: Box, constraints: Sequence[LinearConstraint], method: Method) -> ReferenceBounds:
        """As `bounds`, with positive margins computed twice: the lesser of float32's and float64's, less an estimate
        of what float32 lost.

        That is the largest difference of the two over all positive margins, for one alone may be small by chance, and
        at least ULPS float32 units of the terms that a margin is the sum of. Raises as `bounds` does.
        """
        once = self.bounds(box, constraints, method)
        positive = once.margins > 0
        if not bool(positive.any()):
            return once
        again = self.precise.bounds(box, constraints, method)
        size = torch.tensor(
            [float(np.abs(one.output_coeffs).sum()) for one in constraints], dtype=torch.float64
        )
        moved = ((once.margins - again.margins).abs() / size)[positive & (size > 0)]
        unit = max(float(moved.max()) if len(moved) else 0.0, ULPS * 2.0**-24 * self._largest_output(box))
        counted = torch.minimum(once.margins, again.margins) - unit * size
        rounding = float((unit * size)[positive].max())
        return ReferenceBounds(torch.where(positive, counted, once.margins), once.layers, rounding)

    def _largest_output(self, box: Box) -> float:
        """The largest absolute output at the box's centre."""
        values = {}
        position = 0
        for info in self.network.inputs:
            part = slice(position, position + info.size)
            centre = torch.from_numpy(box.lower[part] + (box.upper[part] - box.lower[part]) / 2)
            values[info.name] = centre.reshape(info.shape)
            position += info.size
        with torch.no_grad():
            outputs = self.network.evaluate(values).values()
        return max(float(value.abs().max()) for value in outputs)

    # ------------------------------------------------------------ running it

    def _compute(
        self, box: Box, rows: Tensor, method: Method, hidden: Mapping[str, Ends] | None
    ) -> tuple[Tensor, dict[str, Ends]]:
        """Lower bounds [R] of rows [1, R, outputs], and the hidden intervals, in the first form that works."""
        self._check()
        failure: Exception | None = None
        for patches in (True, False) if _fits_patches(self.network) else (False,):
            brought: BoundscopeError | None = None
            try:
                with compat.quiet(), _default_dtype(self.dtype):
                    traced = self._traced(patches, method is Method.ALPHA_CROWN)
                    with traced.keeping_shards():
                        lower = _lower(
                            self._lirpa,
                            traced.bounded,
                            self._inputs(box),
                            rows,
                            method,
                            traced.module,
                            hidden,
                        )
                    layers = self._layers(traced.module, traced.bounded)
            except PeerStoppedError:
                pass  # the other rank says why
            except BoundscopeError as error:
                brought = error
            except (MemoryError, torch.OutOfMemoryError) as error:
                brought = OutOfMemoryError(f"{self.name}: {error}")
                brought.__cause__ = error
            except Exception as error:  # noqa: BLE001 - whatever a library without declared errors raises
                if "allocate memory" in str(error):
                    brought = OutOfMemoryError(f"{self.name}: {error}")
                else:
                    brought = _AttemptError(f"{type(error).__name__}: {error}")
                brought.__cause__ = failure = error
            try:
                self._ranks.agree(brought)
            except BoundscopeError as error:
                # Another rank may not have come so far, and all must trace again together.
                self._bounded.pop((patches, method is Method.ALPHA_CROWN), None)
                if not isinstance(error, _AttemptError):
                    raise
                failure = failure or error
            else:
                self._check()
                return lower, layers
        assert failure is not None
        raise self._explained(failure) from failure

    def _check(self) -> None:
        """Stop on all ranks together where one of them is asked to, or is late."""
        late: BoundscopeError | None = None
        try:
            self.monitor.check()
        except BoundscopeError as error:
            late = error
        self._ranks.agree(late)

    def _require_same_on_all_ranks(self, lower: Tensor) -> None:
        if self._ranks.size == 1:
            return
        for rank, other in enumerate(self._ranks.gather(lower.numpy())):
            if not np.array_equal(other, self._ranks.of_rank_0(lower.numpy()), equal_nan=True):
                raise BoundError(
                    f"{self.name}: rank {rank} computed other bounds than rank 0; run all ranks on processors of one "
                    "kind, with as many threads each"
                )

    def _traced(self, patches: bool, optimised: bool) -> _Traced:
        key = (patches, optimised)
        if key not in self._bounded:
            split = self._split
            shards = Shards(self._ranks, self._ledger) if self._ranks.size > 1 and split is None else None
            placed = shards or split
            module = NetworkModule(
                self.network if split is None else split.network,
                self.dtype,
                None if placed is None else placed.place,
            )
            for name, value in [*module.named_parameters(), *module.named_buffers()]:
                if shards is None or name not in shards:
                    self._ledger.hold(value, "weights")
            options = compat.bound_options(
                patches=patches, steps=STEPS, between_steps=self._check, optimised=optimised
            )
            start = tuple(torch.zeros(info.shape, dtype=self.dtype) for info in self.network.inputs)
            make = self._lirpa.BoundedModule if split is None else split.bounded_module
            bounded = make(module, start[0] if len(start) == 1 else start, bound_opts=options, device="cpu")
            if shards is not None:
                shards.attach(bounded)
            self._bounded[key] = _Traced(module, bounded, shards)
        return self._bounded[key]

    def _inputs(self, box: Box) -> list[Ends]:
        """Lower and upper end of every input in this dtype, rounded outwards."""
        ends = []
        position = 0
        for info in self.network.inputs:
            part = slice(position, position + info.size)
            ends.append(
                (
                    _rounded(box.lower[part], self.dtype, up=False).reshape(info.shape),
                    _rounded(box.upper[part], self.dtype, up=True).reshape(info.shape),
                )
            )
            position += info.size
        return ends

    def _layers(self, module: NetworkModule, bounded: Any) -> dict[str, Ends]:
        """What the last computation left at the nodes, by our names of their tensors."""
        network = self.network if self._split is None else self._split.network
        outputs = {info.name for info in network.outputs}
        found = {}
        for name, node_name in zip(module.tensor_names, bounded.output_name[1:], strict=True):
            node = bounded[node_name]
            pair = (getattr(node, "lower", None), getattr(node, "upper", None))
            if pair[0] is None:
                pair = getattr(node, "interval", None) or pair
            shape = network.tensors[name].shape
            ends = [end.detach() for end in pair if isinstance(end, Tensor)]
            known = name in self.network.tensors and name not in outputs
            if known and len(ends) == 2 and all(tuple(end.shape) == shape for end in ends):
                found[name] = (ends[0], ends[1])
        return found if self._split is None else self._split.joined(found)

    # ------------------------------------------------------------ why it fails

    def _explained(self, failure: Exception) -> BoundscopeError:
        """The first node that it cannot bound alone; of a network of nodes that it can, its own words."""
        seen: set[tuple[object, ...]] = set()
        for node in self.network.nodes:
            ranks = tuple(len(self.network.tensors[name].shape) for name in node.inputs if name)
            if (type(node.op), ranks) not in seen and not self._bounds_alone(node):
                return UnsupportedOperatorError(
                    f"{self.name} cannot bound operator {node.op.onnx_type} of node '{node.name}'; "
                    "--engine native may"
                )
            seen.add((type(node.op), ranks))
        if isinstance(failure, _AttemptError):
            return BoundscopeError(
                f"{self.name} fails on this network ({failure}, on another rank); --engine native may not"
            )
        place = traceback.extract_tb(failure.__traceback__)[-1]
        said = str(failure).strip().splitlines()[:1]
        return BoundscopeError(
            f"{self.name} fails on this network ({type(failure).__name__}{': ' if said else ''}{''.join(said)} "
            f"in {place.name}); --engine native may not"
        )

    def _bounds_alone(self, node: Node) -> bool:
        """Whether a network of this node only can be bounded."""
        names = dict.fromkeys(n for n in node.inputs if n and n not in self.network.constants)
        tensors = self.network.tensors
        alone = dataclasses.replace(
            self.network,
            inputs=tuple(tensors[name] for name in names),
            outputs=(tensors[node.outputs[0]],),
            nodes=(node,),
        )
        try:
            with compat.quiet(), _default_dtype(self.dtype):
                module = NetworkModule(alone, self.dtype)
                start = tuple(torch.ones(info.shape, dtype=self.dtype) for info in alone.inputs)
                options = compat.bound_options(
                    patches=False, steps=1, between_steps=lambda: None, optimised=False
                )
                bounded = self._lirpa.BoundedModule(
                    module, start[0] if len(start) == 1 else start, bound_opts=options, device="cpu"
                )
                rows = torch.zeros(1, 1, alone.output_count, dtype=self.dtype)
                rows[0, 0, 0] = 1
                ends = [(value - 0.1, value + 0.1) for value in start]
                _lower(self._lirpa, bounded, ends, rows, Method.CROWN, module, None)
        except Exception:  # noqa: BLE001 - the question is whether it fails, however it does
            return False
        return True


@dataclass(frozen=True)
class _Traced:
    """A network as auto_LiRPA has traced it; `shards` where its weights are shared out."""

    module: NetworkModule
    bounded: Any
    shards: Shards | None

    def keeping_shards(self) -> contextlib.AbstractContextManager[object]:
        return contextlib.nullcontext() if self.shards is None else self.shards.kept_as_shards()


class _Uncounted:
    """A ledger that nobody reads."""

    def hold(self, tensor: Tensor, category: str) -> Tensor:
        return tensor


def _lower(
    lirpa: ModuleType,
    bounded: Any,
    ends: Sequence[Ends],
    rows: Tensor,
    method: Method,
    module: NetworkModule,
    hidden: Mapping[str, Ends] | None,
) -> Tensor:
    """Lower bounds [R] of rows [1, R, outputs], float64 numbers of its dtype."""
    centres = [lower + (upper - lower) / 2 for lower, upper in ends]
    _require_same_network(module, bounded, centres)
    inputs = tuple(
        lirpa.BoundedTensor(centre, lirpa.PerturbationLpNorm(norm=np.inf, x_L=lower, x_U=upper))
        for centre, (lower, upper) in zip(centres, ends, strict=True)
    )
    names = dict(zip(module.tensor_names, bounded.output_name[1:], strict=True))
    given = {
        names[name]: (lower.to(rows.dtype), upper.to(rows.dtype))
        for name, (lower, upper) in (hidden or {}).items()
        if name in names and names[name] != bounded.output_name[0]
    }
    with torch.set_grad_enabled(method is Method.ALPHA_CROWN):
        lower, _ = bounded.compute_bounds(
            x=inputs,
            C=rows,
            method=METHODS[method],
            bound_upper=method is Method.IBP,
            **({"intermediate_layer_bounds": given} if given else {}),
        )
    result: Tensor = lower.detach().reshape(-1).to(torch.float64)
    return result


def _require_same_network(module: NetworkModule, bounded: Any, centres: Sequence[Tensor]) -> None:
    """What auto_LiRPA made of the trace gives the module's own outputs."""
    with torch.no_grad():
        ours, theirs = module(*centres), bounded(*centres)
    theirs = theirs[0] if isinstance(theirs, tuple | list) else theirs
    difference, scale = float((ours - theirs).abs().max()), float(ours.abs().max())
    if not difference <= SAME_NETWORK * max(scale, 1e-3):
        raise BoundscopeError(
            f"auto_LiRPA misreads this network: its outputs at the box's centre are {difference:.3g} off"
        )


def _fits_patches(network: Network) -> bool:
    """Convolutions as patches: its fast form, which knows neither groups nor networks without convolutions."""
    convolutions = [node.op for node in network.nodes if isinstance(node.op, Conv)]
    pooled = any(isinstance(node.op, AveragePool | MaxPool) for node in network.nodes)
    return bool(convolutions) and all(op.group == 1 for op in convolutions) and not pooled


def _rounded(values: NDArray[np.float64], dtype: torch.dtype, *, up: bool) -> Tensor:
    exact = torch.from_numpy(values.copy())
    near = exact.to(dtype)
    wrong = near.to(torch.float64) < exact if up else near.to(torch.float64) > exact
    infinity = torch.full((), torch.inf if up else -torch.inf, dtype=dtype)
    return torch.where(wrong, torch.nextafter(near, infinity), near)


@contextlib.contextmanager
def _default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """auto_LiRPA makes some of its tensors in torch's default dtype."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)
