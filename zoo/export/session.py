"""Sessions for any checkpoint; for ONNX Runtime, weights are exported to a graph first."""

from typing import TYPE_CHECKING

from zoo.inference import INT4, check_threads, dtype_name, open_session, require_onnxruntime

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Session


def open_or_export(
    checkpoint: "Checkpoint",
    backend: str = "auto",
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
) -> "Session":
    """Load a checkpoint into a backend; for ``onnx``, export weights to a graph on first use.

    The graph is cached under ``$ZOO_HOME/onnx``; see ``cached_graph``.
    """
    if backend == "auto" and dtype == INT4:  # torch has no products of int4
        backend = "onnx"
    if backend != "onnx" or checkpoint.is_export:
        return open_session(checkpoint, backend, device, dtype, threads)
    check_threads(threads)
    require_onnxruntime()
    from zoo.export.on_first_use import cached_graph
    from zoo.inference.ort.session import OnnxSession

    name = dtype_name(dtype)
    return OnnxSession(cached_graph(checkpoint, name), device, threads, name)
