"""The random blocks of block-sparse attention (Zaheer et al. 2020, arXiv:2007.14062).

They are a function of the layer and of the number of blocks. The numbers are those of the paper's
released code (``core/attention.py``) and of transformers, which draw them from NumPy's legacy
generator after seeding it with the index of the layer.
"""

import functools
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Rows of these lengths, in tokens, have the blocks of the models that the authors trained.
LENGTHS_OF_THE_PAPER = (1024, 3072, 4096)
# For these rows, random blocks end before this token.
LAST_RANDOM_TOKEN = 1024


def most_attended_blocks(num_random_blocks: int) -> int:
    """Return the largest number of blocks of a row that has full attention.

    Two global blocks, three of the window, and twice the random ones.
    """
    return 5 + 2 * num_random_blocks


@functools.lru_cache(maxsize=512)
def draw_random_blocks(
    seed: int,
    num_blocks: int,
    *,
    num_heads: int,
    num_random_blocks: int,
    block_size: int,
    max_positions: int,
) -> "NDArray[np.int64]":
    """Return the blocks of keys that each block of queries attends to at random.

    The first and the last block attend to all blocks and have no random ones.

    Args:
        seed: index of the layer.
        num_blocks: number of blocks of a row, more than ``most_attended_blocks``.
        num_heads: number of heads, which draw one after another.
        num_random_blocks: number of random blocks for each block of queries.
        block_size: number of tokens of a block.
        max_positions: number of tokens of the longest row.

    Returns:
        (heads, blocks - 2, random blocks), int64, read-only.

    Raises:
        ValueError: a row has fewer blocks to choose from than it needs.
    """
    # ``RandomState`` has the stream of ``numpy.random.seed`` and leaves the global state alone.
    generator = np.random.RandomState(seed)
    if num_blocks * block_size in LENGTHS_OF_THE_PAPER:
        last_block = max_positions // block_size - 1
        if 2 * block_size < LAST_RANDOM_TOKEN:
            last_block = LAST_RANDOM_TOKEN // block_size - 1
        drawn_blocks = max(max_positions // block_size, num_blocks)
        heads = []
        for _ in range(num_heads):
            rows = _rows_of_the_paper(generator, drawn_blocks, last_block, num_random_blocks)
            heads.append(rows[: num_blocks - 2])
        blocks = np.array(heads, dtype=np.int64)
    else:
        blocks = _rows_of_other_lengths(generator, num_blocks, num_heads, num_random_blocks)
    blocks.setflags(write=False)
    return blocks


def _rows_of_the_paper(
    generator: np.random.RandomState, num_blocks: int, last_block: int, num_random_blocks: int
) -> "list[NDArray[np.int64]]":
    """Return the random blocks of one head for all blocks of queries but the first and last."""
    middle = np.arange(1, num_blocks - 1)
    rows = []
    for query_block in range(1, num_blocks - 1):
        before_window = middle[: min(max(query_block - 2, 0), last_block)]
        if query_block <= 2:
            candidates = middle[query_block + 1 : last_block]
        elif query_block >= num_blocks - 3:
            # The released code does not leave out the window of the last blocks.
            candidates = middle[:last_block]
        elif query_block - 2 > last_block or query_block + 1 == last_block:
            candidates = before_window
        else:
            after_window = middle[query_block + 1 : last_block]
            candidates = np.concatenate((before_window, after_window))
        row = generator.permutation(candidates)[:num_random_blocks]
        if len(row) < num_random_blocks:
            raise ValueError(
                f"block {query_block} of {num_blocks} blocks has {len(row)} blocks to choose "
                f"from at random, and num_random_blocks is {num_random_blocks}"
            )
        rows.append(row)
    return rows


def _rows_of_other_lengths(
    generator: np.random.RandomState, num_blocks: int, num_heads: int, num_random_blocks: int
) -> "NDArray[np.int64]":
    """Return the random blocks of all heads, which take turns in each block of queries."""
    # Random blocks are among the first ones, of which a row with block-sparse attention has more.
    num_candidates = most_attended_blocks(num_random_blocks)
    last_candidate = num_candidates - 1
    blocks = np.zeros((num_heads, num_blocks - 2, num_random_blocks), dtype=np.int64)
    for query_block in range(1, num_blocks - 1):
        excluded = {0, last_candidate, query_block - 1, query_block, query_block + 1}
        if query_block == 1:
            excluded.add(last_candidate - 1)
        if query_block == last_candidate - 1:
            excluded.add(1)
        for head in range(num_heads):
            order = generator.permutation(num_candidates).tolist()
            row = [block for block in order if block not in excluded]
            blocks[head, query_block - 1] = row[:num_random_blocks]
    return blocks
