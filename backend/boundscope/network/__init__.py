"""ONNX files as a typed graph, evaluated in torch. torch and onnx are imported only once a file is loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import BinaryIO

from boundscope.network.graph import Network, Node, Operator, Shape, TensorInfo

__all__ = ["Network", "Node", "Operator", "Shape", "TensorInfo", "load_network"]


def load_network(
    path: str | os.PathLike[str],
    *,
    told: Callable[[int, int], None] | None = None,
    mapped: bool = False,
    unpacked: BinaryIO | None = None,
) -> Network:
    """Read an ONNX file (.onnx or .onnx.gz, with its external data beside it).

    `mapped`: large constants are views of the file, which take memory only where they are read (see
    `boundscope.network.arrays`), and may begin at any byte; `Network.files` says which files must stay as they are.

    `unpacked`: of a gzip file, what `boundscope.network.file.unpack` gave, which is then not unpacked again.
    `told` hears, after each node of the file, how many are read and how many there are.

    Raises:
        NetworkError: the file cannot be read, is not a valid network, or holds NaN or Inf weights.
        UnsupportedOperatorError: names every node whose operator has no class.
    """
    from boundscope.network.loader import load

    return load(path, told, mapped=mapped, unpacked=unpacked)
