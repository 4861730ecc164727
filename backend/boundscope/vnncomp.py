"""The result file of VNN-COMP: one word, and below `sat` the counterexample. Imports neither torch nor Qt.

The format is that of the competition's rules of 2023 to 2025: one pair of name and value a line, inputs as X_0, X_1, …
and outputs as Y_0, Y_1, … in the order of the network, within one more pair of parentheses.
"""

from __future__ import annotations

from collections.abc import Iterator

from boundscope.protocol import Counterexample, Verdict

WORDS: dict[Verdict, str] = {
    Verdict.VERIFIED: "unsat",
    Verdict.VIOLATED: "sat",
    Verdict.UNKNOWN: "unknown",
    Verdict.TIMEOUT: "timeout",
    Verdict.OUT_OF_MEMORY: "unknown",
    Verdict.ERROR: "error",
}


def result_text(verdict: Verdict, counterexample: Counterexample | None) -> str:
    """The whole file. A counterexample beside another verdict than `violated` is not one of the property's, and is left
    out."""
    lines = [WORDS[verdict]]
    if verdict is Verdict.VIOLATED and counterexample is not None:
        lines += _pairs(counterexample)
    return "\n".join(lines) + "\n"


def counterexample_text(counterexample: Counterexample) -> str:
    """The pairs alone, for a file of their own."""
    return "\n".join(_pairs(counterexample)) + "\n"


def _pairs(found: Counterexample) -> Iterator[str]:
    """Inputs as they were replayed, and what ONNX Runtime made of them, with every digit."""
    pairs = [f"(X_{index} {text})" for index, text in enumerate(found.inputs)]
    pairs += [f"(Y_{index} {value!r})" for index, value in enumerate(found.replay.outputs)]
    for index, pair in enumerate(pairs):
        first, last = index == 0, index == len(pairs) - 1
        yield f"{'(' if first else ' '}{pair}{')' if last else ''}"
