"""BigBird-Pegasus: an encoder-decoder that summarizes long texts.

Zaheer, Guruganesh, Dubey, Ainslie, Alberti, Ontanon, Pham, Ravula, Wang, Yang and Ahmed 2020, "Big
Bird: Transformers for Longer Sequences", arXiv:2007.14062, section 4.2.

PEGASUS (arXiv:1912.08777) with learned positions and no biases in attention. The encoder has
block-sparse attention, see ``zoo.nn.block_sparse``, and the decoder has full attention.
"""

from typing import Any, ClassVar

from msgspec.structs import replace
from torch import nn

from zoo.nn.block_sparse import BlockSparsePattern
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_decoder import (
    Decoder,
    PreNormDecoderBlock,
    Seq2SeqFactory,
    TargetEmbeddings,
    make_cross_attention,
    make_decoder_blocks,
)
from zoo.nn.encoder_factory import make_blocks, make_self_attention
from zoo.nn.transformer import PreNormBlock
from zoo.overrides import override
from zoo_bigbird_pegasus.config import BigBirdPegasusConfig


class BigBirdPegasusFactory(Seq2SeqFactory):
    """The models with each head."""

    pre_norm: ClassVar[bool] = True
    embedding_norm: ClassVar[bool] = False
    final_norm: ClassVar[bool] = True

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        # As in transformers, the encoder's feed-forward networks have no dropout.
        encoder_config = replace(config, activation_dropout=0.0)
        arguments = super().backbone_args()
        arguments["layers"] = make_blocks(
            encoder_config, PreNormBlock, attention=self.encoder_attention
        )
        arguments["pattern"] = BlockSparsePattern.from_config(config)
        return arguments

    @override
    def decoder(self) -> Decoder:
        blocks = make_decoder_blocks(
            self.config,
            PreNormDecoderBlock,
            attention=self.decoder_attention,
            cross=self.cross_attention,
        )
        changes = {}
        if self.config.tie_embeddings:
            changes["vocab_size"] = 0  # The target reads the table of the source.
        embeddings = self.embeddings(TargetEmbeddings, **changes)
        return Decoder(blocks, self.norm_after_blocks(), embeddings)

    def encoder_attention(self, index: int) -> nn.Module:
        """Return the self-attention of a block of the encoder."""
        return make_self_attention(self.config, bias=self.config.use_bias)

    def decoder_attention(self, index: int) -> nn.Module:
        """Return the self-attention of a block of the decoder."""
        heads = self.config.decoder_attention_heads
        bias = self.config.use_bias
        return make_self_attention(self.config, causal=True, num_heads=heads, bias=bias)

    def cross_attention(self) -> nn.Module:
        """Return the attention of a block of the decoder to the source."""
        heads = self.config.decoder_attention_heads
        return make_cross_attention(self.config, num_heads=heads, bias=self.config.use_bias)


def build(config: BigBirdPegasusConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return BigBirdPegasusFactory(config).build(head)
