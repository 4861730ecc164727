"""Every network of the shared instances loads and agrees with ONNX Runtime."""

from __future__ import annotations

import csv
import warnings
from pathlib import Path

import numpy as np
import pytest

from boundscope.network import load_network
from boundscope.network.comparison import compare_with_onnxruntime

LARGE = {"nn4sys_2021"}  # 336 MB unpacked
FAMILIES = (
    "acasxu",
    "carvana_unet",
    "cctsdb_yolo",
    "cgan",
    "cifar10_resnet",
    "cifar_biasfield",
    "collins_rul_cnn",
    "dist_shift",
    "eran",
    "marabou-cifar10",
    "metaroom",
    "ml4acopf_2023",
    "ml4acopf_2024",
    "mnist_fc",
    "nn4sys",
    pytest.param("nn4sys_2021", marks=pytest.mark.slow),
    "oval21",
    "reach_prob_density",
    "rl_benchmarks",
    "safenlp",
    "sri_resnet_b",
    "test",
    "tllverifybench",
    "traffic_signs_recognition",
    "verivital",
    "vit",
)


def test_all_families_are_listed(vnncomp: Path) -> None:
    with open(vnncomp / "manifest.csv", newline="") as file:
        families = {row["family"] for row in csv.DictReader(file)}
    assert families == {getattr(f, "values", (f,))[0] for f in FAMILIES}


@pytest.mark.parametrize("family", FAMILIES)
def test_family(vnncomp: Path, family: str) -> None:
    with open(vnncomp / "manifest.csv", newline="") as file:
        paths = sorted({row["onnx"] for row in csv.DictReader(file) if row["family"] == family})
    assert paths
    for path in paths:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            network = load_network(vnncomp / path)
            count = network.input_count
            comparison = compare_with_onnxruntime(network, np.full(count, -0.5), np.full(count, 0.5))
        assert comparison.nodes == tuple(node.name for node in network.nodes)
        assert comparison.tensors >= len(network.nodes)


@pytest.mark.parametrize(
    "case",
    ["BND-01", "BND-02", "BND-04", "BND-06", "BND-09", "ONX-01", "ONX-03", "ONX-05", "ONX-09"]
    + ["PRS-01", "PRS-03", "PRS-04", "VNN-01", "VNN-03", "VNN-05", "VNN-07", "VNN-11"],
)
def test_case(cases: Path, case: str) -> None:
    network = load_network(cases / case / "model.onnx")
    count = network.input_count
    for low, high in ((-3.0, -1.0), (-1.0, 1.0), (0.25, 1.75)):
        comparison = compare_with_onnxruntime(network, np.full(count, low), np.full(count, high))
        assert len(comparison.nodes) == len(network.nodes)
