"""Encoder-decoders: an encoder of the source, a decoder of the target, and their heads.

All models take ``input_ids`` and ``attention_mask`` of the source, int64 and (batch, tokens) each.
Those with a target also take ``decoder_input_ids``, int64 and (batch, decoder_tokens), padded on
the right; the others read the source as their target. The decoder has embeddings of its own, or
those of the encoder. In generation, a cache holds the keys and values of the source and of earlier
target tokens.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.attention.masks import causal_mask
from zoo.nn.decoder import CausalModelFactory
from zoo.nn.encoder import Encoder, packed_mask, padding_mask
from zoo.nn.encoder_factory import (
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_self_attention,
)
from zoo.nn.generation import DecodeState, KeysAndValues, Seq2SeqGenerationMixin
from zoo.nn.heads import (
    ClassifierMixin,
    DenseHead,
    SpanMixin,
    VocabularyProjection,
    gather_rows,
)
from zoo.nn.kv_cache import KeyValueCache
from zoo.nn.positions import AttentionInputs, Positions, position_in_document
from zoo.nn.transformer import Attention, Embeddings, PostNormBlock, PreNormBlock
from zoo.overrides import override

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


def shift_right(tokens: Tensor, start: int | Tensor) -> Tensor:
    """Return the decoder's input for a target: a first token before all but the last.

    Args:
        tokens: (batch, tokens), int64.
        start: the first token, of all rows or (batch, 1), int64.
    """
    first_tokens = start if isinstance(start, Tensor) else torch.full_like(tokens[:, :1], start)
    return torch.cat([first_tokens, tokens[:, :-1]], dim=1)


def text_ends(input_ids: Tensor, attention_mask: Tensor | None, eos_token_id: int) -> Tensor:
    """Return the index of each row's last end-of-text token, or else of its last token, (batch,).

    Args:
        input_ids: (batch, tokens), int64.
        attention_mask: (batch, tokens), int64: 1 for tokens, 0 for padding; ``None`` for all 1.
        eos_token_id: the token that ends a text.
    """
    positions = torch.arange(input_ids.shape[1], device=input_ids.device)
    real = positions if attention_mask is None else positions * attention_mask
    is_eos = input_ids == eos_token_id
    return torch.where(is_eos, positions + input_ids.shape[1], real).argmax(1)


class CrossAttention(Attention):
    """Multi-head attention of a decoder to the output of an encoder.

    Args:
        hidden_size: width of input and output.
        num_heads: number of heads.
        dropout: dropout probability of the attention weights.
        scale: factor of the attention scores; ``None`` for ``head_size ** -0.5``.
        head_size: width of a head; ``None`` for ``hidden_size // num_heads``.
        bias: whether the linear maps have a bias.
        num_kv_heads: number of heads of keys and values, which divides ``num_heads``; see
            ``SelfAttention``.
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
        num_kv_heads: int | None = None,
    ) -> None:
        size = head_size or hidden_size // num_heads
        kv_heads = num_kv_heads or num_heads
        super().__init__(num_heads, size, dropout, scale)
        if num_heads % kv_heads:
            raise ValueError(f"{kv_heads} heads of keys and values do not divide {num_heads} heads")
        self.shared = num_heads // kv_heads  # heads of queries for one of keys and values
        self.q = nn.Linear(hidden_size, num_heads * size, bias=bias)
        self.kv = nn.Linear(hidden_size, 2 * kv_heads * size, bias=bias)
        self.out = nn.Linear(num_heads * size, hidden_size, bias=bias)

    def keys_and_values(self, source: Tensor) -> KeysAndValues:
        """Return keys and values of the encoder's output, (batch, tokens, hidden)."""
        keys, values = (
            part.unflatten(-1, (-1, self.heads[1])).transpose(1, 2)
            for part in self.kv(source).chunk(2, dim=-1)
        )
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
        if self.shared > 1:
            keys, values = (
                part[:, :, None].expand(-1, -1, self.shared, -1, -1).flatten(1, 2)
                for part in (keys, values)
            )
        return self.attend(queries, keys, values, mask)


def make_cross_attention(config: Any, **changes: Any) -> CrossAttention:
    """Return the attention to the source of a configuration."""
    arguments = {
        "hidden_size": config.hidden_size,
        "num_heads": config.num_heads,
        "dropout": config.attention_dropout,
        "num_kv_heads": getattr(config, "num_kv_heads", None),
    }
    return CrossAttention(**{**arguments, **changes})


