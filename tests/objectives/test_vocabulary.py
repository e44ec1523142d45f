"""Vocabulary properties that objectives use, compared with the tokenizers library."""

from collections.abc import Sequence

import numpy as np
import pytest
from tokenizers import AddedToken, Tokenizer, models, processors

from tests.objectives.pieces import CLS, MASK, PAD, SEP, SIZE, WORDS, goes_on, numbers
from zoo.errors import UsageError
from zoo.objectives.examples.vocabulary import TokenizerView
from zoo.tokenizers.info import TokenizerInfo


def vocabulary(tokens: Sequence[str], size: int = 0) -> TokenizerView:
    tokenizer = Tokenizer(models.WordLevel({t: n for n, t in enumerate(tokens)}, tokens[0]))
    tokenizer.add_special_tokens([AddedToken(tokens[0], special=True)])
    return TokenizerView(tokenizer, TokenizerInfo(special={"unk": tokens[0]}), size or len(tokens))


def test_frames() -> None:
    assert WORDS.single_template.special_tokens == ((CLS,), (SEP,))
    assert WORDS.single_template.token_types == (0, 0, 0)
    assert WORDS.pair_template.special_tokens == ((CLS,), (SEP,), (SEP,))
    assert WORDS.pair_template.token_types == (0, 0, 0, 1, 1)
    assert (WORDS.single_template.size, WORDS.pair_template.size) == (2, 3)


def test_a_template_adds_the_tokenizers_special_tokens() -> None:
    first, second = numbers([5, 7], [8, 10, 11])
    ids, types, own = WORDS.pair_template.wrap(first, second)
    expected = WORDS.tokenizer.encode("w5 w7", "w8 w10 w11")
    assert ids.tolist() == expected.ids
    assert types.tolist() == expected.type_ids
    assert own.tolist() == [text is not None for text in expected.sequence_ids]


def test_a_frame_of_two_tokens_between_texts() -> None:
    found = vocabulary(["<s>", "a"])
    found.tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> <s> $B <s>", special_tokens=[("<s>", 0)]
    )
    assert found.single_template.special_tokens == ((0,), ())
    assert found.pair_template.special_tokens == ((0,), (0, 0), (0,))
    assert found.single_template.wrap(*numbers([1]))[0].tolist() == [0, 1]


def test_no_frame() -> None:
    assert vocabulary(["<unk>", "a"]).single_template.special_tokens == ((), ())


def test_roles() -> None:
    assert (WORDS.special_token_id("mask"), WORDS.pad_id) == (MASK, PAD)
    found = vocabulary(["<unk>", "a"])
    assert found.pad_id == 0
    with pytest.raises(UsageError, match="the tokenizer has no mask token"):
        found.special_token_id("mask")


def test_special_and_ordinary_tokens_share_out_the_ids() -> None:
    assert WORDS.special_ids.tolist() == [0, 1, 2, 3, 4]
    assert WORDS.ordinary_ids.tolist() == list(range(5, SIZE))
    larger = vocabulary(["<unk>", "a", "b"], size=8)  # unused ids
    assert larger.ordinary_ids.tolist() == [1, 2]
    assert larger.starts_word.shape == (8,)


@pytest.mark.parametrize(
    ("tokens", "goes"),
    [
        (["[UNK]", "play", "##ing", "##", "#", "##s"], [2, 5]),
        (["<s>", "\u0120play", "ing", "\u0120", "s"], [2, 4]),
        (["<unk>", "\u2581play", "ing", "\u2581", "s"], [2, 4]),
        (["<unk>", "play</w>", "ing", "s</w>"], []),
    ],
)
def test_where_words_start(tokens: list[str], goes: list[int]) -> None:
    found = vocabulary(tokens).starts_word
    assert np.flatnonzero(~found).tolist() == goes


def test_where_words_of_pieces_start() -> None:
    assert WORDS.starts_word.tolist() == [not goes_on(number) for number in range(SIZE)]
