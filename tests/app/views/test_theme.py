"""Colours can be read and told apart, and the palette is whole."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from PySide6.QtGui import QColor, QPalette
from PySide6.QtSvg import QSvgRenderer
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from boundscope_app import theme
from boundscope_app.theme import DARK, LIGHT, Theme

BOTH = pytest.mark.parametrize("colors", [LIGHT, DARK], ids=lambda t: t.name)

# Machado, Oliveira and Fernandes 2009, severity 1.0, on linear RGB.
VISION = {
    "normal": np.eye(3),
    "protan": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "deutan": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]]
    ),
    "tritan": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.303900]]
    ),
}


def linear(name: str) -> np.ndarray:
    color = QColor(name)
    channels = np.array([color.redF(), color.greenF(), color.blueF()])
    return np.where(channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    """WCAG 2 contrast ratio."""
    weights = np.array([0.2126, 0.7152, 0.0722])
    a, b = sorted((float(linear(first) @ weights), float(linear(second) @ weights)))
    return (b + 0.05) / (a + 0.05)


def oklab(rgb: np.ndarray) -> np.ndarray:
    """Ottosson 2020."""
    to_lms = np.array(
        [
            [0.4122214708, 0.5363325363, 0.0514459929],
            [0.2119034982, 0.6806995451, 0.1073969566],
            [0.0883024619, 0.2817188376, 0.6299787005],
        ]
    )
    to_lab = np.array(
        [
            [0.2104542553, 0.7936177850, -0.0040720468],
            [1.9779984951, -2.4285922050, 0.4505937099],
            [0.0259040371, 0.7827717662, -0.8086757660],
        ]
    )
    return to_lab @ np.cbrt(to_lms @ rgb)


@BOTH
def test_text_can_be_read_on_every_ground(colors: Theme) -> None:
    for ground in (colors.window, colors.base, colors.alternate):
        for text in (
            colors.text,
            colors.muted,
            colors.accent,
            colors.good,
            colors.bad,
            colors.warn,
            colors.neutral,
        ):
            assert contrast(text, ground) >= 4.5, (text, ground)
    assert contrast(colors.accent_text, colors.accent) >= 4.5
    assert contrast(colors.text, colors.button) >= 4.5


@BOTH
def test_verdicts_can_be_read_on_their_fill(colors: Theme) -> None:
    for verdict in ("verified", "violated", "unknown", "timeout", "out_of_memory", "error", "running"):
        text, fill = colors.verdict_colors(verdict)
        assert contrast(text, fill) >= 4.5, verdict
        assert contrast(colors.text, fill) >= 4.5, verdict


@BOTH
def test_series_stay_apart_for_colour_blind_people(colors: Theme) -> None:
    assert len(colors.series) >= 8
    for color in colors.series:
        assert contrast(color, colors.base) >= 3.0, color
    for vision, matrix in VISION.items():
        seen = [oklab(np.clip(matrix @ linear(color), 0, 1)) for color in colors.series]
        for (i, a), (j, b) in itertools.combinations(enumerate(seen), 2):
            assert np.linalg.norm(a - b) >= 0.11, (vision, colors.series[i], colors.series[j])


@BOTH
def test_palette_sets_every_role_people_see_and_dims_what_is_disabled(colors: Theme) -> None:
    palette = theme.palette(colors)
    role, group = QPalette.ColorRole, QPalette.ColorGroup
    assert palette.color(role.Window).name() == colors.window
    assert palette.color(role.Base).name() == colors.base
    for each in (role.WindowText, role.Text, role.ButtonText):
        assert palette.color(group.Active, each).name() == colors.text
        assert palette.color(group.Disabled, each).name() == colors.disabled


def test_apply_makes_the_theme_current_and_says_so(qapp: QApplication, qtbot: QtBot) -> None:
    with qtbot.waitSignal(theme.notifier.changed):
        theme.apply(qapp, DARK)
    assert theme.current() is DARK
    assert qapp.palette().color(QPalette.ColorRole.Window).name() == DARK.window
    assert (
        qapp.style().objectName() == "fusion" or qapp.style().metaObject().className() == "QStyleSheetStyle"
    )


@BOTH
def test_every_picture_that_the_style_sheet_names_is_there(colors: Theme) -> None:
    """A cross that is not found is not drawn at all, and nothing says so."""
    named = re.findall(r'url\("([^"]+)"\)', theme.style_sheet(colors))
    assert len(named) == 4
    for path in named:
        assert QSvgRenderer(path).isValid(), path
