"""Causal attention in chunks with a key-value cache equals causal attention at once."""

import pytest
import torch

from zoo.nn.decoder import causal_mask
from zoo.nn.kv_cache import KeyValueCache, LayerCache
from zoo.nn.transformer import SelfAttention


@pytest.mark.parametrize("cuts", [(9,), (1,) * 9, (4, 5), (3, 1, 1, 4)], ids=str)
@pytest.mark.parametrize("room", [0, 2, 20])
@pytest.mark.parametrize("padded", [False, True])
def test_attention_with_a_cache_equals_attention_without(
    cuts: tuple[int, ...], room: int, padded: bool
) -> None:
    torch.manual_seed(0)
    attention = SelfAttention(hidden_size=8, num_heads=2, dropout=0.0, causal=True).double()
    x = torch.randn(3, 9, 8, dtype=torch.float64)
    mask = torch.ones(3, 9, dtype=torch.int64)
    mask[1, :2] = 0
    whole = attention(x, causal_mask(mask if padded else None, queries=9, past=0, like=x))
    cache, outputs, past = LayerCache(room), [], 0
    for size in cuts:
        seen = mask[:, : past + size] if padded else None
        ahead = causal_mask(seen, queries=size, past=past, like=x)
        outputs.append(attention(x[:, past : past + size], ahead, cache))
        past += size
    assert cache.length == 9 and cache.keys.shape == (3, 2, 9, 4)
    difference = (torch.cat(outputs, 1) - whole).abs()
    assert difference[mask.bool() if padded else torch.ones_like(mask).bool()].max() < 1e-12


def test_causal_attention() -> None:
    attention = SelfAttention(hidden_size=8, num_heads=2, dropout=0.0, causal=True)
    x = torch.randn(1, 6, 8)
    changed = x.clone()
    changed[:, 4:] += 1
    before, after = attention(x), attention(changed)
    assert torch.allclose(before[:, :4], after[:, :4]) and not torch.allclose(before, after)


def test_cache_select() -> None:
    cache, keys = KeyValueCache(2, max_new_tokens=3), torch.randn(3, 2, 4, 5)
    for layer in cache.layers:
        layer.extend(keys, -keys)
    cache.select(torch.tensor([2, 2, 0, 1]))
    cache.select(torch.tensor([3, 0]))
    assert cache.length == 4
    for layer in cache.layers:
        assert torch.equal(layer.keys, keys[[1, 2]]) and torch.equal(layer.values, -keys[[1, 2]])
        grown, _ = layer.extend(keys[[0, 1]], keys[[0, 1]])
        assert torch.equal(grown, torch.cat([keys[[1, 2]], keys[[0, 1]]], 2))
