"""Vocabulary properties that objectives use, compared with the tokenizers library."""

import unicodedata
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, processors

from tests.objectives.pieces import CLS, MASK, PAD, SEP, SIZE, WORDS, goes_on, numbers
from zoo.errors import UsageError
from zoo.objectives.examples.vocabulary import TokenizerView
from zoo.plugins import get_family
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
    ids, types, is_text = WORDS.pair_template.wrap(first, second)
    expected = WORDS.tokenizer.encode("w5 w7", "w8 w10 w11")
    assert ids.tolist() == expected.ids
    assert types.tolist() == expected.type_ids
    assert is_text.tolist() == [text is not None for text in expected.sequence_ids]


def test_a_frame_of_two_tokens_between_texts() -> None:
    view = vocabulary(["<s>", "a"])
    view.tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s> <s> $B <s>", special_tokens=[("<s>", 0)]
    )
    assert view.single_template.special_tokens == ((0,), ())
    assert view.pair_template.special_tokens == ((0,), (0, 0), (0,))
    assert view.single_template.wrap(*numbers([1]))[0].tolist() == [0, 1]


def test_no_frame() -> None:
    assert vocabulary(["<unk>", "a"]).single_template.special_tokens == ((), ())


def test_roles() -> None:
    assert (WORDS.special_token_id("mask"), WORDS.pad_id) == (MASK, PAD)
    view = vocabulary(["<unk>", "a"])
    assert view.pad_id == 0
    with pytest.raises(UsageError, match="the tokenizer has no mask token"):
        view.special_token_id("mask")


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
    starts = vocabulary(tokens).starts_word
    assert np.flatnonzero(~starts).tolist() == goes


def is_start_piece_sp(piece: str) -> bool:
    """``_is_start_piece_sp`` of create_pretraining_data.py in google-research/albert."""
    special_pieces = set('!"#$%&()*+,-./:;?@[\\]^_`{|}~')
    english_chars = set("abcdefghijklmnopqrstuvwxyz")
    return (
        piece.startswith("\u2581")
        or piece.startswith("<")
        or piece in special_pieces
        or not all(str(i).lower() in english_chars.union(special_pieces) for i in piece)
    )


def part_of_whole_word(piece: str) -> bool:
    """``SPMTokenizer.part_of_whole_word`` of deberta/spm_tokenizer.py in microsoft/DeBERTa."""
    if len(piece) == 1:
        cp, cat = ord(piece), unicodedata.category(piece)
        ascii_punctuation = 33 <= cp <= 47 or 58 <= cp <= 64 or 91 <= cp <= 96 or 123 <= cp <= 126
        if cat in ("Zs",) or cat.startswith(("C", "P")) or ascii_punctuation:
            return False
    return not piece.startswith("\u2581")


RULES: dict[str, Callable[[str], bool]] = {
    "albert": is_start_piece_sp,
    "deberta": lambda piece: not part_of_whole_word(piece),
    # is_beginning_of_word of fairseq/data/encoders/sentencepiece_bpe.py
    "roberta": lambda piece: piece.startswith("\u2581"),
}
PIECES = ["\u2581play", "ing", ",", "\u2581,", "--", "'s", "'", "s'", "\u00e9", "12", "3", "."]
PIECES += ["<0x0A>", "\u2581", "\u2014", "\u20ac", "\u00a0", "\x07", "=", "a=b", "(", ").", "^"]


@pytest.mark.parametrize("family", RULES)
def test_where_words_of_sentencepiece_start(family: str) -> None:
    tokens = ["<unk>", *PIECES]
    view = vocabulary(tokens)
    view.text_starts_word = get_family(family).starts_word
    starts = view.starts_word[1:].tolist()
    assert starts == [RULES[family](piece) for piece in PIECES]


@pytest.mark.by_default("roberta", "deberta")
@pytest.mark.parametrize("family", RULES)
@settings(deadline=None)
@given(piece=st.text(min_size=1, max_size=3))
def test_where_words_of_any_pieces_start(family: str, piece: str) -> None:
    text = piece.replace("\u2581", " ")
    spelled = text.replace(" ", "\u2581")
    assert get_family(family).starts_word(text) == RULES[family](spelled)


@pytest.mark.parametrize(
    ("family", "starts"),
    [
        # is_beginning_of_word of fairseq/data/encoders/gpt2_bpe.py: decode(x).startswith(" ")
        ("roberta", [True, False, False, True, False, False, True]),
        # part_of_whole_word of deberta/gpt2_tokenizer.py, of the decoded token
        ("deberta", [True, False, True, True, False, True, True]),
    ],
)
def test_where_words_of_bytes_start(family: str, starts: list[bool]) -> None:
    pieces = ["\u0120play", "ing", ",", "\u0120,", "\u00e2\u0122", "\u00e2\u0122\u0136", "\u0120"]
    view = vocabulary(["<s>", *pieces])  # the last but one is an em dash, before it a part of one
    view.text_starts_word = get_family(family).starts_word
    assert view.starts_word[1:].tolist() == starts


def test_where_words_of_pieces_start() -> None:
    assert WORDS.starts_word.tolist() == [not goes_on(number) for number in range(SIZE)]
