"""How numbers, times and runs are written for people."""

from __future__ import annotations

import math
import re

from boundscope.protocol import InstancesJob, JobInfo, Method, VariabilityJob, VerifyJob
from boundscope.records import JobRecord

MINUS = "\u2212"
METHOD_LABELS = {method.value: method.label for method in Method}


def number(value: float | None, digits: int = 6) -> str:
    """A number with a true minus sign; "–" where there is none, NaN and ∞ by name."""
    if value is None:
        return "–"
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "∞" if value > 0 else f"{MINUS}∞"
    text = f"{value:.{digits}g}"
    mantissa, _, exponent = text.partition("e")
    if exponent:
        return f"{mantissa}e{int(exponent)}".replace("-", MINUS)
    return text.replace("-", MINUS)


def aligned(value: float | None, digits: int) -> str:
    """As `number`, with all of its digits, zeros at the end too: for columns, where they stand below one another."""
    if value is None or not math.isfinite(value) or value == 0:
        return number(value, digits)
    mantissa, _, exponent = f"{value:#.{digits}g}".partition("e")
    text = mantissa.rstrip(".") + (f"e{int(exponent)}" if exponent else "")
    return text.replace("-", MINUS)


def count(value: int) -> str:
    """A count with thin spaces between groups of three digits."""
    return f"{value:,}".replace(",", "\u202f")


def many(value: int, noun: str, plural: str = "") -> str:
    """ "1 line", "12 345 lines"."""
    return f"{count(value)} {noun if value == 1 else plural or noun + 's'}"


def capital(text: str) -> str:
    """A sentence as it begins: the first letter large, unless that is of a name such as that of a file."""
    return text[:1].upper() + text[1:] if text.partition(" ")[0].replace("'", "").isalpha() else text


def step_name(step: str) -> str:
    """A step or a method as people write it: "crown" is CROWN; other words stay as they are."""
    return METHOD_LABELS.get(step, step)


def domains_text(done: int, open: int) -> str:
    """How a branch and bound stands: "12 345 domains, 410 open"."""
    return f"{many(done, 'domain')}, {count(open)} open"


def seconds(value: float | None, *, padded: bool = False) -> str:
    """A duration in the unit that suits it; `padded`: with its three digits, for columns."""
    if value is None or not math.isfinite(value):
        return "–"
    if value < 0.001:
        return f"{value * 1e6:.0f} µs"
    if value < 1:
        return f"{aligned(value * 1e3, 3) if padded else number(value * 1e3, 3)} ms"
    if value < 120:
        return f"{aligned(value, 3) if padded else number(value, 3)} s"
    minutes, rest = divmod(round(value), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min" if hours else f"{minutes} min {rest:02d} s"


BINARY_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def byte_unit(largest: float) -> tuple[str, float]:
    """The binary unit in which the largest value is below 1024, with its size in bytes."""
    size = 1.0
    for unit in BINARY_UNITS[:-1]:
        if largest < 1024 * size:
            return unit, size
        size *= 1024
    return BINARY_UNITS[-1], size


def byte_size(value: float | None, *, padded: bool = False) -> str:
    """A size in binary units, three digits; `padded`: with all three of them, for columns."""
    if value is None:
        return "–"
    unit, size = byte_unit(value)
    shown = value / size
    if unit == "B" or shown >= 100:
        return f"{shown:.0f} {unit}"
    return f"{aligned(shown, 3) if padded else number(shown, 3)} {unit}"


def clause_name(case: int, clause: int, single_case: bool) -> str:
    """How a clause is called in plots and tables; counted from 0 as everywhere."""
    return f"clause {clause}" if single_case else f"case {case} · clause {clause}"


def run_caption(info: JobInfo | None, record: JobRecord | None) -> str:
    """One line: what was run, and how."""
    parts = []
    if info is not None and isinstance(info.job, VerifyJob):
        job = info.job
        parts = [*_title_parts(info.title, job), job.method.label]
        if job.ranks > 1:
            parts.append(f"{job.ranks} ranks, {job.sharding.value}")
        parts.append(f"arithmetic: {job.arithmetic.label}")
    elif info is not None and isinstance(info.job, VariabilityJob):
        noise = info.job
        parts = [noise.network.name, points_name(noise), noise.mode.label, f"{noise.samples} samples"]
        if noise.precision is not None:
            parts.append(precision_name(noise.precision))
        parts.append(f"seed {noise.seed}")
    elif info is not None and isinstance(info.job, InstancesJob):
        how = info.job.verify
        parts = [info.job.name, many(len(info.job.instances), "instance"), how.method.label]
        parts.append(f"arithmetic: {how.arithmetic.label}")
    elif info is not None:
        parts = [info.title or info.id]
    elif record is not None and record.network is not None:
        parts = [record.network.name]
    return "  ·  ".join(parts)


def _title_parts(title: str, job: VerifyJob) -> tuple[str, str]:
    """Network and property as the list of jobs has them: a file that is called "property" goes by its folder there."""
    network, separator, what = title.partition(" · ")
    if separator and " · " not in what:
        return network, what
    return job.network.name, property_name(job)


def points_name(job: VariabilityJob) -> str:
    """Where the points of a run are from, in a few words."""
    if job.draw:
        return f"{job.draw} points drawn from the property’s box"
    return job.inputs[0].name if len(job.inputs) == 1 else f"{len(job.inputs)} files"


def precision_name(bits: int | None) -> str:
    """A virtual precision by its significand bits, the hidden one included."""
    return "as the network computes" if bits is None else f"{bits}-bit significands"


def property_name(job: VerifyJob) -> str:
    """The property as people call it: file name, or the ball's radius and centre."""
    source = job.property
    if hasattr(source, "file"):
        return source.file.name
    return f"ε = {source.epsilon} around {source.center.name}, label {source.label}"


def file_stem(info: JobInfo | None) -> str:
    """A file name without spaces that names the run."""
    text = "boundscope" if info is None else (info.title or info.id)
    return re.sub(r"[^A-Za-z0-9._-]+", "_", text).strip("_") or "boundscope"
