"""Set up Boundscope in .venv at the repository's root. Standard library only; safe to run again at any time.

    python3 scripts/set_up.py [--quiet] [--venv DIR]

Does nothing when nothing that matters has changed since the last time (a stamp in the environment says so).
Exit status 0 when the environment is ready, 1 otherwise, always with a sentence that says what to do.
"""

import argparse
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys
import sysconfig

ROOT = pathlib.Path(__file__).resolve().parent.parent
OLDEST_PYTHON = (3, 11)
STAMP_NAME = "boundscope-setup.sha256"
AUTO_LIRPA = "auto_LiRPA==0.3"
BUILD_PACKAGES = ("scikit-build-core>=0.11", "pybind11>=2.13", "cmake>=3.20", "ninja>=1.11")

DEBIAN_PACKAGES = {
    "to build the native library": ("g++", "cmake", "ninja-build", "libhwy-dev"),
    "to show a window": (
        "libegl1",
        "libgl1",
        "libxkbcommon0",
        "libfontconfig1",
        "libdbus-1-3",
        "libglib2.0-0",
        "fonts-dejavu-core",
        "libxkbcommon-x11-0",
        "libxcb-cursor0",
        "libxcb-icccm4",
        "libxcb-keysyms1",
        "libxcb-image0",
        "libxcb-render-util0",
        "libxcb-shape0",
        "libxcb-xkb1",
        "libxcb-randr0",
        "libxcb-xfixes0",
        "libx11-xcb1",
    ),
    "to test the window without a screen": ("xvfb", "xauth"),
}


class SetUpError(Exception):
    """What went wrong and what to do, in one sentence or two."""


def say(text):
    print(f"set-up: {text}", flush=True)


# ---------------------------------------------------------------- Python


def find_python():
    """The interpreter to build the environment with: this one, or a newer one on the PATH."""
    if sys.version_info[:2] >= OLDEST_PYTHON:
        return sys.executable
    for minor in range(16, OLDEST_PYTHON[1] - 1, -1):
        found = shutil.which(f"python3.{minor}")
        if found:
            return found
    version = ".".join(map(str, sys.version_info[:3]))
    raise SetUpError(
        f"Boundscope needs Python 3.11 or newer and this is {version}. "
        "Install one (on Debian 12 or newer: apt-get install python3 python3-venv python3-dev) "
        "or name it: make run PYTHON=/path/to/python3.12"
    )


# ---------------------------------------------------------------- system packages


def missing_packages():
    """Debian packages of the list that are not installed, in order."""
    wanted = [name for names in DEBIAN_PACKAGES.values() for name in names]
    # An interpreter from Debian has its venv and headers in packages of their own.
    if not pathlib.Path(sysconfig.get_path("include"), "Python.h").exists():
        wanted.append("python3-dev")
    if subprocess.run([sys.executable, "-c", "import ensurepip"], capture_output=True).returncode:
        wanted.append("python3-venv")
    query = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *wanted],
        capture_output=True,
        text=True,
    )
    installed = {line.split()[0] for line in query.stdout.splitlines() if line.split()[1:2] == ["ii"]}
    # Since Debian 13 some libraries carry the suffix of the 64-bit time transition.
    suffixed = subprocess.run(
        ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Abbrev}\n", *(f"{name}t64" for name in wanted)],
        capture_output=True,
        text=True,
    )
    installed |= {
        line.split()[0].removesuffix("t64")
        for line in suffixed.stdout.splitlines()
        if line.split()[1:2] == ["ii"]
    }
    return [name for name in wanted if name not in installed]


def install_system_packages():
    """Install what is missing when root; otherwise print the one line to run. Never stops the set-up."""
    if not shutil.which("apt-get") or not shutil.which("dpkg-query"):
        say(
            "this system has no apt-get. Needed from its own packages: a C++ compiler, CMake, Ninja, and for "
            "the window EGL, GL, xkbcommon, fontconfig, D-Bus, GLib and the xcb libraries of Qt 6."
        )
        return
    missing = missing_packages()
    if not missing:
        return
    if os.geteuid() != 0:
        say(f"{len(missing)} system packages are not installed. To install them, run this line:")
        print(f"    sudo apt-get install -y --no-install-recommends {' '.join(missing)}", flush=True)
        say("going on without them; `boundscope doctor` says later what cannot work for want of them.")
        return
    say(f"installing {len(missing)} system packages: {' '.join(missing)}")
    environment = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    log = ROOT / "build" / "apt.log"
    log.parent.mkdir(exist_ok=True)
    with log.open("w") as output:
        for command in (
            ["apt-get", "-q", "update"],
            ["apt-get", "-q", "install", "-y", "--no-install-recommends", *missing],
        ):
            done = subprocess.run(command, env=environment, stdout=output, stderr=subprocess.STDOUT)
            if done.returncode and command[2] == "install":
                say(
                    f"apt-get could not install them (its words are in {log}). Going on; "
                    "`boundscope doctor` says later what cannot work for want of them."
                )


