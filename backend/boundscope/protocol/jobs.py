"""Job descriptions."""

from __future__ import annotations

import msgspec

from boundscope.protocol.base import Struct
from boundscope.protocol.choices import (
    Arithmetic,
    Branching,
    Engine,
    Method,
    Norm,
    Precision,
    RoundingMode,
    Sharding,
    SourceSearch,
)


class FileRef(Struct):
    """A file by content. `name` is what people called it; companions are ONNX external data, by relative name."""

    name: str
    sha256: str
    size_bytes: int
    companions: tuple[FileRef, ...] = ()


class PropertyFile(Struct, tag="file"):
    """A VNN-LIB file, 1.0 or 2.0, plain or gzipped."""

    file: FileRef


class EpsilonBall(Struct, tag="ball"):
    """All inputs within `epsilon` (decimal text) of `center` in the norm, clipped to [lower, upper].

    Violated where some output other than `label` is at least as large as output `label`.
    `center` is a .npy of the input's element count, or a PNG whose pixels are divided by 255, then
    (pixel - mean) / std per channel where these are given. ε and the clip range count before mean and std.
    With l0, `epsilon` is the number of inputs that may take any value of the clip range, which must be given.
    """

    center: FileRef
    epsilon: str
    label: int
    lower: str | None = None
    upper: str | None = None
    mean: tuple[str, ...] = ()
    std: tuple[str, ...] = ()
    norm: Norm = Norm.LINF


PropertySource = PropertyFile | EpsilonBall


class VerifyJob(Struct, tag="verify"):
    """Bound one network under one property and give a verdict."""

    network: FileRef
    property: PropertySource
    method: Method = Method.CROWN
    engine: Engine = Engine.NATIVE
    sharding: Sharding = Sharding.NONE
    ranks: int = 1
    arithmetic: Arithmetic = Arithmetic.REAL
    precision: Precision = Precision.MIXED
    timeout_s: float = 300.0
    seed: int = 0
    chunk_rows: int | None = None  # rows carried backward together, a multiple of 16; None: from the budget
    memory_budget_bytes: int | None = None  # per rank; None: by the share
    # Of the device's memory, above 0 to 1; ranks that share a machine without GPUs share it evenly. None, with no bytes
    # given either: half of what is free at the start.
    memory_budget_share: float | None = None
    threads_per_rank: int | None = None  # None: cores // ranks
    # Hosts, as ssh knows them, each of which runs ranks / len(nodes) of the ranks; none: this machine runs all.
    nodes: tuple[str, ...] = ()
    cross_check: bool = False  # also run auto_LiRPA on every case and compare
    branching: Branching = Branching.AUTO  # of the method complete
    batch: int | None = None  # domains bounded together; None: from the budget
    # Branch and bound takes batches of a size of the job's alone and prunes between them only, so that runs with
    # different numbers of ranks do identical work.
    force_synchronous: bool = False


class VariabilityJob(Struct, tag="variability"):
    """Run a network repeatedly under stochastic arithmetic and measure what its rounding is worth.

    Points come from `inputs` (one .npy, one .npz, or PNG files, whose pixels are divided by 255 and then normalised by
    `mean` and `std`), or `draw` of them from the boxes of `property`. With a property, the deviations observed are
    compared with the bounds proven for the same points, and shown beside the widths proven over its boxes.
    """

    network: FileRef
    inputs: tuple[FileRef, ...] = ()
    property: PropertySource | None = None
    draw: int = 0
    mode: RoundingMode = RoundingMode.SR
    samples: int = 10
    seed: int = 0
    precision: int | None = None  # significand bits, the hidden one included; None: the network's own
    ranks: int = 1
    threads_per_rank: int | None = None  # None: cores // ranks
    timeout_s: float = 3600.0
    layers: tuple[str, ...] = ()  # patterns of the layers watched, as in a shell; none: all
    class_axis: int | None = None  # of outputs [points, …]: where a decision has its classes; None: the first
    source: SourceSearch = SourceSearch.NONE
    mean: tuple[str, ...] = ()
    std: tuple[str, ...] = ()
    memory_budget_bytes: int | None = None  # per rank; None: half of what is free at the start
    format: str = "csv"  # of the tables: "csv" or "parquet"


class Instance(Struct):
    """One line of a benchmark: places in its job's networks and properties, and its time limit."""

    network: int
    property: int
    timeout_s: float


class InstancesJob(Struct, tag="instances"):
    """Verify many instances, one after the other, in one process (of so many ranks) that stays warm.

    `properties` are VNN-LIB files. `verify` says how each instance is verified; its network, property and time limit
    stand for the instance's own.
    """

    networks: tuple[FileRef, ...]
    properties: tuple[FileRef, ...]
    instances: tuple[Instance, ...]
    verify: VerifyJob
    name: str = ""  # what people call the benchmark

    def verify_job(self, number: int) -> VerifyJob:
        """The job of one instance; numbers count from 0."""
        instance = self.instances[number]
        return msgspec.structs.replace(
            self.verify,
            network=self.networks[instance.network],
            property=PropertyFile(file=self.properties[instance.property]),
            timeout_s=instance.timeout_s,
        )

    @property
    def ranks(self) -> int:
        return self.verify.ranks

    @property
    def threads_per_rank(self) -> int | None:
        return self.verify.threads_per_rank

    @property
    def timeout_s(self) -> float:
        """The longest time limit of an instance."""
        return max((instance.timeout_s for instance in self.instances), default=0.0)


class InspectJob(Struct, tag="inspect"):
    """Read a network and/or a property back, without running anything. Emits the summaries, then ends."""

    network: FileRef | None = None
    property: PropertySource | None = None


Job = VerifyJob | VariabilityJob | InstancesJob | InspectJob
