"""Make the networks and properties in resources/examples. They are committed: run this only to change them.

    pip install scikit-learn && python resources/make_examples.py

Trains three small networks from fixed seeds on one thread: a fully connected and a convolutional classifier
of the 8×8 digits that come with scikit-learn (UCI "Optical Recognition of Handwritten Digits", CC BY 4.0) and
a small collision-avoidance advisor on a rule that is written here. No network access.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from torch import nn

EXAMPLES = Path(__file__).resolve().parent / "examples"
OPSET = 17
SEED = 20
TRAINING_ROWS = 1500  # of 1 797; the examples' images come from the rest


@dataclass(frozen=True)
class Digits:
    """Images [n, 1, 8, 8] with grey values in [0, 1], and their labels [n]."""

    images: torch.Tensor
    labels: torch.Tensor


def load_digits() -> Digits:
    from sklearn.datasets import load_digits as load  # type: ignore[import-not-found]

    data = load()
    images = torch.tensor(data.images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return Digits(images, torch.tensor(data.target, dtype=torch.long))


# ---------------------------------------------------------------- training


def train(
    model: nn.Module, inputs: torch.Tensor, labels: torch.Tensor, *, epochs: int, radius: float
) -> None:
    """Adam on inputs disturbed by one signed-gradient step of `radius`, so that proofs succeed."""
    torch.manual_seed(SEED)
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3, weight_decay=1e-4)
    loss_of = nn.CrossEntropyLoss()
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = 2e-3 * (1 - epoch / epochs) + 1e-5
        for batch in torch.split(torch.randperm(len(inputs)), 64):
            start = inputs[batch] + radius * (2 * torch.rand_like(inputs[batch]) - 1)
            start.requires_grad_(True)
            (gradient,) = torch.autograd.grad(loss_of(model(start), labels[batch]), start)
            disturbed = (start.detach() + radius * gradient.sign()).clamp(0, 1)
            optimizer.zero_grad()
            loss_of(model(disturbed), labels[batch]).backward()
            optimizer.step()
    model.eval()


def mlp(sizes: tuple[int, ...]) -> nn.Sequential:
    layers: list[nn.Module] = [nn.Flatten()]
    for width_in, width_out in pairwise(sizes):
        layers += [nn.Linear(width_in, width_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def small_cnn() -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(1, 8, 3, stride=1, padding=1),
        nn.ReLU(),
        nn.Conv2d(8, 16, 4, stride=2, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * 4 * 4, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )


def advisory_data(count: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Random encounters in [0, 1]⁵ and the advice of a simple rule.

    Inputs: distance, bearing of the intruder (½ is ahead), its relative heading, own speed, its speed.
    Advice: 0 clear of conflict, 1 weak left, 2 weak right, 3 strong left, 4 strong right.
    """
    generator = torch.Generator().manual_seed(SEED)
    encounter = torch.rand(count, 5, generator=generator)
    distance, bearing, heading, own, other = encounter.T
    closing = own * torch.cos(np.pi * (bearing - 0.5)) + other * torch.cos(np.pi * (heading - 0.5))
    danger = closing / (distance + 0.15)
    side = (bearing > 0.5).long()  # an intruder on the right: turn left
    advice = torch.where(danger > 4.0, 3 + (1 - side), torch.where(danger > 2.0, 1 + (1 - side), 0))
    return encounter, advice


# ---------------------------------------------------------------- files


def write_onnx(model: nn.Sequential, input_shape: tuple[int, ...], path: Path) -> None:
    """The model as ONNX with one Conv, Relu, Flatten or Gemm node a layer."""
    nodes, weights = [], []
    tensor = "X"
    counts: dict[str, int] = {}
    for index, layer in enumerate(model):
        kind = {nn.Flatten: "Flatten", nn.Linear: "Gemm", nn.ReLU: "Relu", nn.Conv2d: "Conv"}[type(layer)]
        counts[kind] = counts.get(kind, 0) + 1
        name = f"{ {'Gemm': 'dense'}.get(kind, kind.lower()) }{counts[kind]}"
        output = "Y" if index == len(model) - 1 else f"{name}_out"
        inputs = [tensor]
        if isinstance(layer, nn.Linear | nn.Conv2d):
            for role, value in layer.named_parameters():
                weights.append(numpy_helper.from_array(value.data.numpy(), f"{name}.{role}"))
                inputs.append(f"{name}.{role}")
        attributes: dict[str, Any] = {}
        if isinstance(layer, nn.Linear):
            attributes = {"transB": 1}
        if isinstance(layer, nn.Conv2d):
            attributes = {
                "kernel_shape": list(layer.kernel_size),
                "strides": list(layer.stride),
                "pads": [*map(int, layer.padding)] * 2,
            }
        nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        tensor = output
    outputs = int(model(torch.zeros(1, *input_shape)).shape[-1])
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info("X", TensorProto.FLOAT, [1, *input_shape])],
        [helper.make_tensor_value_info("Y", TensorProto.FLOAT, [1, outputs])],
        weights,
    )
    file = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], producer_name="boundscope"
    )
    file.ir_version = 8
    onnx.checker.check_model(file, full_check=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(file, path)


def vnnlib(
    comment: Iterable[str],
    lower: NDArray[np.float64],
    upper: NDArray[np.float64],
    clauses: Iterable[str],
    outputs: int,
) -> str:
    lines = [f"; {line}" for line in comment]
    lines += [f"(declare-const X_{i} Real)" for i in range(len(lower))]
    lines += [f"(declare-const Y_{i} Real)" for i in range(outputs)]
    for i, (low, high) in enumerate(zip(lower, upper, strict=True)):
        lines += [f"(assert (>= X_{i} {low:.6f}))", f"(assert (<= X_{i} {high:.6f}))"]
    lines += ["(assert (or", *(f"  (and {clause})" for clause in clauses), "))", ""]
    return "\n".join(lines)


def write_example(
    identity: str, title: str, description: str, network: str, text: str, expected: str
) -> None:
    folder = EXAMPLES / identity
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "property.vnnlib").write_text(text)
    facts = {
        "id": identity,
        "title": title,
        "description": description,
        "network": f"../networks/{network}.onnx",
        "property": "property.vnnlib",
        "method": "crown",
        "expected": expected,
    }
    (folder / "example.json").write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n")


