"""One family of errors. Every message says what was wrong, where, what was expected, and what to do."""

from __future__ import annotations


class BoundscopeError(Exception):
    """Base of everything that Boundscope raises on purpose; its text is shown to people as it is."""


class UsageError(BoundscopeError):
    """Options that do not exist, do not go together, or are not available yet (exit status 2)."""


class NetworkError(BoundscopeError):
    """An ONNX file that cannot be read, or that does not mean what ONNX Runtime says it means."""


class DynamicShapeError(NetworkError):
    """Shapes inside the network depend on the values of its input: it can be run, but not bounded."""


class UnsupportedOperatorError(NetworkError):
    """An operator, with its node, that an engine has no rule for."""


class PropertyError(BoundscopeError):
    """A property file or an ε-ball that cannot be read or does not fit the network; names file and line."""


class BoundError(BoundscopeError):
    """Bounds that are not finite or that cross; names the tensor."""


class VariabilityError(BoundscopeError):
    """Samples of stochastic inference that are too few, do not fit together or cannot be read; names the layer."""


class OutOfMemoryError(BoundscopeError):
    """The memory budget or the device was exhausted; the text holds the breakdown by category.

    `rank` is whose memory it was, where all ranks of a job raise what one of them met; `final` that this rank has given
    up the whole job, so that it is of no use to try again with less.
    """

    rank: int | None = None
    final = False

    def __str__(self) -> str:
        text = super().__str__()
        return text if self.rank is None else f"rank {self.rank}: {text}"


class DeadlineError(BoundscopeError):
    """The time limit of the job passed."""


class CancelledError(BoundscopeError):
    """Somebody cancelled the job."""


class RankFailedError(BoundscopeError):
    """A rank died, ran out of memory or never joined."""


class DaemonError(BoundscopeError):
    """The daemon cannot be reached, refuses the key or speaks another protocol."""


class StoreError(BoundscopeError):
    """The daemon's store cannot be opened or is inconsistent."""


class CheckpointError(BoundscopeError):
    """A search's state that cannot be written or read, is in use, or belongs to another job; names the file."""
