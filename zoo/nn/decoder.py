"""Decoder-only models: the causal backbone, its heads, and the factory that builds them.

A batch is as in ``zoo.nn.encoder``, padded on the right or on the left: the first token of a row
has position 0. In generation, a cache holds the keys and values of earlier tokens, so that each
step computes one token.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.attention.masks import causal_mask as causal_mask
from zoo.nn.attention.masks import padding_mask
from zoo.nn.encoder import Classifier, Encoder, QuestionAnswering
from zoo.nn.encoder_factory import (
    ModelFactory,
    PoolerAndHead,
    make_blocks,
    make_embeddings,
    make_self_attention,
)
from zoo.nn.generation import DecodeState, GenerationMixin
from zoo.nn.heads import VocabularyProjection, gather_rows
from zoo.nn.kv_cache import KeyValueCache
from zoo.nn.positions import Positions
from zoo.nn.transformer import PostNormBlock, PreNormBlock
from zoo.overrides import override


def position_ids_from_mask(
    attention_mask: Tensor | None, tokens: int, device: torch.device
) -> Tensor:
    """Return the positions of tokens, (batch or 1, tokens), from 0 for a row's first token."""
    # attention_mask: (batch, tokens), 1 for tokens, 0 for padding; ``None`` for all 1
    columns = torch.arange(tokens, device=device)[None]
    if attention_mask is None:
        return columns
    left_padding = (attention_mask.cumsum(1) == 0).sum(1, keepdim=True)
    return (columns - left_padding).clamp(min=0)


def last_token_index(
    input_ids: Tensor, attention_mask: Tensor | None, pad_token_id: int | None
) -> Tensor:
    """Return the index of each row's last token, (batch,).

    Args:
        input_ids: (batch, tokens), int64.
        attention_mask: (batch, tokens): 1 for tokens, 0 for padding; ``None`` for all 1.
        pad_token_id: a token that is padding whatever the mask is; ``None`` for none.
    """
    real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
    if pad_token_id is not None:
        real = real * (input_ids != pad_token_id)
    return (torch.arange(input_ids.shape[1], device=input_ids.device) * real).argmax(1)


