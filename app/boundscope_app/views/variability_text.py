"""What a variability job found, in sentences and tables of rich text."""

from __future__ import annotations

from boundscope.protocol import (
    JobInfo,
    LayerNoise,
    RoundingMode,
    SourceSearch,
    VariabilityJob,
    VariabilityResult,
    Verdict,
)
from boundscope.records import JobRecord
from boundscope_app.views.html import Html
from boundscope_app.views.text import MINUS, byte_size, count, number, points_name, precision_name, seconds
from boundscope_app.views.variability_model import digits, layers_now, mark_of, sources_by_layer

MOST_ROWS = 400
END_WORDS = {
    Verdict.TIMEOUT: ("Timeout", "The time limit passed before all samples were taken."),
    Verdict.OUT_OF_MEMORY: (
        "Out of memory",
        "The memory budget was exhausted before all samples were taken.",
    ),
    Verdict.ERROR: ("Error", "The run stopped before there was a measurement."),
}
UD_HINT = "Up-down rounding moves exact results too, by design; stochastic rounding leaves them as they are."
LAYER_COLUMNS = (
    "Layer",
    "Operator",
    "Mean bits",
    "Median bits",
    "Least bits",
    "Digits",
    "Caused bits",
    "Elements",
    "Exact",
    "NaN",
    "Inf",
)
CAUSED, ELEMENTS, EXACT, NAN, INFINITE = range(6, 11)  # columns
LAYER_TIPS = (
    "The name of the ONNX node",
    "The operator of the ONNX node",
    "Mean significant bits of the elements that are not exact",
    "Median of the significant bits",
    "Fewest significant bits of an element",
    "The mean as decimal digits",
    "Significant bits that the outputs keep when this layer alone is perturbed",
    "Elements of the output over all points",
    "Elements that are the same in every sample",
    "Elements that are NaN in a sample",
    "Elements that are infinite in a sample",
)
DEPLOYED_COLUMNS = (
    "Layer",
    "Operator",
    "Elements",
    "Proven width",
    "Proven rounding",
    "Observed",
    "Of proven",
)


DEPLOYED_TIPS = (
    "The name of the ONNX node",
    "The operator of the ONNX node",
    "Elements of the output over all points",
    "Widest proven interval that inputs of the property’s boxes can reach over the reals, in the layer’s unit",
    "Proven: no two results of this arithmetic for one point differ by more, in the layer’s unit",
    "Largest difference of a sample from the unperturbed run, in the layer’s unit",
    "Largest part of the proven rounding that was observed",
)


def heading_words(result: VariabilityResult) -> tuple[str, str]:
    """A word and a sentence on how the run ended."""
    if result.verdict is None:
        return "Measured", result_sentence(result)
    word, sentence = END_WORDS.get(result.verdict, (result.verdict.value, ""))
    return word, sentence


def output_layer(result: VariabilityResult) -> LayerNoise | None:
    """The layer that the first decision is made of; the last one of the network where nothing is decided."""
    names = {each.layer: each for each in result.layers}
    decided = next((names[each.layer] for each in result.decisions if each.layer in names), None)
    return decided or (result.layers[-1] if result.layers else None)


def result_sentence(result: VariabilityResult) -> str:
    """Bits that the output keeps, decisions that flip, and what was rounded."""
    output = output_layer(result)
    parts = []
    if output is not None:
        parts.append(_output_sentence(output))
    if result.decisions:
        flipped = sum(each.flipped for each in result.decisions)
        of = sum(each.decisions for each in result.decisions)
        parts.append(f"{count(flipped)} of {count(of)} decisions flip in at least one sample.")
    if result.coverage is not None:
        parts.append(result.coverage.sentence)
    return " ".join(parts)


def _output_sentence(output: LayerNoise) -> str:
    if output.median_bits is None:
        words = {"exact": "is exact in every sample", "NaN": "is NaN", "Inf": "is infinite"}
        return f"The output layer {output.layer} {words.get(mark_of(output), 'has no measurable bits')}."
    return (
        f"The output layer {output.layer} keeps {output.median_bits:.1f} significant bits in the median "
        f"({digits(output.median_bits):.1f} decimal digits), {number(output.least_bits, 3)} at the least."
    )


