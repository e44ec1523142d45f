"""T5: the Text-to-Text Transfer Transformer.

Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li and Liu 2019, "Exploring the Limits of
Transfer Learning with a Unified Text-to-Text Transformer", arXiv:1910.10683; Xue and others 2020,
"mT5", arXiv:2010.11934.

Every task is text to text: a Transformer with an encoder for the source and a decoder that
generates the target (section 2.1). It differs from the first Transformer in its norms, which only
scale and precede each part of a block, outside of the residual path; in having no biases; and in
its positions: a learned bias for each head and bucket of distances is added to the attention
scores, the same in all blocks of a stack; in UMT5 (arXiv:2304.09151), each block has its own.
Scores are not divided by the root of the head's width; the initialization of the weights makes up
for it. In pretraining, spans of the source are masked, and the target consists of these spans
(section 3.1.4). Version 1.1, on which Flan-T5, mT5, UMT5 and ByT5 build, has gated feed-forward
networks, and output embeddings of its own instead of the token embeddings, with hidden states that
are not scaled. ByT5 (arXiv:2105.13626) reads bytes, and has more blocks in its encoder than in its
decoder.

All models take ``input_ids`` and ``attention_mask`` of the source, int64 and (batch, tokens) each;
a mask of ``None`` means all 1. Those that generate also take ``decoder_input_ids``, int64 and
(batch, decoder_tokens), padded on the right. All return a dict of named outputs.

The forward pass: ``zoo_t5.backbone``, ``zoo.nn.transformer`` for attention, ``zoo.nn.heads``.
"""

from collections.abc import Callable, Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.decoder import causal_mask
from zoo.nn.encoder import packed_mask, padding_mask
from zoo.nn.encoder_decoder import CrossAttention, text_ends
from zoo.nn.generation import (
    DecodeState,
    GenerationMixin,
    KeysAndValues,
    Seq2SeqGenerationMixin,
)
from zoo.nn.heads import (
    ClassifierMixin,
    DenseHead,
    LinearHead,
    LMHeadMixin,
    SpanMixin,
    VocabularyProjection,
    gather_rows,
)
from zoo.nn.kv_cache import KeyValueCache
from zoo.nn.layers.init import scale_rows_
from zoo.nn.layers.relative import RelativePositions
from zoo.overrides import override
from zoo_t5.backbone import (
    T5Backbone,
    T5Encoder,
    T5EncoderDecoder,
    T5Stack,
    causal_bias_mask,
)
from zoo_t5.config import T5Config, require_head
from zoo_t5.single_stack import T5SingleStack


