"""Sessions of ONNX Runtime, with the same options for inference and for the export gate."""

import contextlib
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
from numpy.typing import NDArray

from zoo.errors import UsageError, VerificationError
from zoo.inference.ort.saturation import exact_products
from zoo.inference.threads import environment_threads
from zoo.io.limits import MAX_ONNX_FOLDED_BYTES, MAX_ONNX_LOAD_SECONDS

SILENT = 4  # log only fatal errors; errors are raised anyway
# In 1.31, the operator of a norm after a sum takes several times as long as both on CPUs: see
# benchmarks/onnx_operators.py.
SLOW_ON_CPU = ["SkipLayerNormFusion"]
FOLDED = "optimization.constant_folding_max_output_size_in_bytes"  # older releases ignore it


class RefusedGraph(VerificationError):
    """ONNX Runtime rejects a graph, such as for an operator that it lacks."""


def create_session(
    graph: Path | bytes, device: str = "cpu", threads: int | None = None
) -> onnxruntime.InferenceSession:
    """Load a graph with all graph optimizations that make it faster and exact integer products."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.log_severity_level = SILENT
    options.add_session_config_entry(FOLDED, str(MAX_ONNX_FOLDED_BYTES))
    exact_products(options)
    options.intra_op_num_threads = threads or environment_threads() or 0  # 0 for all cores
    providers = _providers(device)
    disabled = SLOW_ON_CPU if device == "cpu" else []
    with _cancelled_after(options, MAX_ONNX_LOAD_SECONDS):
        try:
            return onnxruntime.InferenceSession(
                graph, options, providers=providers, disabled_optimizers=disabled
            )
        except Exception as error:  # exceptions of ONNX Runtime have no common base
            release = f"ONNX Runtime {onnxruntime.__version__}"
            name = "a graph" if isinstance(graph, bytes) else graph
            raise RefusedGraph(f"{name}: {release} refuses it: {_line(error)}") from error


@contextlib.contextmanager
def _cancelled_after(options: onnxruntime.SessionOptions, seconds: float) -> Iterator[None]:
    """Cancel loading after some seconds; the flag is checked between optimization passes."""
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
    """Run a graph on numpy arrays."""
    try:
        results = session.run(list(outputs), dict(arrays))
    except Exception as error:
        raise VerificationError(f"ONNX Runtime fails: {_line(error)}") from error
    return dict(zip(outputs, results, strict=True))


def ort_value(array: NDArray[Any]) -> onnxruntime.OrtValue:
    """Return an array as a value of ONNX Runtime, on the CPU."""
    return onnxruntime.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def run_values(
    session: onnxruntime.InferenceSession,
    values: Mapping[str, onnxruntime.OrtValue],
    outputs: Sequence[str],
    device: str = "cpu",
) -> dict[str, onnxruntime.OrtValue]:
    """Run a graph on values of ONNX Runtime by I/O binding, without copying them."""
    device_type, _, index = device.partition(":")
    try:
        binding = session.io_binding()
        for name, value in values.items():
            binding.bind_ortvalue_input(name, value)
        for name in outputs:
            binding.bind_output(name, device_type, int(index or 0))
        session.run_with_iobinding(binding)
    except Exception as error:
        raise VerificationError(f"ONNX Runtime fails: {_line(error)}") from error
    return dict(zip(outputs, binding.get_outputs(), strict=True))


def _providers(device: str) -> list[Any]:
    device_type, _, index = device.partition(":")
    if device_type == "cpu":
        return ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        raise UsageError(
            f"onnxruntime {onnxruntime.__version__} here has no CUDA",
            "install onnxruntime-gpu instead, or leave --device out",
        )
    # float32 is float32, as in torch: TF32 has 10 bits of mantissa
    options = {"device_id": int(index or 0), "use_tf32": 0}
    return [("CUDAExecutionProvider", options), "CPUExecutionProvider"]


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
