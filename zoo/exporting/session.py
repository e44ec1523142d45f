"""Sessions for any checkpoint; for runtimes other than torch, weights are exported first."""

import logging
from typing import TYPE_CHECKING

from zoo.checkpoint.digests import check_digests
from zoo.errors import UsageError
from zoo.exporting.targets import ONNX
from zoo.inference import (
    BACKENDS,
    INT4,
    check_threads,
    dtype_name,
    load_session,
    require_onnxruntime,
)
from zoo.inference.session import no_layers

if TYPE_CHECKING:
    from collections.abc import Collection

    from zoo.adapted_models.checkpoint import AdaptedCheckpoint
    from zoo.checkpoint import Checkpoint
    from zoo.inference import Need, Session

LOG = logging.getLogger("zoo")


def open_session(
    checkpoint: "Checkpoint",
    backend: str = "auto",
    device: str | None = None,
    dtype: str | None = None,
    threads: int | None = None,
    *,
    fastest: bool = False,
    needs: "Collection[Need]" = (),
) -> "Session":
    """Load a checkpoint into a backend; other than torch, export weights on first use."""
    # Exports are cached under ``$ZOO_HOME``; see ``zoo.exporting.cache``. A backend that lacks what
    # is needed is refused before anything is exported. With ``fastest``, the backend ``auto`` is
    # the fastest one that ``zoo bench`` measured here, unless a device or an export without weights
    # leaves no choice, or token vectors are read, which not all have. The dtype never changes.
    check_threads(threads)
    from zoo.adapted_models.checkpoint import AdaptedCheckpoint

    if isinstance(checkpoint, AdaptedCheckpoint) and checkpoint.base.is_export:
        return _with_adapter(checkpoint, backend, device, dtype, threads)
    by_token = {"layers", "tokens"}.intersection(needs)
    free = backend == "auto" and device is None and not checkpoint.is_export
    if fastest and free and not by_token:
        from zoo.exporting.fastest import fastest_backend

        measured = fastest_backend(checkpoint, threads, dtype_name(dtype))
        if measured is not None:
            at = f" in {dtype_name(dtype)}" if dtype else ""
            LOG.info("backend: %s, the fastest of zoo bench on this machine%s", measured, at)
            backend = measured
    if checkpoint.export_target not in (None, ONNX) or backend not in BACKENDS:
        from zoo.exporting.backend import open_target

        return open_target(checkpoint, backend, device, dtype, threads, needs)
    if backend == "auto" and dtype == INT4:  # torch has no products of int4
        backend = "onnx"
    if backend != "onnx" or checkpoint.is_export:
        return load_session(checkpoint, backend, device, dtype, threads)
    require_onnxruntime()
    if "layers" in needs:
        raise no_layers(backend)
    from zoo.exporting.cache import cached_graph
    from zoo.inference.ort.session import OnnxSession

    name = dtype_name(dtype)
    return OnnxSession(cached_graph(checkpoint, name), device, threads, name)


def _with_adapter(
    checkpoint: "AdaptedCheckpoint",
    backend: str,
    device: str | None,
    dtype: str | None,
    threads: int | None,
) -> "Session":
    """Open a graph that takes an adapter, with one."""
    if backend not in ("auto", "onnx"):
        raise UsageError(
            f"{checkpoint.base.name} holds an ONNX graph, not a model for {backend}",
            "use --backend onnx",
        )
    require_onnxruntime()
    from zoo.adapters.graph_inputs import adapter_arrays
    from zoo.inference.ort.session import OnnxSession

    (adapter,) = checkpoint.adapters
    check_digests(adapter.path)
    session = OnnxSession.checked(checkpoint.base, device, threads, dtype_name(dtype))
    session.use_adapter(adapter_arrays(adapter))
    return session
