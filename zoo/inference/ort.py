"""ONNX Runtime, set up in one way for sessions and for the export gate."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnxruntime
from numpy.typing import NDArray

from zoo.errors import UsageError, VerificationError
from zoo.io.limits import ONNX_FOLDED_BYTES, ONNX_LOAD_SECONDS

SILENT = 4  # severity of what is logged: an error is raised as well
FOLDED = "optimization.constant_folding_max_output_size_in_bytes"  # older releases ignore it


def create_session(
    graph: Path, device: str = "cpu", threads: int | None = None
) -> onnxruntime.InferenceSession:
    """Load a graph with all of the runtime's optimisations.

    Args:
        graph: the file.
        device: ``cpu``, or ``cuda:0`` and the like.
        threads: CPU threads; by default as many as there are cores.

    Raises:
        UsageError: the installed runtime has no CUDA.
        VerificationError: it does not accept the graph.
    """
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = SILENT
    options.add_session_config_entry(FOLDED, str(ONNX_FOLDED_BYTES))
    if threads is not None:
        options.intra_op_num_threads = threads
    providers = _providers(device)
    try:
        with _cancelled_after(options, ONNX_LOAD_SECONDS):
            return onnxruntime.InferenceSession(graph, options, providers=providers)
    except Exception as error:  # the runtime's exceptions have no base of their own
        raise VerificationError(f"{graph}: ONNX Runtime refuses it: {_line(error)}") from error


@contextlib.contextmanager
def _cancelled_after(options: onnxruntime.SessionOptions, seconds: float) -> Iterator[None]:
    """Let the runtime give up loading a graph after some time; it looks between its passes."""
    timer = threading.Timer(seconds, options.set_load_cancellation_flag, [True])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def run_graph(
    session: onnxruntime.InferenceSession,
    arrays: Mapping[str, NDArray[Any]],
    outputs: Sequence[str],
) -> dict[str, NDArray[Any]]:
    """Run a graph; its outputs come in the dtype they have there.

    Raises:
        VerificationError: the runtime fails on inputs that the model takes.
    """
    try:
        found = session.run(list(outputs), dict(arrays))
    except Exception as error:
        raise VerificationError(f"ONNX Runtime fails: {_line(error)}") from error
    return dict(zip(outputs, found, strict=True))


def run_values(
    session: onnxruntime.InferenceSession,
    values: Mapping[str, onnxruntime.OrtValue],
    outputs: Sequence[str],
) -> dict[str, onnxruntime.OrtValue]:
    """Run a graph on what the runtime holds, and return what it holds then: nothing is copied.

    Raises:
        VerificationError: see ``run_graph``.
    """
    try:
        found = session.run_with_ort_values(list(outputs), dict(values))
    except Exception as error:
        raise VerificationError(f"ONNX Runtime fails: {_line(error)}") from error
    return dict(zip(outputs, found, strict=True))


def _providers(device: str) -> list[Any]:
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise UsageError(
            f"onnxruntime {onnxruntime.__version__} here has no CUDA",
            "install onnxruntime-gpu in its place, or leave --device out",
        )
    return [("CUDAExecutionProvider", {"device_id": int(index or 0)}), "CPUExecutionProvider"]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
