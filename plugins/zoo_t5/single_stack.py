"""One stack that reads source and target as one text: a prefix or a plain language model.

Raffel et al. 2020, arXiv:1910.10683, section 3.2.1. Every token of a prefix language model sees
the whole source, and the tokens of the target before it; in a plain language model, a token of the
source only sees what is before it, too. As in the released code (``lm_v1.gin``, ``lm_v1_ifa.gin``),
the relative positions of a prefix language model tell earlier from later tokens, and those of a
plain one only count earlier tokens. There, the first token of the target is predicted from the end
of the source; here, from ``decoder_start_token_id`` after it, as in an encoder-decoder.
"""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.attention.masks import mask_value
from zoo.nn.decoder import causal_mask
from zoo.nn.encoder import padding_mask
from zoo.nn.generation import DecodeState, KeysAndValues
from zoo.nn.kv_cache import KeyValueCache, LayerCache
from zoo.overrides import override
from zoo_t5.backbone import T5Backbone
from zoo_t5.config import T5Config


class SourceAndTargetCache(LayerCache):
    """Keys and values of a layer's cached target, which follow those of the source."""

    def __init__(self, target: LayerCache, source: KeysAndValues) -> None:
        super().__init__()
        self.target = target
        self.source = source

    @override
    def extend(self, keys: Tensor, values: Tensor) -> KeysAndValues:
        keys, values = self.target.extend(keys, values)
        source_keys, source_values = self.source
        return torch.cat([source_keys, keys], dim=2), torch.cat([source_values, values], dim=2)


