"""Weights taken from where they lie in a file are those that the onnx package reads, and what is wrong with a file is
said in the same words; mapped, they take memory only while they are read."""

from __future__ import annotations

import csv
import gzip
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from boundscope.errors import NetworkError
from boundscope.network import arrays, file, load_network, stored
from boundscope.network.file import open_model, read_model
from boundscope.network.graph import Network
from network.models import model_of, save, two_layers

FAMILIES = ("acasxu", "cgan", "cifar10_resnet", "cctsdb_yolo", "eran", "mnist_fc", "nn4sys", "oval21", "vit")


@pytest.fixture
def all_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tensors of any size are taken from where they lie."""
    monkeypatch.setattr(stored, "LARGE_BYTES", 1)
    monkeypatch.setattr(file, "LARGE_BYTES", 1)


def same(one: Network, other: Network) -> bool:
    assert list(one.constants) == list(other.constants)
    return all(
        mine.dtype == theirs.dtype and np.array_equal(mine, theirs, equal_nan=True)
        for mine, theirs in zip(one.constants.values(), other.constants.values(), strict=True)
    )


def outcome(path: Path, *, mapped: bool = False) -> tuple[str, tuple[bytes, ...]]:
    """What a file is refused with, or the bytes of its constants."""
    try:
        network = load_network(path, mapped=mapped)
    except NetworkError as error:
        return str(error), ()
    return "", tuple(array.tobytes() for array in network.constants.values())


# ------------------------------------------------------------ the same values


@pytest.mark.parametrize("family", FAMILIES)
def test_published_files(
    vnncomp: Path, family: str, all_large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file, "UNPACKED_IN_MEMORY", 1)  # they are gzip files
    with open(vnncomp / "manifest.csv", newline="") as table:
        paths = sorted({row["onnx"] for row in csv.DictReader(table) if row["family"] == family})
    for path in paths[:6]:
        whole = {tensor.name: tensor for tensor in read_model(vnncomp / path).graph.initializer}
        with open_model(vnncomp / path, mapped=True) as opened:
            floats = {n for n, t in whole.items() if t.data_type == TensorProto.FLOAT and t.raw_data}
            assert set(opened.places) == {name for name in floats if min(whole[name].dims, default=0)}
            for name, place in opened.places.items():
                assert np.array_equal(place.array, numpy_helper.to_array(whole[name]))
        mapped, read = (load_network(vnncomp / path, mapped=each) for each in (True, False))
        with monkeypatch.context() as patch:
            patch.setattr(file, "read_skeleton", lambda source: None)
            assert same(mapped, plain := load_network(vnncomp / path))
            assert same(read, plain)
        assert mapped.tensors == plain.tensors
        # Nobody else can write to what was unpacked.
        assert bool(mapped.files) is (not path.endswith(".gz"))


@pytest.mark.parametrize("mapped", [True, False])
def test_cases(cases: Path, mapped: bool, all_large: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for path in sorted(cases.glob("*/model.onnx")):
        found = outcome(path, mapped=mapped)
        with monkeypatch.context() as patch:
            patch.setattr(file, "read_skeleton", lambda source: None)
            assert found == outcome(path)


@pytest.mark.parametrize("shift", [0, 1, 2, 3])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_may_begin_at_any_byte(tmp_path: Path, dtype: type, shift: int, all_large: None) -> None:
    path = two_layers(tmp_path / "n.onnx", dtype=dtype)
    model = onnx.load(path)
    model.producer_name = "x" * (5 + shift)
    save(model, tmp_path, "n.onnx")
    network = load_network(path, mapped=True)
    assert all(arrays.is_mapped(array) for array in network.constants.values())
    for tensor in model.graph.initializer:
        assert np.array_equal(network.constants[tensor.name], numpy_helper.to_array(tensor))
    x = torch.tensor([[0.3, -0.2, 0.9]], dtype=torch.from_numpy(np.zeros(0, dtype)).dtype)
    assert torch.equal(network.evaluate({"x": x})["y"], load_network(path).evaluate({"x": x})["y"])


def test_other_types_go_the_ordinary_way(tmp_path: Path, all_large: None) -> None:
    """Half floats, integers, typed fields: read by the onnx package."""
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    typed = helper.make_tensor("typed", TensorProto.FLOAT, [2, 3], values.reshape(-1).tolist())
    nodes = [
        helper.make_node("Add", ["x", "typed"], ["a"]),
        helper.make_node("Cast", ["half"], ["h"], to=TensorProto.FLOAT),
        helper.make_node("Add", ["a", "h"], ["b"]),
        helper.make_node("Reshape", ["b", "shape"], ["y"]),
    ]
    constants = {"half": values.astype(np.float16), "shape": np.array([3, 2])}
    model = model_of(nodes, inputs={"x": [2, 3]}, outputs=["y"], constants=constants)
    model.graph.initializer.append(typed)
    path = save(model, tmp_path)
    with open_model(path) as opened:
        assert not opened.places
    network = load_network(path, mapped=True)
    assert np.array_equal(network.constants["typed"], values)


# ------------------------------------------------------------ files put together in other ways


def _field(number: int, content: bytes) -> bytes:
    return stored._key(number) + stored._varint(len(content)) + content


def _with_initializer(model: onnx.ModelProto, number: int, tensor: bytes) -> bytes:
    """The model's bytes with one initializer's replaced."""
    rest = onnx.GraphProto.FromString(model.graph.SerializeToString())
    kept = list(rest.initializer)
    del rest.initializer[:]
    graph = rest.SerializeToString()
    for index, each in enumerate(kept):
        graph += _field(5, tensor if index == number else each.SerializeToString())
    other = onnx.ModelProto.FromString(model.SerializeToString())
    other.ClearField("graph")
    return other.SerializeToString() + _field(7, graph)


def _odd_files() -> dict[str, Callable[[onnx.ModelProto, onnx.TensorProto], bytes]]:
    def header(tensor: onnx.TensorProto) -> bytes:
        bare = onnx.TensorProto.FromString(tensor.SerializeToString())
        bare.ClearField("raw_data")
        return bare.SerializeToString()

    return {
        "data first": lambda m, t: _with_initializer(m, 0, _field(9, t.raw_data) + header(t)),
        "an unknown field": lambda m, t: _with_initializer(
            m, 0, header(t) + _field(77, b"what is this") + _field(9, t.raw_data)
        ),
        "data twice, of which the last counts": lambda m, t: _with_initializer(
            m, 0, header(t) + _field(9, bytes(len(t.raw_data))) + _field(9, t.raw_data)
        ),
        "a graph in two parts": lambda m, t: (
            _with_initializer(m, 0, t.SerializeToString()) + _field(7, _field(2, b"a name"))
        ),
        "a longer length than it takes": lambda m, t: _with_initializer(
            m, 0, header(t) + stored._key(9) + bytes([len(t.raw_data) | 0x80, 0]) + t.raw_data
        ),
    }


@pytest.mark.parametrize("kind", list(_odd_files()))
def test_files_that_protobuf_takes(tmp_path: Path, kind: str, all_large: None) -> None:
    model = onnx.load(two_layers(tmp_path / "plain.onnx"))
    data = _odd_files()[kind](model, model.graph.initializer[0])
    assert (
        onnx.ModelProto.FromString(data).graph.initializer[0] == model.graph.initializer[0] or "field" in kind
    )
    path = tmp_path / "odd.onnx"
    path.write_bytes(data)
    for mapped in (False, True):
        assert same(load_network(path, mapped=mapped), load_network(tmp_path / "plain.onnx"))


def test_data_of_another_size_than_the_shape(tmp_path: Path, all_large: None) -> None:
    model = onnx.load(two_layers(tmp_path / "a.onnx"))
    model.graph.initializer[0].raw_data = model.graph.initializer[0].raw_data[:-4]
    with pytest.raises(NetworkError, match=r"initializer 'W1' of node 'first' \(Gemm\) is damaged"):
        load_network(save(model, tmp_path))


def test_damage_is_told_in_the_same_words(
    tmp_path: Path, all_large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every byte changed, and the file cut off anywhere: the outcome is that of protobuf's own reading."""
    whole = two_layers(tmp_path / "a.onnx").read_bytes()
    path = tmp_path / "damaged.onnx"
    contents = [whole[:length] for length in range(0, len(whole), 5)]
    contents += [
        whole[:at] + bytes([value]) + whole[at + 1 :]
        for at in range(len(whole))
        for value in (0xFF, whole[at] ^ 0x01)
    ]
    refused = 0
    for content in contents:
        path.write_bytes(content)
        found = outcome(path)
        with monkeypatch.context() as patch:
            patch.setattr(file, "read_skeleton", lambda source: None)
            assert found == outcome(path)
        refused += bool(found[0])
    assert 0 < refused < len(contents)


