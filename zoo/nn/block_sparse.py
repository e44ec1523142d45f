"""Layers with block-sparse attention, and full attention of short rows."""

from typing import Any

import torch
from torch import Tensor

from zoo.nn.attention_pattern import AttentionPattern
from zoo.nn.kernels.packed_attention import needs_masks
from zoo.nn.packed_attention import DocumentOffsets, outside_of_graphs
from zoo.nn.positions import AttentionInputs, Positions, add_bias
from zoo.nn.random_blocks import draw_random_blocks, most_attended_blocks
from zoo.nn.sparse_blocks import GraphBlocks, SparseBlocks
from zoo.overrides import override


class BlockSparsePattern(AttentionPattern):
    """Global, window and random blocks of keys for each block of queries of a long row.

    Zaheer et al. 2020, arXiv:2007.14062. A batch of rows with at most ``full_tokens`` tokens has
    full attention. The padding of a row counts, as in transformers: its last block is global.

    In training, the random blocks of a layer are those of the released code. In inference,
    transformers 5 draws no blocks and takes the first one in place of each random one (its function
    that draws them returns zeros), so that the keys of the first block count ``1 +
    num_random_blocks`` times. This module does the same, although the paper's released code has the
    same random blocks in both.

    Args:
        num_layers: number of layers; layer i draws its random blocks with the seed i.
        num_heads: number of heads.
        block_size: number of tokens of a block.
        num_random_blocks: number of random blocks for each block of queries.
        max_positions: number of tokens of the longest row.
    """

    reads_row_length = True

    def __init__(
        self,
        *,
        num_layers: int,
        num_heads: int,
        block_size: int,
        num_random_blocks: int,
        max_positions: int,
    ) -> None:
        super().__init__([False] * num_layers, None)
        self.num_layers = num_layers
        self.num_heads = num_heads
        self.block_size = block_size
        self.num_random_blocks = num_random_blocks
        self.max_positions = max_positions

    @classmethod
    def from_config(cls, config: Any) -> "BlockSparsePattern | None":
        """Return the pattern of a configuration; ``None`` for full attention."""
        if config.attention_type != "block_sparse":
            return None
        return cls(
            num_layers=config.num_layers,
            num_heads=config.num_heads,
            block_size=config.block_size,
            num_random_blocks=config.num_random_blocks,
            max_positions=config.max_positions,
        )

    @property
    def full_tokens(self) -> int:
        """Number of tokens of the longest row that has full attention."""
        return most_attended_blocks(self.num_random_blocks) * self.block_size

    @override
    def forward(
        self, x: Tensor, inputs: AttentionInputs, positions: Positions
    ) -> list[AttentionInputs]:
        if torch.compiler.is_exporting():
            graph_blocks = GraphBlocks(
                self.block_size,
                most_attended_blocks(self.num_random_blocks),
                1 + self.num_random_blocks,
                positions.segments,
            )
            return [inputs._replace(mask=graph_blocks)] * self.num_layers
        tokens = x.shape[1]
        if tokens <= self.full_tokens:
            return [inputs] * self.num_layers
        mask = inputs.mask
        # A mask of padding has one row for all queries.
        has_documents = isinstance(mask, DocumentOffsets) or (
            isinstance(mask, Tensor) and mask.shape[2] > 1
        )
        layers = [0] if not self.training else range(self.num_layers)
        masks: list[Tensor | SparseBlocks] = []
        for layer in layers:
            blocks = self.blocks(layer, x)
            if needs_masks():
                # Documents are a mask of all pairs, too, where masks are needed.
                assert mask is None or isinstance(mask, Tensor), "documents are not offsets"
                masks.append(add_bias(mask, blocks.dense_mask(tokens)[None]))
            else:
                blocks = blocks._replace(segments=positions.segments, has_documents=has_documents)
                masks.append(blocks)
        if not self.training:
            masks = masks * self.num_layers
        return [inputs._replace(mask=layer_mask) for layer_mask in masks]

    def blocks(self, layer: int, x: Tensor) -> SparseBlocks:
        """Return the blocks of a layer, for embeddings (batch, tokens, hidden)."""
        num_blocks = -(-x.shape[1] // self.block_size)
        if not self.training:
            count = 1 + self.num_random_blocks
            return SparseBlocks.for_row(x, self.block_size, num_blocks, first_block_count=count)
        random_blocks = self.random_blocks(layer, num_blocks, x)
        return SparseBlocks.for_row(x, self.block_size, num_blocks, random_blocks=random_blocks)

    @outside_of_graphs
    def random_blocks(self, layer: int, num_blocks: int, x: Tensor) -> Tensor:
        """Return the random blocks of a layer in training; see ``draw_random_blocks``."""
        # NumPy's generators cannot be compiled.
        blocks = draw_random_blocks(
            layer,
            num_blocks,
            num_heads=self.num_heads,
            num_random_blocks=self.num_random_blocks,
            block_size=self.block_size,
            max_positions=self.max_positions,
        )
        return torch.tensor(blocks, device=x.device)
