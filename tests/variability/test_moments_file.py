"""The file of a run: whole or absent, of the run that it says, and resumed to the same bits."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest

from boundscope.errors import VariabilityError
from boundscope.variability.moments_file import RunMoments, merged

IDENTITY = '{"network": "a1b2", "mode": "sr", "seed": 7}'
SHAPES = {"features/conv1:0": (2, 3, 4), "../odd name.npy": (5,), "logits": (2, 3), "scalar": ()}
SAMPLES = 10


def tensors(number: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(number)
    return {name: np.asarray(1 + 1e-3 * rng.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


def started() -> RunMoments:
    return RunMoments.start(IDENTITY, tensors(1000), {"logits": -1})


def run(numbers: list[int]) -> RunMoments:
    taken = started()
    for number in numbers:
        taken.add(number, tensors(number))
    return taken


def bits(taken: RunMoments) -> dict[str, bytes]:
    found = {f"layer {name}": vars(layer.totals()) for name, layer in taken.layers.items()}
    found |= {f"decision {name}": vars(decision.totals()) for name, decision in taken.decisions.items()}
    return {
        f"{name} {key}": np.asarray(value).tobytes()
        for name, part in found.items()
        for key, value in part.items()
    }


def test_a_run_is_resumed_to_the_same_bits(tmp_path: Path) -> None:
    """A run that stopped knows which samples it has; what is resumed equals the run that never stopped."""
    path = tmp_path / "moments.npz"
    run([0, 1, 2, 5]).save(path)
    resumed = RunMoments.load(path, IDENTITY)
    assert resumed.numbers == (0, 1, 2, 5)
    assert resumed.missing(SAMPLES) == (3, 4, 6, 7, 8, 9)
    for number in resumed.missing(SAMPLES):
        resumed.add(number, tensors(number))
        resumed.save(path)
    assert bits(RunMoments.load(path)) == bits(run(list(range(SAMPLES))))
    assert resumed.missing(SAMPLES) == ()
    assert [file.name for file in tmp_path.iterdir()] == ["moments.npz"]


@pytest.mark.parametrize("ranks", [1, 2, 3, 10])
def test_ranks_merge_to_the_same_bits(tmp_path: Path, ranks: int) -> None:
    """Each rank writes its file; merged in any order they are the run of one rank."""
    for rank in range(ranks):
        run(list(range(rank, SAMPLES, ranks))).save(tmp_path / f"{rank}.npz")
    parts = [RunMoments.load(path) for path in sorted(tmp_path.iterdir(), reverse=True)]
    assert bits(merged(parts)) == bits(run(list(range(SAMPLES))))


def test_a_run_without_samples_goes_round(tmp_path: Path) -> None:
    """The baseline alone is a run: it can be saved before the first sample."""
    started().save(tmp_path / "start.npz")
    resumed = RunMoments.load(tmp_path / "start.npz", IDENTITY)
    assert resumed.missing(3) == (0, 1, 2)
    for number in range(SAMPLES):
        resumed.add(number, tensors(number))
    assert bits(resumed) == bits(run(list(range(SAMPLES))))


def test_a_half_written_file_is_refused(tmp_path: Path) -> None:
    """However much of a file is there, it is read whole or refused with what to do; never a part of the samples."""
    path, whole = tmp_path / "half.npz", tmp_path / "whole.npz"
    run([0, 1]).save(whole)
    content = whole.read_bytes()
    for length in (0, 1, 100, len(content) // 2, len(content) - 30, len(content) - 1):
        path.write_bytes(content[:length])
        with pytest.raises(VariabilityError, match=r"half.npz is damaged .*delete it to start the run anew"):
            RunMoments.load(path)


def test_damaged_bytes_are_refused(tmp_path: Path) -> None:
    """A byte that changed anywhere within an array's data is noticed."""
    path = tmp_path / "moments.npz"
    run([0, 1]).save(path)
    content = bytearray(path.read_bytes())
    middle = content.index(tensors(1000)["features/conv1:0"].tobytes())
    content[middle + 3] ^= 0x40
    path.write_bytes(bytes(content))
    with pytest.raises(VariabilityError, match="damaged"):
        RunMoments.load(path)


def test_what_a_killed_writer_left_is_no_hindrance(tmp_path: Path) -> None:
    """A part file of a writer that was killed is neither read nor in the way, and the last whole file is intact."""
    path = tmp_path / "moments.npz"
    run([0, 1]).save(path)
    (tmp_path / ".moments.npz.0badcafe.part").write_bytes(path.read_bytes()[:1000])
    resumed = RunMoments.load(path)
    resumed.add(2, tensors(2))
    resumed.save(path)
    assert RunMoments.load(path).numbers == (0, 1, 2)


