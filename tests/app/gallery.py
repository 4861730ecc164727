"""Pictures of the real window with real runs, to be looked at: every view, light and dark, at scale 1 and 2.

    python tests/app/gallery.py [FOLDER] [--theme light|dark] [--scale 1|2|3] [--size WIDTHxHEIGHT]

FOLDER is $GALLERY_DIR or build/gallery where it is not given. Each palette and scale is a process of its own, on
one daemon whose runs the later ones find. Scale 3 is only made where it is asked for. `docs_pictures.py` takes the
pictures of README and docs from here.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("tests", "backend", "app", "native_prism")]

from PySide6.QtCore import QEventLoop, Qt, QTimer  # noqa: E402
from PySide6.QtWidgets import QApplication, QWidget  # noqa: E402

from app.gallery_runs import AnyDraft, closing_runs, lasting_runs, live_runs  # noqa: E402
from app.window_support import APP_PATHS, end_daemon, example_draft, start_xvfb  # noqa: E402
from boundscope.client import RemoteHost  # noqa: E402
from boundscope.daemon.__main__ import NO_SPARE_VARIABLE  # noqa: E402
from boundscope_app.main import build_window, parser  # noqa: E402
from boundscope_app.settings import Settings  # noqa: E402
from boundscope_app.views import GraphView, InstancesView, VariabilityView, View  # noqa: E402
from boundscope_app.views.export_dialog import ExportDialog  # noqa: E402
from boundscope_app.window import MainWindow, apply_theme  # noqa: E402

AnyView = TypeVar("AnyView", bound=View)
THEMES, SCALES, MORE_SCALES = ("light", "dark"), (1, 2), (3,)
RUN_LIMIT_S = 120.0
SIZE_PX = (1280, 800)
SETTLE_MS = 40
HOSTS = (RemoteHost(name="gpu-box"), RemoteHost(name="me@cluster.example", home="~/bounds"))


class Gallery:
    """One palette at one scale."""

    def __init__(
        self, folder: Path, home: Path, theme: str, scale: int, size_px: tuple[int, int] = SIZE_PX
    ) -> None:
        self.folder, self.theme, self.scale = folder, theme, scale
        self.pictures = 0
        folder.mkdir(parents=True, exist_ok=True)
        arguments = parser().parse_args(["--home", str(home), "--theme", theme])
        self.window: MainWindow = build_window(arguments, Settings(hosts=HOSTS))
        self.window.resize(*size_px)
        self.window.show()
        self.window.begin()
        self.wait(lambda: self.window.session.listed, "the daemon")

    def wait(self, condition: Callable[[], Any], what: str, limit_s: float = RUN_LIMIT_S) -> None:
        """Let the window live until the condition holds."""
        deadline = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > deadline:
                raise SystemExit(f"gallery: {what} did not come about within {limit_s:g} s")
            self.pause(20)

    def pause(self, milliseconds: int) -> None:
        loop = QEventLoop()
        QTimer.singleShot(milliseconds, loop.quit)
        loop.exec()

    def picture(self, name: str, widget: QWidget | None = None, *, messages: bool = False) -> None:
        """Write a picture of a widget, or of the whole window; what it was told of other runs is left out."""
        self.pause(SETTLE_MS)
        if not messages and self.window.messages.isVisible():
            self.window.messages.clear()
            self.pause(SETTLE_MS)
        path = self.folder / f"{name}_{self.theme}_{self.scale}x.png"
        if not (widget or self.window).grab().save(str(path)):
            raise SystemExit(f"gallery: {path} could not be written")
        self.pictures += 1

    def page(self, view: View, name: str) -> None:
        """The picture that a view exports."""
        view.export_png(self.folder / f"{name}_{self.theme}_{self.scale}x.png", scale=self.scale)
        self.pictures += 1

    # ------------------------------------------------------------ runs

    def read_back(self, draft: AnyDraft) -> None:
        self.window.form.set_draft(draft)
        loop = QEventLoop()
        self.window.session.inspected.connect(loop.quit)
        QTimer.singleShot(20_000, loop.quit)
        loop.exec()

    def submit(self, drafts: Mapping[str, AnyDraft]) -> dict[str, str]:
        """Ask for these runs in their order; their ids by name."""
        made: dict[str, str] = {}
        for name, draft in drafts.items():
            before = set(self.window.runs.ids)
            self.window.session.run(draft)
            self.wait(lambda before=before: set(self.window.runs.ids) - before, f"the run {name}")
            (made[name],) = set(self.window.runs.ids) - before
        return made

    def ended(self, job_id: str) -> bool:
        info = self.window.runs.info(job_id)
        return info is not None and info.state.ended

    def select(self, job_id: str) -> None:
        """Show a run once it has ended and all that it said is here."""
        runs = self.window.runs
        self.wait(lambda: self.ended(job_id), "the end of a run")
        runs.select(job_id)
        last = runs.info(job_id).last_number  # type: ignore[union-attr]
        self.wait(lambda: runs.record(job_id).last_number >= last, "the whole history")

    # ------------------------------------------------------------ views

    @property
    def shown_views(self) -> list[View]:
        tabs = self.window.tabs
        return [view for view in tabs.all_views if tabs.isTabVisible(tabs.indexOf(view))]

    def show(self, view_id: str) -> None:
        self.window.tabs.show_view(view_id)
        self.window.tabs.tick()

    def views(self, name: str, *ids: str) -> None:
        """These views in the whole window; all that there are where none is named."""
        for view in self.shown_views:
            if not ids or view.view_id in ids:
                self.show(view.view_id)
                self.picture(f"{name}_{view.view_id}")
        self.window.tabs.setCurrentIndex(0)

    def view_of(self, kind: type[AnyView]) -> AnyView:
        return next(view for view in self.window.tabs.all_views if isinstance(view, kind))


# ---------------------------------------------------------------- scenes


def live(gallery: Gallery, ids: Mapping[str, str]) -> None:
    """Every view of a run while it goes on, and two that are compared while they do."""
    runs = gallery.window.runs
    first, second = ids["live_a"], ids["live_b"]
    runs.select(first)
    gallery.wait(lambda: runs.record(first).progress or gallery.ended(first), "the first step")
    gallery.show("verdict")
    gallery.picture("live_begin")
    gallery.wait(lambda: len(runs.record(first).search) > 2 or gallery.ended(first), "the first domains")
    gallery.wait(lambda: runs.record(second).gaps or gallery.ended(second), "the first bounds")
    gallery.views("live", "verdict", "bound_gap", "memory", "layers", "graph", "log")
    gallery.window.compare((first, second))
    gallery.wait(lambda: runs.record(second).search or gallery.ended(second), "the other's domains")
    gallery.views("live_compare", "compare", "compare_bound_gap", "compare_memory")
    runs.compare(())


def closing(gallery: Gallery, ids: Mapping[str, str]) -> None:
    """A measurement and a benchmark, while they go on and once they have ended."""
    runs = gallery.window.runs
    for name, view_id in (("noise", "variability"), ("benchmark", "instances")):
        job_id = ids[name]
        runs.select(job_id)
        gallery.wait(
            lambda job_id=job_id: (
                runs.record(job_id).noise or len(runs.record(job_id).instances) > 1 or gallery.ended(job_id)
            ),
            "the first samples or verdicts",
        )
        gallery.show(view_id)
        gallery.picture(f"{name}_live")
    gallery.select(ids["noise"])
    gallery.views("noise")
    view = gallery.view_of(VariabilityView)
    gallery.show(view.view_id)
    for columns in range(view.columns.count()):
        view.columns.setCurrentIndex(columns)
        gallery.picture(f"noise_{columns}", view)
    view.columns.setCurrentIndex(0)
    gallery.page(view, "noise_page")
    view.open_maps("conv1")
    gallery.picture("noise_maps")
    gallery.page(view, "noise_maps_page")
    view.close_maps()
    graph_pictures(gallery, "noise_graph")
    gallery.select(ids["benchmark"])
    table = gallery.view_of(InstancesView)
    table.table.setCurrentIndex(table.proxy.index(1, 0))
    table.show_detail(1)
    gallery.views("benchmark", "verdict", "instances", "bound_gap", "log")
    gallery.page(table, "benchmark_page")


def graph_pictures(gallery: Gallery, name: str) -> None:
    """The graph in every colour that the run has, with a layer picked and a search, and as a page."""
    view = gallery.view_of(GraphView)
    gallery.show(view.view_id)
    gallery.wait(lambda: view.graph.scene.cells, "the graph")
    view.graph.show_start()
    view.graph.picked.emit(len(view.graph.scene.cells) // 2 - 1)
    view.search.setText("gemm")
    gallery.picture(f"{name}_picked")
    view.search.clear()
    for index in range(view.measure.count()):
        if view.measure.model().flags(view.measure.model().index(index, 0)) & Qt.ItemFlag.ItemIsEnabled:
            view.measure.setCurrentIndex(index)
            view.measure.activated.emit(index)
            view.graph.show_all()
            gallery.picture(f"{name}_{view.measure.itemData(index)}", view)
    gallery.page(view, f"{name}_page")
    for each in ("layers", "variability"):
        gallery.show(each)
        gallery.picture(f"{name}_picked_{each}")
    view.measure.setCurrentIndex(0)
    gallery.window.tabs.setCurrentIndex(0)


def finished(gallery: Gallery, ids: Mapping[str, str]) -> None:
    """Runs that have ended: every view of some, and the verdict page of each verdict."""
    gallery.read_back(example_draft("digits-robust"))
    gallery.select(ids["verified"])
    gallery.views("verified")
    graph_pictures(gallery, "graph")
    gallery.select(ids["violated"])
    gallery.views("violated", "verdict", "bound_gap")
    page = gallery.window.tabs.views[0]
    page.browser.verticalScrollBar().setValue(330)  # type: ignore[attr-defined]
    gallery.picture("violated_counterexample")
    for name in ("rows", "fsdp"):
        gallery.select(ids[name])
        gallery.views(name, "verdict", "memory", "log")
    for name in ("proved", "inputs", "alpha"):
        gallery.select(ids[name])
        gallery.views(name, "verdict", "bound_gap", "memory")
        for view in gallery.shown_views:
            if view.view_id in ("bound_gap", "memory") and name != "inputs":
                gallery.page(view, f"{name}_{view.view_id}_page")
    for name in ("unknown", "timeout", "out_of_memory", "error"):
        gallery.select(ids[name])
        gallery.views(name, "verdict", "log")


def comparisons(gallery: Gallery, ids: Mapping[str, str]) -> None:
    """Two, four and eight runs side by side, the noise of SR and UD, and kinds that do not go together."""
    window = gallery.window
    eight = ("crown", "rows", "fsdp", "unknown", "crown_ibp", "alpha", "float64", "float32")
    sets = {"two": eight[:2], "four": eight[:4], "eight": eight, "noise": ("sr", "ud")}
    sets["mixed"] = ("crown", "rows", "sr")
    for name, names in sets.items():
        for each in names:
            gallery.select(ids[each])
        window.compare(tuple(ids[each] for each in names))
        for each in names:
            last = window.runs.info(ids[each]).last_number  # type: ignore[union-attr]
            gallery.wait(
                lambda each=each, last=last: window.runs.record(ids[each]).last_number >= last, "histories"
            )
        for view in gallery.shown_views:
            if view.view_id.startswith("compare") and (name != "mixed" or view.view_id == "compare"):
                gallery.show(view.view_id)
                gallery.picture(f"compare_{name}_{view.view_id}")
                if name in ("four", "noise") and view.record is not None and view.has_data(view.record):
                    gallery.page(view, f"compare_{name}_{view.view_id}_page")
    window.runs.compare(())


def around_the_views(gallery: Gallery, folder: Path) -> None:
    """The form, dialogs, messages and overlays."""
    window = gallery.window
    for name, draft in {**live_runs(folder), **closing_runs(folder)}.items():
        gallery.read_back(draft) if name == "live_a" else window.form.set_draft(draft)
        if name != "live_b":
            gallery.picture(f"form_{name.removesuffix('_a').replace('live', 'search')}", window.form)
    broken = folder / "broken.onnx"
    broken.write_bytes(b"not a network")
    window.form.set_draft(example_draft())
    window.form.set_network(broken)
    gallery.pause(1500)
    gallery.picture("form_broken", window.form)
    window.form.set_draft(example_draft())
    window.form.set_center(ROOT / "app" / "none.npy")
    gallery.pause(300)
    gallery.picture("form_ball", window.form)
    window.drops[0].overlay.light_up("Drop digits_cnn.onnx to use it as the network", welcome=True)
    gallery.picture("drop")
    window.drops[0].overlay.light_up("notes.txt is not a file that Boundscope reads.", welcome=False)
    gallery.picture("drop_refused")
    window.drops[0].overlay.hide()
    for kind, text in (
        (
            "info",
            "The run digits_cnn.onnx · digits-conv goes on at gpu-box; it is here again at the next start.",
        ),
        (
            "warning",
            "The settings file could not be read; it was set aside, and the window starts without it.",
        ),
        (
            "error",
            "The daemon of gpu-box does not answer: ssh ended with status 255. Connect to it again.",
        ),
    ):
        window.tell(kind, text)
    gallery.picture("messages", messages=True)
    window.messages.clear()
    window.palette_dialog.open_over(window)
    gallery.picture("palette", window.palette_dialog)
    window.palette_dialog.hide()
    window.help_dialog.show()
    gallery.picture("help", window.help_dialog)
    window.help_dialog.hide()
    window.remote_dialog.show()
    window.remote_dialog.list.setCurrentRow(1)
    gallery.picture("remote", window.remote_dialog)
    window.remote_dialog.hide()
    for kind in ("png", "svg"):
        dialog = ExportDialog(kind, "digits_cnn_bound_gap", window)
        dialog.show()
        gallery.picture(f"export_{kind}", dialog)
        dialog.close()


def first_run(folder: Path, home: Path, theme: str, scale: int) -> int:
    """The window of somebody who has no runs yet."""
    gallery = Gallery(folder, home, theme, scale)
    gallery.picture("start")
    gallery.read_back(example_draft())
    gallery.picture("read_back")
    gallery.window.close()
    return gallery.pictures


def take_all(folder: Path, place: Path, theme: str, scale: int, size_px: tuple[int, int]) -> None:
    """All pictures of one palette and scale."""
    began = time.monotonic()
    app = QApplication(["gallery"])
    apply_theme(theme)  # type: ignore[arg-type]
    files = place / "files"
    files.mkdir(exist_ok=True)
    gallery = Gallery(folder, place / "home", theme, scale, size_px)
    kept = place / "runs.json"
    now = gallery.submit(live_runs(files))
    if not kept.exists():
        kept.write_text(json.dumps(gallery.submit(lasting_runs(files))))
    ids: dict[str, str] = {**json.loads(kept.read_text()), **now}
    pictures = first_run(folder, place / "empty", theme, scale)
    live(gallery, ids)
    around_the_views(gallery, files)
    finished(gallery, ids)
    comparisons(gallery, ids)
    closing(gallery, gallery.submit(closing_runs(files)))
    gallery.window.close()
    app.processEvents()
    pictures += gallery.pictures
    took = f"{time.monotonic() - began:.0f} s ({time.process_time():.0f} s of them drawing)"
    print(f"gallery: {pictures} pictures in {took}, {theme}, scale {scale}, in {folder}")


def _size(text: str) -> tuple[int, int]:
    width, height = map(int, text.split("x"))
    return width, height


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    default = Path(os.environ.get("GALLERY_DIR", ROOT / "build" / "gallery"))
    options.add_argument("folder", nargs="?", type=Path, default=default)
    options.add_argument("--theme", choices=THEMES)
    options.add_argument("--scale", type=int, choices=(*SCALES, *MORE_SCALES))
    options.add_argument("--size", type=_size, default=SIZE_PX, help="of the window (default 1280x800)")
    options.add_argument("--place", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.place is not None:
        take_all(chosen.folder, chosen.place, chosen.theme, chosen.scale, chosen.size)
        return 0
    environment = {**os.environ, "PYTHONPATH": APP_PATHS, "OMP_NUM_THREADS": "1"}
    screen = None
    if not (os.environ.get("DISPLAY") or os.environ.get("QT_QPA_PLATFORM")):
        screen = start_xvfb()
        environment |= {"QT_QPA_PLATFORM": "offscreen"} if screen is None else {"DISPLAY": screen[1]}
    with tempfile.TemporaryDirectory(prefix="boundscope-gallery-") as name:
        place = Path(name)
        home = place / "home"
        environment["BOUNDSCOPE_CONFIG"] = str(place / "config")
        home.mkdir()
        serve = [sys.executable, "-m", "boundscope.daemon", "--home", str(home), "--jobs", "2"]
        with (home / "daemon.out").open("w") as said:
            subprocess.Popen(serve, env=environment, stdout=said, stderr=said)
        try:
            for theme in [chosen.theme] if chosen.theme else THEMES:
                for scale in [chosen.scale] if chosen.scale else SCALES:
                    command = [sys.executable, str(Path(__file__).resolve()), str(chosen.folder.resolve())]
                    command += ["--place", name]
                    command += [
                        "--theme",
                        theme,
                        "--scale",
                        str(scale),
                        "--size",
                        "x".join(map(str, chosen.size)),
                    ]
                    settings = {"QT_SCALE_FACTOR": str(scale), NO_SPARE_VARIABLE: "1"}
                    environment |= settings
                    status = subprocess.run(command, env=environment, cwd=place, check=False).returncode
                    if status:
                        return status
        finally:
            for each in (home, place / "empty"):
                end_daemon(each)
    return 0


if __name__ == "__main__":
    sys.exit(main())
