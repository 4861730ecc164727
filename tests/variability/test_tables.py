"""Tables: every number of the statistics in its row, the same in CSV and Parquet, files whole or not at all."""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from boundscope.errors import UsageError, VariabilityError
from boundscope.records import Table
from boundscope.variability.compare import compare
from boundscope.variability.decisions import Decisions
from boundscope.variability.digits import digits, summarise
from boundscope.variability.moments import Moments
from boundscope.variability.tables import (
    channel_table,
    comparison_table,
    decision_table,
    element_columns,
    layer_table,
)
from boundscope.variability.tables_files import write_columns, write_table


def gathered(samples: np.ndarray, name: str) -> Moments:
    moments = Moments(samples[0], name)
    for number, sample in enumerate(samples):
        moments.update(number, sample)
    return moments


def layers() -> dict[str, Moments]:
    rng = np.random.default_rng(0)
    conv = (1 + 1e-5 * rng.normal(size=(10, 1, 2, 3))).astype(np.float32)
    conv[:, 0, 0, 0] = 1
    conv[3, 0, 1, 1], conv[4, 0, 1, 2] = np.nan, np.inf
    exact = np.full((10, 1, 4), 0.5, np.float32)
    return {"conv, 1": gathered(conv, "conv, 1"), "exact": gathered(exact, "exact")}


def rows(table: Table) -> list[dict[str, Any]]:
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows]


def test_layer_table() -> None:
    """One row a layer with its counts, shares and spreads; no digits where all is exact."""
    found = {name: digits(moments) for name, moments in layers().items()}
    conv, exact = rows(layer_table(found))
    summary = summarise(found["conv, 1"])
    assert (conv["layer"], conv["shape"], conv["samples"], conv["elements"]) == ("conv, 1", "1×2×3", 10, 6)
    assert (conv["exact"], conv["NaN"], conv["Inf"]) == (1, 1, 1)
    assert conv["NaN [share]"] == 1 / 6
    assert summary.deviation_bits is not None
    assert summary.cnh_bits is not None
    assert conv["deviation: median [bits]"] == summary.deviation_bits.median
    assert conv["CNH: least [bits]"] == summary.cnh_bits.least
    assert conv["CNH: mean [decimal digits]"] == pytest.approx(summary.cnh_bits.mean * np.log10(2))
    assert conv["probability of the general estimate"] == pytest.approx(0.70, abs=0.005)
    assert exact["exact [share]"] == 1
    assert {exact[column] for column in exact if "bits" in column or "digits" in column} == {None}


def test_channel_table() -> None:
    """One row a channel, along the axis that the caller names where it is not the usual one."""
    found = {name: digits(moments) for name, moments in layers().items()}
    usual = rows(channel_table(found))
    assert [(row["layer"], row["channel"], row["elements"]) for row in usual[:3]] == [
        ("conv, 1", 0, 3),
        ("conv, 1", 1, 3),
        ("exact", 0, 1),
    ]
    assert (usual[0]["exact"], usual[1]["NaN"], usual[1]["Inf"]) == (1, 1, 1)
    assert len(rows(channel_table(found, {"conv, 1": -1}))) == 3 + 4


def test_decision_table() -> None:
    """One row a decision, with its flips and margins; no value where a margin is not finite."""
    scores = np.array([[[2, 1], [0, 0.5], [np.nan, 1]], [[2, 1], [1, 0], [0, 1]]], np.float32)
    decisions = Decisions(scores[0], name="logits")
    for number, sample in enumerate(scores):
        decisions.update(number, sample)
    first, second, third = rows(decision_table({"logits": decisions.totals()}))
    assert (first["input"], first["decision of the baseline"], first["flips"]) == ("0", 0, 0)
    assert first["mean margin [standard deviations]"] == np.inf
    assert (second["decision of the baseline"], second["flips"], second["mean margin"]) == (1, 1, -0.25)
    assert (third["decision of the baseline"], third["mean margin"]) == (None, None)


def test_comparison_table() -> None:
    """One row a layer of either run; a layer of one run names it and has no difference."""
    found = {name: digits(moments) for name, moments in layers().items()}
    both, only = rows(comparison_table(compare(found, {"conv, 1": found["conv, 1"]}, ("SR", "UD"))))
    assert (both["in"], both["UD minus SR [bits]"], both["elements compared in pairs"]) == ("both", 0, 3)
    assert (only["layer"], only["in"], only["UD minus SR [bits]"]) == ("exact", "SR", None)


