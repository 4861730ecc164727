"""Times complete verification to a verdict, instance by instance: one thread, a process of its own, and a warm one.

    python tests/benchmarks/search.py [--manifest CSV] [--family NAME …] [--skip WORD …] [--timeout S] [--cold]
        [--csv FILE] [--neuralsat PYTHON]

Without a manifest the examples of this project are run. A manifest is a CSV with the columns family, onnx, vnnlib
(paths beside it) and verdict (sat or unsat), as in collections of VNN-COMP instances.

Columns: CPU seconds of the verdict in a process that has verified before (warm); with --cold also of
`boundscope verify` from its start to its end, its wall seconds and its peak memory. After them a line a family: solved,
median CPU seconds warm and cold, and the largest peak; beside it the CPU seconds that α,β-CROWN (December 2025, its
own competition settings, one thread of a CPU like ours, cold) took for instances of the same family and networks, as
they were measured once. --csv keeps the rows, and an instance that is in FILE already is not run again.

The peer is NeuralSAT (second at VNN-COMP 2024 and 2025), cold, in the same run: give the Python of an environment
where `pip install neuralsat` was done. It runs on the CPU with its own settings, each instance right after ours.
A wrong verdict of ours ends the script with status 1.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from dataclasses import astuple, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# Of α,β-CROWN, CPU seconds: 40 of 53 instances in 240 s, their median, and what its imports take of each.
PEER_MEDIAN_S, PEER_IMPORTS_S = 7.9, 4.7
PEER = {
    "acasxu": "6 – 23 (N1_1 to N1_3, properties 1 to 4; N3_3, 2: none)",
    "mnist_fc": "6 – 13 (none: 256x6 prop_1 0.03, 256x4 prop_4 0.05)",
    "oval21": "38 (base; wide and deep: none)",
    "cifar10_resnet": "none (resnet_2b)",
    "vit": "59 and 2.4 GB (pgd, 1 of 3; ibp, 0 of 3, 16.6 GB)",
}
WORDS = {"verified": "unsat", "violated": "sat"}


@dataclass(frozen=True)
class Instance:
    family: str
    network: Path
    property: Path
    expected: str  # sat, unsat, or "" where it is not known

    @property
    def name(self) -> str:
        return f"{self.family} {short(self.network)} {short(self.property)}"


@dataclass(frozen=True)
class Timed:
    answer: str
    cpu_s: float
    wall_s: float
    peak_mib: float = 0.0
    note: str = ""

    @property
    def solved(self) -> bool:
        return self.answer in ("sat", "unsat")


# Ours warm and cold, and the peer's.
Row = tuple[Timed, Timed | None, Timed | None]


def short(path: Path) -> str:
    name = path.name.removesuffix(".gz").removesuffix(".onnx").removesuffix(".vnnlib")
    return name if len(name) <= 26 else f"{name[:12]}…{name[-13:]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--manifest", type=Path)
    parser.add_argument("--family", nargs="*", help="only these")
    parser.add_argument(
        "--skip", nargs="*", default=[], metavar="WORD", help="none with one of these in its paths"
    )
    parser.add_argument(
        "--csv", type=Path, metavar="FILE", help="rows are kept here; those that are there stay"
    )
    parser.add_argument("--timeout", type=float, default=120.0)
    parser.add_argument("--method", default="complete")
    parser.add_argument("--cold", action="store_true")
    parser.add_argument("--neuralsat", type=Path, metavar="PYTHON")
    options = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    instances = read_manifest(options.manifest) if options.manifest else examples()
    if options.family:
        instances = [one for one in instances if one.family in options.family]
    instances = [
        one for one in instances if not any(word in f"{one.network} {one.property}" for word in options.skip)
    ]
    print(f"{'instance':60} {'known':6} {'warm':>12} {'CPU s':>8} {'wall s':>8}", end="")
    print(f" {'cold CPU s':>10} {'wall s':>7} {'MiB':>6}" if options.cold else "", end="")
    print(f" {'NeuralSAT':>10} {'CPU s':>8}" if options.neuralsat else "")
    rows = [kept_or_run(instance, options) for instance in instances]
    sys.exit(summary(instances, rows))


def kept_or_run(instance: Instance, options: argparse.Namespace) -> Row:
    """The row of an instance, from the file where it is there."""
    if options.csv is None:
        return line(instance, options)
    key = f"{instance.network.name} {instance.property.name}"
    if options.csv.exists():
        for one in csv.reader(options.csv.open(newline="")):
            if one[0] == key:
                ours, apart, peer = (Timed(*json.loads(text)) if text else None for text in one[1:])
                assert ours is not None
                return ours, apart, peer
    row = line(instance, options)
    with options.csv.open("a", newline="") as file:
        csv.writer(file).writerow([key, *("" if one is None else json.dumps(astuple(one)) for one in row)])
    return row


def line(instance: Instance, options: argparse.Namespace) -> Row:
    ours = warm(instance, options.timeout, options.method)
    print(f"{instance.name:60} {instance.expected:6} {ours.answer:>12} ", end="")
    print(f"{ours.cpu_s:8.2f} {ours.wall_s:8.2f}", end="", flush=True)
    apart = cold(instance, options.timeout, options.method) if options.cold else None
    if apart is not None:
        print(f" {apart.cpu_s:10.2f} {apart.wall_s:7.2f} {apart.peak_mib:6.0f}", end="", flush=True)
    peer = neuralsat(instance, options.timeout, options.neuralsat) if options.neuralsat else None
    if peer is not None:
        print(f" {peer.answer:>10} {peer.cpu_s:8.2f}", end="")
    solved = ours.answer in ("sat", "unsat")
    print("" if solved else f"   {ours.note[:150]}", flush=True)
    return ours, apart, peer


def families(instances: list[Instance], rows: list[Row]) -> None:
    """A line a family, and what is left of α,β-CROWN's time in the median."""
    width = max(len(one.family) for one in instances)
    print(
        f"\n{'family':{width}} {'solved':>9} {'warm CPU s':>12} {'cold CPU s':>12} {'peak MiB':>9}  α,β-CROWN CPU s"
    )
    for family in dict.fromkeys(one.family for one in instances):
        mine = [row for one, row in zip(instances, rows, strict=True) if one.family == family]
        solved = [row for row in mine if row[0].solved]
        warm_s, cold_s = (
            median(row[0].cpu_s for row in solved),
            median(row[1].cpu_s for row in solved if row[1]),
        )
        peak = max((row[1].peak_mib for row in mine if row[1]), default=0.0)
        print(
            f"{family:{width}} {len(solved):>3} of {len(mine):>2} {warm_s:12.2f} {cold_s:12.2f} {peak:9.0f}",
            end="",
        )
        print(f"  {PEER.get(family, '')}")
    cold_s = median(row[1].cpu_s for row in rows if row[1] and row[0].solved)
    warm_s = median(row[0].cpu_s for row in rows if row[0].solved)
    print(
        f"median of the solved: warm {warm_s:.2f}, cold {cold_s:.2f} CPU s, of α,β-CROWN's {PEER_MEDIAN_S} (",
        end="",
    )
    print(f"{PEER_IMPORTS_S} its imports): {warm_s / PEER_MEDIAN_S:.3f} and {cold_s / PEER_MEDIAN_S:.3f}")
    print(
        f"largest peak of a cold process: {max((row[1].peak_mib for row in rows if row[1]), default=0.0):.0f} MiB"
    )


