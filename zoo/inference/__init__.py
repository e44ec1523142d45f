"""Backends: one Session interface over torch and ONNX Runtime. Torch comes with a session."""

from typing import TYPE_CHECKING

from zoo.convert.dtypes import LONG, parse_dtype
from zoo.errors import UsageError, did_you_mean
from zoo.inference.session import BackendWarning, Session

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

__all__ = ["BACKENDS", "BackendWarning", "Session", "available", "open_session"]

BACKENDS = ("auto", "cpu", "cuda", "onnx")
THREADS = 1024  # no machine has more cores, and libraries give up their process over many more


def open_session(
    checkpoint: "Checkpoint",
    backend: str = "auto",
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
) -> Session:
    """Load a checkpoint into a backend.

    Args:
        checkpoint: the model.
        backend: ``cpu`` and ``cuda`` run it in torch, ``onnx`` in ONNX Runtime (exporting it
            once, where the directory holds no graph). ``auto`` is ``onnx`` where the directory
            holds a graph alone, else ``cuda`` where there is a device, else ``cpu``.
        device: ``cpu``, ``cuda`` or ``cuda:1``; by default what the backend implies.
        dtype: what to compute in. By default float32 on CPUs whatever the files store, on CUDA
            what the files store, in ONNX Runtime what the graph was exported in.
        threads: CPU threads; by default the library's choice, which is all cores.

    Raises:
        UsageError: a name is unknown, the backend is not available here, or it cannot compute
            in the dtype; the message says what to install or to ask for.
        VerificationError: the files are damaged or do not belong together.
        SourceError: a file is missing.
    """
    if threads is not None and not 1 <= threads <= THREADS:
        raise UsageError(f"{threads} threads are not possible", f"give a number up to {THREADS}")
    code = parse_dtype(dtype)
    wanted = LONG[code] if code else None
    if _choose(checkpoint, backend, device) == "onnx":
        return _open_onnx(checkpoint, device, wanted, threads)
    from zoo.inference.torch_session import TorchSession

    return TorchSession(checkpoint, backend, device, wanted, threads)


def available() -> dict[str, str]:
    """Say of each backend what it would run on, or why it is not available."""
    from zoo.nn.devices import cuda_problem, describe_cpu, describe_cuda

    problem = cuda_problem()
    return {
        "cpu": describe_cpu(),
        "cuda": f"not available: {problem}" if problem else describe_cuda(),
        "onnx": _describe_onnx(),
    }


def _choose(checkpoint: "Checkpoint", backend: str, device: str | None) -> str:
    """Return ``onnx`` or ``torch``."""
    if backend not in BACKENDS:
        raise UsageError(
            f"no backend is called {backend!r}",
            did_you_mean(backend, BACKENDS) or f"there are {', '.join(BACKENDS)}",
        )
    exported = checkpoint.graph is not None or checkpoint.manifest.export is not None
    graph_alone = exported and not any(path.is_file() for path in checkpoint.weight_files())
    if backend == "auto":
        return "onnx" if graph_alone else "torch"
    if backend != "onnx" and graph_alone:
        raise UsageError(
            f"{checkpoint.path} holds an ONNX graph and no weights for torch", "use --backend onnx"
        )
    return "onnx" if backend == "onnx" else "torch"


def _open_onnx(
    checkpoint: "Checkpoint", device: str | None, dtype: str | None, threads: int | None
) -> Session:
    try:
        from zoo.inference.ort_session import open_onnx
    except ImportError as error:
        raise UsageError(
            f"ONNX Runtime cannot be loaded: {error}", "pip install onnxruntime"
        ) from error
    return open_onnx(checkpoint, device, dtype, threads)


def _describe_onnx() -> str:
    try:
        import onnxruntime
    except ImportError as error:
        return f"not available: {error}; pip install onnxruntime"
    cuda = "CUDAExecutionProvider" in onnxruntime.get_available_providers()
    return f"onnxruntime {onnxruntime.__version__} on {'cuda and cpu' if cuda else 'cpu'}"
