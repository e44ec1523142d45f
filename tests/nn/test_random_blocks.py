"""Random blocks, compared with the functions of the reference library that draw them."""

from typing import Any

import numpy as np
import pytest
from transformers import BigBirdConfig
from transformers.models.big_bird.modeling_big_bird import BigBirdBlockSparseAttention

from zoo.nn.random_blocks import draw_random_blocks

HEADS = 3


def expected_blocks(
    seed: int, tokens: int, size: int, num_random_blocks: int, max_positions: int
) -> Any:
    """Return the blocks as ``bigbird_block_sparse_attention`` of the reference draws them."""
    config = BigBirdConfig(
        hidden_size=12 * HEADS,
        num_attention_heads=HEADS,
        block_size=size,
        num_random_blocks=num_random_blocks,
        max_position_embeddings=max_positions,
    )
    attention = BigBirdBlockSparseAttention(config, seed=seed).train()
    np.random.seed(seed)
    if tokens in (1024, 3072, 4096):
        limits = (max_positions, max_positions, size, size, num_random_blocks)
        rows = [attention._bigbird_block_rand_mask(*limits, last_idx=1024) for _ in range(HEADS)]
        return np.stack(rows)[:, : tokens // size - 2]
    plan = attention._get_rand_attn_plan(tokens, size, num_random_blocks)
    return np.stack(
        attention._bigbird_block_rand_mask_with_head(tokens, tokens, size, size, HEADS, *plan)
    )


@pytest.mark.parametrize("seed", [0, 11])
@pytest.mark.parametrize(
    ("size", "num_random_blocks", "max_positions"),
    [(64, 3, 4096), (64, 2, 1024), (64, 3, 3072), (128, 1, 4096), (16, 3, 1024), (4, 1, 160)],
)
def test_blocks_are_those_of_the_reference(
    size: int, num_random_blocks: int, max_positions: int, seed: int
) -> None:
    fewest = 6 + 2 * num_random_blocks
    numbers = {fewest, fewest + 1, fewest + 4, max_positions // size}
    numbers.update(tokens // size for tokens in (1024, 3072, 4096))
    for number in sorted(numbers):
        if number < fewest or number * size > max_positions:
            continue
        blocks = draw_random_blocks(
            seed,
            number,
            num_heads=HEADS,
            num_random_blocks=num_random_blocks,
            block_size=size,
            max_positions=max_positions,
        )
        expected = expected_blocks(seed, number * size, size, num_random_blocks, max_positions)
        assert np.array_equal(blocks, expected), number


def test_the_global_state_of_numpy_is_left_alone() -> None:
    np.random.seed(5)
    expected = np.random.rand()
    np.random.seed(5)
    shape = {"num_heads": 2, "num_random_blocks": 3, "block_size": 64, "max_positions": 4096}
    draw_random_blocks(99, 40, **shape)
    assert np.random.rand() == expected


def test_too_few_blocks_are_an_error() -> None:
    shape = {"num_heads": 1, "block_size": 64, "max_positions": 1024}
    with pytest.raises(ValueError, match="num_random_blocks is 14"):
        draw_random_blocks(0, 16, num_random_blocks=14, **shape)
