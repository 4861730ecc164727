"""convolution: every fused multiply-add is rounded as the text says, in the stated order, for every form of it."""

from __future__ import annotations

import hashlib
import itertools
import math
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

import boundscope_prism
from boundscope_prism import Mode, PrismArgumentError, convolution, matmul, rounding
from prism import oracle

MODES: tuple[Mode, ...] = ("rn", "sr", "ud", "rr")
WIDTHS: dict[Any, int] = {np.float32: 32, np.float64: 64}
TYPES = (np.float32, np.float64)
SEED, SAMPLE, OPERATION, FIRST_IMAGE = 11, 4, 9, 3


@dataclass(frozen=True)
class Case:
    """One form of a convolution, every option an entry for each spatial axis."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    dilation: tuple[int, ...]
    groups: int = 1
    transposed: bool = False
    output_padding: tuple[int, ...] = ()

    def options(self) -> dict[str, Any]:
        return {
            "stride": self.stride,
            "padding": self.padding,
            "dilation": self.dilation,
            "groups": self.groups,
            "transposed": self.transposed,
            "output_padding": self.output_padding or 0,
        }

    @property
    def out_channels(self) -> int:
        return self.weight[1] * self.groups if self.transposed else self.weight[0]


SMALL = {
    "2-D, uneven padding": Case((2, 3, 5, 6), (4, 3, 3, 2), (1, 1), ((1, 0), (2, 1)), (1, 1)),
    "strides and dilation": Case((1, 2, 9, 8), (18, 2, 2, 3), (3, 2), ((0, 2), (0, 0)), (2, 3)),
    "groups of whole lanes": Case((2, 4, 3, 4), (32, 2, 1, 3), (1, 1), ((0, 0), (0, 1)), (1, 1), 2),
    "small groups": Case((1, 6, 4, 4), (9, 2, 2, 2), (1, 2), ((1, 1), (0, 0)), (1, 1), 3),
    "depthwise": Case((2, 18, 4, 3), (18, 1, 3, 3), (1, 1), ((1, 1), (1, 1)), (1, 1), 18),
    "depthwise, 2 each": Case((1, 5, 4), (10, 1, 3), (1,), ((0, 0),), (1,), 5),
    "1-D, more steps than a tile of bits": Case((1, 12, 6), (3, 12, 3), (1,), ((1, 2),), (1,)),
    "3-D": Case((1, 2, 3, 3, 4), (2, 2, 2, 1, 3), (1, 2, 1), ((1, 0), (0, 0), (1, 1)), (1, 1, 1)),
    "transposed": Case((2, 3, 3, 2), (3, 4, 3, 3), (2, 2), ((1, 0), (0, 1)), (1, 1), 1, True, (1, 0)),
    "transposed groups": Case((1, 6, 3, 3), (6, 2, 2, 2), (3, 2), ((0, 0), (1, 0)), (1, 3), 3, True),
    "transposed, stride 1": Case((1, 2, 4), (2, 17, 3), (1,), ((2, 1),), (2,), 1, True),
}


def bits(array: NDArray[Any]) -> NDArray[Any]:
    return array.view(np.uint32 if array.dtype == np.float32 else np.uint64)


def arrays(
    case: Case, dtype: Any, kind: str, seed: int = 1
) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    rng = np.random.default_rng(seed)
    made = []
    for shape in (case.x, case.weight, (case.out_channels,)):
        values = np.where(rng.random(shape) < 0.1, 0.0, rng.standard_normal(shape))
        if kind == "tiny":
            values = values * 2.0 ** rng.integers(-76, -60, shape)
        if kind == "special":
            odd = rng.choice([-0.0, np.inf, -np.inf, np.nan, 3.4e38, -1e-40], shape)
            values = np.where(rng.random(shape) < 0.04, odd, values)
        made.append(values.astype(dtype))
    return made[0], made[1], made[2]


@dataclass(frozen=True)
class Step:
    """One fused multiply-add of an output element: `place` is None where the input is a zero beyond the edges."""

    channel: int
    place: tuple[int, ...] | None
    kernel: tuple[int, ...]


def axis_steps(case: Case, axis: int, o: int) -> Iterator[tuple[int | None, int]]:
    """(input or None for padding, kernel position) that output o meets on one axis, in order."""
    size, kernel = case.x[2 + axis], case.weight[2 + axis]
    stride, dilation, before = case.stride[axis], case.dilation[axis], case.padding[axis][0]
    for k in range(kernel):
        if case.transposed:
            # The input stuffed with zeros, the kernel flipped; what is stuffed is no step.
            stuffed = o - (dilation * (kernel - 1) - before) + k * dilation
            if stuffed % stride:
                continue
            i, position = stuffed // stride, kernel - 1 - k
        else:
            i, position = o * stride - before + k * dilation, k
        yield (i if 0 <= i < size else None), position


def steps_of(case: Case, o: tuple[int, ...]) -> list[Step]:
    axes = [list(axis_steps(case, axis, place)) for axis, place in enumerate(o)]
    steps = []
    for channel in range(case.x[1] // case.groups):
        for visits in itertools.product(*axes):
            places = [place for place, _ in visits]
            inside = None if None in places else tuple(place for place in places if place is not None)
            steps.append(Step(channel, inside, tuple(position for _, position in visits)))
    return steps


def stream_row(case: Case, image: int, channel: int, o: tuple[int, ...], size: tuple[int, ...]) -> int:
    phases, phase, count, number = 1, 0, 1, 0
    for axis, place in enumerate(o):
        stride = case.stride[axis] if case.transposed else 1
        in_phase = len(range(place % stride, size[axis], stride))
        phases, phase = phases * stride, phase * stride + place % stride
        count, number = count * in_phase, number * in_phase + place // stride
    return (((FIRST_IMAGE + image) * count + number) * phases + phase) * -(
        -case.out_channels // 16
    ) + channel // 16


def element(
    case: Case,
    operands: tuple[NDArray[Any], NDArray[Any], NDArray[Any]],
    mode: Mode,
    precision: int | None,
    index: tuple[int, ...],
    size: tuple[int, ...],
) -> int:
    """The bits of one output element."""
    x, weight, bias = operands
    image, channel, *o = index
    dtype = x.dtype.type
    width = WIDTHS[dtype]
    fmt = oracle.float32(precision or 24) if width == 32 else oracle.float64(precision or 53)
    key = oracle.Key(SEED, SAMPLE, OPERATION, 0)
    in_group, out_group = case.x[1] // case.groups, case.out_channels // case.groups
    group = channel // out_group
    row = stream_row(case, image, channel, tuple(o), size)
    all_steps = in_group * math.prod(case.weight[2:])
    total: int = oracle.bits_of(float(bias[channel]) + 0.0, width)
    for number, step in enumerate(steps_of(case, tuple(o))):
        source = group * in_group + step.channel
        a = 0.0 if step.place is None else float(x[(image, source, *step.place)])
        first, second = (source, channel % out_group) if case.transposed else (channel, step.channel)
        b = float(weight[(first, second, *step.kernel)])
        random = oracle.random_of(key, mode, channel % 16, number, row=row, steps=all_steps)
        exact = oracle.exact("fma", a, b, oracle.from_bits(total, width))
        total = oracle.rounded(exact, fmt, mode, random)
    return total


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", SMALL)
def test_every_step_is_rounded_as_the_text_says(name: str, mode: Mode) -> None:
    case = SMALL[name]
    rng = np.random.default_rng(2)
    picked: list[tuple[int, ...]] = []
    for dtype, precision, kind in itertools.product(TYPES, (None, 8), ("ordinary", "tiny", "special")):
        operands = arrays(case, dtype, kind)
        chosen = rounding(mode, seed=SEED, sample=SAMPLE, precision=precision)
        result = convolution(
            operands[0],
            operands[1],
            chosen,
            bias=operands[2],
            operation=OPERATION,
            first_image=FIRST_IMAGE,
            **case.options(),
        )
        picked = picked or [tuple(int(rng.integers(n)) for n in result.shape) for _ in range(5)]
        for index in picked:
            expected = element(case, operands, mode, precision, index, result.shape[2:])
            assert bits(result)[index] == expected, (dtype, precision, kind, index)


@dataclass(frozen=True)
class Peer:
    """A form that torch has too, larger."""

    x: tuple[int, ...]
    weight: tuple[int, ...]
    options: dict[str, Any] = field(default_factory=dict)


LARGER = {
    "1-D": Peer((3, 8, 50), (20, 8, 5), {"stride": 2, "padding": 3}),
    "2-D": Peer((2, 16, 21, 19), (40, 16, 3, 3), {"padding": (1, 2), "dilation": (2, 1)}),
    "3-D": Peer((1, 3, 6, 7, 8), (5, 3, 2, 3, 2), {"padding": (0, 1, 2), "stride": (1, 2, 1)}),
    "1x1": Peer((2, 64, 8, 8), (24, 64, 1, 1)),
    "1x1 on single positions": Peer((300, 20, 1, 1), (5, 20, 1, 1)),
    "groups": Peer((2, 24, 10, 10), (36, 6, 3, 3), {"groups": 4, "padding": 1}),
    "groups of whole lanes": Peer((2, 12, 10, 10), (48, 4, 3, 3), {"groups": 3, "padding": 1}),
    "depthwise": Peer((2, 40, 14, 13), (40, 1, 3, 3), {"groups": 40, "padding": 1, "stride": (1, 2)}),
    "transposed": Peer(
        (2, 10, 9, 8),
        (10, 6, 4, 4),
        {"stride": 2, "padding": 1, "transposed": True, "output_padding": (1, 0)},
    ),
    "transposed groups": Peer(
        (2, 10, 9, 8), (10, 3, 3, 3), {"stride": (3, 2), "groups": 5, "dilation": (1, 2), "transposed": True}
    ),
    "transposed 1-D, gaps between the inputs": Peer((2, 3, 9), (3, 4, 2), {"stride": 5, "transposed": True}),
}


def torch_result(
    operands: tuple[torch.Tensor, torch.Tensor, torch.Tensor], options: dict[str, Any]
) -> torch.Tensor:
    """torch's result for (x, weight, bias), in float64."""
    rest = {name: value for name, value in options.items() if name != "transposed"}
    names = {
        3: ("conv1d", "conv_transpose1d"),
        4: ("conv2d", "conv_transpose2d"),
        5: ("conv3d", "conv_transpose3d"),
    }
    call = getattr(torch.nn.functional, names[operands[0].ndim]["transposed" in options])
    result: torch.Tensor = call(*(operand.double() for operand in operands), **rest)
    return result


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", LARGER)
def test_larger_ones_stay_within_the_rounding_bound_of_torch_in_float64(name: str, mode: Mode) -> None:
    """n roundings with relative errors up to u are off by at most (1 + u)**n - 1 of the sum of magnitudes."""
    peer = LARGER[name]
    generator = torch.Generator().manual_seed(5)
    transposed = "transposed" in peer.options
    channels = peer.weight[1] * peer.options.get("groups", 1) if transposed else peer.weight[0]
    x, weight, bias = (torch.randn(s, generator=generator) for s in (peer.x, peer.weight, (channels,)))
    result = convolution(x, weight, rounding(mode, seed=3), bias=bias, **peer.options)
    expected = torch_result((x, weight, bias), peer.options)
    assert result.shape == expected.shape
    magnitudes = torch_result((x.abs(), weight.abs(), bias.abs()), peer.options)
    unit = {"rn": 2.0**-24, "sr": 2.0**-23, "ud": 3 * 2.0**-24, "rr": 2.0**-23}[mode]
    steps = peer.weight[0 if transposed else 1] * math.prod(peer.weight[2:])
    bound = (math.expm1(steps * math.log1p(unit)) + 1e-12) * magnitudes
    assert torch.all((result.double() - expected).abs() <= bound)
    other = convolution(x, weight, rounding(mode, seed=4), bias=bias, **peer.options)
    assert torch.equal(result, other) == (mode == "rn")


