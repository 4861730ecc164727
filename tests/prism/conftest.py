"""What tests draw is the same in every run and in any order."""

from __future__ import annotations

import sys

import pytest


@pytest.fixture(autouse=True)
def drawn_alike() -> None:
    """Where torch is imported; many of these tests need none."""
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)
