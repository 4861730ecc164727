"""One instrumented run."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

from torch import nn

from boundscope_prism._rounding import Rounding
from boundscope_prism.errors import PrismArgumentError
from boundscope_prism.instrument.coverage import Coverage, Tally
from boundscope_prism.instrument.dispatch import InstrumentMode
from boundscope_prism.instrument.kernels import Kernels
from boundscope_prism.instrument.layers import Layers, Observe, Scope
from boundscope_prism.instrument.switches import separate_operators

# Torch's switches are the process's, so there is one run at a time.
_RUNNING = threading.Lock()


class Run:
    """What instrument() gives: the coverage so far, and scopes that name layers."""

    def __init__(
        self, rounding: Rounding, select: Callable[[str], bool] | None, observe: Observe | None
    ) -> None:
        self.rounding = rounding
        self._tally = Tally()
        self._layers = Layers(observe)
        self._mode = InstrumentMode(Kernels(rounding), self._layers, self._tally, select)

    @property
    def coverage(self) -> Coverage:
        """What was perturbed so far; after the context, in all of it."""
        return self._tally.coverage()

    @property
    def treated(self) -> dict[str, str]:
        """How each operator that was seen is treated: "inside", "exact", "drawn", "lowered" or "at output"."""
        return {str(func): how for func, how in self._mode.treated.items()}

    def scope(self, name: str) -> AbstractContextManager[Scope]:
        """Operators that run inside belong to the layer `name`; of nested scopes and modules to the innermost."""
        return self._layers.scope(name)


@contextmanager
def running(
    rounding: Rounding,
    model: nn.Module | None,
    select: Callable[[str], bool] | None,
    observe: Observe | None,
) -> Iterator[Run]:
    """See instrument()."""
    _check_model(model)
    if not _RUNNING.acquire(blocking=False):
        raise PrismArgumentError(
            "instrument() is already active in this process: every operation would be perturbed twice, and torch's "
            "switches are the process's. Leave the context that is active before entering another."
        )
    try:
        run = Run(rounding, select, observe)
        try:
            if model is not None:
                run._layers.watch(model)
            with separate_operators(), run._mode:
                yield run
        finally:
            run._layers.close()
    finally:
        _RUNNING.release()


def _check_model(model: object) -> None:
    if model is None:
        return
    if not isinstance(model, nn.Module):
        raise PrismArgumentError(f"model: expected a torch.nn.Module, got {type(model).__name__}.")
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        if tensor.device.type not in ("cpu", "meta"):
            raise PrismArgumentError(
                f"model: expected parameters and buffers on the CPU, got {name} on {tensor.device}; move the model "
                "with .cpu(), or pass a copy of it."
            )
