"""VNN-LIB 1.0: every legal spelling is read exactly, everything else is an error that says where and what."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from boundscope.errors import PropertyError
from boundscope.properties import Limits, Property, read_property, to_vnnlib
from boundscope.properties.exact import violated_clause
from properties.oracle import meaning

Read = Callable[..., Property]
DECLARED = """(declare-const X_0 Real)
(declare-const X_1 Real)
(declare-const Y_0 Real)
(declare-const Y_1 Real)
"""
BOXED = DECLARED + "".join(f"(assert (>= X_{i} 0))\n(assert (<= X_{i} 1))\n" for i in (0, 1))


def texts(found: Property) -> list[list[str]]:
    return [[clause.text for clause in case.clauses] for case in found.cases]


def test_digits_are_kept_and_float64_bounds_enclose_them(read: Read) -> None:
    lower, upper = "0.10000000000000000000000001", "+.30e0"
    found = read(
        DECLARED
        + f"(assert (>= X_0 {lower}))(assert (<= X_0 {upper}))(assert (>= X_1 -1.50))(assert (<= X_1 2))"
    )
    (case,) = found.cases
    assert case.box.lower_text == (lower, "-1.50")
    assert case.box.upper_text == (upper, "2")
    assert Fraction(case.box.lower[0]) < Fraction(lower) < Fraction(np.nextafter(case.box.lower[0], 1))
    assert Fraction(np.nextafter(case.box.upper[0], 0)) < Fraction(upper) <= Fraction(case.box.upper[0])
    assert (case.box.lower[1], case.box.upper[1]) == (-1.5, 2.0)


@pytest.mark.parametrize(
    "condition", ["(= X_0 0.50)", "(<= 0.50 X_0 0.50)", "(and (= |X_0| 0.50) (<= X_0(+ 0.50)))"]
)
def test_digits_are_kept_in_every_form_of_a_bound(read: Read, condition: str) -> None:
    box = read(BOXED + f"(assert {condition})").cases[0].box
    assert (box.lower_text[0], box.upper_text[0]) == ("0.50", "0.50")


def test_thresholds_are_exact(read: Read) -> None:
    (only,) = read(BOXED + "(assert (>= Y_0 1.00000001))").cases[0].clauses[0].constraints
    assert only.bound == -Fraction(100000001, 100000000)
    assert (only.output_indices.tolist(), only.output_coeffs.tolist()) == ([0], [-1.0])


@pytest.mark.parametrize(
    ("condition", "text"),
    [
        ("(>= Y_0 (* 2 X_0))", "Y_0 ≥ 2·X_0"),
        ("(<= X_0 X_1)", "X_0 ≤ X_1"),
        ("(<= 0 Y_0 (+ Y_1 0.1))", "0 ≤ Y_0 and Y_0 ≤ Y_1 + 0.1"),
        ("(< (- Y_0 (* 2 (- Y_1 1)) 3) 0.5)", "Y_0 - 2·Y_1 - 1 < 0.5"),
        ("(= Y_0 (- 1))", "Y_0 ≤ -1 and Y_0 ≥ -1"),
        ("(<= (/ Y_0 4) (/ 1 3))", "0.25·Y_0 ≤ 1/3"),
        ("(<=(+ Y_0 Y_1)|Y_1|)", "Y_0 + Y_1 ≤ Y_1"),
        ("(and true (or false (>= Y_0 1)))", "Y_0 ≥ 1"),
        ("(or (<= 2 1) (>= Y_0 1))", "Y_0 ≥ 1"),
    ],
)
def test_terms_are_linear_forms_with_exact_numbers(read: Read, condition: str, text: str) -> None:
    assert texts(read(BOXED + f"(assert {condition})")) == [[text]]


def test_every_spelling_of_white_space_and_names(read: Read) -> None:
    plain = BOXED + "(assert (or (and (>= Y_0 0.5) (<= Y_1 -2.5E-1)) (<= Y_0 1e+1)))\n"
    wanted = meaning(read(plain))
    assert meaning(read(plain.replace("\n", "\r\n").replace(" ", "\t"))) == wanted
    assert meaning(read(plain.replace(") (", ")(").replace("\n", ""))) == wanted
    assert meaning(read(plain.replace(" ", "\n ; a ) comment (\n "))) == wanted
    assert meaning(read(plain.replace("X_1", "|X_1|"))) == wanted
    assert meaning(read(plain.replace("(declare-const Y_1 Real)", "(declare-fun Y_1 () Real)"))) == wanted
    assert meaning(read(b"\xef\xbb\xbf; \xff\xfe\n" + plain.encode())) == wanted
    assert meaning(read("(vnnlib-version <1.0>)" + plain)) == wanted
    info = '(set-info :source |two\nlines ) (|)(set-info :x "a ""quoted"" ) ;")(set-info :y (a (<= b c)))(check-sat)'
    assert meaning(read("(set-logic QF_LRA)" + plain + info)) == wanted
    assert meaning(read(gzip.compress(plain.encode()))) == wanted


def test_tokens_across_block_borders(read: Read, monkeypatch: pytest.MonkeyPatch) -> None:
    text = BOXED + "(set-info :x |a\nb\nc|)\n(assert (or (>= Y_0\n0.25) (and (<= Y_1 3)\n(>= Y_0 1))))"
    wanted = meaning(read(text))
    for size in (1, 2, 3, 5, 17, 64):
        monkeypatch.setattr("boundscope.properties.source.BLOCK_BYTES", size)
        assert meaning(read(text)) == wanted


def test_tightest_of_repeated_bounds_counts(read: Read) -> None:
    found = read(
        BOXED + "(assert (<= X_0 0.75))(assert (<= X_0 2.0))(assert (>= X_0 0.0))(assert (= X_1 0.5))"
    )
    assert found.cases[0].box.lower_text == ("0", "0.5")
    assert found.cases[0].box.upper_text == ("0.75", "0.5")


def test_asserts_are_joined_by_and(read: Read) -> None:
    found = read(
        BOXED + "(assert (or (>= Y_0 1) (<= Y_0 -1)))(assert (<= Y_1 0))(assert (or (>= Y_1 -1) (>= Y_1 -2)))"
    )
    assert texts(found) == [
        [
            "Y_1 ≤ 0 and Y_0 ≥ 1 and Y_1 ≥ -1",
            "Y_1 ≤ 0 and Y_0 ≥ 1 and Y_1 ≥ -2",
            "Y_1 ≤ 0 and Y_0 ≤ -1 and Y_1 ≥ -1",
            "Y_1 ≤ 0 and Y_0 ≤ -1 and Y_1 ≥ -2",
        ]
    ]


def test_disjuncts_with_equal_boxes_become_one_case(read: Read) -> None:
    disjuncts = "(and (<= X_0 0.5) (>= Y_0 1)) (and (>= X_0 0.5) (<= Y_0 2)) (and (<= X_0 5e-1) (>= Y_1 3))"
    found = read(BOXED + f"(assert (or {disjuncts} (and (<= X_0 7) (>= Y_1 4))))")
    assert texts(found) == [["Y_0 ≥ 1", "Y_1 ≥ 3"], ["Y_0 ≤ 2"], ["Y_1 ≥ 4"]]
    assert [case.box.upper_text for case in found.cases] == [("0.5", "1"), ("1", "1"), ("1", "1")]
    assert [case.box.lower_text for case in found.cases] == [("0", "0"), ("0.5", "0"), ("0", "0")]


def test_empty_disjuncts_are_dropped_but_not_all_of_them(read: Read) -> None:
    assert texts(read(BOXED + "(assert (or (and (>= X_0 5) (<= Y_0 1)) (<= Y_0 2)))")) == [["Y_0 ≤ 2"]]
    with pytest.raises(PropertyError, match=r"p\.vnnlib, line 9: the lower bound 5 of X_0.*Every disjunct"):
        read(BOXED + "(assert (or (>= X_0 5) (<= X_1 -1)))")


def test_strict_input_bounds_close_the_box_and_are_noted(read: Read) -> None:
    found = read(BOXED + "(assert (< X_0 1.0))(assert (> X_1 0))(assert (< Y_0 3))")
    box = found.cases[0].box
    assert (box.strict_lower.tolist(), box.strict_upper.tolist()) == ([1], [0])
    assert (box.lower.tolist(), box.upper.tolist()) == ([0.0, 0.0], [1.0, 1.0])
    half = [Fraction(1, 2)] * 2
    assert violated_clause(found, half, half) == (0, 0)
    assert violated_clause(found, [Fraction(1), half[0]], half) is None
    assert violated_clause(found, half, [Fraction(3), Fraction(0)]) is None


def test_bounds_whose_decimals_never_end_are_enclosed_and_kept_exact(read: Read) -> None:
    found = read(BOXED + "(assert (<= (* 3 X_0) 1))(assert (>= (* 7 X_1) 1))")
    box = found.cases[0].box
    assert box.upper_text[0] == "0.3333333333333333333333334"
    assert box.lower_text[1] == "0.1428571428571428571428571"
    assert violated_clause(found, [Fraction(1, 3), Fraction(1, 7)], [Fraction(0)] * 2) == (0, 0)
    assert violated_clause(found, [Fraction(box.upper_text[0]), Fraction(1)], [Fraction(0)] * 2) is None


def test_coefficients_that_are_not_float64_carry_their_error(read: Read) -> None:
    (only,) = read(BOXED + "(assert (<= (+ (* 0.1 Y_0) (* 2 Y_1)) 0.3))").cases[0].clauses[0].constraints
    assert Fraction(only.coeff_error) >= abs(Fraction(0.1) - Fraction(1, 10)) > 0
    assert only.exact_coeffs == (Fraction(1, 10), Fraction(2))
    (exact,) = read(BOXED + "(assert (<= (* 0.5 Y_0) 0.3))").cases[0].clauses[0].constraints
    assert (exact.coeff_error, exact.exact_coeffs) == (0.0, ())


def test_no_condition_on_outputs_and_contradiction(read: Read) -> None:
    assert read(BOXED).cases[0].clauses[0].constraints == ()
    for contradiction in ("(<= 2 1)", "(< Y_0 Y_0)", "false"):
        found = read(BOXED + f"(assert {contradiction})")
        assert [case.clauses for case in found.cases] == [()]
        assert meaning(read(to_vnnlib(found))) == meaning(found)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("(assert (<= X_2 0.25))", 9, "'X_2' is not declared"),
        ("\n(assert (<=\n Y_0 nan))", 10, "'nan' is not declared"),
        ("(assert (<= Y_0 1_000))", 9, "'1_000' is not a decimal number"),
        ("(assert (<= Y_0 1e99999))", 9, "exponent"),
        ("(assert (<= Y_0 " + "1" * 2001 + "))", 9, "2001 characters"),
        ("(assert (<= Y_0))", 9, "compares two terms, not 1"),
        ("(assert (<= (* Y_0 Y_1) 1))", 9, "not linear"),
        ("(assert (<= (/ 1 Y_0) 1))", 9, "divides by numbers"),
        ("(assert (<= (* 1e400 Y_0) 1))", 9, "coefficient 1e+400 is beyond"),
        ("(assert (not (<= Y_0 1)))", 9, "(not …) is not supported"),
        ("(assert (max Y_0 1))", 9, "'max' is not an operator"),
        ("(assert)", 9, "assert takes one condition, not 0"),
        ("(assert (<= Y_0 1) (<= Y_1 1))", 9, "assert takes one condition, not 2"),
        ("(assert Y_0)", 9, "where a condition is expected"),
        ("(assert (+ Y_0 1))", 9, "where a condition is expected"),
        ("(assert (<= (<= Y_0 1) 2))", 9, "where a term is expected"),
        ("(assert (and))", 9, "(and) without any condition"),
        ("(assert ((<= Y_0 1)))", 9, "without an operator"),
        ("(<= Y_0 1)", 9, "outside an assert"),
        ("Y_0", 9, "outside parentheses"),
        ("(maximize Y_0)", 9, "the command 'maximize' is not known"),
        ("(assert (<= Y_0 1)))", 9, "that nothing opened"),
        ("(assert (or (<= Y_0 1)\n(<= Y_0 2)", 9, "2 closing parentheses are missing"),
        ("(assert (<= |Y_0 1))\n", 9, "never closed"),
        ('(set-info :x "abc)\n', 9, "never closed"),
        ("(declare-const X_0 Real)", 9, "declared twice (first on line 1)"),
        ("(declare-const Z Real)", 9, "'Z' is neither an input"),
        ("(declare-const X_00 Real)", 9, "'X_00' is neither an input"),
        ("(declare-const Y_2 Int)", 9, "declared as Int"),
        ("(declare-const X_3 Real)", 9, "X_3 is declared but X_2 is not"),
        ("(assert (>= X_0 1.1))", 9, "lower bound 1.1 of X_0 (line 9) is above its upper bound 1 (line 6)"),
        ("(assert (>= X_0 1.00000000000000000001))", 9, "is above its upper bound 1"),
        ("(assert (> X_0 1))", 9, "one of them is strict"),
        ("(declare-network N)", 9, "must be the first command"),
        ("(assert (<= (+ Y_0 (<= Y_0 2)) 1))", 9, "where a term is expected"),
        (
            "(declare-const X_2 Real)(assert (<= X_2 1e400))(assert (>= X_2 0))",
            9,
            "beyond the range of float64",
        ),
        ("(declare-const X_2 Real)\n(assert (<= X_2 1))", 9, "X_2 has no lower bound"),
    ],
)
def test_errors_name_file_line_and_fault(read: Read, text: str, line: int, words: str) -> None:
    with pytest.raises(PropertyError) as caught:
        read(BOXED + text)
    assert str(caught.value).startswith(f"p.vnnlib, line {line}: ")
    assert words in str(caught.value)


def test_a_missing_bound_names_the_variable_where_it_is_declared(read: Read) -> None:
    with pytest.raises(PropertyError, match=r"p\.vnnlib, line 2: X_1 has no upper bound"):
        read(DECLARED + "(assert (>= X_0 0))(assert (<= X_0 0))(assert (>= X_1 0))")
    with pytest.raises(PropertyError, match=r"line 2: X_1 has no upper bound in the disjunct on line 6"):
        read(
            DECLARED
            + "(assert (>= X_1 0))(assert (or (and (= X_0 0) (= X_1 1))\n(and (= X_0 0) (>= X_1 1))))\n"
        )


@pytest.mark.parametrize(
    "data", [b"", b"\0\1\2", b"\x1f\x8b\x08\0\0", b"\x89PNG\r\n", b"; only a comment\n", b"(", b"1"]
)
def test_files_that_are_no_properties(read: Read, data: bytes) -> None:
    with pytest.raises(PropertyError, match=r"^p\.vnnlib"):
        read(data)


def test_every_cut_of_a_gzip_file_is_refused(read: Read) -> None:
    data = gzip.compress(BOXED.encode())
    for size in range(2, len(data)):
        with pytest.raises(PropertyError, match="damaged or cut off"):
            read(data[:size])


def test_every_cut_of_a_text_is_refused_or_misses_something(read: Read) -> None:
    """A file cut off in the middle of its box can never pass for a whole property."""
    for size in range(len(BOXED.rstrip())):
        with pytest.raises(PropertyError):
            read(BOXED[:size])


def test_files_that_cannot_be_opened(tmp_path: Path) -> None:
    with pytest.raises(PropertyError, match=r"nothing\.vnnlib: cannot be read"):
        read_property(tmp_path / "nothing.vnnlib")
    with pytest.raises(PropertyError, match="cannot be read"):
        read_property(tmp_path)


def test_counts_must_be_those_of_the_network(read: Read) -> None:
    read(BOXED, input_count=2, output_count=2)
    with pytest.raises(PropertyError, match=r"has 2 inputs \(X_0 … X_1\) but the network has 5"):
        read(BOXED, input_count=5)
    with pytest.raises(PropertyError, match=r"has 2 outputs \(Y_0 … Y_1\) but the network has 1"):
        read(BOXED, output_count=1)


def test_a_given_name_stands_in_errors(read: Read) -> None:
    assert read(BOXED, name="mine.vnnlib").name == "mine.vnnlib"
    with pytest.raises(PropertyError, match=r"^mine\.vnnlib, line 9: "):
        read(BOXED + "(", name="mine.vnnlib")


def test_normal_forms_stop_at_their_limits(read: Read) -> None:
    pairs = "".join(f"(assert (or (<= Y_0 {i}) (>= Y_1 {i})))\n" for i in range(60))
    with pytest.raises(
        PropertyError, match=r"line 68: joined with all asserts.*conjunctions; the limit is 1000000"
    ):
        read(BOXED + pairs)
    nested = " ".join(f"(or (<= Y_0 {i}) (>= Y_1 {i}))" for i in range(60))
    with pytest.raises(PropertyError, match=r"line 9: written out.*about 10\^18 conjunctions"):
        read(BOXED + f"(assert (and {nested}))")
    deep = "(assert " + "(or (<= Y_0 1) (and (<= Y_1 2) " * 20_000 + "(<= Y_0 1)" + "))" * 20_000 + ")"
    with pytest.raises(PropertyError, match="comparisons"):
        read(BOXED + deep, limits=Limits(atoms=100_000))
    boxes = " ".join(f"(<= X_0 0.{i})" for i in range(1, 9))
    with pytest.raises(PropertyError, match="more than 7 different input boxes of 2 inputs"):
        read(BOXED + f"(assert (or {boxes}))", limits=Limits(box_numbers=31))


def test_depth_is_no_limit(read: Read) -> None:
    depth = 50_000
    nested = "(or " * depth + "(>= (- " * 1 + "(- " * depth + "Y_0" + ")" * depth + ") 1)" + ")" * depth
    assert texts(read(BOXED + f"(assert {nested})")) == [["-Y_0 ≥ 1"]]
