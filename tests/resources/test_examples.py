"""What is shipped as an example is small, readable, and gives the verdict that it promises."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import onnx
import pytest

from boundscope.examples import FIRST_EXAMPLE, Example, examples, resources_folder
from boundscope.monitor import Monitor
from boundscope.protocol import FileRef, PropertyFile, Verdict, VerifyJob
from boundscope.sharding.ranks import RankGroup
from boundscope.worker.files import JobFiles
from boundscope.worker.verify import run_verify

SIZE_LIMIT_BYTES = 300_000
ALL = examples()


def reference(path: Path) -> FileRef:
    return FileRef(name=path.name, sha256="", size_bytes=path.stat().st_size)


def test_examples_are_small_and_complete() -> None:
    """A clone stays light; both outcomes and a disjunction of conjunctions are shown; the first one exists."""
    files = [path for path in (resources_folder() / "examples").rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < SIZE_LIMIT_BYTES
    assert FIRST_EXAMPLE in {found.id for found in ALL}
    assert {found.expected for found in ALL} == {Verdict.VERIFIED, Verdict.VIOLATED}
    assert any("(and (>= Y_3 Y_0) (>= Y_3 Y_1)" in found.property.read_text() for found in ALL)
    for found in ALL:
        assert found.id == found.property.parent.name
        assert found.title
        assert found.description
        onnx.checker.check_model(found.network, full_check=True)


@pytest.mark.parametrize("found", ALL, ids=lambda found: found.id)
def test_example_gives_its_verdict(found: Example) -> None:
    job = VerifyJob(
        network=reference(found.network),
        property=PropertyFile(file=reference(found.property)),
        method=found.method,
    )
    files = JobFiles(network=found.network, property=found.property)
    result = run_verify(job, files, Monitor(timeout_s=job.timeout_s), RankGroup())
    assert result.verdict is found.expected, result.reason
    if found.expected is Verdict.VIOLATED:
        assert result.counterexample is not None
        assert result.counterexample.input_shape == (1, 1, 8, 8)


def test_icon_is_a_drawing_that_stands_alone() -> None:
    """Well-formed SVG with a size of its own and nothing fetched from elsewhere."""
    path = resources_folder() / "icons" / "boundscope.svg"
    root = ElementTree.parse(path).getroot()
    assert root.get("viewBox") == "0 0 128 128"
    assert "href" not in path.read_text()
