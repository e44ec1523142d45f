"""Whether a model has what the options of its graphs ask for; imports neither torch nor ONNX."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from zoo.adapters.graph_inputs import check_adapters
from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.exporting.graph.opsets import check_opset
from zoo.exporting.graph.pooled_spec import require_modules
from zoo.families.positions import changes_with_length

if TYPE_CHECKING:
    from zoo.adapted_models.exported import AdapterInputs
    from zoo.exporting.quantization.plan import QuantizationPlan
    from zoo.exporting.targets.onnx.options import OnnxOptions


def check_variants(
    checkpoint: Checkpoint,
    options: "OnnxOptions",
    dtype: str,
    plan: "QuantizationPlan | None",
    adapters: Sequence[Checkpoint],
) -> None:
    """Check that a model has what the options ask for, before anything is written."""
    check_opset(options.opset)
    generates = checkpoint.head.has_cache and options.cache is not False
    if generates and changes_with_length(checkpoint.config):
        raise UsageError(
            f"the keys of {checkpoint.name} cannot be cached: its rotary frequencies change with "
            "the length of a row (rope_type dynamic)",
            "add --no-cache",
        )
    if plan is not None:
        plan.check(checkpoint, dtype, options.cache)
    if options.dim is not None and not options.pooled:
        raise UsageError("--dim cuts the embeddings of a pooled graph", "add --pooled")
    if options.pooled:
        require_modules(checkpoint, options.dim)
    if options.adapter_inputs:
        check_adapter_inputs(checkpoint, options, dtype, plan, adapters)


def check_adapter_inputs(
    checkpoint: Checkpoint,
    options: "OnnxOptions",
    dtype: str,
    plan: "QuantizationPlan | None",
    adapters: Sequence[Checkpoint],
) -> "AdapterInputs":
    """Return the inputs of a graph that takes adapters."""
    generates = checkpoint.head.has_cache and options.cache is not False
    other_options = {"--pooled": options.pooled, "quantized copies": plan}
    return check_adapters(adapters, dtype=dtype, generates=generates, other_options=other_options)