class CausalBackbone(Encoder):
    """A backbone in which a token attends to itself and to earlier tokens.

    Its blocks take a mask and a ``LayerCache``, or ``None`` for either, and a rotation if
    ``attention_inputs`` returns one; without a mask, their attention has to be causal.

    Args:
        embeddings: see ``Encoder``.
        layers: see ``Encoder``.
        pad_token_id: a token that is padding whatever the mask is, or ``None``.
        causal: whether a token attends to earlier tokens only. If not, the model has the parts of a
            decoder, but encodes texts, and its blocks are not causal without a mask.
        **parts: further arguments of ``Encoder``.

    Attributes:
        pad_token_id, causal: the arguments.
    """

    pad_token_id: int | None
    causal: bool

    def __init__(
        self,
        embeddings: nn.Module,
        layers: Iterable[nn.Module],
        *,
        pad_token_id: int | None = None,
        causal: bool = True,
        **parts: Any,
    ) -> None:
        super().__init__(embeddings, layers, **parts)
        self.pad_token_id = pad_token_id
        self.causal = causal

    @override
    def _reads_offsets(self) -> bool:
        return type(self).encode is CausalBackbone.encode and not self.adds_bias

    @override
    def encode(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
        position_ids: Tensor | None = None,
        document_ids: Tensor | None = None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Run the backbone; see ``Encoder``.

        With a cache, ``input_ids`` are the tokens that it does not hold yet, and it is extended
        by them; ``attention_mask``, (batch, past + tokens), covers the cached tokens as well.
        """
        past = cache.length if cache else 0
        tokens = input_ids.shape[1]
        keys = position_ids
        if position_ids is None:
            keys = position_ids_from_mask(attention_mask, past + tokens, input_ids.device)
            position_ids = keys[:, past:]
        assert keys is not None, "packed rows have no cache: queries are keys"
        x = self.embeddings(input_ids, token_type_ids, position_ids)
        segments = attention_mask if document_ids is None else document_ids
        positions = Positions(position_ids, keys, segments)
        mask: Any
        if self.pattern is not None and not self.pattern.needs_mask(x, positions):
            mask = None
        elif document_ids is not None:
            mask = self.documents_mask(document_ids, x, causal=self.causal)
        elif self.causal:
            mask = causal_mask(
                attention_mask, queries=tokens, past=past, like=x, explicit=self.adds_bias
            )
        else:
            mask = padding_mask(attention_mask, x.dtype)
        inputs = self.attention_inputs(x, mask, positions)
        block_inputs: list[Tensor] = []
        for number, (index, (layer_mask, rotation)) in enumerate(
            zip(self.order, inputs, strict=True)
        ):
            self.keep_for_mix(block_inputs, x)
            layer_cache = cache.layers[number] if cache else None
            x = self.layers[index](
                x, layer_mask, layer_cache, *(() if rotation is None else (rotation,))
            )
        return self.mix_layers(block_inputs, self.apply_final_norm(x))


class CausalLM(GenerationMixin, CausalBackbone):
    """A causal language model, and a ``zoo.inference.generation.decoder.SessionDecoder``.

    Prompts of different lengths are padded on the left.
    """

    @override
    def init_state(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> DecodeState:
        return DecodeState(
            KeyValueCache(len(self.order), max_new_tokens), inputs.get("attention_mask")
        )

    @override
    def forward_with_cache(self, tokens: Tensor, state: DecodeState) -> Tensor:
        return self.encode(tokens, state.mask, cache=state.cache)


class CausalSequenceClassifier(Classifier, CausalBackbone):
    """Sequence classification by the last token, which attends to all others."""

    @override
    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> dict[str, Tensor]:
        """Return the logits, (batch, labels)."""
        logits = self.hidden_and_logits(input_ids, attention_mask, token_type_ids)[1]
        return {"logits": logits}

    def hidden_and_logits(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        token_type_ids: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """Return the last hidden state, (batch, tokens, hidden), and the logits."""
        last_index = last_token_index(input_ids, attention_mask, self.pad_token_id)
        hidden = self.encode_batch(input_ids, attention_mask, token_type_ids)
        return hidden, self.outputs(gather_rows(hidden, last_index))["logits"]

    def project(self, hidden: Tensor) -> VocabularyProjection:
        """Return the projection of (..., hidden) to the logits of the next token."""
        embeddings: Any = self.embeddings
        return VocabularyProjection(hidden, embeddings.tokens.weight)


def make_causal_blocks(
    config: Any,
    block_type: Callable[..., PreNormBlock] = PreNormBlock,
    *,
    attention_args: Mapping[str, Any] | None = None,
    **changes: Any,
) -> list[PostNormBlock]:
    """Return the blocks of a decoder.

    Args:
        config: a configuration with the fields that ``make_blocks`` reads.
        block_type: the class to build.
        attention_args: further arguments of ``SelfAttention``.
        **changes: further arguments of ``block_type``.
    """
    arguments = {"causal": True, **(attention_args or {})}
    return make_blocks(
        config,
        block_type,
        attention=lambda _: make_self_attention(config, **arguments),
        **changes,
    )


class CausalTokenClassifier(Classifier, CausalBackbone):
    """Token classification: logits, (batch, tokens, labels)."""


class CausalQuestionAnswering(QuestionAnswering, CausalBackbone):
    """Extractive question answering: start and end logits, (batch, tokens) each."""


class CausalModelFactory(ModelFactory):
    """Builds the models of a family of decoders: by default, pre-norm blocks, learned positions.

    A family overrides ``backbone_args``, which names the parts of its backbone, and what differs in
    its heads.

    Attributes:
        language_model_heads: heads with logits of the next token.
    """

    language_model_heads: ClassVar[tuple[str, ...]] = ("causal-lm",)
    model_classes: ClassVar[Mapping[str, type[Encoder]]] = {
        "none": CausalBackbone,
        "causal-lm": CausalLM,
        "sequence-classification": CausalSequenceClassifier,
        "token-classification": CausalTokenClassifier,
        "question-answering": CausalQuestionAnswering,
    }

    @override
    def backbone_args(self) -> dict[str, Any]:
        config = self.config
        return {
            "embeddings": make_embeddings(config, norm=False),
            "layers": make_causal_blocks(config),
            "final_norm": nn.LayerNorm(self.width, eps=config.layer_norm_eps),
            "pad_token_id": config.pad_token_id,
        }

    @override
    def pooler_and_head(self, head: str) -> PoolerAndHead:
        if head in self.language_model_heads:
            if getattr(self.config, "tie_embeddings", True):  # The token embeddings are the head.
                return None, None
            return None, self._linear(self.config.vocab_size)
        if head == "sequence-classification":
            return None, self._linear(len(self.config.labels))
        return super().pooler_and_head(head)

    def _linear(self, outputs: int) -> nn.Linear:
        return nn.Linear(self.width, outputs, bias=False)
