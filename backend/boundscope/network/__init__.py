"""ONNX files as a typed graph, evaluated in torch. torch and onnx are imported only once a file is loaded."""

from __future__ import annotations

import os

from boundscope.network.graph import Network, Node, Operator, Shape, TensorInfo

__all__ = ["Network", "Node", "Operator", "Shape", "TensorInfo", "load_network"]


def load_network(path: str | os.PathLike[str]) -> Network:
    """Read an ONNX file (.onnx or .onnx.gz, with its external data beside it).

    Raises:
        NetworkError: the file cannot be read, is not a valid network, or holds NaN or Inf weights.
        UnsupportedOperatorError: names every node whose operator has no class.
    """
    from boundscope.network.loader import load

    return load(path)
