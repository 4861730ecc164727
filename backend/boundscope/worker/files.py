"""Where the files of a job lie for the ranks that run it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class JobFiles:
    """Paths of the network and of the property file (for an ε-ball: of its centre)."""

    network: Path
    property: Path


@dataclass(frozen=True)
class VariabilityFiles:
    """The same for a variability job, whose property may be left out; the files of its points, and the folder that its
    tables and moments go to, which exists."""

    network: Path
    results: Path
    inputs: tuple[Path, ...] = ()
    property: Path | None = None
