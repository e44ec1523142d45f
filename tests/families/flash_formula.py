"""The encoder of Jina Embeddings v3 and of Jina's rerankers, by the formulas of the released code.

``xlm-roberta-flash-implementation`` needs flash-attn, and cannot be installed here. These are plain
loops over tensors with the published names, in their dtype, after ``modeling_xlm_roberta.py``,
``modeling_lora.py`` and ``rotary.py``.
"""

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo_jina.config import JinaConfig

Tensors = Mapping[str, Tensor]


def matrix(hub: Tensors, config: JinaConfig, module: str, task: int | None) -> Tensor:
    """Return the matrix of a linear map with the update of a task: W + alpha / rank * B A."""
    if f"{module}.weight" in hub:
        return hub[f"{module}.weight"]
    weight = hub[f"{module}.parametrizations.weight.original"]
    if task is None:
        return weight
    a = hub[f"{module}.parametrizations.weight.0.lora_A"][task]
    b = hub[f"{module}.parametrizations.weight.0.lora_B"][task]
    product = a @ b if "embeddings" in module else b @ a
    return weight + product * (config.task_alpha / config.task_rank)


def rotated(x: Tensor, theta: float) -> Tensor:
    """Rotate (heads, tokens, size): halves of a head are the two coordinates.

    The released code computes angles, sines and cosines in float32.
    """
    size = x.shape[-1]
    frequencies = 1.0 / theta ** (torch.arange(0, size, 2, dtype=torch.float32) / size)
    angles = torch.arange(x.shape[1], dtype=torch.float32)[:, None] * frequencies
    cos = angles.cos().repeat(1, 2).to(x.dtype)
    sin = angles.sin().repeat(1, 2).to(x.dtype)
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat([-second, first], -1) * sin


def encode(config: JinaConfig, hub: Tensors, ids: Tensor, task: int | None) -> Tensor:
    """Return the last hidden state of one text without padding, (tokens, hidden)."""

    def linear(module: str, x: Tensor) -> Tensor:
        return F.linear(x, matrix(hub, config, module, task), hub[f"{module}.bias"])

    def norm(module: str, x: Tensor) -> Tensor:
        weight, bias = hub[f"{module}.weight"], hub[f"{module}.bias"]
        return F.layer_norm(x, x.shape[-1:], weight, bias, config.layer_norm_eps)

    hidden = matrix(hub, config, "roberta.embeddings.word_embeddings", task)[ids]
    hidden = hidden + matrix(hub, config, "roberta.embeddings.token_type_embeddings", task)[0]
    if config.positions == "absolute":
        assert config.pad_token_id is not None
        first = config.pad_token_id + 1
        table = hub["roberta.embeddings.position_embeddings.weight"]
        hidden = hidden + table[first : first + len(ids)]
    hidden = norm("roberta.emb_ln", hidden)
    for number in range(config.num_layers):
        layer = f"roberta.encoder.layers.{number}."
        qkv = linear(f"{layer}mixer.Wqkv", hidden)
        q, k, v = qkv.view(len(ids), 3, config.num_heads, -1).permute(1, 2, 0, 3)
        if config.positions == "rotary":
            q = rotated(q, config.rope_theta)
            k = rotated(k, config.rope_theta)
        scores = q @ k.transpose(1, 2) / q.shape[-1] ** 0.5
        context = (scores.softmax(-1) @ v).transpose(0, 1).flatten(1)
        hidden = norm(f"{layer}norm1", hidden + linear(f"{layer}mixer.out_proj", context))
        inner = F.gelu(linear(f"{layer}mlp.fc1", hidden))
        hidden = norm(f"{layer}norm2", hidden + linear(f"{layer}mlp.fc2", inner))
    return hidden


def pooled(config: JinaConfig, hub: Tensors, hidden: Tensor, task: int | None) -> Tensor:
    """Return the output of the pooler, (hidden,)."""
    weight = matrix(hub, config, "roberta.pooler.dense", task)
    return torch.tanh(F.linear(hidden[0], weight, hub["roberta.pooler.dense.bias"]))


def scores(hub: Tensors, hidden: Tensor) -> Tensor:
    """Return the logits of the classifier of texts, (labels,)."""
    weight, bias = hub["classifier.dense.weight"], hub["classifier.dense.bias"]
    dense = torch.tanh(F.linear(hidden[0], weight, bias))
    return F.linear(dense, hub["classifier.out_proj.weight"], hub["classifier.out_proj.bias"])
