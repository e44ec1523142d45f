"""T5: the Text-to-Text Transfer Transformer.

Raffel, Shazeer, Roberts, Lee, Narang, Matena, Zhou, Li and Liu 2019, "Exploring the Limits of
Transfer Learning with a Unified Text-to-Text Transformer", arXiv:1910.10683; Xue and others 2020,
"mT5", arXiv:2010.11934.

The paper in short. Every task is put as text to text: a Transformer with an encoder for the
source and a decoder that writes the target (section 2.1). It departs from the first Transformer
in its norms, which only scale and stand before each part of a block, outside the residual path;
in having no biases; and in its positions: a learned number for each head and bucket of distances
is added to the attention scores, the same in all blocks of a stack. Scores are not divided by the
root of the head's width, the start of the weights sees to that. Pretraining hides spans of the
source, and the target spells them out (section 3.1.4). Version 1.1, which Flan-T5 and mT5 build on,
has gates in its feed-forward networks, and scores tokens against a table of its own instead of
the token embeddings, with unscaled vectors.

Every class below takes ``input_ids`` and ``attention_mask`` of the source, int64
and (batch, tokens) each; a mask of ``None`` says that all tokens are real. Those that write also
take ``decoder_input_ids``, (batch, decoder_tokens), padded on the right. All return a dict of named
outputs.
"""

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from zoo.nn.generation import DecodeState, GenerationMixin
from zoo.nn.heads import ClassifierMixin, DenseHead, LinearHead, SpanMixin, gather_rows
from zoo.nn.kv_cache import KeyValueCache
from zoo.nn.transformer import padding_mask
from zoo_t5.attention import RelativePositions
from zoo_t5.config import T5Config
from zoo_t5.trunk import Encoder, EncoderDecoder, T5Backbone, causal_bias_mask


class BareEncoderDecoder(EncoderDecoder):
    """Both halves by themselves: a vector for each token of the target, and of the source."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, decoder_input_ids: Tensor
    ) -> dict[str, Tensor]:
        """Encode, then decode."""
        source, target = self.hidden(input_ids, attention_mask, decoder_input_ids)
        return {"last_hidden_state": target, "encoder_last_hidden_state": source}


class Seq2SeqState(DecodeState):
    """See ``State``."""

    _biases: Tensor | None = None

    def bias(self, positions: RelativePositions) -> Tensor:
        """Return the positions of all tokens so far, as the next token sees them: a view."""
        keys = self.cache.length + 1
        if self._biases is None or keys > self._biases.shape[-1]:
            self._biases = positions(1, 2 * keys)
        return self._biases[..., -keys:]  # the last key is the token itself


class Seq2SeqLM(GenerationMixin, EncoderDecoder):
    """Which token comes next in the target? Also a ``zoo.inference.generation.Decoder``."""

    state_type: ClassVar[type[DecodeState]] = Seq2SeqState

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        own, shape = config.output_table, (config.hidden_size, config.vocab_size)
        self.head = nn.Linear(*shape, bias=False) if own else None
        self.scale = config.hidden_size**-0.5 if config.scale_outputs else 1.0

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, decoder_input_ids: Tensor
    ) -> dict[str, Tensor]:
        """Score what comes after each token of the target: (batch, decoder_tokens, vocabulary)."""
        return self.outputs(self.hidden(input_ids, attention_mask, decoder_input_ids)[1])

    def scores(self, hidden: Tensor) -> Tensor:
        """See ``LMHeadMixin``."""
        return super().scores(hidden * self.scale)

    def init_state(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> DecodeState:
        """Read the sources; see ``GenerationMixin``."""
        mask = inputs.get("attention_mask")
        source = self.encode(inputs["input_ids"], mask)
        memory = [layer.cross.keys_and_values(source) for layer in self.decoder.layers]  # type: ignore[operator, union-attr]
        return Seq2SeqState(KeyValueCache(len(memory), max_new_tokens), mask, memory)

    def decoder_input_ids(self, input_ids: Tensor) -> Tensor:
        """See ``GenerationMixin``."""
        return torch.full_like(input_ids[:, :1], self.config.decoder_start_token_id)

    def forward_with_cache(self, tokens: Tensor, state: Seq2SeqState) -> Tensor:
        """See ``GenerationMixin``."""
        x, queries, past = self.embeddings(tokens), tokens.shape[1], state.cache.length
        if queries == 1:
            bias = state.bias(self.decoder.positions)
        else:
            bias = self.decoder.bias(x, causal_bias_mask(x, queries, past), past)
        mask = padding_mask(state.mask, x.dtype)
        return self.decoder.run(x, bias, state.cross_attention_cache, mask, state.cache)


class TokenClassification(ClassifierMixin, Encoder):
    """What is said of each token, by the encoder: (batch, tokens, labels)."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.head = LinearHead(config.hidden_size, len(config.labels), config.classifier_dropout)


class SequenceClassification(ClassifierMixin, EncoderDecoder):
    """What is said of the text as a whole, read off the decoder where the text ends."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        shape, dropped = (config.hidden_size, len(config.labels)), config.classifier_dropout
        self.head = DenseHead(*shape, act="tanh", dropout=dropped, inner_dropout=dropped)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Score (batch, labels). Where nothing ends a text, its last token stands for the end."""
        hidden, tokens = self.reread(input_ids, attention_mask), input_ids.shape[1]
        places = torch.arange(tokens, device=hidden.device)
        real = places if attention_mask is None else places * attention_mask
        ends = torch.where(input_ids == self.config.eos_token_id, places + tokens, real).argmax(1)
        return self.outputs(gather_rows(hidden, ends))


class QuestionAnswering(SpanMixin, EncoderDecoder):
    """Where in the text an answer starts, and where it ends."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.hidden_size, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Score each token as a start and as an end, (batch, tokens) each."""
        return self.outputs(self.reread(input_ids, attention_mask))


_HEADS: dict[str, type[T5Backbone]] = {
    "none": BareEncoderDecoder,
    "encoder": Encoder,
    "seq2seq-lm": Seq2SeqLM,
    "sequence-classification": SequenceClassification,
    "token-classification": TokenClassification,
    "question-answering": QuestionAnswering,
}


def build(config: T5Config, head: str) -> T5Backbone:
    """Return a model with fresh weights, drawn as the released code draws them.

    Matrices keep the size of what they are given; queries are smaller, in place of a division
    of the scores; token tables have unit deviation.
    """
    model, factor = _HEADS[head](config), config.initializer_factor
    for module in model.modules():
        if isinstance(module, nn.Linear):
            nn.init.normal_(module.weight, std=factor * module.in_features**-0.5)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
        elif isinstance(module, nn.Embedding):
            nn.init.normal_(module.weight, std=factor)
        elif isinstance(module, RelativePositions):
            nn.init.normal_(module.weight, std=factor * config.hidden_size**-0.5)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("attention.qkv.weight", "cross.q.weight")):
                weight[: config.inner_size] *= config.head_size**-0.5
    if isinstance(model, Seq2SeqLM) and model.head is not None:
        nn.init.normal_(model.head.weight, std=factor)
    return model
