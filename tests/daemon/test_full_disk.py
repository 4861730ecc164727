"""A disk that is full for a while costs nothing but time; new work is refused with the reason."""

from __future__ import annotations

import sys

import psutil
import pytest

from boundscope.errors import DaemonError
from boundscope.protocol import BlobPut, JobState, LogLine, Progress
from daemon import behaviours
from daemon.support import job, wait_for, wait_for_event, wait_until_ended


@pytest.mark.skipif(sys.platform != "linux", reason="limits of another process can be set on Linux only")
def test_a_full_disk_is_told_and_survived(serve, job_for):
    daemon = serve()
    client = daemon.client()
    wanted = job_for(client, behaviours.PATIENT)
    info = client.submit(wanted)
    wait_for_event(client, info.id, Progress)
    process = psutil.Process(daemon.pid)
    before = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (1, before[1]))  # every write now fails as on a full disk
    # The daemon's log is on the same disk and takes nothing either; what it tells its clients does not need one.
    with pytest.raises(DaemonError, match=r"the disk that holds .* is full or failing.*make room"):
        client.submit(wanted)
    stuck = _newest(client, info.id)
    with pytest.raises(DaemonError, match=r"the disk that holds .* is full; make room"):
        client.request(BlobPut(sha256="0" * 64, offset=0, total_bytes=9, data=b"something"))
    assert _newest(client, info.id) == stuck
    process.rlimit(psutil.RLIMIT_FSIZE, before)
    wait_for(lambda: _newest(client, info.id) > stuck, what="the events that had waited")
    client.cancel(info.id)
    assert wait_until_ended(client, info.id).state is JobState.CANCELLED
    records = client.events(info.id)
    assert [record.number for record in records] == list(range(1, len(records) + 1))
    assert sum(isinstance(record.event, LogLine) for record in records) == 2
    assert len(client.jobs()) == 1
    assert job(client, info.id).last_number == len(records)


def _newest(client, job_id) -> int:
    records = client.events(job_id)
    return records[-1].number
