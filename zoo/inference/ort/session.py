"""Session over ONNX Runtime."""

import contextlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Self
from warnings import warn

import numpy as np
import onnxruntime

from zoo.checkpoint import DATA, Checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.families.onnx import LOGITS
from zoo.inference.check_outputs import IDS, check_result, check_signature, unused_inputs
from zoo.inference.concurrency import ModelCopies
from zoo.inference.exported import check_files, read_export_info
from zoo.inference.ort.decoder import OrtDecoder
from zoo.inference.ort.runtime import RefusedGraph, create_session, run_graph
from zoo.inference.session import BackendWarning, Session
from zoo.inference.validate_inputs import check_outputs, complete_inputs
from zoo.overrides import override

if TYPE_CHECKING:
    from zoo.inference.generation.decoder import SessionDecoder
    from zoo.inference.session import Arrays, Floats


LOG = logging.getLogger("zoo")
# In tokens; less than in torch, where Python calls each layer. On one core, a call of MiniLM takes
# 2.5 ms at 4 tokens/ms in float32, and 1 ms at 12 tokens/ms in int8.
GRAPH_CALL_COST = 12


class GraphSession(Session):
    """Graphs of a model in ONNX Runtime."""

    backend = "onnx"

    def __init__(
        self,
        paths: Sequence[Path],
        checkpoint: Checkpoint,
        *,
        cache: bool,
        dtype: str = "float32",
        device: str = "cpu",
        threads: int | None = None,
    ) -> None:
        self._config = checkpoint.config
        self._name = checkpoint.name
        self._head = checkpoint.head
        self._spec = checkpoint.onnx_spec
        self.device = device
        self.dtype = dtype
        if device == "cpu":
            self.call_cost = GRAPH_CALL_COST
        self.inputs = tuple(self._spec.inputs)
        self.outputs = tuple(self._spec.outputs)
        self.stored_bytes = 0
        for path in paths:
            for file in (path, path.with_suffix(DATA)):
                if file.is_file():
                    self.stored_bytes += file.stat().st_size
        self._graphs: OrtDecoder | None = None
        self._unused: tuple[str, ...] = ()
        if cache:
            self._graphs = OrtDecoder(paths, device, threads)
            self._session = self._graphs.decoder
        else:
            self._session = create_session(paths[0], device, threads)
            check_signature(paths[0], self._session, self._spec)
            self._unused = unused_inputs(self._session, self._spec)
        self._adapter: dict[str, Floats] = {}
        self._copies = ModelCopies(
            self._session,
            lambda _, threads_of_batch: create_session(paths[0], device, threads_of_batch),
            threads,
        )

    @override
    def concurrent_batches(self, count: int) -> int:
        if self.device != "cpu" or self._graphs is not None:
            return 1
        return self._copies.concurrent_batches(count, self.stored_bytes)

    @contextlib.contextmanager
    @override
    def divide_threads(self, count: int) -> Iterator[Callable[[], None]]:
        self._copies.require_copy(count)
        yield lambda: None

    @override
    def run(self, inputs: "Arrays", outputs: Sequence[str] | None = None) -> "dict[str, Floats]":
        names = check_outputs(outputs, self.outputs)
        arrays, sizes = complete_inputs(inputs, self._spec, self._config)
        if self._graphs:
            results = {LOGITS: self._graphs.whole(arrays)}
        else:
            zeros = {name: np.zeros_like(arrays[IDS]) for name in self._unused}
            results = run_graph(
                self._copies.of_batch(), {**arrays, **zeros, **self._adapter}, names
            )
        for name, value in results.items():
            check_result(self._name, name, value, self._spec.outputs[name], sizes)
        return {name: value.astype(np.float32, copy=False) for name, value in results.items()}

    @property
    def cached_graphs(self) -> OrtDecoder | None:
        """The graphs with their key-value cache; ``None`` without one."""
        return self._graphs

    def use_adapter(self, tensors: "Mapping[str, Floats]") -> None:
        """Give the graph the tensors of an adapter, which are inputs of it, in each run."""
        input_names = {value.name for value in self._session.get_overridable_initializers()}
        for name in tensors:
            if name not in input_names:
                raise VerificationError(
                    f"{self._name}: the graph has no input {name}", "export it again"
                )
        self._adapter = dict(tensors)

    @override
    def decoder(self) -> "SessionDecoder":
        if self._graphs is None:
            remedy = "generate with the model that it was exported from, in torch"
            if self._head.has_cache:
                remedy = "export the model again, with --cache"
            raise UsageError(
                f"{self._name} holds a graph without a key-value cache, which cannot generate",
                remedy,
            )
        # The module imports torch, which other tasks do not need.
        from zoo.inference.ort.generation import OrtGenerator

        return OrtGenerator(self._graphs, self._config)


class OnnxSession(GraphSession):
    """An export in ONNX Runtime."""

    def __init__(
        self,
        checkpoint: Checkpoint,
        device: str | None = None,
        threads: int | None = None,
        dtype: str | None = None,
    ) -> None:
        export = read_export_info(checkpoint)
        if not export.validated:
            warn(
                f"{checkpoint.name} holds a graph that did not pass the export gate: its outputs "
                "may be wrong",
                BackendWarning,
                stacklevel=4,
            )
        dtype = dtype or next(iter(export.dtypes))
        try:
            super().__init__(
                [checkpoint.path / name for name in export.dtypes[dtype]],
                checkpoint,
                cache=export.cache,
                dtype=dtype,
                device=device or "cpu",
                threads=threads,
            )
        except RefusedGraph as error:
            remedy = export.remedy(dtype, onnxruntime.__version__)
            raise VerificationError(error.what, remedy) from error

    @classmethod
    def checked(
        cls,
        checkpoint: Checkpoint,
        device: str | None = None,
        threads: int | None = None,
        dtype: str | None = None,
    ) -> Self:
        """Open an export after checking its files; errors name what it holds."""
        if not checkpoint.is_export:
            raise UsageError(f"{checkpoint.name} holds no ONNX graph", "make one with `zoo export`")
        dtypes = list(read_export_info(checkpoint).dtypes)
        if dtype is not None and dtype not in dtypes:
            raise UsageError(
                f"{checkpoint.name} holds a graph in {' and '.join(dtypes)}, not {dtype}",
                "leave --dtype out, or export it again",
            )
        if dtype is None:
            dtype = dtypes[0]
            if len(dtypes) > 1:
                other_dtypes = " or ".join(dtypes[1:])
                LOG.info(
                    "%s: the graph in %s; --dtype selects %s", checkpoint.name, dtype, other_dtypes
                )
            elif dtype != "float32":
                LOG.info("%s: the graph in %s", checkpoint.name, dtype)
        check_files(checkpoint, dtype)
        return cls(checkpoint, device, threads, dtype)
