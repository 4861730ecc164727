"""The HTML page of a report: one file with its style and pictures inside, for the screen and for paper."""

from __future__ import annotations

import base64
import io
import time
from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from boundscope.protocol import (
    Counterexample,
    CrossCheck,
    FileRef,
    InstancesJob,
    InstancesResult,
    Job,
    JobInfo,
    PropertyFile,
    PropertySummary,
    SearchSummary,
    VariabilityJob,
    VariabilityResult,
    VerifyJob,
    VerifyResult,
)
from boundscope.records import Cell, JobRecord, Table, above_zero, search_words, variability_tables
from boundscope.report.pictures import Pictures

ROWS_SHOWN = 200
Ended = VerifyResult | VariabilityResult | InstancesResult
_MEANING = {
    "verified": "No input of the box violates the property.",
    "violated": "An input was found that violates the property; it is shown below and was replayed.",
    "unknown": "Neither a proof nor a counterexample was found.",
    "timeout": "The time limit passed before there was a proof or a counterexample.",
    "out_of_memory": "The memory limit was reached before there was a proof or a counterexample.",
    "error": "The run could not be carried out.",
}
_TABLE_TITLES = {
    "noise": "Significant bits of each layer",
    "decisions": "Decisions",
    "coverage": "What was perturbed",
    "sources": "Where the noise at the outputs comes from",
    "deployed": "What is proven beside what was observed",
}
_PICTURE_TITLES = {"verdict": "Verdict", "bound_gap": "Bound gap", "memory": "Memory", "layers": "Layers"}
_NOT_ON_THE_PAGE = (
    "verdict",
    "log",
    "layers",
    "instances",
)  # the page says these in text and tables of its own