# ---------------------------------------------------------------- the environment


def fingerprint(python):
    """Hash of what the environment depends on: project file, pins, native sources, interpreter, place."""
    digest = hashlib.sha256(f"{python}\n{ROOT}\n".encode())
    files = [ROOT / "pyproject.toml", ROOT / "constraints.txt", pathlib.Path(__file__)]
    native = ROOT / "native_prism"
    files += sorted(
        path
        for path in native.rglob("*")
        if path.is_file()
        and (path.suffix in {".cc", ".cpp", ".h", ".hpp", ".cmake"} or path.name == "CMakeLists.txt")
    )
    for path in files:
        digest.update(str(path.relative_to(ROOT)).encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()


def run_pip(python, *arguments):
    """pip with our pins; its output goes to a log that is shown only on failure."""
    log = ROOT / "build" / "pip.log"
    log.parent.mkdir(exist_ok=True)
    options = ["--disable-pip-version-check", "-c", str(ROOT / "constraints.txt")]
    command = [str(python), "-m", "pip", "install", *options, *arguments]
    with log.open("w") as output:
        done = subprocess.run(command, stdout=output, stderr=subprocess.STDOUT, cwd=ROOT)
    if done.returncode:
        tail = "\n    ".join(log.read_text(errors="replace").splitlines()[-15:])
        raise SetUpError(
            f"pip could not install {' '.join(arguments)}. Its last words:\n    {tail}\n"
            f"All of them are in {log}. Without a network, set PIP_FIND_LINKS to a folder of wheels."
        )


def make_environment(python, venv):
    interpreter = venv / "bin" / "python"
    # A half-made environment, or one whose Python has gone, is made anew.
    if (
        interpreter.exists()
        and subprocess.run([interpreter, "-m", "pip", "-V"], capture_output=True).returncode == 0
    ):
        return
    say(f"making the environment {venv}")
    done = subprocess.run([python, "-m", "venv", "--clear", str(venv)], capture_output=True, text=True)
    if done.returncode:
        raise SetUpError(
            f"{python} could not make a virtual environment: {(done.stderr or done.stdout).strip()} "
            "(on Debian: apt-get install python3-venv)"
        )


def install(venv):
    """Build tools, then Boundscope with its native library, then auto_LiRPA without its old pins."""
    python = venv / "bin" / "python"
    say("installing the build tools")
    run_pip(python, *BUILD_PACKAGES)
    say("building the native library and installing Boundscope with what it needs (torch is large; minutes)")
    run_pip(python, "--no-build-isolation", "-e", ".[app,test,lint,reference]")
    # auto_LiRPA 0.3 pins torch < 1.13; the reference engine repairs what has moved since.
    try:
        run_pip(python, "--no-deps", AUTO_LIRPA)
    except SetUpError:
        say(f"{AUTO_LIRPA} could not be installed: the engine auto_lirpa will not be there. All else will.")


def set_up(venv, quiet):
    python = find_python()
    stamp = venv / STAMP_NAME
    wanted = fingerprint(python)
    if stamp.exists() and stamp.read_text() == wanted:
        if not quiet:
            say(f"{venv} is up to date")
        return
    install_system_packages()
    make_environment(python, venv)
    install(venv)
    stamp.write_text(wanted)
    say("done")


def main():
    parser = argparse.ArgumentParser(description="Set up Boundscope in a virtual environment.")
    parser.add_argument(
        "--venv", type=pathlib.Path, default=ROOT / ".venv", help="default: .venv at the root"
    )
    parser.add_argument("--quiet", action="store_true", help="say nothing when there is nothing to do")
    arguments = parser.parse_args()
    try:
        set_up(arguments.venv.absolute(), arguments.quiet)
    except SetUpError as error:
        print(f"set-up: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nset-up: stopped; run it again to go on", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
