"""VNN-COMP's instances.csv as people write it; every wrong line is named before anything runs."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from boundscope.errors import UsageError
from boundscope.instances import benchmark_name, files_of, instances_job, read_instances
from boundscope.protocol import FileRef, PropertyFile, VerifyJob


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    bench = tmp_path / "acasxu"
    for name in ("onnx/a.onnx", "onnx/b.onnx.gz", "vnnlib/p.vnnlib", "vnnlib/q.vnnlib.gz"):
        path = bench / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    return bench


def written(folder: Path, text: str) -> Path:
    path = folder / "instances.csv"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    "text",
    [
        "onnx/a.onnx,vnnlib/p.vnnlib,116\nonnx/b.onnx,vnnlib/q.vnnlib,2.5\n",
        "onnx,vnnlib,timeout\nonnx/a.onnx,vnnlib/p.vnnlib,116\nonnx/b.onnx,vnnlib/q.vnnlib,2.5",
        "\ufeff./onnx/a.onnx.gz, ./vnnlib/p.vnnlib ,116\r\n\r\nonnx/b.onnx.gz,vnnlib/q.vnnlib.gz,2.5\r\n",
        "family,vnnlib,onnx,verdict,timeout_s\nx,vnnlib/p.vnnlib,onnx/a.onnx,sat,116\n"
        "x,vnnlib/q.vnnlib,onnx/b.onnx,unsat,2.5\n",
    ],
)
def test_with_or_without_a_head_packed_or_unpacked(folder: Path, text: str) -> None:
    """Paths are the file's own, and either of FILE and FILE.gz is found for the other."""
    first, second = read_instances(written(folder, text))
    assert (first.network, first.property) == (folder / "onnx/a.onnx", folder / "vnnlib/p.vnnlib")
    assert (second.network, second.property) == (folder / "onnx/b.onnx.gz", folder / "vnnlib/q.vnnlib.gz")
    assert (first.timeout_s, second.timeout_s) == (116.0, 2.5)


def test_the_file_itself_may_be_gzipped(folder: Path) -> None:
    path = folder / "instances.csv.gz"
    path.write_bytes(gzip.compress(b"onnx/a.onnx,vnnlib/p.vnnlib,1\n"))
    assert [line.onnx for line in read_instances(path)] == ["onnx/a.onnx"]
    assert benchmark_name(path) == "acasxu"
    assert benchmark_name(folder / "hard.csv") == "hard"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("onnx/a.onnx,vnnlib/p.vnnlib", "2 of 3 columns"),
        ("onnx/a.onnx,vnnlib/p.vnnlib,1,2", "4 of 3 columns"),
        ("onnx/none.onnx,vnnlib/p.vnnlib,1", "no network .*none.onnx"),
        ("onnx/a.onnx,vnnlib/none.vnnlib,1", "no property .*none.vnnlib"),
        ("onnx/a.onnx,,1", "the property is missing"),
        ("vnnlib/p.vnnlib,onnx/a.onnx,1", "wrong way round"),
        ("onnx/a.onnx,vnnlib/p.vnnlib,soon", "'soon' is not a time limit"),
        ("onnx/a.onnx,vnnlib/p.vnnlib,0", "'0' is not a time limit"),
        ("onnx/a.onnx,vnnlib/p.vnnlib,nan", "'nan' is not a time limit"),
        ("onnx/a.onnx,vnnlib/p.vnnlib,inf", "'inf' is not a time limit"),
    ],
)
def test_a_wrong_line_is_named(folder: Path, line: str, says: str) -> None:
    path = written(folder, f"onnx/a.onnx,vnnlib/p.vnnlib,1\n\n{line}\n")
    with pytest.raises(UsageError, match=f"instances.csv, line 3: .*{says}"):
        read_instances(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "has no instances"),
        ("onnx,vnnlib,timeout\n", "has no instances"),
        ("onnx,property,limit\n", "line 1: the head names no column for the timeout"),
    ],
)
def test_a_file_without_instances(folder: Path, text: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        read_instances(written(folder, text))
    with pytest.raises(UsageError, match=r"is a folder; give the instances\.csv in it"):
        read_instances(folder)
    with pytest.raises(UsageError, match="does not exist"):
        read_instances(folder / "none.csv")


def test_a_job_names_each_file_once(folder: Path) -> None:
    """Files are called by their paths below what they share; one limit may stand for all."""
    text = "onnx/a.onnx,vnnlib/p.vnnlib,1\nonnx/b.onnx,vnnlib/p.vnnlib,2\nonnx/a.onnx,vnnlib/q.vnnlib,3\n"
    lines = read_instances(written(folder, text))
    asked: list[Path] = []

    def refer(path: Path) -> FileRef:
        asked.append(path)
        return FileRef(name="whatever", sha256=path.name, size_bytes=1)

    some = FileRef(name="n", sha256="", size_bytes=0)
    verify = VerifyJob(network=some, property=PropertyFile(file=some), seed=7)
    job = instances_job(lines, verify, refer, name="acasxu")
    networks, properties = files_of(lines)
    assert asked == [*networks, *properties]
    assert [ref.name for ref in (*job.networks, *job.properties)] == [
        "a.onnx",
        "b.onnx.gz",
        "p.vnnlib",
        "q.vnnlib.gz",
    ]
    third = job.verify_job(2)
    assert (third.network.name, third.property.file.name, third.timeout_s) == ("a.onnx", "q.vnnlib.gz", 3.0)
    assert third.seed == 7
    assert {
        each.timeout_s for each in instances_job(lines, verify, refer, name="", timeout_s=9).instances
    } == {9}
