"""What the form holds before it is a job: files are paths still, or are with the daemon already. No Qt."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TypeGuard

from boundscope.command import command_line
from boundscope.protocol import (
    Arithmetic,
    Branching,
    Engine,
    EpsilonBall,
    FileRef,
    InspectJob,
    Method,
    Norm,
    Precision,
    PropertyFile,
    PropertySource,
    Sharding,
    VerifyJob,
)

Source = Path | FileRef
Resolve = Callable[[Source], FileRef]
PLAIN_NAMES = frozenset({"property", "prop", "spec", "model", "network", "net", "image", "input"})
DECIMAL = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?")


@dataclass(frozen=True)
class Ball:
    """An ε-ball as typed: decimal texts, empty where not given."""

    center: Source
    epsilon: str
    label: int = 0
    lower: str = ""
    upper: str = ""
    mean: str = ""
    std: str = ""
    norm: Norm = Norm.LINF


@dataclass(frozen=True)
class Options:
    """How to run. Chunk, budget and threads have no field in the form; they stay as the job used again had them."""

    method: Method = Method.CROWN
    engine: Engine = Engine.NATIVE
    sharding: Sharding = Sharding.NONE
    ranks: int = 1
    arithmetic: Arithmetic = Arithmetic.REAL
    precision: Precision = Precision.MIXED
    timeout_s: float = 300.0
    seed: int = 0
    chunk_rows: int | None = None
    memory_budget_bytes: int | None = None
    memory_budget_share: float | None = None
    threads_per_rank: int | None = None
    cross_check: bool = False
    branching: Branching = Branching.AUTO
    batch: int | None = None
    nodes: tuple[str, ...] = ()
    force_synchronous: bool = False


@dataclass(frozen=True)
class Draft:
    network: Source | None = None
    property_source: Source | Ball | None = None
    options: Options = Options()

    @property
    def complete(self) -> bool:
        return self.network is not None and self.property_source is not None

    @property
    def title(self) -> str:
        """The two files by name, for the jobs table."""
        if self.network is None or self.property_source is None:
            return ""
        if isinstance(self.property_source, Ball):
            what = f"ε = {self.property_source.epsilon} around {title_part(self.property_source.center)}"
        else:
            what = title_part(self.property_source)
        return f"{title_part(self.network)} · {what}"

    def job(self, resolve: Resolve) -> VerifyJob:
        """The job, with each file turned into a reference. ValueError when a file is missing."""
        if self.network is None or self.property_source is None:
            raise ValueError("a job needs a network and a property")
        return VerifyJob(
            network=resolve(self.network),
            property=property_source(self.property_source, resolve),
            **{each.name: getattr(self.options, each.name) for each in fields(Options)},
        )

    def inspect_job(self, resolve: Resolve) -> InspectJob:
        """Reads back what there is so far; an ε-ball only beside a network, which gives its shape."""
        ball_alone = isinstance(self.property_source, Ball) and self.network is None
        readable = (
            None
            if self.property_source is None or ball_alone
            else property_source(self.property_source, resolve)
        )
        return InspectJob(network=None if self.network is None else resolve(self.network), property=readable)

    def command(self) -> str:
        """The shell line that does the same. ValueError when a file is missing."""
        job = self.job(named_only)
        assert self.network is not None
        assert self.property_source is not None
        subject = (
            self.property_source.center if isinstance(self.property_source, Ball) else self.property_source
        )
        return command_line(job, source_path(self.network), source_path(subject))


def draft_of(job: VerifyJob) -> Draft:
    """The draft that would give this job again; its files are already with the daemon."""
    options = Options(**{each.name: getattr(job, each.name) for each in fields(Options)})
    if isinstance(job.property, PropertyFile):
        return Draft(job.network, job.property.file, options)
    return Draft(job.network, ball_of(job.property), options)


def ball_of(ball: EpsilonBall) -> Ball:
    """The ball as it would be typed."""
    return Ball(
        ball.center,
        ball.epsilon,
        ball.label,
        ball.lower or "",
        ball.upper or "",
        ", ".join(ball.mean),
        ", ".join(ball.std),
        ball.norm,
    )


def source_name(source: Source) -> str:
    """What people call the file; a name that says nothing is told apart by its folder."""
    return f"{source.parent.name}/{source.name}" if _says_nothing(source) else source.name


def title_part(source: Source) -> str:
    """The file in the title of a run: its folder where its own name says nothing."""
    return source.parent.name if _says_nothing(source) else source.name


def _says_nothing(source: Source) -> TypeGuard[Path]:
    return (
        isinstance(source, Path)
        and source.name.split(".")[0].lower() in PLAIN_NAMES
        and bool(source.parent.name)
    )


def source_path(source: Source) -> str:
    return str(source) if isinstance(source, Path) else source.name


def named_only(source: Source) -> FileRef:
    """A reference that only carries a name, for what never reaches a daemon."""
    return source if isinstance(source, FileRef) else FileRef(name=source.name, sha256="", size_bytes=0)


def ball_problem(ball: Ball) -> str | None:
    """What is wrong with the numbers as typed, in a sentence; None where nothing is."""
    if not DECIMAL.fullmatch(ball.epsilon.strip()):
        return f"ε must be a decimal number such as 0.01, not “{ball.epsilon}”."
    if ball.epsilon.strip().startswith("-"):
        return "ε must not be negative."
    if ball.norm is Norm.L0:
        if not ball.epsilon.strip().isdecimal():
            return f"With L0, ε is how many inputs may change: a whole number, not “{ball.epsilon}”."
        if not ball.lower.strip() and not ball.upper.strip():
            return "With L0, the clip range must be given: it is what a changed input may be."
    for name, text in (("lower clip", ball.lower), ("upper clip", ball.upper)):
        if text.strip() and not DECIMAL.fullmatch(text.strip()):
            return f"The {name} must be a decimal number or empty, not “{text}”."
    if bool(ball.lower.strip()) != bool(ball.upper.strip()):
        return "The clip range takes both ends, or neither."
    if ball.lower.strip() and float(ball.lower) > float(ball.upper):
        return f"The clip range is empty: {ball.lower} is above {ball.upper}."
    for name, text in (("mean", ball.mean), ("standard deviation", ball.std)):
        wrong = next((part for part in decimals(text) if not DECIMAL.fullmatch(part)), None)
        if wrong is not None:
            return f"The {name} takes one number a channel, with commas between; “{wrong}” is none."
    mean, std = decimals(ball.mean), decimals(ball.std)
    if mean and std and len(mean) != len(std):
        return f"Mean has {len(mean)} numbers and standard deviation {len(std)}: give one a channel in both."
    if any(float(part) <= 0 for part in std):
        return "Every standard deviation must be more than 0."
    return None


def decimals(text: str) -> tuple[str, ...]:
    """The numbers of a list as typed, with commas, semicolons or spaces between."""
    return tuple(part for part in re.split(r"[,;\s]+", text.strip()) if part)


def property_source(source: Source | Ball, resolve: Resolve) -> PropertySource:
    """The property of a job, with its file turned into a reference."""
    if not isinstance(source, Ball):
        return PropertyFile(file=resolve(source))
    return EpsilonBall(
        center=resolve(source.center),
        epsilon=source.epsilon.strip(),
        label=source.label,
        lower=source.lower.strip() or None,
        upper=source.upper.strip() or None,
        mean=decimals(source.mean),
        std=decimals(source.std),
        norm=source.norm,
    )
