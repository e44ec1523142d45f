"""Ettin's decoders: ModernBERT as a causal language model.

Weller et al. 2025, "Seq vs Seq: An Open Suite of Paired Encoders and Decoders", arXiv:2507.11412,
section 3. The blocks are those of ModernBERT (Warner et al. 2024, arXiv:2412.13663, section 2.1),
and a token attends to itself and to earlier tokens: in every third block to all of them, else to a
window. The heads have a linear map, an activation function and a norm before the last linear map.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from torch import Tensor

from zoo.nn.alternating import init_residual_outputs, make_alternating_backbone
from zoo.nn.decoder import CausalLM, CausalModelFactory
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import PoolerAndHead, make_mlm_head
from zoo.nn.heads import NormedHead, VocabularyProjection
from zoo.overrides import override
from zoo_ettin.config import EttinConfig


class EttinLM(CausalLM):
    """The causal language model, whose head has a layer before the output embeddings."""

    @property
    @override
    def output_embeddings(self) -> Tensor:
        decoder = self.head.decoder
        table = self.embeddings.tokens if decoder is None else decoder
        return table.weight  # type: ignore[no-any-return]

    @override
    def project(self, hidden: Tensor) -> VocabularyProjection:
        return self.head.project(hidden, self.embeddings.tokens)  # type: ignore[no-any-return]


class EttinFactory(CausalModelFactory):
    """The default models of decoders, with ModernBERT's blocks and heads."""

    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        **CausalModelFactory.model_classes,
        "causal-lm": EttinLM,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        parts = make_alternating_backbone(self.config, causal=True)
        return {**parts, "pad_token_id": self.config.pad_token_id}

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        config = self.config
        match head:
            case "causal-lm":
                return None, make_mlm_head(config, config.classifier_activation, dense_bias=False)
            case "sequence-classification":
                classifier = NormedHead(
                    self.width,
                    len(config.labels),
                    act=config.classifier_activation,
                    layer_norm_eps=config.layer_norm_eps,
                    dropout=config.classifier_dropout,
                    bias=False,
                )
                return None, classifier
        return super().pooler_and_head(head)


def build(config: EttinConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights, as transformers initializes it."""
    model = EttinFactory(config).build(head)
    init_residual_outputs(model, config)
    return model
