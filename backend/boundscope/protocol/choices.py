"""What people choose, and the words of a job's life."""

from __future__ import annotations

import enum


class Method(enum.StrEnum):
    """How bounds are found; `label` is how people write it."""

    IBP = "ibp"
    CROWN_IBP = "crown-ibp"
    CROWN = "crown"
    ALPHA_CROWN = "alpha-crown"
    COMPLETE = "complete"

    @property
    def label(self) -> str:
        if self is Method.COMPLETE:
            return "Complete"
        return self.value.upper().replace("ALPHA", "α")


class Engine(enum.StrEnum):
    NATIVE = "native"
    AUTO_LIRPA = "auto_lirpa"


class Sharding(enum.StrEnum):
    NONE = "none"
    ROWS = "rows"
    FSDP = "fsdp"
    TP = "tp"
    TP_EXACT = "tp-exact"


class Arithmetic(enum.StrEnum):
    """The arithmetic that a verdict speaks of; `label` is how reports write it."""

    REAL = "real"
    FLOAT32 = "float32"

    @property
    def label(self) -> str:
        return "real" if self is Arithmetic.REAL else "float32 (any order)"


class Norm(enum.StrEnum):
    """How far an input lies from a ball's centre: its largest change (linf), the square root of the sum of squared
    changes (l2), the sum of changes (l1), or how many inputs differ (l0)."""

    LINF = "linf"
    L2 = "l2"
    L1 = "l1"
    L0 = "l0"

    @property
    def label(self) -> str:
        return "L∞" if self is Norm.LINF else self.value.upper()


class Branching(enum.StrEnum):
    """What branch and bound splits: the input box, the pieces of activations, or whichever suits the network."""

    AUTO = "auto"
    INPUT = "input"
    ACTIVATION = "activation"


class Precision(enum.StrEnum):
    """Of the engine's own computation; its rounding is counted either way.

    `mixed` bounds hidden layers in float32 and margins in float64.
    """

    MIXED = "mixed"
    FLOAT64 = "float64"


class RoundingMode(enum.StrEnum):
    """How every floating-point operation of a sample is rounded; see `boundscope_prism.rounding`."""

    SR = "sr"
    UD = "ud"
    RR = "rr"

    @property
    def label(self) -> str:
        return {"sr": "stochastic rounding", "ud": "up-down rounding", "rr": "random rounding"}[self.value]


class SourceSearch(enum.StrEnum):
    """How the layers that noise comes from are looked for: not at all; each layer perturbed alone; all layers but one;
    or halves of the network, as long as a half causes a good part of the noise."""

    NONE = "none"
    ONE = "one"
    ALL_BUT_ONE = "all-but-one"
    BISECT = "bisect"


class Verdict(enum.StrEnum):
    VERIFIED = "verified"
    VIOLATED = "violated"
    UNKNOWN = "unknown"
    TIMEOUT = "timeout"
    OUT_OF_MEMORY = "out_of_memory"
    ERROR = "error"

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self]


EXIT_CODES: dict[str, int] = {
    "verified": 0,
    "error": 1,
    "violated": 10,
    "unknown": 20,
    "timeout": 21,
    "out_of_memory": 22,
}
EXIT_USAGE = 2


class JobState(enum.StrEnum):
    """queued → starting → running (→ pausing → paused → running) → (cancelling) → one of the ended states."""

    QUEUED = "queued"
    STARTING = "starting"
    RUNNING = "running"
    PAUSING = "pausing"  # asked to pause; some rank is still inside a step
    PAUSED = "paused"  # no rank computes; memory is kept, and the time limit does not run
    CANCELLING = "cancelling"
    FINISHED = "finished"  # the job gave a result
    FAILED = "failed"  # the job ended without a result; `JobInfo.cause` says why
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"  # the daemon went away while the job ran

    @property
    def ended(self) -> bool:
        return self in ENDED_STATES

    @property
    def held(self) -> bool:
        """Whether the job pauses, or is about to."""
        return self in (JobState.PAUSING, JobState.PAUSED)

    @property
    def can_hold(self) -> bool:
        """Whether the job can be paused, or is."""
        return self.held or self in (JobState.STARTING, JobState.RUNNING)


ENDED_STATES = frozenset({JobState.FINISHED, JobState.FAILED, JobState.CANCELLED, JobState.INTERRUPTED})
