"""The networks of the studies, each with its inputs: a CNN, a U-Net and a speech encoder, made from fixed seeds."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

SEED = 5
TRAINING_DIGITS = 1500
SHAPE_CLASSES = 3  # background, disc, rectangle

Floats = NDArray[np.float32]
Labels = NDArray[np.signedinteger[Any]]


@dataclass(frozen=True)
class Study:
    """A network in `eval`, its inputs, and how well decisions do: `value` takes them, the scores' argmax over `axis`.

    `truth` is None where only the unperturbed decisions can be compared with; `value` then gets those.
    """

    name: str
    model: nn.Module
    inputs: Tensor
    truth: Labels | None
    value_name: str
    value: Callable[[Labels, Labels], float]
    axis: int = 1

    def decided(self, scores: Floats) -> Labels:
        return np.asarray(scores.argmax(axis=self.axis))


# ------------------------------------------------------------ values


def accuracy(decided: Labels, truth: Labels) -> float:
    return float((decided == truth).mean())


def dice(decided: Labels, truth: Labels) -> float:
    """Sørensen-Dice 2|A ∩ B|/(|A| + |B|) over all pixels of all images, mean over the classes but background.

    A class that neither has counts as 1.
    """
    found = []
    for which in range(1, SHAPE_CLASSES):
        mine, other = decided == which, truth == which
        size = int(mine.sum()) + int(other.sum())
        found.append(2 * int((mine & other).sum()) / size if size else 1.0)
    return float(np.mean(found))


# ------------------------------------------------------------ digits


def scikit_digits() -> tuple[Tensor, Tensor]:
    """Images [1797, 1, 8, 8] in [0, 1] and labels. Raises ModuleNotFoundError without scikit-learn."""
    from sklearn.datasets import load_digits  # type: ignore[import-not-found]

    data = load_digits()
    images = torch.tensor(data.images / 16.0, dtype=torch.float32).reshape(-1, 1, 8, 8)
    return images, torch.tensor(data.target, dtype=torch.long)


def drawn_digits(count: int) -> tuple[Tensor, Tensor]:
    """Digits of seven segments in noise, of the same shape and the same 17 grey values, for where there is no
    scikit-learn."""
    generator = torch.Generator().manual_seed(SEED)
    segments = torch.zeros(7, 8, 8)
    for which, (rows, columns) in enumerate(
        (((0, 1), (2, 6)), ((0, 4), (5, 6)), ((4, 8), (5, 6)), ((7, 8), (2, 6)), ((4, 8), (1, 2)))
        + (((0, 4), (1, 2)), ((3, 4), (2, 6)))
    ):
        segments[which, slice(*rows), slice(*columns)] = 1
    lit = (0x3F, 0x06, 0x5B, 0x4F, 0x66, 0x6D, 0x7D, 0x07, 0x7F, 0x6F)
    glyphs = torch.stack([segments[[bit for bit in range(7) if code >> bit & 1]].amax(0) for code in lit])
    labels = torch.randint(0, 10, (count,), generator=generator)
    noise = 0.3 * torch.randn(count, 8, 8, generator=generator)
    images = (16 * (0.8 * glyphs[labels] + noise)).round().clamp(0, 16) / 16
    return images.reshape(-1, 1, 8, 8), labels


def digits_study(
    images: Tensor, labels: Tensor, *, training: int = TRAINING_DIGITS, epochs: int = 15
) -> Study:
    """A CNN trained on the first `training` images; the rest are its inputs."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = nn.Sequential(
            OrderedDict[str, nn.Module](
                conv1=nn.Conv2d(1, 16, 3, padding=1),
                relu1=nn.ReLU(),
                conv2=nn.Conv2d(16, 32, 3, padding=1),
                relu2=nn.ReLU(),
                pool=nn.MaxPool2d(2),
                flatten=nn.Flatten(),
                dense1=nn.Linear(512, 64),
                relu3=nn.ReLU(),
                dense2=nn.Linear(64, 10),
            )
        )
        optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
        for _ in range(epochs):
            for batch in torch.split(torch.randperm(training), 64):
                _step(model, optimizer, images[batch], labels[batch])
    return Study("digits", model.eval(), images[training:], labels[training:].numpy(), "accuracy", accuracy)


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, x: Tensor, y: Tensor) -> None:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(x), y).backward()  # type: ignore[no-untyped-call]
    optimizer.step()


# ------------------------------------------------------------ segmentation


