"""Every operator that torch dispatches, forward and backward, to its rule."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch._decomp import decomposition_table
from torch._ops import OpOverload
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter, tree_map_only

from boundscope_prism.instrument.complex_numbers import in_parts
from boundscope_prism.instrument.coverage import Tally
from boundscope_prism.instrument.kernels import BITS, Kernels
from boundscope_prism.instrument.layers import BACKWARD, Layers
from boundscope_prism.instrument.operators import RULES, Family, Rule, exact, is_drawn
from boundscope_prism.instrument.promotion import prepared
from boundscope_prism.instrument.variants import functional_of, write

Handler: TypeAlias = "Callable[[InstrumentMode, OpOverload, tuple[Any, ...], dict[str, Any]], Any]"

# What a class of tensors has that leaves dispatch to torch.
_PLAIN = torch._C._disabled_torch_dispatch_impl

# How an operator is treated: what a test compares with the operators that it saw.
INSIDE, EXACT, DRAWN, LOWERED, AT_OUTPUT = "inside", "exact", "drawn", "lowered", "at output"


class InstrumentMode(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Sends each operator to the kernels. Inside __torch_dispatch__ the mode is off; `lowered` turns it on again."""

    def __init__(
        self, kernels: Kernels, layers: Layers, tally: Tally, select: Callable[[str], bool] | None
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kernels = kernels
        self.layers = layers
        self.tally = tally
        self.treated: dict[OpOverload, str] = {}
        self._select = select
        self._selected: dict[str, bool] = {}
        self._handlers: dict[OpOverload, Handler] = {}
        # The lowered operators that are being computed: what they consist of counts as the outermost.
        self._open: list[OpOverload] = []

    def __torch_dispatch__(
        self, func: OpOverload, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and any(kind.__torch_dispatch__ is not _PLAIN for kind in types):
            # Tensors with a dispatch of their own (jagged, DTensor): what they are made of comes back here.
            return NotImplemented
        handler = self._handlers.get(func)
        if handler is None:
            self.treated[func], handler = _resolve(func)
            self._handlers[func] = handler
        return handler(self, func, args, kwargs or {})

    def begin(self, operator: str) -> None:
        """Makes `operator` the one that is counted, in the layer that runs, and says whether that is perturbed."""
        if self._open:
            return
        layer = self.layers.current(operator)
        cell = self.tally.cell(operator, layer)
        cell.calls += 1
        self.kernels.cell = cell
        if self._select is not None:
            chosen = self._selected.get(layer)
            if chosen is None:
                chosen = self._selected[layer] = bool(self._select(layer.removesuffix(BACKWARD)))
            self.kernels.perturbs = chosen

    def lowered(
        self,
        operator: str,
        func: OpOverload,
        function: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> Any:
        """`function`, whose own operators come back to this mode and count as `operator`."""
        if func in self._open:
            # Taken apart it needs itself, so torch's own kernel is what there is.
            return _at_output(operator)(self, func, args, kwargs)
        self.begin(operator)
        self._open.append(func)
        try:
            with self:
                return function(*args, **kwargs)
        finally:
            self._open.pop()


# Views where there is nothing to convert, as their schemas say; else roundings.
_CONVERTS = frozenset({"to", "_autocast_to_reduced_precision", "_autocast_to_full_precision"})
# Exact, but for complex numbers.
_ROUNDS_COMPLEX = frozenset({"abs", "absolute", "sgn"})


@cache
def _resolve(func: OpOverload) -> tuple[str, Handler]:
    namespace, _, name = func._schema.name.partition("::")
    if _is_view(func) and name not in _CONVERTS:
        return EXACT, _view
    if name == "_local_scalar_dense":
        return EXACT, _read_value
    mutable = func._schema.is_mutable
    if not mutable and not any("Tensor" in str(value.type) for value in func._schema.returns):
        return EXACT, _view
    plain = name if namespace == "aten" else f"{namespace}::{name}"
    if namespace == "aten":
        found = RULES.get(f"{name}.{func._overloadname}") or RULES.get(name)
        if found is not None and (found.mutates or not mutable):
            return INSIDE if found.family is not Family.LOWERED else LOWERED, _by_rule(name, found)
        if exact(name, func._overloadname):
            return EXACT, _counted(name)
        if is_drawn(name):
            return DRAWN, _counted(name)
        if name.startswith("_foreach_"):
            return LOWERED, _lower(name, _each_of(func))
    if mutable:
        functional = functional_of(func)
        if functional is not None:
            treatment, handler = _resolve(functional)
            if treatment in (INSIDE, LOWERED):
                return treatment, _written(handler, functional)
            if treatment in (EXACT, DRAWN):
                return treatment, _counted(plain)
    if namespace == "prims" and hasattr(func, "impl_aten"):
        return LOWERED, _lower(plain, func.impl_aten)
    if torch._C._dispatch_has_kernel_for_dispatch_key(func._name, "CompositeImplicitAutograd"):
        return LOWERED, _lower(plain, func.decompose)
    if not mutable and func in decomposition_table and not name.startswith("_upsample"):
        return LOWERED, _lower(plain, decomposition_table[func])
    return AT_OUTPUT, _at_output(plain)


def _is_view(func: OpOverload) -> bool:
    return any(
        value.alias_info is not None and not value.alias_info.is_write for value in func._schema.returns
    )


def _view(mode: InstrumentMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _read_value(mode: InstrumentMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    if args[0].is_floating_point() or args[0].is_complex():
        mode.tally.values_read += 1
    return func(*args, **kwargs)


def _counted(operator: str) -> Handler:
    """Torch's own kernel, for what never rounds."""

    at_output = _at_output(operator)

    def handler(mode: InstrumentMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if operator in _ROUNDS_COMPLEX and args[0].is_complex():
            return at_output(mode, func, args, kwargs)
        result = func(*args, **kwargs)
        if any(isinstance(leaf, Tensor) and leaf.is_floating_point() for leaf in tree_iter(result)):
            mode.begin(operator)
        return result

    return handler


def _by_rule(operator: str, rule: Rule) -> Handler:
    compute = rule.function
    family = rule.family
    elementwise = family in (Family.ELEMENTWISE, Family.FLOATING)
    at_output = _at_output(operator)

    def handler(mode: InstrumentMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if family is Family.LOWERED:
            return mode.lowered(operator, func, compute, args, kwargs)
        try:
            if (
                family is not Family.RAW
                and _is_ready(args, elementwise)
                and _is_ready(kwargs.values(), elementwise)
            ):
                mode.begin(operator)
                return compute(mode.kernels, *args, **kwargs)
            call = prepared(family, args, kwargs)
            if call is not None:
                if call.mixed:
                    # Torch refuses most mixtures, in its own words.
                    func(*args, **kwargs)
                mode.begin(operator)
                return call.finished(mode.kernels, compute(mode.kernels, *call.args, **call.kwargs))
        except ValueError as error:
            return _refused(error, func, args, kwargs)
        if not any(_is_complex(leaf) for leaf in tree_iter((args, kwargs))):
            return func(*args, **kwargs)
        parts = in_parts(operator, args, kwargs)
        if parts is None:
            return at_output(mode, func, args, kwargs)
        return torch.view_as_complex(handler(mode, func, parts, kwargs))

    return handler


def _refused(error: ValueError, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the kernels cannot take torch refuses in its own words; where it does not, the kernels' words count.

    Tensors on "meta" have no numbers to round.
    """
    result = func(*args, **kwargs)
    if any(isinstance(leaf, Tensor) and leaf.is_meta for leaf in tree_iter(result)):
        return result
    raise error


def _is_ready(values: Iterable[Any], elementwise: bool) -> bool:
    """Whether the kernels can take every argument as it is."""
    for value in values:
        if isinstance(value, Tensor):
            if value.dtype is not torch.float32 or (elementwise and not value.is_contiguous()):
                return False
        elif isinstance(value, complex | torch.dtype):
            return False
    return True


def _is_complex(value: object) -> bool:
    return isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex())


def _lower(operator: str, function: Callable[..., Any]) -> Handler:
    def handler(mode: InstrumentMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return mode.lowered(operator, func, function, args, kwargs)

    return handler


def _written(handler: Handler, functional: OpOverload) -> Handler:
    """An in-place or out= variant: the functional one's result written to where it belongs."""

    def written(mode: InstrumentMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return write(mode.kernels, func, functional, handler, mode, args, kwargs)

    return written


def _at_output(operator: str) -> Handler:
    """Torch's own arithmetic, its floating-point results perturbed once.

    Where no floating-point tensor goes in (a new tensor of constants), nothing is perturbed.
    """

    def handler(mode: InstrumentMode, func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        if not any(_inexact(leaf) for leaf in tree_iter((args, kwargs))):
            return result
        mode.begin(operator)
        if func._schema.is_mutable:
            for argument, value in _written_arguments(func, args, kwargs):
                if argument.alias_info is not None and argument.alias_info.is_write:
                    tree_map_only(Tensor, lambda tensor: _move_in_place(mode, tensor), value)
            return result
        return tree_map_only(Tensor, lambda tensor: _moved(mode, tensor), result)

    return handler


def _written_arguments(
    func: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[tuple[Any, Any]]:
    schema = func._schema.arguments
    named = {argument.name: argument for argument in schema}
    return [*zip(schema, args, strict=False), *((named[name], value) for name, value in kwargs.items())]


def _inexact(value: object) -> bool:
    return isinstance(value, Tensor) and (value.is_floating_point() or value.is_complex())


def _moved(mode: InstrumentMode, tensor: Tensor) -> Tensor:
    if not _inexact(tensor):
        return tensor
    cell = mode.kernels.cell
    real = torch.view_as_real(tensor.resolve_conj()) if tensor.is_complex() else tensor
    if real.layout != torch.strided or real.device.type != "cpu" or real.dtype not in BITS:
        cell.untouched += tensor.numel()
        return tensor
    cell.at_output += real.numel()
    moved = mode.kernels.perturb(real)
    if tensor.is_complex():
        moved = torch.view_as_complex(moved)
    if moved.stride() != tensor.stride():
        moved = torch.empty_like(tensor).copy_(moved)
    return moved


def _move_in_place(mode: InstrumentMode, tensor: Tensor) -> Tensor:
    moved = _moved(mode, tensor)
    if moved is not tensor:
        tensor.copy_(moved)
    return tensor


def _each_of(func: OpOverload) -> Callable[..., Any]:
    """_foreach_*: the operator itself on each of the tensors."""
    name = func._schema.name.partition("::")[2].removeprefix("_foreach_")
    name = {"norm": "linalg_vector_norm"}.get(name, name)
    packet = getattr(torch.ops.aten, name)
    # A factor that the operator itself takes by its name.
    factor = {"addcmul": "value", "addcdiv": "value"}.get(name.rstrip("_"))

    def of(value: Any, number: int) -> Any:
        return value[number] if isinstance(value, list | tuple) else value

    def each(tensors: list[Tensor], *others: Any, **kwargs: Any) -> list[Tensor] | None:
        if factor is not None and len(others) > 2:
            kwargs[factor] = others[2]
            others = others[:2]
        if isinstance(kwargs.get("value"), Tensor):
            kwargs["value"] = kwargs["value"].tolist()
        results = []
        for number, tensor in enumerate(tensors):
            mine = [of(other, number) for other in others]
            results.append(packet(tensor, *mine, **{key: of(value, number) for key, value in kwargs.items()}))
        return None if name.endswith("_") else results

    return each


__all__ = ["AT_OUTPUT", "DRAWN", "EXACT", "INSIDE", "LOWERED", "InstrumentMode"]
