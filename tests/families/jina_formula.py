"""JinaBERT v2 by its published formulas, on tensors with the published names."""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo_jina.config import JinaConfig


def slopes(heads: int) -> list[float]:
    """Press et al. 2022, section 3, and the interpolation of their released code."""
    if heads & (heads - 1) == 0:
        return [2 ** (-8 * (head + 1) / heads) for head in range(heads)]
    lower = 2 ** (heads.bit_length() - 1)
    return slopes(lower) + slopes(2 * lower)[0::2][: heads - lower]


def formula(config: JinaConfig, hub: Mapping[str, Tensor], ids: Tensor, mask: Tensor) -> Tensor:
    """Return the last hidden state by the published formulas, with the published names."""

    def linear(name: str, x: Tensor) -> Tensor:
        return F.linear(x, hub[f"bert.{name}.weight"], hub.get(f"bert.{name}.bias"))

    def norm(name: str, x: Tensor) -> Tensor:
        weight, bias = hub[f"bert.{name}.weight"], hub[f"bert.{name}.bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias, config.layer_norm_eps)

    tokens = ids.shape[1]
    positions = torch.arange(tokens)
    distance = (positions[:, None] - positions[None]).abs().double()
    bias = -torch.tensor(slopes(config.num_heads), dtype=torch.float64)[:, None, None] * distance
    hidden = hub["bert.embeddings.word_embeddings.weight"][ids]
    hidden = hidden + hub["bert.embeddings.token_type_embeddings.weight"][0]
    hidden = norm("embeddings.LayerNorm", hidden)
    gates: dict[str, Callable[[Tensor], Tensor]] = {"gelu": F.gelu, "relu": F.relu}
    gate = gates[config.gate]
    for number in range(config.num_layers):
        layer = f"encoder.layer.{number}."
        query, key, value = (
            linear(f"{layer}attention.self.{part}", hidden)
            .view(*ids.shape, config.num_heads, -1)
            .transpose(1, 2)
            for part in ("query", "key", "value")
        )
        scores = query @ key.transpose(2, 3) / query.shape[-1] ** 0.5 + bias
        scores = scores.masked_fill(mask[:, None, None] == 0, float("-inf"))
        context = (scores.softmax(-1) @ value).transpose(1, 2).flatten(2)
        attended = linear(f"{layer}attention.output.dense", context)
        hidden = norm(f"{layer}attention.output.LayerNorm", hidden + attended)
        gated, plain = linear(f"{layer}mlp.gated_layers", hidden).chunk(2, -1)
        hidden = norm(
            f"{layer}mlp.layernorm", hidden + linear(f"{layer}mlp.wo", gate(gated) * plain)
        )
    return hidden


def predicted_words(config: JinaConfig, hub: Mapping[str, Tensor], hidden: Tensor) -> Tensor:
    """Return the logits of BERT's head for masked tokens, whose output embeddings are tied."""
    head = "cls.predictions."
    dense = f"{head}transform.dense."
    hidden = F.gelu(F.linear(hidden, hub[f"{dense}weight"], hub[f"{dense}bias"]))
    norm = f"{head}transform.LayerNorm."
    weight, bias = hub[f"{norm}weight"], hub[f"{norm}bias"]
    hidden = F.layer_norm(hidden, hidden.shape[-1:], weight, bias, config.layer_norm_eps)
    return F.linear(hidden, hub["bert.embeddings.word_embeddings.weight"], hub[f"{head}bias"])
