"""The reference library in one precision."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def one_precision(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the reference compute roots and norms in the model's dtype instead of float32."""
    from transformers.models.deberta import modeling_deberta
    from transformers.models.deberta_v2 import modeling_deberta_v2

    def norm(layer: Any, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], layer.weight, layer.bias, layer.variance_epsilon)

    def root(x: Tensor, factor: int) -> Tensor:
        return torch.tensor(x.shape[-1] * factor, dtype=torch.float64).sqrt()

    monkeypatch.setattr(modeling_deberta.DebertaLayerNorm, "forward", norm)
    monkeypatch.setattr(modeling_deberta, "scaled_size_sqrt", root)
    monkeypatch.setattr(modeling_deberta_v2, "scaled_size_sqrt", root)
