"""Several framed texts in one row: the planes that models take, and what may be learnt from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from zoo.data.corpus import Split
from zoo.data.packing import PackingPlan, TemplateBudget, pack_documents
from zoo.objectives.examples.vocabulary import Ids, TokenizerView

Text = tuple[Ids, Ids, NDArray[np.bool_]]


@dataclass(frozen=True)
class PackedRow:
    """Texts in a row, before anything is hidden; each array is (length,).

    Attributes:
        input_ids: token numbers; the padding token at the end.
        document_ids: which of the row's texts a token is of, from 1; 0 for padding.
        position_ids: where in its text it stands, from 0.
        token_type_ids: its segment.
        is_text: whether it is the text's, and not one of the special tokens around it.
        start_positions: (texts,), where each text starts.
    """

    input_ids: Ids
    document_ids: Ids
    position_ids: Ids
    token_type_ids: Ids
    is_text: NDArray[np.bool_]
    start_positions: Ids

    def arrays(self, *, token_types: bool) -> dict[str, Ids]:
        """Return what the model takes, with or without segments."""
        found = {
            "input_ids": self.input_ids,
            "document_ids": self.document_ids,
            "position_ids": self.position_ids,
        }
        return {**found, "token_type_ids": self.token_type_ids} if token_types else found


def without_special_tokens(ids: Ids) -> Text:
    """Return a text that nothing stands around, (tokens,), as ``pack`` takes it."""
    return ids, np.zeros_like(ids), np.ones(len(ids), dtype=bool)


def pack(texts: Sequence[Text], *, length: int, pad: int) -> PackedRow:
    """Lay framed texts side by side.

    Args:
        texts: what ``SpecialTokensTemplate.put`` or ``plain`` returned for each.
        length: of the row.
        pad: the token that fills it up.
    """
    ids, numbers, places, types = (np.zeros(length, dtype=np.int64) for _ in range(4))
    own, firsts, at = np.zeros(length, dtype=bool), [], 0
    ids[:] = pad
    for number, (text, kinds, inner) in enumerate(texts, 1):
        there = slice(at, at + len(text))
        ids[there], types[there], own[there] = text, kinds, inner
        numbers[there], places[there] = number, np.arange(len(text))
        firsts.append(at)
        at += len(text)
    return PackedRow(ids, numbers, places, types, own, np.array(firsts, dtype=np.int64))


class PackedDataset:
    """A split laid out as stretches of text, each in the frame of a single text.

    Args:
        split: the corpus.
        vocabulary: the tokenizer's.
        length: of a row.
        seed: of the run.
    """

    def __init__(self, split: Split, vocabulary: TokenizerView, length: int, seed: int) -> None:
        self.split, self.vocabulary, self.length = split, vocabulary, length
        measure = partial(TemplateBudget, length, special_tokens=vocabulary.single_template.size)
        self.plan: PackingPlan = pack_documents(split, length=length, new_row=measure, seed=seed)

    def __len__(self) -> int:
        """Return how many rows there are."""
        return len(self.plan)

    def row(self, index: int) -> PackedRow:
        """Return a row, with nothing hidden."""
        frame = self.vocabulary.single_template
        texts = [frame.wrap(self.split.read(*stretch)) for stretch in self.plan.row(index)]
        return pack(texts, length=self.length, pad=self.vocabulary.pad_id)
