"""auto_LiRPA is adapted where it needs it, whatever its version says, and left alone where it works as it is."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from boundscope.reference import compat

pytestmark = pytest.mark.skipif(not compat.version(), reason="auto_LiRPA is not installed")

LOOK = """
import json, sys
import torch
from boundscope.reference import compat
from boundscope.protocol import Method
from boundscope.errors import BoundscopeError

try:
    package = compat.import_auto_lirpa()
except BoundscopeError as error:
    print(json.dumps({"refused": str(error)}))
    sys.exit()
options = compat.bound_options(patches=False, steps=2, between_steps=lambda: None)
bounded, x = compat._small_network(package, options, 20)
with compat.quiet():
    lower, _ = bounded.compute_bounds(x=(x,), method="CROWN-Optimized", bound_upper=False)
print(json.dumps({
    "file": package.__file__,
    "version": compat.version(),
    "numpy restored": "numpy.lib.arraysetops" in sys.modules,
    "node restored": hasattr(torch._C.Node, "__getitem__"),
    "method replaced": package.BoundedModule._named_members.__module__.startswith("boundscope"),
    "lower": float(lower),
}))
"""


def copy_of_installed(folder: Path, version: str) -> Path:
    """The installed package under another version."""
    spec = importlib.util.find_spec("auto_LiRPA")
    assert spec is not None
    assert spec.origin is not None
    package = folder / "auto_LiRPA"
    shutil.copytree(Path(spec.origin).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
    about = folder / f"auto_LiRPA-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: auto_LiRPA\nVersion: {version}\n")
    return package


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    if old in text:
        path.write_text(text.replace(old, new))


def look(folder: Path) -> dict[str, object]:
    """What an interpreter of its own sees that finds the package in `folder` first."""
    code = f"import sys; sys.path.insert(0, {str(folder)!r})\n{LOOK}"
    ended = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, timeout=200)
    assert ended.returncode == 0, ended.stderr
    seen: dict[str, object] = json.loads(ended.stdout.splitlines()[-1])
    return seen


def modernised(package: Path) -> None:
    """As later releases are: names that torch and numpy have today."""
    replace(
        package / "operators/base.py", "from numpy.lib.arraysetops import isin\n", "from numpy import isin\n"
    )
    graph = package / "parse_graph.py"
    replace(graph, "from torch.onnx.symbolic_helper import _set_opset_version\n", "")
    replace(
        graph,
        "_set_opset_version(12)",
        "from boundscope.reference.compat import _onnx_globals; _onnx_globals().export_onnx_opset_version = 12",
    )
    replace(graph, "{k: n[k] for", "{k: getattr(n, n.kindOf(k))(k) for")
    for name in ("bound_general.py", "bound_multi_gpu.py"):
        replace(
            package / name, "prefix='', recurse=True):", "prefix='', recurse=True, remove_duplicate=True):"
        )


def test_what_works_as_it_is_is_left_alone(tmp_path: Path) -> None:
    modernised(copy_of_installed(tmp_path, "0.7.1"))
    seen = look(tmp_path)
    assert seen["version"] == "0.7.1"
    assert str(seen["file"]).startswith(str(tmp_path))
    assert seen["numpy restored"] is False
    assert seen["node restored"] is False
    assert seen["method replaced"] is False
    assert seen["lower"] == pytest.approx(-1.0 + 2.0, abs=1e-3)


@pytest.mark.parametrize("version", ["0.3", "0.7.1"])
def test_what_needs_it_is_adapted_whatever_its_version_says(tmp_path: Path, version: str) -> None:
    copy_of_installed(tmp_path, version)
    seen = look(tmp_path)
    assert seen["version"] == version
    assert str(seen["file"]).startswith(str(tmp_path))
    assert seen["lower"] == pytest.approx(-1.0 + 2.0, abs=1e-3)


def test_what_cannot_be_made_to_work_is_refused_with_the_cause(tmp_path: Path) -> None:
    package = copy_of_installed(tmp_path, "0.9")
    (package / "__init__.py").write_text("from torch import no_such_name\n")
    refused = str(look(tmp_path)["refused"])
    assert "auto_LiRPA 0.9 does not work with torch" in refused
    assert "no_such_name" in refused
