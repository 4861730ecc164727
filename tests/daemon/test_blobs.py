"""Files arrive whole or not at all, and stay inside their folder."""

from __future__ import annotations

import gzip
import hashlib
import os

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from boundscope.client.transfer import external_data
from boundscope.daemon.blobs import BlobStore
from boundscope.errors import DaemonError, StoreError
from boundscope.protocol import BLOB_CHUNK_BYTES, BlobPut, BlobStat, BlobState, FileRef, InspectJob, JobState
from daemon.support import wait_until_ended


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def test_upload_and_fetch_give_the_same_bytes(serve, tmp_path):
    client = serve().client()
    data = os.urandom(2 * BLOB_CHUNK_BYTES + 17)
    source = tmp_path / "data.bin"
    source.write_bytes(data)
    told: list[tuple[int, int]] = []
    ref = client.upload(source, progress=lambda sent, total: told.append((sent, total)))
    assert ref.sha256 == digest(data)
    assert told[-1] == (len(data), len(data))
    assert client.fetch(ref, tmp_path / "back.bin").read_bytes() == data


def test_empty_file(serve, tmp_path):
    client = serve().client()
    (tmp_path / "empty").write_bytes(b"")
    ref = client.upload(tmp_path / "empty")
    assert client.fetch(ref, tmp_path / "back").read_bytes() == b""


def test_broken_transfer_goes_on_after_a_restart(serve, tmp_path):
    daemon = serve()
    data = os.urandom(3 * BLOB_CHUNK_BYTES)
    piece = data[:BLOB_CHUNK_BYTES]
    daemon.client().request(BlobPut(sha256=digest(data), offset=0, total_bytes=len(data), data=piece))
    daemon.kill()
    daemon.start()
    client = daemon.client()
    state = client.ask(BlobStat(sha256=digest(data)), BlobState)
    assert (state.have_bytes, state.complete) == (BLOB_CHUNK_BYTES, False)
    (tmp_path / "data").write_bytes(data)
    sent: list[int] = []
    client.upload(tmp_path / "data", progress=lambda now, total: sent.append(now))
    assert sent[0] == 2 * BLOB_CHUNK_BYTES, "the first piece must not be sent again"
    assert client.ask(BlobStat(sha256=digest(data)), BlobState).complete


def test_damaged_transfer_is_thrown_away(serve):
    client = serve().client()
    put = BlobPut(sha256=digest(b"right"), offset=0, total_bytes=5, data=b"wrong")
    with pytest.raises(DaemonError, match="damaged on its way"):
        client.request(put)
    assert client.ask(BlobStat(sha256=put.sha256), BlobState).have_bytes == 0


def test_pieces_out_of_order_are_refused(serve):
    client = serve().client()
    with pytest.raises(DaemonError, match="a piece at 3 was sent where 0 bytes are here"):
        client.request(BlobPut(sha256=digest(b"abcdef"), offset=3, total_bytes=6, data=b"def"))


@pytest.mark.parametrize("sha256", ["../../etc/passwd", "A" * 64, "", "0" * 63])
def test_only_hashes_name_blobs(serve, sha256):
    with pytest.raises(DaemonError, match="is not a SHA-256"):
        serve().client().request(BlobStat(sha256=sha256))


@pytest.mark.parametrize(
    "name", ["../outside", "/absolute", "a/../../b", "", "..", "a\\b", "nul\0", "x" * 300]
)
def test_companions_stay_in_their_folder(tmp_path, name):
    store = BlobStore(tmp_path / "blobs")
    store.put(digest(b"x"), 0, 1, b"x")
    companion = FileRef(name=name, sha256=digest(b"x"), size_bytes=1)
    ref = FileRef(name="net.onnx", sha256=digest(b"x"), size_bytes=1, companions=(companion,))
    with pytest.raises(StoreError, match="not a file name inside"):
        store.lay_out(ref, tmp_path / "job")
    assert not (tmp_path / "outside").exists()


def test_the_main_file_keeps_only_its_last_name(tmp_path):
    store = BlobStore(tmp_path / "blobs")
    store.put(digest(b"x"), 0, 1, b"x")
    ref = FileRef(name="/home/me/../net.onnx", sha256=digest(b"x"), size_bytes=1)
    assert store.lay_out(ref, tmp_path / "job") == tmp_path / "job" / "net.onnx"


def model_with_external_data(folder):
    weight = numpy_helper.from_array(np.eye(8, dtype=np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="mul")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 8])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 8])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    folder.mkdir()
    (folder / "weights").mkdir()
    onnx.save(
        model, folder / "net.onnx", save_as_external_data=True, location="weights/w.bin", size_threshold=0
    )
    return folder / "net.onnx"


def test_external_data_travels_and_lies_where_onnx_finds_it(serve, tmp_path):
    client = serve().client()
    ref = client.upload(model_with_external_data(tmp_path / "model"))
    assert [companion.name for companion in ref.companions] == ["weights/w.bin"]
    info = wait_until_ended(client, client.submit(InspectJob(network=ref)).id)
    assert info.state is JobState.FINISHED, info.cause


def test_external_data_of_a_gzipped_network_is_found(tmp_path):
    path = model_with_external_data(tmp_path / "model")
    packed = path.with_name("net.onnx.gz")
    packed.write_bytes(gzip.compress(path.read_bytes()))
    assert external_data(packed) == ("weights/w.bin",)


def test_missing_external_data_is_named(serve, tmp_path):
    path = model_with_external_data(tmp_path / "model")
    (path.parent / "weights" / "w.bin").unlink()
    with pytest.raises(DaemonError, match=r"keeps weights in weights/w\.bin, which is not beside it"):
        serve().client().upload(path)


def test_missing_file_is_named(serve, tmp_path):
    with pytest.raises(DaemonError, match=r"nothere\.onnx cannot be read: No such file"):
        serve().client().upload(tmp_path / "nothere.onnx")


def test_a_job_whose_file_has_not_arrived_is_refused(serve):
    ref = FileRef(name="net.onnx", sha256="0" * 64, size_bytes=1)
    with pytest.raises(DaemonError, match=r"the file net\.onnx .* has not arrived completely"):
        serve().client().submit(InspectJob(network=ref))


def test_files_that_no_job_names_go_with_the_job(serve, tmp_path):
    client = serve().client()
    (tmp_path / "net.onnx").write_bytes(b"not a network")
    ref = client.upload(tmp_path / "net.onnx")
    first, second = (client.submit(InspectJob(network=ref)) for _ in range(2))
    for info in (first, second):
        wait_until_ended(client, info.id)
    client.delete(first.id)
    assert client.ask(BlobStat(sha256=ref.sha256), BlobState).complete
    client.delete(second.id)
    assert not client.ask(BlobStat(sha256=ref.sha256), BlobState).complete