def test_padding_of_two_sides_is_that_of_a_padded_input() -> None:
    generator = torch.Generator().manual_seed(6)
    x, weight = torch.randn(2, 3, 7, 8, generator=generator), torch.randn(6, 3, 3, 3, generator=generator)
    padded = torch.nn.functional.pad(x, (3, 0, 1, 2))
    for mode in MODES:
        chosen = rounding(mode, seed=1)
        uneven = convolution(x, weight, chosen, padding=((1, 2), (3, 0)))
        assert torch.equal(uneven, convolution(padded, weight, chosen))


def test_a_pointwise_convolution_is_the_matrix_product() -> None:
    """Same order, same words: rows are positions, columns output channels."""
    generator = torch.Generator().manual_seed(7)
    x, weight = torch.randn(1, 20, 6, 5, generator=generator), torch.randn(18, 20, generator=generator)
    for mode in MODES:
        chosen = rounding(mode, seed=1)
        product = matmul(x[0].flatten(1).T, weight.T, chosen, operation=2)
        result = convolution(x, weight[:, :, None, None], chosen, operation=2)
        assert torch.equal(result[0].flatten(1).T, product)


def test_up_down_moves_a_sum_at_the_zeros_of_the_padding_too() -> None:
    x, weight = np.ones((1, 1, 1), np.float32), np.ones((1, 1, 9), np.float32)
    moved = {float(convolution(x, weight, rounding("ud", seed=s), padding=4)[0, 0, 0]) for s in range(40)}
    assert max(abs(value - 1) for value in moved) > 2.0**-23
    exact = {float(convolution(x, weight, rounding("sr", seed=s), padding=4)[0, 0, 0]) for s in range(40)}
    assert exact == {1.0}


