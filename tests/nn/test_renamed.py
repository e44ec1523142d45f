"""Plugins written for version 0.2 call and override ``Attention.mix``."""

from typing import Any

import pytest
import torch

from zoo.nn.transformer import Attention, SelfAttention

X = torch.randn(2, 3, 8, generator=torch.Generator().manual_seed(0))


def test_attention_by_its_old_name_is_the_same() -> None:
    layer: Any = SelfAttention(hidden_size=8, num_heads=2, dropout=0.0)
    q, k, v = layer.split(layer.qkv(X), 3)
    with pytest.warns(DeprecationWarning, match="the method mix is now called attend"):
        assert torch.equal(layer.mix(q, k, v, None), layer(X))


def test_a_plugin_that_overrides_the_old_name_is_used() -> None:
    with pytest.warns(DeprecationWarning, match="the method mix is now called attend"):

        class Doubled(SelfAttention):
            def mix(self, *args: Any, **options: Any) -> torch.Tensor:
                return 2 * Attention.attend(self, *args, **options)

    layer = Doubled(hidden_size=8, num_heads=2, dropout=0.0)
    with torch.no_grad():
        q, k, v = layer.split(layer.qkv(X), 3)
        once = Attention.attend(layer, q, k, v, None)
        assert torch.equal(layer(X), 2 * once)
