"""Nomic's encoder of long texts.

Nussbaum, Morris, Duderstadt and Mulyar 2024, "Nomic Embed: Training a Reproducible Long Context
Text Embedder", arXiv:2402.01613. BERT with four changes (section 3.1): queries and keys are rotated
by their positions, which have no embeddings; feed-forward networks have a gate (SwiGLU); linear
maps of blocks have no bias; and the vocabulary is padded to a multiple of 64. Norms follow the
residual sums, as in BERT.
"""

from typing import Any

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import (
    ModelFactory,
    make_blocks,
    make_embeddings,
    make_self_attention,
)
from zoo.nn.layers.experts import ExpertFeedForward
from zoo.nn.positions import make_rotary
from zoo.nn.transformer import GatedFeedForward
from zoo.overrides import override
from zoo_nomic.config import NomicConfig


class NomicFeedForward(GatedFeedForward):
    """A feed-forward network with a gate and without biases, which the norms around it have."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{**options, "bias": False})


class ExpertFactory(ModelFactory):
    """Encoders whose blocks have mixtures of experts, every so many, and biases."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        blocks: Any = make_blocks(config)
        for number, block in enumerate(blocks):
            if config.has_experts(number):
                block.ffn = ExpertFeedForward(
                    hidden_size=config.hidden_size,
                    intermediate_size=config.intermediate_size,
                    num_experts=config.num_experts,
                    experts_per_token=config.experts_per_token,
                    act=config.activation,
                    initializer_range=config.initializer_range,
                )
        return {
            "embeddings": make_embeddings(config, positions=False),
            "layers": blocks,
            "rotary": make_rotary(config, config.head_size, config.rope_theta),
        }


class NomicFactory(ModelFactory):
    """The default models of encoders, with rotary positions."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        blocks = make_blocks(
            self.config,
            attention=lambda _: make_self_attention(self.config, bias=False),
            ffn_type=NomicFeedForward,
        )
        return {
            "embeddings": make_embeddings(self.config, positions=False),
            "layers": blocks,
            "rotary": make_rotary(self.config, self.config.head_size, self.config.rope_theta),
        }


def build(config: NomicConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    if config.model_type == "nomic_bert_moe":
        return ExpertFactory(config).build(head)
    return NomicFactory(config).build(head)
