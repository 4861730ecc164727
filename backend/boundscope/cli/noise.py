"""What a variability job found, for people: a few lines, and a row a layer with a bar of its significant bits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

from boundscope.cli.output import seconds_text, size_text
from boundscope.protocol import LayerNoise, VariabilityResult

if TYPE_CHECKING:
    from boundscope.variability.compare import Comparison

BAR = 24
_NAME = 24
_BLOCKS = " ▏▎▍▌▋▊▉█"
_MOST_ROWS = 200


def print_summary(result: VariabilityResult) -> None:
    """On standard output; names are dim and bars have a colour on a terminal."""
    lines = summary_lines(result)
    if not sys.stdout.isatty():
        print("\n".join(f"{name:<16}{value}".rstrip() for name, value in lines))
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(highlight=False)
    for name, value in lines:
        text = Text(value, style="bold red" if name == "verdict" else "")
        text.highlight_regex("[▏-█]+", "cyan")
        console.print(Text.assemble((f"{name:<16}", "dim"), text), soft_wrap=True)


def summary_lines(result: VariabilityResult) -> list[tuple[str, str]]:
    """Name and value of every line, in the order in which people want to know them."""
    lines = [
        ("verdict", "" if result.verdict is None else result.verdict.value),
        ("measured" if result.verdict is None else "reason", result.reason),
        ("arithmetic", result.arithmetic),
        ("baseline", result.baseline),
        ("coverage", "" if result.coverage is None else result.coverage.sentence),
    ]
    lines += [("decisions", f"{one.layer}: {one.sentence}") for one in result.decisions]
    lines += [("layers" if number == 0 else "", row) for number, row in enumerate(layer_rows(result.layers))]
    lines += [("sources" if number == 0 else "", row) for number, row in enumerate(source_rows(result))]
    lines += [("deployed" if number == 0 else "", row) for number, row in enumerate(deployed_rows(result))]
    seconds = result.seconds
    lines.append(
        (
            "time",
            f"load {seconds_text(seconds.load)}, parse {seconds_text(seconds.parse)}, "
            f"solve {seconds_text(seconds.solve)}",
        )
    )
    lines += [
        ("memory", f"rank {memory.rank}: {size_text(memory.resident_peak_bytes)} resident")
        for memory in result.peak_bytes
    ]
    lines += [("files", f"{result.folder}: {', '.join(result.files)}" if result.files else "")]
    lines.append(("reproduce", result.command))
    return [(name, value) for name, value in lines if value]


def layer_rows(layers: Sequence[LayerNoise]) -> list[str]:
    """A heading and one row a layer: elements, how many are exact, mean and least significant bits, a bar."""
    if not layers:
        return []
    width = _width([layer.layer for layer in layers])
    most = max((layer.mean_bits or 0.0 for layer in layers), default=0.0)
    scale = 53.0 if most > 26 else 24.0
    rows = [f"{'':<{width}}  {'elements':>9}  {'exact':>6}  {'bits':>5}  {'least':>5}  0 … {scale:g} bits"]
    for layer in layers[:_MOST_ROWS]:
        exact = f"{100 * layer.exact / layer.elements:.0f} %" if layer.elements else ""
        special = [f"{count} {word}" for count, word in _special(layer) if count]
        rows.append(
            f"{_cut(layer.layer, width):<{width}}  {layer.elements:>9}  {exact:>6}  {_bits(layer.mean_bits):>5}  "
            f"{_bits(layer.least_bits):>5}  {bar(layer.mean_bits, scale)}{'  ' if special else ''}{', '.join(special)}"
        )
    if len(layers) > _MOST_ROWS:
        rows.append(f"… and {len(layers) - _MOST_ROWS} layers more, in the tables (--out)")
    return rows


def _special(layer: LayerNoise) -> tuple[tuple[int, str], ...]:
    return (
        (layer.zero_mean, "of mean zero"),
        (layer.nan, "NaN"),
        (layer.infinite, "Inf"),
        (layer.without, "without a bit"),
    )


def source_rows(result: VariabilityResult) -> list[str]:
    """A heading and one row a layer, those that cause most of the outputs' noise first."""
    rows = []
    if result.sources:
        width = _width([source.layer for source in result.sources])
        rows.append(f"{'':<{width}}  {'share':>6}  {'bits left':>9}  {'its own':>7}")
        for source in result.sources[:_MOST_ROWS]:
            share = "" if source.share is None else f"{100 * source.share:.1f} %"
            rows.append(
                f"{_cut(source.layer, width):<{width}}  {share:>6}  {_bits(source.caused_bits):>9}  "
                f"{_bits(source.shown_bits):>7}  {bar(source.share, 1.0)}"
            )
    return [*rows, result.sources_note] if result.sources_note else rows


def deployed_rows(result: VariabilityResult) -> list[str]:
    """A heading and one row a layer: what is proven, what was observed."""
    rows = []
    if result.deployed:
        width = _width([layer.layer for layer in result.deployed])
        rows.append(
            f"{'':<{width}}  {'proven width':>12}  {'proven rounding':>15}  {'observed':>9}  {'of proven':>9}"
        )
        for layer in result.deployed[:_MOST_ROWS]:
            proven = "" if layer.width is None else f"{layer.width:.3g}"
            rows.append(
                f"{_cut(layer.layer, width):<{width}}  {proven:>12}  {layer.rounding:>15.3g}  "
                f"{layer.observed:>9.3g}  {100 * layer.used:>7.2g} %  {layer.violation}".rstrip()
            )
    return [*rows, result.deployed_note] if result.deployed_note else rows


def comparison_text(comparison: Comparison) -> str:
    """Sentences, then a row a layer: bits of either run and their difference."""
    width = _width([layer.layer for layer in comparison.layers])
    rows = [comparison.sentences(), ""]
    rows.append(f"{'':<{width}}  {'first':>6}  {'second':>6}  {'difference':>10}")
    for layer in comparison.layers:
        difference = "" if layer.difference_bits is None else f"{layer.difference_bits:+.2f}"
        rows.append(
            f"{_cut(layer.layer, width):<{width}}  {_bits(layer.first_bits):>6}  {_bits(layer.second_bits):>6}  "
            f"{difference:>10}"
        )
    return "\n".join(rows)


def bar(value: float | None, scale: float) -> str:
    """A bar of BAR characters at most, in eighths."""
    if value is None:
        return ""
    eighths = round(8 * BAR * min(max(value / scale, 0.0), 1.0))
    return "█" * (eighths // 8) + (_BLOCKS[eighths % 8] if eighths % 8 else "")


def _bits(value: float | None) -> str:
    return "–" if value is None else f"{value:.1f}"


def _width(names: Sequence[str]) -> int:
    return min(max((len(name) for name in names), default=0), _NAME * 2)


def _cut(name: str, width: int) -> str:
    return name if len(name) <= width else f"…{name[1 - width :]}"
