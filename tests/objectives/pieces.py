"""A vocabulary of word pieces, in which every third id continues a word, and rows of its tokens."""

import math
from collections.abc import Sequence

import numpy as np
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, pre_tokenizers, processors

from zoo.objectives.examples.packing import PackedRow, pack
from zoo.objectives.examples.vocabulary import Ids, TokenizerView
from zoo.tokenizers.info import TokenizerInfo

SIZE = 64
PAD, UNK, CLS, SEP, MASK = range(5)
ROLES = {"pad": "[PAD]", "unk": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}


def goes_on(number: int) -> bool:
    """Return ``True`` if a token continues a word."""
    return number > MASK and number % 3 == 0


def vocabulary(size: int = SIZE) -> TokenizerView:
    """Return a vocabulary with the template ``[CLS] A [SEP] B [SEP]``, B of token type 1."""
    pieces = [f"##{n}" if goes_on(n) else f"w{n}" for n in range(len(ROLES), size)]
    tokens = {token: number for number, token in enumerate([*ROLES.values(), *pieces])}
    tokenizer = Tokenizer(models.WordLevel(tokens, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.add_special_tokens([AddedToken(t, special=True) for t in ROLES.values()])
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", CLS), ("[SEP]", SEP)],
    )
    return TokenizerView(tokenizer, TokenizerInfo(special=dict(ROLES)), size)


WORDS = vocabulary()


def packed(*texts: Sequence[int], length: int = 0) -> PackedRow:
    """Return a packed row of texts with their special tokens."""
    framed = [WORDS.single_template.wrap(np.array(text, dtype=np.int64)) for text in texts]
    return pack(framed, length=length or sum(len(f[0]) for f in framed), pad=PAD)


def split_words(row: PackedRow) -> list[list[int]]:
    """Return the positions of each word, computed token by token."""
    words: list[list[int]] = []
    for place in np.flatnonzero(row.is_text).tolist():
        within = place > 0 and row.is_text[place - 1]
        if within and goes_on(int(row.input_ids[place])):
            words[-1].append(place)
        else:
            words.append([place])
    return words


ids = st.integers(MASK + 1, SIZE - 1)
rows = st.builds(
    lambda texts, more: packed(*texts, length=sum(len(t) + 2 for t in texts) + more),
    st.lists(st.lists(ids, min_size=1, max_size=20), min_size=1, max_size=5),
    st.integers(0, 9),
)


def binomial(count: int, of: int, p: float) -> bool:
    """Return ``True`` if a count is within five standard deviations of its expectation."""
    return abs(count - of * p) <= 5 * math.sqrt(of * p * (1 - p)) + 1


def numbers(*texts: Sequence[int]) -> list[Ids]:
    """Return texts as arrays of token ids."""
    return [np.array(text, dtype=np.int64) for text in texts]
