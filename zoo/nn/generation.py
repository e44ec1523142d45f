"""Models that generate tokens: a decoding state with cached keys and values, and its steps.

A model implements ``init_state`` and ``forward_with_cache``. Generation in torch and the exported
ONNX graphs with a cache follow from these two.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.adapters.prompt import with_prompt
from zoo.nn.heads import LMHeadMixin
from zoo.nn.kv_cache import KeyValueCache
from zoo.overrides import override

# keys and values of a source, (batch, heads, tokens, head_size) each
KeysAndValues = tuple[Tensor, Tensor]


class DecodeState:
    """The state between two steps of generation.

    Args:
        cache: keys and values of the tokens of the decoder.
        mask: (batch, tokens): 1 for tokens, 0 for padding, or ``None`` for all 1. In an
            encoder-decoder it covers the source, else the tokens of the decoder.
        cross_attention_cache: keys and values of the source, for each block of the decoder.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        mask: Tensor | None,
        cross_attention_cache: Sequence[KeysAndValues] = (),
    ) -> None:
        self.cache = cache
        self.mask = mask
        self.cross_attention_cache = list(cross_attention_cache)
        self._source_rows: Tensor | None = None  # for each row, its row in the prefill's batch

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch, in the given order; a row may be repeated."""
        source_rows = rows if self._source_rows is None else self._source_rows[rows]
        self.cache.select(rows)
        if self._source_rows is not None and torch.equal(source_rows, self._source_rows):
            return  # beams of one source were swapped: its keys, values and mask are the same
        self.cross_attention_cache = [
            (keys[rows], values[rows]) for keys, values in self.cross_attention_cache
        ]
        self.mask = None if self.mask is None else self.mask[rows]
        self._source_rows = source_rows


class GenerationMixin(LMHeadMixin, ABC):
    """A language model that generates, which is a ``SessionDecoder``."""

    state_type: ClassVar[type[DecodeState]] = DecodeState  # Class of the state between two steps.

    @abstractmethod
    def init_state(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> DecodeState:
        """Return the state before the first token. An encoder-decoder encodes the source here."""

    @abstractmethod
    def forward_with_cache(self, tokens: Tensor, state: Any) -> Tensor:
        """Run the decoder on new tokens, (batch, tokens), and extend the state by them.

        Returns the hidden state, (batch, tokens, hidden), an argument of ``scores``.
        """

    def decoder_input_ids(self, input_ids: Tensor) -> Tensor:
        """Return the first tokens of the decoder, (batch, tokens); here ``input_ids``."""
        return input_ids

    def prefill(
        self, inputs: Mapping[str, Tensor], max_new_tokens: int
    ) -> tuple[Tensor, DecodeState]:
        """Return the logits after the prompt and the state; see ``Decoder.prefill``."""
        inputs = with_prompt(self, inputs)
        state = self.init_state(inputs, max_new_tokens)
        start = inputs.get("decoder_input_ids")
        if start is None:
            start = self.decoder_input_ids(inputs["input_ids"])
        hidden = self.forward_with_cache(start, state)
        return self.scores(hidden[:, -1]), state

    def step(self, tokens: Tensor, state: DecodeState) -> Tensor:
        """Return the logits after one more token in each row; see ``Decoder.step``."""
        if state.mask is not None and not state.cross_attention_cache:
            state.mask = F.pad(state.mask, (0, 1), value=1)  # generated tokens are no padding
        return self.scores(self.forward_with_cache(tokens[:, None], state)[:, -1])


class Seq2SeqGenerationMixin(GenerationMixin):
    """A language model with an encoder, whose output the decoder attends to."""

    @abstractmethod
    def encode_source(self, input_ids: Tensor, attention_mask: Tensor | None) -> Tensor:
        """Return the encoder's output, (batch, tokens, hidden); inputs are (batch, tokens)."""

    @abstractmethod
    def cross_attention_cache(self, source: Tensor) -> list[KeysAndValues]:
        """Return the keys and values of the encoder's output, for each block of the decoder."""

    @override
    def init_state(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> DecodeState:
        mask = inputs.get("attention_mask")
        keys_and_values = self.cross_attention_cache(self.encode_source(inputs["input_ids"], mask))
        cache = KeyValueCache(len(keys_and_values), max_new_tokens)
        return self.state_type(cache, mask, keys_and_values)
