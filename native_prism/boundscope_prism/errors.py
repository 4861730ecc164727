"""What boundscope_prism raises."""

from __future__ import annotations

from boundscope.errors import BoundscopeError


class PrismArgumentError(BoundscopeError, ValueError):
    """An argument that a kernel cannot take: names it, what was expected and what came."""


class PrismUnavailableError(BoundscopeError, ImportError):
    """The native module is not built, or its target cannot run here."""
