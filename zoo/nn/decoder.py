"""Models that read a text from left to right: a trunk, and what reads it.

A batch is as ``zoo.nn.encoder`` says, padded on the right or on the left: the first real token of
a row has position 0. A text is written one token at a time: keys and values of the tokens so far
are kept in a cache, so that each step computes one token.
"""

from collections.abc import Mapping

import torch
from torch import Tensor

from zoo.nn.attention import causal_mask, packed_mask
from zoo.nn.encoder import Classifier, Encoder
from zoo.nn.generation import DecodeState, GenerationMixin
from zoo.nn.heads import gather_rows
from zoo.nn.kv_cache import KeyValueCache


def position_ids_from_mask(input_ids: Tensor, mask: Tensor | None, past: int) -> Tensor:
    """Return where each token stands, (batch or 1, tokens): a row's first real one at 0.

    Args:
        input_ids: (batch, tokens).
        mask: (batch, past + tokens), zero for padding, or ``None``.
        past: how many tokens stand before them.
    """
    where = torch.arange(past, past + input_ids.shape[1], device=input_ids.device)[None]
    if mask is None:
        return where
    return (where - (mask.cumsum(1) == 0).sum(1, keepdim=True)).clamp(min=0)  # padding on the left


def last_token_index(input_ids: Tensor, mask: Tensor | None, pad_token_id: int | None) -> Tensor:
    """Return where the last token is that neither mask nor id call padding, (batch,)."""
    real = torch.ones_like(input_ids) if mask is None else mask
    if pad_token_id is not None:
        real = real * (input_ids != pad_token_id)
    return (torch.arange(input_ids.shape[1], device=input_ids.device) * real).argmax(1)


class CausalBackbone(Encoder):
    """A trunk in which a token sees those before it and itself, and none behind it.

    Its blocks take a mask and a ``LayerCache``, or ``None`` for either; attention is causal by
    itself where there is no mask.

    Attributes:
        pad_token_id: the token that no text is read off, whatever a mask says, or ``None``.
    """

    pad_token_id: int | None = None

    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Run embeddings and blocks; see ``Encoder``.

        With a cache, ``input_ids`` are the tokens that it does not hold yet, which it gains;
        ``attention_mask``, (batch, past + tokens), covers the cached tokens as well.
        """
        past, tokens = cache.length if cache else 0, input_ids.shape[1]
        if position_ids is None:
            position_ids = position_ids_from_mask(input_ids, attention_mask, past)
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        if document_ids is None:
            mask = causal_mask(attention_mask, queries=tokens, past=past, like=x)
        else:
            mask = packed_mask(document_ids, document_ids, x.dtype, causal=True)
        for number, layer in enumerate(self.layers):
            x = layer(x, mask, cache.layers[number] if cache else None)
        return self.apply_final_norm(x)


class CausalLM(GenerationMixin, CausalBackbone):
    """A causal language model, and a ``zoo.inference.generation.Decoder``.

    Prompts of different lengths are padded on the left.
    """

    def init_state(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> DecodeState:
        """See ``GenerationMixin``."""
        return DecodeState(
            KeyValueCache(len(self.layers), max_new_tokens), inputs.get("attention_mask")
        )

    def forward_with_cache(self, tokens: Tensor, state: DecodeState) -> Tensor:
        """See ``GenerationMixin``."""
        return self.encode(tokens, state.mask, cache=state.cache)


class CausalSequenceClassifier(Classifier, CausalBackbone):
    """What is said of the text as a whole, read off its last token, which alone has seen all."""

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Score each text: (batch, labels)."""
        last = last_token_index(input_ids, attention_mask, self.pad_token_id)
        hidden = self.encode(input_ids, attention_mask, token_type_ids)
        return self.outputs(gather_rows(hidden, last))
