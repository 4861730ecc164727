"""The part of the form that describes an ε-ball around an input."""

from __future__ import annotations

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QComboBox, QFormLayout, QHBoxLayout, QLabel, QLineEdit, QSpinBox, QWidget

from boundscope.protocol import Norm
from boundscope_app import files
from boundscope_app.draft import Ball
from boundscope_app.widgets.source_field import SourceField

HINTS = {
    "Around": "The input in the middle of the ball: .npy with the input’s numbers, or a PNG divided by 255.",
    "Norm": "How the distance from the input is measured.",
    "ε": "Radius of the ball, before mean and deviation are applied: a decimal such as 0.01; with L0 a count.",
    "Label": "The output that should stay the largest, counted from 0.",
    "Clip": "Inputs stay between these two, before mean and deviation are applied; empty for no clip.",
    "Mean": "Subtracted from every channel: one number a channel, with commas between; empty for 0.",
    "Deviation": "Every channel is divided by it: one number a channel, with commas between; empty for 1.",
}
NORMS = {
    Norm.LINF: "largest change of any input",
    Norm.L2: "root of the sum of squared changes",
    Norm.L1: "sum of all changes",
    Norm.L0: "how many inputs change",
}
MOST_LABEL = 10_000_000


class BallForm(QWidget):
    """`changed` when any part is; `ball` is None until there is an input."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.center = SourceField(
            files.Kind.CENTER, "Input of the ball", HINTS["Around"], files.CENTER_FILTER
        )
        self.epsilon = QLineEdit("0.01")
        self.norm = QComboBox()
        for norm, words in NORMS.items():
            self.norm.addItem(f"{norm.label}: {words}", norm)
        self.norm.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.norm.setMinimumContentsLength(6)
        self.label = QSpinBox()
        self.label.setRange(0, MOST_LABEL)
        self.lower_clip, self.upper_clip = QLineEdit("0"), QLineEdit("1")
        self.mean, self.std = QLineEdit(), QLineEdit()
        clip = QWidget()
        row = QHBoxLayout(clip)
        row.setContentsMargins(0, 0, 0, 0)
        row.addWidget(self.lower_clip)
        row.addWidget(QLabel("to"))
        row.addWidget(self.upper_clip)
        form = QFormLayout(self)
        form.setContentsMargins(0, 0, 0, 0)
        form.setSpacing(6)
        form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow)
        for name, field in (
            ("Around", self.center),
            ("Norm", self.norm),
            ("ε", self.epsilon),
            ("Label", self.label),
            ("Clip", clip),
            ("Mean", self.mean),
            ("Deviation", self.std),
        ):
            label = QLabel(name)
            label.setBuddy(field)
            label.setToolTip(HINTS[name])
            form.addRow(label, field)
        for name, field in (
            ("Norm", self.norm),
            ("ε", self.epsilon),
            ("Label", self.label),
            ("Clip", self.lower_clip),
            ("Clip", self.upper_clip),
            ("Mean", self.mean),
            ("Deviation", self.std),
        ):
            field.setAccessibleName(name)
            field.setAccessibleDescription(HINTS[name])
            field.setToolTip(HINTS[name])
            field.setStatusTip(HINTS[name])
        self.lower_clip.setAccessibleName("Lower clip")
        self.upper_clip.setAccessibleName("Upper clip")
        self.mean.setPlaceholderText("0.485, 0.456, 0.406")
        self.std.setPlaceholderText("0.229, 0.224, 0.225")
        self.center.changed.connect(self.changed)
        for text in (self.epsilon, self.lower_clip, self.upper_clip, self.mean, self.std):
            text.textEdited.connect(self.changed)
        self.label.valueChanged.connect(self.changed)
        self.norm.currentIndexChanged.connect(self.changed)

    @property
    def ball(self) -> Ball | None:
        center = self.center.source
        if center is None:
            return None
        return Ball(
            center,
            self.epsilon.text(),
            self.label.value(),
            self.lower_clip.text(),
            self.upper_clip.text(),
            self.mean.text(),
            self.std.text(),
            Norm(self.norm.currentData()),
        )

    def set_ball(self, ball: Ball) -> None:
        with QSignalBlocker(self):
            self.center.set_source(ball.center)
            self.epsilon.setText(ball.epsilon)
            self.label.setValue(ball.label)
            self.lower_clip.setText(ball.lower)
            self.upper_clip.setText(ball.upper)
            self.mean.setText(ball.mean)
            self.std.setText(ball.std)
            self.norm.setCurrentIndex(self.norm.findData(ball.norm))
        self.changed.emit()
