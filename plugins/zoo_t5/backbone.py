"""The parts of T5: norms, feed-forward networks, attention, blocks, encoder and decoder."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.decoder import causal_mask
from zoo.nn.encoder import packed_mask, padding_mask
from zoo.nn.encoder_decoder import CrossAttention, shift_right
from zoo.nn.encoder_factory import make_embeddings
from zoo.nn.generation import KeysAndValues
from zoo.nn.kv_cache import KeyValueCache, LayerCache
from zoo.nn.layers import norms
from zoo.nn.layers.dropout import Dropout
from zoo.nn.layers.relative import RelativePositions
from zoo.nn.layers.scalar_mix import ScalarMix
from zoo.nn.transformer import FeedForward, GatedFeedForward, SelfAttention
from zoo.overrides import override
from zoo_t5.config import T5Config


class T5RMSNorm(norms.RMSNorm):
    """The norm with a mean square in float32 for every dtype, as in the released code."""

    @override
    def widened(self, x: Tensor) -> Tensor:
        return x.to(torch.float32)


class TiedNorm(T5RMSNorm):
    """The final norm of a decoder with the weights of an encoder's."""

    # It is a module of its own, since programs record hidden states by the encoder's.

    def __init__(self, owner: T5RMSNorm) -> None:
        nn.Module.__init__(self)
        for name in ("normalized_shape", "eps", "elementwise_affine", "epsilon", "offset"):
            setattr(self, name, getattr(owner, name))
        self._owner = (owner,)  # A tuple, so that its weights have one name.

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The owner's weights, (hidden,)."""
        return self._owner[0].weight


def attention_args(config: T5Config) -> dict[str, Any]:
    """Return the arguments of self-attention and cross-attention."""
    return {
        "hidden_size": config.hidden_size,
        "num_heads": config.num_heads,
        "head_size": config.head_size,
        "dropout": config.dropout,
        "scale": 1.0,  # The initialization of the weights makes up for it.
        "bias": False,
    }


class TiedPositions(RelativePositions):
    """Relative positions of a decoder with the weights of an encoder's."""

    def __init__(self, owner: RelativePositions) -> None:
        nn.Module.__init__(self)
        self.num_buckets = owner.num_buckets
        self.max_distance = owner.max_distance
        self.bidirectional = False
        self._owner = (owner,)  # A tuple, so that its weights have one name.

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The owner's weights, (buckets, heads)."""
        return self._owner[0].weight


def make_positions(
    config: T5Config, *, decoder: bool, tied_to: RelativePositions | None = None
) -> RelativePositions:
    """Return the relative positions of a stack or of one of its blocks."""
    if tied_to is not None:
        return TiedPositions(tied_to)
    return RelativePositions(
        config.num_buckets, config.max_distance, config.num_heads, bidirectional=not decoder
    )


