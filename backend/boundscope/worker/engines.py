"""The engines behind one question: lower bounds of the margins of some constraints over one case's box."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from boundscope.bounds import BoundEngine
from boundscope.monitor import Monitor
from boundscope.network.graph import Network
from boundscope.properties.types import Case, LinearConstraint
from boundscope.protocol import LayerBounds, Method


class CaseEngine(Protocol):
    """What bounds the cases of a job."""

    def margins(
        self, number: int, case: Case, constraints: Sequence[LinearConstraint], method: Method
    ) -> list[float]:
        """Lower bounds of the constraints' margins, in their order; reports layers on the way."""
        ...

    def excludes(self, margin: float, constraint: LinearConstraint) -> bool:
        """Whether this bound of its margin rules the constraint out."""
        ...

    @property
    def note(self) -> str:
        """What a reader of the verdict must know of the engine, as the end of a sentence; "" where nothing."""
        ...


class NativeCases:
    """Our own engine, whose bounds are proofs."""

    note = ""

    def __init__(self, engine: BoundEngine) -> None:
        self._engine = engine

    def margins(
        self, number: int, case: Case, constraints: Sequence[LinearConstraint], method: Method
    ) -> list[float]:
        context = self._engine.context(case.box, method, case=number)
        return [float(value) for value in self._engine.margins(context, constraints, method)]

    def excludes(self, margin: float, constraint: LinearConstraint) -> bool:
        return margin > 0 or (margin == 0 and constraint.strict)


class ReferenceCases:
    """auto_LiRPA, whose bounds are float32 numbers: positive ones count where float64 confirms them."""

    def __init__(self, network: Network, monitor: Monitor) -> None:
        """
        Raises:
            BoundscopeError: auto_LiRPA is not installed.
        """
        from boundscope.reference.engine import ReferenceEngine

        self._engine = ReferenceEngine(network, monitor)
        self._monitor, self._network = monitor, network
        self._rounding = 0.0
        self._remark: str | None = None

    def margins(
        self, number: int, case: Case, constraints: Sequence[LinearConstraint], method: Method
    ) -> list[float]:
        if method is Method.ALPHA_CROWN and self._remark is None:
            from boundscope.reference.guard import start_values_note

            self._remark = start_values_note()
            if self._remark:
                self._monitor.log(self._remark, "warning")
        found = self._engine.careful(case.box, constraints, method)
        self._rounding = max(self._rounding, found.rounding)
        for name, (lower, upper) in found.layers.items():
            node = self._network.node_by_output[name]
            width = upper - lower
            self._monitor.emit(
                LayerBounds(
                    case=number,
                    node=node.name,
                    op=node.op.onnx_type,
                    size=width.numel(),
                    lower_min=float(lower.min()),
                    upper_max=float(upper.max()),
                    width_mean=float(width.mean()),
                    width_max=float(width.max()),
                    method=f"{method}, {self._engine.name}",
                )
            )
        return [float(value) for value in found.margins]

    def excludes(self, margin: float, constraint: LinearConstraint) -> bool:
        return margin > 0

    @property
    def note(self) -> str:
        text = f"; {self._engine.name}, float32, rounding not accounted for"
        if self._rounding:
            text += f" (less {self._rounding:.3g}, an estimate of it from a second run in float64)"
        return f"{text}; {self._remark}" if self._remark else text
