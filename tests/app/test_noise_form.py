"""The form of a run that measures noise: it works as it stands, explains itself, and gives what was typed."""

from __future__ import annotations

import shlex
from dataclasses import fields
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtCore import Qt
from PySide6.QtGui import QColor, QGuiApplication, QImage
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from app.test_drop import drop
from app.test_session import wait_ended
from app.window_support import EXAMPLES, example_draft
from boundscope.cli import parser
from boundscope.protocol import (
    EpsilonBall,
    FileRef,
    JobState,
    PropertyFile,
    RoundingMode,
    SourceSearch,
    VariabilityJob,
)
from boundscope_app.docks.noise import HINTS, MODES, SOURCES
from boundscope_app.draft import Draft, named_only
from boundscope_app.noise_draft import NoiseDraft, NoiseOptions, noise_draft_of, points_problem
from boundscope_app.views import VariabilityView
from boundscope_app.window import MainWindow

NETWORK = EXAMPLES / "networks" / "digits_mlp.onnx"
PROPERTY = EXAMPLES / "digits-robust" / "property.vnnlib"
NET_REF = FileRef(name="n.onnx", sha256="a" * 64, size_bytes=1)
NPY, PNG = (FileRef(name=name, sha256="b" * 64, size_bytes=2) for name in ("x.npy", "x.png"))


def measure(qtbot: QtBot, window: MainWindow) -> None:
    """Choose the other kind of job with the keyboard."""
    button = window.form.as_measurement
    window.form.as_proof.setFocus()
    qtbot.keyClick(window.form.as_proof, Qt.Key.Key_Right)
    assert button.isChecked()


def images(folder: Path, count: int) -> list[Path]:
    folder.mkdir()
    made = [folder / f"{index}.png" for index in range(count)]
    for path in made:
        image = QImage(8, 8, QImage.Format.Format_Grayscale8)
        image.fill(QColor("gray"))
        assert image.save(str(path))
    return made


def noise_draft(window: MainWindow) -> NoiseDraft:
    draft = window.form.draft
    assert isinstance(draft, NoiseDraft)
    return draft


# ---------------------------------------------------------------- the form


def test_the_kinds_of_job_share_network_and_property_and_show_their_own_fields(
    lone_window: MainWindow, qtbot: QtBot
) -> None:
    form = lone_window.form
    form.set_draft(example_draft())
    assert form.choices.isVisible()
    assert not form.noise.isVisible()
    measure(qtbot, lone_window)
    assert form.noise.isVisible()
    assert not form.choices.isVisible()
    draft = noise_draft(lone_window)
    assert (draft.network, draft.property_source, draft.draw) == (NETWORK, PROPERTY, 10)
    assert form.problem == ""
    form.as_proof.setChecked(True)
    assert form.draft == example_draft()


def test_every_choice_is_explained_and_has_its_words(lone_window: MainWindow) -> None:
    for name, field in lone_window.form.noise.fields().items():
        assert field.accessibleName() == name
        assert field.accessibleDescription() == HINTS[name]
        assert field.toolTip()
    assert set(MODES) == set(RoundingMode)
    assert set(SOURCES) == set(SourceSearch)