class BareEncoderDecoder(T5EncoderDecoder):
    """Encoder and decoder without a head: the hidden states of target and source."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, decoder_input_ids: Tensor
    ) -> dict[str, Tensor]:
        """Run encoder and decoder; see the module for the inputs."""
        source, target = self.hidden(input_ids, attention_mask, decoder_input_ids)
        return {"last_hidden_state": target, "encoder_last_hidden_state": source}


class Seq2SeqState(DecodeState):
    """The state of generation, with the position biases of the decoder."""

    _biases: list[Tensor] | None = None

    def biases(self, decoder: T5Stack) -> list[Tensor]:
        """Return the position biases of the next token in each block: views."""
        # (1, heads, 1, keys) each. They are computed for twice the number of keys, so that a step
        # slices them; the last key is the token's own.
        keys = decoder.prefix_length + self.cache.length + 1
        if self._biases is None or keys > self._biases[0].shape[-1]:
            self._biases = decoder.position_biases(1, 2 * keys)
        biases = [bias[..., -keys:] for bias in self._biases]
        return biases if decoder.positions is None else biases * len(decoder.layers)


class OutputEmbeddings(LMHeadMixin):
    """Logits by the token embeddings or by a table of their own."""

    scale: float  # What hidden states are multiplied by before the logits.

    def make_outputs(self, config: T5Config) -> None:
        """Set ``head`` and ``scale``."""
        untied = config.output_table
        size = (config.hidden_size, config.vocab_size)
        self.head = nn.Linear(*size, bias=False) if untied else None
        self.scale = config.hidden_size**-0.5 if config.scale_outputs else 1.0

    @override
    def project(self, hidden: Tensor) -> VocabularyProjection:
        return super().project(hidden * self.scale)


class Seq2SeqOutputs(OutputEmbeddings, Seq2SeqGenerationMixin):
    """Logits after the tokens of a target, of a model that reads a source."""

    config: T5Config
    hidden: Callable[..., tuple[Tensor, Tensor]]  # The hidden states of source and target.

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, decoder_input_ids: Tensor
    ) -> dict[str, Tensor]:
        """Return the logits after each token of the target, (batch, decoder_tokens, vocabulary)."""
        return self.outputs(self.hidden(input_ids, attention_mask, decoder_input_ids)[1])

    @override
    def decoder_input_ids(self, input_ids: Tensor) -> Tensor:
        return torch.full_like(input_ids[:, :1], self.config.decoder_start_token_id)


class T5Seq2SeqLM(Seq2SeqOutputs, T5EncoderDecoder):
    """A sequence-to-sequence language model, which is a ``SessionDecoder``."""

    state_type: ClassVar[type[DecodeState]] = Seq2SeqState

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.make_outputs(config)

    @override
    def encode_source(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        return self.encode(input_ids, attention_mask)

    @override
    def cross_attention_cache(self, source: Tensor) -> list[KeysAndValues]:
        return [layer.cross.keys_and_values(source) for layer in self.decoder.layers]  # type: ignore[operator, union-attr]

    @override
    def forward_with_cache(self, tokens: Tensor, state: Seq2SeqState) -> Tensor:
        x = self.embeddings(tokens)
        queries = tokens.shape[1]
        past = state.cache.length
        if queries == 1:
            biases = state.biases(self.decoder)
        else:
            biases = self.decoder.biases(x, causal_bias_mask(x, queries, past), past)
        mask = padding_mask(state.mask, x.dtype)
        return self.decoder.run(x, biases, state.cross_attention_cache, mask, state.cache)


class BareSingleStack(T5SingleStack):
    """One stack without a head: the hidden states of target and source."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, decoder_input_ids: Tensor
    ) -> dict[str, Tensor]:
        """Run the stack; see the module for the inputs."""
        source, target = self.hidden(input_ids, attention_mask, decoder_input_ids)
        return {"last_hidden_state": target, "encoder_last_hidden_state": source}


