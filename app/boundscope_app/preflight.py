"""Checks what Qt needs of the system before Qt is asked, so that what is missing is said plainly. No Qt."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Callable, Mapping

DEBIAN_PACKAGES: dict[str, str] = {
    "libEGL.so.1": "libegl1",
    "libGL.so.1": "libgl1",
    "libxkbcommon.so.0": "libxkbcommon0",
    "libfontconfig.so.1": "libfontconfig1",
    "libdbus-1.so.3": "libdbus-1-3",
    "libglib-2.0.so.0": "libglib2.0-0",
}
DEBIAN_PACKAGES_X11: dict[str, str] = {
    "libxcb.so.1": "libxcb1",
    "libxkbcommon-x11.so.0": "libxkbcommon-x11-0",
    "libxcb-cursor.so.0": "libxcb-cursor0",
    "libxcb-icccm.so.4": "libxcb-icccm4",
    "libxcb-keysyms.so.1": "libxcb-keysyms1",
    "libxcb-image.so.0": "libxcb-image0",
    "libxcb-render-util.so.0": "libxcb-render-util0",
    "libxcb-shape.so.0": "libxcb-shape0",
    "libxcb-xkb.so.1": "libxcb-xkb1",
    "libxcb-randr.so.0": "libxcb-randr0",
    "libxcb-xfixes.so.0": "libxcb-xfixes0",
    "libX11-xcb.so.1": "libx11-xcb1",
}
WITHOUT_SCREEN = frozenset({"offscreen", "minimal", "vnc", "linuxfb", "eglfs", "vkkhrdisplay"})
NO_DISPLAY = (
    "There is no display to open a window on (neither DISPLAY nor WAYLAND_DISPLAY is set). "
    "Use the command line instead: boundscope verify NETWORK PROPERTY. "
    "Over ssh, connect with ssh -X, or install xvfb and run: xvfb-run boundscope-app"
)


def _loads(library: str) -> bool:
    try:
        ctypes.CDLL(library)
    except OSError:
        return False
    return True


def _answers(display: str) -> bool:
    """Whether an X server answers; True where that cannot be asked, so that Qt decides."""
    try:
        xcb = ctypes.CDLL("libxcb.so.1")
    except OSError:
        return True
    xcb.xcb_connect.restype = ctypes.c_void_p
    connection = ctypes.c_void_p(xcb.xcb_connect(display.encode(), None))
    failed = bool(xcb.xcb_connection_has_error(connection))
    xcb.xcb_disconnect(connection)
    return not failed


def problem(
    environ: Mapping[str, str] = os.environ,
    platform: str = sys.platform,
    loads: Callable[[str], bool] = _loads,
    answers: Callable[[str], bool] = _answers,
) -> str | None:
    """One sentence or two on what keeps a window from opening, with the remedy; None where nothing does."""
    if not platform.startswith("linux"):
        return None
    qpa = environ.get("QT_QPA_PLATFORM", "").split(":")[0].split(";")[0]
    needed = dict(DEBIAN_PACKAGES)
    uses_x11 = qpa == "xcb" or (not qpa and "WAYLAND_DISPLAY" not in environ)
    if uses_x11:
        needed |= DEBIAN_PACKAGES_X11
    missing = [name for name in needed if not loads(name)]
    if missing:
        packages = " ".join(needed[name] for name in missing)
        return (
            f"The window needs system libraries that are not installed: {', '.join(missing)}. "
            f"On Debian or Ubuntu: sudo apt-get install {packages}"
        )
    if qpa in WITHOUT_SCREEN or not uses_x11:
        return None
    display = environ.get("DISPLAY", "")
    if not display:
        return NO_DISPLAY
    if not answers(display):
        return (
            f"No X server answers at DISPLAY={display}. Start one, correct DISPLAY, "
            "or use the command line: boundscope verify NETWORK PROPERTY"
        )
    return None


def without_qt(error: ImportError) -> str:
    """What to say when PySide6 itself cannot be imported."""
    text = str(error)
    library = text.split(":")[0].strip()
    package = (DEBIAN_PACKAGES | DEBIAN_PACKAGES_X11).get(library)
    if package is not None:
        return (
            f"The window needs a system library that is not installed: {library}. "
            f"On Debian or Ubuntu: sudo apt-get install {package}"
        )
    return (
        f"The window needs PySide6 and pyqtgraph ({text}). Install them with: pip install 'boundscope[app]'"
    )
