"""Learned keys and values before a text's own (Li and Liang 2021, arXiv:2101.00190).

All tokens attend to them in each layer. In an encoder-decoder they are the decoder's. Tokens have
the positions after theirs, as tokens after a cache, or count them from 0.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.attention.masks import causal_mask
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.stacks import Stack, stacks
from zoo.nn.transformer import SelfAttention
from zoo.overrides import override


class PrefixEncoder(nn.Module):
    """The keys and values of all layers.

    Args:
        tokens: number of keys.
        layers: number of layers.
        heads: number of heads of keys and values.
        head_size: width of a head.
        projection: inner width of a network that computes keys and values from smaller embeddings
            in training (section 4.3); ``None`` to learn them as they are.
    """

    def __init__(
        self, tokens: int, layers: int, heads: int, head_size: int, projection: int | None = None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_size = head_size
        width = heads * head_size
        outputs = 2 * layers * width
        embedding_size = width if projection else outputs
        self.embedding = nn.Parameter(torch.randn(tokens, embedding_size))
        self.transform: nn.Sequential | None = None
        if projection:
            self.transform = nn.Sequential(
                nn.Linear(width, projection), nn.Tanh(), nn.Linear(projection, outputs)
            )

    def layer(self, number: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of a layer, (heads, tokens, head_size) each."""
        size = self.heads * self.head_size
        rows = slice(2 * number * size, 2 * (number + 1) * size)
        if self.transform is None:
            flat = self.embedding[:, rows]
        else:
            inner, act, outer = cast(Any, self.transform)
            flat = F.linear(act(inner(self.embedding)), outer.weight[rows], outer.bias[rows])
        keys, values = flat.unflatten(1, (2, self.heads, self.head_size)).permute(1, 2, 0, 3)  # type: ignore[no-untyped-call]
        return keys, values

    def flat(self) -> Tensor:
        """Return the keys and values of all layers, (tokens, layers * 2 * heads * head_size)."""
        if self.transform is None:
            return self.embedding
        return self.transform(self.embedding)  # type: ignore[no-any-return]


class PrefixedSelfAttention(SelfAttention):
    """``SelfAttention`` to a prefix and the tokens of each row."""

    prefix: tuple[PrefixEncoder, int]  # The model's prefix, and the number of the layer.

    @override
    def attend(
        self,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        mask: Any,
        *,
        causal: bool = False,
        positions: Tensor | None = None,
    ) -> Tensor:
        assert positions is None, "attend_at takes them for other classes"
        encoder, number = self.prefix
        group_size = self.head_counts[0] // self.head_counts[1]
        keys, values = encoder.layer(number)
        keys = keys.to(k.dtype).repeat_interleave(group_size, 0)
        values = values.to(k.dtype).repeat_interleave(group_size, 0)
        if isinstance(mask, DocumentOffsets):  # All documents share one row.
            mask = mask._replace(more_keys=keys.shape[1])
            index = keys_of_documents(mask)
            q_by_token = q.transpose(1, 2).flatten(0, 1)
            k = _document_states(keys, k, index)
            v = _document_states(values, v, index)
            attended = super().attend(q_by_token[None].transpose(1, 2), k, v, mask)
            return attended.view(q.shape[0], q.shape[2], -1)
        if causal:  # The kernel's own mask has as many queries as keys.
            mask = causal_mask(None, queries=q.shape[2], past=0, like=q, explicit=True)
        k = torch.cat([keys.expand(k.shape[0], -1, -1, -1), k], 2)
        v = torch.cat([values.expand(v.shape[0], -1, -1, -1), v], 2)
        if mask is not None:  # Biases of relative positions have the columns already.
            mask = F.pad(mask, (k.shape[2] - mask.shape[-1], 0))
        return super().attend(q, k, v, mask)


def _document_states(prefix: Tensor, x: Tensor, index: Tensor) -> Tensor:
    """Return the keys or values of all documents, each with the prefix, (1, heads, keys, size)."""
    by_token = x.transpose(1, 2).flatten(0, 1)
    states = torch.cat([prefix.transpose(0, 1), by_token])
    return states.index_select(0, index)[None].transpose(1, 2)


def keys_of_documents(documents: DocumentOffsets) -> Tensor:
    """Return the index of each key in a prefix and the tokens of all documents, (keys,)."""
    # The prefix has ``documents.more_keys`` tokens, and precedes the tokens of each document.
    starts = documents.offsets_of_keys
    lengths = starts.diff()
    document = torch.arange(len(lengths), device=starts.device).repeat_interleave(lengths)
    # Position of each key in its document.
    position = torch.arange(len(document), device=starts.device) - starts[document]
    token = position + documents.offsets[document]
    return torch.where(position < documents.more_keys, position, token)


def prefix_layers(model: nn.Module) -> tuple[Stack, list[Any]] | None:
    """Return the stack that takes a prefix, and the attention of its layers, or ``None``."""
    # Attention with relative positions takes no prefix, unless the stack has ``prefix_length``,
    # which it adds to its biases.
    stack = _prefix_stack(model)
    if stack is None:
        return None
    owner = stack_module(model, stack)
    attentions = []
    for index in dict.fromkeys(stack.order):  # Shared layers occur several times.
        attention = getattr(owner.layers[index], "attention", None)
        if type(attention) is not SelfAttention:
            return None
        attentions.append(attention)
    if not attentions or not _reads_no_positions(model, owner):
        return None
    return stack, attentions


def _prefix_stack(model: nn.Module) -> Stack | None:
    stacks_by_owner = {stack.owner: stack for stack in stacks(model)}
    return stacks_by_owner.get("decoder.", stacks_by_owner.get(""))


def stack_module(model: nn.Module, stack: Stack) -> Any:
    """Return the module that has the layers of a stack."""
    return model.get_submodule(stack.owner.removesuffix("."))


def counts_distances(model: nn.Module) -> bool:
    """Return whether a model that takes a prefix has relative positions, which count the prefix."""
    stack = _prefix_stack(model)
    return stack is not None and hasattr(stack_module(model, stack), "prefix_length")


def _reads_no_positions(model: nn.Module, owner: Any) -> bool:
    if hasattr(owner, "prefix_length"):
        return True
    backbone: Any = model
    if owner is model:
        return bool(backbone.has_default_attention_inputs)
    return backbone.has_default_decoder_attention_inputs and owner.embeddings is not None


def has_prefix(model: nn.Module) -> bool:
    """Return whether a model has a prefix."""
    return any(isinstance(module, PrefixedSelfAttention) for module in model.modules())


def attach_prefix(model: nn.Module, prefix: PrefixEncoder, *, shift_positions: bool = True) -> None:
    """Give a model a prefix, in place; the positions of tokens follow it, or begin at 0."""
    layers = prefix_layers(model)
    assert layers is not None, "the method checks it"
    stack, attentions = layers
    owner = stack_module(model, stack)
    owner.adapter = prefix
    for number, attention in enumerate(attentions):
        attention.__class__ = PrefixedSelfAttention
        attention.prefix = (prefix, number)  # A tuple registers no module.
    if hasattr(owner, "prefix_length"):
        owner.prefix_length = prefix.embedding.shape[0]
    elif shift_positions:
        owner.embeddings.position_offset += prefix.embedding.shape[0]
