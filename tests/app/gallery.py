"""Pictures of the real window with real runs, to be looked at: every view, light and dark, at scale 1 and 2.

    python tests/app/gallery.py [FOLDER] [--theme light|dark] [--scale 1|2] [--searches]

FOLDER is $GALLERY_DIR or build/gallery where it is not given. Each palette and scale is a process of its own, on
one daemon whose runs the later ones find.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / part) for part in ("tests", "backend", "app", "native_prism")]

from PySide6.QtCore import QEventLoop, Qt, QTimer  # noqa: E402
from PySide6.QtWidgets import QApplication, QWidget  # noqa: E402

from app.window_support import APP_PATHS, EXAMPLES, end_daemon, example_draft, start_xvfb  # noqa: E402
from boundscope.protocol import (  # noqa: E402
    Arithmetic,
    Branching,
    Method,
    Precision,
    RoundingMode,
    Sharding,
    SourceSearch,
)
from boundscope.records import JobRecord  # noqa: E402
from boundscope_app.benchmark_draft import BenchmarkDraft  # noqa: E402
from boundscope_app.draft import Draft  # noqa: E402
from boundscope_app.main import build_window, parser  # noqa: E402
from boundscope_app.noise_draft import NoiseDraft, NoiseOptions  # noqa: E402
from boundscope_app.settings import Settings  # noqa: E402
from boundscope_app.views import BoundGapView, GraphView, InstancesView, VariabilityView, View  # noqa: E402
from boundscope_app.window import MainWindow, apply_theme  # noqa: E402
from support.wider import wider  # noqa: E402

THEMES, SCALES = ("light", "dark"), (1, 2)
RUN_LIMIT_S = 120.0
SIZE_PX = (1280, 800)


class Gallery:
    """One palette at one scale."""

    def __init__(self, folder: Path, home: Path, theme: str, scale: int) -> None:
        self.folder, self.theme, self.scale = folder, theme, scale
        self.pictures = 0
        folder.mkdir(parents=True, exist_ok=True)
        self.app = QApplication(["gallery"])
        apply_theme(theme)  # type: ignore[arg-type]
        arguments = parser().parse_args(["--home", str(home), "--theme", theme])
        self.window: MainWindow = build_window(arguments, Settings())
        self.window.resize(*SIZE_PX)
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

    def picture(self, name: str, widget: QWidget | None = None) -> None:
        """Write a picture of a widget, or of the whole window."""
        self.pause(80)
        path = self.folder / f"{name}_{self.theme}_{self.scale}x.png"
        if not (widget or self.window).grab().save(str(path)):
            raise SystemExit(f"gallery: {path} could not be written")
        self.pictures += 1

    def read_back(self, draft: Draft) -> None:
        self.window.form.set_draft(draft)
        loop = QEventLoop()
        self.window.session.inspected.connect(loop.quit)
        QTimer.singleShot(20_000, loop.quit)
        loop.exec()

    def run(
        self,
        draft: Draft | NoiseDraft | BenchmarkDraft,
        live: str = "",
        ready: Callable[[JobRecord], Any] = lambda record: (
            record.gaps or record.noise or len(record.instances) > 1
        ),
    ) -> None:
        """Run a draft, or select the run of it that there is; `live` names a picture taken once it is ready."""
        job_id = self._known(draft)
        if not job_id:
            before = set(self.window.runs.ids)
            self.window.form.set_draft(draft)
            self.window.session.run(draft)
            self.wait(lambda: set(self.window.runs.ids) - before, "the run")
            (job_id,) = set(self.window.runs.ids) - before
        runs = self.window.runs
        runs.select(job_id)
        if live:
            self.wait(
                lambda: (
                    ready(runs.record(job_id)) or runs.info(job_id).state.ended  # type: ignore[union-attr]
                ),
                "the first bounds or bits",
            )
            self.picture(live)
        self.wait(lambda: runs.info(job_id).state.ended, "the end of the run")  # type: ignore[union-attr]
        last = runs.info(job_id).last_number  # type: ignore[union-attr]
        self.wait(lambda: runs.record(job_id).last_number >= last, "the whole history")

    def _known(self, draft: Draft | NoiseDraft | BenchmarkDraft) -> str:
        for job_id in self.window.runs.ids:
            info = self.window.runs.info(job_id)
            ranks = getattr(info.job, "ranks", 1) if info else 1
            if info and info.title == draft.title and ranks == draft.options.ranks:
                return job_id
        return ""

    def page(self, view: View, name: str) -> None:
        """The picture that a view exports."""
        view.export_png(self.folder / f"{name}_{self.theme}_{self.scale}x.png", scale=self.scale)
        self.pictures += 1

    def views(self, name: str) -> None:
        """Each view in the whole window, and by itself."""
        for view in self.window.tabs.views:
            self.window.tabs.show_view(view.view_id)
            self.window.tabs.tick()
            self.picture(f"{name}_{view.view_id}")
        self.window.tabs.setCurrentIndex(0)


def graph_pictures(gallery: Gallery, name: str) -> None:
    """The graph in every colour that the run has, with a layer picked and a search, and as a page."""
    tabs = gallery.window.tabs
    view = next(view for view in tabs.views if isinstance(view, GraphView))
    tabs.show_view(view.view_id)
    gallery.wait(lambda: view.graph.scene.cells, "the graph")
    view.graph.show_start()
    view.graph.picked.emit(len(view.graph.scene.cells) // 2)
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
        tabs.show_view(each)
        gallery.picture(f"{name}_picked_{each}")
    view.measure.setCurrentIndex(0)
    tabs.setCurrentIndex(0)


def benchmark_file(folder: Path) -> Path:
    """An instances.csv with each verdict that the examples' networks and properties can have together."""
    folder.mkdir(exist_ok=True)
    path = folder / "instances.csv"
    pairs = (
        ("digits_mlp", "digits-robust", 60),
        ("digits_mlp", "digits-fooled", 60),
        ("digits_cnn", "digits-conv", 60),
        ("digits_cnn", "digits-robust", 60),
        ("advisor", "advisor-far", 60),
        ("advisor", "digits-robust", 60),
        ("digits_cnn", "digits-fooled", 0.01),
    )
    lines = (
        f"{EXAMPLES / 'networks' / net}.onnx,{EXAMPLES / prop / 'property.vnnlib'},{s}"
        for net, prop, s in pairs
    )
    path.write_text("\n".join(lines) + "\n")
    return path


