"""What the form holds of a run that measures noise, before it is a job. No Qt."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields
from pathlib import Path

from boundscope.command import variability_command
from boundscope.protocol import (
    EpsilonBall,
    FileRef,
    InspectJob,
    PropertyFile,
    RoundingMode,
    SourceSearch,
    VariabilityJob,
)
from boundscope_app import files
from boundscope_app.draft import (
    DECIMAL,
    Ball,
    Draft,
    Resolve,
    Source,
    ball_of,
    decimals,
    named_only,
    property_source,
    source_path,
    title_part,
)

FOLDER_OF_KEPT_IMAGES = "folder-of-the-images"
Points = Path | tuple[FileRef, ...]  # a file or a folder of PNG images; or files that the daemon has already


@dataclass(frozen=True)
class NoiseOptions:
    """How to measure. What has no field in the form stays as the job used again had it."""

    mode: RoundingMode = RoundingMode.SR
    samples: int = 10
    seed: int = 0
    precision: int | None = None
    ranks: int = 1
    source: SourceSearch = SourceSearch.NONE
    timeout_s: float = 3600.0
    threads_per_rank: int | None = None
    layers: tuple[str, ...] = ()
    class_axis: int | None = None
    memory_budget_bytes: int | None = None
    format: str = "csv"


@dataclass(frozen=True)
class NoiseDraft:
    """Points come from files, or `draw` of them from the property's box; mean and std as typed."""

    network: Source | None = None
    points: Points | None = None
    property_source: Source | Ball | None = None
    draw: int = 0
    mean: str = ""
    std: str = ""
    options: NoiseOptions = NoiseOptions()

    @property
    def complete(self) -> bool:
        has_points = self.property_source is not None if self.draw else self.points is not None
        return self.network is not None and has_points

    @property
    def title(self) -> str:
        """Network, rounding and points, for the jobs table."""
        if not self.complete or self.network is None:
            return ""
        return f"{title_part(self.network)} · {self.options.mode.upper()} · {self._points_name()}"

    def _points_name(self) -> str:
        if self.draw:
            return f"{self.draw} drawn {'point' if self.draw == 1 else 'points'}"
        if isinstance(self.points, tuple):
            return self.points[0].name if len(self.points) == 1 else f"{len(self.points)} images"
        return self.points.name if self.points is not None else ""

    def job(self, resolve: Resolve) -> VariabilityJob:
        """The job, with each file turned into a reference. ValueError when a file is missing."""
        if self.network is None or not self.complete:
            raise ValueError("a job needs a network and points")
        given = self.property_source
        return VariabilityJob(
            network=resolve(self.network),
            inputs=() if self.draw else tuple(resolve(each) for each in point_sources(self.points)),
            property=None if given is None else property_source(given, resolve),
            draw=self.draw,
            mean=() if self.draw else decimals(self.mean),
            std=() if self.draw else decimals(self.std),
            **{each.name: getattr(self.options, each.name) for each in fields(NoiseOptions)},
        )

    def inspect_job(self, resolve: Resolve) -> InspectJob:
        """Reads network and property back, as before a proof."""
        return Draft(self.network, self.property_source).inspect_job(resolve)

    def command(self) -> str:
        """The shell line that does the same. ValueError when a file is missing."""
        job = self.job(named_only)
        assert self.network is not None
        subject = (
            self.property_source.center if isinstance(self.property_source, Ball) else self.property_source
        )
        return variability_command(
            job,
            source_path(self.network),
            None if self.draw else _points_path(self.points),
            None if subject is None else source_path(subject),
        )


def noise_draft_of(job: VariabilityJob) -> NoiseDraft:
    """The draft that would give this job again; its files are already with the daemon."""
    given = job.property
    chosen: Source | Ball | None = None
    if isinstance(given, PropertyFile):
        chosen = given.file
    elif isinstance(given, EpsilonBall):
        chosen = ball_of(given)
    return NoiseDraft(
        job.network,
        job.inputs or None,
        chosen,
        job.draw,
        ", ".join(job.mean),
        ", ".join(job.std),
        NoiseOptions(**{each.name: getattr(job, each.name) for each in fields(NoiseOptions)}),
    )


def point_sources(points: Points | None) -> tuple[Source, ...]:
    """The files themselves: of a folder its PNG images, by name."""
    if points is None:
        return ()
    if isinstance(points, tuple):
        return points
    return files.images_of(points) if points.is_dir() else (points,)


def points_problem(points: Points) -> str | None:
    """Why these cannot be the points; None where nothing speaks against it."""
    if isinstance(points, tuple):
        return None
    if points.is_dir():
        return None if files.images_of(points) else f"The folder {points.name} has no PNG images (.png)."
    found = files.problem_with(points)
    if found is None and files.kind_of(points) not in (files.Kind.CENTER, files.Kind.POINTS):
        found = f"{points.name} holds no points: give .npy, .npz, .png, or a folder of .png."
    return found


def normalisation_problem(draft: NoiseDraft) -> str | None:
    """What is wrong with mean and standard deviation as typed; None where nothing is, or where they play no part."""
    if draft.draw:
        return None
    for name, text in (("mean", draft.mean), ("standard deviation", draft.std)):
        wrong = next((part for part in decimals(text) if not DECIMAL.fullmatch(part)), None)
        if wrong is not None:
            return f"The {name} takes one number a channel, with commas between; “{wrong}” is none."
    if any(float(part) <= 0 for part in decimals(draft.std)):
        return "Every standard deviation must be more than 0."
    return None


def friendly(text: str) -> str:
    """A refusal of the command line without the dashes of its options."""
    return re.sub(r"--([a-z])", r"\1", text)


def _points_path(points: Points | None) -> str:
    """What --inputs names; of several images that the daemon kept, the folder that they would have to be in."""
    if isinstance(points, tuple):
        return points[0].name if len(points) == 1 else FOLDER_OF_KEPT_IMAGES
    return str(points)