class T5SingleStack(T5Backbone):
    """Blocks without cross-attention, which read ``[source; target]``.

    Args:
        config: configuration of the model, with ``single_stack``.
    """

    def __init__(self, config: T5Config) -> None:
        super().__init__(config, decoder=config.single_stack == "causal")
        self.sees_source = config.single_stack == "prefix"

    def hidden(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        decoder_input_ids: Tensor,
        *,
        document_ids: Tensor | None = None,
        decoder_document_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run the blocks on sources and targets.

        For the arguments, see ``T5EncoderDecoder.hidden``.

        Returns:
            The last hidden states of source and target, (batch, tokens, hidden) and (batch,
            decoder_tokens, hidden).
        """
        if document_ids is None or decoder_document_ids is None:
            document_ids = source_mask(input_ids, attention_mask)
            decoder_document_ids = torch.ones_like(decoder_input_ids)
        documents = torch.cat([document_ids, decoder_document_ids], dim=1)
        # Each target follows its source without a gap, so that indices count relative positions.
        order = document_order(documents)
        tokens = torch.cat([input_ids, decoder_input_ids], dim=1).gather(1, order)
        documents = documents.gather(1, order)
        source_size = input_ids.shape[1]
        x = self.embeddings(tokens)
        mask = self.joint_mask(documents, order < source_size, x.dtype)
        x = self.run(x, self.biases(x, mask))
        places = order.argsort(dim=1)[..., None].expand_as(x)
        x = x.gather(1, places)
        return x[:, :source_size], x[:, source_size:]

    def joint_mask(self, documents: Tensor, is_source: Tensor, dtype: torch.dtype) -> Tensor:
        """Return the mask of the self-attention of rows of sources and targets.

        Args:
            documents: (batch, tokens), int64: the document of each token; 0 for padding.
            is_source: (batch, tokens), bool: whether a token is of a source.
            dtype: dtype of the attention scores.

        Returns:
            (batch, 1, tokens, tokens), added to the attention scores.
        """
        is_later = torch.ones_like(documents[:, :, None] == documents[:, None]).triu(1)
        if self.sees_source:
            is_later = is_later & ~is_source[:, None]
        masked = is_later | (documents[:, :, None] != documents[:, None])
        return masked[:, None].to(dtype) * mask_value(dtype)

    @override
    def encode(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.run_source(input_ids, attention_mask)[-1]

    def run_source(self, input_ids: Tensor, attention_mask: Tensor | None) -> list[Tensor]:
        """Return what each block reads of a source, and what follows the last one.

        The hidden states of a source do not depend on a target. For the arguments, see ``encode``.

        Returns:
            (batch, tokens, hidden) each.
        """
        x = self.embeddings(input_ids)
        mask = padding_mask(attention_mask, x.dtype)
        if not self.sees_source:
            tokens = input_ids.shape[1]
            mask = causal_mask(attention_mask, queries=tokens, past=0, like=x, explicit=True)
        hidden_states = [x]
        for layer, bias in zip(self.layers, self.biases(x, mask), strict=True):
            hidden_states.append(layer(hidden_states[-1], bias))
        last = hidden_states.pop()
        return [*hidden_states, self.dropout(self.final_norm(last))]

    def keys_and_values(self, hidden_states: list[Tensor]) -> list[KeysAndValues]:
        """Return the keys and values of a source for each block from what it reads."""
        layers: Any = self.layers
        pairs = []
        for layer, hidden in zip(layers, hidden_states, strict=True):
            attention = layer.attention
            _, keys, values = attention.split(attention.qkv(layer.attention_norm(hidden)), 3)
            pairs.append((keys, values))
        return pairs

    def decode(self, tokens: Tensor, state: DecodeState) -> Tensor:
        """Run the blocks on new tokens of targets, whose sources are in the state.

        Args:
            tokens: (batch, decoder_tokens), int64.
            state: keys and values of the source, as those of cross-attention, and of earlier
                tokens of the target, which the new ones extend.

        Returns:
            (batch, decoder_tokens, hidden).
        """
        x = self.embeddings(tokens)
        source = state.cross_attention_cache
        is_source = source_mask(source[0][0][:, 0, :, 0], state.mask)
        past = state.cache.length
        biases = self.target_biases(x, is_source, past)
        layers = zip(state.cache.layers, source, strict=True)
        cache = KeyValueCache(0)
        cache.layers = [SourceAndTargetCache(layer, pair) for layer, pair in layers]
        return self.run(x, biases, cache=cache)

    def target_biases(self, x: Tensor, is_source: Tensor, past: int) -> list[Tensor]:
        """Return the bias of the self-attention scores of each block for new tokens of targets.

        Args:
            x: (batch, tokens, hidden): embeddings of the new tokens.
            is_source: (batch, source tokens), int64: 1 for tokens, 0 for padding.
            past: number of earlier tokens of the target.

        Returns:
            (batch, heads, tokens, prefix_length + source tokens + past + tokens) for each block.
        """
        batch, queries = x.shape[:2]
        target = torch.arange(past + queries, device=x.device)
        # A target follows the last token of its source, after which there may be padding.
        target_positions = is_source.sum(1, keepdim=True) + target
        prefix = torch.arange(-self.prefix_length, 0, device=x.device).expand(batch, -1)
        positions = torch.cat([prefix, is_source.cumsum(1) - 1, target_positions], dim=1)
        distance = positions[:, None] - target_positions[:, past:, None]
        is_key = torch.cat([is_source, torch.ones_like(target_positions)], dim=1)
        source_size = is_source.shape[1]
        mask = causal_mask(is_key, queries=queries, past=source_size + past, like=x)
        assert mask is not None, "there are keys to mask"
        mask = F.pad(mask, (self.prefix_length, 0))
        tables: list[Any] = [self.positions]
        if self.positions is None:
            tables = [layer.positions for layer in self.layers]
        biases = [table.by_distance(distance).transpose(0, 1) + mask for table in tables]
        return biases if self.positions is None else biases * len(self.layers)


def source_mask(tokens: Tensor, attention_mask: Tensor | None) -> Tensor:
    """Return 1 for tokens of a source and 0 for padding, int64, in the shape of ``tokens``."""
    if attention_mask is None:
        return torch.ones_like(tokens, dtype=torch.int64)
    return (attention_mask != 0).long()


def document_order(documents: Tensor) -> Tensor:
    """Return the indices of a row's tokens by document, with padding at the end.

    Args:
        documents: (batch, tokens), int64: the document of each token, from 1; 0 for padding.

    Returns:
        (batch, tokens), int64.
    """
    count = documents.shape[1]
    rank = torch.where(documents == 0, count + 1, documents)
    return (rank * count + torch.arange(count, device=documents.device)).argsort(dim=1)
