"""Small modules, at least one for every operator that torch.nn has: what instrument() is tried on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional


@dataclass(frozen=True)
class Small:
    """A module's maker, and the shapes of its inputs."""

    make: Callable[[], nn.Module]
    shapes: tuple[tuple[int, ...], ...]
    # Of an input of whole numbers, one more than the largest; it comes last.
    classes: int | None = None

    def inputs(self, seed: int = 0) -> list[Tensor]:
        generator = torch.Generator().manual_seed(seed)
        drawn = [torch.randn(shape, generator=generator) for shape in self.shapes]
        if self.classes is not None:
            drawn[-1] = torch.randint(0, self.classes, self.shapes[-1], generator=generator)
        return drawn

    def module(self, seed: int = 0) -> nn.Module:
        torch.manual_seed(seed)
        return self.make()


class Attention(nn.MultiheadAttention):
    def forward(self, x: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, x, x, need_weights=False)[0]


class Function(nn.Module):
    def __init__(self, function: Callable[..., Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Tensor:
        return self.function(*inputs)


def encoder() -> nn.Module:
    return nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, dropout=0.1)


def statistics(module: nn.Module) -> nn.Module:
    """Batch norm that has seen something."""
    module(torch.randn(4, 4, 6, 6) * 2 + 1)
    return module.eval()


ROWS, TOKENS, SIGNAL, IMAGE, VOLUME = (3, 16), (2, 6, 16), (2, 4, 9), (2, 4, 8, 8), (2, 3, 4, 5, 6)

SMALL: dict[str, Small] = {
    "Linear": Small(lambda: nn.Linear(16, 5), (TOKENS,)),
    "Linear without bias": Small(lambda: nn.Linear(16, 5, bias=False), (TOKENS,)),
    "Conv1d": Small(lambda: nn.Conv1d(4, 6, 3, padding=1), (SIGNAL,)),
    "Conv2d": Small(lambda: nn.Conv2d(4, 6, 3, stride=2, padding=1, groups=2), (IMAGE,)),
    "Conv3d": Small(lambda: nn.Conv3d(3, 4, 2, dilation=2), (VOLUME,)),
    "ConvTranspose1d": Small(lambda: nn.ConvTranspose1d(4, 6, 3, stride=2), (SIGNAL,)),
    "ConvTranspose2d": Small(lambda: nn.ConvTranspose2d(4, 6, 3, 2, 1, output_padding=1, groups=2), (IMAGE,)),
    "BatchNorm1d": Small(lambda: nn.BatchNorm1d(4), (SIGNAL,)),
    "BatchNorm1d of rows": Small(lambda: nn.BatchNorm1d(16), (ROWS,)),
    "BatchNorm2d": Small(lambda: nn.BatchNorm2d(4), (IMAGE,)),
    "BatchNorm2d eval": Small(lambda: statistics(nn.BatchNorm2d(4)), (IMAGE,)),
    "LayerNorm": Small(lambda: nn.LayerNorm(16), (TOKENS,)),
    "GroupNorm": Small(lambda: nn.GroupNorm(2, 4), (IMAGE,)),
    "InstanceNorm2d": Small(lambda: nn.InstanceNorm2d(4, affine=True), (IMAGE,)),
    "RMSNorm": Small(lambda: nn.RMSNorm(16), (TOKENS,)),
    "Softmax": Small(lambda: nn.Softmax(-1), (TOKENS,)),
    "Softmax inside": Small(lambda: nn.Softmax(1), (TOKENS,)),
    "LogSoftmax": Small(lambda: nn.LogSoftmax(-1), (TOKENS,)),
    "MultiheadAttention": Small(lambda: Attention(16, 4, batch_first=True), (TOKENS,)),
    "TransformerEncoderLayer eval": Small(lambda: encoder().eval(), (TOKENS,)),
    "TransformerEncoderLayer train": Small(encoder, (TOKENS,)),
    "LSTM": Small(lambda: nn.LSTM(16, 8, batch_first=True), (TOKENS,)),
    "GRU": Small(lambda: nn.GRU(16, 8, bidirectional=True), (TOKENS,)),
    "RNN": Small(lambda: nn.RNN(16, 8, num_layers=2), (TOKENS,)),
    "LSTMCell": Small(lambda: nn.LSTMCell(16, 8), (ROWS,)),
    "GRUCell": Small(lambda: nn.GRUCell(16, 8), (ROWS,)),
    "AvgPool1d": Small(lambda: nn.AvgPool1d(3, 2, 1), (SIGNAL,)),
    "AvgPool2d": Small(lambda: nn.AvgPool2d(3, 2, 1), (IMAGE,)),
    "AvgPool2d without pad": Small(
        lambda: nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (IMAGE,)
    ),
    "AvgPool3d": Small(lambda: nn.AvgPool3d(2, 1, 1), (VOLUME,)),
    "AdaptiveAvgPool1d": Small(lambda: nn.AdaptiveAvgPool1d(4), (SIGNAL,)),
    "AdaptiveAvgPool2d": Small(lambda: nn.AdaptiveAvgPool2d((3, 5)), (IMAGE,)),
    "MaxPool2d": Small(lambda: nn.MaxPool2d(3, 2, 1), (IMAGE,)),
    "Embedding and Linear": Small(lambda: nn.Sequential(nn.Embedding(10, 8), nn.Linear(8, 3)), ((3, 5),), 10),
    "PixelShuffle": Small(lambda: nn.PixelShuffle(2), (IMAGE,)),
    "Dropout": Small(lambda: nn.Dropout(), (TOKENS,)),
    "LocalResponseNorm": Small(lambda: nn.LocalResponseNorm(2), (IMAGE,)),
    "Upsample nearest": Small(lambda: nn.Upsample(scale_factor=2), (IMAGE,)),
    "Upsample bilinear": Small(lambda: nn.Upsample(scale_factor=1.7, mode="bilinear"), (IMAGE,)),
    "Bilinear": Small(lambda: nn.Bilinear(16, 16, 3), (TOKENS, TOKENS)),
    "CosineSimilarity": Small(lambda: nn.CosineSimilarity(-1), (TOKENS, TOKENS)),
    "MSELoss": Small(lambda: nn.MSELoss(), (ROWS, ROWS)),
    "L1Loss": Small(lambda: nn.L1Loss(), (ROWS, ROWS)),
    "CrossEntropyLoss": Small(lambda: nn.CrossEntropyLoss(), (ROWS, (3,)), 16),
    **{
        name: Small(getattr(nn, name), (TOKENS,))
        for name in ("ReLU", "GELU", "SiLU", "Softplus", "ELU", "Mish", "Hardswish", "PReLU", "LeakyReLU")
    },
    **{name: Small(getattr(nn, name), (TOKENS,)) for name in ("Sigmoid", "Tanh", "Hardtanh")},
}

# Operators that no bound is worked out for, or that are not in the zoo's first list: run, covered, close to torch.
MORE: dict[str, Small] = {
    "AdaptiveAvgPool3d": Small(lambda: nn.AdaptiveAvgPool3d((2, 3, 2)), (VOLUME,)),
    "MaxPool1d": Small(lambda: nn.MaxPool1d(3, 2), (SIGNAL,)),
    "MaxPool3d": Small(lambda: nn.MaxPool3d(2), (VOLUME,)),
    "LPPool2d": Small(lambda: nn.LPPool2d(2, 2), (IMAGE,)),
    "EmbeddingBag": Small(lambda: nn.EmbeddingBag(10, 8), ((3, 5),), 10),
    **{
        name: Small(getattr(nn, name), (TOKENS,))
        for name in (
            "CELU",
            "SELU",
            "Hardsigmoid",
            "LogSigmoid",
            "Softsign",
            "Softmin",
            "Softshrink",
            "Hardshrink",
        )
    },
    "GELU by tanh": Small(lambda: nn.GELU("tanh"), (TOKENS,)),
    "Tanhshrink": Small(nn.Tanhshrink, (TOKENS,)),
    "GLU": Small(nn.GLU, (TOKENS,)),
    "RReLU": Small(nn.RReLU, (TOKENS,)),
    "AlphaDropout": Small(nn.AlphaDropout, (TOKENS,)),
    "Upsample bicubic": Small(lambda: nn.Upsample(scale_factor=2, mode="bicubic"), (IMAGE,)),
    "Upsample linear": Small(lambda: nn.Upsample(scale_factor=2, mode="linear"), (SIGNAL,)),
    "Upsample trilinear": Small(lambda: nn.Upsample(scale_factor=2, mode="trilinear"), (VOLUME,)),
    "Upsample by corners": Small(lambda: nn.Upsample((5, 11), mode="bilinear", align_corners=True), (IMAGE,)),
    "PairwiseDistance": Small(nn.PairwiseDistance, (ROWS, ROWS)),
    "cdist": Small(lambda: Function(torch.cdist), (ROWS, ROWS)),
    "SmoothL1Loss": Small(nn.SmoothL1Loss, (ROWS, ROWS)),
    "HuberLoss": Small(nn.HuberLoss, (ROWS, ROWS)),
    "MultiMarginLoss": Small(nn.MultiMarginLoss, (ROWS, (3,)), 16),
    "TripletMarginLoss": Small(nn.TripletMarginLoss, (ROWS, ROWS, ROWS)),
    "PoissonNLLLoss": Small(nn.PoissonNLLLoss, (ROWS, ROWS)),
    "KLDivLoss": Small(
        lambda: Function(lambda x, y: functional.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="sum")),
        (ROWS, ROWS),
    ),
    "BCELoss": Small(
        lambda: Function(lambda x, y: functional.binary_cross_entropy(x.sigmoid(), y.sigmoid())), (ROWS, ROWS)
    ),
    "BCEWithLogitsLoss": Small(
        lambda: Function(lambda x, y: functional.binary_cross_entropy_with_logits(x, y.sigmoid())),
        (ROWS, ROWS),
    ),
    "ReflectionPad2d": Small(lambda: nn.ReflectionPad2d(1), (IMAGE,)),
    "ReplicationPad2d": Small(lambda: nn.ReplicationPad2d(1), (IMAGE,)),
    "Fold": Small(lambda: nn.Fold((4, 4), (2, 2)), ((1, 8, 9),)),
    "Unfold": Small(lambda: nn.Unfold(2), (IMAGE,)),
    "cumsum": Small(lambda: Function(lambda x: x.cumsum(1)), (TOKENS,)),
    "cumprod": Small(lambda: Function(lambda x: x.cumprod(1)), (TOKENS,)),
    "prod": Small(lambda: Function(lambda x: x.prod(-1)), (TOKENS,)),
    "var and std": Small(lambda: Function(lambda x: x.var(1) + x.std(1)), (TOKENS,)),
    "norm of order 3": Small(lambda: Function(lambda x: x.norm(3, dim=-1)), (TOKENS,)),
    "logsumexp": Small(lambda: Function(lambda x: x.logsumexp(1)), (TOKENS,)),
    "einsum": Small(lambda: Function(lambda x, y: torch.einsum("bij,bkj->bik", x, y)), (TOKENS, TOKENS)),
    "weight norm": Small(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(16, 3)), (TOKENS,)),
    "causal attention": Small(
        lambda: Function(lambda x: functional.scaled_dot_product_attention(x, x, x, is_causal=True)),
        (TOKENS,),
    ),
    "grid sample": Small(
        lambda: Function(lambda x, g: functional.grid_sample(x, g.tanh(), align_corners=False)),
        (IMAGE, (2, 5, 5, 2)),
    ),
    "index add": Small(
        lambda: Function(lambda x: x.index_add(1, torch.tensor([0, 0, 3]), x[:, :3])), (TOKENS,)
    ),
}
