"""Every test of a view starts in the light theme. The screen is chosen one folder up."""

from __future__ import annotations

import pytest
from PySide6.QtWidgets import QApplication

from boundscope_app import theme


@pytest.fixture(autouse=True)
def _light(qapp: QApplication) -> None:
    theme.apply(qapp, theme.LIGHT)
