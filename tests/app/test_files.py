"""What is dropped is sorted by what it is, and what is not readable is refused with a reason."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest

from boundscope_app import files


def write(path: Path, data: bytes = b"\x08\x07") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.onnx", files.Kind.NETWORK),
        ("A.ONNX.GZ", files.Kind.NETWORK),
        ("p.vnnlib", files.Kind.PROPERTY),
        ("p.vnnlib.gz", files.Kind.PROPERTY),
        ("x.npy", files.Kind.CENTER),
        ("x.PNG", files.Kind.CENTER),
        ("x.gz", None),
        ("onnx", None),
    ],
)
def test_kind_by_name(name: str, kind: files.Kind | None) -> None:
    assert files.kind_of(name) is kind


@pytest.mark.parametrize(
    ("name", "data", "words"),
    [
        ("model.pt", b"PK", "torch.onnx.export"),
        ("notes.txt", b"hello", "is not a file that Boundscope reads"),
        ("image.jpg", b"\xff\xd8", "PNG"),
        ("empty.onnx", b"", "is empty"),
        ("net.onnx.gz", b"\x08\x07", "gzip"),
        ("x.npy", b"1, 2, 3", "NumPy"),
        ("x.png", b"GIF89a", "PNG"),
        ("net.onnx", b"version https://git-lfs.github.com/spec/v1\n", "git lfs pull"),
    ],
)
def test_wrong_files_say_why(tmp_path: Path, name: str, data: bytes, words: str) -> None:
    found = files.examine([write(tmp_path / name, data)])
    assert found.empty
    assert words in found.problems[0]
    assert name in found.problems[0]


def test_missing_file_is_named(tmp_path: Path) -> None:
    assert "gone.onnx is not there" in files.examine([tmp_path / "gone.onnx"]).problems[0]


def test_folder_gives_all_it_holds_in_order(tmp_path: Path) -> None:
    b = write(tmp_path / "f" / "b.onnx")
    a = write(tmp_path / "f" / "a.onnx.gz", gzip.compress(b"\x08\x07"))
    p = write(tmp_path / "f" / "deep" / "p.vnnlib", b"(assert true)")
    np.save(tmp_path / "f" / "x.npy", np.zeros(3))
    write(tmp_path / "f" / "README.md", b"words")
    found = files.examine([tmp_path / "f"])
    assert found.networks == (a, b)
    assert found.properties == (p,)
    assert found.centers == (tmp_path / "f" / "x.npy",)
    assert found.problems == ()


def test_folder_without_anything_readable_says_so(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    assert "holds nothing" in files.examine([tmp_path / "empty"]).problems[0]


def test_folder_walk_is_bounded_in_depth(tmp_path: Path) -> None:
    write(tmp_path / "1" / "2" / "3" / "4" / "5" / "6" / "far.onnx")
    assert files.examine([tmp_path]).empty
