"""What the cost model is asked, and what it answers: a way to bound a network, a device, a prediction."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from boundscope.protocol import MEMORY_CATEGORIES, Method, NetworkCosts, Precision, Sharding

# The engine's own numbers; tests/test_costs.py holds them to it.
CHUNK_MULTIPLE, CHUNK_DEFAULT, CHUNK_LARGEST, CHUNK_ELEMENTS = 16, 256, 1024, 1 << 20
CHUNK_SEARCHED = 256
LIVE_COPIES = 5
LARGE_ELEMENTS, WHOLE_BELOW, FEW_ROWS = 1 << 18, 4096, 64
TILE_ROWS, TILE_COLUMNS, LONGEST_SUM = 512, 256, 768
TILE_BYTES, HEADER_BYTES = (1 << 19) + (1 << 12), 64
ROW_UNIT, LEAST_PART = 16, 64
ROOM_FOR_PARTS = 4
DROPPED_FROM = 0.9  # rows leave out fixed neurons where those that move are at most this part
ALPHA_STEPS = 20

EXPECTED_SHARE, WORST_SHARE = 0.4, 1.0
SLOPE_COPIES = 5  # θ, its best, two moments, and its gradient
STEP_PRODUCTS = 3  # of a step of a search, in passes: forward, and backward twice
ATTACK_PASSES = 15_000  # evaluations of the network by the attack, whose time is limited, too
ATTACK_S, ATTACK_SHARE, START_S = 5.0, 0.2, 0.2
OPTIMISED = (Method.ALPHA_CROWN, Method.COMPLETE)
REFINED = (Method.CROWN, *OPTIMISED)
TENSOR_PARALLEL = (Sharding.TP, Sharding.TP_EXACT)
DOMAIN_BYTES = (
    24  # of an element of a relaxed tensor in a domain: its interval in float64, slope and β in float32
)
CALL_S = 3e-5  # of one operation on tensors, however small
TOUCHES = 10  # how often a coefficient is read or written on its way through a node, beside products
SHARES_TRIED = (
    0.0,
    0.25,
    EXPECTED_SHARE,
    0.75,
    WORST_SHARE,
)  # parts of weights are kept only where neurons are fixed
# A rank's part of a CPU machine: bytes a second of memory, and of gathers over gloo while other ranks compute.
CPU_MEMORY_BYTES_PER_S, CPU_GATHER_BYTES_PER_S = 8e9, 250e6


@dataclass(frozen=True)
class Setup:
    """How a network is to be bounded; `constraints` are the inequalities of the property's clauses. `shares_memory`:
    all ranks are processes of one machine, and compute on its CPUs."""

    method: Method = Method.CROWN
    sharding: Sharding = Sharding.NONE
    ranks: int = 1
    constraints: int = 16
    cases: int = 1
    chunk_rows: int | None = None
    budget_bytes: int | None = None
    precision: Precision = Precision.MIXED
    timeout_s: float = 300.0
    shares_memory: bool = False

    @property
    def splits_rows(self) -> bool:
        return self.sharding is Sharding.ROWS and self.ranks > 1

    @property
    def gathers(self) -> bool:
        return self.sharding in (Sharding.ROWS, Sharding.FSDP) and self.ranks > 1

    @property
    def splits_layers(self) -> bool:
        return self.sharding in TENSOR_PARALLEL and self.ranks > 1


@dataclass(frozen=True)
class Device:
    """What computes: operations a second of a rank that has it alone, bytes a second that a rank can receive and that
    its memory moves, and how many ranks share all of it."""

    single_flops: float
    double_flops: float
    bytes_per_s: float = CPU_GATHER_BYTES_PER_S
    memory_bytes_per_s: float = CPU_MEMORY_BYTES_PER_S
    sharers: int = 1


@dataclass
class Prediction:
    """Of the rank that needs most. `by_category` are the ledger's bytes at its peak; `received_bytes` what it gathers
    and reduces; products of float32 and of float64 in operations; `touched_bytes` of coefficients read and written
    beside them; `domain_bytes` of one domain of a search."""

    by_category: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MEMORY_CATEGORIES, 0))
    received_bytes: float = 0.0
    single: float = 0.0
    double: float = 0.0
    touched_bytes: float = 0.0
    calls: float = 0.0
    attack: float = 0.0
    timeout_s: float = math.inf
    domain_bytes: int = 0

    @property
    def peak_bytes(self) -> int:
        return sum(self.by_category.values())

    def seconds(self, device: Device) -> float:
        """Time of bounding, without the start of processes; gathers are hidden behind products as far as they fit. Of
        a search, of the bounds at its root only."""
        sharers = max(1, device.sharers)
        products_s = self.single / device.single_flops + self.double / device.double_flops
        products_s += self.touched_bytes / device.memory_bytes_per_s
        gathers_s = self.received_bytes / device.bytes_per_s
        limit_s = min(ATTACK_S, ATTACK_SHARE * self.timeout_s)
        attack_s = min(limit_s, self.attack / device.single_flops)  # rank 0 alone, while the others wait
        return START_S + attack_s + max(products_s, gathers_s) * sharers + self.calls * CALL_S

    def meet(self, moment: dict[str, float]) -> None:
        """Take a moment in, where more is held in it than at any before."""
        if sum(moment.values()) > self.peak_bytes:
            self.by_category = {name: round(moment.get(name, 0.0)) for name in MEMORY_CATEGORIES}


def chunk_size(
    costs: NetworkCosts, setup: Setup, count: int, held_bytes: float = 0.0, *, searched: bool = False
) -> int:
    """Rows a chunk, as the engine takes them; `searched` where slopes are."""
    if setup.chunk_rows is not None:
        return min(setup.chunk_rows, up(count, CHUNK_MULTIPLE))
    widest = max((tensor.elements for tensor in costs.tensors), default=1)
    cheap = CHUNK_ELEMENTS // widest // CHUNK_MULTIPLE * CHUNK_MULTIPLE
    size = min(max(CHUNK_DEFAULT, min(CHUNK_LARGEST, cheap)), up(count, CHUNK_MULTIPLE))
    if setup.budget_bytes is not None:
        free = max(0, int(setup.budget_bytes - held_bytes)) // 2
        size = min(size, free // (8 * LIVE_COPIES * widest) // CHUNK_MULTIPLE * CHUNK_MULTIPLE)
    size = max(size, CHUNK_MULTIPLE)
    if searched:
        chunks = -(-count // min(size, CHUNK_SEARCHED))
        return up(-(-count // chunks), CHUNK_MULTIPLE)
    if setup.gathers and setup.splits_rows:
        size = max(size, min(2 * size, CHUNK_DEFAULT * setup.ranks))
    return size


def up(value: int, unit: int) -> int:
    return -(-value // unit) * unit


def part_of(rows: int, setup: Setup) -> int:
    if not setup.splits_rows:
        return rows
    return min(rows, max(LEAST_PART, up(-(-rows // setup.ranks), ROW_UNIT)))


def device_of_ranks(device: Device, setup: Setup, ranks_per_machine: int | None = None) -> Device:
    """A CPU as its ranks share it: all of them, or so many on each of several machines."""
    return replace(device, sharers=min(setup.ranks, ranks_per_machine or setup.ranks))
