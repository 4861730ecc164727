"""What runs have in common and where they differ is told from their jobs and records alone."""

from __future__ import annotations

import math
from dataclasses import replace as replaced

import msgspec
import pytest

from app.views import sample_noise, sample_records
from boundscope import comparison
from boundscope.comparison import Run
from boundscope.errors import UsageError
from boundscope.protocol import (
    JobInfo,
    LayerBounds,
    Method,
    PropertyFile,
    RoundingMode,
    Sharding,
    VariabilityResult,
)
from boundscope.records import JobRecord


def proof(job_id: str, **options: object) -> Run:
    """A finished run of the sample job with other options."""
    info = sample_records.job_info()
    job = msgspec.structs.replace(info.job, **options)
    return Run(
        msgspec.structs.replace(info, id=job_id, job=job),
        sample_records.record_of(sample_records.finished_events(ranks=job.ranks)),
    )


def noise(job_id: str, mode: RoundingMode, less_bits: float = 0.0, layer: str = "") -> Run:
    """A finished measurement; one layer has fewer bits than the sample."""
    result = sample_noise.result()
    layers = tuple(
        msgspec.structs.replace(one, mean_bits=one.mean_bits - less_bits) if one.layer == layer else one
        for one in result.layers
    )
    found: VariabilityResult = msgspec.structs.replace(result, layers=layers)
    info: JobInfo = msgspec.structs.replace(sample_noise.job_info(mode=mode), id=job_id)
    return Run(info, JobRecord(variability=found))


def fact(runs: list[Run], name: str) -> comparison.Fact:
    return next(one for one in comparison.facts(runs) if one.name == name)


def test_names_tell_what_differs_and_nothing_else() -> None:
    runs = [proof("a"), proof("b", sharding=Sharding.ROWS, ranks=2)]
    assert comparison.run_names(runs) == ("no sharding, 1 rank", "rows, 2 ranks")
    assert comparison.heads(runs) == ("A no sharding, 1 rank", "B rows, 2 ranks")
    noisy = [noise("a", RoundingMode.SR), noise("b", RoundingMode.UD)]
    assert comparison.run_names(noisy) == ("SR", "UD")


def test_runs_that_were_asked_the_same_are_numbered() -> None:
    first, second = comparison.run_names([proof("a"), proof("b")])
    assert first != second
    assert (first[-3:], second[-3:]) == ("(1)", "(2)")


def test_options_that_differ_are_told_from_those_that_do_not() -> None:
    runs = [proof("a"), proof("b", method=Method.IBP)]
    assert fact(runs, "method").values == ("crown", "ibp")
    assert fact(runs, "method").differs
    assert fact(runs, "method").asked
    assert not fact(runs, "seed").differs
    only = comparison.facts_table(runs, only_different=True)
    assert [row[0] for row in only.rows] == ["job", "method"]


def test_two_properties_of_one_name_are_told_apart_by_their_contents() -> None:
    first = proof("a")
    file = first.info.job.property.file
    other = PropertyFile(file=msgspec.structs.replace(file, sha256="f" * 64))
    runs = [first, proof("b", property=other)]
    assert not fact(runs, "property").differs
    assert fact(runs, "property's SHA-256").differs


def test_an_option_that_one_kind_of_run_lacks_is_no_difference() -> None:
    runs = [proof("a"), noise("b", RoundingMode.SR)]
    assert fact(runs, "method").values == ("crown", None)
    assert not fact(runs, "method").differs
    assert fact(runs, "kind").differs
    assert any(note.startswith("B measures noise") for note in comparison.notes(runs))


def test_peaks_are_the_ledgers_of_the_result() -> None:
    runs = [proof("a"), proof("b", sharding=Sharding.ROWS, ranks=2)]
    peaks = [430 * sample_records.MIB, 450 * sample_records.MIB]
    assert fact(runs, "peak of the worst rank").values == (peaks[0], peaks[1])
    assert fact(runs, "peaks of all ranks together").values == (peaks[0], sum(peaks))
    assert fact(runs, "peak of rank 1").values == (None, peaks[1])


def test_ratios_of_widths_are_to_the_first_run() -> None:
    one, two = proof("a"), proof("b", method=Method.IBP)
    for key, layer in two.record.layers.items():
        two.record.layers[key] = msgspec.structs.replace(layer, width_max=3 * layer.width_max)
    rows = comparison.width_rows([one, two])
    assert [row.node for row in rows] == [node for _, node in one.record.layers]
    assert all(row.ratios[0] == pytest.approx(3.0) for row in rows)


def test_a_width_of_zero_has_no_ratio() -> None:
    row = replaced(comparison.width_rows([proof("a"), proof("b")])[0], widths=(0.0, 1.0))
    assert row.ratios == (None,)


def test_a_layer_of_one_run_alone_is_not_compared() -> None:
    one, two = proof("a"), proof("b")
    first: LayerBounds = next(iter(one.record.layers.values()))
    one.record.layers[0, "/alone"] = msgspec.structs.replace(first, node="/alone")
    assert "/alone" not in [row.node for row in comparison.width_rows([one, two])]


def test_the_layer_that_loses_most_digits_is_named() -> None:
    runs = [noise("a", RoundingMode.SR), noise("b", RoundingMode.UD, 2.0, "/conv1/Conv")]
    row = comparison.loses_most(comparison.noise_rows(runs), 1)
    assert row is not None
    assert row.layer == "/conv1/Conv"
    assert row.differences[0] == pytest.approx(-2 * math.log10(2))
    (said,) = comparison.noise_sentences(runs)
    assert said.startswith("B (UD) against A (SR):")
    assert said.endswith("/conv1/Conv loses most, 0.60 digits.")


def test_none_loses_where_both_have_the_same_digits() -> None:
    runs = [noise("a", RoundingMode.SR), noise("b", RoundingMode.UD)]
    assert comparison.loses_most(comparison.noise_rows(runs), 1) is None
    assert comparison.noise_sentences(runs)[0].endswith("no layer loses any.")


def test_decisions_flipped_stand_side_by_side() -> None:
    (row,) = comparison.decision_rows([noise("a", RoundingMode.SR), noise("b", RoundingMode.UD)])
    assert (row.layer, row.flipped, row.decisions) == ("/head/Gemm", (1, 1), (2, 2))


def test_too_few_too_many_and_one_twice_are_refused() -> None:
    infos = [proof(str(number)).info for number in range(9)]
    comparison.checked(infos[:8])
    for wrong in (infos[:1], infos, [infos[0], infos[0]]):
        with pytest.raises(UsageError):
            comparison.checked(wrong)