class T5Block(nn.Module):
    """Self-attention, in a decoder after an encoder cross-attention, and a feed-forward network.

    Args:
        config: configuration of the model.
        decoder: whether it is a block of a decoder.
        tied_to: the encoder's block, whose weights a decoder's block has except for
            cross-attention; ``None`` for weights of its own.
        cross: whether it has cross-attention.
    """

    def __init__(
        self, config: T5Config, decoder: bool, tied_to: "T5Block | None" = None, *, cross: bool
    ) -> None:
        super().__init__()
        self._tied_to = (tied_to,)  # A tuple, so that its weights have one name.
        self.positions: RelativePositions | None = None
        if not config.shares_positions:
            owner = None if tied_to is None else tied_to.positions
            self.positions = make_positions(config, decoder=decoder, tied_to=owner)
        width = config.hidden_size
        eps = config.layer_norm_eps
        if tied_to is None:
            self.attention_norm = T5RMSNorm(width, eps)
            self.attention = SelfAttention(**attention_args(config))
        if cross:
            self.cross_norm = T5RMSNorm(width, eps)
            self.cross = CrossAttention(**attention_args(config))
        if tied_to is None:
            self.ffn_norm = T5RMSNorm(width, eps)
            ffn_type = GatedFeedForward if config.gated else FeedForward
            self.ffn = ffn_type(
                hidden_size=width,
                intermediate_size=config.intermediate_size,
                act=config.activation,
                bias=False,
                dropout=config.dropout,
            )
        self.dropout = Dropout(config.dropout)

    def forward(
        self,
        x: Tensor,
        bias: Tensor,
        cache: LayerCache | None = None,
        keys_and_values: KeysAndValues | Tensor | None = None,
        cross_mask: Tensor | None = None,
    ) -> Tensor:
        """Transform (batch, tokens, hidden) to the same shape.

        Args:
            x: (batch, tokens, hidden).
        """
        block = self._tied_to[0] or self
        x = self._add(x, block.attention(block.attention_norm(x), bias, cache))
        if keys_and_values is not None:
            x = self._add(x, self.cross(self.cross_norm(x), keys_and_values, cross_mask))
        return self._add(x, block.ffn(block.ffn_norm(x)))

    def _add(self, x: Tensor, part: Tensor) -> Tensor:
        x = x + self.dropout(part)
        # The residual sums of published models exceed the range of float16.
        return x.clamp(*_FLOAT16_RANGE) if x.dtype is torch.float16 else x


_FLOAT16_RANGE = (torch.finfo(torch.float16).min, torch.finfo(torch.float16).max)


