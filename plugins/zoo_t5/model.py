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

Every class below takes ``input_ids`` and ``attention_mask`` of the source, int64 and (batch,
tokens) each; a mask of ``None`` says that all tokens are real. Those that write also take
``decoder_input_ids``, (batch, decoder_tokens), padded on the right. All return a dict of named
outputs.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.attention import SelfAttention, padding_mask
from zoo.nn.cache import KeyValueCache, LayerCache
from zoo_t5.attention import CrossAttention, FeedForward, Memory, RelativePositions, RMSNorm
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
        memory: Memory | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Transform each token.

        Args:
            x: (batch, tokens, hidden).
            bias: added to the scores, (batch or 1, heads, tokens, keys).
            cache: keys and values of earlier tokens.
            memory: keys and values of the source, in a decoder.
            memory_mask: added to the scores of those, or ``None``.

        Returns:
            (batch, tokens, hidden).
        """
        x = self._add(x, self.attention(self.attention_norm(x), bias, cache))
        if memory is not None:
            x = self._add(x, self.cross(self.cross_norm(x), memory, memory_mask))
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

    def finish(self, x: Tensor) -> Tensor:
        """Normalise what the last block returned."""
        return self.dropout(self.final_norm(x))  # type: ignore[no-any-return]


class Embeddings(nn.Module):
    """What each token is; where it stands is left to attention."""

    def __init__(self, config: T5Config) -> None:
        super().__init__()
        self.tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, input_ids: Tensor) -> Tensor:
        """Embed (batch, tokens) as (batch, tokens, hidden)."""
        return self.dropout(self.tokens(input_ids))  # type: ignore[no-any-return]


class Trunk(Stack):
    """The encoder and its embeddings, which all heads share.

    Args:
        config: the shape.
    """

    def __init__(self, config: T5Config) -> None:
        super().__init__(config, config.num_layers, decoder=False)
        self.config = config
        self.embeddings = Embeddings(config)

    def encode(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return (batch, tokens, hidden) for a source and its mask, (batch, tokens) each."""
        x, tokens = self.embeddings(input_ids), input_ids.shape[1]
        bias, padding = self.positions(tokens, tokens), padding_mask(mask, x.dtype)
        if padding is not None:
            bias = bias + padding  # once, for all blocks
        for layer in self.layers:
            x = layer(x, bias)
        return self.finish(x)


class Encoder(Trunk):
    """The encoder by itself: a vector for each token of a text."""

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> dict[str, Tensor]:
        """Encode, then run the head."""
        return self.outputs(self.encode(input_ids, attention_mask))

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """Read the head's outputs off the encoder's, (batch, tokens, hidden)."""
        return {"last_hidden_state": hidden}


class TokenClassification(Encoder):
    """What is said of each token, by the encoder."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.head_dropout = nn.Dropout(config.classifier_dropout)
        self.head = nn.Linear(config.hidden_size, len(config.labels))

    def outputs(self, hidden: Tensor) -> dict[str, Tensor]:
        """See ``Encoder``."""
        return {"logits": self.head(self.head_dropout(hidden))}  # (batch, tokens, labels)


class Decoder(Stack):
    """Writes the target, looking at what it has written and at the source."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config, config.decoder_layers, decoder=True)

    def memories(self, source: Tensor) -> list[Memory]:
        """Return each block's keys and values of the source, (batch, tokens, hidden)."""
        return [layer.cross.memory(source) for layer in self.layers]  # type: ignore[operator, union-attr]

    def bias(self, tokens: int) -> Tensor:
        """Return what keeps a target from looking ahead, with its positions, for all heads."""
        ahead = torch.ones(tokens, tokens, device=self.positions.weight.device).triu(1) > 0
        positions = self.positions(tokens, tokens)
        lowest = torch.finfo(positions.dtype).min / 2  # as in ``padding_mask``
        return positions.masked_fill(ahead, lowest)  # type: ignore[no-any-return]

    def forward(
        self,
        x: Tensor,
        bias: Tensor,
        memories: list[Memory],
        memory_mask: Tensor | None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Run a target, or the tokens of it that a cache does not hold.

        Args:
            x: their embeddings, (batch, decoder_tokens, hidden).
            bias: added to the scores, (1, heads, decoder_tokens, those in the cache and these).
            memories: see ``memories``.
            memory_mask: as ``padding_mask`` makes it for the source.
            cache: these tokens are added to it.

        Returns:
            (batch, decoder_tokens, hidden).
        """
        for number, layer in enumerate(self.layers):
            own = cache.layers[number] if cache else None
            x = layer(x, bias, own, memories[number], memory_mask)
        return self.finish(x)


class EncoderDecoder(Trunk):
    """Both halves."""

    def __init__(self, config: T5Config) -> None:
        super().__init__(config)
        self.decoder = Decoder(config)

    def decode(self, source: Tensor, mask: Tensor | None, decoder_input_ids: Tensor) -> Tensor:
        """Return (batch, decoder_tokens, hidden) for a source's encoding and a target."""
        # through the table alone: those who watch the embeddings look at the source's
        x = self.embeddings.dropout(F.embedding(decoder_input_ids, self.embeddings.tokens.weight))
        bias, memories = self.decoder.bias(x.shape[1]), self.decoder.memories(source)
        return self.decoder(x, bias, memories, padding_mask(mask, x.dtype))  # type: ignore[no-any-return]

    def reread(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return (batch, tokens, hidden), where the decoder is given the source as its target."""
        start = torch.full_like(input_ids[:, :1], self.config.decoder_start_token_id)
        return self.decode(
            self.encode(input_ids, mask), mask, torch.cat([start, input_ids[:, :-1]], dim=1)
        )


class BareEncoderDecoder(EncoderDecoder):
    """Both halves by themselves: a vector for each token of the target, and of the source."""

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, *, decoder_input_ids: Tensor
    ) -> dict[str, Tensor]:
        """Encode, then decode."""
        source = self.encode(input_ids, attention_mask)
        target = self.decode(source, attention_mask, decoder_input_ids)
        return {"last_hidden_state": target, "encoder_last_hidden_state": source}


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
        return F.linear(hidden * self.scale, table.weight)

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