def searches(gallery: Gallery, folder: Path) -> None:
    """Branch and bound: one that ends with a proof, one that time ends, over activations and over inputs."""
    folder.mkdir(exist_ok=True)
    window = gallery.window
    cases = (
        ("proved", "digits-robust", "1.7", Branching.AUTO, 60.0),
        ("late", "digits-robust", "2", Branching.ACTIVATION, 12.0),
        ("inputs", "advisor-far", "2.2", Branching.AUTO, 20.0),
    )
    for name, example, factor, branching, timeout_s in cases:
        draft = example_draft(example)
        options = replace(draft.options, method=Method.COMPLETE, branching=branching, timeout_s=timeout_s)
        target = wider(example, factor, folder / f"{example}-x{factor}.vnnlib")
        window.tabs.show_view("bound_gap")
        draft = replace(draft, property_source=target, options=options)
        gallery.read_back(draft)
        gallery.picture(f"search_{name}_form", window.form)
        gallery.run(draft, live=f"search_{name}_live", ready=lambda record: len(record.search) > 6)
        gallery.views(f"search_{name}")
        view = next(view for view in window.tabs.views if isinstance(view, BoundGapView))
        gallery.page(view, f"search_{name}_page")


def comparisons(gallery: Gallery) -> None:
    """Two, four and eight runs side by side, the noise of SR and UD, and kinds that do not go together."""
    window, conv = gallery.window, example_draft("digits-conv")
    runs, options = window.runs, conv.options
    ways = (
        replace(options, method=Method.CROWN_IBP),
        options,
        replace(options, sharding=Sharding.ROWS, ranks=2),
        replace(options, sharding=Sharding.FSDP, ranks=2),
        replace(options, method=Method.IBP),
        replace(options, method=Method.ALPHA_CROWN),
        replace(options, precision=Precision.FLOAT64),
        replace(options, arithmetic=Arithmetic.FLOAT32),
    )
    drafts: list[Draft | NoiseDraft] = [replace(conv, options=each) for each in ways]
    for mode in (RoundingMode.SR, RoundingMode.UD):
        for precision in (None, 11):
            how = NoiseOptions(mode=mode, precision=precision, samples=10)
            drafts.append(NoiseDraft(conv.network, None, conv.property_source, 2, options=how))
    made = list(reversed(runs.ids))
    if len(made) < len(drafts):
        made = []
        for draft in drafts:
            before = set(runs.ids)
            window.session.run(draft)
            gallery.wait(lambda before=before: set(runs.ids) - before, "the run")
            made += set(runs.ids) - before
            last = made[-1]
            gallery.wait(lambda last=last: runs.info(last).state.ended, "its end")  # type: ignore[union-attr]
    else:
        made = list(runs.ids)
    sets = {
        "two": made[1:3],
        "four": made[1:5],
        "eight": made[:8],
        "noise": made[8:12:2],
        "mixed": [*made[1:3], made[8]],
    }
    for name, ids in sets.items():
        window.compare(tuple(ids))
        for each in ids:
            last = runs.info(each).last_number  # type: ignore[union-attr]
            gallery.wait(
                lambda each=each, last=last: runs.record(each).last_number >= last, "the whole history"
            )
        for view in window.tabs.compare_views:
            if window.tabs.isTabVisible(window.tabs.indexOf(view)):
                window.tabs.show_view(view.view_id)
                window.tabs.tick()
                if view.view_id == "compare_memory" and name == "four":
                    view.spread.setCurrentIndex(2)  # type: ignore[attr-defined]
                gallery.picture(f"compare_{name}_{view.view_id}")
                if name in ("four", "noise") and view.record is not None and view.has_data(view.record):
                    gallery.page(view, f"compare_{name}_{view.view_id}_page")
    runs.compare(())


