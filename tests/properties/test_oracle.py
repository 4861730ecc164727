"""Random properties mean at random points what a second, recursive reading of the text says."""

from __future__ import annotations

from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given, settings
from hypothesis import strategies as st

from boundscope.errors import PropertyError
from boundscope.properties import Property, read_property, to_vnnlib
from boundscope.properties.exact import violated_clause
from properties.oracle import meaning, satisfied, trees, variables

INPUTS, OUTPUTS = 2, 2
NUMBERS = ("0.0", "0.5", "1.0", "-1.5", "0.1", "2.0", "-0.25", "0.3")
NAMES = ("X_0", "X_1", "Y_0", "Y_1")

numbers = st.sampled_from(NUMBERS)
names = st.sampled_from(NAMES)
terms = st.recursive(
    numbers | names,
    lambda part: (
        st.builds("(+ {} {})".format, part, part)
        | st.builds("(- {} {})".format, part, part)
        | st.builds("(- {})".format, part)
        | st.builds("(* {} {})".format, numbers, part)
        | st.builds("(* {} {} 3.0)".format, part, numbers)
    ),
    max_leaves=4,
)
comparisons = st.builds(
    "({} {} {})".format, st.sampled_from(("<=", ">=", "<", ">", "=")), names | terms, numbers | names | terms
)
formulas = st.recursive(
    comparisons,
    lambda part: st.builds(
        lambda head, parts: f"({head} {' '.join(parts)})",
        st.sampled_from(("and", "or")),
        st.lists(part, min_size=1, max_size=3),
    ),
    max_leaves=8,
)
values = st.sampled_from([Fraction(text) for text in NUMBERS]) | st.fractions(-2, 2, max_denominator=8)
points = st.lists(values, min_size=4, max_size=4)
DECLARED = "".join(f"(declare-const {name} Real)\n" for name in NAMES)
WIDE = "".join(f"(assert (>= X_{index} -1.5))(assert (<= X_{index} 2.0))\n" for index in range(INPUTS))


def read_text(text: str) -> Property | None:
    """The property; None where its bounds contradict each other, which is the one error that may be raised."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "p.vnnlib"
        path.write_text(text)
        try:
            return read_property(path, input_count=INPUTS, output_count=OUTPUTS)
        except PropertyError as error:
            if "no input is left" in str(error):
                return None
            raise


@settings(max_examples=250, deadline=None)
@given(st.lists(formulas, max_size=3), st.lists(points, min_size=1, max_size=6))
def test_a_property_holds_where_the_text_does(conditions: list[str], where: list[list[Fraction]]) -> None:
    text = DECLARED + WIDE + "".join(f"(assert {each})\n" for each in conditions)
    commands = trees(text)
    found = read_text(text)
    for point in where:
        expected = satisfied(commands, variables(point[:INPUTS], point[INPUTS:]))
        got = found is not None and violated_clause(found, point[:INPUTS], point[INPUTS:]) is not None
        assert got == expected


@settings(max_examples=150, deadline=None)
@given(st.lists(formulas, max_size=3))
def test_what_is_written_reads_back_the_same(conditions: list[str]) -> None:
    found = read_text(DECLARED + WIDE + "".join(f"(assert {each})\n" for each in conditions))
    if found is not None:
        again = read_text(to_vnnlib(found))
        assert again is not None
        assert meaning(again) == meaning(found)


@settings(max_examples=120, deadline=None)
@given(st.lists(formulas, max_size=3))
def test_both_versions_of_the_format_mean_the_same(conditions: list[str]) -> None:
    asserted = "".join(f"(assert {each})\n" for each in conditions)
    modern = (WIDE + asserted).replace("(= ", "(== ")
    for name in NAMES:
        modern = modern.replace(name, f"{name[0]}[{name[2]}]")
    header = (
        "(vnnlib-version <2.0>)(declare-network N (declare-input X Real [2])(declare-output Y Real [2]))\n"
    )
    first, second = (read_text(text) for text in (DECLARED + WIDE + asserted, header + modern))
    assert (first is None) == (second is None)
    if first is not None and second is not None:
        assert meaning(first) == meaning(second)