def shapes(count: int, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images [count, 1, size, size] of a disc and a rectangle in noise, and the class of each pixel."""
    axis = torch.arange(size, dtype=torch.float32)
    rows, columns = axis.reshape(1, -1, 1), axis.reshape(1, 1, -1)
    centre = size * (0.2 + 0.6 * torch.rand(4, count, 1, 1, generator=generator))
    extent = size * (0.1 + 0.12 * torch.rand(3, count, 1, 1, generator=generator))
    disc = (rows - centre[0]) ** 2 + (columns - centre[1]) ** 2 <= extent[0] ** 2
    rectangle = ((rows - centre[2]).abs() <= extent[1]) & ((columns - centre[3]).abs() <= extent[2])
    truth = torch.where(rectangle, 2, torch.where(disc, 1, 0))
    images = 0.5 * (truth > 0) + 0.3 * torch.randn(count, size, size, generator=generator)
    return images[:, None], truth


def _block(inputs: int, outputs: int) -> nn.Sequential:
    layers: list[nn.Module] = []
    for channels in (inputs, outputs):
        layers += [nn.Conv2d(channels, outputs, 3, padding=1), nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """Two levels down and up, as in Ronneberger et al., "U-Net" (MICCAI 2015), with batch normalisation."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.down1, self.down2 = _block(1, width), _block(width, 2 * width)
        self.bottom = _block(2 * width, 4 * width)
        self.pool1, self.pool2 = nn.MaxPool2d(2), nn.MaxPool2d(2)
        self.raise2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, stride=2)
        self.raise1 = nn.ConvTranspose2d(2 * width, width, 2, stride=2)
        self.up2, self.up1 = _block(4 * width, 2 * width), _block(2 * width, width)
        self.head = nn.Conv2d(width, SHAPE_CLASSES, 1)

    def forward(self, x: Tensor) -> Tensor:
        first = self.down1(x)
        second = self.down2(self.pool1(first))
        bottom = self.bottom(self.pool2(second))
        second = self.up2(torch.cat([self.raise2(bottom), second], 1))
        first = self.up1(torch.cat([self.raise1(second), first], 1))
        return self.head(first)  # type: ignore[no-any-return]


def segmentation_study(*, steps: int = 150, size: int = 32, images: int = 16) -> Study:
    generator = torch.Generator().manual_seed(SEED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = UNet()
        optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
        for _ in range(steps):
            _step(model, optimizer, *shapes(16, size, generator))
    inputs, truth = shapes(images, size, generator)
    return Study("segmentation", model.eval(), inputs, truth.numpy(), "Dice", dice)


# ------------------------------------------------------------ speech


class Attention(nn.Module):
    """Self-attention with WavLM's gated relative position bias (Chen et al., "WavLM", 2022, section III.A)."""

    def __init__(self, width: int, heads: int, reach: int = 32) -> None:
        super().__init__()
        self.heads, self.reach = heads, reach
        self.query, self.key, self.value, self.out = (nn.Linear(width, width) for _ in range(4))
        self.gate = nn.Linear(width // heads, 2)
        self.sigmoid = nn.Sigmoid()
        self.position = nn.Parameter(torch.randn(heads, 2 * reach + 1))
        self.scale = nn.Parameter(torch.ones(heads, 1, 1))
        self.softmax = nn.Softmax(-1)

    def forward(self, x: Tensor) -> Tensor:
        batch, frames, width = x.shape
        q, k, v = (
            linear(x).reshape(batch, frames, self.heads, -1).transpose(1, 2)
            for linear in (self.query, self.key, self.value)
        )
        update, reset = self.sigmoid(self.gate(q)).unsqueeze(-2).unbind(-1)
        steps = torch.arange(frames)
        distance = (steps[None, :] - steps[:, None]).clamp(-self.reach, self.reach) + self.reach
        bias = self.position[:, distance]
        update, reset = update.transpose(-2, -1), reset.transpose(-2, -1)
        gated = bias + update * bias + (1 - update) * self.scale * (reset * bias)
        weights = self.softmax(q @ k.transpose(-2, -1) / (width // self.heads) ** 0.5 + gated)
        return self.out((weights @ v).transpose(1, 2).reshape(batch, frames, width))  # type: ignore[no-any-return]


class EncoderLayer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.attention = Attention(width, heads)
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.inner = nn.Linear(width, 4 * width)
        self.gelu = nn.GELU()
        self.outer = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = self.norm1(x + self.attention(x))
        return self.norm2(x + self.outer(self.gelu(self.inner(x))))  # type: ignore[no-any-return]


class SpeechEncoder(nn.Module):
    """Scores of 32 units for each frame of a waveform [batch, 1, samples]: [batch, frames, 32]."""

    def __init__(self, width: int = 64, heads: int = 4, layers: int = 3, units: int = 32) -> None:
        super().__init__()
        front: list[nn.Module] = [
            nn.Conv1d(1, 32, 10, 5, bias=False),
            nn.GroupNorm(32, 32),
            nn.GELU(),
        ]
        for kernel in (3, 3, 2):
            front += [nn.Conv1d(32, 32, kernel, 2, bias=False), nn.GELU()]
        self.front = nn.Sequential(*front)
        self.norm = nn.LayerNorm(32)
        self.project = nn.Linear(32, width)
        self.position = nn.Conv1d(width, width, 9, padding=4, groups=4)
        self.gelu = nn.GELU()
        self.layers = nn.Sequential(*(EncoderLayer(width, heads) for _ in range(layers)))
        self.units = nn.Linear(width, units)

    def forward(self, wave: Tensor) -> Tensor:
        x = self.project(self.norm(self.front(wave).transpose(1, 2)))
        x = x + self.gelu(self.position(x.transpose(1, 2))).transpose(1, 2)
        return self.units(self.layers(x))  # type: ignore[no-any-return]


def speech_study(*, waves: int = 2, points: int = 2000) -> Study:
    """Waves are three voices of drifting pitch, in noise."""
    generator = torch.Generator().manual_seed(SEED)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        model = SpeechEncoder().eval()
    time_s = torch.arange(points) / 16000
    pitch_hz, drift_hz = 100 + 400 * torch.rand(2, waves, 3, 1, generator=generator)
    voices = torch.sin(2 * torch.pi * (pitch_hz * time_s + 0.5 * drift_hz * time_s**2)).mean(1)
    wave = voices + 0.1 * torch.randn(waves, points, generator=generator)
    return Study("speech", model, wave[:, None], None, "agreement", accuracy, axis=2)
