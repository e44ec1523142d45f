"""Attention of blocks of queries to some blocks of keys, in time linear in the number of tokens.

Zaheer et al. 2020, "Big Bird: Transformers for Longer Sequences", arXiv:2007.14062, appendix D.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.attention.masks import mask_value

Attend = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
Gather = Callable[[Tensor, Tensor, Tensor], tuple[Tensor, Tensor, Tensor]]
AttendBlocks = Callable[[Tensor, Tensor, Tensor, Tensor | None, Gather], Tensor]


class SparseBlocks(NamedTuple):
    """The blocks of keys of each block of queries, and the tokens among them.

    The first and the last block of a row attend to all tokens. Each other block attends to these
    two, to itself, to its neighbours and to random blocks.
    """

    size: int  # Number of tokens of a block.
    # Indices of the blocks of keys, (heads or 1, blocks - 2, keys), int64.
    keys: Tensor
    # Added to the scores of a block of keys, (heads or 1, blocks - 2, keys): ``mask_value`` for a
    # block that is among the keys twice but counts once.
    bias: Tensor
    # (batch, tokens), int64: tokens attend to tokens of the same number, such as an attention mask
    # or the number of a document; ``None`` for all. Outputs at 0, which is padding, are 0.
    segments: Tensor | None = None
    # Whether the segments are documents, so that the keys of a block differ between its queries.
    has_documents: bool = False

    @classmethod
    def for_row(
        cls,
        like: Tensor,
        size: int,
        num_blocks: int,
        *,
        random_blocks: Tensor | None = None,
        first_block_count: int = 1,
    ) -> "SparseBlocks":
        """Return the blocks of a row.

        Args:
            like: a tensor with the dtype and device of the attention scores.
            size: number of tokens of a block.
            num_blocks: number of blocks of the row; the last one may be shorter.
            random_blocks: (heads, blocks - 2, random blocks), int64, see
                ``zoo.nn.random_blocks.draw_random_blocks``; ``None`` for no random blocks. One
                that is also global or in the window counts again.
            first_block_count: how often each key of the first block counts.
        """
        blocks = torch.arange(1, num_blocks - 1, device=like.device)
        first = torch.zeros_like(blocks)
        last = torch.full_like(blocks, num_blocks - 1)
        keys = torch.stack((first, last, blocks - 1, blocks, blocks + 1), dim=1)
        bias = torch.zeros(keys.shape, dtype=like.dtype, device=like.device)
        # The window of the second block contains the first one, and likewise at the end.
        bias[:, 2].masked_fill_(blocks == 1, mask_value(like.dtype))
        bias[:, 4].masked_fill_(blocks == num_blocks - 2, mask_value(like.dtype))
        bias[:, 0] = math.log(first_block_count)
        keys = keys[None]
        bias = bias[None]
        if random_blocks is not None:
            heads = random_blocks.shape[0]
            keys = torch.cat((keys.expand(heads, -1, -1), random_blocks), dim=2)
            no_bias = torch.zeros_like(random_blocks, dtype=bias.dtype)
            bias = torch.cat((bias.expand(heads, -1, -1), no_bias), dim=2)
        return cls(size, keys, bias)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, attend: Attend, attend_blocks: AttendBlocks
    ) -> Tensor:
        """Return the attention of a row's blocks, all (batch, heads, tokens, head_size).

        Args:
            q: queries.
            k: keys.
            v: values.
            attend: attention of tensors of this shape with a mask that is added to the scores.
            attend_blocks: the same for blocks, which a function returns of such tensors.
        """
        tokens = q.shape[2]
        size = self.size
        spare = (self.keys.shape[1] + 2) * size - tokens  # Missing in the last block.
        queries, keys, values = q, k, v
        if spare:
            queries, keys, values = (F.pad(x, (0, 0, 0, spare)) for x in (q, k, v))
        segments = self.segments
        if segments is None:
            segments = torch.ones_like(q[:1, 0, :, 0], dtype=torch.int64)
        segments = F.pad(segments, (0, spare))
        ends = torch.cat((queries[:, :, :size], queries[:, :, -size:]), dim=2)
        end_segments = torch.cat((segments[:, :size], segments[:, -size:]), dim=1)
        mask = self._exclude(end_segments, segments, torch.zeros_like(self.bias[0, 0, 0]))
        at_ends = attend(ends, keys, values, mask[:, None])
        between = self._attend_between(queries, keys, values, segments, attend_blocks)
        joined = torch.cat((at_ends[:, :, :size], between, at_ends[:, :, size:]), dim=2)
        joined = joined[:, :, :tokens]
        if self.segments is None:
            return joined
        # As in the released code, attention of padding is zero.
        return joined.masked_fill((self.segments == 0)[:, None, :, None], 0.0)

    def _attend_between(
        self, q: Tensor, k: Tensor, v: Tensor, segments: Tensor, attend_blocks: AttendBlocks
    ) -> Tensor:
        """Return the attention of all blocks but the first and the last one."""
        batch, heads, _, _ = q.shape
        mask = self._mask_between(segments).expand(batch, heads, -1, -1, -1).flatten(0, 1)
        attended = attend_blocks(q, k, v, mask, self._gather)
        return attended.unflatten(0, (batch, heads)).flatten(2, 3)  # type: ignore[no-any-return, no-untyped-call]

    def _gather(self, q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return queries, keys and values of blocks, (batch * heads, blocks - 2, tokens, size)."""
        batch, heads, _, width = q.shape
        size = self.size
        num_queries = self.keys.shape[1]
        queries = q[:, :, size:-size].unflatten(2, (num_queries, size))  # type: ignore[no-untyped-call]
        # Blocks of all heads are in one list, since each head may have keys of its own.
        head_offsets = torch.arange(heads, device=q.device)[:, None, None] * (num_queries + 2)
        indices = (self.keys + head_offsets).flatten()
        gathered = []
        for x in (k, v):
            blocks = x.unflatten(2, (num_queries + 2, size)).flatten(1, 2)  # type: ignore[no-untyped-call]
            blocks = blocks.index_select(1, indices)
            gathered.append(blocks.view(batch * heads, num_queries, -1, width))
        keys, values = gathered
        return queries.flatten(0, 1), keys, values

    def _mask_between(self, segments: Tensor) -> Tensor:
        """Return the mask, (batch or 1, heads or 1, blocks - 2, queries or 1, keys * size)."""
        blocks = segments.unflatten(1, (-1, self.size))  # type: ignore[no-untyped-call]
        heads, num_queries, _ = self.keys.shape
        keys = blocks.index_select(1, self.keys.flatten())
        keys = keys.view(len(segments), heads, num_queries, -1)
        queries = blocks[:, None, 1:-1].expand(-1, heads, -1, -1)
        bias = self.bias.repeat_interleave(self.size, dim=2)[None, :, :, None]
        return self._exclude(queries, keys, bias)

    def _exclude(self, queries: Tensor, keys: Tensor, bias: Tensor) -> Tensor:
        """Return a bias of scores with the keys of other segments masked.

        Args:
            queries: segments, (..., queries), int64.
            keys: segments, (..., keys), int64.
            bias: (..., 1, keys), or a number.

        Returns:
            (..., queries or 1, keys).
        """
        if self.has_documents:
            masked = queries[..., :, None] != keys[..., None, :]
        else:
            masked = (keys == 0)[..., None, :]
        return torch.where(masked, mask_value(bias.dtype), bias)

    def dense_mask(self, tokens: int) -> Tensor:
        """Return the same as a mask of all pairs of tokens, (heads or 1, tokens, tokens).

        It leaves out ``segments``. The logarithm of the number of times that a block counts is
        added to the scores of its keys.
        """
        heads, num_queries, _ = self.keys.shape
        num_blocks = num_queries + 2
        counts = self.bias.new_zeros(heads, num_blocks, num_blocks)
        counts[:, 0] = 1
        counts[:, -1] = 1
        counts[:, 1:-1].scatter_add_(2, self.keys, self.bias.exp())
        mask = counts.log().clamp(min=mask_value(counts.dtype))
        rows = mask.repeat_interleave(self.size, dim=1)[:, :tokens]
        return rows.repeat_interleave(self.size, dim=2)[:, :, :tokens]