class T5Stack(nn.Module):
    """Blocks with relative positions, of which they may share one table, and a final norm.

    Args:
        config: configuration of the model.
        layers: number of blocks.
        decoder: whether it is a decoder.
        mix: whether it returns a learned mix of all layers.
        tied_to: the encoder whose weights a decoder has; see ``T5Block``.
        cross: whether the blocks have cross-attention; by default, those of a decoder have it.
    """

    layer_inputs: tuple[str, ...] = ("positions",)
    prefix_length: int = 0  # number of keys before those of the tokens; see ``zoo.nn.adapters``

    def __init__(
        self,
        config: T5Config,
        layers: int,
        decoder: bool,
        *,
        mix: bool = False,
        tied_to: "T5Stack | None" = None,
        cross: bool | None = None,
    ) -> None:
        super().__init__()
        self.positions: RelativePositions | None = None
        if config.shares_positions:
            owner = None if tied_to is None else tied_to.positions
            self.positions = make_positions(config, decoder=decoder, tied_to=owner)
        else:
            self.layer_inputs = ()
        blocks: Any = [None] * layers if tied_to is None else tied_to.layers
        self.layers: nn.ModuleList = nn.ModuleList(
            T5Block(config, decoder, block, cross=decoder if cross is None else cross)
            for block in blocks
        )
        if tied_to is None:
            self.final_norm = T5RMSNorm(config.hidden_size, config.layer_norm_eps)
        else:
            self.final_norm = TiedNorm(tied_to.final_norm)
        self.dropout = Dropout(config.dropout)
        self.mix = ScalarMix(layers + 1) if mix else None

    def biases(self, x: Tensor, mask: Tensor | None, past: int = 0) -> list[Tensor]:
        """Return the bias of the self-attention scores of each block.

        It has relative positions and a mask.

        Args:
            x: (batch, tokens, hidden).

        Returns:
            (batch or 1, heads, tokens, prefix_length + past + tokens) for each block.
        """
        queries = x.shape[1]
        biases = self.position_biases(queries, self.prefix_length + past + queries)
        if mask is not None:
            padded_mask = F.pad(mask, (self.prefix_length, 0))
            biases = [bias + padded_mask for bias in biases]
        return biases if self.positions is None else biases * len(self.layers)

    def position_biases(self, queries: int, keys: int) -> list[Tensor]:
        """Return the biases of relative positions of each block, or only one that all share.

        Returns:
            (1, heads, queries, keys) each.
        """
        tables: list[Any] = [self.positions]
        if self.positions is None:
            tables = [layer.positions for layer in self.layers]
        return [table(queries, keys) for table in tables]

    def run(
        self,
        x: Tensor,
        biases: Sequence[Tensor],
        keys_and_values: list[KeysAndValues] | Tensor | None = None,
        cross_mask: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Run the blocks and the final norm.

        Args:
            x: (batch, tokens, hidden): embeddings of the tokens that are not in the cache.
            biases: the bias of the scores of each block; see ``biases``.

        Returns:
            (batch, tokens, hidden).
        """
        block_inputs: list[Tensor] = []
        for index, layer in enumerate(self.layers):
            if self.mix is not None:
                block_inputs.append(x)
            layer_cache = cache.layers[index] if cache else None
            source: Any = keys_and_values
            if isinstance(keys_and_values, list):
                source = keys_and_values[index]
            x = layer(x, biases[index], layer_cache, source, cross_mask)
        x = self.final_norm(x)
        if self.mix is not None:
            x = self.mix([*block_inputs, x])
        return self.dropout(x)  # type: ignore[no-any-return]


def causal_bias_mask(like: Tensor, queries: int, past: int = 0) -> Tensor | None:
    """Return the mask of the decoder's self-attention, which is added to the position biases."""
    # Unlike ``causal_mask`` without padding, it is a tensor even without a past, since a bias keeps
    # the attention kernel from being causal by itself.
    attention_mask = like.new_ones(1, past + queries)
    return causal_mask(attention_mask, queries=queries, past=past, like=like)


class T5Backbone(T5Stack):
    """The first stack with its embeddings, common to all heads: an encoder, or the only stack.

    Args:
        config: configuration of the model.
        mix: see ``T5Stack``.
        decoder: whether it is a decoder, which has no cross-attention.
    """

    def __init__(self, config: T5Config, *, mix: bool = False, decoder: bool = False) -> None:
        super().__init__(config, config.num_layers, decoder=decoder, mix=mix, cross=False)
        self.config = config
        self.embeddings = make_embeddings(config, positions=False, norm=False)

    def encode(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the encoder's output, (batch, tokens, hidden); see ``Encoder.forward``."""
        x = self.embeddings(input_ids)
        return self.run(x, self.biases(x, padding_mask(attention_mask, x.dtype)))


class T5Encoder(T5Backbone):
    """The encoder without a decoder."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Run encoder and head; both inputs are int64, (batch, tokens)."""
        return self.outputs(self.encode(input_ids, attention_mask))

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Return the named outputs for the encoder's output, (batch, tokens, hidden)."""
        return {"last_hidden_state": hidden}


class T5EncoderDecoder(T5Backbone):
    """T5Encoder and decoder."""

    def __init__(self, config: T5Config, *, mix: bool = False) -> None:
        super().__init__(config)
        tied_to = self if config.tie_encoder_decoder else None
        self.decoder = T5Stack(
            config, config.decoder_layers, decoder=True, mix=mix, tied_to=tied_to
        )

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
            decoder_input_ids: (batch, decoder_tokens), int64: the target, shifted right; each
                document's begins with ``decoder_start_token_id``.
            document_ids: (batch, tokens), int64: the document of each token of a packed row,
                counted from 1; 0 for padding. It takes the place of ``attention_mask``.
            decoder_document_ids: (batch, decoder_tokens), int64: the same for the target.

        Returns:
            The last hidden states of encoder and decoder, (batch, tokens, hidden) and (batch,
            decoder_tokens, hidden).
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
        source = self.run(x, self.biases(x, encoder_mask))
        # The module is not called: forward hooks on it should only see the source.
        y = self.embeddings.dropout(self.embeddings.tokens(decoder_input_ids))
        biases = self.decoder.biases(y, decoder_mask)
        return source, self.decoder.run(y, biases, source, cross_mask)

    def decode_source(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the decoder's output with the source as its target, (batch, tokens, hidden)."""
        shifted = shift_right(input_ids, self.config.decoder_start_token_id)
        return self.hidden(input_ids, attention_mask, shifted)[1]
