"""Models that write: they read what is given, and then one token at a time.

What was read is kept in a ``State``, so that no key and no value is computed twice. All is written
in terms of two methods, ``begin`` and ``read``: generation in torch, and the graphs of an export.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo.nn.heads import LMHeadMixin
from zoo.nn.kv_cache import KeyValueCache

KeysAndValues = tuple[
    Tensor, Tensor
]  # keys and values of a source, (batch, heads, tokens, head) each


class DecodeState:
    """What is kept between the steps of generation.

    Args:
        cache: keys and values of the tokens that were read.
        mask: (batch, tokens), zero for padding, or ``None`` where there is none: of all tokens,
            or of the source where there is one.
        cross_attention_cache: keys and values of the source for each block of the decoder.
    """

    def __init__(
        self,
        cache: KeyValueCache,
        mask: Tensor | None,
        cross_attention_cache: Sequence[KeysAndValues] = (),
    ) -> None:
        self.cache, self.mask, self.cross_attention_cache = cache, mask, list(cross_attention_cache)
        self._given: Tensor | None = None  # of each row, the one of ``begin`` that it came from

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch, in the order given."""
        given = rows if self._given is None else self._given[rows]
        self.cache.select(rows)
        if self._given is not None and torch.equal(given, self._given):
            return  # beams of one text share what is kept of its source, and where it is padded
        self.cross_attention_cache = [
            (keys[rows], values[rows]) for keys, values in self.cross_attention_cache
        ]
        self.mask = None if self.mask is None else self.mask[rows]
        self._given = given


class GenerationMixin(LMHeadMixin, ABC):
    """A part of models that write, which makes them a ``zoo.inference.generation.Decoder``.

    Attributes:
        state_type: what is kept between the steps.
    """

    state_type: ClassVar[type[DecodeState]] = DecodeState

    @abstractmethod
    def init_state(self, inputs: Mapping[str, Tensor], max_new_tokens: int) -> DecodeState:
        """Return a state before any token is read; a source is read here, if there is one.

        Args:
            inputs: see ``zoo.inference.generation.Decoder.prefill``.
            max_new_tokens: see there.
        """

    @abstractmethod
    def forward_with_cache(self, tokens: Tensor, state: Any) -> Tensor:
        """Read more tokens of each row.

        Args:
            tokens: (batch, tokens), int64.
            state: of ``state_type``, changed in place. A mask of all tokens tells of these, too.

        Returns:
            what ``scores`` reads, (batch, tokens, hidden).
        """

    def decoder_input_ids(self, input_ids: Tensor) -> Tensor:
        """Return what is read first, (batch, tokens); here the inputs, (batch, tokens)."""
        return input_ids

    def prefill(
        self, inputs: Mapping[str, Tensor], max_new_tokens: int
    ) -> tuple[Tensor, DecodeState]:
        """See ``zoo.inference.generation.Decoder``."""
        state = self.init_state(inputs, max_new_tokens)
        hidden = self.forward_with_cache(self.decoder_input_ids(inputs["input_ids"]), state)
        return self.scores(hidden[:, -1]), state

    def step(self, tokens: Tensor, state: DecodeState) -> Tensor:
        """See ``zoo.inference.generation.Decoder``; what was written is no padding."""
        if state.mask is not None and not state.cross_attention_cache:
            state.mask = F.pad(state.mask, (0, 1), value=1)
        return self.scores(self.forward_with_cache(tokens[:, None], state)[:, -1])
