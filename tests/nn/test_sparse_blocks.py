"""Block-sparse attention, compared with attention of all pairs of tokens and a mask."""

import math

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.kernels.attention import attend
from zoo.nn.sparse_blocks import GraphBlocks, SparseBlocks

HEADS = 3
SIZE = 4


def heads_of(tokens: int) -> list[Tensor]:
    """Return queries, keys and values of two rows."""
    generator = torch.Generator().manual_seed(tokens)
    shape = (2, HEADS, tokens, 8)
    return [torch.randn(shape, generator=generator, dtype=torch.float64) for _ in range(3)]


def padded(tokens: int) -> Tensor:
    segments = torch.ones(2, tokens, dtype=torch.int64)
    segments[1, tokens - tokens // 4 :] = 0
    return segments


def block_counts(num_blocks: int, random_blocks: Tensor | None, first: int) -> Tensor:
    """Return how often each block of keys counts, (heads, blocks, blocks), by the definition."""
    counts = torch.zeros(HEADS, num_blocks, num_blocks, dtype=torch.float64)
    for head in range(HEADS):
        for query in range(num_blocks):
            if query in (0, num_blocks - 1):
                counts[head, query] = 1
                continue
            for key in {0, num_blocks - 1, query - 1, query, query + 1}:
                counts[head, query, key] = 1
            counts[head, query, 0] = first
            if random_blocks is not None:
                for key in random_blocks[head, query - 1]:
                    counts[head, query, key] += 1
    return counts


def attention_of_pairs(
    q: Tensor, k: Tensor, v: Tensor, counts: Tensor, segments: Tensor, documents: bool
) -> Tensor:
    """Return softmax over all keys, with weights that are multiplied by the counts."""
    tokens = q.shape[2]
    weights = counts.repeat_interleave(SIZE, 1).repeat_interleave(SIZE, 2)[:, :tokens, :tokens]
    allowed = (segments != 0)[:, None, None, :].expand(-1, -1, tokens, -1)
    if documents:
        allowed = (segments[:, None, :, None] == segments[:, None, None, :]) & allowed
    scores = (q @ k.mT / math.sqrt(q.shape[-1])).exp() * weights * allowed
    totals = scores.sum(-1, keepdim=True)
    result = (scores / totals.clamp(min=1e-300)) @ v
    return result * (segments != 0)[:, None, :, None]


@pytest.mark.parametrize("drawn", [False, True])
@pytest.mark.parametrize("tokens", [29, 32, 41])
@pytest.mark.parametrize("documents", [False, True])
def test_blocks_equal_attention_of_pairs(tokens: int, drawn: bool, documents: bool) -> None:
    q, k, v = (part.requires_grad_() for part in heads_of(tokens))
    num_blocks = -(-tokens // SIZE)
    segments = padded(tokens)
    if documents:
        segments[:, tokens // 3 :] *= 2
    random_blocks = None
    if drawn:  # Some are also global or in the window, and count again.
        draw = torch.Generator().manual_seed(tokens)
        shape = (HEADS, num_blocks - 2, 2)
        random_blocks = torch.randint(0, num_blocks, shape, generator=draw)
    first = 1 if drawn else 3
    blocks = SparseBlocks.for_row(
        q, SIZE, num_blocks, random_blocks=random_blocks, first_block_count=first
    )
    blocks = blocks._replace(segments=segments, has_documents=documents)
    attended = attend(q, k, v, blocks)
    counts = block_counts(num_blocks, random_blocks, first)
    expected = attention_of_pairs(q, k, v, counts, segments, documents)
    torch.testing.assert_close(attended, expected, rtol=0, atol=1e-12)
    gradients = torch.autograd.grad(attended.square().sum(), (q, k, v), retain_graph=True)
    references = torch.autograd.grad(expected.square().sum(), (q, k, v))
    for gradient, reference in zip(gradients, references, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=0, atol=1e-11)


def test_the_dense_mask_has_the_same_counts() -> None:
    tokens = 41
    q, k, v = heads_of(tokens)
    draw = torch.Generator().manual_seed(0)
    random_blocks = torch.randint(0, 11, (HEADS, 9, 2), generator=draw)
    blocks = SparseBlocks.for_row(q, SIZE, 11, random_blocks=random_blocks)
    dense = F.scaled_dot_product_attention(q, k, v, attn_mask=blocks.dense_mask(tokens)[None])
    torch.testing.assert_close(attend(q, k, v, blocks), dense, rtol=0, atol=1e-12)


@pytest.mark.parametrize("tokens", [1, 3, 4, 9, 28, 29, 32, 41])
def test_blocks_of_graphs_have_full_attention_of_short_rows(tokens: int) -> None:
    full_blocks = 7
    q, k, v = heads_of(tokens)
    segments = padded(tokens)
    num_blocks = -(-tokens // SIZE)
    attended = attend(q, k, v, GraphBlocks(SIZE, full_blocks, 2, segments))
    if tokens > full_blocks * SIZE:
        counts = block_counts(num_blocks, None, 2)
    else:
        counts = torch.ones(HEADS, num_blocks, num_blocks, dtype=torch.float64)
    expected = attention_of_pairs(q, k, v, counts, segments, documents=False)
    real = (segments != 0)[:, None, :, None]
    torch.testing.assert_close(attended * real, expected, rtol=0, atol=1e-12)
