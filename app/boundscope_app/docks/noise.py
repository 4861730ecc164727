"""The part of the form that describes a run that measures noise: its points, and how to measure."""

from __future__ import annotations

from dataclasses import replace

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtWidgets import (
    QButtonGroup,
    QComboBox,
    QDoubleSpinBox,
    QFormLayout,
    QGridLayout,
    QHBoxLayout,
    QLabel,
    QLineEdit,
    QRadioButton,
    QSpinBox,
    QVBoxLayout,
    QWidget,
)

from boundscope import capabilities
from boundscope.protocol import RoundingMode, SourceSearch
from boundscope_app.docks.choices import FIELD_EM, MOST_RANKS, MOST_SECONDS, MOST_SEED
from boundscope_app.noise_draft import NoiseOptions, Points
from boundscope_app.widgets.points_field import PointsField

DRAWN, FILES = 0, 1
OTHER = -1
NO_BITS = 1  # stands for no precision of the job's own, and is refused as one
MODES: dict[str, tuple[str, str]] = {
    RoundingMode.SR: (
        "SR: stochastic",
        "Each result goes to one of its two neighbours, the nearer one more often; exact ones stay",
    ),
    RoundingMode.UD: ("UD: up or down", "Each result moves one place up or down, exact ones too: cheapest"),
    RoundingMode.RR: (
        "RR: random",
        "Each result goes to one of its two neighbours, both as often; exact ones stay",
    ),
}
SOURCES: dict[str, tuple[str, str]] = {
    SourceSearch.NONE: ("no search", "Only measure"),
    SourceSearch.ONE: ("layer by layer", "Perturb one layer at a time: which causes noise at the outputs?"),
    SourceSearch.ALL_BUT_ONE: ("all but one", "Perturb all layers but one: which is missed most?"),
    SourceSearch.BISECT: ("halves", "Halve the network as long as a half causes much: fewest runs"),
}
PRECISIONS: tuple[tuple[str, int | None], ...] = (
    ("as the network", None),
    ("float32 (24 bits)", 24),
    ("TF32 (11 bits)", capabilities.PRECISION_BITS["tf32"]),
    ("float16 (11 bits)", capabilities.PRECISION_BITS["fp16"]),
    ("bfloat16 (8 bits)", capabilities.PRECISION_BITS["bf16"]),
    ("other…", OTHER),
)
HINTS = {
    "Drawn": "How many points are drawn from the property’s box; the same seed draws the same points.",
    "Rounding": "How every floating-point result of a sample is rounded.",
    "Precision": "Significand bits that results are rounded to, the hidden bit included; the exponent stays.",
    "Bits": "Significand bits, the hidden bit included: 2 to 53.",
    "Samples": "How often the network is run: an element’s bits are then known to ±0.3 with 10, to ±0.2 with 30.",
    "Ranks": "Processes that share the samples; no result depends on their number.",
    "Seed": "Start of all random choices; the same seed gives the same bits.",
    "Time limit": "Seconds after which the run stops with the samples it has.",
    "Sources": "Whether to look for the layers that the noise comes from; takes more runs of the network.",
    "Mean": "Of PNG images: subtracted from every channel after division by 255; empty for 0.",
    "Deviation": "Of PNG images: every channel is divided by it; empty for 1.",
}
FILES_HINT = (
    "Run points from a file or a folder; a property is then optional, and compares proof and measurement."
)
DRAWN_HINT = "Run points that are drawn from the box of the property below."


class PointsForm(QWidget):
    """The points; `changed` when another choice was made, `switched` when file or box was.

    `switch` chooses between these two, and stands where the form puts it.
    """

    changed = Signal()
    switched = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.as_drawn, self.as_files = QRadioButton("From the property’s box"), QRadioButton("From files")
        self.kinds = QButtonGroup(self)
        for button, hint, number in ((self.as_drawn, DRAWN_HINT, DRAWN), (self.as_files, FILES_HINT, FILES)):
            _explain(button, button.text(), hint)
            self.kinds.addButton(button, number)
        self.draw = QSpinBox()
        self.draw.setRange(1, 1_000_000)
        self.draw.setValue(10)
        self.field = PointsField()
        self.mean, self.std = QLineEdit(), QLineEdit()
        self.mean.setPlaceholderText("0.485, 0.456, 0.406")
        self.std.setPlaceholderText("0.229, 0.224, 0.225")
        self.switch = QWidget()
        switch = QHBoxLayout(self.switch)
        switch.setContentsMargins(0, 0, 0, 0)
        switch.addWidget(self.as_drawn)
        switch.addWidget(self.as_files)
        switch.addStretch(1)
        self._drawn, self._files = QWidget(), QWidget()
        for whole, rows in (
            (self._drawn, (("Drawn", self.draw),)),
            (self._files, (("File", self.field), ("Mean", self.mean), ("Deviation", self.std))),
        ):
            form = QFormLayout(whole)
            form.setContentsMargins(0, 0, 0, 0)
            form.setSpacing(6)
            for name, field in rows:
                label = QLabel(name)
                label.setBuddy(field)
                form.addRow(label, field)
                if name in HINTS:
                    _explain(field, name, HINTS[name])
        column = QVBoxLayout(self)
        column.setContentsMargins(0, 0, 0, 0)
        column.setSpacing(6)
        column.addWidget(self._drawn)
        column.addWidget(self._files)
        self.as_drawn.setChecked(True)
        self._files.hide()
        self.kinds.idToggled.connect(self._switched)
        self.draw.valueChanged.connect(self.changed)
        self.field.changed.connect(self.changed)
        for text in (self.mean, self.std):
            text.textChanged.connect(self.changed)

    @property
    def drawn(self) -> int:
        """How many points are to be drawn; 0 where they come from files."""
        return self.draw.value() if self.as_drawn.isChecked() else 0

    def set_points(self, points: Points | None, draw: int, mean: str, std: str) -> None:
        (self.as_drawn if draw else self.as_files).setChecked(True)
        if draw:
            self.draw.setValue(draw)
        self.field.set_points(points)
        self.mean.setText(mean)
        self.std.setText(std)

    def _switched(self, _which: int, checked: bool) -> None:
        if checked:
            self._drawn.setVisible(self.as_drawn.isChecked())
            self._files.setVisible(self.as_files.isChecked())
            self.switched.emit()
            self.changed.emit()


