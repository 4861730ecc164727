"""Makes PyPI's auto_LiRPA 0.3 (2022) importable beside today's torch and numpy; newer ones are left alone.

0.3 reads names that torch and numpy have since moved. Each is put where it looks before it is imported; nothing
of auto_LiRPA itself is changed but one method's signature.
"""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import sys
import types
import warnings
from collections.abc import Callable, Iterator
from importlib import metadata
from types import ModuleType
from typing import Any

import numpy as np

from boundscope.errors import BoundscopeError

ADAPTED = ("0.3",)


def import_auto_lirpa() -> ModuleType:
    """The auto_LiRPA package, adapted where it has to be.

    Raises:
        BoundscopeError: it is not installed.
    """
    found = version()
    if not found:
        raise BoundscopeError(
            "auto_LiRPA is not installed; get it by: pip install --no-deps auto_LiRPA==0.3 && pip install appdirs tqdm"
        )
    if found in ADAPTED:
        _restore_numpy_names()
        _restore_torch_names()
    package = _import_quietly()
    if found in ADAPTED:
        _accept_remove_duplicate(package.BoundedModule)
    return package


def version() -> str:
    """The installed version of auto_LiRPA, or "" where it is not installed."""
    try:
        return metadata.version("auto_LiRPA")
    except metadata.PackageNotFoundError:
        return ""


def bound_options(*, patches: bool, steps: int, between_steps: Callable[[], None]) -> dict[str, Any]:
    """`bound_opts` of BoundedModule that mean the same in every version.

    Args:
        patches: whether convolutions are carried as patches, else as matrices.
        steps: of alpha-CROWN's optimiser.
        between_steps: called once a step; what it raises ends the search.
    """

    def stop(_: object) -> bool:
        between_steps()
        return False

    options: dict[str, Any] = {
        "conv_mode": "patches" if patches else "matrix",
        "optimize_bound_args": {"iteration": steps, "stop_criterion_func": stop},
    }
    if version() in ADAPTED:
        # 0.3 fails where more than nine tenths of a layer are unstable.
        options["sparse_features_alpha"] = False
    return options


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keeps what auto_LiRPA and torch's tracer print and warn of away from people."""
    with (
        open(os.devnull, "w") as nowhere,
        contextlib.redirect_stdout(nowhere),
        warnings.catch_warnings(record=True),
    ):
        yield


def _import_quietly() -> ModuleType:
    """Import it, and undo what it does to the logging and warnings of the whole process."""
    root = logging.getLogger()
    handlers, level = list(root.handlers), root.level
    with quiet():
        package = importlib.import_module("auto_LiRPA")
    root.handlers[:] = handlers
    root.setLevel(level)
    logger = logging.getLogger("auto_LiRPA")
    logger.propagate = False
    logger.addHandler(logging.NullHandler())
    return package


def _restore_numpy_names() -> None:
    """numpy.lib.arraysetops became private in numpy 2."""
    name = "numpy.lib.arraysetops"
    if name not in sys.modules:
        module = types.ModuleType(name)
        module.isin = np.isin  # type: ignore[attr-defined]
        sys.modules[name] = module


def _restore_torch_names() -> None:
    """What torch.onnx had in 1.12: a setter of the opset, and attributes of graph nodes by subscript."""
    import torch

    symbolic_helper: Any = importlib.import_module("torch.onnx.symbolic_helper")
    if not hasattr(symbolic_helper, "_set_opset_version"):
        settings = _onnx_globals()

        def set_opset_version(version: int) -> None:
            settings.export_onnx_opset_version = version

        symbolic_helper._set_opset_version = set_opset_version
    node: Any = torch._C.Node
    if not hasattr(node, "__getitem__"):
        node.__getitem__ = lambda self, key: getattr(self, self.kindOf(key))(key)


def _onnx_globals() -> Any:
    for name in ("torch.onnx._internal.torchscript_exporter._globals", "torch.onnx._globals"):
        try:
            return importlib.import_module(name).GLOBALS
        except ImportError:
            continue
    raise BoundscopeError(
        "this torch no longer has the ONNX graph exporter that auto_LiRPA 0.3 needs; use torch 2.13"
    )


def _accept_remove_duplicate(bounded_module: Any) -> None:
    """torch ≥ 2.0 passes `remove_duplicate` to the method that BoundedModule overrides."""
    original = bounded_module._named_members

    def named_members(self: Any, get: Any, prefix: str = "", recurse: bool = True, **_: object) -> Any:
        return original(self, get, prefix, recurse)

    bounded_module._named_members = named_members
