"""GPT-NeoX: a causal language model whose blocks do two things at once.

Black et al. 2022, "GPT-NeoX-20B: An Open-Source Autoregressive Language Model", arXiv:2204.06745,
section 2.1. Attention and feed-forward network of a block read the same input, each through a norm
of its own, and a part of the components of queries and keys is rotated by the position.
"""

from typing import Any

from torch import nn

from zoo.nn.decoder import CausalModelFactory, make_causal_blocks
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import make_embeddings
from zoo.nn.positions import make_rotary
from zoo.nn.transformer import ParallelBlock, PreNormBlock
from zoo.overrides import override
from zoo_neox.config import NeoxConfig


class NeoxFactory(CausalModelFactory):
    """The default models of decoders, with rotary positions and parallel blocks."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        blocks = make_causal_blocks(
            config,
            ParallelBlock if config.parallel else PreNormBlock,
            attention_args={"bias": config.attention_bias},
        )
        return {
            "embeddings": make_embeddings(config, positions=False, norm=False),
            "layers": blocks,
            "final_norm": nn.LayerNorm(self.width, eps=config.layer_norm_eps),
            "rotary": make_rotary(config, config.rotary_width, config.rope_theta),
            "pad_token_id": config.pad_token_id,
        }


def build(config: NeoxConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return NeoxFactory(config).build(head)
