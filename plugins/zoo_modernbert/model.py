"""ModernBERT: a text encoder for long texts.

Warner et al. 2024, "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder for Fast,
Memory Efficient, and Long Context Finetuning and Inference", arXiv:2412.13663. It differs from the
first encoders in these points (section 2.1): queries and keys are rotated by their positions; layer
norms precede attention and feed-forward network, but for the first block's attention, whose input
is normalized already; feed-forward networks have a gate; no linear map nor norm has a bias, but the
output embeddings; attention is global in every third block, and else limited to a window.
"""

from typing import Any

from torch import nn

from zoo.nn.alternating import init_residual_outputs, make_alternating_backbone
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import ModelFactory, PoolerAndHead, make_mlm_head
from zoo.nn.heads import FirstTokenPooler, MLMHead, NormedHead
from zoo.overrides import override
from zoo_modernbert.config import ModernBertConfig


class ModernBertFactory(ModelFactory):
    """The default models of encoders, with other blocks and heads."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        return make_alternating_backbone(self.config)

    @override
    def pooling(self, head: str) -> str | None:
        is_mean = self.config.classifier_pooling == "mean"
        reads_texts = head in ("sequence-classification", "multiple-choice")
        return "mean" if is_mean and reads_texts else None

    @override
    def masked_lm_head(self) -> MLMHead:
        return make_mlm_head(self.config, self.config.classifier_activation, dense_bias=False)

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        return FirstTokenPooler(), self.token_head(outputs)

    @override
    def token_head(self, outputs: int) -> nn.Module:
        return NormedHead(
            self.width,
            outputs,
            act=self.config.classifier_activation,
            layer_norm_eps=self.config.layer_norm_eps,
            dropout=self.config.classifier_dropout,
        )

    @override
    def span_head(self) -> nn.Module:
        return self.token_head(2)


def build(config: ModernBertConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights, as transformers initializes it."""
    model = ModernBertFactory(config).build(head)
    init_residual_outputs(model, config)
    return model
