"""The public hard cases of kind prism, run as ONNX networks under instrument()."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import boundscope_prism
from boundscope.network.graph import Network
from boundscope.network.loader import load
from boundscope.variability.digits import Kind, digits_of_samples

SAMPLES = 10_000


def case(cases: Path, name: str) -> tuple[Network, dict[str, Any]]:
    folder = cases / name
    if not folder.is_dir():
        pytest.skip(f"{folder} is not there")
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    return load(folder / "model.onnx"), expected["props"]["prop.vnnlib"]


def evaluate(network: Network, x: list[float], mode: boundscope_prism.Mode, sample: int = 0) -> np.ndarray:
    info = network.inputs[0]
    given = {info.name: torch.tensor(x, dtype=torch.float32).view(info.shape)}
    with boundscope_prism.instrument(mode, seed=1, sample=sample, threads=1):
        (out,) = network.evaluate(given).values()
    return out.numpy().reshape(-1)


def samples(
    network: Network, x: list[float], mode: boundscope_prism.Mode, count: int = SAMPLES
) -> np.ndarray:
    return np.stack([evaluate(network, x, mode, sample) for sample in range(count)])


def test_exact_operations_on_powers_of_two(cases: Path) -> None:
    """PRS-01: SR leaves exact results alone and their digits are "exact"; UD moves all but zeros of zeros."""
    network, expected = case(cases, "PRS-01")
    x = [1.5, 1.5]
    nearest = np.array(expected["rn_output"], np.float32)
    assert np.array_equal(evaluate(network, x, "rn"), nearest)
    assert (samples(network, x, "sr", 50) == nearest).all()
    moved = samples(network, x, "ud", 50)
    assert (moved[:, [0, 1, 3]] != nearest[[0, 1, 3]]).any(axis=0).all()
    assert np.abs(moved - nearest).max() < 1e-5


def test_digits_of_exact_results_are_no_division_by_zero(cases: Path) -> None:
    """PRS-01: samples that are equal count as exact, without a warning; bits are not NaN."""
    network, _expected = case(cases, "PRS-01")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = digits_of_samples(samples(network, [1.5, 1.5], "sr", 10))
    assert (found.kind == Kind.EXACT).all()


def test_subnormal_products(cases: Path) -> None:
    """PRS-03: products below the smallest normal number round between their own neighbours, with their own chances."""
    network, expected = case(cases, "PRS-03")
    x = [2.0**-49] * 3
    unit = 2.0**-149
    nearest = evaluate(network, x, "rn").astype(np.float64) / unit
    assert nearest.tolist() == expected["rn_output_units"]
    drawn = samples(network, x, "sr").astype(np.float64) / unit
    for column, (values, upper) in enumerate(
        zip(expected["sr"]["values_units"], expected["sr"]["prob_upper"], strict=True)
    ):
        assert set(drawn[:, column]) == set(values)
        assert (
            abs((drawn[:, column] == max(values)).mean() - upper)
            <= 4.5 * (upper * (1 - upper) / SAMPLES) ** 0.5
        )


@pytest.mark.parametrize("mode", ["sr", "ud"])
def test_one_addition_with_a_known_probability(cases: Path, mode: boundscope_prism.Mode) -> None:
    """PRS-04: both signs, and just below a power of two."""
    network, expected = case(cases, "PRS-04")
    x = [1.0, -1.0, 2.0]
    assert evaluate(network, x, "rn").tolist() == expected["rn_output"]
    drawn = samples(network, x, mode)
    tolerance = {"sr": 0.0169, "ud": 0.0195}[mode]
    table = expected[mode]
    for column, (values, second) in enumerate(zip(table["values"], table["prob_of_second"], strict=True)):
        assert set(drawn[:, column].astype(np.float64)) == set(values)
        assert abs((drawn[:, column] == np.float32(values[1])).mean() - second) <= tolerance