# ------------------------------------------------------------ other files beside it, and packed ones


def _external(tmp_path: Path) -> Path:
    path = tmp_path / "b.onnx"
    onnx.save(
        onnx.load(two_layers(tmp_path / "a.onnx")),
        str(path),
        save_as_external_data=True,
        location="b.data",
        size_threshold=0,
    )
    return path


@pytest.mark.parametrize("mapped", [False, True])
def test_external_data(tmp_path: Path, mapped: bool, all_large: None) -> None:
    path = _external(tmp_path)
    network = load_network(path, mapped=mapped)
    assert same(network, load_network(tmp_path / "a.onnx"))
    assert {state.path.name for state in network.files} == ({"b.onnx", "b.data"} if mapped else set())
    data = (tmp_path / "b.data").read_bytes()
    (tmp_path / "b.data").write_bytes(data[:30])
    with pytest.raises(
        NetworkError, match=r"tensor '\w+' needs \d+ bytes of 'b.data' from offset \d+; there are"
    ):
        load_network(path, mapped=mapped)
    (tmp_path / "b.data").unlink()
    with pytest.raises(NetworkError, match=r"external data file 'b.data' of tensor 'W1' cannot be read"):
        load_network(path, mapped=mapped)


def test_packed_files_leave_nothing_behind(
    tmp_path: Path, all_large: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is unpacked lies in a file without a name; a damaged one is refused as small ones are."""
    room = tmp_path / "room"
    room.mkdir()
    monkeypatch.setenv("TMPDIR", str(room))
    monkeypatch.setattr(file.tempfile, "tempdir", None)
    monkeypatch.setattr(file, "UNPACKED_IN_MEMORY", 16)
    packed = gzip.compress(two_layers(tmp_path / "a.onnx").read_bytes())
    path = tmp_path / "a.onnx.gz"
    path.write_bytes(packed)
    network = load_network(path, mapped=True)
    assert all(arrays.is_mapped(array) for array in network.constants.values())
    assert same(network, load_network(tmp_path / "a.onnx"))
    for content in (packed[:-40], packed[:-8] + bytes(8), packed[: len(packed) // 2]):
        path.write_bytes(content)
        with pytest.raises(NetworkError, match="the gzip data is damaged or cut off"):
            load_network(path)
    assert not list(room.iterdir())


def test_a_file_that_changes_is_noticed(tmp_path: Path, all_large: None) -> None:
    """What is mapped would change with it."""
    path = two_layers(tmp_path / "a.onnx")
    (state,) = load_network(path, mapped=True).files
    state.require()
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    with pytest.raises(NetworkError, match=r"a\.onnx: was changed while its weights were in use"):
        state.require()
    path.unlink()
    with pytest.raises(NetworkError, match="was changed"):
        state.require()


# ------------------------------------------------------------ memory

RISE = """
import sys
from pathlib import Path
from boundscope.network import load_network
from boundscope.network.arrays import count_where, take_columns

def peak(reset=False):
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM:"))

load_network(sys.argv[1])
start = peak(reset=True)
network = load_network(sys.argv[2], mapped=sys.argv[3] == "mapped")
loaded = peak() - start
matrix = network.constants["W1"]
assert count_where(matrix, lambda part: part == 0) >= 0
assert take_columns(matrix, list(range(0, 4096, 256))).shape == (3072, 16)
print(loaded, peak() - start)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="VmHWM and clear_refs are Linux's")
@pytest.mark.parametrize("beside", [False, True], ids=["inside", "beside"])
@pytest.mark.parametrize("mode", ["mapped", "read"])
def test_resident_memory(tmp_path: Path, mode: str, beside: bool) -> None:
    """A network of 48 MiB, whose data lie in the file or beside it: mapped, it takes a few MiB, also while all of it is
    walked through by bands; read, one copy and not the three of before."""
    small = two_layers(tmp_path / "small.onnx")
    constants = {
        "W1": np.random.default_rng(0).random((3072, 4096), np.float32),
        "b1": np.zeros(3072, np.float32),
    }
    nodes = [helper.make_node("Gemm", ["x", "W1", "b1"], ["y"], transB=1)]
    path = save(model_of(nodes, inputs={"x": [1, 4096]}, outputs=["y"], constants=constants), tmp_path)
    if beside:
        onnx.save(onnx.load(path), str(path), save_as_external_data=True, location="weights.data")
    del constants
    done = subprocess.run(
        [sys.executable, "-c", RISE, str(small), str(path), mode], capture_output=True, text=True, check=True
    )
    loaded, walked = (float(word) for word in done.stdout.split())
    allowed = 24.0 if mode == "mapped" else 80.0
    assert loaded < allowed
    assert walked < allowed


def test_bands_cover_an_array_once(tmp_path: Path) -> None:
    for shape in ((), (0,), (7,), (5, 3), (1, 4), (4, 0), (6, 2, 2)):
        array = np.arange(np.prod(shape, dtype=int), dtype=np.float32).reshape(shape)
        found = [part for _, part in arrays.bands(array, band_bytes=16)]
        assert sum(part.size for part in found) == array.size
        if array.ndim:
            assert np.array_equal(np.concatenate(found), array)
