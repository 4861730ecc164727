"""The cost model: the engine's own numbers, memory within 25 % of what the ledger measures, and how it scales."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnxruntime
import pytest

from boundscope import costs, costs_setup
from boundscope.bounds import alpha, chunks, context
from boundscope.bounds.operators import linear
from boundscope.costs import Device, Setup, predict, worst
from boundscope.costs_setup import ATTACK_S
from boundscope.daemon.jobspec import KINDS, Kind
from boundscope.network import load_network
from boundscope.protocol import Method, NetworkCosts, PropertyFile, Sharding, VerifyJob, VerifyResult
from boundscope.sharding import frames, matrices, ranks, weights
from boundscope.worker.costs import machine_costs, network_costs
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from daemon.support import environment
from support import recorded
from support.jobs import ref, verify
from support.models import box_property, mlp

WITHIN = 0.25
DEVICE = Device(1e11, 5e10)


def costs_of(path: Path) -> NetworkCosts:
    return network_costs(load_network(path))


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> NetworkCosts:
    return costs_of(mlp(tmp_path_factory.mktemp("large") / "mlp.onnx", [784, 2048, 2048, 2048, 10]))


def test_the_model_has_the_numbers_of_the_engine() -> None:
    """What the engine takes for chunks, tiles and frames is what the model counts with."""
    pairs = (
        (costs_setup.CHUNK_SEARCHED, chunks.CHUNK_SEARCHED),
        (costs_setup.CHUNK_MULTIPLE, chunks.CHUNK_MULTIPLE),
        (costs_setup.CHUNK_DEFAULT, chunks.CHUNK_DEFAULT),
        (costs_setup.CHUNK_LARGEST, chunks.CHUNK_LARGEST),
        (costs_setup.CHUNK_ELEMENTS, chunks.CHUNK_ELEMENTS),
        (costs_setup.LIVE_COPIES, chunks.LIVE_COPIES),
        (costs_setup.LARGE_ELEMENTS, weights.LARGE_ELEMENTS),
        (costs_setup.FEW_ROWS, linear.FEW_ROWS),
        (costs_setup.TILE_ROWS, matrices.TILE_ROWS),
        (costs_setup.TILE_COLUMNS, matrices.TILE_COLUMNS),
        (costs_setup.LONGEST_SUM, linear.LONGEST_SUM),
        (costs_setup.TILE_BYTES, ranks.TILE_BYTES),
        (costs_setup.HEADER_BYTES, frames.HEADER_BYTES),
        (costs_setup.ROW_UNIT, ranks.ROW_UNIT),
        (costs_setup.LEAST_PART, ranks.LEAST_PART),
        (costs_setup.ROOM_FOR_PARTS, context.ROOM_FOR_PARTS),
        (costs_setup.DROPPED_FROM, 1.0 - context.FIXED_PART),
        (costs_setup.ALPHA_STEPS, alpha.AlphaSettings().steps),
    )
    assert [mine for mine, _ in pairs] == [own for _, own in pairs]


def undecided(network: Path, folder: Path, radius: float = 0.01) -> Path:
    """A property that intervals do not decide: an output would have to rise by 0.3."""
    session = onnxruntime.InferenceSession(str(network))
    shape = session.get_inputs()[0].shape
    centre = np.random.default_rng(0).random(shape)
    (outputs,) = session.run(None, {"x": centre.astype(np.float32)})
    clauses = " ".join(f"(and (>= Y_{i} {float(y) + 0.3!r}))" for i, y in enumerate(outputs[0]))
    ends = ((centre + sign * radius).flatten().tolist() for sign in (-1, 1))
    prop = folder / "p.vnnlib"
    prop.write_text(box_property(*ends, outputs.size, f"(assert (or {clauses}))"))
    return prop


def measured(network: Path, folder: Path, method: Method, radius: float = 0.01) -> VerifyResult:
    return verify(network, undecided(network, folder, radius), method=method)


@pytest.mark.parametrize(
    ("widths", "method"),
    [
        ([64, 512, 512, 10], Method.IBP),
        ([784, 512, 512, 512, 10], Method.CROWN),
        ([784, 600, 600, 10], Method.CROWN),
    ],
)
def test_memory_is_within_a_quarter_of_the_ledger(tmp_path: Path, widths: list[int], method: Method) -> None:
    network = mlp(tmp_path / "n.onnx", widths)
    result = measured(network, tmp_path, method)
    found = predict(costs_of(network), Setup(method=method, constraints=widths[-1]))
    ratio = found.peak_bytes / result.peak_bytes[0].ledger_peak_bytes
    assert abs(ratio - 1.0) <= WITHIN


@pytest.mark.parametrize("entry", ["run", "run_apart"])
def test_what_ranks_fetch_is_within_a_quarter(
    tmp_path: Path, entry: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Copied from memory that they share, or received from each other."""
    network = mlp(tmp_path / "n.onnx", [784, 600, 600, 10])
    prop = undecided(network, tmp_path)
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        method=Method.CROWN,
        sharding=Sharding.ROWS,
        ranks=2,
    )
    monkeypatch.setenv("PYTHONPATH", environment(tmp_path)["PYTHONPATH"])
    monkeypatch.setenv(recorded.FOLDER, str(tmp_path))
    monkeypatch.setenv(recorded.NO_ATTACK, "1")
    kinds = {**KINDS, "verify": Kind("boundscope.worker.launch", f"support.recorded:{entry}")}
    run_local(job, JobFiles(network, prop), lambda rank, event: None, kinds=kinds)
    told = [recorded.spent(tmp_path, rank) for rank in range(2)]
    setup = Setup(sharding=Sharding.ROWS, ranks=2, constraints=10, shares_memory=entry == "run")
    found = predict(costs_of(network), setup)
    if entry == "run":
        assert found.read_bytes == pytest.approx(max(one.read_bytes for one in told), rel=WITHIN)
        assert all(one.received_bytes < 1 << 20 for one in told)
    else:
        assert found.received_bytes == pytest.approx(max(one.received_bytes for one in told), rel=WITHIN)
        assert found.read_bytes == 0 == max(one.read_bytes for one in told)


