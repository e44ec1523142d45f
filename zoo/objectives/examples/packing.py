"""Packing of several segments with special tokens into one row of input arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from zoo.data.corpus import Split
from zoo.data.packing import RowPlan, cut_documents
from zoo.objectives.examples.vocabulary import Ids, TokenizerView

Text = tuple[Ids, Ids, NDArray[np.bool_]]


@dataclass(frozen=True)
class PackedRow:
    """A row of packed segments before masking; arrays are (length,)."""

    input_ids: Ids  # token ids, padded at the end
    document_ids: Ids  # segment of each token, from 1; 0 for padding
    position_ids: Ids  # position of each token in its segment, from 0
    token_type_ids: Ids  # token type of each token
    is_text: NDArray[np.bool_]  # true for tokens of the text, false for special tokens and padding
    start_positions: Ids  # start of each segment, (segments,)
    # weight of each token in the selection of tokens to mask; ``None`` for equal ones
    mask_weights: NDArray[np.float64] | None = None

    def weighted(self, weights: NDArray[np.float64] | None) -> "PackedRow":
        """Return the row with the weights of its tokens, out of all tokens' weights."""
        if weights is None:
            return self
        return replace(self, mask_weights=weights[self.input_ids])

    def arrays(self, *, token_types: bool) -> dict[str, Ids]:
        """Return the input arrays of the model, with or without token types."""
        arrays = {
            "input_ids": self.input_ids,
            "document_ids": self.document_ids,
            "position_ids": self.position_ids,
        }
        return {**arrays, "token_type_ids": self.token_type_ids} if token_types else arrays


def without_special_tokens(ids: Ids) -> Text:
    """Return a segment without special tokens, (tokens,), as an argument of ``pack``."""
    return ids, np.zeros_like(ids), np.ones(len(ids), dtype=bool)


def pack(texts: Sequence[Text], *, length: int, pad: int) -> PackedRow:
    """Concatenate segments into a row."""
    ids, numbers, positions, types = (np.zeros(length, dtype=np.int64) for _ in range(4))
    is_text = np.zeros(length, dtype=bool)
    start_positions = []
    at = 0
    ids[:] = pad
    for number, (text, kinds, inner) in enumerate(texts, 1):
        span = slice(at, at + len(text))
        ids[span] = text
        types[span] = kinds
        is_text[span] = inner
        numbers[span] = number
        positions[span] = np.arange(len(text))
        start_positions.append(at)
        at += len(text)
    return PackedRow(
        ids, numbers, positions, types, is_text, np.array(start_positions, dtype=np.int64)
    )


class PackedDataset:
    """The rows of a split, packed with the special tokens of a single text."""

    def __init__(self, split: Split, vocabulary: TokenizerView, length: int, seed: int) -> None:
        self.split = split
        self.vocabulary = vocabulary
        self.length = length
        special_tokens = vocabulary.single_template.size
        self.plan: RowPlan = cut_documents(
            split, length=length, special_tokens=special_tokens, seed=seed
        )

    def __len__(self) -> int:
        return len(self.plan)

    def row(self, index: int) -> PackedRow:
        """Return a row without masks."""
        frame = self.vocabulary.single_template
        texts = [frame.wrap(self.split.read(*stretch)) for stretch in self.plan.row(index)]
        return pack(texts, length=self.length, pad=self.vocabulary.pad_id)
