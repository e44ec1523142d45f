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

import torch
from torch import Tensor, nn

from zoo.nn.attention import padding_mask
from zoo.nn.cache import KeyValueCache
from zoo.nn.heads import DenseHead, Labels, LinearHead, NextToken, Spans, at_places
from zoo_t5.attention import RelativePositions
from zoo_t5.config import T5Config
from zoo_t5.trunk import Encoder, EncoderDecoder, Stack, Trunk


class BareEncoderDecoder(EncoderDecoder):
    """Both halves by themselves: a vector for each token of the target, and of the source."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, decoder_input_ids: Tensor
    ) -> dict[str, Tensor]:
        """Encode, then decode."""
        source, target = self.hidden(input_ids, attention_mask, decoder_input_ids)
        return {"last_hidden_state": target, "encoder_last_hidden_state": source}


class Seq2SeqState:
    """What is kept between the steps of generation: keys and values of target and source.

    Args:
        decoder: it says how positions count.
        source: what the encoder returned.
        mask: as ``padding_mask`` makes it for the source.
        room: how many tokens are expected.
    """

    def __init__(self, decoder: Stack, source: Tensor, mask: Tensor | None, room: int) -> None:
        self.cache = KeyValueCache(len(decoder.layers), room)
        self.memories = [layer.cross.memory(source) for layer in decoder.layers]  # type: ignore[operator, union-attr]
        self.mask = mask
        self._positions = decoder.positions
        self._biases: Tensor = decoder.positions(1, room + 1)
        self._sources = torch.arange(source.shape[0], device=source.device)

    def bias(self) -> Tensor:
        """Return the positions of all tokens so far, as the next token sees them: a view."""
        keys = self.cache.length + 1
        if keys > self._biases.shape[-1]:
            self._biases = self._positions(1, 2 * keys)
        return self._biases[..., -keys:]  # the last key is the token itself

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch, in the order given."""
        self.cache.select(rows)
        sources = self._sources[rows]
        if not torch.equal(sources, self._sources):  # beams of one text share what is kept of it
            self.memories = [(keys[rows], values[rows]) for keys, values in self.memories]
            self.mask = None if self.mask is None else self.mask[rows]
            self._sources = sources


class Seq2SeqLM(NextToken, EncoderDecoder):
    """Which token comes next in the target? Also a ``zoo.generation.Decoder``."""

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
        """See ``NextToken``."""
        return super().scores(hidden * self.scale)

    def prefill(self, inputs: Mapping[str, Tensor], room: int) -> tuple[Tensor, Seq2SeqState]:
        """Read the sources, and score the first tokens; see ``zoo.generation.Decoder``."""
        mask = inputs.get("attention_mask")
        source = self.encode(inputs["input_ids"], mask)
        state = Seq2SeqState(self.decoder, source, padding_mask(mask, source.dtype), room)
        start = torch.full_like(inputs["input_ids"][:, 0], self.config.decoder_start_token_id)
        return self.step(start, state), state

    def step(self, tokens: Tensor, state: Seq2SeqState) -> Tensor:
        """Read one more token of each row; see ``zoo.generation.Decoder``."""
        x = self.embeddings(tokens[:, None])
        hidden = self.decoder.run(x, state.bias(), state.memories, state.mask, state.cache)
        return self.scores(hidden[:, -1])


class TokenClassification(Labels, Encoder):
    """What is said of each token, by the encoder: (batch, tokens, labels)."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.head = LinearHead(config.hidden_size, len(config.labels), config.classifier_dropout)


class SequenceClassification(Labels, EncoderDecoder):
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
        return self.outputs(at_places(hidden, ends))


class QuestionAnswering(Spans, EncoderDecoder):
    """Where in the text an answer starts, and where it ends."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.hidden_size, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Score each token as a start and as an end, (batch, tokens) each."""
        return self.outputs(self.reread(input_ids, attention_mask))


_HEADS: dict[str, type[Trunk]] = {
    "none": BareEncoderDecoder,
    "encoder": Encoder,
    "seq2seq-lm": Seq2SeqLM,
    "sequence-classification": SequenceClassification,
    "token-classification": TokenClassification,
    "question-answering": QuestionAnswering,
}


def build(config: T5Config, head: str) -> Trunk:
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
