"""Encoder-decoders: an encoder of the source, a decoder of the target, and their heads.

All models take ``input_ids`` and ``attention_mask`` of the source, int64 and (batch, tokens) each,
and ``decoder_input_ids``, int64 and (batch, decoder_tokens), padded on the right. The token
embeddings are shared. In generation, a cache holds the keys and values of the source and of earlier
target tokens.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from zoo.nn.decoder import causal_mask
from zoo.nn.encoder import Encoder, packed_mask, padding_mask
from zoo.nn.generation import DecodeState, KeysAndValues, Seq2SeqGenerationMixin
from zoo.nn.kv_cache import KeyValueCache
from zoo.nn.positions import AttentionInputs, Positions, position_in_document
from zoo.nn.transformer import Attention, PreNormBlock
from zoo.overrides import override


class CrossAttention(Attention):
    """Multi-head attention of a decoder to the output of an encoder.

    Args:
        hidden_size: width of input and output.
        num_heads: number of heads.
        dropout: dropout probability of the attention weights.
        scale: factor of the attention scores; ``None`` for ``head_size ** -0.5``.
        head_size: width of a head; ``None`` for ``hidden_size // num_heads``.
        bias: whether the linear maps have a bias.
    """

    def __init__(
        self,
        *,
        hidden_size: int,
        num_heads: int,
        dropout: float,
        scale: float | None = None,
        head_size: int | None = None,
        bias: bool = True,
    ) -> None:
        size = head_size or hidden_size // num_heads
        super().__init__(num_heads, size, dropout, scale)
        self.q = nn.Linear(hidden_size, num_heads * size, bias=bias)
        self.kv = nn.Linear(hidden_size, 2 * num_heads * size, bias=bias)
        self.out = nn.Linear(num_heads * size, hidden_size, bias=bias)

    def keys_and_values(self, source: Tensor) -> KeysAndValues:
        """Return keys and values of the encoder's output, (batch, tokens, hidden)."""
        keys, values = self.split(self.kv(source), 2)
        return keys, values

    def forward(
        self, x: Tensor, keys_and_values: KeysAndValues | Tensor, mask: Tensor | None
    ) -> Tensor:
        """Attend to the source.

        Args:
            x: (batch, decoder_tokens, hidden).
            keys_and_values: see ``keys_and_values``, or the encoder's output, (batch, tokens,
                hidden), from which they are computed.
            mask: added to the scores, broadcast to (batch, heads, decoder_tokens, tokens), or
                ``None``.

        Returns:
            (batch, decoder_tokens, hidden).
        """
        keys, values = (
            self.keys_and_values(keys_and_values)
            if isinstance(keys_and_values, Tensor)
            else keys_and_values
        )
        (queries,) = self.split(self.q(x), 1)
        return self.attend(queries, keys, values, mask)


def make_cross_attention(config: Any) -> CrossAttention:
    """Return the attention to the source of a configuration."""
    return CrossAttention(
        hidden_size=config.hidden_size,
        num_heads=config.num_heads,
        dropout=config.attention_dropout,
    )