class T5SingleStackLM(Seq2SeqOutputs, T5SingleStack):
    """A prefix or plain language model of a target after its source, which is a ``SessionDecoder``.

    To generation, the keys and values of the source in each block are those of cross-attention:
    they do not depend on the target.
    """

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.make_outputs(config)

    @override
    def encode_source(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return what all blocks read of the source, (batch, tokens, layers * hidden)."""
        return torch.cat(self.run_source(input_ids, attention_mask)[:-1], dim=-1)

    @override
    def cross_attention_cache(self, source: Tensor) -> list[KeysAndValues]:
        return self.keys_and_values(list(source.chunk(len(self.layers), dim=-1)))

    @override
    def forward_with_cache(self, tokens: Tensor, state: DecodeState) -> Tensor:
        return self.decode(tokens, state)


class T5CausalLM(OutputEmbeddings, GenerationMixin, T5Backbone):
    """The language model of arXiv:1910.10683, section 3.2.1: one decoder, no cross-attention.

    It is a ``SessionDecoder``; prompts of different lengths are padded on the left.
    """

    def __init__(self, config: T5Config) -> None:
        super().__init__(config, decoder=True)
        self.make_outputs(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Return the logits after each token, (batch, tokens, vocabulary)."""
        return self.outputs(self.encode(input_ids, attention_mask))

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
        """Return the last hidden states, (batch, tokens, hidden); see ``CausalBackbone.encode``.

        Relative positions are differences, so ``position_ids`` are not read.
        """
        past = cache.length if cache else 0
        x = self.embeddings(input_ids)
        if document_ids is not None:
            mask: Tensor | None = packed_mask(document_ids, document_ids, x.dtype, causal=True)
        else:
            tokens = input_ids.shape[1]
            mask = causal_mask(attention_mask, queries=tokens, past=past, like=x, explicit=True)
        return self.run(x, self.biases(x, mask, past), cache=cache)

    @override
    def init_state(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> DecodeState:
        cache = KeyValueCache(len(self.layers), max_new_tokens)
        return DecodeState(cache, inputs.get("attention_mask"))

    @override
    def forward_with_cache(self, tokens: Tensor, state: DecodeState) -> Tensor:
        return self.encode(tokens, state.mask, cache=state.cache)


class TokenClassification(ClassifierMixin, T5Encoder):
    """Token classification by the encoder: (batch, tokens, labels)."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config, mix=config.mix)
        self.head = LinearHead(config.hidden_size, len(config.labels), config.classifier_dropout)


class SequenceClassification(ClassifierMixin, T5EncoderDecoder):
    """Sequence classification by the decoder's output at the end of the text."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config, mix=config.mix)
        size = (config.hidden_size, len(config.labels))
        dropout = config.classifier_dropout
        self.head = DenseHead(*size, act="tanh", dropout=dropout, inner_dropout=dropout)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Return the logits, (batch, labels).

        The end of a text is its last ``eos_token_id``, or else its last token.
        """
        hidden = self.decode_source(input_ids, attention_mask)
        ends = text_ends(input_ids, attention_mask, self.config.eos_token_id)
        return self.outputs(gather_rows(hidden, ends))


class T5QuestionAnswering(SpanMixin, T5EncoderDecoder):
    """Extractive question answering by the decoder."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.hidden_size, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Return start and end logits, (batch, tokens) each."""
        return self.outputs(self.decode_source(input_ids, attention_mask))


_HEADS: dict[str, type[T5Backbone]] = {
    "none": BareEncoderDecoder,
    "encoder": T5Encoder,
    "seq2seq-lm": T5Seq2SeqLM,
    "causal-lm": T5CausalLM,
    "sequence-classification": SequenceClassification,
    "token-classification": TokenClassification,
    "question-answering": T5QuestionAnswering,
}

_SINGLE_STACK_HEADS: dict[str, type[T5Backbone]] = {
    "none": BareSingleStack,
    "seq2seq-lm": T5SingleStackLM,
    "causal-lm": T5CausalLM,
}


def build(config: T5Config, head: str) -> T5Backbone:
    """Return a model with randomly initialized weights, as in the released code."""
    # Matrices preserve the scale of their input; query matrices are scaled by ``head_size **
    # -0.5``, in place of the scores; embeddings have unit standard deviation
    # With ``mimetic_init_scale``, the product of query and key weights of cross-attention is close
    # to a multiple of the identity: mimetic initialization (Trockman and Kolter 2023,
    # arXiv:2305.09828), which the paper has for self-attention, and there also for the product of
    # value and output weights. Those are independent here
    require_head(config, head)
    model_types = _HEADS if config.single_stack is None else _SINGLE_STACK_HEADS
    model = model_types[head](config)
    factor = config.initializer_factor
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=factor * module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=factor)
        elif isinstance(module, RelativePositions):
            nn.init.normal_(module.weight, std=factor * config.hidden_size**-0.5)
    for name, weight in model.named_parameters():
        if name.endswith(("attention.qkv.weight", "cross.q.weight")):
            scale_rows_(weight, config.inner_size, config.head_size**-0.5)
    if isinstance(model, OutputEmbeddings) and model.head is not None:
        nn.init.normal_(model.head.weight, std=factor)
    if config.mimetic_init_scale is not None:
        _derive_queries_from_keys(model, config.mimetic_init_scale)
    return model


@torch.no_grad()
def _derive_queries_from_keys(model: T5Backbone, scale: float) -> None:
    """Set the query weights of all cross-attention to its key weights times a scale."""
    for module in model.modules():
        if isinstance(module, CrossAttention):
            keys, _ = module.kv.weight.chunk(2)
            module.q.weight.copy_(keys * scale)
