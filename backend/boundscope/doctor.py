"""What Boundscope needs of a machine: each thing checked by using it, with a remedy where it is missing."""

from __future__ import annotations

import importlib
import json
import os
import shutil
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Literal

OLDEST_PYTHON = (3, 11)
FREE_BYTES_NEEDED = 1 << 30
PROBE_TIMEOUT_S = 60.0
REQUIRED_PACKAGES = (
    "torch",
    "numpy",
    "onnx",
    "onnxruntime",
    "msgspec",
    "pyzmq",
    "vnnlib",
    "platformdirs",
    "psutil",
    "rich",
    "pillow",
)
REINSTALL = "install Boundscope again: make run in its folder, or pip install boundscope"

State = Literal["ok", "missing", "note"]


@dataclass(frozen=True, kw_only=True)
class Check:
    """One thing: `missing` stops Boundscope from working, a `note` only keeps some of it from working."""

    name: str
    state: State
    found: str
    remedy: str = ""


def examine(home: Path) -> Iterator[Check]:
    """All checks in a fixed order, each as soon as it is done; takes some seconds in all."""
    yield _python()
    yield _packages()
    yield _native_prism()
    yield from _window()
    yield _virtual_screen()
    yield _loopback()
    yield _home(home)
    yield _private_files(home)
    yield _disk(home)
    yield _accelerator()
    yield _auto_lirpa()
    yield _ssh()


# ---------------------------------------------------------------- Python


def _python() -> Check:
    found = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info[:2] < OLDEST_PYTHON:
        return Check(name="Python", state="missing", found=found, remedy="install Python 3.11 or newer")
    return Check(name="Python", state="ok", found=f"{found} at {sys.executable}")


def _packages() -> Check:
    found, absent = [], []
    for name in REQUIRED_PACKAGES:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            absent.append(name)
    if absent:
        remedy = f"{sys.executable} -m pip install {' '.join(absent)}"
        return Check(name="packages", state="missing", found=f"without {', '.join(absent)}", remedy=remedy)
    return Check(name="packages", state="ok", found=", ".join(found))


def _native_prism() -> Check:
    try:
        module = importlib.import_module("boundscope_prism")
    except ImportError as error:
        return Check(
            name="native library", state="missing", found=f"cannot be imported ({error})", remedy=REINSTALL
        )
    target = getattr(module, "target", None)
    said = f"boundscope_prism, vector target {target()}" if callable(target) else "boundscope_prism"
    return Check(name="native library", state="ok", found=said)


# ---------------------------------------------------------------- window

_ASK_PREFLIGHT = "from boundscope_app.preflight import problem; print(problem() or '')"
_IMPORT_QT = "import PySide6.QtWidgets, pyqtgraph; print(PySide6.__version__, pyqtgraph.__version__)"


def _window() -> Iterator[Check]:
    """Whether Qt loads (pictures need that) and whether a window can be shown here."""
    if find_spec("PySide6") is None or find_spec("boundscope_app") is None:
        remedy = f"{sys.executable} -m pip install 'boundscope[app]'"
        yield Check(
            name="Qt", state="note", found="not installed: no window, no pictures in reports", remedy=remedy
        )
        return
    offscreen = {**os.environ, "QT_QPA_PLATFORM": "offscreen"}
    problem = _probe(_ASK_PREFLIGHT, offscreen)
    if not problem:
        loaded = _probe(_IMPORT_QT, offscreen)
        words = loaded.split()
        if len(words) == 2:
            yield Check(name="Qt", state="ok", found=f"PySide6 {words[0]}, pyqtgraph {words[1]}")
        else:
            yield Check(name="Qt", state="missing", found=f"does not load: {loaded}", remedy=REINSTALL)
    else:
        yield _split(Check(name="Qt", state="missing", found=problem))
    problem = _probe(_ASK_PREFLIGHT, dict(os.environ))
    if problem:
        yield _split(Check(name="window", state="note", found=problem))
    else:
        display = os.environ.get("WAYLAND_DISPLAY") or os.environ.get("DISPLAY", "")
        yield Check(name="window", state="ok", found=f"can be shown on {display or 'this screen'}")


def _split(check: Check) -> Check:
    """The same check, its first sentence as what was found and the rest as the remedy."""
    found, _, remedy = check.found.partition(". ")
    return Check(name=check.name, state=check.state, found=found, remedy=remedy)