@pytest.mark.skipif(sys.platform == "win32", reason="file size limits are of POSIX")
def test_a_full_disk_keeps_the_old_file(tmp_path: Path) -> None:
    """Where writing fails in the middle, the error says so, the old file stays and no part file is left."""
    path = tmp_path / "moments.npz"
    run([0, 1]).save(path)
    before = path.read_bytes()
    program = f"""
        import resource, signal
        from pathlib import Path
        from boundscope.errors import VariabilityError
        from boundscope.variability.moments_file import RunMoments
        run = RunMoments.load(Path({str(path)!r}))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
        try:
            run.save(Path({str(path)!r}))
        except VariabilityError as error:
            print(error)
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=False
    )
    assert "moments.npz cannot be written: File too large" in done.stdout, done.stderr
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["moments.npz"]


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file of another run, kind or version, and none at all, are refused with what was expected."""
    path = tmp_path / "moments.npz"
    run([0, 1]).save(path)
    with pytest.raises(VariabilityError, match=r"of another run: expected 'seed 8', found .*sr"):
        RunMoments.load(path, "seed 8")
    with pytest.raises(VariabilityError, match="there is no such file"):
        RunMoments.load(tmp_path / "none.npz")
    with pytest.raises(VariabilityError, match="cannot be read"):
        RunMoments.load(tmp_path)
    with pytest.raises(VariabilityError, match="cannot be written"):
        run([0]).save(tmp_path / "no folder" / "moments.npz")
    with_header(path, {"format": "another"})
    with pytest.raises(VariabilityError, match=r"moments.npz holds no moments"):
        RunMoments.load(path)
    with_header(path, {"format": "boundscope variability moments", "version": 99})
    with pytest.raises(VariabilityError, match="version 99, this Boundscope reads version 1"):
        RunMoments.load(path)
    np.savez(path, weights=np.zeros(3))
    with pytest.raises(VariabilityError, match="damaged or not a file of moments"):
        RunMoments.load(path)
    path.write_bytes(b"not a zip file at all")
    with pytest.raises(VariabilityError, match="damaged or not a file of moments"):
        RunMoments.load(path)


def with_header(path: Path, header: dict[str, object]) -> None:
    np.savez(path, header=np.frombuffer(json.dumps(header).encode(), np.uint8))


def test_a_sample_that_does_not_fit_changes_nothing() -> None:
    """One wrong layer refuses the whole sample: no other layer has taken it."""
    taken = run([0, 1])
    before = bits(taken)
    with pytest.raises(VariabilityError, match="logits: sample 2 is float32 of shape"):
        taken.add(2, {**tensors(2), "logits": np.zeros((9, 9), np.float32)})
    with pytest.raises(VariabilityError, match="a layer 'new' that the baseline does not have"):
        taken.add(2, {**tensors(2), "new": np.zeros(1, np.float32)})
    with pytest.raises(VariabilityError, match="sample 1 is there already"):
        taken.add(1, tensors(1))
    assert bits(taken) == before
    assert taken.numbers == (0, 1)


def test_parts_that_do_not_fit_change_nothing() -> None:
    """Parts of other runs, with other layers, other baselines or common samples are refused before any layer merges."""
    taken = run([0, 1])
    before = bits(taken)
    other_baseline = RunMoments.start(
        IDENTITY, tensors(1000) | {"scalar": np.float32(3) + np.zeros((), np.float32)}
    )
    fewer = RunMoments.start(IDENTITY, {"logits": tensors(1000)["logits"]}, {"logits": -1})
    for part, message in (
        (RunMoments.start("seed 8", tensors(1000)), "of another run"),
        (run([1, 2]), "samples 1 are in both"),
        (fewer, r"only one of the two parts has \.\./odd name"),
        (other_baseline, "only one of the two parts has logits"),
    ):
        with pytest.raises(VariabilityError, match=message):
            taken.merge(part)
    moved = RunMoments.start(IDENTITY, tensors(1000) | {"scalar": np.zeros((), np.float32)}, {"logits": -1})
    moved.add(5, tensors(5))
    with pytest.raises(VariabilityError, match="scalar: parts have different references"):
        taken.merge(moved)
    assert bits(taken) == before
    with pytest.raises(VariabilityError, match="no parts"):
        merged([])


def test_a_layer_that_some_samples_leave_out() -> None:
    """A branch that a sample did not take leaves its layers with fewer samples, and the others with all."""
    taken = run([0, 1])
    taken.add(2, {name: tensor for name, tensor in tensors(2).items() if name != "scalar"})
    assert taken.layers["scalar"].samples == 2
    assert taken.layers["logits"].samples == 3
    assert taken.numbers == (0, 1, 2)


def test_decisions_need_a_layer() -> None:
    """A decision asked of a layer that is not there is refused by its name."""
    with pytest.raises(VariabilityError, match="probabilities"):
        RunMoments.start(IDENTITY, tensors(0), {"probabilities": -1})
