"""The options of a run, each explained in one line; what this version cannot do is shown as such."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace

from PySide6.QtCore import QSignalBlocker, Qt, Signal
from PySide6.QtGui import QStandardItem, QStandardItemModel
from PySide6.QtWidgets import (
    QCheckBox,
    QComboBox,
    QDoubleSpinBox,
    QGridLayout,
    QLabel,
    QLineEdit,
    QSpinBox,
    QWidget,
)

from boundscope import capabilities
from boundscope.protocol import Arithmetic, Branching, Engine, Method, Precision, Sharding
from boundscope_app.draft import Options

NOT_YET = "not in this version yet"
METHODS: dict[str, tuple[str, str]] = {
    Method.IBP: ("IBP", "Interval bounds, layer by layer: fastest, loosest"),
    Method.CROWN_IBP: ("CROWN-IBP", "Intervals for hidden layers, CROWN for the outputs: fast"),
    Method.CROWN: ("CROWN", "Linear bounds carried backward to the input: fast and much tighter"),
    Method.ALPHA_CROWN: ("α-CROWN", "CROWN with slopes that are optimised: tighter, slower"),
    Method.COMPLETE: ("Complete", "Branch and bound until the property is decided or time is up"),
}
ENGINES: dict[str, tuple[str, str]] = {
    Engine.NATIVE: ("native", "Boundscope’s own bound engine"),
    Engine.AUTO_LIRPA: ("auto_LiRPA", "The reference engine, as a second opinion"),
}
SHARDINGS: dict[str, tuple[str, str]] = {
    Sharding.NONE: ("none", "One rank holds and computes everything"),
    Sharding.ROWS: (
        "rows",
        "Ranks share the rows being bounded, and each holds a part of the weights: the same bits",
    ),
    Sharding.FSDP: (
        "FSDP",
        "Ranks hold parts of the weights and all carry every row: the same bits, more memory than rows",
    ),
    Sharding.TP: (
        "TP",
        "Ranks split each layer’s neurons (tensor parallel); hidden bounds inside are intervals: looser",
    ),
    Sharding.TP_EXACT: (
        "TP exact",
        "Tensor parallel with CROWN’s hidden bounds by communication: within 1e-5 of one rank",
    ),
}
ARITHMETICS: dict[str, tuple[str, str]] = {
    Arithmetic.REAL: ("real", "The verdict speaks of the network in exact real arithmetic"),
    Arithmetic.FLOAT32: (
        "float32",
        "The verdict also covers rounding of float32 in any order of summation",
    ),
}
PRECISIONS: dict[str, tuple[str, str]] = {
    Precision.MIXED: (
        "mixed",
        "Large products in float32 with a bound on their rounding, all else in float64",
    ),
    Precision.FLOAT64: ("float64", "Everything in float64: slower, twice the memory"),
}
BRANCHINGS: dict[str, tuple[str, str]] = {
    Branching.AUTO: (
        "automatic",
        "Split what suits the network: inputs where they are few, else activations",
    ),
    Branching.INPUT: ("inputs", "Split the input box into smaller and smaller boxes"),
    Branching.ACTIVATION: ("activations", "Split on which side of its kink a neuron is"),
}
HINTS: dict[str, str] = {
    "Method": "How it is proven: IBP is fastest, CROWN tighter, Complete splits until it is decided.",
    "Engine": "Which program computes the bounds.",
    "Sharding": "How the work is shared between ranks.",
    "Ranks": "Processes that compute together; more than one needs a sharding.",
    "Nodes": "Machines that share the ranks, as ssh knows them, with commas between; empty: this one.",
    "On each": "Ranks on each of the nodes.",
    "Arithmetic": "The arithmetic that the verdict speaks of.",
    "Precision": "What the bound engine computes in; its own rounding is always accounted for.",
    "Time limit": "Seconds after which the run gives up with the verdict “timeout”.",
    "Branching": "What Complete splits when bounds alone do not decide.",
    "Rounds": (
        "Rounds of a size of the job’s alone: runs with other numbers of ranks split the same domains; often slower."
    ),
    "Check": "A second engine bounds every case too; where the two contradict each other, it is said.",
    "Seed": "Start of the random choices of the attack; the same seed gives the same run.",
}
PLACES: dict[str, tuple[int, int, int]] = {  # row, column of the label, columns of the field
    "Method": (0, 0, 1),
    "Precision": (0, 2, 1),
    "Engine": (1, 0, 1),
    "Arithmetic": (1, 2, 1),
    "Sharding": (2, 0, 1),
    "Ranks": (2, 2, 1),
    "Nodes": (3, 0, 1),
    "On each": (3, 2, 1),
    "Time limit": (4, 0, 1),
    "Seed": (4, 2, 1),
    "Branching": (5, 0, 1),
    "Rounds": (6, 0, 3),
    "Check": (7, 0, 3),
}
FIELD_EM = 6
MOST_RANKS = 4096
MOST_SECONDS = 30 * 24 * 3600.0
MOST_SEED = 2**31 - 1


class Choices(QWidget):
    """All options of a proof that have a field; `changed` when one of them is."""

    changed = Signal()

    def __init__(self, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.method = _combo(METHODS, capabilities.METHODS)
        self.engine = _combo(ENGINES, capabilities.ENGINES)
        self.sharding = _combo(SHARDINGS, capabilities.SHARDINGS)
        self.ranks = QSpinBox()
        self.ranks.setRange(1, MOST_RANKS)
        self.nodes = QLineEdit()
        self.nodes.setPlaceholderText("this machine")
        self.on_each = QSpinBox()
        self.on_each.setRange(1, MOST_RANKS)
        self._labels: dict[str, QLabel] = {}
        self.arithmetic = _combo(ARITHMETICS, capabilities.ARITHMETICS)
        self.precision = _combo(PRECISIONS, Precision)
        self.branching = _combo(BRANCHINGS, Branching)
        self.synchronous = QCheckBox("Same domains on any number of ranks")
        self.cross_check = QCheckBox("Also run auto_LiRPA and compare")
        self._kept = Options()
        self.timeout = QDoubleSpinBox()
        self.timeout.setRange(0.1, MOST_SECONDS)
        self.timeout.setDecimals(1)
        self.timeout.setSuffix(" s")
        self.timeout.setStepType(QDoubleSpinBox.StepType.AdaptiveDecimalStepType)
        self.seed = QSpinBox()
        self.seed.setRange(0, MOST_SEED)
        self._lay_out()
        combos = (self.method, self.engine, self.sharding, self.arithmetic, self.precision, self.branching)
        for combo in combos:
            combo.currentIndexChanged.connect(self._on_change)
        self.nodes.textChanged.connect(self._on_change)
        for number in (self.ranks, self.on_each, self.timeout, self.seed):
            number.valueChanged.connect(self._on_change)
        for box in (self.synchronous, self.cross_check):
            box.toggled.connect(self._on_change)
        self.set_options(Options())

    def _lay_out(self) -> None:
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(6)
        grid.setColumnStretch(1, 5)
        grid.setColumnStretch(3, 4)
        for name, field in self.fields().items():
            _explain(field, name)
            label = QLabel(name, self)
            label.setBuddy(field)
            label.setToolTip(HINTS[name])
            self._labels[name] = label
            row, column, span = PLACES[name]
            grid.addWidget(label, row, column)
            field.setMinimumWidth(round(FIELD_EM * self.fontMetrics().horizontalAdvance("m")))
            grid.addWidget(field, row, column + 1, 1, span)

    def fields(self) -> dict[str, QWidget]:
        return {
            "Method": self.method,
            "Precision": self.precision,
            "Engine": self.engine,
            "Arithmetic": self.arithmetic,
            "Sharding": self.sharding,
            "Ranks": self.ranks,
            "Nodes": self.nodes,
            "On each": self.on_each,
            "Time limit": self.timeout,
            "Seed": self.seed,
            "Branching": self.branching,
            "Rounds": self.synchronous,
            "Check": self.cross_check,
        }

    @property
    def options(self) -> Options:
        return replace(
            self._kept,
            method=Method(self.method.currentData()),
            engine=Engine(self.engine.currentData()),
            sharding=Sharding(self.sharding.currentData()),
            ranks=self.ranks.value(),
            nodes=self.hosts,
            arithmetic=Arithmetic(self.arithmetic.currentData()),
            precision=Precision(self.precision.currentData()),
            timeout_s=self.timeout.value(),
            seed=self.seed.value(),
            cross_check=self.cross_check.isChecked(),
            branching=Branching(self.branching.currentData()) if self.splits else Branching.AUTO,
            force_synchronous=self.splits and self.synchronous.isChecked(),
        )

    @property
    def hosts(self) -> tuple[str, ...]:
        """The nodes as typed; none without a sharding."""
        if self.sharding.currentData() == Sharding.NONE:
            return ()
        return tuple(part for part in re.split(r"[,;\s]+", self.nodes.text().strip()) if part)

    @property
    def splits(self) -> bool:
        return bool(self.method.currentData() == Method.COMPLETE)

    def set_options(self, options: Options) -> None:
        self._kept = options
        with QSignalBlocker(self):
            _choose(self.method, options.method)
            _choose(self.engine, options.engine)
            _choose(self.sharding, options.sharding)
            self.ranks.setValue(options.ranks)
            self.nodes.setText(", ".join(options.nodes))
            self.on_each.setValue(max(1, options.ranks // max(1, len(options.nodes))))
            _choose(self.arithmetic, options.arithmetic)
            _choose(self.precision, options.precision)
            self.timeout.setValue(options.timeout_s)
            self.seed.setValue(options.seed)
            self.synchronous.setChecked(options.force_synchronous)
            self.cross_check.setChecked(options.cross_check)
            _choose(self.branching, options.branching)
        self._on_change()

    def _on_change(self) -> None:
        alone = self.sharding.currentData() == Sharding.NONE
        if alone and self.ranks.value() != 1:
            with QSignalBlocker(self.ranks):
                self.ranks.setValue(1)
        self._show_nodes(alone)
        self.synchronous.setVisible(self.splits)
        self._labels["Rounds"].setVisible(self.splits)
        self.branching.setEnabled(self.splits)
        why = HINTS["Branching"] if self.splits else "Only the method Complete splits."
        self.branching.setToolTip(why)
        self.branching.setStatusTip(why)
        self.changed.emit()

    def _show_nodes(self, alone: bool) -> None:
        """Several machines go with a sharding; where they are named, each runs as many ranks."""
        for name, field in (("Nodes", self.nodes), ("On each", self.on_each)):
            field.setVisible(not alone)
            self._labels[name].setVisible(not alone)
        hosts = self.hosts
        self.on_each.setEnabled(bool(hosts))
        if hosts:
            with QSignalBlocker(self.ranks):
                self.ranks.setValue(self.on_each.value() * len(hosts))
        self.ranks.setEnabled(not alone and not hosts)
        why = HINTS["Ranks"]
        if alone:
            why = "Choose a sharding to use more than one rank."
        elif hosts:
            why = "The ranks on each node, times the nodes."
        self.ranks.setToolTip(why)
        self.ranks.setStatusTip(why)
        why = HINTS["On each"] if hosts else "Name nodes to say how many ranks each runs."
        self.on_each.setToolTip(why)
        self.on_each.setStatusTip(why)


def _explain(field: QWidget, name: str) -> None:
    field.setAccessibleName(name)
    field.setAccessibleDescription(HINTS[name])
    field.setToolTip(HINTS[name])
    field.setStatusTip(HINTS[name])
    field.setFocusPolicy(Qt.FocusPolicy.StrongFocus)


def _combo(texts: Mapping[str, tuple[str, str]], available: Iterable[str]) -> QComboBox:
    combo = QComboBox()
    model = QStandardItemModel(combo)
    usable = set(available)
    for value, (title, hint) in texts.items():
        item = QStandardItem(title if value in usable else f"{title} ({NOT_YET})")
        item.setData(value, Qt.ItemDataRole.UserRole)
        item.setToolTip(hint if value in usable else f"{hint}; {NOT_YET}")
        item.setData(f"{title}: {item.toolTip()}", Qt.ItemDataRole.AccessibleTextRole)
        item.setEnabled(value in usable)
        model.appendRow(item)
    combo.setModel(model)
    combo.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
    combo.setMinimumContentsLength(6)
    view = combo.view()
    view.setMinimumWidth(view.sizeHintForColumn(0) + 2 * view.fontMetrics().horizontalAdvance("m"))
    return combo


def _choose(combo: QComboBox, value: str) -> None:
    index = combo.findData(value)
    if index >= 0:
        combo.setCurrentIndex(index)
