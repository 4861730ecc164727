"""Makes an auto_LiRPA of an earlier year, such as PyPI's 0.3, work beside today's torch and numpy.

It reads names that torch and numpy have since moved. Whether one is needed is tried, and not read off a version: a
package that imports, traces and bounds a small network as it is, is left as it is. Nothing of auto_LiRPA itself is
changed but one method's signature.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import inspect
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

PACKAGE = "auto_LiRPA"


def import_auto_lirpa() -> ModuleType:
    """The auto_LiRPA package, adapted where it has to be.

    Raises:
        BoundscopeError: it is not installed, or does not work with this torch whatever is done.
    """
    if not version():
        raise BoundscopeError(
            "auto_LiRPA is not installed; get it by: pip install --no-deps auto_LiRPA==0.3 && pip install appdirs tqdm"
        )
    return _adapted()


@functools.cache
def _adapted() -> ModuleType:
    """Import it as it is, adapt what fails, and see that it bounds a small network."""
    try:
        package = _import_quietly()
    except (ImportError, AttributeError) as error:
        _forget(PACKAGE)
        _restore_numpy_names()
        _restore_torch_names()
        package = _import_again(error)
    _accept_remove_duplicate(package.BoundedModule)
    failure = _failure_of_a_small_network(package)
    if failure is not None:
        _restore_torch_names()
        failure = _failure_of_a_small_network(package)
    if failure is not None:
        raise _unusable(failure)
    return package


def _import_again(first: Exception) -> ModuleType:
    try:
        return _import_quietly()
    except (ImportError, AttributeError) as error:
        raise _unusable(error) from first


def _unusable(error: Exception) -> BoundscopeError:
    import torch

    said = str(error).strip().partition("\n")[0]
    return BoundscopeError(
        f"{PACKAGE} {version()} does not work with torch {torch.__version__} and numpy {np.__version__}: "
        f"{type(error).__name__}: {said}; install another one, or leave --engine auto_lirpa and --cross-check out"
    )


def _forget(name: str) -> None:
    """Take a half-imported package out of the interpreter's list."""
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        del sys.modules[module]


def _small_network(package: ModuleType, options: dict[str, Any], width: int) -> Any:
    """Rectifiers of which all but one are unstable, traced; and a box of their input."""
    import torch
    from torch import nn

    first = nn.Linear(1, width)
    network = nn.Sequential(first, nn.ReLU(), nn.Linear(width, 1))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.fill_(0.0 if parameter.dim() == 1 else 1.0)
        first.bias[0] = 2.0
    network.requires_grad_(False)
    centre = torch.zeros(1, 1)
    box = package.PerturbationLpNorm(norm=np.inf, x_L=centre - 1.0, x_U=centre + 1.0)
    bounded = package.BoundedModule(network, centre, bound_opts=options, device="cpu")
    return bounded, package.BoundedTensor(centre, box)


def _failure_of_a_small_network(package: ModuleType) -> Exception | None:
    """Why it cannot trace and bound a small network, or None where it can."""
    try:
        with quiet():
            bounded, x = _small_network(package, {}, 2)
            bounded.compute_bounds(x=(x,), method="CROWN")
    except Exception as error:  # noqa: BLE001 - whatever a library without declared errors raises is the answer
        return error
    return None


@functools.cache
def _sparse_slopes_fail() -> bool:
    """Whether α-CROWN fails on a layer that is unstable but for a neuron, unless slopes are kept for all of it."""
    import torch

    package = import_auto_lirpa()
    try:
        with quiet(), torch.enable_grad():
            bounded, x = _small_network(package, {"optimize_bound_args": {"iteration": 1}}, 20)
            bounded.compute_bounds(x=(x,), method="CROWN-Optimized", bound_upper=False)
    except Exception:  # noqa: BLE001 - the question is whether it fails, however it does
        return True
    return False


def version() -> str:
    """The installed version of auto_LiRPA, or "" where it is not installed."""
    try:
        return metadata.version("auto_LiRPA")
    except metadata.PackageNotFoundError:
        return ""


def bound_options(
    *, patches: bool, steps: int, between_steps: Callable[[], None], optimised: bool = True
) -> dict[str, Any]:
    """`bound_opts` of BoundedModule that mean the same in every version.

    Args:
        patches: whether convolutions are carried as patches, else as matrices.
        steps: of alpha-CROWN's optimiser.
        between_steps: called once a step; what it raises ends the search.
        optimised: whether alpha-CROWN will run at all.
    """

    def stop(_: object) -> bool:
        between_steps()
        return False

    options: dict[str, Any] = {
        "conv_mode": "patches" if patches else "matrix",
        "optimize_bound_args": {"iteration": steps, "stop_criterion_func": stop},
    }
    if optimised and _sparse_slopes_fail():  # as in 0.3, where more than nine tenths of a layer are unstable
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
        "this torch no longer has the ONNX graph exporter that this auto_LiRPA needs; use torch 2.13"
    )


def _accept_remove_duplicate(bounded_module: Any) -> None:
    """torch ≥ 2.0 passes `remove_duplicate` to a method that BoundedModule may override without it."""
    original = bounded_module._named_members
    accepted = inspect.signature(original).parameters
    if "remove_duplicate" in accepted or any(one.kind is one.VAR_KEYWORD for one in accepted.values()):
        return

    def named_members(self: Any, get: Any, prefix: str = "", recurse: bool = True, **_: object) -> Any:
        return original(self, get, prefix, recurse)

    bounded_module._named_members = named_members
