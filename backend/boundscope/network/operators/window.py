"""Sliding windows: kernel, strides, pads and dilations, with auto_pad resolved against the static input shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from boundscope.network.operators.base import OnnxNode


def split_pads(pads: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """ONNX pads as (begins, ends)."""
    half = len(pads) // 2
    return pads[:half], pads[half:]


def torch_pads(begins: tuple[int, ...], ends: tuple[int, ...]) -> list[int]:
    """ONNX pads in the order of torch.nn.functional.pad: last axis first, begin and end of each."""
    return [value for pair in zip(reversed(begins), reversed(ends), strict=True) for value in pair]


@dataclass(frozen=True)
class Window:
    """A window over the axes after batch and channel. `pads` are all begins, then all ends."""

    kernel_shape: tuple[int, ...]
    strides: tuple[int, ...]
    pads: tuple[int, ...]
    dilations: tuple[int, ...]

    @classmethod
    def from_onnx(cls, node: OnnxNode, kernel_shape: tuple[int, ...]) -> Self:
        """Read strides, dilations, pads and auto_pad of a node whose first input is [N, C, *spatial]."""
        axes = node.rank - 2
        if len(kernel_shape) != axes or not 1 <= axes <= 3:
            node.fail(
                f"a kernel of {len(kernel_shape)} axes does not go with an input of shape {list(node.shape)}"
            )
        strides = node.integers("strides") or (1,) * axes
        dilations = node.integers("dilations") or (1,) * axes
        pads = node.integers("pads") or (0,) * (2 * axes)
        if len(strides) != axes or len(dilations) != axes or len(pads) != 2 * axes:
            node.fail(f"strides {strides}, dilations {dilations} or pads {pads} do not have {axes} axes")
        if min(strides) < 1 or min(dilations) < 1 or min(kernel_shape) < 1 or min(pads) < 0:
            node.fail("kernel, strides and dilations must be positive, and pads must not be negative")
        window = cls(kernel_shape, strides, pads, dilations)
        auto = node.text("auto_pad", "NOTSET")
        if auto in ("NOTSET", ""):
            return window
        if auto == "VALID":
            return cls(kernel_shape, strides, (0,) * (2 * axes), dilations)
        if auto not in ("SAME_UPPER", "SAME_LOWER"):
            node.fail(f"auto_pad '{auto}' is not one of NOTSET, VALID, SAME_UPPER, SAME_LOWER")
        total = [
            max(0, (-(-size // s) - 1) * s + e - size)
            for size, s, e in zip(node.shape[2:], strides, window.extents, strict=True)
        ]
        small, large = [t // 2 for t in total], [t - t // 2 for t in total]
        same = (*small, *large) if auto == "SAME_UPPER" else (*large, *small)
        return cls(kernel_shape, strides, same, dilations)

    @property
    def extents(self) -> tuple[int, ...]:
        """Elements that the dilated kernel spans."""
        return tuple((k - 1) * d + 1 for k, d in zip(self.kernel_shape, self.dilations, strict=True))

    def ceil_pads(self, spatial: tuple[int, ...]) -> tuple[int, ...]:
        """Elements to add at each end so that ceil_mode's last windows fit.

        A window that would start in the padding at the end does not count (ONNX opset 19 and ONNX Runtime).
        """
        begins, ends = split_pads(self.pads)
        extra = []
        for size, begin, end, stride, extent in zip(
            spatial, begins, ends, self.strides, self.extents, strict=True
        ):
            span = size + begin + end
            count = -(-(span - extent) // stride) + 1
            if (count - 1) * stride >= size + begin:
                count -= 1
            extra.append(max(0, (count - 1) * stride + extent - span))
        return tuple(extra)
