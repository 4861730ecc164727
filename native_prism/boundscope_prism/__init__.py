"""Stochastic arithmetic on arrays: the Python face of native_prism."""

from boundscope_prism._operations import Mode, add, target, targets
from boundscope_prism.errors import PrismArgumentError, PrismUnavailableError

__all__ = ["Mode", "PrismArgumentError", "PrismUnavailableError", "add", "target", "targets"]
