"""The real verify job, in real ranks under a real daemon."""

from __future__ import annotations

import pytest

from boundscope.protocol import (
    JobState,
    MemorySample,
    NetworkSummary,
    PropertyFile,
    PropertySummary,
    Sharding,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from daemon.small_files import write_network, write_property
from daemon.support import wait_until_ended


@pytest.fixture
def client(serve):
    return serve("product").client()


def verify(client, network, given, ranks=1):
    sharding = Sharding.ROWS if ranks > 1 else Sharding.NONE
    job = VerifyJob(
        network=client.upload(network),
        property=PropertyFile(file=client.upload(given)),
        ranks=ranks,
        sharding=sharding,
        timeout_s=60.0,
    )
    info = wait_until_ended(client, client.submit(job).id, 90)
    results = [r.event for r in client.events(info.id) if isinstance(r.event, VerifyResult)]
    assert info.state is JobState.FINISHED, info.cause
    assert len(results) == 1
    assert info.verdict == results[0].verdict
    return info, results[0]


def test_one_and_two_ranks_agree(client, tmp_path):
    network, given = write_network(tmp_path / "net.onnx"), write_property(tmp_path / "p.vnnlib")
    _, alone = verify(client, network, given)
    info, together = verify(client, network, given, ranks=2)
    assert alone.verdict is together.verdict is Verdict.VERIFIED
    assert alone.margin.smallest == together.margin.smallest
    records = client.events(info.id)
    assert {r.rank for r in records if isinstance(r.event, MemorySample)} == {0, 1}
    for kind in (NetworkSummary, PropertySummary):
        assert [r.rank for r in records if isinstance(r.event, kind)] == [0]


def test_a_violated_property_has_a_counterexample(client, tmp_path):
    network = write_network(tmp_path / "net.onnx")
    _, result = verify(client, network, write_property(tmp_path / "p.vnnlib", threshold=-100.0))
    assert result.verdict is Verdict.VIOLATED
    assert result.counterexample is not None
    assert result.counterexample.replay.violates


def test_an_unsupported_operator_is_an_error_that_names_the_node(client, tmp_path):
    network = write_network(tmp_path / "net.onnx", operator="Bernoulli")
    _, result = verify(client, network, write_property(tmp_path / "p.vnnlib"))
    assert result.verdict is Verdict.ERROR
    assert "kink" in result.reason
    assert "Bernoulli" in result.reason
