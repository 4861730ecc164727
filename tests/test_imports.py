"""Arrows between the rooms of the house point one way only, and torch stays out of the processes that must be light."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = {
    "boundscope": ROOT / "backend" / "boundscope",
    "boundscope_app": ROOT / "app" / "boundscope_app",
    "boundscope_prism": ROOT / "native_prism" / "boundscope_prism",
}
FOUNDATION = {
    "errors",
    "protocol",
    "pace",
    "monitor",
    "layers",
    "records",
    "comparison",
    "comparison_facts",
    "capabilities",
    "command",
    "costs",
    "costs_fetches",
    "costs_setup",
    "costs_walk",
    "examples",
    "instances",
    "vnncomp",
    "startup",
    "threads",
    "__version__",
}
MATHEMATICS = {"sharding", "network", "properties"}

# Which rooms of `boundscope` each room may import, beside itself.
ARROWS: dict[str, set[str]] = {
    "errors": set(),
    "protocol": set(),
    "pace": {"protocol"},
    "monitor": {"errors", "protocol", "pace"},
    "layers": {"protocol"},
    "records": {"protocol", "layers"},
    "comparison_facts": {"protocol", "layers", "records"},
    "comparison": {"errors", "protocol", "layers", "records", "comparison_facts"},
    "capabilities": {"errors", "protocol"},
    "command": {"protocol"},
    "costs_setup": {"protocol"},
    "costs_walk": {"protocol"},
    "costs_fetches": {"protocol", "costs_setup"},
    "costs": {"protocol", "costs_fetches", "costs_setup", "costs_walk"},
    "examples": {"errors", "protocol"},
    "instances": {"errors", "protocol"},
    "vnncomp": {"protocol"},
    "startup": set(),
    "threads": set(),
    "network": {"errors"},
    "properties": {"errors", "protocol"},
    "sharding": FOUNDATION | {"network", "properties"},
    "bounds": FOUNDATION | MATHEMATICS,
    "search": FOUNDATION | MATHEMATICS | {"bounds"},
    "variability": FOUNDATION | MATHEMATICS | {"boundscope_prism"},
    "reference": FOUNDATION | MATHEMATICS,
    # Ranks speak the daemon's protocol, and `worker.local` runs a job as the daemon does; never the other way.
    "worker": FOUNDATION | MATHEMATICS | {"bounds", "search", "variability", "reference", "client", "daemon"},
    "client": FOUNDATION,
    "daemon": FOUNDATION | {"client"},
    "report": FOUNDATION,
    "doctor": FOUNDATION,
    "cli": FOUNDATION | {"client", "report", "doctor", "worker", "sharding", "variability"},
    "__main__": {"cli"},
    "boundscope_app": {
        "protocol",
        "client",
        "layers",
        "records",
        "comparison",
        "comparison_facts",
        "capabilities",
        "command",
        "costs",
        "errors",
        "examples",
        "instances",
        "vnncomp",
        "__version__",
    },
    "boundscope_prism": {"errors"},
}


def modules() -> Iterator[tuple[str, str, Path]]:
    """Room, dotted name and path of every module of ours."""
    for package, folder in PACKAGES.items():
        for path in sorted(folder.rglob("*.py")):
            parts = path.relative_to(folder).with_suffix("").parts
            room = parts[0] if package == "boundscope" else package
            yield room, ".".join((package, *parts)), path


def imported(path: Path, dotted: str) -> Iterator[tuple[int, str]]:
    """Line and dotted name of everything of ours that a module imports, wherever in the module it does."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parents = dotted.split(".")[: -node.level]
                base = ".".join([*parents, base]) if base else ".".join(parents)
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        yield from ((node.lineno, name) for name in names if name.split(".")[0] in PACKAGES)


def test_arrows_point_one_way() -> None:
    """ARCHITECTURE: a room imports only the rooms that it may know of."""
    wrong = []
    for room, dotted, path in modules():
        if dotted == "boundscope.__init__":
            assert not list(imported(path, dotted)), "boundscope/__init__.py must stay empty of our imports"
            continue
        assert room in ARROWS, (
            f"{path.relative_to(ROOT)}: the room {room!r} is new; say in ARROWS what it may import"
        )
        for line, name in imported(path, dotted):
            package, _, rest = name.partition(".")
            target = (rest.split(".")[0] or "__version__") if package == "boundscope" else package
            if target not in (room, *ARROWS[room]):
                wrong.append(f"{path.relative_to(ROOT)}:{line}: {room} must not import {name}")
    assert not wrong, "\n".join(wrong)


LIGHT = (
    "boundscope.protocol",
    "boundscope.layers",
    "boundscope.records",
    "boundscope.comparison",
    "boundscope.command",
    "boundscope.costs",
    "boundscope.capabilities",
    "boundscope.examples",
    "boundscope.instances",
    "boundscope.vnncomp",
    "boundscope.client",
    "boundscope.daemon",
    "boundscope.report",
    "boundscope.cli",
    "boundscope_app",
)

IMPORT_ALL = """
import importlib, pkgutil, sys
package = importlib.import_module(sys.argv[1])
names = [package.__name__]
if hasattr(package, "__path__"):
    names += [found.name for found in pkgutil.walk_packages(package.__path__, package.__name__ + ".")]
for name in names:
    if not name.endswith("__main__"):
        importlib.import_module(name)
assert len(names) > 0
heavy = sorted(name for name in ("torch", "onnx", "onnxruntime") if name in sys.modules)
if sys.argv[1] != "boundscope_app":
    heavy += [name for name in ("PySide6",) if name in sys.modules]
sys.exit(f"importing {sys.argv[1]} and all its modules imports {', '.join(heavy)}" if heavy else 0)
"""


@pytest.mark.parametrize("package", LIGHT)
def test_light_processes_never_import_torch(package: str) -> None:
    """The window, the client, the daemon and the start of the command line stay free of torch, and of Qt's weight."""
    environment = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    environment["PYTHONPATH"] = os.pathsep.join(str(folder.parent) for folder in PACKAGES.values())
    done = subprocess.run(
        [sys.executable, "-c", IMPORT_ALL, package],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