class GraphBlocks(NamedTuple):
    """Block-sparse attention of an exported graph, whose number of tokens is unknown.

    Short rows have full attention in the same graph: each block of queries has as many keys as the
    longest of these rows, and a mask for those that do not count. Memory is linear.
    """

    size: int  # Number of tokens of a block.
    full_blocks: int  # Number of blocks of the longest row with full attention, at least 5.
    first_block_count: int  # How often each key of the first block counts in long rows.
    segments: Tensor | None  # (batch, tokens), int64: 0 for padding; ``None`` for none.

    def attend(self, q: Tensor, k: Tensor, v: Tensor, attend: Attend) -> Tensor:
        """Return the attention of rows; see ``SparseBlocks.attend``."""
        tokens = q.shape[2]
        positions = torch.arange(tokens, device=q.device)
        num_tokens = positions[-1] + 1
        blocks = torch.arange((tokens + self.size - 1) // self.size, device=q.device)
        keys, bias = self._keys(blocks, num_tokens, q.dtype)
        key_index = self._token_index(keys)
        is_missing = (key_index >= num_tokens)[None]
        key_index = torch.minimum(key_index, num_tokens - 1)
        is_padding = torch.zeros_like(q[:, 0, :, 0], dtype=torch.bool)
        if self.segments is not None:
            is_padding = self.segments == 0
        is_masked = is_missing | is_padding[:, key_index]
        bias = bias.repeat_interleave(self.size, dim=1)[None]
        mask = torch.where(is_masked, mask_value(q.dtype), bias)
        query_index = torch.minimum(self._token_index(blocks[:, None]), num_tokens - 1)
        mask = mask[:, None, :, None].expand(-1, q.shape[1], -1, -1, -1)
        blocked = (q[:, :, query_index], k[:, :, key_index], v[:, :, key_index], mask)
        # Exporters take no more than one axis in addition to the blocks.
        between = attend(*(x.flatten(0, 1) for x in blocked)).unflatten(0, q.shape[:2])  # type: ignore[no-untyped-call]
        # Of a short row, the first and the last block have the same result from either.
        padding_bias = is_padding.to(q.dtype) * mask_value(q.dtype)
        last = blocks[-1:]
        end_index = self._token_index(torch.stack((torch.zeros_like(last), last)))
        end_index = torch.minimum(end_index, num_tokens - 1)
        ends = attend(q[:, :, end_index.flatten()], k, v, padding_bias[:, None, None])
        is_first = (blocks == 0)[:, None, None]
        is_last = (blocks == last)[:, None, None]
        joined = torch.where(is_first, ends[:, :, None, : self.size], between)
        joined = torch.where(is_last, ends[:, :, None, self.size :], joined)
        joined = joined.flatten(2, 3)[:, :, positions]
        if self.segments is None:
            return joined
        is_long = num_tokens > self.full_blocks * self.size
        return joined.masked_fill((is_padding & is_long)[:, None, :, None], 0.0)

    def _keys(
        self, blocks: Tensor, num_tokens: Tensor, dtype: torch.dtype
    ) -> tuple[Tensor, Tensor]:
        """Return the blocks of keys of each block, and what is added to their scores."""
        # Both are (blocks, full blocks).
        excluded = mask_value(dtype)
        last = blocks[-1]
        zero = torch.zeros_like(blocks)
        window = [blocks - 1, blocks, blocks + 1]
        unused = [zero] * (self.full_blocks - 5)
        sparse_keys = torch.stack([zero, last.expand_as(blocks), *window, *unused], dim=1)
        is_excluded = torch.stack(
            [blocks < 0, blocks < 0, blocks == 1, blocks < 0, blocks == last - 1]
            + [blocks >= 0] * (self.full_blocks - 5),
            dim=1,
        )
        first_bias = torch.zeros(self.full_blocks, dtype=dtype, device=blocks.device)
        first_bias[0] = math.log(self.first_block_count)
        sparse_bias = torch.where(is_excluded, excluded, first_bias)
        all_keys = torch.arange(self.full_blocks, device=blocks.device)
        all_bias = (all_keys > last).to(dtype) * excluded
        is_full = num_tokens <= self.full_blocks * self.size
        keys = torch.where(is_full, all_keys, sparse_keys)
        keys = torch.minimum(keys.clamp(min=0), last)
        return keys, torch.where(is_full, all_bias, sparse_bias)

    def _token_index(self, blocks: Tensor) -> Tensor:
        """Return the indices of the tokens of blocks, (n, blocks) to (n, blocks * size)."""
        offsets = torch.arange(self.size, device=blocks.device)
        return (blocks[:, :, None] * self.size + offsets).flatten(1)


# Either, of a batch or of a graph.
BlockSparse = SparseBlocks | GraphBlocks
