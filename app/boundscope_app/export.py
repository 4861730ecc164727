"""Writes every plot and table of a run into a folder: all at once, or piece by piece while the window lives."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject, Qt, QTimer, Signal

from boundscope.errors import BoundscopeError
from boundscope.records import Table
from boundscope_app import theme as themes
from boundscope_app.drawing import Drawing, Steps, done
from boundscope_app.views.base import View
from boundscope_app.views.page import Page, save_image

WIDTH_PX = 1600
MOST_REFRESHES = 500  # of one view: a run that goes on always has more to show
Write = Callable[[], object]


@dataclass(frozen=True)
class Exported:
    """What was written, and a sentence for each thing that could not be."""

    files: tuple[Path, ...]
    problems: tuple[str, ...]


@dataclass(frozen=True)
class Piece:
    """One file. `prepare` draws or gathers, in steps, in the window's thread; its result writes, in any thread."""

    path: Path
    prepare: Callable[[], Steps[Write]]


@dataclass(frozen=True)
class ExportProgress:
    """`name` is the file under way; `eta_s` None until there is something to reckon from."""

    name: str
    done: int
    total: int
    eta_s: float | None = None


def pieces(views: Sequence[View], folder: Path, width_px: int = WIDTH_PX) -> tuple[Piece, ...]:
    """PNG, SVG and CSV of every view that has data, the verdict as PDF and HTML; each name once."""
    *_, found = looking_through(views, folder, width_px)
    return tuple(found.values())


def looking_through(
    views: Sequence[View], folder: Path, width_px: int = WIDTH_PX
) -> Iterator[dict[Path, Piece]]:
    """As `pieces`, a little a step, with what was found so far: a view may have much to bring up to date."""
    found: dict[Path, Piece] = {}

    def add(name: str, prepare: Callable[[Path], Steps[Write]]) -> None:
        path = folder / name
        found.setdefault(path, Piece(path, partial(prepare, path)))

    for view in views:
        if view.record is None or not view.has_data(view.record):
            continue
        for _ in range(MOST_REFRESHES):
            view.refresh()
            yield found
            if not view.dirty:
                break
        drawing = Drawing(partial(_page, view, width_px), f"{view.title}: {view.caption}")
        add(f"{view.view_id}.png", partial(_draw_png, drawing))
        add(f"{view.view_id}.svg", partial(_draw_svg, drawing))
        for name, write in view.further_files():
            add(name, partial(_write_further, write))
        for table in view.tables():
            add(f"{table.name}.csv", partial(_gather, table))
        yield found
    record = next((view.record for view in views if view.record is not None), None)
    for table in (
        () if record is None else record.tables()
    ):  # without rows too, as `boundscope export` writes them
        add(f"{table.name}.csv", partial(_gather, table))
    yield found


def _page(view: View, width_px: int) -> Page:
    return view.page(width_px, None, themes.current(), 1.0)


def _draw_png(drawing: Drawing, path: Path) -> Steps[Write]:
    image = yield from drawing.image(1.0)
    return partial(save_image, image, path)


def _draw_svg(drawing: Drawing, path: Path) -> Steps[Write]:
    yield from drawing.svg(path)  # Qt's generator writes while it draws
    return _nothing


def _write_further(write: Callable[[Path], None], path: Path) -> Steps[Write]:
    yield
    write(path)
    return _nothing


def _gather(table: Table, path: Path) -> Steps[Write]:
    yield
    return partial(_write_table, path, table)


def _nothing() -> None:
    """It is written already."""


def _write_table(path: Path, table: Table) -> None:
    _write_text(path, table.to_csv())


