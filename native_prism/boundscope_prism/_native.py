"""The native module, or a sentence that says how to build it; and the targets that it was built for."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

from boundscope_prism.errors import PrismUnavailableError

try:
    from boundscope_prism import _prism as native
except ImportError as error:
    raise PrismUnavailableError(
        f"The native part of boundscope_prism cannot be loaded ({error}). Build it at the repository's root with "
        "`pip install -e .`; it needs a C++17 compiler, CMake and Highway (Debian: g++ cmake libhwy-dev)."
    ) from error

__all__ = ["call", "native", "target", "targets"]

P = ParamSpec("P")
R = TypeVar("R")


def call(function: Callable[P, R], *arguments: P.args, **keywords: P.kwargs) -> R:
    """`function` of the native module, with arguments that were checked before.

    Raises PrismUnavailableError for what is left to go wrong: BOUNDSCOPE_PRISM_TARGET names no target of this CPU.
    """
    try:
        return function(*arguments, **keywords)
    except ValueError as error:
        raise PrismUnavailableError(str(error)) from None


def targets() -> tuple[str, ...]:
    """The instruction sets that are compiled in and that this CPU has, best first, in Highway's names."""
    return tuple(native.targets())


def target() -> str:
    """The one in use: the best, or the one that the environment variable BOUNDSCOPE_PRISM_TARGET names.

    The variable is read when a target is first needed. Raises PrismUnavailableError where it names none
    of targets().
    """
    return call(native.target)
