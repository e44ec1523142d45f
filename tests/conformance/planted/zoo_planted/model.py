"""XLM's encoder: blocks as in BERT, and a linear map to the vocabulary."""

from typing import Any

import torch
from torch import Tensor, nn

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import (
    ModelFactory,
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_self_attention,
)
from zoo.nn.heads import FirstTokenPooler, LinearHead, VocabularyProjection
from zoo.nn.layers.init import init_weights
from zoo.nn.transformer import PostNormBlock, PreNormBlock
from zoo_planted.config import XLMConfig


class VocabularyHead(nn.Module):
    """Logits over the vocabulary; the matrix is the token embeddings' if ``tied``."""

    def __init__(self, hidden_size: int, vocab_size: int, *, tied: bool) -> None:
        super().__init__()
        self.vocab_size = vocab_size
        self.bias = nn.Parameter(torch.zeros(vocab_size))
        self.decoder = None if tied else nn.Linear(hidden_size, vocab_size, bias=False)

    def project(self, hidden: Tensor, tokens: nn.Embedding) -> VocabularyProjection:
        """Return the projection to the logits of (..., hidden)."""
        weight = tokens.weight if self.decoder is None else self.decoder.weight
        return VocabularyProjection(hidden, weight, self.bias)

    def forward(self, hidden: Tensor, tokens: nn.Embedding) -> Tensor:
        """Map (..., hidden) to (..., vocabulary)."""
        return self.project(hidden, tokens).logits()


class XLMFactory(ModelFactory):
    """Builds the models of XLM."""

    def build(self, head: str) -> Encoder:
        """Return a model whose tables begin with a range of their own."""
        model = super().build(head)
        init_weights(model.embeddings, std=self.config.embedding_range, truncated=False)
        return model

    def backbone_args(self) -> dict[str, Any]:
        """Return the arguments of the model's class except pooler and head."""
        config = self.config
        block = PreNormBlock if getattr(config, "pre_norm", False) else PostNormBlock
        layers = make_blocks(config, block, attention=self.attention)
        return {"embeddings": make_embeddings(config), "layers": layers}

    def attention(self, layer: int) -> nn.Module:
        """Return the attention of a block."""
        return make_self_attention(self.config)

    def masked_lm_head(self) -> Any:
        """Return the head for masked language modelling."""
        config = self.config
        return VocabularyHead(self.width, config.vocab_size, tied=config.tie_embeddings)

    def sequence_head(self, outputs: int) -> PoolerAndHead:
        """Return the head for sequence classification, which reads the first token."""
        return FirstTokenPooler(), LinearHead(self.width, outputs, self.dropout)


def build(config: XLMConfig, head: str) -> nn.Module:
    """Return a model with randomly initialized weights."""
    return XLMFactory(config).build(head)
