"""Learned keys and values before a text's own (Li and Liang 2021, arXiv:2101.00190).

All tokens attend to them in each layer. In an encoder-decoder they are the decoder's. Tokens have
the positions after theirs, as tokens after a cache, or count them from 0.
"""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.decoder import causal_mask
from zoo.nn.encoder import Encoder
from zoo.nn.encoder_decoder import EncoderDecoder
from zoo.nn.packed_attention import DocumentOffsets
from zoo.nn.stacks import Stack, stacks
from zoo.nn.transformer import SelfAttention
from zoo.overrides import override


class PrefixEncoder(nn.Module):
    """The keys and values of all layers."""

    # ``tokens`` is the number of keys, ``heads`` and ``head_size`` are those of keys and values.
    # ``projection`` is the inner width of a network that computes them from smaller embeddings in
    # training (section 4.3); with ``None`` they are learned as they are.

    def __init__(
        self, tokens: int, layers: int, heads: int, head_size: int, projection: int | None = None
    ) -> None:
        super().__init__()
        self.heads = heads
        self.head_size = head_size
        width = heads * head_size
        outputs = 2 * layers * width
        self.embedding = nn.Parameter(torch.randn(tokens, width if projection else outputs))
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
            first, act, last = cast(Any, self.transform)
            flat = F.linear(act(first(self.embedding)), last.weight[rows], last.bias[rows])
        keys, values = flat.unflatten(1, (2, self.heads, self.head_size)).permute(1, 2, 0, 3)  # type: ignore[no-untyped-call]
        return keys, values

    def flat(self) -> Tensor:
        """Return the keys and values of all layers, (tokens, layers * 2 * heads * head_size)."""
        return self.embedding if self.transform is None else self.transform(self.embedding)


class PrefixedSelfAttention(SelfAttention):
    """``SelfAttention`` to a prefix and the tokens of each row."""

    # the prefix, which is the model's, and the number of the layer
    prefix: tuple[PrefixEncoder, int]

    @override
    def attend(self, q: Tensor, k: Tensor, v: Tensor, mask: Any, *, causal: bool = False) -> Tensor:
        encoder, number = self.prefix
        shared = self.head_counts[0] // self.head_counts[1]
        keys, values = (
            part.to(k.dtype).repeat_interleave(shared, 0) for part in encoder.layer(number)
        )
        if isinstance(mask, DocumentOffsets):  # of one row, which all documents share
            mask = mask._replace(more_keys=keys.shape[1])
            index = keys_of_documents(mask)
            flat_q, *flat = (x.transpose(1, 2).flatten(0, 1) for x in (q, k, v))  # by token
            k, v = (
                torch.cat([prefix.transpose(0, 1), x]).index_select(0, index)[None].transpose(1, 2)
                for prefix, x in zip((keys, values), flat, strict=True)
            )
            attended = super().attend(flat_q[None].transpose(1, 2), k, v, mask)
            return attended.view(q.shape[0], q.shape[2], -1)
        if causal:  # the kernel's own mask is of as many queries as keys
            mask = causal_mask(None, queries=q.shape[2], past=0, like=q, explicit=True)
        k, v = (
            torch.cat([prefix.expand(x.shape[0], -1, -1, -1), x], 2)
            for prefix, x in ((keys, k), (values, v))
        )
        if mask is not None:  # biases of relative positions have the columns already
            mask = F.pad(mask, (k.shape[2] - mask.shape[-1], 0))
        return super().attend(q, k, v, mask)


def keys_of_documents(documents: DocumentOffsets) -> Tensor:
    """Return the index of each key in a prefix and the tokens of all documents, (keys,)."""
    # documents.more_keys is the length of the prefix, which is before the tokens of each document
    first = documents.offsets_of_keys
    lengths = first.diff()
    document = torch.arange(len(lengths), device=first.device).repeat_interleave(lengths)
    place = torch.arange(len(document), device=first.device) - first[document]  # in the document
    return torch.where(place < documents.more_keys, place, place + documents.offsets[document])


def prefix_layers(model: nn.Module) -> tuple[Stack, list[Any]] | None:
    """Return the stack that takes a prefix, and the attention of its layers, or ``None``."""
    # Attention with relative positions takes no prefix, unless the stack has ``prefix_length``,
    # which it adds to its biases.
    stack = _prefix_stack(model)
    if stack is None:
        return None
    owner = stack_module(model, stack)
    distinct = dict.fromkeys(stack.order)
    attentions = [getattr(owner.layers[index], "attention", None) for index in distinct]
    if not attentions or [a for a in attentions if type(a) is not SelfAttention]:
        return None
    return (stack, attentions) if _reads_no_positions(model, owner) else None


def _prefix_stack(model: nn.Module) -> Stack | None:
    found = {stack.owner: stack for stack in stacks(model)}
    return found.get("decoder.", found.get(""))


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
    kind: Any = type(model)
    if owner is not model:
        same = kind.decoder_attention_inputs is EncoderDecoder.decoder_attention_inputs
        return same and owner.embeddings is not None
    return bool(kind.attention_inputs is Encoder.attention_inputs)


def has_prefix(model: nn.Module) -> bool:
    """Return whether a model has a prefix."""
    return any(isinstance(module, PrefixedSelfAttention) for module in model.modules())


def attach_prefix(model: nn.Module, prefix: PrefixEncoder, *, shift_positions: bool = True) -> None:
    """Give a model a prefix, in place; the positions of tokens follow it, or begin at 0."""
    found = prefix_layers(model)
    assert found is not None, "the method checks it"
    stack, attentions = found
    owner = stack_module(model, stack)
    owner.adapter = prefix
    for number, attention in enumerate(attentions):
        attention.__class__ = PrefixedSelfAttention
        attention.prefix = (prefix, number)  # in a tuple, which registers no module
    if hasattr(owner, "prefix_length"):
        owner.prefix_length = prefix.embedding.shape[0]
    elif shift_positions:
        owner.embeddings.position_offset += prefix.embedding.shape[0]
