"""Vocabularies of whole words, and helpers that take rows apart."""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers

from zoo.data.corpus import Split
from zoo.objectives.base import Example
from zoo.objectives.examples.vocabulary import Ids, TokenizerView
from zoo.tokenizers.info import TokenizerInfo

ROLES = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>"}


def vocabulary(
    words: Sequence[str] = (),
    *,
    roles: Mapping[str, str] = ROLES,
    sentinels: int = 100,
    size: int | None = None,
) -> TokenizerView:
    """Return a vocabulary of special tokens, words, and sentinels in descending order."""
    marks = [f"<extra_id_{number}>" for number in reversed(range(sentinels))]
    special = list(dict.fromkeys(roles.values()))
    tokens = [*special, *words, *marks]
    tokenizer = Tokenizer(models.WordLevel({t: n for n, t in enumerate(tokens)}, roles["unk"]))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in [*special, *marks]])
    return TokenizerView(tokenizer, TokenizerInfo(special=dict(roles)), size or len(tokens))


def split(*documents: Sequence[int]) -> Split:
    """Return a split of documents of one sentence each."""
    return Split.from_documents([[list(document)] for document in documents])


def counted(lengths: Sequence[int], first: int = 3) -> Split:
    """Return a split of documents of distinct tokens, of the given lengths."""
    bounds = np.cumsum([first, *lengths])
    return split(*(range(a, b) for a, b in itertools.pairwise(bounds)))


def texts(ids: Ids, numbers: Ids) -> list[list[int]]:
    """Return the texts of a row, given the document id of each position."""
    return [ids[numbers == number].tolist() for number in range(1, numbers.max() + 1)]


def labels(row: Example, plane: str, numbers: str) -> list[list[int]]:
    """Return the labels of each text of a row; -1 at unlabelled positions."""
    name, positions = row.positions["label_positions"]
    assert name == plane
    all_labels = np.full(row.arrays[plane].shape, -1)
    all_labels[positions] = row.values["labels"]
    return texts(all_labels, row.arrays[numbers])


def spans(noise: NDArray[np.bool_]) -> int:
    """Return the number of noise spans."""
    return sum(1 for value, _ in itertools.groupby(noise.tolist()) if value)