def take_comparisons(folder: Path, home: Path, theme: str, scale: int) -> None:
    """The pictures of runs side by side alone."""
    gallery = Gallery(folder, home, theme, scale)
    comparisons(gallery)
    gallery.window.close()
    print(f"gallery: {gallery.pictures} pictures, {theme}, scale {scale}, in {folder}")


def take_searches(folder: Path, home: Path, theme: str, scale: int) -> None:
    """The pictures of branch and bound alone."""
    gallery = Gallery(folder, home, theme, scale)
    searches(gallery, home.parent / "wider")
    gallery.window.close()
    print(f"gallery: {gallery.pictures} pictures, {theme}, scale {scale}, in {folder}")


def take_all(folder: Path, home: Path, theme: str, scale: int) -> None:
    """All pictures of one palette and scale."""
    gallery = Gallery(folder, home, theme, scale)
    window = gallery.window
    if not window.runs.ids:
        gallery.picture("start")
    robust, fooled = example_draft("digits-robust"), example_draft("digits-fooled")
    gallery.read_back(robust)
    gallery.picture("read_back")
    gallery.run(robust, live="live")
    gallery.views("verified")
    graph_pictures(gallery, "graph")
    gallery.run(fooled)
    gallery.views("violated")
    conv = example_draft("digits-conv")
    gallery.run(replace(conv, options=replace(conv.options, sharding=Sharding.ROWS, ranks=2)))
    gallery.views("two_ranks")
    options = NoiseOptions(mode=RoundingMode.UD, ranks=2, source=SourceSearch.ONE, samples=20)
    noise = NoiseDraft(conv.network, None, conv.property_source, 2, options=options)
    window.tabs.show_view("variability")
    gallery.run(noise, live="noise_live")
    window.form.set_draft(noise)
    gallery.views("noise")
    view = next(view for view in window.tabs.views if isinstance(view, VariabilityView))
    window.tabs.show_view(view.view_id)
    for columns in range(view.columns.count()):
        view.columns.setCurrentIndex(columns)
        gallery.picture(f"noise_{columns}", view)
    view.columns.setCurrentIndex(0)
    gallery.page(view, "noise_page")
    graph_pictures(gallery, "noise_graph")
    searches(gallery, home.parent / "wider")
    gallery.run(BenchmarkDraft(benchmark_file(home.parent / "digits")), live="benchmark_live")
    view = next(view for view in window.tabs.views if isinstance(view, InstancesView))
    view.table.setCurrentIndex(view.proxy.index(1, 0))
    view.show_detail(1)
    gallery.views("benchmark")
    gallery.page(view, "benchmark_page")
    window.form.set_draft(BenchmarkDraft(benchmark_file(home.parent / "digits")))
    gallery.picture("benchmark_form", window.form)
    window.tabs.setCurrentIndex(0)
    window.drops[0].overlay.light_up("Drop digits_cnn.onnx to use it as the network", welcome=True)
    gallery.picture("drop")
    window.drops[0].overlay.light_up("notes.txt is not a file that Boundscope reads.", welcome=False)
    gallery.picture("drop_refused")
    window.drops[0].overlay.hide()
    for kind in ("info", "warning", "error"):
        window.tell(
            kind, f"This is how a message of the kind “{kind}” looks, with words enough to wrap once. " * 2
        )
    gallery.picture("messages")
    window.messages.clear()
    window.palette_dialog.open_over(window)
    gallery.picture("palette", window.palette_dialog)
    window.palette_dialog.hide()
    window.help_dialog.show()
    gallery.picture("help", window.help_dialog)
    window.help_dialog.hide()
    window.form.set_center(ROOT / "app" / "none.npy")
    gallery.pause(600)
    gallery.picture("ball")
    window.form.set_property(None)
    window.form.set_points(ROOT / "app" / "none.npy")
    gallery.pause(600)
    gallery.picture("noise_files", window.form)
    window.close()
    print(f"gallery: {gallery.pictures} pictures, {theme}, scale {scale}, in {folder}")


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    default = Path(os.environ.get("GALLERY_DIR", ROOT / "build" / "gallery"))
    options.add_argument("folder", nargs="?", type=Path, default=default)
    options.add_argument("--theme", choices=THEMES)
    options.add_argument("--scale", type=int, choices=SCALES)
    options.add_argument("--searches", action="store_true", help="branch and bound alone")
    options.add_argument("--compare", action="store_true", help="runs side by side alone")
    options.add_argument("--home", type=Path, help=argparse.SUPPRESS)
    chosen = options.parse_args()
    if chosen.home is not None:
        take = take_comparisons if chosen.compare else take_searches if chosen.searches else take_all
        take(chosen.folder, chosen.home, chosen.theme, chosen.scale)
        return 0
    environment = {**os.environ, "PYTHONPATH": APP_PATHS, "OMP_NUM_THREADS": "1"}
    screen = None
    if not (os.environ.get("DISPLAY") or os.environ.get("QT_QPA_PLATFORM")):
        screen = start_xvfb()
        environment |= {"QT_QPA_PLATFORM": "offscreen"} if screen is None else {"DISPLAY": screen[1]}
    with tempfile.TemporaryDirectory(prefix="boundscope-gallery-") as place:
        home = Path(place) / "home"
        environment["BOUNDSCOPE_CONFIG"] = str(Path(place) / "config")
        try:
            for theme in [chosen.theme] if chosen.theme else THEMES:
                for scale in [chosen.scale] if chosen.scale else SCALES:
                    command = [sys.executable, __file__, str(chosen.folder), "--home", str(home)]
                    command += ["--theme", theme, "--scale", str(scale)]
                    command += ["--searches"] if chosen.searches else []
                    command += ["--compare"] if chosen.compare else []
                    status = subprocess.run(
                        command, env={**environment, "QT_SCALE_FACTOR": str(scale)}, check=False
                    ).returncode
                    if status:
                        return status
        finally:
            end_daemon(home)
    return 0


if __name__ == "__main__":
    sys.exit(main())
