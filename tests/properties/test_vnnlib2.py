"""VNN-LIB 2.0 becomes the same kind of property, exact digits included; what is not supported is refused."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import pytest

from boundscope.errors import PropertyError
from boundscope.properties import Property

Read = Callable[..., Property]
HEADER = """(vnnlib-version <2.0>)
(declare-network N
  (declare-input X float32 [1, 2])
  (declare-output Y float32 [2])
)
"""
BOX = "".join(f"(assert (and (>= X[0,{i}] 0.0) (<= X[0,{i}] 1.0)))\n" for i in (0, 1))


def texts(found: Property) -> list[list[str]]:
    return [[clause.text for clause in case.clauses] for case in found.cases]


def test_boxes_and_clauses(read: Read) -> None:
    found = read(
        HEADER + BOX + "(assert (or (and (>= Y[0] (+ (* 2.0 X[0,1]) 0.1)) (< X[0,0] 0.50)) (> Y[1] 3.0)))"
    )
    assert found.format == "VNN-LIB 2.0"
    assert (found.input_count, found.output_count) == (2, 2)
    assert texts(found) == [["Y_0 ≥ 2·X_1 + 0.1"], ["Y_1 > 3"]]
    assert found.cases[0].box.upper_text == ("0.50", "1.0")
    assert found.cases[0].box.strict_upper.tolist() == [0]
    assert found.cases[0].clauses[0].constraints[0].exact_coeffs == ()


def test_digits_beyond_float64_are_kept(read: Read) -> None:
    digits = "0.30000000000000000000000000000000000000000000000000000001"
    found = read(HEADER + BOX + f"(assert (<= X[0,0] {digits}))(assert (>= Y[0] {digits}))")
    assert found.cases[0].box.upper_text[0] == digits
    assert found.cases[0].clauses[0].constraints[0].bound == -Fraction(digits)


def test_elements_are_numbered_row_major_over_all_tensors(read: Read) -> None:
    text = """(vnnlib-version <2.0>)
    (declare-network N (declare-input A Real [2,3]) (declare-input B Real []) (declare-output Y Real [1,2]))
    """
    text += "".join(
        f"(assert (and (>= A[{i},{j}] {3 * i + j}.0) (<= A[{i},{j}] 9.0)))" for i in (0, 1) for j in (0, 1, 2)
    )
    found = read(text + "(assert (== B 6.0))(assert (<= Y[0,1] 0.0))", input_count=7, output_count=2)
    assert found.cases[0].box.lower.tolist() == [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert texts(found) == [["Y_1 ≤ 0"]]


def test_not_equal_is_a_choice_of_two_strict_sides(read: Read) -> None:
    assert texts(read(HEADER + BOX + "(assert (!= Y[0] 0.5))")) == [["Y_0 < 0.5", "Y_0 > 0.5"]]


def test_the_version_is_told_by_the_first_command(read: Read, capfd: pytest.CaptureFixture[str]) -> None:
    text = "; a comment (vnnlib-version <9.9>)\r\n\r\n  " + HEADER + BOX
    assert read(text).format == "VNN-LIB 2.0"
    assert read(text.replace("(vnnlib-version <2.0>)", "(vnnlib-version  <2.3> )")).format == "VNN-LIB 2.0"
    assert capfd.readouterr() == ("", "")
    with pytest.raises(PropertyError, match="line 1: VNN-LIB 3 is not known"):
        read(HEADER.replace("<2.0>", "<3.0>"))
    with pytest.raises(PropertyError, match=r"must begin with \(vnnlib-version <2\.0>\)"):
        read(HEADER.removeprefix("(vnnlib-version <2.0>)") + BOX)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("(assert (<= (* Y[0] Y[1]) 1.0))", 8, "not linear"),
        ("(assert (<= Y[2] 1.0))", 8, "Index 2 is out of bounds"),
        ("(assert (<= Y[-1] 1.0))", 8, "outside"),
        ("(assert (<= X[0] 1.0))", 8, "Not enough indices"),
        ("(assert (<= Z 1.0))", 8, "Undeclared variable: Z"),
        ("(assert (<= Y[0] 1))", 8, "Write the number with a decimal point"),
        ("(assert (<= Y[0] 1e5))", 8, "have no exponent"),
        ("\n(assert (<= Y[0] 1.0)", 9, "the file ends too early"),
        (
            "(assert (>= X[0,1] 2.0))",
            8,
            "lower bound 2.0 of X[0,1] (line 8) is above its upper bound 1.0 (line 7)",
        ),
        ("(assert (= Y[0] 2.0))", 8, "'=' is not VNN-LIB 2.0"),
        ("(assert " + "(or " * 100_000 + "(<= Y[0] 1.0)" + ")" * 100_001, 8, "nested deeper"),
    ],
)
def test_errors_name_file_line_and_fault(read: Read, text: str, line: int, words: str) -> None:
    with pytest.raises(PropertyError) as caught:
        read(HEADER + BOX + text)
    assert str(caught.value).startswith(f"p.vnnlib, line {line}: ")
    assert words in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "line", "words"),
    [
        ("X float32", "X int8", 3, "int8"),
        ("X float32", "X bool", 3, "bool"),
        ("X float32", "X flot32", 3, "flot32"),
        (
            "[2])\n)",
            "[2])\n)\n(declare-network M (declare-input A Real [1]) (declare-output B Real [1]))",
            6,
            "2 networks",
        ),
        ("(declare-output", '(declare-hidden H float32 [2] "h")\n  (declare-output', 4, "hidden tensor H"),
        ("[1, 2]", "[100000, 100000]", 3, "at most 100000000"),
        ("[1, 2]", "[0, 2]", 3, "Dimensions must be positive"),
    ],
)
def test_declarations_that_are_not_supported(read: Read, old: str, new: str, line: int, words: str) -> None:
    with pytest.raises(PropertyError) as caught:
        read(HEADER.replace(old, new) + "(assert (<= Y[0] 1.0))")
    assert str(caught.value).startswith(f"p.vnnlib, line {line}: ")
    assert words in str(caught.value)


def test_numbers_that_the_package_cannot_hold(read: Read) -> None:
    for number in ("1" * 400 + ".0", "0." + "0" * 400 + "1"):
        with pytest.raises(PropertyError, match="beyond float64"):
            read(HEADER + BOX + f"(assert (<= Y[0] {number}))")
    with pytest.raises(PropertyError, match="integer that is too large"):
        read(HEADER + BOX + f"(assert (<= Y[{'9' * 40}] 1.0))")


def test_a_missing_bound_is_named_as_the_file_names_it(read: Read) -> None:
    with pytest.raises(PropertyError, match=r"line 3: X\[0,1\] has no upper bound"):
        read(HEADER + BOX.replace("(<= X[0,1] 1.0)", "(>= X[0,1] -1.0)") + "(assert (>= Y[0] Y[1]))")
