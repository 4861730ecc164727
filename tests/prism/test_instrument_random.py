"""Random networks under instrument(): outputs within the proven bound, whatever the layers, the mode and the sample."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from boundscope_prism import Mode, instrument
from prism.rounding_bound import UNITS, bounded

CHANNELS, SIDE = 4, 6


class Residual(nn.Module):
    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


def image_layer(name: str) -> nn.Module:
    return {
        "conv": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1),
        "grouped": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=1, groups=2),
        "dilated": lambda: nn.Conv2d(CHANNELS, CHANNELS, 3, padding=2, dilation=2),
        "transposed": lambda: nn.ConvTranspose2d(CHANNELS, CHANNELS, 3, padding=1),
        "group norm": lambda: nn.GroupNorm(2, CHANNELS),
        "batch norm": lambda: nn.BatchNorm2d(CHANNELS).eval(),
        "average": lambda: nn.AvgPool2d(3, 1, 1),
        "maximum": lambda: nn.MaxPool2d(3, 1, 1),
        "relu": nn.ReLU,
        "gelu": nn.GELU,
        "silu": nn.SiLU,
        "tanh": nn.Tanh,
        "leaky": nn.LeakyReLU,
        "softmax": lambda: nn.Softmax(1),
        "residual": lambda: Residual(nn.Conv2d(CHANNELS, CHANNELS, 1)),
    }[name]()


NAMES = ("conv", "grouped", "dilated", "transposed", "group norm", "batch norm", "average", "maximum", "relu", "gelu",
         "silu", "tanh", "leaky", "softmax", "residual")  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(
    names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=6),
    seed=st.integers(0, 2**32 - 1),
    sample=st.integers(0, 2**64 - 1),
    scale=st.sampled_from([1e-3, 1.0, 100.0]),
    mode=st.sampled_from(sorted(UNITS)),
)
def test_random_networks_keep_their_bound(
    names: list[str], seed: int, sample: int, scale: float, mode: Mode
) -> None:
    """A stack of convolutions, norms, pools, activations and residuals, then a dense layer."""
    torch.manual_seed(seed)
    model = nn.Sequential(
        *(image_layer(name) for name in names), nn.Flatten(), nn.Linear(CHANNELS * SIDE**2, 5)
    ).eval()
    x = torch.randn(2, CHANNELS, SIDE, SIDE) * scale
    exact, bound = bounded(model, [x], UNITS[mode])
    with torch.no_grad(), instrument(mode, seed=seed, sample=sample, threads=1) as run:
        got = model(x)
    assert run.coverage.complete
    assert ((got.double() - exact).abs() <= bound).all()
