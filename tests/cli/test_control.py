"""`boundscope pause`, `continue` and `cancel` come back when it has come about, and `jobs` shows it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from boundscope.client import Client, connection_path, read_connection_file
from boundscope.protocol import Progress, PropertyFile, VerifyJob
from cli.conftest import Command
from daemon.small_files import write_property, write_wide_network
from daemon.support import wait_for_event


@pytest.fixture
def client(boundscope: Command, tmp_path: Path) -> Iterator[Client]:
    assert boundscope("daemon", "start").returncode == 0
    with Client.connect(read_connection_file(connection_path(tmp_path / "home"))) as talker:
        yield talker
    boundscope("daemon", "stop", "--force")


def test_pause_continue_cancel(boundscope: Command, client: Client, tmp_path: Path) -> None:
    asked = VerifyJob(
        network=client.upload(write_wide_network(tmp_path / "net.onnx", 1500, 6)),
        property=PropertyFile(file=client.upload(write_property(tmp_path / "p.vnnlib"))),
        chunk_rows=16,
    )
    job_id = client.submit(asked).id
    wait_for_event(client, job_id, Progress)
    for command, state in (("pause", "paused"), ("continue", "running"), ("cancel", "cancelled")):
        told = boundscope(command, "last")
        assert (told.returncode, told.stdout) == (0, f"job {job_id} is {state}\n"), told.stderr
        assert f" {state} " in boundscope("jobs").stdout
    refused = boundscope("continue", job_id)
    assert refused.returncode == 1
    assert "is cancelled; only a paused job can be continued" in refused.stderr
