"""GTE's encoder of long texts.

Zhang et al. 2024, "mGTE: Generalized Long-Context Text Representation and Reranking Models for
Multilingual Text Retrieval", arXiv:2407.19669, section 2. BERT with two changes: queries and keys
are rotated by their positions, which have no embeddings, and feed-forward networks have a gate.
Norms follow the residual sums, as in BERT.

Frequencies of longer contexts are scaled as in ``NTKScalingRotaryEmbedding`` of the published code
(Alibaba-NLP/new-impl, modeling.py): the base is multiplied by a factor, and the frequencies divided
by the power of it that brings the lowest one to its value over the factor.
"""

from typing import Any

from torch import Tensor, nn

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import ModelFactory, make_blocks, make_embeddings, make_mlm_head
from zoo.nn.heads import MLMHead
from zoo.nn.layers.activations import activate
from zoo.nn.positions import Rotary, make_rotary
from zoo.nn.transformer import GatedFeedForward
from zoo.overrides import override
from zoo_gte.config import GteConfig


class GteFeedForward(GatedFeedForward):
    """A feed-forward network whose second half of ``up`` is the gate; only ``down`` has a bias."""

    def __init__(self, *, hidden_size: int, intermediate_size: int, **options: Any) -> None:
        super().__init__(hidden_size=hidden_size, intermediate_size=intermediate_size, **options)
        self.up = nn.Linear(hidden_size, 2 * intermediate_size, bias=False)

    @override
    def inner(self, x: Tensor) -> Tensor:
        linear, activated = x.chunk(2, dim=-1)
        return activate(self.act, activated) * linear


def make_ntk_rotary(config: GteConfig) -> Rotary:
    """Return the rotation of queries and keys.

    A model that grows scales the frequencies that it has, which ``ntk_factor`` may have changed.
    """
    factor = config.ntk_factor or 1.0
    divisor = factor ** (2 / config.head_size)
    return make_rotary(config, config.head_size, config.rope_theta * factor, divisor=divisor)


class GteFactory(ModelFactory):
    """The default models of encoders, with rotary positions."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        dropout = self.config.dropout
        blocks = make_blocks(
            self.config, ffn_type=lambda **sizes: GteFeedForward(dropout=dropout, **sizes)
        )
        return {
            "embeddings": make_embeddings(self.config, positions=False),
            "layers": blocks,
            "rotary": make_ntk_rotary(self.config),
        }

    @override
    def masked_lm_head(self) -> MLMHead:
        # The published code takes the activation function of the blocks, transformers GELU.
        act = "gelu" if self.config.model_type == "gte" else self.config.activation
        return make_mlm_head(self.config, act)


def build(config: GteConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return GteFactory(config).build(head)