def test_ranks_share_cores_and_have_them_all_in_threads(large: NetworkCosts) -> None:
    """Processor time is of one rank; wall time is that time on a core, more where ranks wait for one, and less where
    one rank has several."""
    device = Device(1e11, 5e10, cores=2)
    one, two, four = (
        predict(large, Setup(sharding=Sharding.ROWS, ranks=n, shares_memory=True)) for n in (1, 2, 4)
    )
    wall_s = [
        found.seconds(replace(device, sharers=n)) - min(ATTACK_S, found.attack / device.single_flops)
        for n, found in ((1, one), (2, two), (4, four))
    ]
    assert one.processor_s(device) / 2 < wall_s[0] < one.processor_s(device)
    assert wall_s[1] == pytest.approx(two.processor_s(device), rel=0.01)
    assert wall_s[2] == pytest.approx(2 * four.processor_s(device), rel=0.01)
    assert four.processor_s(device) < two.processor_s(device) < one.processor_s(device)


@pytest.mark.parametrize("method", [Method.IBP, Method.CROWN, Method.ALPHA_CROWN])
@pytest.mark.parametrize("sharding", [Sharding.ROWS, Sharding.FSDP, Sharding.TP])
def test_more_ranks_never_need_more_memory_each(
    large: NetworkCosts, method: Method, sharding: Sharding
) -> None:
    peaks = [
        predict(large, Setup(method=method, sharding=sharding, ranks=n)).peak_bytes for n in (2, 4, 8, 64)
    ]
    assert peaks == sorted(peaks, reverse=True)
    assert peaks[-1] < peaks[0]


def test_rows_share_products_and_fsdp_repeats_them(large: NetworkCosts) -> None:
    alone, rows, fsdp = (
        predict(large, Setup(sharding=sharding, ranks=n))
        for sharding, n in ((Sharding.NONE, 1), (Sharding.ROWS, 4), (Sharding.FSDP, 4))
    )
    assert rows.single == pytest.approx(alone.single / 4, rel=0.1)
    assert fsdp.single == pytest.approx(alone.single)
    assert alone.received_bytes == 0
    assert rows.received_bytes > 0


def test_the_worst_is_never_better_than_what_is_expected(large: NetworkCosts) -> None:
    for sharding, count in ((Sharding.NONE, 1), (Sharding.ROWS, 4), (Sharding.TP_EXACT, 4)):
        for method in (Method.IBP, Method.CROWN, Method.ALPHA_CROWN, Method.COMPLETE):
            setup = Setup(method=method, sharding=sharding, ranks=count)
            expected, most = predict(large, setup), worst(large, setup)
            assert most.peak_bytes >= expected.peak_bytes
            assert most.seconds(DEVICE) >= expected.seconds(DEVICE)


def test_a_small_budget_makes_small_chunks(large: NetworkCosts) -> None:
    """Rows are what a budget takes away from; weights stay."""
    free, tight = (predict(large, Setup(budget_bytes=budget)) for budget in (None, 45 << 20))
    assert tight.by_category["rows"] < free.by_category["rows"]
    assert tight.peak_bytes < free.peak_bytes


def test_a_faster_device_takes_less_time(large: NetworkCosts) -> None:
    found = predict(large, Setup(method=Method.ALPHA_CROWN, sharding=Sharding.ROWS, ranks=8))
    slow = found.seconds(Device(1e10, 5e9, sharers=8))
    fast = found.seconds(Device(6e13, 3e13, bytes_per_s=25e9, memory_bytes_per_s=2e12))
    assert fast < slow


def test_a_search_tells_the_bytes_of_a_domain(large: NetworkCosts) -> None:
    found = predict(large, Setup(method=Method.COMPLETE))
    assert found.domain_bytes == costs.DOMAIN_BYTES * 3 * 2048


def test_the_machine_is_measured_in_a_moment() -> None:
    machine = machine_costs()
    assert machine.single_flops > 0
    assert machine.double_flops > 0
    assert machine.free_bytes > 0
    assert machine.cores >= 1