class PreNormDecoderBlock(PreNormBlock):
    """A ``PreNormBlock`` with attention to the source after the self-attention."""

    def __init__(self, attention: nn.Module, cross: nn.Module, **block_args: Any) -> None:
        super().__init__(attention, **block_args)
        self.cross = cross
        norm_type = block_args.get("norm_type", nn.LayerNorm)
        self.cross_norm = norm_type(
            block_args["hidden_size"],
            eps=block_args["layer_norm_eps"],
            bias=block_args.get("bias", True),
        )

    @override
    def forward(  # type: ignore[override]  # all tokens are read
        self,
        x: Tensor,
        attention_args: Sequence[Any],
        keys_and_values: KeysAndValues | Tensor,
        cross_mask: Tensor | None,
    ) -> Tensor:
        """Transform (batch, decoder_tokens, hidden) to the same shape."""
        x = x + self.dropout(self.attention(self.attention_norm(x), *attention_args))
        x = x + self.dropout(self.cross(self.cross_norm(x), keys_and_values, cross_mask))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """The blocks of a decoder and the norm after them."""

    def __init__(self, layers: Iterable[nn.Module], final_norm: nn.Module) -> None:
        super().__init__()
        self.layers, self.final_norm = nn.ModuleList(layers), final_norm

    def forward(
        self,
        x: Tensor,
        inputs: Sequence[AttentionInputs],
        source: Sequence[KeysAndValues] | Tensor,
        cross_mask: Tensor | None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Run the blocks and the final norm.

        Args:
            x: embeddings of the tokens that are not in the cache, (batch, decoder_tokens, hidden).

        Returns:
            (batch, decoder_tokens, hidden).
        """
        for index, (layer, (mask, rotation)) in enumerate(zip(self.layers, inputs, strict=True)):
            layer_cache = cache.layers[index] if cache else None
            arguments = (mask, layer_cache, *(() if rotation is None else (rotation,)))
            keys_and_values = source if isinstance(source, Tensor) else source[index]
            x = layer(x, arguments, keys_and_values, cross_mask)
        return self.final_norm(x)  # type: ignore[no-any-return]


class EncoderDecoder(Encoder):
    """Encoder and decoder without a head: the hidden states of target and source."""

    def __init__(
        self,
        embeddings: nn.Module,
        layers: Iterable[nn.Module],
        *,
        decoder: Decoder,
        decoder_start_token_id: int,
        **encoder_args: Any,
    ) -> None:
        super().__init__(embeddings, layers, **encoder_args)
        self.decoder, self.decoder_start_token_id = decoder, decoder_start_token_id

    @override
    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, decoder_input_ids: Tensor
    ) -> dict[str, Tensor]:
        """Run encoder and decoder; see the module for the inputs."""
        source, target = self.hidden(input_ids, attention_mask, decoder_input_ids)
        return {"last_hidden_state": target, "encoder_last_hidden_state": source}

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

        Args:
            input_ids: (batch, tokens), int64: the source.
            attention_mask: (batch, tokens), int64: 1 for tokens, 0 for padding; ``None`` for all 1.
            decoder_input_ids: (batch, decoder_tokens), int64: the target, shifted right.
            document_ids: (batch, tokens), int64: the document of each token of a packed row,
                counted from 1; 0 for padding. It takes the place of ``attention_mask``.
            decoder_document_ids: (batch, decoder_tokens), int64: the same for the target.

        Returns:
            the last hidden states of encoder and decoder, (batch, tokens, hidden) and (batch,
            decoder_tokens, hidden).
        """
        if document_ids is None or decoder_document_ids is None:
            source = self.encode(input_ids, attention_mask)
            cross_mask = padding_mask(attention_mask, source.dtype)
            return source, self.decode(decoder_input_ids, source, cross_mask)
        source = self.encode(
            input_ids, position_ids=position_in_document(document_ids), document_ids=document_ids
        )
        documents = decoder_document_ids
        mask = packed_mask(documents, documents, source.dtype, causal=True)
        cross_mask = packed_mask(documents, document_ids, source.dtype)
        positions = position_in_document(documents)
        target = self.decode(decoder_input_ids, source, cross_mask, mask, position_ids=positions)
        return source, target

    def decode(
        self,
        tokens: Tensor,
        source: Sequence[KeysAndValues] | Tensor,
        cross_mask: Tensor | None,
        mask: Tensor | None = None,
        cache: KeyValueCache | None = None,
        position_ids: Tensor | None = None,
    ) -> Tensor:
        """Run the decoder.

        Args:
            tokens: (batch, decoder_tokens), int64: those that are not in the cache.
            position_ids: (batch, decoder_tokens), int64, from 0 in each document of a packed row;
                ``None`` where each row is one document.

        Returns:
            (batch, decoder_tokens, hidden).
        """
        past, keys = cache.length if cache else 0, position_ids
        if keys is None:
            keys = torch.arange(past + tokens.shape[1], device=tokens.device)[None]
        positions = Positions(keys[:, past:], keys)
        # not by calling the module: forward hooks on it should only see the source
        x: Tensor = self.embeddings.forward(tokens, None, positions.queries)
        if mask is None:
            explicit = self.adds_bias
            mask = causal_mask(None, queries=tokens.shape[1], past=past, like=x, explicit=explicit)
        inputs = self.decoder_attention_inputs(x, mask, positions)
        return self.decoder(x, inputs, source, cross_mask, cache)  # type: ignore[no-any-return]

    def decoder_attention_inputs(
        self, x: Tensor, mask: Tensor | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        """Return mask and positions for the self-attention of each block of the decoder.

        For the arguments, see ``attention_inputs``, which does this for the encoder.
        """
        return [AttentionInputs(mask)] * len(self.decoder.layers)


class Seq2SeqLM(Seq2SeqGenerationMixin, EncoderDecoder):
    """A sequence-to-sequence language model, and a ``zoo.inference.generation.decoder.Decoder``."""

    @override
    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, decoder_input_ids: Tensor
    ) -> dict[str, Tensor]:
        """Return the logits after each token of the target, (batch, decoder_tokens, vocabulary)."""
        return self.outputs(self.hidden(input_ids, attention_mask, decoder_input_ids)[1])

    @override
    def encode_source(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.encode(input_ids, attention_mask)

    @override
    def cross_attention_cache(self, source: Tensor) -> list[KeysAndValues]:
        layers: Any = self.decoder.layers
        return [layer.cross.keys_and_values(source) for layer in layers]

    @override
    def decoder_input_ids(self, input_ids: Tensor) -> Tensor:
        """Return ``decoder_start_token_id`` for each row, (batch, 1)."""
        return torch.full_like(input_ids[:, :1], self.decoder_start_token_id)

    @override
    def forward_with_cache(self, tokens: Tensor, state: DecodeState) -> Tensor:
        cross_mask = padding_mask(state.mask, self.embeddings.tokens.weight.dtype)
        return self.decode(tokens, state.cross_attention_cache, cross_mask, cache=state.cache)