class PostNormDecoderBlock(PostNormBlock):
    """A ``PostNormBlock`` with attention to the source after the self-attention."""

    # ``cross`` maps (batch, decoder_tokens, hidden), keys and values of the source and a mask to
    # the first shape.

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
        x = self.attention_norm(x + self.dropout(self.attention(x, *attention_args)))
        x = self.cross_norm(x + self.dropout(self.cross(x, keys_and_values, cross_mask)))
        return self.ffn_norm(x + self.dropout(self.ffn(x)))  # type: ignore[no-any-return]


class PreNormDecoderBlock(PostNormDecoderBlock):
    """The same block with the norms before attention and feed-forward network."""

    @override
    def forward(  # type: ignore[override]
        self,
        x: Tensor,
        attention_args: Sequence[Any],
        keys_and_values: KeysAndValues | Tensor,
        cross_mask: Tensor | None,
    ) -> Tensor:
        x = x + self.dropout(self.attention(self.attention_norm(x), *attention_args))
        x = x + self.dropout(self.cross(self.cross_norm(x), keys_and_values, cross_mask))
        return x + self.dropout(self.ffn(self.ffn_norm(x)))  # type: ignore[no-any-return]


def make_decoder_blocks(
    config: Any,
    block_type: Callable[..., PostNormDecoderBlock] = PostNormDecoderBlock,
    *,
    attention: Callable[[int], nn.Module] | None = None,
    cross: Callable[[], nn.Module] | None = None,
    **changes: Any,
) -> list[PostNormBlock]:
    """Return the blocks of the decoder of a configuration.

    Args:
        config: configuration of the model.
        block_type: makes a block.
        attention: maps the index of a block to its self-attention; by default causal
            ``SelfAttention``.
        cross: returns the attention to the source; by default ``CrossAttention``.
        changes: arguments of ``make_blocks`` that differ from the configuration.
    """
    heads = config.decoder_attention_heads

    def causal_attention(index: int) -> nn.Module:
        return make_self_attention(config, causal=True, num_heads=heads)

    def make_block(self_attention: nn.Module, **args: Any) -> PostNormDecoderBlock:
        if cross is not None:
            return block_type(self_attention, cross(), **args)
        cross_attention = make_cross_attention(config, num_heads=heads)
        return block_type(self_attention, cross_attention, **args)

    return make_blocks(
        config,
        make_block,
        attention=attention or causal_attention,
        count=config.decoder_layers,
        **{"intermediate_size": config.decoder_ffn_dim, **changes},
    )


class TargetEmbeddings(Embeddings):
    """Embeddings of a target, which read a table of tokens that they are given."""

    @override
    def forward(
        self,
        input_ids: Tensor,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        tokens: nn.Module | None = None,
    ) -> Tensor:
        """Return the embeddings; ``tokens`` is the table, or ``None`` for their own."""
        table = self.tokens if tokens is None else tokens
        return self.embed(table, input_ids, token_type_ids, position_ids)