def test_what_is_missing_or_wrong_is_said_and_run_waits(
    lone_window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    form = lone_window.form
    measure(qtbot, lone_window)
    assert "network" in form.problem
    form.set_network(NETWORK)
    assert "box the points are drawn" in form.problem
    assert "Optional" not in form.property_file.line.placeholderText()
    qtbot.mouseClick(form.points.as_files, Qt.MouseButton.LeftButton)
    assert "Choose the points" in form.problem
    assert "Optional" in form.property_file.line.placeholderText()
    assert not form.run_button.isEnabled()
    qtbot.keyClicks(form.points.field.line, str(tmp_path / "none.npy"))
    qtbot.keyClick(form.points.field.line, Qt.Key.Key_Return)
    assert "is not there" in form.problem
    np.save(tmp_path / "x.npy", np.zeros((2, 64), dtype=np.float32))
    form.set_points(tmp_path / "x.npy")
    assert form.problem == ""
    assert form.run_button.isEnabled()
    form.noise.ranks.setValue(11)
    assert "1 to 10" in form.problem
    assert "--" not in form.problem
    form.noise.ranks.setValue(2)
    form.points.std.setText("0.5, zero")
    assert "standard deviation" in form.problem
    form.points.std.setText("0.5")
    form.set_property(tmp_path / "none.vnnlib")
    assert "is not there" in form.problem


def test_bits_follow_the_precision_and_are_free_with_other(lone_window: MainWindow) -> None:
    noise = lone_window.form.noise
    assert noise.options.precision is None
    assert not noise.bits.isEnabled()
    for index in range(noise.precision.count()):
        noise.precision.setCurrentIndex(index)
        name = noise.precision.itemText(index)
        if name == "other…":
            noise.bits.setValue(5)
            assert noise.options.precision == 5
        elif "bits" in name:
            assert f"({noise.options.precision} bits)" in name
            assert noise.bits.value() == noise.options.precision


# ---------------------------------------------------------------- drops


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
def test_a_dropped_array_becomes_the_points(
    lone_window: MainWindow, qtbot: QtBot, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"points{suffix}"
    points = np.zeros((2, 64), dtype=np.float32)
    np.save(path, points) if suffix == ".npy" else np.savez(path, x=points)
    measure(qtbot, lone_window)
    drop(lone_window, [path])
    assert noise_draft(lone_window).points == path
    assert lone_window.form.points.as_files.isChecked()


def test_a_dropped_folder_of_images_becomes_the_points_however_it_is_dropped(
    lone_window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    made = images(tmp_path / "images", 3)
    measure(qtbot, lone_window)
    for paths in ([tmp_path / "images"], made):
        lone_window.form.points.field.set_points(None)
        drop(lone_window, paths)
        assert noise_draft(lone_window).points == tmp_path / "images"
    lone_window.form.set_network(NETWORK)
    assert [each.name for each in noise_draft(lone_window).job(named_only).inputs] == [
        "0.png",
        "1.png",
        "2.png",
    ]


def test_an_image_dropped_on_the_form_of_a_proof_is_still_the_centre_of_a_ball(
    lone_window: MainWindow, tmp_path: Path
) -> None:
    (image,) = images(tmp_path / "images", 1)
    drop(lone_window, [image])
    draft = lone_window.form.draft
    assert isinstance(draft, Draft)
    assert lone_window.form.ball.center.source == image


def test_a_folder_without_images_is_refused_in_words(tmp_path: Path) -> None:
    assert "no PNG" in (points_problem(tmp_path) or "")
    assert "holds no points" in (points_problem(NETWORK) or "")


# ---------------------------------------------------------------- draft and job


@pytest.mark.parametrize(
    "job",
    [
        VariabilityJob(network=NET_REF, inputs=(NPY,)),
        VariabilityJob(
            network=NET_REF, inputs=(PNG, PNG), mean=("0.5",), std=("0.25",), samples=30, precision=5
        ),
        VariabilityJob(
            network=NET_REF,
            property=PropertyFile(file=NPY),
            draw=4,
            mode=RoundingMode.UD,
            ranks=2,
            layers=("a*",),
        ),
        VariabilityJob(
            network=NET_REF,
            inputs=(NPY,),
            property=EpsilonBall(center=NPY, epsilon="0.01", label=1),
            source=SourceSearch.BISECT,
            class_axis=2,
        ),
    ],
)
def test_run_again_gives_the_same_job_also_through_the_form(
    job: VariabilityJob, lone_window: MainWindow
) -> None:
    assert noise_draft_of(job).job(named_only) == job
    lone_window.form.set_draft(noise_draft_of(job))
    assert lone_window.form.measures
    assert noise_draft(lone_window).job(named_only) == job


def test_the_form_carries_every_field_of_a_job() -> None:
    own = {"network", "inputs", "property", "draw", "mean", "std"}
    assert set(VariabilityJob.__struct_fields__) - own == {each.name for each in fields(NoiseOptions)}


def test_the_copied_command_line_is_read_as_the_same_run(
    lone_window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    np.save(tmp_path / "x y.npy", np.zeros((2, 64), dtype=np.float32))
    measure(qtbot, lone_window)
    form = lone_window.form
    form.set_network(NETWORK)
    form.set_points(tmp_path / "x y.npy")
    form.noise.samples.setValue(4)
    form.noise.mode.setCurrentIndex(form.noise.mode.findData(RoundingMode.UD))
    qtbot.mouseClick(form.copy_button, Qt.MouseButton.LeftButton)
    words = shlex.split(QGuiApplication.clipboard().text())
    read = parser.build().parse_args(words[1:])
    assert (read.network, read.inputs, read.samples, read.mode) == (NETWORK, tmp_path / "x y.npy", 4, "ud")


def test_a_command_for_several_kept_images_names_a_folder_and_not_the_first_of_them() -> None:
    draft = noise_draft_of(VariabilityJob(network=NET_REF, inputs=(PNG, PNG)))
    words = shlex.split(draft.command())
    assert "folder" in words[words.index("--inputs") + 1]


# ---------------------------------------------------------------- a real run


def test_a_run_from_the_form_fills_the_view_live_and_can_be_used_again(
    window: MainWindow, qtbot: QtBot, tmp_path: Path
) -> None:
    drop(window, [NETWORK, PROPERTY])
    measure(qtbot, window)
    window.form.points.draw.setValue(2)
    window.form.noise.samples.setValue(4)
    window.form.noise.ranks.setValue(2)
    before = set(window.runs.ids)
    with qtbot.waitSignal(window.session.run_accepted):
        qtbot.keyClick(window, Qt.Key.Key_R, Qt.KeyboardModifier.ControlModifier)
    (job_id,) = set(window.runs.ids) - before
    window.tabs.show_view("variability")
    wait_ended(qtbot, window, job_id)
    info = window.runs.info(job_id)
    assert info is not None
    assert (info.state, info.verdict) == (JobState.FINISHED, None)
    assert info.title == "digits_mlp.onnx · SR · 2 drawn points"
    view: QWidget = window.tabs.currentWidget()
    assert isinstance(view, VariabilityView)
    qtbot.waitUntil(lambda: bool(view.heatmap.heat.rows))
    record = window.runs.record(job_id)
    result = record.variability
    assert result is not None
    assert [row.name for row in view.heatmap.heat.rows] == [layer.layer for layer in result.layers]
    assert {rank for rank, _ in record.noise} <= {0, 1}
    assert result.coverage is not None
    assert result.coverage.sentence in view.words.text()
    assert view.tabs.isTabVisible(1)
    window.commands.export_to(tmp_path / "out")
    assert {"variability.png", "variability.svg", "noise.csv", "deployed.csv"} <= {
        path.name for path in (tmp_path / "out").iterdir()
    }
    window.form.set_draft(example_draft("digits-fooled"))
    window.commands.use_again()
    again = noise_draft(window)
    assert again.job(named_only) == info.job
    assert window.form.problem == ""
