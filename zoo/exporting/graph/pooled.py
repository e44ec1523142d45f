"""The graph of a sentence encoder with its modules: pooling, Dense, normalization, a cut."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError
from zoo.families.onnx import OnnxSpec
from zoo.inference.load_model import load_model
from zoo.sentence_models.modules import SENTENCE_VECTOR, TOKENS
from zoo.sentence_models.torch_modules import SentenceModules, load_modules

if TYPE_CHECKING:
    from zoo.sentence_models.pooling import Pooling

POOLED = "onnx/model_pooled.onnx"
INPUTS = ("input_ids", "attention_mask", "token_type_ids")


class PooledModel(nn.Module):
    """A model and the modules of its sentence encoder; with ``dim``, so many leading dimensions."""

    # Its outputs have the names of sentence-transformers, which Transformers.js reads as well:
    # ``token_embeddings`` and ``sentence_embedding``.

    def __init__(
        self,
        model: nn.Module,
        modules: SentenceModules,
        outputs: tuple[str, ...],
        dim: int | None,
        *,
        scaled: bool,
    ) -> None:
        super().__init__()
        self.model = model
        self.sentence_modules = modules
        self.names = outputs
        self.dim = dim
        self.scaled = scaled

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return ``token_embeddings`` and ``sentence_embedding``, or one of them."""
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        if token_type_ids is not None:
            inputs["token_type_ids"] = token_type_ids
        hidden = self.model(**inputs)[self.sentence_modules.pooling.output]
        features = self.sentence_modules(hidden, attention_mask, ids=input_ids)
        if SENTENCE_VECTOR in features:
            vectors = features[SENTENCE_VECTOR][:, : self.dim]
            features[SENTENCE_VECTOR] = F.normalize(vectors, dim=-1) if self.scaled else vectors
        return {name: features[name] for name in self.names}


def require_modules(checkpoint: Checkpoint, dim: int | None) -> "Pooling":
    """Return the modules of a sentence encoder that a graph can hold."""
    pooling = checkpoint.model.pooling
    path = checkpoint.path
    if pooling is None or pooling.output not in checkpoint.head.outputs:
        raise UsageError(
            f"{path} does not say how it makes embeddings",
            "convert it with its files of sentence-transformers, or leave --pooled out"
            if checkpoint.head_name == "none"
            else f"it has the head {checkpoint.head_name}, whose graph is the plain one: leave "
            "--pooled out",
        )
    spec = checkpoint.onnx_spec
    if unknown := [name for name in spec.inputs if name not in INPUTS]:
        raise UsageError(f"{path} reads {unknown[0]}, not tokens", "leave --pooled out")
    if not pooling.pools_prompt and any(pooling.prompts.values()):
        raise UsageError(
            f"{path} does not pool the tokens of its prompts, whose number a graph does not know",
            "leave --pooled out",
        )
    found = pooling.features(pooling.input_width(checkpoint.config))
    if dim is not None and SENTENCE_VECTOR not in found:
        raise UsageError(f"{path} has no vector of a text to cut", "leave --dim out")
    if dim is not None and pooling.model_type == "SparseEncoder":
        raise UsageError(f"{path} has weights of words, which are not cut", "leave --dim out")
    if dim is not None and dim > found[SENTENCE_VECTOR].width:
        raise UsageError(
            f"embeddings cannot be cut at {dim} numbers",
            f"the model's embeddings have {found[SENTENCE_VECTOR].width}",
        )
    return pooling


def pooled_spec(checkpoint: Checkpoint, dim: int | None) -> OnnxSpec:
    """Return the inputs and outputs of the graph."""
    pooling = require_modules(checkpoint, dim)
    spec = checkpoint.onnx_spec
    found = pooling.features(pooling.input_width(checkpoint.config))
    outputs: dict[str, tuple[str | int, ...]] = {}
    if pooling.model_type != "SparseEncoder":  # whose tokens have a logit for each word
        outputs[TOKENS] = ("batch", "tokens", found[TOKENS].width)
    if SENTENCE_VECTOR in found:
        cut = dim or pooling.truncate_dim or found[SENTENCE_VECTOR].width
        outputs[SENTENCE_VECTOR] = ("batch", min(cut, found[SENTENCE_VECTOR].width))
    return OnnxSpec(spec.inputs, outputs, spec.limits, spec.minimums, spec.tolerance)


def pooled_model(
    checkpoint: Checkpoint, spec: OnnxSpec, dim: int | None, dtype: torch.dtype
) -> PooledModel:
    """Return the model with its modules, in evaluation mode."""
    pooling = require_modules(checkpoint, dim)
    modules = SentenceModules(pooling)
    load_modules(modules, checkpoint.module_weights())
    model = PooledModel(
        load_model(checkpoint, dtype),
        modules.to(dtype),
        tuple(spec.outputs),
        dim or pooling.truncate_dim,
        scaled=dim is not None and pooling.normalizes,
    )
    return model.eval().requires_grad_(False)
