"""Generation of text from left to right, as the Hub's library does it.

The model predicts a place ``<mask>`` after the text: its token is drawn, and the place moves on.
All tokens of a text see each other, so that a new one changes the hidden states of those before it.
With a memory (``use_mems``, the default), they are computed a second time when the next token is
known, and then kept (section 2.4 of arXiv:1906.08237): each step runs two tokens and the place.
Without one, each step runs the whole text.

The memory has all of a text, or its last ``mem_len`` tokens. The Hub's library would keep the first
``reuse_len`` tokens of a prompt and lose the others, where that is set, which is for segments of
pretraining; published configurations do not set it.
"""

from collections.abc import Mapping
from typing import cast

import torch
from torch import Tensor
from torch.nn import functional as F

from zoo_xlnet.backbone import XLNetBackbone, extend_memory

RECOMPUTED = 2  # tokens that run with the place; ``offset`` of prepare_inputs_for_generation


class TextState:
    """The texts so far, and their memory.

    Args:
        input_ids: (batch, tokens), int64.
        padding: (batch, tokens), bool, true for padding.

    Attributes:
        memory: hidden states of each block, and last which of them are of padding, (batch,
            tokens); ``None`` before the first step, and without a memory.
    """

    def __init__(self, input_ids: Tensor, padding: Tensor) -> None:
        self.input_ids = input_ids
        self.padding = padding
        self.memory: list[Tensor] | None = None

    def select(self, rows: Tensor) -> None:
        """Select rows of the batch; a row may be repeated."""
        self.input_ids = self.input_ids[rows]
        self.padding = self.padding[rows]
        if self.memory is not None:
            self.memory = [states[rows] for states in self.memory]

    def append(self, tokens: Tensor) -> None:
        """Add a token to each text, (batch,), int64."""
        self.input_ids = torch.cat((self.input_ids, tokens[:, None]), dim=1)
        self.padding = F.pad(self.padding, (0, 1))


class XLNetGenerationMixin(XLNetBackbone):
    """A language model that generates, a ``zoo.inference.generation.decoder.SessionDecoder``."""

    def prefill(
        self, inputs: Mapping[str, Tensor], max_new_tokens: int
    ) -> tuple[Tensor, TextState]:
        """Return the logits after the prompts, and the state; see ``Decoder``."""
        ids = inputs["input_ids"]
        mask = inputs.get("attention_mask")
        padding = torch.zeros_like(ids, dtype=torch.bool) if mask is None else mask == 0
        state = TextState(ids, padding)
        return self.next_scores(state), state

    def step(self, tokens: Tensor, state: TextState) -> Tensor:
        """Return the logits after one more token of each row; see ``Decoder``."""
        state.append(tokens)
        return self.next_scores(state)

    def next_scores(self, state: TextState) -> Tensor:
        """Return the logits of the next tokens, (batch, vocabulary), and extend the memory."""
        new = 0 if state.memory is None else -RECOMPUTED
        ids = F.pad(state.input_ids[:, new:], (0, 1), value=self.config.mask_token_id)
        padding = F.pad(state.padding[:, new:], (0, 1))
        memory = None
        memory_padding = None
        if state.memory is not None:
            *memory, memory_padding = state.memory
        inputs: list[Tensor] = []
        hidden = self._run(
            ids,
            padding[:, None],
            None,
            memory=memory,
            memory_padding=memory_padding,
            inputs=inputs,
        )
        if self.config.use_mems:
            states = extend_memory(state.memory, [*inputs, padding], self.config.mem_len, None)
            # the last two are of a token that runs again, and of the place
            state.memory = [tensor[:, :-RECOMPUTED] for tensor in states]
        return cast(Tensor, self.scores(hidden[:, -1]))  # type: ignore[operator]