def _probe(code: str, environment: dict[str, str]) -> str:
    """What a Python of its own prints for this code; the last line of its error where it fails."""
    try:
        done = subprocess.run(
            [sys.executable, "-c", code],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {PROBE_TIMEOUT_S:g} s"
    if done.returncode:
        return (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
    return done.stdout.strip()


def _virtual_screen() -> Check:
    found = shutil.which("Xvfb")
    if found and shutil.which("xauth"):
        return Check(name="virtual screen", state="ok", found=found)
    return Check(
        name="virtual screen",
        state="note",
        found="Xvfb or xauth is not installed; only the window's tests need them",
        remedy="sudo apt-get install xvfb xauth",
    )


# ---------------------------------------------------------------- daemon


def _loopback() -> Check:
    try:
        with (
            socket.create_server(("127.0.0.1", 0)) as server,
            socket.create_connection(server.getsockname(), 2.0),
        ):
            port = server.getsockname()[1]
    except OSError as error:
        remedy = "allow programs to listen on and connect to 127.0.0.1 (a firewall or sandbox forbids it)"
        return Check(name="ports", state="missing", found=f"127.0.0.1 cannot be used: {error}", remedy=remedy)
    return Check(name="ports", state="ok", found=f"127.0.0.1 can be bound and reached (tried port {port})")


def _home(home: Path) -> Check:
    remedy = "make it writable, or set BOUNDSCOPE_HOME to a folder that is"
    existing = next(place for place in (home, *home.parents) if place.exists())
    try:
        if not existing.is_dir():
            return Check(name="home", state="missing", found=f"{existing} is not a folder", remedy=remedy)
        with tempfile.TemporaryFile(dir=existing):
            pass
    except OSError as error:
        return Check(name="home", state="missing", found=f"{home}: {error.strerror}", remedy=remedy)
    said = str(home) if home.exists() else f"{home} (will be made)"
    return Check(name="home", state="ok", found=said)


def _private_files(home: Path) -> Check:
    """The home, and the connection file with its keys, are for their owner only."""
    if not home.is_dir():
        return Check(name="key files", state="ok", found="none yet")
    suspects = [home, *(path for path in home.iterdir() if path.suffix in (".json", ".key", ".key_secret"))]
    opened = [path for path in suspects if stat.S_IMODE(path.stat().st_mode) & 0o077]
    if opened:
        names = " ".join(str(path) for path in opened)
        return Check(
            name="key files",
            state="missing",
            found=f"others may open {names}",
            remedy=f"chmod go-rwx {names}",
        )
    return Check(name="key files", state="ok", found="for their owner only")


def _disk(home: Path) -> Check:
    existing = next(place for place in (home, *home.parents) if place.exists())
    free = shutil.disk_usage(existing).free
    said = f"{free / (1 << 30):.1f} GiB free at {existing}"
    if free < FREE_BYTES_NEEDED:
        remedy = "free at least 1 GiB, or set BOUNDSCOPE_HOME to a folder on another disk"
        return Check(name="disk", state="missing", found=said, remedy=remedy)
    return Check(name="disk", state="ok", found=said)


# ---------------------------------------------------------------- what some jobs use

_ASK_TORCH = """
import json, torch, torch.distributed as dist
available = torch.cuda.is_available()
print(json.dumps({
    "cuda": torch.version.cuda,
    "devices": [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] if available else [],
    "nccl": ".".join(map(str, torch.cuda.nccl.version())) if available and dist.is_nccl_available() else None,
    "gloo": dist.is_available() and dist.is_gloo_available(),
    "threads": torch.get_num_threads(),
}))
"""


def _accelerator() -> Check:
    """CUDA devices and the collectives that ranks use."""
    said = _probe(_ASK_TORCH, dict(os.environ))
    try:
        told = json.loads(said)
    except json.JSONDecodeError:
        return Check(name="torch", state="missing", found=f"does not load: {said}", remedy=REINSTALL)
    if not told["gloo"]:
        remedy = "install a build of torch with gloo, as PyPI's"
        return Check(name="torch", state="missing", found="without gloo: ranks cannot talk", remedy=remedy)
    if told["devices"]:
        devices = ", ".join(told["devices"])
        nccl = f"NCCL {told['nccl']}" if told["nccl"] else "no NCCL"
        return Check(name="torch", state="ok", found=f"CUDA {told['cuda']}, {nccl}: {devices}")
    if shutil.which("nvidia-smi"):
        built = (
            f"torch is built for CUDA {told['cuda']}" if told["cuda"] else "this torch is built for CPUs only"
        )
        remedy = "install a torch that fits the driver (nvidia-smi names its CUDA version)"
        return Check(name="torch", state="note", found=f"a GPU is there, but {built}", remedy=remedy)
    return Check(name="torch", state="ok", found=f"CPU only, gloo, {told['threads']} threads")


_ASK_AUTO_LIRPA = """
import os; os.environ.setdefault("OMP_NUM_THREADS", "1")
from boundscope.reference.guard import start_values_note
print(start_values_note())
"""


def _auto_lirpa() -> Check:
    """The second engine is tried on a network whose best slopes are known."""
    try:
        found = version("auto_LiRPA")
    except PackageNotFoundError:
        return Check(
            name="auto_LiRPA",
            state="note",
            found="not installed: no second, independent engine",
            remedy=f"{sys.executable} -m pip install --no-deps auto_LiRPA==0.3 appdirs tqdm",
        )
    problem = _probe(_ASK_AUTO_LIRPA, dict(os.environ))
    if problem:
        remedy = f"{sys.executable} -m pip install --no-deps auto_LiRPA==0.3 appdirs tqdm, with torch 2.13"
        return Check(name="auto_LiRPA", state="note", found=f"{found}: {problem}", remedy=remedy)
    return Check(name="auto_LiRPA", state="ok", found=f"{found}, bounds and optimises")


def _ssh() -> Check:
    found = shutil.which("ssh")
    if found:
        return Check(name="ssh", state="ok", found=found)
    return Check(
        name="ssh",
        state="note",
        found="not installed: no jobs on other machines",
        remedy="sudo apt-get install openssh-client",
    )
