"""Inference backends: one ``Session`` interface over torch and ONNX Runtime."""

# Importing this package imports neither library; a session imports the one that it needs.

from typing import TYPE_CHECKING

from zoo.errors import UsageError, did_you_mean
from zoo.inference.session import INT4, INT8, QUANTIZED, BackendWarning, Need, Session
from zoo.io.limits import MAX_THREADS

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

__all__ = [
    "BACKENDS",
    "INT4",
    "INT8",
    "QUANTIZED",
    "BackendWarning",
    "Need",
    "Session",
    "available",
    "check_threads",
    "dtype_name",
    "has_graph_alone",
    "load_session",
    "require_onnxruntime",
]

BACKENDS = ("auto", "cpu", "cuda", "onnx")


def load_session(
    checkpoint: "Checkpoint",
    backend: str = "auto",
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
) -> Session:
    """Load a checkpoint into a backend.

    ``cpu`` and ``cuda`` run the weights in torch, ``onnx`` runs the graph in ONNX Runtime; ``auto``
    is ``onnx`` if the directory holds only a graph, else ``cuda`` if available, else ``cpu``. The
    default dtype is float32 on CPUs, the stored one on CUDA, and the graph's in ONNX Runtime.
    ``int8``, in torch on a CPU, multiplies 8-bit weights and inputs; the rest is float32.
    """
    check_threads(threads)
    name = dtype_name(dtype)
    if _runs_in_onnxruntime(checkpoint, backend):
        require_onnxruntime()
        from zoo.inference.ort.session import OnnxSession

        return OnnxSession.checked(checkpoint, device, threads, name)
    if name == INT4:
        raise UsageError(f"torch does not compute in {name} here", "use --backend onnx")
    from zoo.inference.torch_session import TorchSession

    return TorchSession(checkpoint, backend, device, name, threads)


def available() -> dict[str, str]:
    """Return backend -> its device and library version, or the reason why it is unavailable."""
    from zoo.nn.devices import cuda_problem, describe_cpu, describe_cuda

    problem = cuda_problem()
    return {
        "cpu": describe_cpu(),
        "cuda": f"not available: {problem}" if problem else describe_cuda(),
        "onnx": _describe_onnx(),
    }


def check_threads(threads: int | None) -> None:
    """Check a number of CPU threads."""
    if threads is not None and not 1 <= threads <= MAX_THREADS:
        raise UsageError(
            f"{threads} threads are not possible", f"give a number up to {MAX_THREADS}"
        )


def dtype_name(dtype: str | None) -> str | None:
    """Return the long name of a dtype: ``float16`` for ``fp16``, or ``int8`` and ``int4``."""
    if dtype in QUANTIZED:
        return dtype
    from zoo.conversion.dtypes import parse_dtype  # zoo.conversion is slow to import
    from zoo.io.tensors.formats import DTYPE_NAMES

    code = parse_dtype(dtype)
    return DTYPE_NAMES[code] if code else None


def require_onnxruntime() -> None:
    """Import ONNX Runtime."""
    try:
        import onnxruntime  # noqa: F401
    except ImportError as error:
        raise UsageError(
            f"ONNX Runtime cannot be loaded: {error}", "pip install onnxruntime"
        ) from error


def has_graph_alone(checkpoint: "Checkpoint") -> bool:
    """Return whether a directory holds an ONNX graph and no weights for torch."""
    return checkpoint.is_export and not any(path.is_file() for path in checkpoint.weight_files())


def _runs_in_onnxruntime(checkpoint: "Checkpoint", backend: str) -> bool:
    if backend not in BACKENDS:
        raise UsageError(
            f"no backend is called {backend!r}",
            did_you_mean(backend, BACKENDS) or f"there are {', '.join(BACKENDS)}",
        )
    if checkpoint.export_target not in (None, "onnx"):
        raise UsageError(
            f"{checkpoint.name} holds a model for {checkpoint.export_target}, and neither weights "
            "nor an ONNX graph",
            "give the model that it was exported from",
        )
    graph_alone = has_graph_alone(checkpoint)
    if backend == "auto":
        return graph_alone
    if backend != "onnx" and graph_alone:
        raise UsageError(
            f"{checkpoint.name} holds an ONNX graph and no weights for torch", "use --backend onnx"
        )
    return backend == "onnx"


def _describe_onnx() -> str:
    try:
        import onnxruntime
    except ImportError as error:
        return f"not available: {error}; pip install onnxruntime"
    cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return f"onnxruntime {onnxruntime.__version__} on {'cuda and cpu' if cuda else 'cpu'}"