def median(values: Iterable[float]) -> float:
    found = list(values)
    return statistics.median(found) if found else math.nan


def summary(instances: list[Instance], rows: list[Row]) -> int:
    if any(row[1] for row in rows):
        families(instances, rows)
    answers = [row[0].answer for row in rows]
    wrong = [
        one.name
        for one, answer in zip(instances, answers, strict=True)
        if answer in ("sat", "unsat") and one.expected and answer != one.expected
    ]
    solved = [row for row in rows if row[0].solved]
    print(f"\nsolved {len(solved)} of {len(rows)}, wrong {len(wrong)} {wrong or ''}")
    if solved:
        print(f"median of the solved: warm {statistics.median(row[0].cpu_s for row in solved):.2f} CPU s")
    both = [(o, c, p) for o, c, p in solved if p is not None and p.answer in ("sat", "unsat")]
    if both:
        theirs = sum(1 for row in rows if row[2] is not None and row[2].answer in ("sat", "unsat"))
        print(
            f"NeuralSAT solved {theirs}; where both did ({len(both)}), median of ours / NeuralSAT's CPU:",
            end="",
        )
        print(f" warm {statistics.median(o.cpu_s / p.cpu_s for o, _, p in both):.3f}", end="")
        ratios = [c.cpu_s / p.cpu_s for _, c, p in both if c is not None]
        print(f", cold {statistics.median(ratios):.3f}" if ratios else "")
    return 1 if wrong else 0


# ------------------------------------------------------------ instances


