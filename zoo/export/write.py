"""From a checkpoint to files with graphs, before anything is compared."""

from pathlib import Path
from typing import NamedTuple

import torch
from torch import nn

from zoo.checkpoint import GRAPH, Checkpoint
from zoo.errors import UsageError
from zoo.export.graph import write_graph
from zoo.export.parts import GraphToTrace, with_cache
from zoo.export.report import Graph
from zoo.export.trace import trace
from zoo.families.onnx import LOGITS, OnnxSpec
from zoo.families.random_inputs import random_inputs
from zoo.inference.load_model import load_model
from zoo.nn.generation import GenerationMixin

EXAMPLE = (8, 5)  # real tokens of each row of the traced batch


class WrittenGraph(NamedTuple):
    """A graph that was written.

    Attributes:
        file: its name.
        spec: names and axes.
        external: the file with its weights, if they are not in it.
    """

    file: str
    spec: OnnxSpec
    external: str | None

    def described(self) -> Graph:
        """Return what the manifest says of it."""
        inputs, outputs = (
            {name: list(axes) for name, axes in every.items()}
            for every in (self.spec.inputs, self.spec.outputs)
        )
        return Graph(inputs=inputs, outputs=outputs, external_data=self.external)


def write_graphs(
    checkpoint: Checkpoint,
    spec: OnnxSpec,
    folder: Path,
    *,
    opset: int,
    dtype: str,
    cache: bool | None,
    external_over: int,
) -> list[WrittenGraph]:
    """Trace and write; what the exporter holds in memory is gone when this returns.

    Args:
        checkpoint: a directory with weights.
        spec: of the model as it is.
        folder: where to.
        opset: see ``zoo.export.export.export_onnx``, as the others.
        dtype: what the graphs compute in.
        cache: whether they take keys and values; by default where the model writes with them.
        external_over: from this many bytes of weights on, they go to a file of their own.

    Raises:
        UsageError: a cache is asked for, and the model has none.
        VerificationError: the exporter fails.
    """
    model = load_model(checkpoint, getattr(torch, dtype))
    found = []
    for part in _parts(model, checkpoint, spec, cache):
        program = trace(part.module, part.example, part.spec, opset)
        external = write_graph(program, folder / part.file, opset, external_over)
        found.append(WrittenGraph(part.file, part.spec, external))
    return found


def _parts(
    model: nn.Module, checkpoint: Checkpoint, spec: OnnxSpec, cache: bool | None
) -> list[GraphToTrace]:
    example = random_inputs(spec, checkpoint.config, _lengths(spec))
    if isinstance(model, GenerationMixin) and list(spec.outputs) == [LOGITS] and cache is not False:
        return with_cache(model, spec, example)
    if cache:
        raise UsageError(
            f"a model with the head {checkpoint.head_name} keeps no keys and values",
            "leave --cache out",
        )
    return [GraphToTrace(GRAPH, model, example, spec)]


def example_shape(spec: OnnxSpec) -> tuple[int, int]:
    """Return batch and tokens of what is traced."""
    return len(EXAMPLE), max(_lengths(spec))


def _lengths(spec: OnnxSpec) -> list[int]:
    longest = spec.limits.get("tokens", max(EXAMPLE))
    return [min(length, longest) for length in EXAMPLE]
