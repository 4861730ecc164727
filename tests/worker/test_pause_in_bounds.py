"""A pause in the middle of bounding changes no bit of what comes out, and no rank is lost to it."""

from __future__ import annotations

import threading

import pytest
import torch

from boundscope.bounds import BoundEngine, MemoryLedger
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.properties import read_property
from boundscope.protocol import (
    JobState,
    MemorySample,
    Method,
    Progress,
    PropertyFile,
    Sharding,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.sharding.weights import WholeWeights
from daemon.small_files import write_property, write_wide_network
from daemon.support import job, wait_for, wait_until_ended


class Pausing(Monitor):
    """Pauses for a moment at some of its steps."""

    def __init__(self, at: range) -> None:
        super().__init__(timeout_s=60.0)
        self.at, self.steps = at, 0

    def check(self) -> None:
        self.steps += 1
        if self.steps in self.at:
            self.pause()
            timer = threading.Timer(0.05, self.go_on)
            timer.start()
            super().check()
            timer.join()
        super().check()


@pytest.mark.parametrize("method", [Method.CROWN, Method.ALPHA_CROWN])
def test_bounds_are_the_same_bits_with_pauses(tmp_path, method):
    network = load_network(write_wide_network(tmp_path / "net.onnx", 24, 3))
    case = read_property(
        write_property(tmp_path / "p.vnnlib"), input_count=2, output_count=network.output_count
    ).cases[0]
    constraints = case.clauses[0].constraints

    def margins(monitor: Monitor) -> list[float]:
        ledger = MemoryLedger()
        weights = WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64)
        engine = BoundEngine(network, weights, ledger, monitor=monitor, chunk_rows=16)
        return engine.margins(engine.context(case.box, method), constraints, method).tolist()

    straight = margins(Monitor())
    halting = Pausing(range(2, 12, 2))
    assert margins(halting) == straight
    assert halting.steps >= halting.at.stop


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_real_job_pauses_in_the_middle_of_its_bounds(serve, tmp_path, ranks):
    client = serve("product").client()
    asked = VerifyJob(
        network=client.upload(write_wide_network(tmp_path / "net.onnx", 500, 3)),
        property=PropertyFile(file=client.upload(write_property(tmp_path / "p.vnnlib"))),
        ranks=ranks,
        sharding=Sharding.ROWS if ranks > 1 else Sharding.NONE,
        chunk_rows=16,
        timeout_s=600.0,
    )
    info = client.submit(asked)

    def done() -> list[tuple[str, int]]:
        told = [r.event for r in client.events(info.id) if isinstance(r.event, Progress)]
        return [(each.stage, each.done) for each in told if "bounds of" in each.stage]

    wait_for(done, 180, "the first chunk of a layer")
    client.pause(info.id)
    wait_for(lambda: job(client, info.id).state is JobState.PAUSED, 60, "the pause")
    seen, memory = done(), samples(client, info.id)
    wait_for(lambda: samples(client, info.id) > memory + 3 * ranks, 60, "more samples of memory")
    assert done() == seen
    client.go_on(info.id)
    ended = wait_until_ended(client, info.id, 300)
    assert ended.state is JobState.FINISHED, ended.cause
    assert ended.verdict in (Verdict.VERIFIED, Verdict.UNKNOWN)
    assert len(done()) > len(seen), "it was paused before the end"
    (result,) = [r.event for r in client.events(info.id) if isinstance(r.event, VerifyResult)]
    spent = result.seconds
    assert spent.load + spent.parse + spent.solve < ended.run_s(0.0), "pauses count for nothing"


def samples(client, job_id: str) -> int:
    return sum(isinstance(record.event, MemorySample) for record in client.events(job_id))
