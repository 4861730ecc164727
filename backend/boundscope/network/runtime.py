"""ONNX Runtime on the CPU, quiet, with its errors as ours.

It is imported when a network is first loaded into it: it starts a thread of its own, and a process that has more than
one cannot be forked safely (see `boundscope.worker.spare`).
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

import numpy as np
import onnx

from boundscope.errors import NetworkError
from boundscope.network.file import has_external_data, read_bytes, read_model
from boundscope.network.operators.base import Array

_FATAL_ONLY = 4


def original_source(path: str | os.PathLike[str]) -> bytes:
    """The network as ONNX Runtime takes it: the file's own bytes, unpacked; whole where it has external data."""
    data = read_bytes(path)
    model = onnx.ModelProto()
    model.ParseFromString(data)
    if has_external_data(model):
        return bytes(read_model(path).SerializeToString())
    return data


class Session:
    """One network in ONNX Runtime."""

    def __init__(
        self,
        source: bytes | str,
        name: str,
        *,
        optimized: bool,
        threads: int = 1,
        keeps_memory: bool = True,
    ) -> None:
        """Load a network from its bytes or its path; `name` is how messages call it. `keeps_memory`: what one run took
        is kept for the next.

        Raises:
            NetworkError: ONNX Runtime refuses it.
        """
        import onnxruntime

        onnxruntime.disable_telemetry_events()
        options = onnxruntime.SessionOptions()
        options.log_severity_level = _FATAL_ONLY
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        options.enable_cpu_mem_arena = keeps_memory
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        level = onnxruntime.GraphOptimizationLevel
        options.graph_optimization_level = level.ORT_ENABLE_ALL if optimized else level.ORT_DISABLE_ALL
        self.name = name
        try:
            self._session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except _runtime_errors() as error:
            raise NetworkError(f"{name}: ONNX Runtime cannot load it: {_first_line(error)}") from error

    @property
    def inputs(self) -> list[tuple[str, tuple[int, ...], np.dtype]]:
        """Name, shape (axes that are not fixed are 1) and dtype of each input."""
        result = []
        for info in self._session.get_inputs():
            shape = tuple(size if isinstance(size, int) and size > 0 else 1 for size in info.shape)
            if info.type not in _FLOAT_TYPES:
                raise NetworkError(
                    f"{self.name}: input '{info.name}' is a {info.type}; floating-point is expected"
                )
            result.append((info.name, shape, np.dtype(_FLOAT_TYPES[info.type])))
        return result

    @property
    def takes_batches(self) -> bool:
        """Whether the first axis of every input has no fixed size."""
        return all(info.shape and not isinstance(info.shape[0], int) for info in self._session.get_inputs())

    @property
    def outputs(self) -> list[str]:
        return [info.name for info in self._session.get_outputs()]

    def run(self, feeds: Mapping[str, Array], outputs: Sequence[str] | None = None) -> list[Array]:
        """Run once.

        Raises:
            NetworkError: ONNX Runtime fails.
        """
        try:
            return list(self._session.run(None if outputs is None else list(outputs), dict(feeds)))
        except _runtime_errors() as error:
            raise NetworkError(f"{self.name}: ONNX Runtime cannot run it: {_first_line(error)}") from error


_FLOAT_TYPES = {"tensor(float)": np.float32, "tensor(double)": np.float64, "tensor(float16)": np.float16}


def _runtime_errors() -> tuple[type[Exception], ...]:
    """The binding derives each of its errors from Exception itself; there is no common base to catch."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (
        state.EPFail,
        state.EngineError,
        state.Fail,
        state.InvalidArgument,
        state.InvalidGraph,
        state.InvalidProtobuf,
        state.ModelLoaded,
        state.NoModel,
        state.NoSuchFile,
        state.NotImplemented,
        state.RuntimeException,
        RuntimeError,
        ValueError,
    )


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
