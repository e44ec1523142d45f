"""Tracing of a checkpoint and writing of its graphs."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import onnx_ir as ir
import torch
from numpy.typing import NDArray
from torch import nn

from zoo.adapted_models.checkpoint import AdaptedCheckpoint
from zoo.adapters.graph_inputs import as_inputs, set_defaults
from zoo.checkpoint import GRAPH, Checkpoint, variant_file
from zoo.errors import UsageError
from zoo.exporting.graph.attention import transpose_keys
from zoo.exporting.graph.cache_branch import add_branch, spec_with_branch
from zoo.exporting.graph.float_inputs import keep_float32
from zoo.exporting.graph.fuse import fuse, fused_operators, order_gelu
from zoo.exporting.graph.last_tokens import set_default
from zoo.exporting.graph.onnx_file import write_graph
from zoo.exporting.graph.parts import GraphToTrace, with_cache
from zoo.exporting.graph.pooled import POOLED, pooled_model
from zoo.exporting.graph.report import Graph
from zoo.exporting.graph.trace import trace
from zoo.families.onnx import LOGITS, OnnxSpec
from zoo.families.random_inputs import random_inputs
from zoo.inference.load_model import load_adapted_model, load_model
from zoo.nn.generation import GenerationMixin

EXAMPLE = (8, 5)  # number of tokens of each row of the traced batch


class WrittenGraph(NamedTuple):
    """A written graph."""

    file: str
    spec: OnnxSpec  # names and axes of inputs and outputs
    external: str | None  # name of the file with the weights, if they are separate
    fused: dict[str, int]  # operator of ONNX Runtime -> number of nodes

    def described(self) -> Graph:
        """Return the entry of the manifest."""
        inputs, outputs = (
            {name: list(axes) for name, axes in values.items()}
            for values in (self.spec.inputs, self.spec.outputs)
        )
        return Graph(inputs=inputs, outputs=outputs, external_data=self.external, fused=self.fused)


def write_graphs(
    checkpoint: Checkpoint,
    spec: OnnxSpec,
    folder: Path,
    *,
    opset: int,
    dtype: str,
    cache: bool | None,  # by default if the head generates text
    external_over: int,  # bytes of weights
    optimize: bool = False,
    adapter: Mapping[str, NDArray[Any]] | None = None,  # tensors that are inputs of the graph
) -> list[WrittenGraph]:
    """Trace and write the graphs of a checkpoint."""
    # The memory of the exporter is free again when this returns
    if adapter is None:
        model = load_model(checkpoint, getattr(torch, dtype))
    else:
        assert isinstance(checkpoint, AdaptedCheckpoint), "it has an adapter"
        model = load_adapted_model(checkpoint, getattr(torch, dtype), merge=False)
    graphs = []
    for part in _parts(model, checkpoint, spec, cache):
        graph, names = _traced(part, opset, optimize, adapter or {})
        file = variant_file(part.file, dtype)
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        external = write_graph(graph, folder / file, opset, external_over)
        graphs.append(WrittenGraph(file, names, external, fused_operators(graph)))
    return graphs


def write_pooled(
    checkpoint: Checkpoint,
    spec: OnnxSpec,
    folder: Path,
    *,
    dim: int | None,
    opset: int,
    dtype: str,
    external_over: int,
    optimize: bool = False,
) -> WrittenGraph:
    """Trace and write the graph of a sentence encoder with its modules."""
    model = pooled_model(checkpoint, spec, dim, getattr(torch, dtype))
    example = random_inputs(spec, checkpoint.config, _lengths(spec))
    graph, names = _traced(GraphToTrace(POOLED, model, example, spec), opset, optimize, {})
    file = variant_file(POOLED, dtype)
    external = write_graph(graph, folder / file, opset, external_over)
    return WrittenGraph(file, names, external, fused_operators(graph))


def _traced(
    part: GraphToTrace, opset: int, optimize: bool, adapter: Mapping[str, NDArray[Any]]
) -> tuple[ir.Model, OnnxSpec]:
    """Return a graph, and its names and axes."""
    program = trace(part.module, part.example, part.spec, opset, optimize=not adapter)
    inputs = as_inputs(program.model, list(adapter))
    if adapter:
        program.optimize()
    model: ir.Model = program.model
    if optimize:
        model = fuse(model)
    else:
        order_gelu(model)
        transpose_keys(model)
    set_default(model)
    keep_float32(model)
    set_defaults(model, inputs, adapter)
    if part.first_run is None:
        shapes = {name: tuple(array.shape) for name, array in adapter.items()}
        return model, replace(part.spec, inputs={**part.spec.inputs, **shapes})
    add_branch(model, _traced(part.first_run, opset, optimize, {})[0])
    return model, spec_with_branch(part.spec, part.first_run.spec)


def _parts(
    model: nn.Module, checkpoint: Checkpoint, spec: OnnxSpec, cache: bool | None
) -> list[GraphToTrace]:
    example = random_inputs(spec, checkpoint.config, _lengths(spec))
    if isinstance(model, GenerationMixin) and list(spec.outputs) == [LOGITS] and cache is not False:
        return with_cache(model, spec, example)
    if cache:
        raise UsageError(
            f"a model with the head {checkpoint.head_name} has no key-value cache",
            "leave --cache out",
        )
    return [GraphToTrace(GRAPH, model, example, spec)]


def example_shape(spec: OnnxSpec) -> tuple[int, int]:
    """Return rows and tokens of the traced batch."""
    return len(EXAMPLE), max(_lengths(spec))


def _lengths(spec: OnnxSpec) -> list[int]:
    longest = spec.limits.get("tokens", max(EXAMPLE))
    return [min(length, longest) for length in EXAMPLE]
