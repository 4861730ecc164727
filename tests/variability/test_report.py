"""The page of a variability job has a table of everything that was found, and its events rebuild them."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from boundscope.monitor import Monitor
from boundscope.protocol import (
    EventRecord,
    FileRef,
    JobInfo,
    JobState,
    PropertyFile,
    SourceSearch,
    VariabilityJob,
)
from boundscope.records import JobRecord
from boundscope.report.events import events_of
from boundscope.report.page import page
from boundscope.report.pictures import Pictures
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.files import VariabilityFiles
from boundscope.worker.variability import run_variability
from support.models import box_property, convnet


def test_a_page_and_its_tables(tmp_path: Path) -> None:
    ref = FileRef(name="<net>", sha256="0" * 64, size_bytes=1)
    np.save(tmp_path / "x.npy", np.random.default_rng(0).random((2, 72)))
    (tmp_path / "p.vnnlib").write_text(box_property([0.0] * 72, [1.0] * 72, 3, "(assert (<= Y_0 Y_1))"))
    job = VariabilityJob(
        network=ref,
        inputs=(ref,),
        property=PropertyFile(file=ref),
        samples=3,
        source=SourceSearch.BISECT,
        threads_per_rank=1,
    )
    files = VariabilityFiles(
        convnet(tmp_path / "n.onnx"), tmp_path, (tmp_path / "x.npy",), tmp_path / "p.vnnlib"
    )
    record = JobRecord()

    def take(event: object) -> None:
        number = record.last_number + 1
        record.apply(EventRecord(number=number, time_s=1e9, rank=0, event=event))  # type: ignore[arg-type]

    result = run_variability(job, files, Monitor(take), RankGroup())
    assert result.verdict is None, result.reason
    take(result)
    info = JobInfo(
        id="1",
        kind="variability",
        title="<net>",
        state=JobState.FINISHED,
        job=job,
        created_s=1e9,
        ended_s=2e9,
    )

    names = [table.name for table in record.tables()]
    assert names == [
        *("noise", "decisions", "coverage", "sources", "deployed"),
        *("layers", "graph", "memory", "log"),
    ]
    assert [series[-1].samples for series in record.noise.values()] == [3] * 10
    html = page(record, info, Pictures(()))
    for words in ("measured", "Significant bits of each layer", "What was perturbed", "&lt;net&gt;", "conv2"):
        assert words in html
    for words in ("What is proven beside what was observed", "Where the noise at the outputs comes from"):
        assert words in html
    assert "<net>" not in html

    again = JobRecord()
    again.apply_all(events_of(record, info))
    assert [table for table in again.tables() if table.name != "memory"] == [
        table for table in record.tables() if table.name != "memory"
    ]
    assert again.noise == record.noise
