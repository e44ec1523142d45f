"""EuroBERT: a multilingual text encoder with the blocks of recent decoders.

Boizard et al. 2025, "EuroBERT: Scaling Multilingual Encoders for European Languages",
arXiv:2503.05500, section 2.1. Queries and keys are rotated by their positions; heads of queries
share heads of keys and values in larger sizes; norms have no mean, linear maps no bias, and the
feed-forward networks a gate. Attention goes both ways. The output embeddings are a table of their
own, without a layer before them.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from torch import Tensor, nn

from zoo.nn.encoder import Classifier, Encoder, MaskedLM, pool_tokens
from zoo.nn.encoder_factory import (
    ModelFactory,
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_self_attention,
)
from zoo.nn.heads import DenseHead, FirstTokenPooler, OutputEmbeddings
from zoo.nn.layers.norms import RMSNorm
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.positions import AttentionInputs, Positions, Rotary
from zoo.nn.transformer import GatedFeedForward, PreNormBlock
from zoo.overrides import override
from zoo_eurobert.config import EuroBertConfig


class EuroBertEncoder(Encoder):
    """The backbone.

    Args:
        config: the configuration.
        **head_args: pooler and head; see ``Encoder``.
    """

    def __init__(self, config: EuroBertConfig, **head_args: Any) -> None:
        layers = make_blocks(
            config,
            PreNormBlock,
            attention=lambda _: make_self_attention(config, bias=False),
            norm_type=RMSNorm,
            ffn_type=GatedFeedForward,
            bias=False,
        )
        embeddings = make_embeddings(config, positions=False, norm=False)
        norm = RMSNorm(config.hidden_size, config.layer_norm_eps)
        super().__init__(embeddings, layers, final_norm=norm, **head_args)
        self.rotary = Rotary(config.head_size, config.rope_theta)
        self.classifier_pooling = config.classifier_pooling

    @override
    def attention_inputs(
        self, x: Tensor, mask: Tensor | DocumentOffsets | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        return [AttentionInputs(mask, self.rotary(positions.queries))] * len(self.order)


class EuroBertLM(MaskedLM, EuroBertEncoder):
    """Masked language modelling."""


class EuroBertTokenClassifier(Classifier, EuroBertEncoder):
    """Token classification."""


class EuroBertClassifier(Classifier, EuroBertEncoder):
    """Classification of texts."""

    @override
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the logits, (batch, labels)."""
        if self.classifier_pooling == "bos":
            return super().forward(input_ids, attention_mask, token_type_ids)
        hidden = self.encode_batch(input_ids, attention_mask, token_type_ids)
        if self.classifier_pooling == "mean":
            return self.outputs(pool_tokens(hidden, attention_mask, "mean"))
        logits = self.outputs(hidden)["logits"]
        return {"logits": pool_tokens(logits, attention_mask, "mean")}


class EuroBertFactory(ModelFactory):
    """The models of the family, all on its own backbone."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": EuroBertEncoder,
        "masked-lm": EuroBertLM,
        "sequence-classification": EuroBertClassifier,
        "token-classification": EuroBertTokenClassifier,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        return {"config": self.config}

    @override
    def masked_lm_head(self) -> nn.Module:
        return OutputEmbeddings(
            hidden_size=self.width,
            vocab_size=self.config.vocab_size,
            tied=self.config.tie_embeddings,
        )

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        pooler = FirstTokenPooler() if self.config.classifier_pooling == "bos" else None
        return pooler, DenseHead(self.width, outputs, act="gelu")


def build(config: EuroBertConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return EuroBertFactory(config).build(head)
