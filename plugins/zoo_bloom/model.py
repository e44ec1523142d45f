"""BLOOM: a causal language model with linear biases of attention scores.

BigScience Workshop 2022, "BLOOM: A 176B-Parameter Open-Access Multilingual Language Model",
arXiv:2211.05100. It differs from GPT-2 in two points (section 3.2): instead of position
embeddings, the scores of attention are lowered in proportion to the distance of query and key
(Press et al. 2022, arXiv:2108.12409), and the token embeddings are normalized.
"""

from typing import Any

from torch import nn

from zoo.nn.decoder import CausalModelFactory, make_causal_blocks
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import make_embeddings
from zoo.nn.positions import LinearBias
from zoo.overrides import override
from zoo_bloom.config import BloomConfig


class BloomFactory(CausalModelFactory):
    """The default models of decoders, with linear biases in place of positions."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        return {
            "embeddings": make_embeddings(config, positions=False),
            "layers": make_causal_blocks(config),
            "final_norm": nn.LayerNorm(self.width, eps=config.layer_norm_eps),
            "relative_bias": LinearBias(config.num_heads),
            "pad_token_id": config.pad_token_id,
        }


def build(config: BloomConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return BloomFactory(config).build(head)