class Decoder(nn.Module):
    """The blocks of a decoder, such as ``PreNormDecoderBlock``, and perhaps a final norm."""

    # Without ``embeddings`` of its own, the target has the encoder's.

    def __init__(
        self,
        layers: Iterable[nn.Module],
        final_norm: nn.Module | None = None,
        embeddings: TargetEmbeddings | None = None,
    ) -> None:
        super().__init__()
        self.embeddings = embeddings
        self.layers = nn.ModuleList(layers)
        self.final_norm = final_norm

    def forward(
        self,
        x: Tensor,
        inputs: Sequence[AttentionInputs],
        source: Sequence[KeysAndValues] | Tensor,
        cross_mask: Tensor | None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Run the blocks and the final norm: (batch, decoder_tokens, hidden) to the same shape."""
        # ``x`` are embeddings of the tokens that are not in the cache.
        for index, (layer, (mask, rotation)) in enumerate(zip(self.layers, inputs, strict=True)):
            layer_cache = cache.layers[index] if cache else None
            arguments: tuple[Any, ...] = (mask, layer_cache)
            if rotation is not None:
                arguments = (mask, layer_cache, rotation)
            keys_and_values = source if isinstance(source, Tensor) else source[index]
            x = layer(x, arguments, keys_and_values, cross_mask)
        return x if self.final_norm is None else self.final_norm(x)


class EncoderDecoder(Encoder):
    """Encoder and decoder without a head: the hidden states of target and source."""

    # With ``wraps_source``, a source that is read as its own target begins with its last token
    # instead of ``decoder_start_token_id``.

    def __init__(
        self,
        embeddings: nn.Module,
        layers: Iterable[nn.Module],
        *,
        decoder: Decoder,
        decoder_start_token_id: int,
        eos_token_id: int = -1,
        wraps_source: bool = False,
        **encoder_args: Any,
    ) -> None:
        super().__init__(embeddings, layers, **encoder_args)
        self.decoder = decoder
        self.decoder_start_token_id = decoder_start_token_id
        self.eos_token_id = eos_token_id
        self.wraps_source = wraps_source

    @override
    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, decoder_input_ids: Tensor
    ) -> dict[str, Tensor]:
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
        """Run the decoder: (batch, decoder_tokens), int64, to (batch, decoder_tokens, hidden).

        ``tokens`` are not in the cache yet. ``position_ids``, (batch, decoder_tokens), int64, begin
        with 0 in each document of a packed row; they are ``None`` where each row is one document.
        """
        past = cache.length if cache else 0
        keys = position_ids
        if keys is None:
            keys = torch.arange(past + tokens.shape[1], device=tokens.device)[None]
        positions = Positions(keys[:, past:], keys)
        x = self.embed_target(tokens, positions.queries)
        if mask is None:
            explicit = self.adds_bias
            mask = causal_mask(None, queries=tokens.shape[1], past=past, like=x, explicit=explicit)
        inputs = self.decoder_attention_inputs(x, mask, positions)
        return self.decoder(x, inputs, source, cross_mask, cache)  # type: ignore[no-any-return]

    def embed_target(self, tokens: Tensor, position_ids: Tensor) -> Tensor:
        """Return the embeddings of tokens of the target.

        Args:
            tokens: (batch, decoder_tokens), int64.
            position_ids: (batch or 1, decoder_tokens), int64, from 0 in each document.
        """
        own_embeddings = self.decoder.embeddings
        if own_embeddings is None:
            # The module is not called: forward hooks on it should only see the source.
            return self.embeddings.forward(tokens, None, position_ids)  # type: ignore[no-any-return]
        shared_table = self.embeddings.tokens if own_embeddings.tokens is None else None
        return own_embeddings(tokens, None, position_ids, shared_table)  # type: ignore[no-any-return]

    def decode_source(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the decoder's output with the source as its target, (batch, tokens, hidden)."""
        start: int | Tensor = self.decoder_start_token_id
        if self.wraps_source:
            last_index = text_ends(input_ids, attention_mask, eos_token_id=-1)
            start = input_ids.gather(1, last_index[:, None])
        return self.hidden(input_ids, attention_mask, shift_right(input_ids, start))[1]

    def decoder_attention_inputs(
        self, x: Tensor, mask: Tensor | None, positions: Positions
    ) -> Sequence[AttentionInputs]:
        """Return mask and positions for the self-attention of each block of the decoder.

        For the arguments, see ``attention_inputs``, which does this for the encoder.
        """
        return [AttentionInputs(mask)] * len(self.decoder.layers)

    @property
    def has_default_decoder_attention_inputs(self) -> bool:
        """Whether no subclass overrides ``decoder_attention_inputs``."""
        return type(self).decoder_attention_inputs is EncoderDecoder.decoder_attention_inputs


class Seq2SeqLM(Seq2SeqGenerationMixin, EncoderDecoder):
    """A sequence-to-sequence language model, which is a ``SessionDecoder``."""

    # Added to the logits, (1, vocabulary), and not trained; ``None`` for none.
    logits_bias: Tensor | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.register_buffer("logits_bias", None)

    @override
    def project(self, hidden: Tensor) -> VocabularyProjection:
        bias = None if self.logits_bias is None else self.logits_bias[0]
        return VocabularyProjection(hidden, self.output_embeddings, bias)

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


class Seq2SeqClassifier(ClassifierMixin, EncoderDecoder):
    """Sequence classification by the decoder's output at the end of the text, (batch, labels)."""

    # The end is the last ``eos_token_id``, or else the last token.

    @override
    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the logits; the source is the decoder's target as well."""
        hidden = self.decode_source(input_ids, attention_mask)
        ends = text_ends(input_ids, attention_mask, self.eos_token_id)
        return self.outputs(gather_rows(hidden, ends))


class Seq2SeqQuestionAnswering(SpanMixin, EncoderDecoder):
    """Extractive question answering by the decoder: start and end logits, (batch, tokens) each."""

    @override
    def forward(  # type: ignore[override]
        self, input_ids: Tensor, attention_mask: Tensor | None = None
    ) -> dict[str, Tensor]:
        """Return the logits; the source is the decoder's target as well."""
        return self.outputs(self.decode_source(input_ids, attention_mask))


class Seq2SeqFactory(CausalModelFactory):
    """Builds the models of a family with a ``Seq2SeqConfig``.

    Encoder and decoder have the same kinds of parts. They share the table of tokens if
    ``tie_embeddings`` is set, and each has positions, a norm and dropout of its own.

    Attributes:
        pre_norm: norms precede attention and feed-forward networks, instead of following the sums.
        embedding_norm: norms follow the embeddings.
        final_norm: norms follow the last blocks.
        position_offset: see ``zoo.nn.transformer.Embeddings``.
    """

    pre_norm: ClassVar[bool] = False
    embedding_norm: ClassVar[bool] = True
    final_norm: ClassVar[bool] = False
    position_offset: ClassVar[int] = 0
    language_model_heads: ClassVar[tuple[str, ...]] = ("seq2seq-lm",)
    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": EncoderDecoder,
        "seq2seq-lm": Seq2SeqLM,
        "sequence-classification": Seq2SeqClassifier,
        "question-answering": Seq2SeqQuestionAnswering,
    }

    @override
    def build(self, head: str) -> Encoder:
        model = super().build(head)
        if isinstance(model, Seq2SeqLM) and self.config.logits_bias:
            model.logits_bias = torch.zeros(1, self.config.vocab_size)
        return model

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        block_type = PreNormBlock if self.pre_norm else PostNormBlock
        return {
            "embeddings": self.embeddings(),
            "layers": make_blocks(config, block_type),
            "final_norm": self.norm_after_blocks(),
            "decoder": self.decoder(),
            "decoder_start_token_id": config.decoder_start_token_id,
            "eos_token_id": config.eos_token_id,
        }

    def decoder(self) -> Decoder:
        """Return the decoder."""
        block_type = PreNormDecoderBlock if self.pre_norm else PostNormDecoderBlock
        changes = {}
        if self.config.tie_embeddings:
            changes["vocab_size"] = 0  # The target reads the table of the source.
        return Decoder(
            make_decoder_blocks(self.config, block_type),
            self.norm_after_blocks(),
            self.embeddings(TargetEmbeddings, **changes),
        )

    def embeddings(self, embeddings_type: type[Embeddings] = Embeddings, **changes: Any) -> Any:
        """Return the embeddings of encoder or decoder.

        Args:
            embeddings_type: the class to build.
            **changes: its arguments: a ``vocab_size`` of 0 for a decoder that reads the encoder's
                table of tokens.
        """
        arguments = {"position_offset": self.position_offset, **changes}
        if (table := self.position_table()) is not None:
            arguments["position_table"] = table
        embeddings = make_embeddings(
            self.config, embeddings_type, norm=self.embedding_norm, **arguments
        )
        if embeddings.tokens is not None:
            # Inputs do not train the vector of padding, as in fairseq and in the Hub's classes.
            # Some decoders began with zeros, which this token replaces on the Hub. Tied output
            # embeddings train it.
            embeddings.tokens.padding_idx = self.config.pad_token_id
        return embeddings

    def position_table(self) -> "NDArray[np.float32] | None":
        """Return the values of positions that are not trained; by default they are learned."""
        return None

    def norm_after_blocks(self) -> nn.Module | None:
        """Return the norm after the last block of encoder or decoder, if there is one."""
        eps = self.config.layer_norm_eps
        return nn.LayerNorm(self.width, eps=eps) if self.final_norm else None

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        dropout = {"dropout": self.dropout, "inner_dropout": self.dropout}
        if head == "sequence-classification":
            return None, DenseHead(self.width, len(self.config.labels), act="tanh", **dropout)
        return super().pooler_and_head(head)
