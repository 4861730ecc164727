"""Shared fixtures. Tests that need `../shared` skip with a reason where it is not there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

ROOT = Path(__file__).resolve().parent.parent
# A process that stands by imports all of torch, and most tests have one small job or none. Those that want one say so.
os.environ["BOUNDSCOPE_NO_SPARE"] = "1"
# The same examples in every run, however slow the machine: what passed here passes elsewhere. New ones are looked for
# with --hypothesis-profile=default.
settings.register_profile(
    "fixed", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("fixed")
SHARED = Path(os.environ.get("BOUNDSCOPE_SHARED", ROOT.parent / "shared"))


def _shared(name: str) -> Path:
    path = SHARED / name
    if not path.is_dir():
        pytest.skip(f"{path} is not there; set BOUNDSCOPE_SHARED to the folder that holds {name}")
    return path


@pytest.fixture(scope="session")
def vnncomp() -> Path:
    """The folder of VNN-COMP instances, with manifest.csv."""
    return _shared("vnncomp")


@pytest.fixture(scope="session")
def cases() -> Path:
    """The folder of small hard cases, each with expected.json."""
    return _shared("cases")
