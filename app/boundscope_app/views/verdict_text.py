"""The verdict page as rich text: everything that a reader of a safety case looks for, in reading order."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from PySide6.QtGui import QImage

from boundscope.protocol import (
    MEMORY_CATEGORIES,
    ClauseMargin,
    Counterexample,
    InstancesJob,
    InstancesResult,
    JobInfo,
    JobState,
    SearchSummary,
    VariabilityJob,
    VariabilityResult,
    Verdict,
    VerifyJob,
    VerifyResult,
)
from boundscope.records import JobRecord, above_zero, search_words
from boundscope_app.theme import Theme
from boundscope_app.views import instances_text, variability_text
from boundscope_app.views.counterexample import input_picture
from boundscope_app.views.html import Html, escape
from boundscope_app.views.text import (
    aligned,
    byte_size,
    capital,
    clause_name,
    count,
    domains_text,
    number,
    property_name,
    seconds,
)

MOST_ROWS = 40
MOST_WORDS = 12
TWO_COLUMNS_PX = 980

IN_WORDS = {
    Verdict.VERIFIED: ("Verified", "No input in the box violates the property."),
    Verdict.VIOLATED: ("Violated", "An input in the box violates the property; it is shown below."),
    Verdict.UNKNOWN: (
        "Unknown",
        "The method could neither prove the property nor find an input that violates it.",
    ),
    Verdict.TIMEOUT: (
        "Timeout",
        "The time limit passed before the property was proved or an input violated it.",
    ),
    Verdict.OUT_OF_MEMORY: ("Out of memory", "The memory budget was exhausted before there was an answer."),
    Verdict.ERROR: ("Error", "The run stopped before there was an answer."),
}
STATE_WORDS = {
    JobState.QUEUED: ("Queued", "Waiting for its turn."),
    JobState.STARTING: ("Starting", "The ranks are being started."),
    JobState.RUNNING: ("Running", "There is no verdict yet."),
    JobState.PAUSING: ("Pausing", "The run was asked to pause; it stands as soon as a step has ended."),
    JobState.PAUSED: ("Paused", "The run stands still and keeps what it has; its time limit does not run."),
    JobState.CANCELLING: ("Cancelling", "The run was asked to stop."),
    JobState.FINISHED: ("Finished", "The run has ended."),
    JobState.FAILED: ("Failed", "The run ended without a verdict."),
    JobState.CANCELLED: ("Cancelled", "Somebody cancelled the run; there is no verdict."),
    JobState.INTERRUPTED: (
        "Interrupted",
        "The daemon went away while the run was going; there is no verdict.",
    ),
}

NOISE_STATE_WORDS = {
    JobState.RUNNING: "Samples are being taken; the Variability view shows what they say so far.",
    JobState.FAILED: "The run ended without a measurement.",
    JobState.CANCELLED: "Somebody cancelled the run before it was complete.",
    JobState.INTERRUPTED: "The daemon went away while the run was going; there is no measurement.",
}

BENCHMARK_STATE_WORDS = {
    JobState.RUNNING: "Instances are being verified; the Instances view shows those that have ended.",
    JobState.FAILED: "The run ended before all instances had.",
    JobState.CANCELLED: "Somebody cancelled the run; instances that had ended are in the Instances view.",
    JobState.INTERRUPTED: (
        "The daemon went away while the run was going; instances that had ended are in the Instances view."
    ),
}


@dataclass
class VerdictText:
    """Rich text and the pictures that it names."""

    markup: str
    images: dict[str, QImage] = field(default_factory=dict)


def job_state(info: JobInfo | None, record: JobRecord) -> JobState:
    """The newer of what the job list and the event stream say."""
    if info is not None and (info.state.ended or record.state is JobState.QUEUED):
        return info.state
    return record.state


def failure_cause(info: JobInfo | None, record: JobRecord) -> str:
    """Why a run ended without a result, in one or more sentences."""
    causes = [
        f.cause if f.rank is None or "rank" in f.cause else f"Rank {f.rank}: {f.cause}"
        for f in record.failures
    ]
    if info is not None and info.cause:
        causes.insert(0, info.cause)
    elif record.state_reason:
        causes.insert(0, record.state_reason)
    return " ".join(dict.fromkeys(causes))


def outcome_of(record: JobRecord) -> VerifyResult | VariabilityResult | InstancesResult | None:
    """What the run ended with, be it a verdict, a measurement or many verdicts."""
    return record.result or record.variability or record.benchmark


def verdict_text(
    info: JobInfo | None, record: JobRecord, theme: Theme, *, with_progress: bool, width: int
) -> VerdictText:
    """The whole page, in two columns from TWO_COLUMNS_PX on.

    `with_progress` adds the running stage, which the window shows in a bar of its own.
    """
    h = Html(theme)
    page = VerdictText("")
    result, noise, outcome = record.result, record.variability, outcome_of(record)
    parts = [_banner(h, info, record)]
    if (
        with_progress
        and outcome is None
        and record.progress is not None
        and not job_state(info, record).ended
    ):
        parts.append(h.paragraph(progress_line(record)))
    left: list[str] = []
    right = [_what_was_run(h, info, record)]
    if result is not None:
        parts.append(_tiles(h, result))
        if result.search is not None:
            parts.append(_searched(h, result.search))
        if result.counterexample is not None:
            left.append(_counterexample(h, result, record, page))
        left.append(_margins(h, result.margin.per_clause))
        right.append(_resources(h, result))
        right.append(h.heading("Versions") + h.pairs(sorted(result.versions.items())))
    if noise is not None:
        parts.append(variability_text.tiles(h, noise))
        left.append(variability_text.result_markup(h, noise))
        right.append(variability_text.resources_markup(h, noise))
    if record.benchmark is not None:
        parts.append(instances_text.tiles(h, record.benchmark.tally))
        left.append(instances_text.result_markup(h, record))
        versions = sorted(record.benchmark.versions.items())
        right.append(h.heading("Versions") + h.pairs(versions) if versions else "")
    if record.property is not None:
        words = "".join(h.paragraph(words) for words in record.property.words[:MOST_WORDS])
        left.append(h.heading("The property in words") + words)
    if width >= TWO_COLUMNS_PX and any(left):
        parts.append(h.columns("".join(left), "".join(right)))
    else:
        parts += left + right
    if outcome is not None and outcome.command:
        parts.append(h.heading("The same from the command line") + h.code(outcome.command))
    page.markup = "".join(parts)
    return page


def progress_line(record: JobRecord) -> str:
    """Stage, units done and time to go, as one line."""
    progress = record.progress
    if progress is None:
        return ""
    text = progress.stage
    if progress.open is not None:
        text += f": {domains_text(progress.done, progress.open)}"
    elif progress.total:
        text += f": {progress.done} of {progress.total}"
    if progress.eta_s is not None:
        text += f", about {seconds(progress.eta_s)} to go"
    return text


def _banner(h: Html, info: JobInfo | None, record: JobRecord) -> str:
    result, noise = record.result, record.variability
    if result is not None:
        key = result.verdict.value
        word, sentence = IN_WORDS[result.verdict]
        more = result.reason
    elif noise is not None:
        key = "measured" if noise.verdict is None else noise.verdict.value
        word, sentence = variability_text.heading_words(noise)
        more = noise.reason
    elif record.benchmark is not None:
        verdict = record.benchmark.verdict
        key = "finished" if verdict is None else verdict.value
        word, sentence = instances_text.heading_words(record.benchmark)
        more = record.benchmark.reason
    else:
        state = job_state(info, record)
        key = state.value
        word, sentence = _state_words(info, state)
        more = failure_cause(info, record) if state.ended or record.failures else ""
    color, fill = h.theme.verdict_colors(key)
    if result is not None and result.verdict in (Verdict.VERIFIED, Verdict.VIOLATED):
        sentence += (
            f" Proven in {result.arithmetic} arithmetic." if result.verdict is Verdict.VERIFIED else ""
        )
    markup = (
        f'<p style="font-size:34px; font-weight:700; color:{color}; margin:0">{escape(word)}</p>'
        f'<p style="font-size:17px; margin-top:4px; margin-bottom:0">{escape(sentence)}</p>'
    )
    if more and more.rstrip(".") not in sentence:
        lines = escape(capital(more)).replace("\n", "<br>")
        markup += f'<p style="margin-top:8px; margin-bottom:0; color:{h.theme.text}">{lines}</p>'
    return h.box(markup, fill)


def _state_words(info: JobInfo | None, state: JobState) -> tuple[str, str]:
    word, sentence = STATE_WORDS[state]
    if info is not None and isinstance(info.job, VariabilityJob):
        sentence = NOISE_STATE_WORDS.get(state, sentence)
    if info is not None and isinstance(info.job, InstancesJob):
        sentence = BENCHMARK_STATE_WORDS.get(state, sentence)
    return word, sentence


def _tiles(h: Html, result: VerifyResult) -> str:
    spent = result.seconds
    peak = max((memory.resident_peak_bytes for memory in result.peak_bytes), default=None)
    return h.tiles(
        (
            ("Smallest margin", _smallest(result)),
            ("Arithmetic", result.arithmetic),
            ("Time", seconds(spent.load + spent.parse + spent.solve)),
            ("Resident peak of a rank, above idle", byte_size(peak)),
        )
    )


def _searched(h: Html, search: SearchSummary) -> str:
    words = escape(search_words(search))
    return f'<p style="margin-top:12px; margin-bottom:0">Branch and bound: {words}.</p>'


def _smallest(result: VerifyResult) -> str:
    """The smallest proven margin; where none was proven, the least that was seen."""
    if above_zero(result.margin):
        return "above 0"
    if result.margin.smallest is not None:
        return number(result.margin.smallest)
    seen = [margin.upper for margin in result.margin.per_clause if margin.upper is not None]
    return f"≤ {number(min(seen))}" if seen else "–"


def _margins(h: Html, margins: Sequence[ClauseMargin]) -> str:
    if not margins:
        return ""
    single = len({m.case for m in margins}) == 1
    worst = sorted(
        margins,
        key=lambda m: (-math.inf if m.lower is None else m.lower, math.inf if m.upper is None else m.upper),
    )
    rows = [
        (
            clause_name(m.case, m.clause, single),
            aligned(m.lower, 6),
            aligned(m.upper, 6),
            _standing(m),
            m.text if len(m.text) <= 160 else m.text[:157] + "…",
        )
        for m in worst[:MOST_ROWS]
    ]
    columns = ("", "Margin, proven at least", "Smallest seen", "", "Violated where")
    text = h.heading("Margin of each clause")
    told = "The margin is the distance from violation: a clause is excluded where it is proven to be above 0."
    if any(m.excluded and m.lower == 0 for m in margins):
        told += " Where branch and bound excluded one, how far above is not known: it says 0."
    text += h.paragraph(told, muted=True)
    text += h.grid(columns, rows, frozenset({0, 3, 4}))
    if len(worst) > MOST_ROWS:
        rest = len(worst) - MOST_ROWS
        text += h.paragraph(
            f"These are the {MOST_ROWS} smallest of {len(worst)}; the CSV holds the other {rest} too.",
            muted=True,
        )
    return text


def _standing(margin: ClauseMargin) -> str:
    if margin.excluded:
        return "✓ excluded"
    if margin.upper is not None and margin.upper <= 0:
        return "✗ reached"
    return "? open"


def _counterexample(h: Html, result: VerifyResult, record: JobRecord, page: VerdictText) -> str:
    found, reason = result.counterexample, result.reason
    assert found is not None
    replay = found.replay
    text = h.heading("The input that violates the property")
    yes = {True: "yes", False: "no"}
    checks = [
        ("Inside the input box", yes[replay.inside_box]),
        ("Violates in ONNX Runtime", yes[replay.violates]),
        ("… also without graph optimisation", yes[replay.violates_unoptimized]),
        ("Violated clause", f"case {found.case}, clause {found.clause}: {found.clause_text}"),
    ]
    if replay.note and replay.note not in reason:
        checks.append(("Note", replay.note))
    text += h.pairs(checks)
    picture = input_picture(found)
    if picture is not None:
        page.images["counterexample"] = picture.image()
        shape = " × ".join(str(size) for size in found.input_shape) or str(len(found.inputs))
        text += '<p style="margin-top:10px; margin-bottom:2px"><img src="counterexample"></p>'
        text += h.paragraph(f"Input of shape {shape}; {picture.note}.", muted=True)
    else:
        text += h.paragraph("Input values:", muted=True) + _inputs(h, found, record)
    names = ("Output", "Solver", "ONNX Runtime")
    replayed = list(replay.outputs) + [None] * len(found.outputs)
    rows = [(f"Y_{i}", number(y, 9), number(replayed[i], 9)) for i, y in enumerate(found.outputs[:MOST_ROWS])]
    text += h.paragraph("Output values:", muted=True) + h.grid(names, rows, frozenset({0}))
    return text + _cut(h, len(found.outputs))


def _inputs(h: Html, found: Counterexample, record: JobRecord) -> str:
    known = () if record.property is None else record.property.inputs
    rows = []
    for index, value in enumerate(found.inputs[:MOST_ROWS]):
        box = known[index] if index < len(known) and found.case == 0 else None
        name = f"X_{index}" if box is None else box.variable
        rows.append((name, "–" if box is None else box.lower, value, "–" if box is None else box.upper))
    columns = ("Input", "Lower bound", "Value", "Upper bound")
    return h.grid(columns, rows, frozenset({0})) + _cut(h, len(found.inputs))


def _cut(h: Html, count: int) -> str:
    if count <= MOST_ROWS:
        return ""
    return h.paragraph(f"The first {MOST_ROWS} of {count}; the CSV holds them all.", muted=True)


def _what_was_run(h: Html, info: JobInfo | None, record: JobRecord) -> str:
    rows: list[tuple[str, str]] = []
    if info is not None and isinstance(info.job, VerifyJob):
        job = info.job
        rows += [
            ("Network", f"{job.network.name}  (SHA-256 {job.network.sha256[:16]}…)"),
            ("Property", property_name(job)),
            ("Method", job.method.label),
            ("Engine", job.engine.value),
            ("Arithmetic", job.arithmetic.label),
            ("Ranks", f"{job.ranks}, sharding {job.sharding.value}"),
            ("Time limit", seconds(job.timeout_s)),
            ("Seed", str(job.seed)),
        ]
    elif info is not None and isinstance(info.job, VariabilityJob):
        rows += variability_text.run_rows(info.job)
    elif info is not None and isinstance(info.job, InstancesJob):
        rows += instances_text.run_rows(info.job)
    if record.network is not None:
        net = record.network
        rows.append(
            ("Graph", f"{len(net.nodes)} nodes, {count(net.parameters)} parameters, opset {net.opset}")
        )
    if info is not None:
        started = time.strftime("%Y-%m-%d %H:%M:%S %Z", time.localtime(info.started_s or info.created_s))
        rows.append(("Started", started + (f" on {info.host}" if info.host else "")))
        rows.append(("Job", info.id))
    return h.heading("The run") + h.pairs(rows) if rows else ""


def _resources(h: Html, result: VerifyResult) -> str:
    spent = result.seconds
    text = h.heading("Time and memory")
    text += h.pairs(
        (
            ("Load the network", seconds(spent.load)),
            ("Read the property", seconds(spent.parse)),
            ("Solve", seconds(spent.solve)),
        )
    )
    categories = [c for c in MEMORY_CATEGORIES if any(m.by_category.get(c) for m in result.peak_bytes)]
    columns = ("Peaks of rank", "resident, above idle", "ledger", *categories)
    rows = [
        (
            str(memory.rank),
            byte_size(memory.resident_peak_bytes),
            byte_size(memory.ledger_peak_bytes),
            *(byte_size(memory.by_category.get(category, 0)) for category in categories),
        )
        for memory in sorted(result.peak_bytes, key=lambda m: m.rank)
    ]
    return text + (h.grid(columns, rows, frozenset({0})) if rows else "")