def sentences(info: JobInfo | None, record: JobRecord) -> tuple[str, ...]:
    """What stands above the heatmap: coverage, baseline, decisions, notes."""
    result = record.variability
    job = None if info is None else info.job
    said: list[str] = []
    if result is None:
        taken = max((each.samples for each in layers_now(record)), default=0)
        asked = f" of {job.samples}" if isinstance(job, VariabilityJob) else ""
        said.append(
            f"So far each layer is shown by the rank that has taken most samples: {taken}{asked}. "
            "Coverage, baseline and decisions come with the result."
        )
    else:
        if result.coverage is not None:
            said.append(f"Coverage: {result.coverage.sentence}")
        if result.baseline:
            said.append(f"Baseline: {result.baseline.rstrip('.')}.")
        said += [f"Decisions of {each.layer}: {each.sentence.rstrip('.')}." for each in result.decisions]
        if result.verdict is not None:
            said.append(result.reason)
    if isinstance(job, VariabilityJob) and job.mode is RoundingMode.UD:
        said.append(UD_HINT)
    return tuple(said)


def layer_cells(record: JobRecord) -> tuple[tuple[str | int | float | None, ...], ...]:
    """One row a layer, unformatted, in the order of LAYER_COLUMNS."""
    sources = sources_by_layer(record)
    return tuple(
        (
            layer.layer,
            layer.op,
            layer.mean_bits,
            layer.median_bits,
            layer.least_bits,
            digits(layer.mean_bits),
            sources[layer.layer].caused_bits if layer.layer in sources else None,
            layer.elements,
            100 * layer.exact / layer.elements if layer.elements else None,
            layer.nan,
            layer.infinite,
        )
        for layer in layers_now(record)
    )


def layer_text(column: int, value: str | int | float | None) -> str:
    """A cell of the layers as people read it."""
    if value is None:
        return "–"
    if column in (ELEMENTS, NAN, INFINITE):
        return count(int(value))
    if column == EXACT:
        return f"{float(value):.3g} %"
    return f"{value:.2f}".replace("-", MINUS) if isinstance(value, float) else str(value)


def deployed_cells(record: JobRecord) -> tuple[tuple[str | int | float | None, ...], ...]:
    """One row a layer with a proof, in the order of DEPLOYED_COLUMNS."""
    result = record.variability
    return tuple(
        (each.layer, each.op, each.elements, each.width, each.rounding, each.observed, 100 * each.used)
        for each in (() if result is None else result.deployed)
    )


def deployed_text(column: int, value: str | int | float | None) -> str:
    """A cell of proof and measurement as people read it."""
    if value is None:
        return "–"
    if column == 2:
        return count(int(value))
    if column == 6:
        return f"{float(value):.3g} %"
    return number(value, 4) if isinstance(value, float) else str(value)


def violations(record: JobRecord) -> tuple[str, ...]:
    """Sentences on samples outside their proven interval."""
    result = record.variability
    return tuple(each.violation for each in (() if result is None else result.deployed) if each.violation)


def tables_markup(h: Html, record: JobRecord) -> str:
    """The tables of the view for a page: layers, sources, proof and measurement."""
    result = record.variability
    rows = [[layer_text(i, value) for i, value in enumerate(row)] for row in layer_cells(record)]
    markup = h.heading("Layers") + h.grid(LAYER_COLUMNS, rows[:MOST_ROWS], frozenset({0, 1}), wide=True)
    if len(rows) > MOST_ROWS:
        markup += h.paragraph(f"The first {MOST_ROWS} of {len(rows)}; the CSV holds them all.", muted=True)
    if result is None:
        return markup
    if result.sources:
        markup += h.heading("Where the noise comes from") + sources_grid(h, result)
    markup += _note(h, result.sources_note)
    if result.deployed:
        found = [[deployed_text(i, value) for i, value in enumerate(row)] for row in deployed_cells(record)]
        markup += h.heading("Proven and observed") + h.paragraph(DEPLOYED_HINT, muted=True)
        markup += h.grid(DEPLOYED_COLUMNS, found[:MOST_ROWS], frozenset({0, 1}), wide=True)
        markup += "".join(h.paragraph(each) for each in violations(record))
    return markup + _note(h, result.deployed_note)


