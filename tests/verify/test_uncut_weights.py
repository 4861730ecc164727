"""A large weight of which every row and column is of use is read as it is, on any number of ranks."""

from __future__ import annotations

from pathlib import Path

from msgspec.structs import replace

from boundscope.monitor import Monitor
from boundscope.protocol import PropertyFile, Sharding, Verdict, VerifyJob
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.files import JobFiles
from boundscope.worker.local import run_local
from boundscope.worker.verify import run_verify
from support.jobs import ref
from support.models import box_property, mlp

WIDTH = 540  # its square is a matrix that ranks read in parts
CHUNK_ROWS = 512  # several chunks: what the first one cuts is kept for the others
BEYOND = 3000.0  # what an attack reaches, and below what intervals prove


def test_layers_whose_neurons_are_all_unstable_give_the_same_bits_on_two_ranks(tmp_path: Path) -> None:
    network = mlp(tmp_path / "n.onnx", [WIDTH] * 3 + [2], seed=4)
    prop = tmp_path / "p.vnnlib"
    prop.write_text(box_property([-3.0] * WIDTH, [3.0] * WIDTH, 2, f"(assert (>= Y_0 {BEYOND}))"))
    files = JobFiles(network, prop)
    job = VerifyJob(
        network=ref(network),
        property=PropertyFile(file=ref(prop)),
        chunk_rows=CHUNK_ROWS,
        timeout_s=60.0,
    )
    alone = run_verify(job, files, Monitor(), RankGroup())
    assert alone.verdict in (Verdict.VERIFIED, Verdict.UNKNOWN), alone.reason
    together = run_local(replace(job, sharding=Sharding.ROWS, ranks=2), files, lambda rank, event: None)
    assert together.verdict is alone.verdict, together.reason
    assert [m.lower for m in together.margin.per_clause] == [m.lower for m in alone.margin.per_clause]
