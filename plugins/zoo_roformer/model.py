"""RoFormer: Enhanced Transformer with Rotary Position Embedding.

Su, Lu, Pan, Murtadha, Wen and Liu 2021, arXiv:2104.09864. BERT's architecture without position
embeddings and without a pooler. Queries and keys of all blocks are rotated by their positions
(section 3.2): neighbouring components are pairs, and pair k turns by p * 10000 ** (-2 k / width) at
position p. ``rotary_value`` rotates the values too.

A text is classified by its first token's hidden state, through a linear map, the activation
function of the blocks and a second linear map.
"""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from zoo.nn.encoder import Encoder
from zoo.nn.encoder_factory import (
    ModelFactory,
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_self_attention,
)
from zoo.nn.heads import DenseHead, FirstTokenPooler
from zoo.nn.layers.embedding import FixedEmbedding
from zoo.nn.positions import Rotation
from zoo.nn.transformer import SelfAttention
from zoo.overrides import override
from zoo.weights import sinusoidal_positions
from zoo_roformer.config import RoFormerConfig

if TYPE_CHECKING:
    from zoo.nn.kv_cache import LayerCache
    from zoo.nn.local_blocks import LocalBlocks
    from zoo.nn.packed_attention import DocumentOffsets
    from zoo.nn.sparse_blocks import BlockSparse


class TableRotary(nn.Module):
    """Rotary positions from a table of sines and cosines in the dtype of the model.

    Published files store the table, which has been computed in float64. Angles in float32, as in
    ``zoo.nn.positions.Rotary``, differ from it by up to 1e-4 at the last positions.
    """

    def __init__(self, config: RoFormerConfig) -> None:
        super().__init__()
        self.table = FixedEmbedding(sinusoidal_positions(config.max_positions, config.head_size))

    def forward(self, position_ids: Tensor) -> Rotation:
        """Return the rotation of positions, (batch or 1, tokens), int64."""
        sines, cosines = self.table(position_ids)[:, None].chunk(2, dim=-1)
        return Rotation(cosines, sines, interleaved=True)


class ValueRotatingAttention(SelfAttention):
    """Self-attention that rotates queries, keys and values."""

    @override
    def forward(
        self,
        x: Tensor,
        mask: "Tensor | DocumentOffsets | LocalBlocks | BlockSparse | None" = None,
        cache: "LayerCache | None" = None,
        rotation: Rotation | None = None,
        positions: Tensor | None = None,
    ) -> Tensor:
        assert rotation is not None and cache is None, "an encoder passes a rotation and no cache"
        q, k, v = self.split(self.qkv(x), 3)
        q, k, v = (rotation.apply(tensor) for tensor in (q, k, v))
        return self.attend(q, k, v, mask, positions=positions)


class RoFormerFactory(ModelFactory):
    """The default models of encoders, with rotary positions and a classifier of their own."""

    @override
    def backbone_args(self) -> dict[str, Any]:
        return {
            "embeddings": make_embeddings(self.config, positions=False),
            "layers": make_blocks(self.config, attention=self.attention),
            "rotary": TableRotary(self.config),
        }

    def attention(self, index: int) -> SelfAttention:
        """Return the attention of a block."""
        if not self.config.rotary_value:
            return make_self_attention(self.config)
        return ValueRotatingAttention(
            hidden_size=self.width,
            num_heads=self.config.num_heads,
            dropout=self.config.attention_dropout,
        )

    @override
    def sequence_head(self, outputs: int) -> PoolerAndHead:
        dropout = {"dropout": self.dropout, "inner_dropout": self.dropout}
        head = DenseHead(self.width, outputs, act=self.config.activation, **dropout)
        return FirstTokenPooler(), head


def build(config: RoFormerConfig, head: str) -> Encoder:
    """Return a model with randomly initialized weights."""
    return RoFormerFactory(config).build(head)
