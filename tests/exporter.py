"""torch's ONNX exporter without the work that it repeats: the tests export hundreds of graphs.

It parses the source of 500 functions of onnxscript and collects all decompositions for each graph,
which takes a third of the time of a small one. And many tests export the same small model: its
trace is kept in the directory of the session, for all processes.
"""

import hashlib
import inspect
import io
import pickle
import sys
import types
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from tests.once import written_once

EXPORTER = "torch.onnx._internal.exporter._core"
WRITER = "zoo.exporting.graph.write"
GRAPH = "graph.onnx"
LARGE = 2_000_000  # parameters


@cache
def keep_tables() -> None:
    """Keep the tables in this process once they are made; each export gets copies."""
    exporter: Any = sys.modules[EXPORTER]
    kind: Any = exporter._registration.ONNXRegistry
    decompositions: Any = exporter._fx_passes._decomp
    operators = cache(kind.from_torchlib)
    table = cache(decompositions.create_onnx_friendly_decomposition_table)

    def from_torchlib(**options: Any) -> Any:
        kept, copy = operators(**options), kind()
        vars(copy).update(vars(kept))
        copy.functions = {name: [*found] for name, found in kept.functions.items()}
        return copy

    kind.from_torchlib = staticmethod(from_torchlib)
    decompositions.create_onnx_friendly_decomposition_table = lambda known: {
        **table(frozenset(known))
    }


def fill_tables(opset: int) -> None:
    """Make the tables of an opset, so that forks of this process have them."""
    keep_tables()
    exporter: Any = sys.modules[EXPORTER]
    registry = exporter._registration.ONNXRegistry.from_torchlib(opset_version=opset)
    decompositions = exporter._fx_passes._decomp
    operators = set(decompositions.get_onnx_implemented_overloads(registry))
    decompositions.create_onnx_friendly_decomposition_table(operators)


def keep_traces() -> None:
    """Let exports of this process and its forks use the traces of the session."""
    writer: Any = sys.modules[WRITER]
    writer.trace = trace_once


def trace_once(model: Any, example: Any, spec: Any, opset: int, *, optimize: bool = True) -> Any:
    """Return what ``zoo.exporting.graph.trace`` returns, traced by the first test that needs it."""
    import onnx_ir as ir
    import torch

    from zoo.exporting.graph.trace import trace as zoo_trace

    key = fingerprint(model, (_shapes(example), spec, opset, optimize))
    if key is None:
        return zoo_trace(model, example, spec, opset, optimize=optimize)

    def write(folder: Path) -> None:
        program = zoo_trace(model, example, spec, opset, optimize=optimize)
        ir.save(program.model, folder / GRAPH)

    graph = ir.load(written_once(f"trace-{key}", write) / GRAPH)
    return torch.onnx.ONNXProgram(graph, None)


def _shapes(example: Any) -> Any:
    """Return the shapes and dtypes of the inputs in place of their values."""
    import torch

    if isinstance(example, torch.Tensor):
        return tuple(example.shape), str(example.dtype)
    if isinstance(example, list):
        return [_shapes(part) for part in example]
    return {name: _shapes(part) for name, part in example.items()}


def fingerprint(model: Any, settings: Any) -> str | None:
    """Return a digest of a module's tensors, attributes and code, equal in all processes.

    It is ``None`` for large models, and where an attribute is a function without a name.
    """
    import torch

    if sum(tensor.numel() for tensor in model.parameters()) > LARGE:
        return None

    class Pickler(pickle.Pickler):
        def reducer_override(self, value: Any) -> Any:
            if not isinstance(value, torch.Tensor):
                return NotImplemented
            content = value.detach().contiguous().flatten().view(torch.uint8).numpy()
            described = str(value.dtype), tuple(value.shape), hashlib.blake2b(content.data).digest()
            return tuple, (described,)

    stream = io.BytesIO()
    try:
        Pickler(stream).dump((model, settings, sorted(_functions(model))))
    except (pickle.PicklingError, AttributeError, LookupError, TypeError):
        return None
    return hashlib.blake2b(stream.getvalue(), digest_size=20).hexdigest()


def _functions(model: Any) -> Iterator[tuple[str, str, str]]:
    """Yield the functions that a module's classes have and read, which a test may replace.

    Raises:
        LookupError: one is local to another, whose variables it may read, or a module is gone.
    """
    classes = {base for module in model.modules() for base in type(module).__mro__}
    for kind in classes:
        if kind.__module__.partition(".")[0] in ("builtins", "torch"):
            continue
        for owner in (kind, sys.modules[kind.__module__]):
            for name, value in vars(owner).items():
                if not isinstance(value, types.FunctionType):
                    continue
                function = inspect.unwrap(value)
                if "<locals>" in function.__qualname__:
                    raise LookupError(function.__qualname__)
                yield f"{kind.__module__}.{owner.__name__}", name, _digest(function.__code__)


@cache
def _digest(code: types.CodeType) -> str:
    """Return a digest of the code of a function."""
    digest = hashlib.blake2b(code.co_code)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            described = _digest(constant)
        elif isinstance(constant, frozenset):  # its order differs between processes
            described = repr(sorted(map(repr, constant)))
        else:
            described = repr(constant)
        digest.update(described.encode())
    digest.update(repr(code.co_names).encode())
    return digest.hexdigest()
