"""Versions of everything that has a say in a verdict."""

from __future__ import annotations

import platform
from importlib import metadata

PACKAGES = ("boundscope", "torch", "numpy", "onnx", "onnxruntime", "auto_LiRPA")


def versions() -> dict[str, str]:
    """Name → version, "not installed" where a package's metadata is not there."""
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = "not installed"
    return found
