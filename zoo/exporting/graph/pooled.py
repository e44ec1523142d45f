"""The graph of a sentence encoder with its modules: pooling, Dense, normalization, a cut."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.checkpoint import Checkpoint
from zoo.exporting.graph.pooled_spec import require_modules
from zoo.families.onnx import OnnxSpec
from zoo.inference.load_model import load_model
from zoo.sentence_models.modules import SENTENCE_VECTOR
from zoo.sentence_models.torch_modules import SentenceModules, load_modules

if TYPE_CHECKING:
    pass

POOLED = "onnx/model_pooled.onnx"


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
