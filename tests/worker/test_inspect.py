"""An inspection says what the files hold, or in one sentence why it cannot."""

from __future__ import annotations

import gzip

import numpy as np

from boundscope.monitor import Monitor
from boundscope.protocol import (
    EpsilonBall,
    Failure,
    FileRef,
    InspectJob,
    JobState,
    NetworkSummary,
    Progress,
    PropertyFile,
    PropertySummary,
)
from boundscope.worker.inspect import inspect_files
from daemon.small_files import write_network, write_property
from daemon.support import wait_until_ended


def events(client, info, wanted):
    return [record.event for record in client.events(info.id) if isinstance(record.event, wanted)]


def inspect(client, network=None, given=None):
    job = InspectJob(
        network=None if network is None else client.upload(network),
        property=None if given is None else PropertyFile(file=client.upload(given)),
    )
    return wait_until_ended(client, client.submit(job).id)


def test_network_and_property_are_read_back(serve, tmp_path):
    client = serve().client()
    network, given = write_network(tmp_path / "net.onnx"), write_property(tmp_path / "p.vnnlib")
    info = inspect(client, network, given)
    assert (info.state, info.cause) == (JobState.FINISHED, "")
    read_back = events(client, info, PropertySummary)[0]
    assert (read_back.input_count, read_back.output_count, read_back.clause_count) == (2, 2, 1)
    summaries = events(client, info, NetworkSummary)
    assert [(node.op, node.shape, node.parameters) for node in summaries[0].nodes] == [
        ("MatMul", (1, 8), 16),
        ("Relu", (1, 8), 0),
        ("MatMul", (1, 2), 16),
    ]
    assert summaries[0].parameters == 32
    assert summaries[0].weight_bytes == 128
    assert summaries[0].inputs[0].shape == (1, 2)
    assert summaries[-1].unsupported == ()


def test_what_bounds_cost_is_told_with_the_machine(serve, tmp_path):
    """The form's estimate needs both, and none of it where a network cannot be bounded."""
    client = serve().client()
    info = inspect(client, write_network(tmp_path / "net.onnx"))
    last = events(client, info, NetworkSummary)[-1]
    assert [node.multiply_adds for node in last.costs.nodes if node.mixes] == [16, 16]
    assert last.machine.single_flops > 0
    assert last.machine.free_bytes > 0


def test_a_property_alone_needs_no_network(serve, tmp_path):
    client = serve().client()
    path = tmp_path / "p.vnnlib.gz"
    path.write_bytes(gzip.compress(write_property(tmp_path / "p.vnnlib").read_bytes()))
    info = inspect(client, given=path)
    assert info.state is JobState.FINISHED, info.cause
    assert events(client, info, PropertySummary)[0].name.startswith("p.vnnlib")


def test_a_property_that_does_not_fit_the_network_fails_with_both_counts(serve, tmp_path):
    client = serve().client()
    network, given = write_network(tmp_path / "net.onnx"), write_property(tmp_path / "p.vnnlib", inputs=3)
    info = inspect(client, network, given)
    assert info.state is JobState.FAILED
    assert "3" in info.cause
    assert "2" in info.cause
    assert events(client, info, NetworkSummary), "what could be read is shown all the same"


def test_files_that_are_none_fail_with_a_sentence(serve, tmp_path):
    client = serve().client()
    (tmp_path / "net.onnx").write_bytes(b"\x00\x01 not a network")
    (tmp_path / "p.vnnlib").write_text("(assert (>= X_0\n")
    for info in (inspect(client, tmp_path / "net.onnx"), inspect(client, given=tmp_path / "p.vnnlib")):
        assert info.state is JobState.FAILED
        failure = events(client, info, Failure)[0]
        assert failure.cause == info.cause
        assert failure.detail == "", "a foreseen error comes without a stack"
        assert "Traceback" not in info.cause
        assert "/" not in info.cause.partition(":")[0], "the file has the name that people gave it"


def test_an_epsilon_ball_is_read_back_for_the_network(serve, tmp_path):
    client = serve().client()
    np.save(tmp_path / "center.npy", np.array([[0.25, -0.5]], dtype=np.float32))
    ball = EpsilonBall(center=client.upload(tmp_path / "center.npy"), epsilon="0.1", label=0)
    network = client.upload(write_network(tmp_path / "net.onnx"))
    info = wait_until_ended(client, client.submit(InspectJob(network=network, property=ball)).id)
    assert info.state is JobState.FINISHED, info.cause
    assert events(client, info, PropertySummary)[0].format == "ε-ball"


def test_how_far_the_reading_is_is_told(tmp_path, monkeypatch):
    """A network of many nodes takes a while: the stages in order, and of the network the share with a time to go."""
    monkeypatch.setattr("boundscope.worker.inspect.TELL_S", 0.0)
    told = []
    job = InspectJob(network=FileRef(name="net.onnx", sha256="", size_bytes=0))
    inspect_files(job, write_network(tmp_path / "net.onnx"), None, Monitor(told.append))
    steps = [event for event in told if isinstance(event, Progress)]
    assert [each.stage for each in steps if not each.total] == [
        "reading the network",
        "reckoning what bounds cost",
    ]
    assert [(each.done, each.total) for each in steps if each.total] == [(1, 3), (2, 3), (3, 3)]
    assert steps[3].eta_s == 0.0
