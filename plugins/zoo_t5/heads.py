"""What T5 is used for: text to text, and what is said of a text, its tokens and spans."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from zoo.nn.attention import SelfAttention, padding_mask
from zoo.nn.cache import KeyValueCache
from zoo.nn.skinny import quicken, skinny_linear
from zoo_t5.attention import CrossAttention, RelativePositions
from zoo_t5.config import T5Config
from zoo_t5.model import BareEncoderDecoder, Decoder, Encoder, EncoderDecoder, Trunk


class Seq2SeqState:
    """What is kept between the steps of generation: keys and values of target and source.

    Args:
        decoder: it says how positions count.
        source: what the encoder returned.
        mask: as ``padding_mask`` makes it for the source.
        room: how many tokens are expected.
    """

    def __init__(self, decoder: Decoder, source: Tensor, mask: Tensor | None, room: int) -> None:
        self.cache = KeyValueCache(len(decoder.layers), room)
        self.memories, self.mask = decoder.memories(source), mask
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


class Seq2SeqLM(EncoderDecoder):
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
        source = self.encode(input_ids, attention_mask)
        return {"logits": self.scores(self.decode(source, attention_mask, decoder_input_ids))}

    def scores(self, hidden: Tensor) -> Tensor:
        """Score every token of the vocabulary: (..., hidden) to (..., vocabulary)."""
        table = self.embeddings.tokens if self.head is None else self.head
        return skinny_linear(hidden * self.scale, table.weight)

    def quicken(self) -> None:
        """Prepare to generate on a CPU."""
        quicken(self)

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
        hidden = self.decoder(x, state.bias(), state.memories, state.mask, state.cache)
        return self.scores(hidden[:, -1])


class TokenClassification(Encoder):
    """What is said of each token, by the encoder."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.head_dropout = nn.Dropout(config.classifier_dropout)
        self.head = nn.Linear(config.hidden_size, len(config.labels))

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Encoder``."""
        return {"logits": self.head(self.head_dropout(hidden))}  # (batch, tokens, labels)


class ClassificationHead(nn.Module):
    """Two linear maps with tanh between them."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.dropout = nn.Dropout(config.classifier_dropout)
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.out = nn.Linear(config.hidden_size, len(config.labels))

    def forward(self, x: Tensor) -> Tensor:
        """Score (batch, hidden) as (batch, labels)."""
        return self.out(self.dropout(self.dense(self.dropout(x)).tanh()))  # type: ignore[no-any-return]


class SequenceClassification(EncoderDecoder):
    """What is said of the text as a whole, read off the decoder where the text ends."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.head = ClassificationHead(config)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Score (batch, labels). Where nothing ends a text, its last token stands for the end."""
        hidden, tokens = self.reread(input_ids, attention_mask), input_ids.shape[1]
        places = torch.arange(tokens, device=hidden.device)
        real = places if attention_mask is None else places * attention_mask
        ends = torch.where(input_ids == self.config.eos_token_id, places + tokens, real).argmax(1)
        rows = torch.arange(input_ids.shape[0], device=hidden.device)
        return {"logits": self.head(hidden[rows, ends])}


class QuestionAnswering(EncoderDecoder):
    """Where in the text an answer starts, and where it ends."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.head = nn.Linear(config.hidden_size, 2)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Score each token as a start and as an end, (batch, tokens) each."""
        start, end = self.head(self.reread(input_ids, attention_mask)).unbind(dim=-1)
        return {"start_logits": start, "end_logits": end}


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
        for module in model.modules():
            if isinstance(module, SelfAttention):
                module.qkv.weight[: config.inner_size] *= config.head_size**-0.5
            elif isinstance(module, CrossAttention):
                module.q.weight *= config.head_size**-0.5
    if isinstance(model, Seq2SeqLM) and model.head is not None:
        nn.init.normal_(model.head.weight, std=factor)
    return model
