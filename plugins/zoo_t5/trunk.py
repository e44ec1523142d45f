"""What T5 is made of: blocks, stacks of them, and both halves of a model."""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.nn.attention import SelfAttention, packed_mask, padding_mask
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
        memory: Memory | Tensor | None = None,
        memory_mask: Tensor | None = None,
    ) -> Tensor:
        """Transform each token.

        Args:
            x: (batch, tokens, hidden).
            bias: added to the scores, (batch or 1, heads, tokens, keys).
            cache: keys and values of earlier tokens.
            memory: keys and values of the source, or the source itself, in a decoder.
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
        x = self.embeddings(input_ids)
        return self._blocks(x, padding_mask(mask, x.dtype))

    def _blocks(self, x: Tensor, mask: Tensor | None) -> Tensor:
        bias = self.positions(x.shape[1], x.shape[1])
        if mask is not None:
            bias = bias + mask  # once, for all blocks
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
        memories: list[Memory] | Tensor,
        memory_mask: Tensor | None,
        cache: KeyValueCache | None = None,
    ) -> Tensor:
        """Run a target, or the tokens of it that a cache does not hold.

        Args:
            x: their embeddings, (batch, decoder_tokens, hidden).
            bias: added to the scores, (1, heads, decoder_tokens, those in the cache and these).
            memories: see ``memories``; or the source itself, where it is read once.
            memory_mask: as ``padding_mask`` or ``packed_mask`` makes it for the source.
            cache: these tokens are added to it.

        Returns:
            (batch, decoder_tokens, hidden).
        """
        for number, layer in enumerate(self.layers):
            own = cache.layers[number] if cache else None
            memory = memories if isinstance(memories, Tensor) else memories[number]
            x = layer(x, bias, own, memory, memory_mask)
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
        bias = self.decoder.bias(x.shape[1])
        return self.decoder(x, bias, source, padding_mask(mask, x.dtype))  # type: ignore[no-any-return]

    def hidden(
        self,
        input_ids: Tensor,
        attention_mask: Tensor,
        decoder_input_ids: Tensor,
        decoder_attention_mask: Tensor,
    ) -> Tensor:
        """Run both halves in training, where several texts may share a row.

        Masks number the texts of a row from 1, the same in both halves; 0 is padding. Distances
        within a text are what they would be without the others.

        Args:
            input_ids: (batch, tokens).
            attention_mask: (batch, tokens), the text that each token is of.
            decoder_input_ids: (batch, decoder_tokens); each text's begin with the token that the
                decoder reads first.
            decoder_attention_mask: (batch, decoder_tokens), the text that each is of.

        Returns:
            (batch, decoder_tokens, hidden).
        """
        x, ours, theirs = self.embeddings(input_ids), decoder_attention_mask, attention_mask
        source = self._blocks(x, packed_mask(theirs, theirs, x.dtype))
        tokens, across = ours.shape[1], packed_mask(ours, theirs, x.dtype)
        own = packed_mask(ours, ours, x.dtype, causal=True)
        bias = self.decoder.positions(tokens, tokens) + own
        return self.decoder(self.embeddings(decoder_input_ids), bias, source, across)  # type: ignore[no-any-return]

    def reread(self, input_ids: Tensor, mask: Tensor | None) -> Tensor:
        """Return (batch, tokens, hidden), where the decoder is given the source as its target."""
        start = torch.full_like(input_ids[:, :1], self.config.decoder_start_token_id)
        return self.decode(
            self.encode(input_ids, mask), mask, torch.cat([start, input_ids[:, :-1]], dim=1)
        )
