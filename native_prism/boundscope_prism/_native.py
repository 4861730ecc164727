"""The native module, or a sentence that says how to build it."""

from __future__ import annotations

from boundscope_prism.errors import PrismUnavailableError

try:
    from boundscope_prism import _prism as native
except ImportError as error:
    raise PrismUnavailableError(
        f"The native part of boundscope_prism cannot be loaded ({error}). Build it at the repository's root with "
        "`pip install -e .`; it needs a C++17 compiler, CMake and Highway (Debian: g++ cmake libhwy-dev)."
    ) from error

__all__ = ["native"]
