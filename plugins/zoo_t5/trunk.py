"""What T5 is made of: blocks, stacks of them, and both halves of a model."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.decoder import causal_mask
from zoo.nn.encoder import make_embeddings
from zoo.nn.generation import KeysAndValues
from zoo.nn.kv_cache import KeyValueCache, LayerCache
from zoo.nn.transformer import SelfAttention, packed_mask, padding_mask
from zoo_t5.attention import CrossAttention, FeedForward, RelativePositions, RMSNorm
from zoo_t5.config import T5Config


class Block(nn.Module):
    """Attention within a text, in a decoder attention to the source, and a feed-forward network."""

    def __init__(self, config: T5Config, decoder: bool) -> None:
        super().__init__()
        width, eps = config.hidden_size, config.layer_norm_eps
        self.attention_norm = RMSNorm(width, eps)
        self.attention = SelfAttention(
            hidden_size=width,
            num_heads=config.num_heads,
            head_size=config.head_size,
            dropout=config.dropout,
            scale=1.0,
            bias=False,
        )
        if decoder:
            self.cross_norm = RMSNorm(width, eps)
            self.cross = CrossAttention(config)
        self.ffn_norm = RMSNorm(width, eps)
        self.ffn = FeedForward(config)
        self.dropout = nn.Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        bias: Tensor,
        cache: LayerCache | None = None,
        keys_and_values: KeysAndValues | Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Transform each token.

        Args:
            x: (batch, tokens, hidden).
            bias: added to the scores, (batch or 1, heads, tokens, keys).
            cache: keys and values of earlier tokens.
            keys_and_values: keys and values of the source, or the source itself, in a decoder.
            memory_mask: added to the scores of those, or ``None``.

        Returns:
            (batch, tokens, hidden).
        """
        x = self._add(x, self.attention(self.attention_norm(x), bias, cache))
        if keys_and_values is not None:
            x = self._add(x, self.cross(self.cross_norm(x), keys_and_values, memory_mask))
        return self._add(x, self.ffn(self.ffn_norm(x)))

    def _add(self, x: Tensor, part: Tensor) -> Tensor:
        x = x + self.dropout(part)
        # the sums of published models leave the range of float16
        return x.clamp(*_HALF) if x.dtype is torch.float16 else x


_HALF = (torch.finfo(torch.float16).min, torch.finfo(torch.float16).max)


class Stack(nn.Module):
    """Blocks that share one table of relative positions, and a norm after the last."""

    def __init__(self, config: T5Config, layers: int, decoder: bool) -> None:
        super().__init__()
        self.positions = RelativePositions(config, bidirectional=not decoder)
        self.layers = nn.ModuleList(Block(config, decoder) for _ in range(layers))
        self.final_norm = RMSNorm(config.hidden_size, config.layer_norm_eps)
        self.dropout = nn.Dropout(config.dropout)

    def bias(self, x: Tensor, mask: Tensor | None, past: int = 0) -> Tensor:
        """Return what is added to the scores of (batch, tokens, hidden): positions, and a mask.

        Of the keys, ``past`` stand before these tokens.
        """
        positions: Tensor = self.positions(x.shape[1], past + x.shape[1])
        return positions if mask is None else positions + mask  # once, for all blocks

    def run(
        self,
        x: Tensor,
        bias: Tensor,
        keys_and_values: list[KeysAndValues] | Tensor | None = None,
        memory_mask: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Run a text, or the tokens of it that a cache does not hold.

        Args:
            x: their embeddings, (batch, tokens, hidden).
            bias: added to the scores, (batch or 1, heads, tokens, those in the cache and these).
            keys_and_values: of each block, see ``Block``; or the source itself, where it is read
                once.
            memory_mask: as ``padding_mask`` or ``packed_mask`` makes it for the source.
            cache: these tokens are added to it.

        Returns:
            (batch, tokens, hidden).
        """
        for number, layer in enumerate(self.layers):
            own = cache.layers[number] if cache else None
            source = (
                keys_and_values[number] if isinstance(keys_and_values, list) else keys_and_values
            )
            x = layer(x, bias, own, source, memory_mask)
        return self.dropout(self.final_norm(x))  # type: ignore[no-any-return]


def causal_bias_mask(like: Tensor, queries: int, past: int = 0) -> Tensor | None:
    """Keep the tokens of a target from looking ahead; see ``causal_mask``."""
    real = like.new_ones(1, past + queries)
    return causal_mask(real, queries=queries, past=past, like=like)


class T5Backbone(Stack):
    """The encoder and its embeddings, which all heads share.

    Args:
        config: the shape.
    """

    def __init__(self, config: T5Config) -> None:
        super().__init__(config, config.num_layers, decoder=False)
        self.config = config
        self.embeddings = make_embeddings(config, positions=False, norm=False)

    def encode(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return (batch, tokens, hidden) for a source and its mask, (batch, tokens) each."""
        x = self.embeddings(input_ids)
        return self.run(x, self.bias(x, padding_mask(mask, x.dtype)))


class Encoder(T5Backbone):
    """The encoder by itself: a vector for each token of a text."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Encode, then run the head."""
        return self.outputs(self.encode(input_ids, attention_mask))

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Read the head's outputs off the encoder's, (batch, tokens, hidden)."""
        return {"last_hidden_state": hidden}


class EncoderDecoder(T5Backbone):
    """Both halves."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.decoder = Stack(config, config.decoder_layers, decoder=True)

    def hidden(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None,
        decoder_input_ids: Tensor,
        *,
        document_ids: Tensor | None = None,
        decoder_document_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Run encoder and decoder.

        Relative positions are differences, so documents of a packed row need no positions of
        their own.

        Args:
            input_ids: (batch, tokens), int64: the source.
            attention_mask: (batch, tokens), int64: 1 for tokens, 0 for padding; ``None`` for all 1.
            decoder_input_ids: (batch, decoder_tokens), int64: the target, shifted right; that of
                each document begins with ``decoder_start_token_id``.
            document_ids: (batch, tokens), int64: the document of each token of a packed row,
                counted from 1; 0 for padding. It takes the place of ``attention_mask``.
            decoder_document_ids: (batch, decoder_tokens), int64: the same for the target.

        Returns:
            the last hidden states of encoder and decoder, (batch, tokens, hidden) and
            (batch, decoder_tokens, hidden).
        """
        x = self.embeddings(input_ids)
        if document_ids is not None and decoder_document_ids is not None:
            encoder_mask: Tensor | None = packed_mask(document_ids, document_ids, x.dtype)
            cross_mask: Tensor | None = packed_mask(decoder_document_ids, document_ids, x.dtype)
            decoder_mask: Tensor | None = packed_mask(
                decoder_document_ids, decoder_document_ids, x.dtype, causal=True
            )
        else:
            encoder_mask = cross_mask = padding_mask(attention_mask, x.dtype)
            decoder_mask = causal_bias_mask(x, decoder_input_ids.shape[1])
        source = self.run(x, self.bias(x, encoder_mask))
        # not by calling self.embeddings: forward hooks on it are to see the source alone
        y = self.embeddings.dropout(F.embedding(decoder_input_ids, self.embeddings.tokens.weight))
        return source, self.decoder.run(y, self.decoder.bias(y, decoder_mask), source, cross_mask)

    def reread(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return (batch, tokens, hidden), where the decoder is given the source as its target."""
        start = torch.full_like(input_ids[:, :1], self.config.decoder_start_token_id)
        return self.hidden(input_ids, mask, torch.cat([start, input_ids[:, :-1]], dim=1))[1]
