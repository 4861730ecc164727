"""Where the files of a job lie for the ranks that run it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from boundscope.protocol import Instance, Tally


@dataclass(frozen=True)
class JobFiles:
    """Paths of the network and of the property file (for an ε-ball: of its centre); where a complete search keeps its
    state, and goes on from it where it is there (None: it keeps none)."""

    network: Path
    property: Path
    checkpoint: Path | None = None


@dataclass(frozen=True)
class InstancesFiles:
    """Paths of a benchmark's networks and properties, in the order of its job. The run goes on with the instance
    `first`, after those that `tally` counts."""

    networks: tuple[Path, ...]
    properties: tuple[Path, ...]
    first: int = 0
    tally: Tally = field(default_factory=Tally)

    def of(self, instance: Instance) -> JobFiles:
        return JobFiles(network=self.networks[instance.network], property=self.properties[instance.property])


@dataclass(frozen=True)
class VariabilityFiles:
    """The same for a variability job, whose property may be left out; the files of its points, and the folder that its
    tables and moments go to, which exists."""

    network: Path
    results: Path
    inputs: tuple[Path, ...] = ()
    property: Path | None = None