def page(record: JobRecord, info: JobInfo, pictures: Pictures) -> str:
    """The whole page as text; every value that came from outside is escaped."""
    result = record.result
    found = record.variability
    if record.benchmark is not None:
        sections = _benchmark(info, record, record.benchmark)
    else:
        sections = [_header(info, record) if found is None else _noise_header(info, found)]
    if record.property is not None:
        sections.append(_property(record.property))
    if result is not None:
        if result.counterexample is not None:
            sections.append(_counterexample(result.counterexample, result.reason))
        if result.margin.per_clause:
            sections.append(_section("Margins", _table(record.margin_table())))
    if found is not None:
        sections += _noise(found)
    sections.append(_pictures(pictures))
    if record.layers:
        sections.append(_section("Layers", _table(record.layer_table())))
    if result is not None and result.cross_check is not None:
        sections.append(_cross_check(result.cross_check, record.cross_check_table()))
    ended = result or found or record.benchmark
    if ended is not None:
        sections.append(_cost(ended))
    sections.append(_provenance(info, ended))
    if record.property is not None:
        sections.append(_input_box(record.property))
    if record.log:
        sections.append(_log(record))
    style = files("boundscope.report").joinpath("style.css").read_text(encoding="utf-8")
    verdict = "no result" if result is None else result.verdict.replace("_", " ")
    if found is not None:
        verdict = _noise_word(found)
    if record.benchmark is not None:
        verdict = f"{record.benchmark.tally.solved} of {record.benchmark.tally.total} solved"
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(verdict)}: {escape(info.title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n"
        + "\n".join(section for section in sections if section)
        + "\n</body>\n</html>\n"
    )


# ---------------------------------------------------------------- sections


def _header(info: JobInfo, record: JobRecord) -> str:
    result = record.result
    if result is None:
        causes = [info.cause, record.state_reason, *(failure.cause for failure in record.failures)]
        reason = next((cause for cause in causes if cause), "")
        return (
            f'<header>\n<h1>{escape(info.title)}</h1>\n<div class="verdict none">no result</div>\n'
            f"<p>The job is {escape(info.state)}. {escape(_sentence(reason))}</p>\n</header>"
        )
    seconds = result.seconds
    facts = (
        ("Arithmetic", result.arithmetic or "none"),
        _margin_fact(result),
        ("Time", f"{seconds.load + seconds.parse + seconds.solve:.3f} s"),
        ("Method", f"{info.job.method}, {info.job.engine}" if isinstance(info.job, VerifyJob) else ""),
    )
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    verdict = result.verdict.value
    return (
        f"<header>\n<h1>{escape(info.title)}</h1>\n"
        f'<div class="verdict {verdict}">{verdict.replace("_", " ")}</div>\n'
        f"<p>{_MEANING[verdict]} {escape(_sentence(result.reason))}</p>\n"
        f'<dl class="facts">{cells}</dl>\n{_searched(result.search)}</header>'
    )


def _searched(search: SearchSummary | None) -> str:
    return "" if search is None else f"<p>Branch and bound: {escape(search_words(search))}.</p>\n"


def _noise_word(result: VariabilityResult) -> str:
    return "measured" if result.verdict is None else result.verdict.replace("_", " ")


def _noise_header(info: JobInfo, result: VariabilityResult) -> str:
    seconds = result.seconds
    facts = (
        ("Arithmetic", result.arithmetic or "none"),
        ("Samples", f"{result.samples} of {result.samples_asked}"),
        ("Points", result.inputs or "none"),
        ("Time", f"{seconds.load + seconds.parse + seconds.solve:.3f} s"),
    )
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    verdict = "none" if result.verdict is None else result.verdict.value
    return (
        f"<header>\n<h1>{escape(info.title)}</h1>\n"
        f'<div class="verdict {verdict}">{_noise_word(result)}</div>\n'
        f"<p>{escape(_sentence(result.reason))}</p>\n"
        f'<dl class="facts">{cells}</dl>\n</header>'
    )


def _benchmark(info: JobInfo, record: JobRecord, result: InstancesResult) -> list[str]:
    """How many instances were solved, and a row of each."""
    tally = result.tally
    facts = [(verdict.replace("_", " "), str(count)) for verdict, count in tally.counts.items()]
    facts += [("Time", f"{tally.seconds:.3f} s")]
    if isinstance(info.job, InstancesJob):
        facts += [("Method", f"{info.job.verify.method}, {info.job.verify.engine}")]
        facts += [("Arithmetic", info.job.verify.arithmetic.label)]
    cells = "".join(f"<div><dt>{escape(name)}</dt><dd>{escape(value)}</dd></div>" for name, value in facts)
    look = "verified" if result.verdict is None else result.verdict.value
    header = (
        f"<header>\n<h1>{escape(info.title)}</h1>\n"
        f'<div class="verdict {look}">{tally.solved} of {tally.total} solved</div>\n'
        f"<p>{escape(_sentence(result.reason))}</p>\n"
        f'<dl class="facts">{cells}</dl>\n</header>'
    )
    return [header, _section("Instances", _table(record.instance_table()))]


def _noise(result: VariabilityResult) -> list[str]:
    """A section a table, with what is said of it in words."""
    words = {
        "noise": [result.baseline and f"The baseline is {result.baseline}"],
        "decisions": [f"{one.layer}: {one.sentence}" for one in result.decisions],
        "coverage": [result.coverage.sentence if result.coverage is not None else ""],
        "sources": [result.sources_note],
        "deployed": [result.deployed_note],
    }
    sections = []
    for table in variability_tables(result):
        said = "".join(f"<p>{escape(_sentence(text))}</p>" for text in words[table.name] if text)
        sections.append(_section(_TABLE_TITLES[table.name], said + _table(table)))
    if not result.deployed and result.deployed_note:
        note = f"<p>{escape(_sentence(result.deployed_note))}</p>"
        sections.append(_section(_TABLE_TITLES["deployed"], note))
    return sections


def _margin_fact(result: VerifyResult) -> tuple[str, str]:
    reached = [clause.upper for clause in result.margin.per_clause if clause.upper is not None]
    if result.counterexample is not None and reached:
        return "Margin reached", f"{min(reached):.6g}"
    smallest = result.margin.smallest
    if above_zero(result.margin):
        return "Smallest proven margin", "above 0"
    return "Smallest proven margin", "none" if smallest is None else f"{smallest:.6g}"


def _property(summary: PropertySummary) -> str:
    words = "".join(f"<p>{escape(sentence)}</p>" for sentence in summary.words)
    clauses = _rows_table(
        ("case", "clause", "violated where"),
        [(row.case, row.clause, row.text) for row in summary.clauses[:ROWS_SHOWN]],
        _of(len(summary.clauses[:ROWS_SHOWN]), summary.clauses_total, "clauses"),
    )
    head = f'<p class="quiet">{escape(summary.name)}, {escape(summary.format)}</p>'
    return _section("The property in words", f"{head}{words}{clauses}")


def _input_box(summary: PropertySummary) -> str:
    rows = [(row.variable, row.lower, row.upper) for row in summary.inputs[:ROWS_SHOWN]]
    caption = _of(len(rows), summary.inputs_total, "inputs")
    return _section("The input box, as written", _side_by_side(("input", "lower", "upper"), rows, caption))


def _counterexample(found: Counterexample, reason: str) -> str:
    replay = found.replay
    checks = (
        ("inside the input box", replay.inside_box),
        ("violates, ONNX Runtime with its optimizations", replay.violates),
        ("violates, ONNX Runtime without them", replay.violates_unoptimized),
    )
    image = _pixels(found)
    figure = (
        f'<figure class="pixels"><img alt="the input as an image" src="{image}">'
        "<figcaption>The input as an image, from its least value (black) to its greatest (white).</figcaption></figure>"
        if image
        else ""
    )
    note = f'<p class="note">{escape(replay.note)}</p>' if replay.note not in reason else ""
    violated = f"<p>Case {found.case}, clause {found.clause}: <code>{escape(found.clause_text)}</code></p>"
    checked = _rows_table(
        ("checked on the original file", ""), [(what, "yes" if held else "no") for what, held in checks]
    )
    outputs = _rows_table(
        ("output", "value"),
        [(f"Y_{index}", value) for index, value in enumerate(found.outputs[:ROWS_SHOWN])],
        _of(min(len(found.outputs), ROWS_SHOWN), len(found.outputs), "outputs"),
    )
    rows = [(f"X_{index}", value) for index, value in enumerate(found.inputs[:ROWS_SHOWN])]
    inputs = _side_by_side(("input", "value"), rows, _of(len(rows), len(found.inputs), "inputs"))
    return _section("Counterexample", violated + figure + checked + note + outputs + inputs)


def _pictures(pictures: Pictures) -> str:
    parts = []
    for path in pictures.paths:
        if path.stem in _NOT_ON_THE_PAGE:
            continue
        title = _PICTURE_TITLES.get(path.stem, path.stem.replace("_", " ").capitalize())
        source = "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()
        parts.append(
            f'<figure><img alt="{escape(title)}" src="{source}"><figcaption>{escape(title)}</figcaption></figure>'
        )
    if pictures.left_out:
        parts.append(f'<p class="note">{escape(pictures.left_out)}</p>')
    return _section("Pictures", "".join(parts)) if parts else ""


def _cross_check(check: CrossCheck, table: Table) -> str:
    sentences = [f"The same cases by {check.method}, bounded by {check.engine}."]
    if check.margin_difference is not None:
        sentences.append(f"Margins differ by at most {check.margin_difference:.3g}.")
    if check.same_layers_difference is not None:
        sentences.append(
            f"From the same hidden bounds they differ by at most {check.same_layers_difference:.3g}."
        )
    sentences.append(
        "The engines disagree:"
        if check.disagreements
        else "Nothing that the engines prove excludes the other."
    )
    sentences += check.disagreements
    if check.left_out:
        sentences.append(f"Not compared: {check.left_out}")
    paragraphs = "".join(f"<p>{escape(sentence)}</p>" for sentence in sentences)
    return _section("Cross-check", paragraphs + _table(table))


def _cost(result: Ended) -> str:
    times = ""
    if not isinstance(result, InstancesResult):
        seconds = result.seconds
        times = _rows_table(
            ("step", "seconds"), [("load", seconds.load), ("parse", seconds.parse), ("solve", seconds.solve)]
        )
    categories = sorted({name for memory in result.peak_bytes for name in memory.by_category})
    memory = _rows_table(
        ("rank", "counted peak [B]", "resident peak [B]", *(f"{name} [B]" for name in categories)),
        [
            (
                peak.rank,
                peak.ledger_peak_bytes,
                peak.resident_peak_bytes,
                *(peak.by_category.get(name, 0) for name in categories),
            )
            for peak in result.peak_bytes
        ],
    )
    return _section("Time and memory", times + memory)


def _files(job: Job) -> list[tuple[str, FileRef]]:
    """The files of a job, each with its role."""
    if isinstance(job, InstancesJob):
        pairs = [("network", each) for each in job.networks] + [("property", each) for each in job.properties]
        return pairs[:ROWS_SHOWN]
    found = [] if job.network is None else [("network", job.network)]
    if job.property is not None:
        source = job.property
        found.append(("property", source.file if isinstance(source, PropertyFile) else source.center))
    if isinstance(job, VariabilityJob):
        found += [("points", reference) for reference in job.inputs[:ROWS_SHOWN]]
    return found


def _provenance(info: JobInfo, result: Ended | None) -> str:
    rows: list[tuple[Cell, ...]] = []
    for role, reference in _files(info.job):
        text = f"{reference.name}, {reference.size_bytes} bytes, SHA-256 {reference.sha256}"
        rows.append((role, text))
    rows.append(("started", _date(info.started_s)))
    rows.append(("ended", _date(info.ended_s)))
    rows.append(("host", info.host))
    if result is not None:
        rows += [(name, version) for name, version in result.versions.items()]
    command = f"<pre>{escape(result.command)}</pre>" if result is not None and result.command else ""
    return _section("What was run", command + _rows_table(("", ""), rows))


def _log(record: JobRecord) -> str:
    lines = [
        f"{time.strftime('%H:%M:%S', time.localtime(time_s))}  rank {rank}  {line.level:<7}  {line.text}"
        for time_s, rank, line in record.log[-ROWS_SHOWN:]
    ]
    return _section("Log", f"<pre>{escape(chr(10).join(lines))}</pre>")


# ---------------------------------------------------------------- pieces


def _section(title: str, body: str) -> str:
    return f"<section>\n<h2>{escape(title)}</h2>\n{body}\n</section>"


def _table(table: Table) -> str:
    shown = table.rows[:ROWS_SHOWN]
    return _rows_table(
        table.columns, shown, _of(len(shown), len(table.rows), f"rows; all are in {table.name}.csv")
    )


def _of(shown: int, total: int, what: str) -> str:
    return f"the first {shown} of {total} {what}" if shown < total else ""


def _rows_table(columns: Sequence[str], rows: Iterable[Sequence[Cell]], caption: str = "") -> str:
    body = [f"<tr>{''.join(_cell(cell) for cell in row)}</tr>" for row in rows]
    if not body:
        return ""
    first = next(iter(body))
    numeric = ['class="number"' in part for part in first.split("<td")[1:]]
    heads = "".join(
        f"<th{' class=number' if number else ''}>{escape(column)}</th>"
        for column, number in zip(columns, numeric, strict=True)
    )
    head = f"<thead><tr>{heads}</tr></thead>" if any(columns) else ""
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f'<div class="scroll"><table>{title}{head}<tbody>{"".join(body)}</tbody></table></div>'


def _side_by_side(columns: Sequence[str], rows: Sequence[Sequence[Cell]], caption: str) -> str:
    """A long table of short rows as up to three tables beside each other, read downwards."""
    parts = min(3, -(-len(rows) // 8)) or 1
    length = -(-len(rows) // parts)
    tables = [
        _rows_table(columns, rows[start : start + length]) for start in range(0, len(rows), max(length, 1))
    ]
    note = f'<p class="note">{escape(caption)}</p>' if caption else ""
    return f'{note}<div class="beside">{"".join(tables)}</div>'


def _sentence(text: str) -> str:
    """Text with a capital and a full stop, for a page made of sentences."""
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "!", "?", ":")) or not text else ".")


def _cell(cell: Cell) -> str:
    if isinstance(cell, float):
        return f'<td class="number">{cell:.6g}</td>'
    if isinstance(cell, int):
        return f'<td class="number">{cell}</td>'
    return f"<td>{escape(cell or '')}</td>"


def _date(time_s: float | None) -> str:
    return "" if time_s is None else time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(time_s))


def _pixels(found: Counterexample) -> str | None:
    """The input as a PNG in a data URL, where its shape is that of a grey or colour image; else None."""
    shape = [size for size in found.input_shape if size != 1] or [0]
    if len(shape) == 2:
        height, width, channels = *shape, 1
    elif len(shape) == 3 and shape[0] == 3:
        channels, height, width = shape
    else:
        return None
    if min(height, width) < 4 or height * width * channels != len(found.inputs):
        return None
    import numpy as np
    from PIL import Image

    values = np.array([float(text) for text in found.inputs]).reshape(channels, height, width)
    spread = values.max() - values.min()
    scaled = (values - values.min()) / spread if spread > 0 else np.zeros_like(values)
    grey = np.round(scaled * 255).astype(np.uint8)
    image = Image.fromarray(grey[0] if channels == 1 else np.moveaxis(grey, 0, 2))
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()
