"""What the graph of a sentence encoder with its modules reads and returns."""

from typing import TYPE_CHECKING

from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.families.onnx import OnnxSpec
from zoo.sentence_models.modules import SENTENCE_VECTOR, TOKENS

if TYPE_CHECKING:
    from zoo.sentence_models.pooling import Pooling

INPUTS = ("input_ids", "attention_mask", "token_type_ids")


def require_modules(checkpoint: Checkpoint, dim: int | None) -> "Pooling":
    """Return the modules of a sentence encoder that a graph can hold."""
    pooling = checkpoint.model.pooling
    path = checkpoint.path
    if pooling is None or pooling.output not in checkpoint.head.outputs:
        hint = "convert it with its files of sentence-transformers, or leave --pooled out"
        if checkpoint.head_name != "none":
            hint = (
                f"it has the head {checkpoint.head_name}, whose graph is the plain one: leave "
                "--pooled out"
            )
        raise UsageError(f"{path} does not say how it makes embeddings", hint)
    spec = checkpoint.onnx_spec
    other_inputs = [name for name in spec.inputs if name not in INPUTS]
    if other_inputs:
        raise UsageError(f"{path} reads {other_inputs[0]}, not tokens", "leave --pooled out")
    if not pooling.pools_prompt and any(pooling.prompts.values()):
        raise UsageError(
            f"{path} does not pool the tokens of its prompts, whose number a graph does not know",
            "leave --pooled out",
        )
    features = pooling.features(pooling.input_width(checkpoint.config))
    if dim is not None and SENTENCE_VECTOR not in features:
        raise UsageError(f"{path} has no vector of a text to cut", "leave --dim out")
    if dim is not None and pooling.model_type == "SparseEncoder":
        raise UsageError(f"{path} has weights of words, which are not cut", "leave --dim out")
    if dim is not None and dim > features[SENTENCE_VECTOR].width:
        raise UsageError(
            f"embeddings cannot be cut at {dim} numbers",
            f"the model's embeddings have {features[SENTENCE_VECTOR].width}",
        )
    return pooling


def pooled_spec(checkpoint: Checkpoint, dim: int | None) -> OnnxSpec:
    """Return the inputs and outputs of the graph."""
    pooling = require_modules(checkpoint, dim)
    spec = checkpoint.onnx_spec
    features = pooling.features(pooling.input_width(checkpoint.config))
    outputs: dict[str, tuple[str | int, ...]] = {}
    # Tokens of a sparse encoder have a logit for each word, which the graph does not return.
    if pooling.model_type != "SparseEncoder":
        outputs[TOKENS] = ("batch", "tokens", features[TOKENS].width)
    if SENTENCE_VECTOR in features:
        cut = dim or pooling.truncate_dim or features[SENTENCE_VECTOR].width
        outputs[SENTENCE_VECTOR] = ("batch", min(cut, features[SENTENCE_VECTOR].width))
    return OnnxSpec(spec.inputs, outputs, spec.limits, spec.minimums, spec.tolerance)
