"""Learned vectors before the token embeddings of a text (Lester et al. 2021, arXiv:2104.08691).

They are the embeddings of virtual tokens, whose ids follow those of the vocabulary, so that a model
computes a text with a prompt as it computes any other text: packed, with padding, and with its
positions. Calling a model adds the virtual tokens, and leaves them out of what it returns for each
token. Code that calls another method than ``forward`` adds them itself, by ``with_prompt``.
"""

import inspect
from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.kernels.embedding import Embedding
from zoo.overrides import override


class SoftPrompt(nn.Module):
    """The embeddings of virtual tokens.

    Args:
        tokens: number of virtual tokens.
        width: size of an embedding.
        token_axes: output of the model with a value for each token -> the axis of the tokens.
        follows_padding: whether rows may be padded on the left, so that virtual tokens follow the
            padding.
    """

    def __init__(
        self, tokens: int, width: int, token_axes: Mapping[str, int], *, follows_padding: bool
    ) -> None:
        super().__init__()
        self.token_axes = dict(token_axes)
        self.follows_padding = follows_padding
        self.prompt = nn.Parameter(torch.randn(tokens, width))

    @property
    def length(self) -> int:
        """Number of virtual tokens."""
        return self.prompt.shape[0]

    @torch.no_grad()
    def sample(self, table: Tensor) -> None:
        """Begin with the embeddings of random tokens of a table, (vocabulary, width)."""
        rows = torch.randint(table.shape[0], (self.length,))
        self.prompt.copy_(table[rows.to(table.device)])


class PromptedEmbedding(Embedding):
    """Token embeddings and a prompt: ids from the size of the vocabulary are virtual tokens."""

    adapter: SoftPrompt

    @override
    def forward(self, input: Tensor) -> Tensor:
        first_virtual = self.num_embeddings
        words = super().forward(input.clamp(max=first_virtual - 1))
        prompt = F.embedding((input - first_virtual).clamp(min=0), self.adapter.prompt)
        is_virtual = (input >= first_virtual)[..., None]
        return torch.where(is_virtual, prompt.to(words.dtype), words)


def token_embeddings(model: nn.Module) -> nn.Module | None:
    """Return the table of token embeddings that a prompt can be added to."""
    table = getattr(getattr(model, "embeddings", None), "tokens", None)
    return table if isinstance(table, Embedding) else None


def prompt_of(model: nn.Module) -> SoftPrompt | None:
    """Return the prompt of a model, or ``None``."""
    table = token_embeddings(model)
    return table.adapter if isinstance(table, PromptedEmbedding) else None


def attach_prompt(model: nn.Module, prompt: SoftPrompt) -> None:
    """Give a model a prompt, in place."""
    table = cast(Any, token_embeddings(model))
    table.__class__ = PromptedEmbedding
    table.adapter = prompt
    model.register_forward_pre_hook(_add_prompt, with_kwargs=True)
    model.register_forward_hook(_drop_prompt)


def with_prompt(model: nn.Module, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return inputs, ids of (..., tokens), with the virtual tokens of a model's prompt, if any."""
    prompt = prompt_of(model)
    if prompt is None:
        return dict(inputs)
    count = prompt.length
    table = cast(Any, token_embeddings(model))
    ids = inputs["input_ids"]
    virtual = torch.arange(count, device=ids.device, dtype=ids.dtype) + table.num_embeddings
    extended = {**inputs}
    extended["input_ids"] = torch.cat([virtual.expand(*ids.shape[:-1], count), ids], -1)
    for name, value in {"attention_mask": 1, "token_type_ids": 0}.items():
        if extended.get(name) is not None:
            extended[name] = F.pad(extended[name], (count, 0), value=value)
    if extended.get("mc_token_ids") is not None:  # They are indices of tokens.
        extended["mc_token_ids"] = extended["mc_token_ids"] + count
    mask = inputs.get("attention_mask")
    if mask is None or not prompt.follows_padding:
        return extended
    padding = (mask.cumsum(-1) == 0).sum(-1, keepdim=True)
    position = torch.arange(ids.shape[-1] + count, device=ids.device)
    source = torch.where(position < padding + count, position - padding, position)
    source = torch.where(position < padding, position + count, source)
    for name in ("input_ids", "attention_mask"):
        extended[name] = extended[name].gather(-1, source)
    return extended


def without_prompt(model: nn.Module, hidden: Tensor) -> Tensor:
    """Return hidden states without virtual tokens: (batch, tokens, hidden)."""
    prompt = prompt_of(model)
    return hidden if prompt is None else hidden[:, prompt.length :]


def _add_prompt(
    model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    arguments = inspect.signature(model.forward).bind(*args, **kwargs).arguments
    return (), with_prompt(model, arguments)


def _drop_prompt(
    model: nn.Module, args: tuple[Any, ...], outputs: dict[str, Tensor]
) -> dict[str, Tensor]:
    prompt = prompt_of(model)
    assert prompt is not None, "the hook is of a model with a prompt"
    shortened = {}
    for name, tensor in outputs.items():
        axis = prompt.token_axes.get(name)
        if axis is None:
            shortened[name] = tensor
        else:
            tokens = tensor.shape[axis] - prompt.length
            shortened[name] = tensor.narrow(axis, prompt.length, tokens)
    return shortened
