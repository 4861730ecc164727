"""A rank of a benchmark in which instances go wrong, by the name of the property."""

from __future__ import annotations

import os
import signal
import time

from boundscope.monitor import Monitor
from boundscope.protocol import InstancesJob, InstancesResult, VerifyJob, VerifyResult
from boundscope.sharding.ranks import RankGroup
from boundscope.worker import instances
from boundscope.worker.files import InstancesFiles, JobFiles
from boundscope.worker.networks import Networks
from boundscope.worker.verify import run_verify


def run(job: InstancesJob, files: InstancesFiles, monitor: Monitor, ranks: RankGroup) -> InstancesResult:
    instances.run_verify = _faulty
    return instances.run_instances(job, files, monitor, ranks)


def _faulty(
    job: VerifyJob, files: JobFiles, monitor: Monitor, ranks: RankGroup, *, networks: Networks
) -> VerifyResult:
    match files.property.name.partition(".")[0]:
        case "raises":
            raise ValueError("nobody foresaw this")
        case "raises_on_one" if ranks.rank == 1:
            raise ValueError("nobody foresaw this")
        case "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        case "hangs":
            time.sleep(600)
        case "no_memory":
            raise MemoryError
        case "waits":
            while True:
                monitor.check()
                time.sleep(0.02)
    return run_verify(job, files, monitor, ranks, networks=networks)
