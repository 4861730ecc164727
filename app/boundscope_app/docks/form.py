"""The run form on the right: network, property, how to run, what was read, and the Run button."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from PySide6.QtCore import QSignalBlocker, Qt, QTimer, Signal
from PySide6.QtGui import QPalette
from PySide6.QtWidgets import (
    QDockWidget,
    QFormLayout,
    QFrame,
    QLabel,
    QRadioButton,
    QScrollArea,
    QVBoxLayout,
    QWidget,
)

from boundscope import capabilities
from boundscope.errors import UsageError
from boundscope.protocol import InstancesJob, JobInfo
from boundscope_app import files
from boundscope_app import theme as themes
from boundscope_app.benchmark_draft import BenchmarkDraft
from boundscope_app.docks.ball import BallForm
from boundscope_app.docks.benchmark import BenchmarkForm
from boundscope_app.docks.choices import Choices
from boundscope_app.docks.footer import Footer
from boundscope_app.docks.noise import NoiseChoices, PointsForm
from boundscope_app.docks.switches import in_a_row, switch
from boundscope_app.draft import Ball, Draft, Options, Source, ball_problem, named_only
from boundscope_app.estimate import Question
from boundscope_app.link_types import Inspection
from boundscope_app.noise_draft import NoiseDraft, Points, friendly, normalisation_problem
from boundscope_app.widgets.inputs import WheelGuard, tint_inputs
from boundscope_app.widgets.read_back import ReadBack
from boundscope_app.widgets.source_field import PLACEHOLDER, SourceField

NETWORK_HINT = "The trained network: an ONNX file, plain or gzipped; external data beside it is taken along."
PROPERTY_HINT = "What to prove: a VNN-LIB file, version 1.0 or 2.0, plain or gzipped."
INSPECT_AFTER_MS = 250
FILE, BALL = 0, 1
VERIFY, MEASURE, BENCHMARK = range(3)
VERIFY_HINT = "Prove that no input violates a property, or find one that does."
MEASURE_HINT = (
    "Run the network repeatedly under random rounding, and see how many bits of every layer are significant."
)
BALL_HINT = "What to prove: no input within ε of a given one changes the label."
BENCHMARK_HINT = "Prove or refute all instances of a benchmark, one after the other."


class FormDock(QDockWidget):
    """Signals: `inspect_wanted` (a Draft changed enough to be read back), `changed` (anything)."""

    inspect_wanted = Signal()
    changed = Signal()

    def __init__(self, parent: QWidget) -> None:
        super().__init__("Run form", parent)
        self.setObjectName("form")
        self._inspected: Draft | None = None
        self._blocking = ""
        self._busy = False
        self.network = SourceField(files.Kind.NETWORK, "Network", NETWORK_HINT, files.NETWORK_FILTER)
        self.property_file = SourceField(
            files.Kind.PROPERTY, "Property file", PROPERTY_HINT, files.PROPERTY_FILTER
        )
        self.ball = BallForm()
        self.choices = Choices()
        self.points = PointsForm()
        self.noise = NoiseChoices()
        self.benchmark = BenchmarkForm()
        self.read_back = ReadBack()
        self.footer = Footer()
        self.run_button, self.copy_button = self.footer.run_button, self.footer.copy_button
        self._why = self.footer.why
        self._seen: Inspection | None = None
        self._history: Callable[[], Iterable[JobInfo]] = tuple
        self._make_switches()
        self._lay_out()
        self._guard = WheelGuard(self)
        self._timer = QTimer(self)
        self._timer.setSingleShot(True)
        self._timer.setInterval(INSPECT_AFTER_MS)
        self._timer.timeout.connect(self._inspect_now)
        for part in (
            self.network,
            self.property_file,
            self.ball,
            self.choices,
            self.points,
            self.noise,
            self.benchmark,
        ):
            part.changed.connect(self._on_change)
        self._kinds.idToggled.connect(self._switched)
        self._jobs.idToggled.connect(self._job_switched)
        self.points.switched.connect(self._name_property)
        themes.notifier.changed.connect(self._restyle)
        self._restyle()
        self._on_change()

    def _make_switches(self) -> None:
        self.as_proof, self.as_measurement = QRadioButton("Verify"), QRadioButton("Variability")
        self.as_benchmark = QRadioButton("Benchmark")
        self._jobs = switch(
            self,
            (
                (VERIFY, self.as_proof, VERIFY_HINT),
                (MEASURE, self.as_measurement, MEASURE_HINT),
                (BENCHMARK, self.as_benchmark, BENCHMARK_HINT),
            ),
        )
        self._as_file = QRadioButton("VNN-LIB file")
        self._as_ball = QRadioButton("ε-ball around an input")
        self._kinds = switch(self, ((FILE, self._as_file, PROPERTY_HINT), (BALL, self._as_ball, BALL_HINT)))

    def _lay_out(self) -> None:
        body = QWidget()
        column = QVBoxLayout(body)
        column.setContentsMargins(10, 8, 10, 8)
        column.setSpacing(8)
        network = self._rows = QFormLayout()
        network.setSpacing(6)
        network.addRow("Job", in_a_row(self._jobs))
        network.addRow("Instances", self.benchmark)
        label = QLabel("Network")
        label.setBuddy(self.network)
        network.addRow(label, self.network)
        self._points_label = QLabel("Points")
        network.addRow(self._points_label, self.points.switch)
        network.addRow(self.points)
        self._property_switch = in_a_row(self._kinds)
        network.addRow("Property", self._property_switch)
        column.addLayout(network)
        column.addWidget(self.property_file)
        column.addWidget(self.ball)
        column.addWidget(_line())
        column.addWidget(self.choices)
        column.addWidget(self.noise)
        column.addWidget(_line())
        column.addWidget(self.read_back, 1)
        self._filler = QWidget()  # keeps the rest at the top where nothing is read back
        column.addWidget(self._filler, 1)
        self._filler.hide()
        for part in (self.ball, *self._noise_parts):
            part.hide()
        network.setRowVisible(self.benchmark, False)
        self._scroll = QScrollArea()
        self._scroll.setWidget(body)
        self._scroll.setWidgetResizable(True)
        self._scroll.setFrameShape(QFrame.Shape.NoFrame)
        self._scroll.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        bar_width = self._scroll.verticalScrollBar().sizeHint().width()
        self._scroll.setMinimumWidth(body.minimumSizeHint().width() + bar_width)
        self._scroll.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        whole = QWidget()
        outer = QVBoxLayout(whole)
        outer.setContentsMargins(0, 0, 0, 0)
        outer.setSpacing(0)
        outer.addWidget(self._scroll, 1)
        outer.addWidget(_line())
        outer.addWidget(self.footer)
        self.setWidget(whole)

    # ------------------------------------------------------------ the draft

    @property
    def draft(self) -> Draft | NoiseDraft | BenchmarkDraft:
        if self.benchmarks:
            return BenchmarkDraft(self.benchmark.source, self.choices.options, self.benchmark.kept)
        network, chosen = self.network.source, self._chosen_property
        if not self.measures:
            return Draft(network, chosen, self.choices.options)
        drawn, points = self.points.drawn, self.points
        return NoiseDraft(
            network,
            None if drawn else points.field.points,
            chosen,
            drawn,
            points.mean.text(),
            points.std.text(),
            self.noise.options,
        )

    @property
    def measures(self) -> bool:
        """Whether the form describes a run that measures noise."""
        return self.as_measurement.isChecked()

    @property
    def benchmarks(self) -> bool:
        """Whether the form describes a whole benchmark."""
        return self.as_benchmark.isChecked()

    @property
    def _chosen_property(self) -> Source | Ball | None:
        return self.property_file.source if self._as_file.isChecked() else self.ball.ball

    def set_draft(self, draft: Draft | NoiseDraft | BenchmarkDraft) -> None:
        """Fill the whole form, from a run that was made before for instance."""
        if isinstance(draft, BenchmarkDraft):
            self.choices.set_options(draft.options)
            self.set_benchmark(draft.source, draft.kept)
            return
        with QSignalBlocker(self):
            if isinstance(draft, NoiseDraft):
                self.as_measurement.setChecked(True)
                self.noise.set_options(draft.options)
                self.points.set_points(draft.points, draft.draw, draft.mean, draft.std)
            else:
                self.as_proof.setChecked(True)
                self.choices.set_options(draft.options)
            self.set_network(draft.network)
            if isinstance(draft.property_source, Ball):
                self.ball.set_ball(draft.property_source)
                self._as_ball.setChecked(True)
            else:
                self.set_property(draft.property_source)
        self._on_change()

    def set_benchmark(self, source: Source | None, kept: InstancesJob | None = None) -> None:
        """Run all instances of this file, or those kept by the daemon."""
        self.as_benchmark.setChecked(True)
        self.benchmark.set_benchmark(source, kept)

    def set_network(self, source: Source | None) -> None:
        if self.benchmarks and source is not None:
            self.as_proof.setChecked(True)
        self.network.set_source(source)

    def set_property(self, source: Source | None) -> None:
        if self.benchmarks and source is not None:
            self.as_proof.setChecked(True)
        self._as_file.setChecked(True)
        self.property_file.set_source(source)

    def set_points(self, points: Points) -> None:
        """Measure at these points."""
        self.as_measurement.setChecked(True)
        self.points.as_files.setChecked(True)
        self.points.field.set_points(points)

    @property
    def around_input(self) -> bool:
        """Whether the property is an ε-ball, entered or yet to be."""
        return self._as_ball.isChecked()

    def choose_property(self, *, around_input: bool) -> None:
        """An ε-ball, or else a file."""
        (self._as_ball if around_input else self._as_file).setChecked(True)

    def set_center(self, source: Source) -> None:
        self._as_ball.setChecked(True)
        self.ball.center.set_source(source)

    @property
    def problem(self) -> str:
        """Why the form cannot run as it stands; "" where it can."""
        draft = self.draft
        if isinstance(draft, BenchmarkDraft):
            return self.benchmark.problem or _refusal(draft)
        if draft.network is None:
            return self.network.problem or "Choose a network to run."
        if self.measures and not self.points.drawn and self.points.field.points is None:
            return self.points.field.problem or "Choose the points to run: a file, or a folder of images."
        if draft.property_source is None and (missing := self._property_problem()):
            return missing
        if isinstance(draft.property_source, Ball) and (found := ball_problem(draft.property_source)):
            return found
        if isinstance(draft, NoiseDraft) and (found := normalisation_problem(draft)):
            return found
        try:
            if isinstance(draft, NoiseDraft):
                capabilities.check_variability(draft.job(named_only))
            else:
                capabilities.check(draft.job(named_only))
        except UsageError as error:
            return friendly(str(error)) if self.measures else str(error)
        return self._blocking

    def _property_problem(self) -> str:
        """Why there is no property; "" where none was asked for and none is needed."""
        if self._as_ball.isChecked():
            found, what = self.ball.center.problem, "Choose the input that the ball is around."
        else:
            found, what = self.property_file.problem, "Choose a property to check."
            if self.measures:
                what = "Choose the property from whose box the points are drawn."
        return found or (what if self._needs_property else "")

    @property
    def _needs_property(self) -> bool:
        return not self.measures or self.points.drawn > 0

    def set_busy(self, busy: bool) -> None:
        """While a run is on its way to the daemon, it is not sent twice."""
        self._busy = busy
        self.run_button.setText("Sending…" if busy else "Run")
        self._show_problem()

    # ------------------------------------------------------------ reading back

    def show_inspection(self, inspection: Inspection) -> None:
        """What the daemon read of the draft last asked for."""
        self._blocking = inspection.problems[0] if inspection.problems else ""
        self.read_back.show_inspection(inspection)
        self._seen = inspection
        self._show_problem()
        self.ask_estimate()

    def inspect_again(self) -> None:
        """Ask anew, after the connection came back for instance."""
        self._inspected = None
        self._on_change()

    def _switched(self, which: int, checked: bool) -> None:
        if checked:
            self.property_file.setVisible(which == FILE)
            self.ball.setVisible(which == BALL)
            self._on_change()

    @property
    def _noise_parts(self) -> tuple[QWidget, ...]:
        return (self.noise, self.points, self.points.switch, self._points_label)

    def _job_switched(self, _which: int, checked: bool) -> None:
        if checked:
            for part in self._noise_parts:
                part.setVisible(self.measures)
            self.choices.setVisible(not self.measures)
            self._show_benchmark(self.benchmarks)
            self._name_property()
            self._on_change()

    def _show_benchmark(self, many: bool) -> None:
        """A benchmark has its own field in place of network and property; time limits are its lines' own."""
        self._rows.setRowVisible(self.benchmark, many)
        self._rows.setRowVisible(self.network, not many)
        self._rows.setRowVisible(self._property_switch, not many)
        self.property_file.setVisible(not many and self._as_file.isChecked())
        self.ball.setVisible(not many and self._as_ball.isChecked())
        self.read_back.setVisible(not many)
        self._filler.setVisible(many)
        self.choices.timeout.setEnabled(not many)

    def _name_property(self) -> None:
        text = PLACEHOLDER if self._needs_property else "Optional: compares proof and measurement"
        for field in (self.property_file, self.ball.center):
            field.line.setPlaceholderText(text)

    def _on_change(self) -> None:
        readable = self._readable()
        before = self._inspected
        if readable != before:
            self._inspected = readable
            self._blocking = ""
            self._seen = None
            if readable.network is None and readable.property_source is None:
                self._timer.stop()
                self.read_back.show_nothing()
            else:
                same_network = before is not None and before.network == readable.network
                same_property = before is not None and before.property_source == readable.property_source
                self.read_back.show_reading(same_network, same_network and same_property)
                self._timer.start()
        self._show_problem()
        self.ask_estimate()
        self.changed.emit()

    def _readable(self) -> Draft:
        """The part of the draft that can be read back; the options play no part in it."""
        if self.benchmarks:
            return Draft()
        network, chosen = self.network.source, self._chosen_property
        if isinstance(chosen, Ball) and (network is None or ball_problem(chosen)):
            chosen = None
        return Draft(network, chosen, Options())

    @property
    def inspect_draft(self) -> Draft:
        return self._readable()

    def _inspect_now(self) -> None:
        self.inspect_wanted.emit()

    def set_history(self, jobs: Callable[[], Iterable[JobInfo]]) -> None:
        """Where the runs that were made before are found, for what they took."""
        self._history = jobs

    def ask_estimate(self) -> None:
        """What the run needs is said anew where anything of it changed."""
        self.footer.estimate.ask(Question.of(self.draft, self._seen, self._history()))

    def _show_problem(self) -> None:
        problem = self.problem
        self.footer.set_problem(problem)
        self.run_button.setEnabled(not problem and not self._busy)
        self.copy_button.setEnabled(self.draft.complete)

    def _restyle(self) -> None:
        self.footer.restyle()
        tint_inputs(self)


def _refusal(draft: BenchmarkDraft) -> str:
    """Why options do not go together; "" where they do."""
    try:
        capabilities.check_instances(draft.job(named_only))
    except UsageError as error:
        return str(error)
    return ""


def _line() -> QFrame:
    line = QFrame()
    line.setFrameShape(QFrame.Shape.HLine)
    line.setFrameShadow(QFrame.Shadow.Plain)
    line.setForegroundRole(QPalette.ColorRole.Mid)
    line.setFixedHeight(1)
    return line