def examples() -> list[Instance]:
    folder = ROOT / "resources" / "examples"
    found = []
    for prop in sorted(folder.glob("*/*.vnnlib")):
        networks = sorted(prop.parent.glob("*.onnx")) or sorted((folder / "networks").glob("*.onnx"))
        stem = prop.parent.name.split("-")[0]
        network = next((one for one in networks if stem in one.stem), networks[0])
        found.append(Instance("examples", network, prop, ""))
    return found


def read_manifest(path: Path) -> list[Instance]:
    folder = path.resolve().parent
    rows = list(csv.DictReader(path.open(newline="")))
    return [
        Instance(row.get("family", ""), folder / row["onnx"], folder / row["vnnlib"], row.get("verdict", ""))
        for row in rows
    ]


# ------------------------------------------------------------ who runs


def warm(instance: Instance, timeout_s: float, method: str) -> Timed:
    """In this process, which has imported everything."""
    import torch

    from boundscope.monitor import Monitor
    from boundscope.protocol import FileRef, Method, PropertyFile, VerifyJob
    from boundscope.sharding.ranks import RankGroup
    from boundscope.worker.files import JobFiles
    from boundscope.worker.verify import run_verify

    torch.set_num_threads(1)

    def ref(path: Path) -> FileRef:
        return FileRef(name=path.name, sha256="0" * 64, size_bytes=path.stat().st_size)

    job = VerifyJob(
        network=ref(instance.network),
        property=PropertyFile(file=ref(instance.property)),
        method=Method(method),
        timeout_s=timeout_s,
    )
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    result = run_verify(
        job, JobFiles(instance.network, instance.property), Monitor(timeout_s=timeout_s), RankGroup()
    )
    answer = WORDS.get(result.verdict.value, result.verdict.value)
    return Timed(
        answer,
        time.process_time() - cpu_s,
        time.perf_counter() - wall_s,
        note=result.reason.replace("\n", " "),
    )


def cold(instance: Instance, timeout_s: float, method: str) -> Timed:
    words = [sys.executable, "-m", "boundscope", "verify", str(instance.network), str(instance.property)]
    words += ["--method", method, "--timeout", str(timeout_s), "--threads", "1", "--json", "-"]
    timed, _ = measured(words, timeout_s, ROOT)
    return timed


def neuralsat(instance: Instance, timeout_s: float, python: Path) -> Timed:
    """Its own command line, in the folder where it lies."""
    where = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    )
    folder = Path(where.stdout.strip()) / "src"
    with tempfile.TemporaryDirectory() as place:
        network, prop = (unpacked(path, Path(place)) for path in (instance.network, instance.property))
        words = [str(python), "main.py", "--net", str(network), "--spec", str(prop), "--device", "cpu"]
        words += ["--timeout", str(timeout_s), "--verbosity", "0"]
        timed, text = measured(words, timeout_s, folder)
    lines = [one for one in text.splitlines() if "," in one]
    answer = lines[-1].split(",")[0] if lines else "error"
    return Timed(answer, timed.cpu_s, timed.wall_s, timed.peak_mib)


def unpacked(path: Path, folder: Path) -> Path:
    target = folder / path.name.removesuffix(".gz")
    if path.suffix == ".gz":
        with gzip.open(path) as source, target.open("wb") as sink:
            shutil.copyfileobj(source, sink)
        return target
    return path


def measured(words: list[str], timeout_s: float, folder: Path) -> tuple[Timed, str]:
    """CPU and wall of a process and its children, its own peak memory, and what it printed."""
    started = time.perf_counter()
    peak_mib = 0.0
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(words, cwd=folder, stdout=out, stderr=subprocess.DEVNULL)
        while True:
            peak_mib = max(peak_mib, resident_peak_mib(process.pid))
            pid, status, usage = os.wait4(process.pid, os.WNOHANG)
            if pid:
                break
            if time.perf_counter() - started > timeout_s + 60:
                process.kill()
            time.sleep(0.02)
        process.returncode = os.waitstatus_to_exitcode(status)
        out.seek(0)
        text = out.read()
    cpu_s = usage.ru_utime + usage.ru_stime
    return Timed("", cpu_s, time.perf_counter() - started, peak_mib or usage.ru_maxrss / 1024), text


def resident_peak_mib(pid: int) -> float:
    """Of a process that runs, 0 where the system does not say. What `wait4` tells counts the process that it was forked
    from, too, which holds torch here."""
    try:
        text = Path(f"/proc/{pid}/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return 0.0
    return next((int(one.split()[1]) / 1024 for one in text.splitlines() if one.startswith("VmHWM:")), 0.0)


if __name__ == "__main__":
    main()
