"""Every family of networks loads, and its bounds hold what ONNX Runtime computes at sampled inputs of the box.

BOUNDSCOPE_SAMPLES sets the points a network (200 here, 10000 for a full check).
"""

from __future__ import annotations

import csv
import os
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch

from boundscope.bounds import BoundEngine, MemoryLedger, unsupported
from boundscope.errors import BoundError, BoundscopeError, DeadlineError
from boundscope.monitor import Monitor
from boundscope.network import load_network
from boundscope.network.graph import Network
from boundscope.network.runtime import Session, original_source
from boundscope.properties import read_property
from boundscope.properties.types import Box
from boundscope.protocol import Arithmetic, Method
from boundscope.search.regions import inner_float
from boundscope.sharding.weights import WholeWeights

SAMPLES = int(os.environ.get("BOUNDSCOPE_SAMPLES", "200"))
CROWN_SECONDS = 6.0
# Its Slice takes a length that depends on the input, so that shapes are not fixed; refused with the node's name.
REFUSED = {"cctsdb_yolo": "Slice"}
HUGE = 100 << 20  # unpacked bytes: too large for a test of every push
FAMILIES = [
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
]


def first_of_each_network(vnncomp: Path, family: str) -> list[tuple[Path, Path]]:
    rows = [row for row in csv.DictReader((vnncomp / "manifest.csv").open()) if row["family"] == family]
    return list({vnncomp / row["onnx"]: vnncomp / row["vnnlib"] for row in reversed(rows)}.items())[:2]


def engine_for(network: Network, monitor: Monitor) -> BoundEngine:
    ledger = MemoryLedger()
    weights = WholeWeights(network.constants, ledger, torch.device("cpu"), torch.float64)
    return BoundEngine(network, weights, ledger, arithmetic=Arithmetic.FLOAT32, monitor=monitor)


def sampled_outputs(network: Network, path: Path, box: Box) -> np.ndarray:
    """[SAMPLES, outputs] of ONNX Runtime: corners and uniform points of the box, as float32 inputs."""
    onnxruntime.set_default_logger_severity(3)
    session = Session(original_source(path), path.name, optimized=True)
    (name, _, dtype) = session.inputs[0]
    (info,) = network.inputs
    random = np.random.default_rng(0)
    lower, upper = inner_float(box, np.float32 if dtype == np.float32 else np.float64)
    outputs = []
    for number in range(SAMPLES):
        share = random.random(len(lower))
        share = share.round() if number % 2 else share
        point = np.clip((lower + share * (upper - lower)).astype(dtype), lower, upper).astype(dtype)
        values = session.run({name: point.reshape(info.shape)})
        outputs.append(np.concatenate([np.asarray(value, dtype=np.float64).reshape(-1) for value in values]))
    return np.stack(outputs)


@pytest.mark.parametrize("family", FAMILIES)
def test_bounds_hold_what_is_sampled(vnncomp: Path, family: str) -> None:
    for path, prop in first_of_each_network(vnncomp, family):
        network = load_network(path)
        assert unsupported(network) == ()
        if sum(array.nbytes for array in network.constants.values()) > HUGE:
            continue
        box = read_property(prop, input_count=network.input_count).cases[0].box
        if family in REFUSED:
            with pytest.raises(BoundscopeError, match=REFUSED[family]):
                engine_for(network, Monitor()).context(box, Method.IBP)
            continue
        outputs = sampled_outputs(network, path, box)
        bounded = 0
        for method in (Method.IBP, Method.CROWN):
            try:
                context = engine_for(network, Monitor(timeout_s=CROWN_SECONDS)).context(box, method)
            except (DeadlineError, BoundError):
                continue
            bounded += 1
            ends = [context.intervals[info.name] for info in network.outputs]
            lower = torch.cat([end.lower.flatten() for end in ends]).numpy()
            upper = torch.cat([end.upper.flatten() for end in ends]).numpy()
            assert (outputs >= lower).all(), f"{path.name}, {method}"
            assert (outputs <= upper).all(), f"{path.name}, {method}"
        assert bounded, f"{path.name}: no method gave bounds"