def digit_property(digits: Digits, index: int, epsilon: float) -> tuple[str, int]:
    """The ball of `epsilon` around image number `index`, clipped to [0, 1]: no other digit may win."""
    image = digits.images[index].double().numpy().reshape(-1)
    label = int(digits.labels[index])
    lower, upper = np.maximum(image - epsilon, 0.0), np.minimum(image + epsilon, 1.0)
    comment = (
        f"Every image whose grey values differ by at most {epsilon} from test image {index} (a {label}).",
        "Violated where some other digit scores at least as high.",
    )
    clauses = (f"(>= Y_{other} Y_{label})" for other in range(10) if other != label)
    return vnnlib(comment, lower, upper, clauses, 10), label


# ---------------------------------------------------------------- what is shipped

MLP_IMAGE, MLP_PROVEN, MLP_BROKEN = 1503, 0.08, 0.25
CNN_IMAGE, CNN_PROVEN = 1510, 0.06
FAR = (np.array([0.8, 0.2, 0.25, 0.1, 0.0]), np.array([1.0, 0.8, 0.75, 0.6, 0.5]))


def make_digits() -> None:
    digits = load_digits()
    test = slice(TRAINING_ROWS, None)
    for name, model, epochs, radius in (
        ("digits_mlp", mlp((64, 96, 96, 96, 10)), 40, 0.06),
        ("digits_cnn", small_cnn(), 30, 0.05),
    ):
        torch.manual_seed(SEED)
        for layer in model:
            if isinstance(layer, nn.Linear | nn.Conv2d):
                layer.reset_parameters()
        train(
            model, digits.images[:TRAINING_ROWS], digits.labels[:TRAINING_ROWS], epochs=epochs, radius=radius
        )
        hits = (model(digits.images[test]).argmax(1) == digits.labels[test]).float().mean()
        print(f"{name}: {hits:.1%} of the test images right")
        write_onnx(model, (1, 8, 8), EXAMPLES / "networks" / f"{name}.onnx")

    text, label = digit_property(digits, MLP_IMAGE, MLP_PROVEN)
    write_example(
        "digits-robust",
        "A digit that stays a digit",
        f"A fully connected network reads this handwritten {label} right however each of its 64 grey values "
        f"is changed by up to {MLP_PROVEN:.0%}. CROWN proves it.",
        "digits_mlp",
        text,
        "verified",
    )
    text, label = digit_property(digits, MLP_IMAGE, MLP_BROKEN)
    write_example(
        "digits-fooled",
        "The same digit, fooled",
        f"The same network and image, but each grey value may change by up to {MLP_BROKEN:.0%}: an image is "
        f"found, shown and replayed that is no longer read as a {label}.",
        "digits_mlp",
        text,
        "violated",
    )
    text, label = digit_property(digits, CNN_IMAGE, CNN_PROVEN)
    write_example(
        "digits-conv",
        "A convolutional network",
        f"Two convolutions and two dense layers read this handwritten {label}; each grey value may change by "
        f"up to {CNN_PROVEN:.0%}. CROWN proves that the answer stays.",
        "digits_cnn",
        text,
        "verified",
    )


def make_advisor() -> None:
    torch.manual_seed(SEED)
    model = mlp((5, 24, 24, 24, 5))
    encounters, advice = advisory_data(20_000)
    train(model, encounters, advice, epochs=15, radius=0.0)
    print(f"advisor: {(model(encounters).argmax(1) == advice).float().mean():.1%} of the rule's advice")
    write_onnx(model, (5,), EXAMPLES / "networks" / "advisor.onnx")
    comment = (
        "A slow intruder, far away: the advice must not be a strong turn.",
        "X: distance, bearing, heading, own speed, intruder's speed, each scaled to [0, 1].",
        "Y: scores of clear of conflict, weak left, weak right, strong left, strong right; the highest wins.",
        "Violated where a strong turn scores at least as high as every other advice.",
    )
    clauses = (" ".join(f"(>= Y_{turn} Y_{other})" for other in (0, 1, 2)) for turn in (3, 4))
    write_example(
        "advisor-far",
        "A collision-avoidance advisor",
        "A slow intruder that is far away never makes the network advise a strong turn, left or right: a "
        "property with a disjunction of conjunctions over the outputs.",
        "advisor",
        vnnlib(comment, *FAR, clauses, 5),
        "verified",
    )


def main() -> None:
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    make_digits()
    make_advisor()


if __name__ == "__main__":
    main()
