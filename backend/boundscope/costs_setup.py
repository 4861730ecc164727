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
STEPS_TAKEN = 0.65  # of them, for a search ends where it gains little; `worst` takes all

EXPECTED_SHARE, WORST_SHARE = 0.4, 1.0
SLOPE_COPIES = 5  # θ, its best, two moments, and its gradient, of all nodes at once at most
STEP_PRODUCTS = 3  # of a step of a search, in passes: forward, back, and one for slopes and their moments
ATTACK_PASSES = 15_000  # evaluations of the network by the attack, whose time is limited, too
ATTACK_S, ATTACK_SHARE = 5.0, 0.2
OPTIMISED = (Method.ALPHA_CROWN, Method.COMPLETE)
REFINED = (Method.CROWN, *OPTIMISED)
TENSOR_PARALLEL = (Sharding.TP, Sharding.TP_EXACT)
DOMAIN_BYTES = (
    24  # of an element of a relaxed tensor in a domain: its interval in float64, slope and β in float32
)
# Processor time, as tests/benchmarks/planning.py found it on a server's CPU: of one operation on tensors, however
# small; of any bounds; of ranks that work together, to share out weights and to agree.
CALL_S, START_S, TOGETHER_S = 8.8e-5, 0.001, 0.018
REACHED = 0.77  # of the speed of a product of matrices in a cache, by products of rows with tiles of weights
# A pass of intervals: how often a matrix is fetched, products with it, bytes that an element of it moves, operations.
INTERVAL_READS, INTERVAL_PRODUCTS, INTERVAL_BYTES, INTERVAL_CALLS = 2, 5, 16, 30
# Operations on tensors of a chunk of rows at a node, and of a search in each of STEP_PRODUCTS.
ROW_CALLS, SEARCH_CALLS = 15, 2
MARGIN_SEARCHES = 2  # slopes of the margins alone, and again once all layers have theirs
# Boxes bounded on the way to a method's bounds: the cheaper methods come first.
CONTEXTS = {Method.IBP: 1, Method.CROWN_IBP: 2, Method.CROWN: 2, Method.ALPHA_CROWN: 3, Method.COMPLETE: 3}
TOUCHES = 10  # how often a coefficient is read or written on its way through a node, beside products
WRITING_TOUCHES = 12  # a rank's part of the weights, put into memory that is new: the system clears its pages
SHARES_TRIED = (
    0.0,
    0.25,
    EXPECTED_SHARE,
    0.75,
    WORST_SHARE,
)  # parts of weights are kept only where neurons are fixed
# A rank's part of a CPU machine: bytes a second of memory, of copies of weights from shared memory, which no cache has,
# and of gathers over gloo while other ranks compute.
CPU_MEMORY_BYTES_PER_S, CPU_COPY_BYTES_PER_S, CPU_GATHER_BYTES_PER_S = 14.5e9, 2.1e9, 250e6


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
    """What computes: operations a second of all its `cores` (1: they are not told apart, as of a GPU), bytes a second
    that a rank can receive and that its memory moves, and how many ranks share all of it."""

    single_flops: float
    double_flops: float
    bytes_per_s: float = CPU_GATHER_BYTES_PER_S
    memory_bytes_per_s: float = CPU_MEMORY_BYTES_PER_S
    sharers: int = 1
    cores: int = 1


@dataclass
class Prediction:
    """Of the rank that needs most. `by_category` are the ledger's bytes at its peak; `received_bytes` what it gathers
    and reduces, `read_bytes` what it copies from memory that ranks of one machine share; products of float32 and of
    float64 in operations; `touched_bytes` of coefficients and of weights read and written beside them; `domain_bytes`
    of one domain of a search."""

    by_category: dict[str, int] = field(default_factory=lambda: dict.fromkeys(MEMORY_CATEGORIES, 0))
    received_bytes: float = 0.0
    read_bytes: float = 0.0
    single: float = 0.0
    double: float = 0.0
    touched_bytes: float = 0.0
    calls: float = 0.0
    attack: float = 0.0
    timeout_s: float = math.inf
    domain_bytes: int = 0
    together: bool = False  # whether several ranks work on it

    @property
    def peak_bytes(self) -> int:
        return sum(self.by_category.values())

    def processor_s(self, device: Device) -> float:
        """Processor time of a rank for its bounds, which is their wall time on a core of its own: without the start of
        processes, reading and the attack; on CPUs, where what is received takes that time, too. Of a search, for the
        bounds at its root only."""
        return self._busy_s(device, 1) + self.received_bytes / device.bytes_per_s

    def seconds(self, device: Device) -> float:
        """Wall time of bounding, without the start of processes: ranks share the cores, and have all of them in
        threads; gathers are hidden behind products as far as they fit. Of a search, of the bounds at its root only."""
        sharers = max(1, device.sharers)
        threads = max(1, device.cores // sharers)
        busy_s = self._busy_s(device, threads) * max(1.0, sharers * threads / device.cores)
        gathers_s = self.received_bytes / device.bytes_per_s * sharers
        limit_s = min(ATTACK_S, ATTACK_SHARE * self.timeout_s)
        attack_s = min(limit_s, self.attack / device.single_flops)  # rank 0 alone, while the others wait
        return attack_s + max(busy_s, gathers_s)

    def _busy_s(self, device: Device, threads: int) -> float:
        """Time of products, which `threads` share, and of the rest, which one does."""
        own = threads / device.cores
        products_s = self.single / (REACHED * device.single_flops * own) + self.double / (
            device.double_flops * own
        )
        moved_s = self.touched_bytes / device.memory_bytes_per_s + self.read_bytes / CPU_COPY_BYTES_PER_S
        return START_S + (TOGETHER_S if self.together else 0.0) + products_s + moved_s + self.calls * CALL_S

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
