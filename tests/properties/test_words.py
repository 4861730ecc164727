"""A property is read back in plain sentences and whole tables."""

from __future__ import annotations

from collections.abc import Callable

from boundscope.properties import Property, summarize

Read = Callable[..., Property]


def boxed(inputs: int, outputs: int, fixed: int = 0) -> str:
    lines = [f"(declare-const X_{i} Real)" for i in range(inputs)]
    lines += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    for i in range(inputs):
        lines.append(f"(assert (>= X_{i} 0.10))(assert (<= X_{i} {'0.1' if i < fixed else '0.5'}))")
    return "\n".join(lines) + "\n"


def rivals(outputs: int, label: int) -> str:
    return " ".join(f"(>= Y_{j} Y_{label})" for j in range(outputs) if j != label)


def test_a_classification_property(read: Read) -> None:
    summary = summarize(read(boxed(784, 10, fixed=12) + f"(assert (or {rivals(10, 7)}))", name="seven"))
    assert summary.words == (
        "784 inputs, X_0 … X_783; 10 outputs, Y_0 … Y_9.",
        "In the input box 12 inputs are fixed to one value; the other 772 have a lower and an upper bound 0.4 apart.",
        "Violated if, at some input of the box, any of 9 clauses holds: Y_0 ≥ Y_7, or Y_1 ≥ Y_7, or Y_2 ≥ Y_7, "
        "or Y_3 ≥ Y_7, or Y_4 ≥ Y_7, or Y_5 ≥ Y_7, or one of 3 more.",
        "In short: verified means that Y_7 stays above all other outputs everywhere in the box.",
    )
    assert (summary.name, summary.format) == ("seven", "VNN-LIB 1.0")
    assert (summary.input_count, summary.output_count, summary.case_count, summary.clause_count) == (
        784,
        10,
        1,
        9,
    )
    assert (len(summary.inputs), summary.inputs_total) == (200, 784)
    assert (summary.inputs[0].variable, summary.inputs[0].lower, summary.inputs[0].upper) == (
        "X_0",
        "0.10",
        "0.1",
    )
    assert [(row.case, row.clause, row.text) for row in summary.clauses][8] == (0, 8, "Y_9 ≥ Y_7")
    assert len(summarize(read(boxed(784, 10)), rows=3).inputs) == 3


def test_only_the_full_set_of_rivals_is_called_a_class(read: Read) -> None:
    for condition in (
        f"(or {rivals(10, 7).replace('>= Y_3', '>= Y_2')})",
        f"(or {rivals(10, 7).replace('>= Y_3', '> Y_3')})",
        f"(and {rivals(10, 7)})",
        f"(or {rivals(10, 7)} (>= Y_0 5))",
    ):
        words = " ".join(summarize(read(boxed(2, 10) + f"(assert {condition})")).words)
        assert "In short" not in words


def test_a_conjunction(read: Read) -> None:
    words = summarize(read(boxed(2, 2) + "(assert (>= Y_0 1))(assert (<= Y_1 2.5))")).words
    assert (
        words[2]
        == "Violated if, at some input of the box, these 2 conditions hold together: Y_0 ≥ 1 and Y_1 ≤ 2.5."
    )


def test_points_and_single_inputs(read: Read) -> None:
    assert (
        summarize(read(boxed(1, 1, fixed=1))).words[1]
        == "The input box is a single point: the input is fixed to one value."
    )
    words = summarize(read(boxed(3, 1, fixed=3))).words
    assert words[1] == "The input box is a single point: all 3 inputs are fixed to one value each."
    assert words[2] == "Every input of the box violates it: there is no condition on the outputs."
    assert summarize(read(boxed(1, 1))).words[1] == "The input lies between two bounds 0.4 apart."


def test_strict_mixed_and_inexact_conditions_are_named(read: Read) -> None:
    text = boxed(2, 2) + "(assert (< X_1 0.4))(assert (> Y_0 (* 0.1 X_0)))(assert (<= (+ X_0 X_1) 0.7))"
    words = " ".join(summarize(read(text)).words)
    assert "1 input bound is strict (X_1 < its upper bound)" in words
    assert "1 condition of the clauses is strict" in words
    assert "2 conditions of the clauses involve inputs, not outputs alone." in words
    assert "1 condition of the clauses has coefficients that are not float64 numbers" in words


def test_several_cases(read: Read) -> None:
    text = (
        boxed(2, 1) + "(assert (or (and (<= X_0 0.2) (>= Y_0 1)) (and (>= X_0 0.3) (<= Y_0 2) (>= Y_0 0))))"
    )
    summary = summarize(read(text))
    assert summary.words[1] == (
        "2 cases, each an input box of its own with its own clauses: they differ in X_0 and share the bounds of "
        "the others."
    )
    assert summary.words[2] == (
        "Violated if, at some input of its case's box, any of 2 clauses holds: Y_0 ≥ 1, or (Y_0 ≤ 2 and Y_0 ≥ 0)."
    )
    assert [(row.variable, row.lower, row.upper) for row in summary.inputs] == [
        ("case 0: X_0", "0.10", "0.2"),
        ("case 0: X_1", "0.10", "0.5"),
        ("case 1: X_0", "0.3", "0.5"),
        ("case 1: X_1", "0.10", "0.5"),
    ]
    assert [(row.case, row.clause) for row in summary.clauses] == [(0, 0), (1, 0)]


def test_contradictions_say_that_nothing_violates(read: Read) -> None:
    assert "Nothing can violate it" in summarize(read(boxed(1, 1) + "(assert (<= 2 1))")).words[2]