@pytest.mark.parametrize("name", ["2-D", "1x1 on single positions", "groups", "depthwise", "transposed"])
@pytest.mark.parametrize("mode", MODES)
def test_bits_do_not_depend_on_threads_or_the_split_of_the_batch(mode: Mode, name: str) -> None:
    peer = LARGER[name]
    rng = np.random.default_rng(8)
    x = np.concatenate([rng.standard_normal(peer.x).astype(np.float32)] * 3)
    weight = rng.standard_normal(peer.weight).astype(np.float32)
    whole = convolution(
        x, weight, rounding(mode, seed=5, threads=1), operation=7, first_image=2, **peer.options
    )
    for threads in (2, 3, 5):
        again = convolution(
            x, weight, rounding(mode, seed=5, threads=threads), operation=7, first_image=2, **peer.options
        )
        assert np.array_equal(bits(whole), bits(again))
    cuts = (0, 1, len(x) // 2, len(x))
    parts = [
        convolution(x[a:b], weight, rounding(mode, seed=5), operation=7, first_image=2 + a, **peer.options)
        for a, b in itertools.pairwise(cuts)
    ]
    assert np.array_equal(bits(whole), bits(np.concatenate(parts)))


SAME_BITS = """
import hashlib
import numpy as np
import boundscope_prism as prism
rng = np.random.default_rng(1)
digest = hashlib.sha256()
for dtype in (np.float32, np.float64):
    for scale in (1.0, 2.0**-66, 2.0**62):
        for groups, transposed in ((1, False), (20, False), (1, True), (4, True)):
            x = (rng.standard_normal((2, 20, 6, 5)) * scale).astype(dtype)
            weight = (rng.standard_normal((20, 20 // groups, 3, 3)) * scale).astype(dtype)
            for mode in ("rn", "sr", "ud", "rr"):
                for precision in (None, 11):
                    rounding = prism.rounding(mode, seed=3, precision=precision)
                    result = prism.convolution(
                        x, weight, rounding, groups=groups, transposed=transposed, padding=1, stride=(2, 1)
                    )
                    digest.update(result.tobytes())
print(digest.hexdigest())
"""


def test_every_target_gives_the_same_bits() -> None:
    digests = set()
    for target in boundscope_prism.targets():
        environment = {**os.environ, "BOUNDSCOPE_PRISM_TARGET": target}
        run = subprocess.run(
            [sys.executable, "-c", SAME_BITS], env=environment, capture_output=True, text=True, check=True
        )
        digests.add(run.stdout)
    assert len(digests) == 1


@pytest.mark.parametrize("groups", [1, 6])
@pytest.mark.parametrize("mode", MODES)
def test_nan_and_infinities_reach_the_outputs_that_see_them(mode: Mode, groups: int) -> None:
    x = np.zeros((1, 6, 7, 7), np.float32)
    x[0, 2, 3, 3], x[0, 4, 0, 6] = np.nan, np.inf
    weight = np.ones((6, 6 // groups, 3, 3), np.float32)
    result = convolution(x, weight, rounding(mode, seed=1), padding=1, groups=groups)
    expected = torch.nn.functional.conv2d(
        torch.from_numpy(x), torch.from_numpy(weight), padding=1, groups=groups
    ).numpy()
    assert np.array_equal(np.isnan(result), np.isnan(expected))
    assert np.array_equal(np.isposinf(result), np.isposinf(expected))
    assert set(bits(result)[np.isnan(result)]) == {0x7FC00000}


def test_positions_that_no_input_reaches_hold_the_bias() -> None:
    x, weight = np.ones((1, 2, 3), np.float32), np.ones((2, 2, 1), np.float32)
    bias = np.array([-np.float32(np.nan), -2.5], np.float32)
    result = convolution(
        x, weight, rounding("ud", seed=1), bias=bias, stride=3, transposed=True, output_padding=2
    )
    reached = np.arange(result.shape[2]) % 3 == 0
    assert set(bits(result)[0, 0]) == {0x7FC00000}
    assert np.all(result[0, 1, ~reached] == -2.5)
    assert np.all(np.abs(result[0, 1, reached] + 0.5) < 1e-5)


def test_an_empty_batch_gives_an_empty_result() -> None:
    result = convolution(np.zeros((0, 3, 8, 8)), np.ones((4, 3, 3, 3)), rounding("sr"))
    assert result.shape == (0, 4, 6, 6)


def test_tensors_give_tensors_and_views_are_read_as_they_are() -> None:
    generator = torch.Generator().manual_seed(1)
    channels_last = torch.randn(2, 9, 8, 5, generator=generator).permute(0, 3, 1, 2)
    weight = torch.randn(4, 5, 3, 3, generator=generator)
    out = torch.empty(2, 4, 7, 6)
    result = convolution(channels_last, weight, rounding("sr", seed=2), out=out)
    assert result is out
    assert torch.equal(out, convolution(channels_last.contiguous(), weight, rounding("sr", seed=2)))


X, WEIGHT = np.ones((2, 4, 6, 6)), np.ones((6, 4, 3, 3))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"x": np.ones((4, 6))},
            r"x: expected \(images, channels, \*spatial\) with one to three spatial axes",
        ),
        ({"x": np.ones((1, 4, 2, 2, 2, 2))}, "one to three spatial axes"),
        ({"x": X.astype(int)}, "x: expected float32 or float64, got int64"),
        ({"weight": WEIGHT.astype(np.float32)}, "weight: expected float64, got float32"),
        ({"weight": np.ones((6, 4, 3))}, "weight: expected 4 axes as x"),
        (
            {"weight": np.ones((6, 3, 3, 3))},
            "weight: expected 4 on the second axis, for 4 channels of x in 1 groups",
        ),
        ({"weight": np.ones((6, 4, 0, 3))}, "weight: expected sizes of at least 1"),
        ({"groups": 3}, "groups: expected a divisor of the 4 channels of x, got 3"),
        (
            {"groups": 4, "weight": np.ones((6, 1, 3, 3))},
            "groups: expected a divisor of the 6 output channels, got 4",
        ),
        ({"transposed": True}, "weight: expected 4 on the first axis"),
        ({"bias": np.ones(4)}, r"bias: expected the shape \(6,\), got \(4,\)"),
        ({"stride": 0}, "stride: expected an integer from 1"),
        ({"stride": (1, 2, 3)}, "stride: expected one number or 2, one a spatial axis"),
        ({"dilation": 1.5}, "dilation: expected an integer, got float"),
        ({"dilation": 4}, "on axis 0 the kernel is larger than the padded input"),
        ({"padding": -1}, "padding: expected an integer from 0"),
        ({"padding": ((1, 1), 2)}, r"padding: expected one number, 2 numbers or 2 pairs \(before, after\)"),
        ({"padding": ((1, 1), (0, -2))}, "padding: expected an integer from 0"),
        ({"output_padding": 1}, "output_padding: expected 0 without transposed=True"),
        (
            {"transposed": True, "weight": np.ones((4, 6, 3, 3)), "output_padding": 1},
            r"output_padding: expected less than the stride or the dilation \(1, 1\), got 1",
        ),
        (
            {"transposed": True, "weight": np.ones((4, 6, 3, 3)), "padding": 4},
            "on axis 0 the padding cuts all off",
        ),
        ({"out": np.ones((2, 6, 4, 5))}, r"out: expected the shape \(2, 6, 4, 4\)"),
        ({"first_image": -1}, "first_image: expected an integer from 0"),
        ({"operation": 2**56}, "operation: expected an integer from 0"),
    ],
)
def test_a_wrong_argument_is_named_with_what_was_expected(arguments: dict[str, Any], said: str) -> None:
    with pytest.raises(PrismArgumentError, match=said):
        convolution(**{"x": X, "weight": WEIGHT, "rounding": rounding("sr"), **arguments})


def test_known_digest() -> None:
    """The bits of fixed convolutions: a change of the words or of the order must be meant."""
    rng = np.random.default_rng(42)
    x, weight = (rng.standard_normal(s).astype(np.float32) for s in ((2, 8, 7, 6), (8, 4, 3, 3)))
    digest = hashlib.sha256()
    for mode, transposed in itertools.product(MODES, (False, True)):
        chosen = rounding(mode, seed=1, sample=2)
        result = convolution(
            x, weight, chosen, groups=2, transposed=transposed, stride=2, padding=1, operation=3
        )
        digest.update(result.tobytes())
    assert digest.hexdigest()[:16] == "360a19a2e2918294"
