"""Sessions over the graphs of a directory, and the runs of them that the gate compares."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from numpy.typing import NDArray

from zoo.checkpoint import DECODER, ENCODER, GRAPH, Checkpoint, variant_file
from zoo.errors import VerificationError
from zoo.families.onnx import LOGITS, PAST
from zoo.inference.ort.session import GraphSession

if TYPE_CHECKING:
    from zoo.inference.ort.decoder import OrtDecoder
    from zoo.inference.session import Arrays

    Inputs = Mapping[str, NDArray[Any]]


def open_graphs(
    checkpoint: Checkpoint, directory: Path, precision: str, threads: int | None
) -> GraphSession:
    """Open the graphs of a directory in a precision."""
    paths = graph_files(directory, precision)
    model = onnx.load(str(paths[-1]), load_external_data=False)
    cache = any(value.name.startswith(f"{PAST}.") for value in model.graph.input)
    del model
    return GraphSession(paths, checkpoint, cache=cache, dtype=precision, threads=threads)


def graph_files(directory: Path, precision: str) -> list[Path]:
    """Return the paths of the graphs in a precision, in the order in which they run."""
    for files in ((ENCODER, DECODER), (GRAPH,)):
        paths = [directory / variant_file(file, precision) for file in files]
        if all(path.is_file() for path in paths):
            return paths
    raise VerificationError(f"{directory} holds no graph in {precision}", "export it again")


def cached_runs(
    graphs: "OrtDecoder", inputs: "Inputs", lengths: Sequence[int], number: int
) -> "Iterator[tuple[int, Arrays]]":
    """Yield the logits of a batch that runs at once, and in two steps.

    The second step has the cache of the first. Decoders without an encoder get left padding there,
    as in generation.
    """
    width = inputs[graphs.target].shape[1]
    first_step = width // 2 if number % 2 == 0 else width - 1
    for past in dict.fromkeys((0, first_step)):
        yield past, {LOGITS: _cached_logits(graphs, inputs, lengths, past)}


def _cached_logits(
    graphs: "OrtDecoder", inputs: "Inputs", lengths: Sequence[int], past: int
) -> NDArray[Any]:
    """Return the logits of a batch whose first ``past`` tokens run first, padded on the right."""
    if not past or graphs.target != "input_ids":
        return graphs.whole(inputs, past)
    moved = {name: array.copy() for name, array in inputs.items()}
    for array in moved.values():
        _roll(array, lengths, 1)
    logits = graphs.whole(moved, past)
    _roll(logits, lengths, -1)
    return logits


def _roll(array: NDArray[Any], lengths: Sequence[int], direction: int) -> None:
    """Move the padding of (batch, tokens, ...), in place: to the left for 1, back for -1."""
    width = array.shape[1]
    for row, length in enumerate(lengths):
        array[row] = np.roll(array[row], direction * (width - length), axis=0)
