"""What is entered in the run form and not yet run, kept on disk as it is typed: a window that dies loses none of it."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from PySide6.QtCore import QObject, QSignalBlocker, QTimer, Signal
from PySide6.QtWidgets import QLineEdit

from boundscope.protocol import FileRef, InstancesJob, Norm
from boundscope_app import settings as settings_store
from boundscope_app.docks.form import FormDock
from boundscope_app.draft import Options, Source
from boundscope_app.noise_draft import NoiseOptions, Points
from boundscope_app.widgets.source_field import SourceField

FILE_NAME = "draft.json"
WRITE_AFTER_MS = 300  # at most so much of the typing is lost
KeptSource = str | FileRef | None  # a path as typed, or a file that the daemon has
KeptPoints = str | tuple[FileRef, ...] | None


class KeptBall(msgspec.Struct, kw_only=True):
    """An ε-ball as far as it was entered."""

    center: KeptSource = None
    epsilon: str = ""
    label: int = 0
    lower: str = ""
    upper: str = ""
    mean: str = ""
    std: str = ""
    norm: Norm = Norm.LINF


class KeptForm(msgspec.Struct, kw_only=True):
    """Every field of the form, also those that another kind of job hides now, and texts that are no file (yet)."""

    kind: Literal["verify", "variability", "benchmark"] = "verify"
    network: KeptSource = None
    around_input: bool = False  # the property is a ball, not a file
    property: KeptSource = None
    ball: KeptBall = msgspec.field(default_factory=KeptBall)
    options: Options = Options()
    drawn: bool = True
    draw: int = 10
    points: KeptPoints = None
    mean: str = ""
    std: str = ""
    noise: NoiseOptions = NoiseOptions()
    instances: KeptSource = None
    instances_job: InstancesJob | None = None


def gather(form: FormDock) -> KeptForm:
    """The form as it stands."""
    ball, points = form.ball, form.points
    return KeptForm(
        kind="benchmark" if form.benchmarks else "variability" if form.measures else "verify",
        network=_text_of(form.network),
        around_input=form.around_input,
        property=_text_of(form.property_file),
        ball=KeptBall(
            center=_text_of(ball.center),
            epsilon=ball.epsilon.text(),
            label=ball.label.value(),
            lower=ball.lower_clip.text(),
            upper=ball.upper_clip.text(),
            mean=ball.mean.text(),
            std=ball.std.text(),
            norm=Norm(ball.norm.currentData()),
        ),
        options=form.choices.options,
        drawn=points.drawn > 0,
        draw=points.draw.value(),
        points=_points_of(form),
        mean=points.mean.text(),
        std=points.std.text(),
        noise=form.noise.options,
        instances=_text_of(form.benchmark.field),
        instances_job=form.benchmark.kept,
    )


def fill(form: FormDock, kept: KeptForm) -> None:
    """Make the form what it was, in one change."""
    with QSignalBlocker(form):
        form.choices.set_options(kept.options)
        form.noise.set_options(kept.noise)
        form.network.set_source(_source(kept.network))
        form.property_file.set_source(_source(kept.property))
        _fill_ball(form, kept.ball)
        form.choose_property(around_input=kept.around_input)
        points: Points | None = Path(kept.points) if isinstance(kept.points, str) else kept.points
        form.points.draw.setValue(kept.draw)
        form.points.set_points(points, kept.draw if kept.drawn else 0, kept.mean, kept.std)
        form.benchmark.set_benchmark(_source(kept.instances), kept.instances_job)
        kinds = {"verify": form.as_proof, "variability": form.as_measurement, "benchmark": form.as_benchmark}
        kinds[kept.kind].setChecked(True)
    form.inspect_again()


def _fill_ball(form: FormDock, kept: KeptBall) -> None:
    ball = form.ball
    ball.center.set_source(_source(kept.center))
    for field, text in (
        (ball.epsilon, kept.epsilon),
        (ball.lower_clip, kept.lower),
        (ball.upper_clip, kept.upper),
        (ball.mean, kept.mean),
        (ball.std, kept.std),
    ):
        field.setText(text)
    ball.label.setValue(kept.label)
    ball.norm.setCurrentIndex(ball.norm.findData(kept.norm))


def _text_of(field: SourceField) -> KeptSource:
    """What stands in the field, also where it is not entered yet or is no such file."""
    text, source = field.line.text().strip(), field.source
    if isinstance(source, FileRef) and text == source.name:
        return source
    return str(source.absolute()) if isinstance(source, Path) and text == str(source) else text or None


def _points_of(form: FormDock) -> KeptPoints:
    field = form.points.field
    return field.points if isinstance(field.points, tuple) else field.line.text().strip() or None


def _source(kept: KeptSource) -> Source | None:
    return Path(kept).expanduser() if isinstance(kept, str) else kept


def draft_path() -> Path:
    return settings_store.config_folder() / FILE_NAME


def load(path: Path | None = None) -> tuple[KeptForm | None, str]:
    """The kept form or None, and a note for the user or "". An unreadable file is set aside, never deleted."""
    path = path or draft_path()
    try:
        return msgspec.json.decode(path.read_bytes(), type=KeptForm), ""
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"What was entered before, in {path}, cannot be opened ({error.strerror})."
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return None, settings_store.set_aside(path, error, "What was entered before", "the form is empty")


class DraftKeeper(QObject):
    """Writes the form to disk shortly after every change of it, until what it says was run.

    `told` (kind, sentence) where that fails, once.
    """

    told = Signal(str, str)

    def __init__(self, form: FormDock, parent: QObject) -> None:
        super().__init__(parent)
        self._form = form
        self._fresh = gather(form)
        self._sent: KeptForm | None = None  # as it was run last, or is on its way
        self._asked: KeptForm | None = None
        self._problem = ""
        self._timer = QTimer(self, singleShot=True, interval=WRITE_AFTER_MS)
        self._timer.timeout.connect(self.write)

    def begin(self) -> tuple[KeptForm | None, str]:
        """What was left of the last time, as `load`; from now on changes are kept."""
        left = load()
        self._form.changed.connect(self._touch)
        for line in self._form.findChildren(QLineEdit):
            line.textEdited.connect(self._touch)
        return left

    def end(self) -> None:
        """The window closes."""
        if self._timer.isActive():
            self._timer.stop()
            self.write()

    def restore(self, kept: KeptForm) -> None:
        fill(self._form, kept)

    def start_afresh(self) -> None:
        """Empty the form, whole."""
        fill(self._form, self._fresh)

    def sending(self) -> None:
        """What the form says is on its way to the daemon."""
        self._asked = gather(self._form)

    def sent(self) -> None:
        """It is there: the run itself keeps it from now on."""
        self._sent = self._asked
        self._touch()

    def _touch(self) -> None:
        if not self._timer.isActive():
            self._timer.start()

    def write(self) -> None:
        """Keep the form as it stands; where nothing is left to keep, keep nothing."""
        now, path = gather(self._form), draft_path()
        if now in (self._fresh, self._sent):
            with suppress(OSError):  # what cannot be removed is offered once more
                path.unlink(missing_ok=True)
            return
        problem = settings_store.write_whole(path, msgspec.json.format(msgspec.json.encode(now), indent=1))
        if problem and problem != self._problem:
            self.told.emit("warning", f"What is entered in the form cannot be kept: {problem}")
        self._problem = problem
