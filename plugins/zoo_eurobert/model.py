"""EuroBERT: a multilingual text encoder with the blocks of recent decoders.

Boizard et al. 2025, "EuroBERT: Scaling Multilingual Encoders for European Languages",
arXiv:2503.05500, section 2.1. Queries and keys are rotated by their positions; heads of queries
share heads of keys and values in larger sizes; norms have no mean, linear maps no bias, and the
feed-forward networks a gate. Attention goes both ways. The output embeddings are a table of their
own, without a layer before them.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.nn.encoder import Classifier, Encoder, pool_tokens
from zoo.nn.encoder_factory import (
    ModelFactory,
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_self_attention,
)
from zoo.nn.heads import DenseHead, FirstTokenPooler, OutputEmbeddings
from zoo.nn.layers.norms import RMSNorm
from zoo.nn.positions import make_rotary
from zoo.nn.transformer import GatedFeedForward, PreNormBlock
from zoo.overrides import override
from zoo_eurobert.config import EuroBertConfig


class LateClassifier(Classifier):
    """Classification of texts by the mean of the tokens' logits, if there is no pooler."""

    @override
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the logits, (batch, labels)."""
        logits = super().forward(input_ids, attention_mask, token_type_ids)["logits"]
        if self.pooler is None:
            logits = pool_tokens(logits, attention_mask, "mean")
        return {"logits": logits}


class EuroBertFactory(ModelFactory):
    """The default models of encoders, with a decoder's blocks and heads of their own."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        **ModelFactory.model_classes,
        "sequence-classification": LateClassifier,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        blocks = make_blocks(
            config,
            PreNormBlock,
            attention=lambda _: make_self_attention(config, bias=False),
            norm_type=RMSNorm,
            ffn_type=GatedFeedForward,
            bias=False,
        )
        return {
            "embeddings": make_embeddings(config, positions=False, norm=False),
            "layers": blocks,
            "final_norm": RMSNorm(config.hidden_size, config.layer_norm_eps),
            "rotary": make_rotary(config, config.head_size, config.rope_theta),
        }

    @override
    def pooling(self, head: str) -> str | None:
        is_mean = self.config.classifier_pooling == "mean"
        return "mean" if is_mean and head == "sequence-classification" else None

    @override
    def masked_lm_head(self) -> nn.Module:
        return OutputEmbeddings(
            hidden_size=self.width,
            vocab_size=self.config.vocab_size,
            tied=self.config.tie_embeddings,
        )

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        pooler = None if self.config.classifier_pooling == "late" else FirstTokenPooler()
        return pooler, DenseHead(self.width, outputs, act="gelu")


def build(config: EuroBertConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return EuroBertFactory(config).build(head)