def _write_text(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8", newline="")
    except OSError as error:
        raise BoundscopeError(f"cannot write {path}: {error.strerror}") from error


def _make_folder(folder: Path) -> str:
    """ "" or a sentence that says why there is none."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        return f"The folder {folder} cannot be made: {error.strerror}"
    return ""


def export_all(views: Iterable[View], folder: Path, *, width_px: int = WIDTH_PX) -> Exported:
    """Write everything before returning. A file that fails leaves the others."""
    if problem := _make_folder(folder):
        return Exported((), (problem,))
    written: list[Path] = []
    problems: list[str] = []
    for piece in pieces(tuple(views), folder, width_px):
        try:
            done(piece.prepare())()
        except (BoundscopeError, OSError) as error:
            problems.append(str(error))
        else:
            written.append(piece.path)
    return Exported(tuple(written), tuple(problems))


class Exporter(QObject):
    """The same, one file after the other with the window alive between them; writing happens in a thread beside.

    `progressed` (ExportProgress) before each file, `finished` (Exported) at the end, also after `cancel`.
    """

    progressed = Signal(object)
    finished = Signal(object)
    _written = Signal(object)  # Future; arrives in the window's thread

    def __init__(self, views: Iterable[View], folder: Path, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._views = tuple(views)
        self._folder = folder
        self._files: list[Path] = []
        self._problems: list[str] = []
        self._looking: Iterator[dict[Path, Piece]] | None = None  # until all pieces are known
        self._found: dict[Path, Piece] = {}
        self._left: Iterator[Piece] = iter(())
        self._total = 0
        self._done = 0
        self._cancelled = False
        self._now: Piece | None = None
        self._steps: Steps[Write] | None = None  # of the file under way, until it is written
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="boundscope-export")
        self._written.connect(self._piece_written, Qt.ConnectionType.QueuedConnection)
        self._next = QTimer(self, singleShot=True, interval=0)
        self._next.timeout.connect(self._go_on)
        self._begin_s = 0.0

    def start(self) -> None:
        if problem := _make_folder(self._folder):
            self._problems.append(problem)
            self._end()
            return
        self._looking = looking_through(self._views, self._folder)
        self._next.start()

    def cancel(self) -> None:
        """End after the step under way; what was written stays, and a file that is being written is finished."""
        self._cancelled = True

    def abandon(self) -> None:
        """End for good, with the file under way written: the window closes. Nothing is told any more."""
        self._next.stop()
        self._leave_steps()
        self._written.disconnect(self._piece_written)
        self._writer.shutdown(wait=True, cancel_futures=True)

    def _look(self, looking: Iterator[dict[Path, Piece]]) -> None:
        """Look through one more view; after the last, begin to write."""
        found = None if self._cancelled else next(looking, None)
        if found is None:
            self._looking = None
            self._left, self._total = iter(self._found.values()), len(self._found)
            self._begin_s = time.monotonic()
        else:
            self._found = found
            self.progressed.emit(ExportProgress("looking through the run", 0, 0))
        self._next.start()

    def _go_on(self) -> None:
        """A little more: a look, or a step of the file under way, or the next file."""
        if self._looking is not None:
            self._look(self._looking)
        elif self._steps is not None and not self._cancelled:
            self._take_step(self._steps)
        else:
            self._begin_next()

    def _begin_next(self) -> None:
        self._now = None if self._cancelled else next(self._left, None)
        self._leave_steps()
        if self._now is None:
            self._end()
            return
        spent_s = time.monotonic() - self._begin_s
        eta_s = spent_s / self._done * (self._total - self._done) if self._done else None
        self.progressed.emit(ExportProgress(self._now.path.name, self._done, self._total, eta_s))
        self._steps = self._now.prepare()
        self._next.start()

    def _leave_steps(self) -> None:
        if self._steps is not None:
            self._steps.close()
            self._steps = None

    def _take_step(self, steps: Steps[Write]) -> None:
        try:
            next(steps)
        except StopIteration as end:
            self._steps = None
            self._writer.submit(end.value).add_done_callback(self._written.emit)
        except (BoundscopeError, OSError) as error:
            self._steps = None
            self._problems.append(str(error))
            self._done += 1
            self._next.start()
        else:
            self._next.start()

    def _piece_written(self, written: Future[object]) -> None:
        assert self._now is not None
        error = written.exception()
        if error is None:
            self._files.append(self._now.path)
        elif isinstance(error, BoundscopeError | OSError):
            self._problems.append(str(error))
        else:
            raise error
        self._done += 1
        self._next.start()

    def _end(self) -> None:
        self._writer.shutdown(wait=True)
        if self._cancelled:
            left = self._total - self._done
            self._problems.append(f"Cancelled: {left} of {self._total} files were not written.")
        self.finished.emit(Exported(tuple(self._files), tuple(self._problems)))
