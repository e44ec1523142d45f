"""Biases by buckets of distances."""

import pytest
import torch
from torch import Tensor, nn
from transformers.models.t5.modeling_t5 import T5Attention

from zoo.nn.layers.relative import RelativePositions, distance_buckets


@pytest.mark.parametrize("bidirectional", [True, False])
@pytest.mark.parametrize(
    ("count", "longest"),
    [(32, 128), (32, 256), (64, 512), (16, 20), (4, 100), (13, 40), (320, 800)],
)
def test_buckets_are_the_references(count: int, longest: int, bidirectional: bool) -> None:
    away = torch.arange(-longest, longest + 1)
    theirs: Tensor = T5Attention._relative_position_bucket(away, bidirectional, count, longest)
    assert list(distance_buckets(count, longest, bidirectional)) == theirs.tolist()


def test_a_bias_depends_on_distance_alone_and_ends_at_the_longest() -> None:
    positions = RelativePositions(32, 128, 2)
    nn.init.normal_(positions.weight)
    full = positions(600, 600)
    assert full.shape == (1, 2, 600, 600)
    assert torch.equal(full[..., 1:, 1:], full[..., :-1, :-1])
    assert torch.equal(full[..., 0, 128], full[..., 0, 599])
    assert not torch.equal(full[..., 0, 90], full[..., 0, 91])  # the border of two buckets
    assert torch.equal(positions(1, 600), full[..., 599:, :])  # the last query alone
