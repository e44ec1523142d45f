"""Snippets of model cards: how each program that opens the IR runs a model."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from zoo.conversion.usage import Snippet
from zoo.exporting.snippets import (
    OptimumFiles,
    Runtime,
    numpy_snippet,
    optimum_snippet,
    sentence_transformers_snippet,
)

if TYPE_CHECKING:
    from zoo.checkpoint import Checkpoint

# OpenVINO's default on CPUs that have it is bfloat16
EXACT = '{"INFERENCE_PRECISION_HINT": "f32"}'
FILE = "openvino/openvino_model.xml"


def openvino_snippets(checkpoint: "Checkpoint") -> Iterator[Snippet]:
    """Yield a snippet for each program that computes the model's results from the IR."""
    model_kwargs = f'model_kwargs={{"file_name": "{FILE}", "ov_config": {EXACT}}}'
    yield sentence_transformers_snippet(checkpoint, ['backend="openvino"', model_kwargs])
    if not checkpoint.head.has_cache:  # optimum generates with a cache only
        arguments = ('subfolder="openvino"', f"ov_config={EXACT}")
        yield optimum_snippet(checkpoint, OptimumFiles("optimum.intel", "OVModelFor", arguments))
    runtime = Runtime(
        program="OpenVINO",
        imports=("from openvino import Core",),
        opening=(
            f'file = f"{{folder}}/{FILE}"',
            f'session = Core().compile_model(file, "CPU", {EXACT})',
        ),
        run='session(inputs)["{}"]'.format,
        inputs=tuple(checkpoint.onnx_spec.inputs),
    )
    yield numpy_snippet(checkpoint, runtime)
