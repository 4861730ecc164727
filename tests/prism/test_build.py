"""The build: C++ tests on every target, the C++ package for others, and the wheel that pip makes of the project."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# Half a dozen families of kernels for every instruction set: minutes on a busy machine.
pytestmark = pytest.mark.timeout(1500)
PACKAGES = ("boundscope", "boundscope_app", "boundscope_prism", "boundscope_resources")

CONSUMER_CMAKE = """
cmake_minimum_required(VERSION 3.20)
project(consumer LANGUAGES CXX)
find_package(prism 0.1 REQUIRED)
add_executable(consumer consumer.cc)
target_compile_features(consumer PRIVATE cxx_std_17)
target_link_libraries(consumer PRIVATE prism::prism)
"""
CONSUMER_CODE = """
#include <prism/prism.h>
int main() {
  const float a[] = {1.0f, 2.0f}, b = 2.0f;
  float sum[2] = {};
  prism::Rounding rounding;
  rounding.mode = prism::Mode::kStochastic;
  rounding.seed = 1;
  prism::Add(prism::Operand<float>::Whole(a, 2), prism::Operand<float>::Scalar(&b), sum, 2, rounding);
  return sum[0] == 3.0f && sum[1] == 4.0f ? 0 : 1;
}
"""


def run(*command: str | Path, cwd: Path | None = None) -> str:
    process = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert process.returncode == 0, process.stdout
    return process.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build folder of native_prism, warnings as errors."""
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    folder = tmp_path_factory.mktemp("native_prism")
    warnings = "-DCMAKE_CXX_FLAGS=-Werror"
    run("cmake", "-S", ROOT / "native_prism", "-B", folder, "-DBOUNDSCOPE_PRISM_PYTHON=OFF", warnings)
    run("cmake", "--build", folder, "--parallel")
    return folder


@pytest.mark.slow
def test_the_library_builds_without_warnings_and_passes_its_own_tests(built: Path) -> None:
    output = run("ctest", "--test-dir", built, "--output-on-failure")
    assert "100% tests passed" in output


@pytest.mark.slow
def test_another_cmake_project_can_use_the_installed_library(built: Path, tmp_path: Path) -> None:
    run("cmake", "--install", built, "--prefix", tmp_path / "prefix")
    (tmp_path / "CMakeLists.txt").write_text(CONSUMER_CMAKE)
    (tmp_path / "consumer.cc").write_text(CONSUMER_CODE)
    run("cmake", "-S", tmp_path, "-B", tmp_path / "build", f"-DCMAKE_PREFIX_PATH={tmp_path / 'prefix'}")
    run("cmake", "--build", tmp_path / "build")
    run(tmp_path / "build" / "consumer")


@pytest.mark.slow
def test_a_wheel_holds_all_four_packages_with_data_and_types(tmp_path: Path) -> None:
    pytest.importorskip("scikit_build_core")
    run(
        *(sys.executable, "-m", "pip", "wheel", ROOT, "--no-deps", "--no-build-isolation"),
        *("-w", tmp_path, "-C", f"build-dir={tmp_path / 'build'}", "-C", "cmake.build-type=Debug"),
    )
    (wheel,) = tmp_path.glob("boundscope-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert {f"{package}/__init__.py" for package in PACKAGES} <= names
    assert {"boundscope_prism/py.typed", "boundscope_prism/_prism.pyi"} <= names
    assert any(name.startswith("boundscope_prism/_prism.") and not name.endswith(".pyi") for name in names)
    assert not any(name.startswith(("tests/", "include/", "lib/")) for name in names)
    data = [
        path
        for path in (ROOT / "resources").rglob("*")
        if path.suffix in (".onnx", ".vnnlib", ".svg", ".json")
    ]
    assert {
        f"boundscope_resources/{path.relative_to(ROOT / 'resources').as_posix()}" for path in data
    } <= names


def test_the_packages_import_from_any_folder(tmp_path: Path) -> None:
    program = (
        f"import importlib\nfor name in {PACKAGES}: importlib.import_module(name)\n"
        "import importlib.resources\n"
        "assert importlib.resources.files('boundscope_resources').joinpath('__init__.py').is_file()\n"
    )
    run(sys.executable, "-c", program, cwd=tmp_path)
