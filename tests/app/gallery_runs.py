"""The runs that the gallery shows: every verdict, method, sharding and rounding that the examples can have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from app.window_support import EXAMPLES, example_draft
from boundscope.protocol import (
    Arithmetic,
    Branching,
    Method,
    Precision,
    RoundingMode,
    Sharding,
    SourceSearch,
)
from boundscope_app.benchmark_draft import BenchmarkDraft
from boundscope_app.draft import Draft
from boundscope_app.noise_draft import NoiseDraft, NoiseOptions
from support.wider import wider

AnyDraft = Draft | NoiseDraft | BenchmarkDraft
LIVE_S = 7.0
SMALL_BUDGET_BYTES = 1 << 20  # too little for the domains of this search


def lasting_runs(folder: Path) -> dict[str, AnyDraft]:
    """Runs that are looked at once they have ended, by name; later palettes find those of the first."""
    robust, conv = example_draft("digits-robust"), example_draft("digits-conv")
    kept = conv.options
    rounded = {
        mode.value: NoiseDraft(
            conv.network, None, conv.property_source, 2, options=NoiseOptions(mode=mode, samples=10)
        )
        for mode in (RoundingMode.SR, RoundingMode.UD)
    }
    return {
        "verified": robust,
        "violated": example_draft("digits-fooled"),
        "crown": conv,
        "rows": replace(conv, options=replace(kept, sharding=Sharding.ROWS, ranks=2)),
        "fsdp": replace(conv, options=replace(kept, sharding=Sharding.FSDP, ranks=2)),
        "unknown": replace(conv, options=replace(kept, method=Method.IBP)),
        "crown_ibp": replace(conv, options=replace(kept, method=Method.CROWN_IBP)),
        "alpha": replace(conv, options=replace(kept, method=Method.ALPHA_CROWN)),
        "float64": replace(conv, options=replace(kept, precision=Precision.FLOAT64)),
        "float32": replace(conv, options=replace(kept, arithmetic=Arithmetic.FLOAT32)),
        "out_of_memory": search(folder, "digits-robust", "2.5", 20.0, budget_bytes=SMALL_BUDGET_BYTES),
        "error": replace(robust, network=example_draft("advisor-far").network),
        "timeout": search(folder, "digits-robust", "2.5", timeout_s=1.5),
        "proved": search(folder, "digits-robust", "1.7", timeout_s=60.0),
        "inputs": search(folder, "advisor-far", "2.2", timeout_s=20.0),
        **rounded,
    }


def live_runs(folder: Path) -> dict[str, AnyDraft]:
    """Runs that are looked at while they go on: two searches that only their time limit ends; anew for each palette."""
    wide = search(folder, "digits-robust", "2.5", timeout_s=LIVE_S)
    other = replace(wide, options=replace(wide.options, branching=Branching.INPUT))
    return {"live_a": wide, "live_b": other}


def closing_runs(folder: Path) -> dict[str, AnyDraft]:
    """A measurement on two ranks and a benchmark: also looked at while they go on."""
    conv = example_draft("digits-conv")
    options = NoiseOptions(mode=RoundingMode.UD, ranks=2, source=SourceSearch.ONE, samples=20)
    return {
        "noise": NoiseDraft(conv.network, None, conv.property_source, 2, options=options),
        "benchmark": BenchmarkDraft(benchmark_file(folder)),
    }


def search(
    folder: Path, example: str, factor: str, timeout_s: float, budget_bytes: int | None = None
) -> Draft:
    """Branch and bound over an example whose box is `factor` times as wide."""
    target = folder / f"{example}-x{factor}.vnnlib"
    if not target.exists():
        wider(example, factor, target)
    draft = example_draft(example)
    options = replace(
        draft.options, method=Method.COMPLETE, timeout_s=timeout_s, memory_budget_bytes=budget_bytes
    )
    return replace(draft, property_source=target, options=options)


def benchmark_file(folder: Path) -> Path:
    """An instances.csv with each verdict that the examples' networks and properties can have together."""
    place = folder / "digits"
    place.mkdir(exist_ok=True)
    path = place / "instances.csv"
    pairs = (
        ("digits_mlp", "digits-robust", 60),
        ("digits_mlp", "digits-fooled", 60),
        ("digits_cnn", "digits-conv", 60),
        ("digits_cnn", "digits-robust", 60),
        ("advisor", "advisor-far", 60),
        ("advisor", "digits-robust", 60),
        ("digits_cnn", "digits-fooled", 0.01),
    )
    lines = (
        f"{EXAMPLES / 'networks' / net}.onnx,{EXAMPLES / prop / 'property.vnnlib'},{limit_s}"
        for net, prop, limit_s in pairs
    )
    path.write_text("\n".join(lines) + "\n")
    return path