def read_csv(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def test_elements_as_csv(tmp_path: Path) -> None:
    """Every element is a row with its index, moments and bits, to the last digit; nothing where there is no value."""
    held = layers()
    assert write_columns(element_columns(held), tmp_path / "elements.csv") == 10
    found, totals = digits(held["conv, 1"]), held["conv, 1"].totals()
    written = read_csv(tmp_path / "elements.csv")
    assert [row["index"] for row in written[:6]] == ["0,0,0", "0,0,1", "0,0,2", "0,1,0", "0,1,1", "0,1,2"]
    assert [row["kind"] for row in written[:6]] == ["exact", "inexact", "inexact", "inexact", "NaN", "Inf"]
    assert [row["layer"] for row in written] == ["conv, 1"] * 6 + ["exact"] * 4
    for position, row in enumerate(written[1:4], start=1):
        assert float(row["mean"]) == totals.mean.flat[position]
        assert float(row["standard deviation"]) == totals.std().flat[position]
        assert np.float32(row["least"]) == totals.least.flat[position]
        assert float(row["CNH [bits]"]) == found.cnh_bits.flat[position]
    assert (written[4]["mean"], written[4]["deviation [bits]"], written[4]["samples NaN"]) == ("", "", "1")
    assert (written[5]["samples +Inf"], written[5]["greatest"]) == ("1", "inf")
    assert (written[0]["standard deviation"], written[0]["samples equal to the baseline"]) == ("0.0", "10")


def test_large_layers_come_in_parts(tmp_path: Path) -> None:
    """A layer of more rows than are written at once has all of them, once and in order."""
    held = {"wide": gathered(np.random.default_rng(1).normal(size=(3, 70_000)).astype(np.float32), "wide")}
    parts = list(element_columns(held))
    assert [len(part) for part in parts] == [65_536, 4_464]
    assert write_columns(iter(parts), tmp_path / "wide.csv") == 70_000
    written = read_csv(tmp_path / "wide.csv")
    assert [int(row["index"]) for row in written] == list(range(70_000))


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_tensors_without_elements_or_dimensions(tmp_path: Path, ending: str) -> None:
    """An empty layer has the columns and no rows; a scalar is one row without index."""
    if ending == "parquet":
        pytest.importorskip("pyarrow", reason="Parquet needs pyarrow")
    held = {
        "empty": gathered(np.zeros((3, 0, 2), np.float32), "empty"),
        "loss": gathered(np.arange(3, dtype=np.float32), "loss"),
    }
    path = tmp_path / f"elements.{ending}"
    assert write_columns(element_columns(held), path) == 1
    if ending == "csv":  # Parquet is read back in the next test.
        assert [(row["layer"], row["index"], row["mean"]) for row in read_csv(path)] == [("loss", "", "1.0")]


def test_parquet_holds_what_csv_holds(tmp_path: Path) -> None:
    """Parquet tables have the rows, columns and values of the CSV, with types, and null where there is no value."""
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet needs pyarrow")
    held = layers()
    write_columns(element_columns(held), tmp_path / "elements.csv")
    assert write_columns(element_columns(held), tmp_path / "elements.parquet") == 10
    found = parquet.read_table(tmp_path / "elements.parquet")
    as_text = [
        {name: "" if value is None else str(value) for name, value in row.items()}
        for row in found.to_pylist()
    ]
    assert as_text == read_csv(tmp_path / "elements.csv")
    assert str(found.schema.field("mean").type) == "double"

    table = layer_table({name: digits(moments) for name, moments in held.items()})
    write_table(table, tmp_path / "layers.parquet")
    found = parquet.read_table(tmp_path / "layers.parquet")
    assert found.to_pylist() == rows(table)
    exact_only = layer_table({"exact": digits(held["exact"])})
    write_table(exact_only, tmp_path / "exact.parquet")
    exact_schema = parquet.read_table(tmp_path / "exact.parquet").schema
    assert exact_schema.equals(found.schema), "a column without values keeps its type"
    write_table(Table("none", ("layer",), ()), tmp_path / "none.parquet")
    assert parquet.read_table(tmp_path / "none.parquet").num_rows == 0


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without pyarrow, Parquet is refused with what to install and what to write instead; CSV is written."""
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    table = Table("layers", ("layer",), (("conv",),))
    for write in (
        lambda path: write_table(table, path),
        lambda path: write_columns(element_columns(layers()), path),
    ):
        with pytest.raises(UsageError, match=r"pip install pyarrow, or write \.csv"):
            write(tmp_path / "table.parquet")
    assert list(tmp_path.iterdir()) == []
    write_table(table, tmp_path / "table.csv")
    assert (tmp_path / "table.csv").read_text(encoding="utf-8") == table.to_csv()


def test_what_is_refused(tmp_path: Path) -> None:
    """Other endings, no layers and layers of one sample are refused, and leave no file."""
    table = Table("layers", ("layer",), ())
    with pytest.raises(UsageError, match=r"\.csv or \.parquet, not as \.xlsx"):
        write_table(table, tmp_path / "table.xlsx")
    with pytest.raises(UsageError, match="a name without ending"):
        write_columns(element_columns(layers()), tmp_path / "table")
    with pytest.raises(VariabilityError, match="no layer"):
        write_columns(element_columns({}), tmp_path / "none.csv")
    with pytest.raises(VariabilityError, match="conv1: one sample"):
        write_columns(
            element_columns({**layers(), "conv1": gathered(np.ones((1, 2)), "conv1")}), tmp_path / "one.csv"
        )
    assert list(tmp_path.iterdir()) == []