class NoiseChoices(QWidget):
    """Rounding, precision, samples, ranks, seed, time limit and search; `changed` when one of them is."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._kept = NoiseOptions()
        self.mode, self.sources, self.precision = _combo(MODES), _combo(SOURCES), QComboBox()
        for name, bits in PRECISIONS:
            self.precision.addItem(name, bits)
        self.precision.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
        self.precision.setMinimumContentsLength(6)
        self.bits, self.samples, self.ranks, self.seed = QSpinBox(), QSpinBox(), QSpinBox(), QSpinBox()
        self.bits.setRange(NO_BITS, capabilities.MOST_SIGNIFICAND_BITS)
        self.bits.setSpecialValueText("–")
        self.bits.setSuffix(" bits")
        self.samples.setRange(capabilities.LEAST_SAMPLES, 1_000_000)
        self.ranks.setRange(1, MOST_RANKS)
        self.seed.setRange(0, MOST_SEED)
        self.timeout = QDoubleSpinBox()
        self.timeout.setRange(0.1, MOST_SECONDS)
        self.timeout.setDecimals(1)
        self.timeout.setSuffix(" s")
        self.timeout.setStepType(QDoubleSpinBox.StepType.AdaptiveDecimalStepType)
        self._lay_out()
        self.set_options(NoiseOptions())
        for combo in (self.mode, self.sources, self.precision):
            combo.currentIndexChanged.connect(self._on_change)
        for number in (self.bits, self.samples, self.ranks, self.seed, self.timeout):
            number.valueChanged.connect(self._on_change)

    def _lay_out(self) -> None:
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(1, 8)
        grid.setColumnStretch(3, 3)
        for index, (name, field) in enumerate(self.fields().items()):
            _explain(field, name, HINTS[name])
            label = QLabel(name, self)
            label.setBuddy(field)
            label.setToolTip(HINTS[name])
            field.setMinimumWidth(round(FIELD_EM * self.fontMetrics().horizontalAdvance("m")))
            row, side = divmod(index, 2)
            grid.addWidget(label, row, 2 * side)
            grid.addWidget(field, row, 2 * side + 1)

    def fields(self) -> dict[str, QWidget]:
        return {
            "Rounding": self.mode,
            "Samples": self.samples,
            "Precision": self.precision,
            "Bits": self.bits,
            "Sources": self.sources,
            "Ranks": self.ranks,
            "Time limit": self.timeout,
            "Seed": self.seed,
        }

    @property
    def options(self) -> NoiseOptions:
        bits = self.precision.currentData()
        return replace(
            self._kept,
            mode=RoundingMode(self.mode.currentData()),
            samples=self.samples.value(),
            seed=self.seed.value(),
            precision=self.bits.value() if bits == OTHER else bits,
            ranks=self.ranks.value(),
            source=SourceSearch(self.sources.currentData()),
            timeout_s=self.timeout.value(),
        )

    def set_options(self, options: NoiseOptions) -> None:
        self._kept = options
        with QSignalBlocker(self):
            self.mode.setCurrentIndex(self.mode.findData(options.mode))
            self.sources.setCurrentIndex(self.sources.findData(options.source))
            known = [bits for _, bits in PRECISIONS]
            place = known.index(options.precision) if options.precision in known else known.index(OTHER)
            self.precision.setCurrentIndex(place)
            self.bits.setValue(options.precision or capabilities.PRECISION_BITS["bf16"])
            self.samples.setValue(options.samples)
            self.ranks.setValue(options.ranks)
            self.seed.setValue(options.seed)
            self.timeout.setValue(options.timeout_s)
        self._on_change()

    def _on_change(self) -> None:
        bits = self.precision.currentData()
        self.bits.setEnabled(bits == OTHER)
        with QSignalBlocker(self.bits):
            if bits != OTHER:
                self.bits.setValue(NO_BITS if bits is None else bits)
            elif self.bits.value() == NO_BITS:
                self.bits.setValue(capabilities.PRECISION_BITS["bf16"])
        why = HINTS["Bits"] if bits == OTHER else "Choose “other…” as the precision to set the bits."
        self.bits.setToolTip(why)
        self.bits.setStatusTip(why)
        self.changed.emit()


def _explain(field: QWidget, name: str, hint: str) -> None:
    field.setAccessibleName(name)
    field.setAccessibleDescription(hint)
    field.setToolTip(hint)
    field.setStatusTip(hint)
    field.setFocusPolicy(Qt.FocusPolicy.StrongFocus)


def _combo(texts: dict[str, tuple[str, str]]) -> QComboBox:
    combo = QComboBox()
    for index, (value, (title, hint)) in enumerate(texts.items()):
        combo.addItem(title, value)
        combo.setItemData(index, hint, Qt.ItemDataRole.ToolTipRole)
        combo.setItemData(index, f"{title}: {hint}", Qt.ItemDataRole.AccessibleTextRole)
    combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    combo.setMinimumContentsLength(6)
    return combo
