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

from zoo.nn.cache import KeyValueCache
from zoo.nn.heads import NextToken

Memory = tuple[Tensor, Tensor]  # keys and values of a source, (batch, heads, tokens, head) each


class State:
    """What is kept between the steps of generation.

    Args:
        cache: keys and values of the tokens that were read.
        mask: (batch, tokens), zero for padding, or ``None`` where there is none: of all tokens,
            or of the source where there is one.
        memory: keys and values of the source for each block of the decoder.
    """

    def __init__(
        self, cache: KeyValueCache, mask: Tensor | None, memory: Sequence[Memory] = ()
    ) -> None:
        self.cache, self.mask, self.memory = cache, mask, list(memory)
        self._given: Tensor | None = None  # of each row, the one of ``begin`` that it came from

    def select(self, rows: Tensor) -> None:
        """Keep some rows of the batch, in the order given."""
        given = rows if self._given is None else self._given[rows]
        self.cache.select(rows)
        if self._given is not None and torch.equal(given, self._given):
            return  # beams of one text share what is kept of its source, and where it is padded
        self.memory = [(keys[rows], values[rows]) for keys, values in self.memory]
        self.mask = None if self.mask is None else self.mask[rows]
        self._given = given


class Writer(NextToken, ABC):
    """A part of models that write, which makes them a ``zoo.generation.Decoder``.

    Attributes:
        state_type: what is kept between the steps.
    """

    state_type: ClassVar[type[State]] = State

    @abstractmethod
    def begin(self, inputs: Mapping[str, Tensor], room: int) -> State:
        """Return a state before any token is read; a source is read here, if there is one.

        Args:
            inputs: see ``zoo.generation.Decoder.prefill``.
            room: see there.
        """

    @abstractmethod
    def read(self, tokens: Tensor, state: Any) -> Tensor:
        """Read more tokens of each row.

        Args:
            tokens: (batch, tokens), int64.
            state: of ``state_type``, changed in place. A mask of all tokens tells of these, too.

        Returns:
            what ``scores`` reads, (batch, tokens, hidden).
        """

    def first(self, input_ids: Tensor) -> Tensor:
        """Return what is read first, (batch, tokens); here the inputs, (batch, tokens)."""
        return input_ids

    def prefill(self, inputs: Mapping[str, Tensor], room: int) -> tuple[Tensor, State]:
        """See ``zoo.generation.Decoder``."""
        state = self.begin(inputs, room)
        hidden = self.read(self.first(inputs["input_ids"]), state)
        return self.scores(hidden[:, -1]), state

    def step(self, tokens: Tensor, state: State) -> Tensor:
        """See ``zoo.generation.Decoder``; what was written is no padding."""
        if state.mask is not None and not state.memory:
            state.mask = F.pad(state.mask, (0, 1), value=1)
        return self.scores(self.read(tokens[:, None], state)[:, -1])