def _note(h: Html, note: str) -> str:
    return h.paragraph(f"{note[:1].upper()}{note[1:].rstrip('.')}.", muted=True) if note else ""


DEPLOYED_HINT = (
    "In the layer’s unit, the largest over its elements. Width: what inputs of the box make of it. "
    "Rounding: what no two results for one point can differ by more than. Observed: the largest difference of a sample."
)


def sources_grid(h: Html, result: VariabilityResult) -> str:
    """Layers that cause noise at the outputs, those that cause most first."""
    columns = (
        "Layer",
        "Operator",
        "Share of the outputs’ noise",
        "Outputs with it alone [bits]",
        "Its own [bits]",
    )
    rows = [
        (
            each.layer,
            each.op,
            "–" if each.share is None else f"{100 * each.share:.1f} %",
            number(each.caused_bits, 4),
            number(each.shown_bits, 4),
        )
        for each in result.sources[:MOST_ROWS]
    ]
    return h.grid(columns, rows, frozenset({0, 1}), wide=True)


# ---------------------------------------------------------------- the verdict page


def tiles(h: Html, result: VariabilityResult) -> str:
    """The figures that people look for first."""
    output = output_layer(result)
    spent = result.seconds
    figures = (
        ("Median bits of the output", _median(output)),
        ("Samples", f"{result.samples} of {result.samples_asked}"),
        ("Arithmetic", result.arithmetic.partition(",")[0] or "–"),
        ("Time", seconds(spent.load + spent.parse + spent.solve)),
    )
    return h.tiles(figures)


def _median(output: LayerNoise | None) -> str:
    if output is None:
        return "–"
    return mark_of(output) or f"{output.median_bits:.1f}"


def result_markup(h: Html, result: VariabilityResult) -> str:
    """Decisions, points and sources of a finished run."""
    markup = ""
    if result.decisions:
        rows = [
            (
                each.layer,
                count(each.decisions),
                count(each.flipped),
                count(each.flips),
                number(each.least_noise_margin, 3),
            )
            for each in result.decisions
        ]
        columns = ("Output", "Decisions", "Flipped", "Flips in all", "Least margin [deviations of its noise]")
        markup += h.heading("Decisions") + h.grid(columns, rows, frozenset({0}))
    markup += h.heading("What was measured")
    for said in (result.inputs, result.baseline):
        markup += h.paragraph(said[:1].upper() + said[1:].rstrip(".") + ".") if said else ""
    if result.sources:
        markup += h.heading("Where the noise comes from") + sources_grid(h, result)
    markup += _note(h, result.sources_note)
    if any(each.violation for each in result.deployed):
        markup += h.heading("Outside the proof")
        markup += "".join(h.paragraph(each.violation) for each in result.deployed if each.violation)
    return markup


def run_rows(job: VariabilityJob) -> list[tuple[str, str]]:
    """What was run, as names and values."""
    rows = [
        ("Network", f"{job.network.name}  (SHA-256 {job.network.sha256[:16]}…)"),
        ("Points", points_name(job)),
        ("Rounding", job.mode.label),
        ("Precision", precision_name(job.precision)),
        ("Samples", f"{job.samples}, on {job.ranks} {'rank' if job.ranks == 1 else 'ranks'}"),
        ("Seed", str(job.seed)),
        ("Time limit", seconds(job.timeout_s)),
    ]
    if job.source is not SourceSearch.NONE:
        rows.append(("Search for sources", job.source.value.replace("-", " ")))
    return rows


def resources_markup(h: Html, result: VariabilityResult) -> str:
    """Time and memory of the ranks, and versions."""
    spent = result.seconds
    rows = [
        ("Load the network", seconds(spent.load)),
        ("Read the points", seconds(spent.parse)),
        ("Samples", seconds(spent.solve)),
    ]
    rows += [
        (f"Peak memory of rank {memory.rank}, above idle", byte_size(memory.resident_peak_bytes))
        for memory in result.peak_bytes
    ]
    markup = h.heading("Time and memory") + h.pairs(rows)
    return markup + h.heading("Versions") + h.pairs(sorted(result.versions.items()))
