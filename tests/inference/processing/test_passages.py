"""Passages of documents: where they begin and end."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zoo.api import Model
from zoo.errors import UsageError
from zoo.inference.processing.passages import (
    PassageSplitter,
    split_paragraphs,
    split_sentences,
)
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.info import TokenizerInfo


def parts(text: str, spans: list[tuple[int, int]]) -> list[str]:
    return [text[start:end] for start, end in spans]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("One. Two! Three?", ["One.", "Two!", "Three?"]),
        ("Dr. Smith met J. Doe. They left.", ["Dr. Smith met J. Doe.", "They left."]),
        ("approx. 3.5 m of rope. e.g. this one", ["approx. 3.5 m of rope. e.g. this one"]),
        # A limit of the rule: abbreviations that it does not know end a sentence.
        ("He read Hist. Eng. The end.", ["He read Hist.", "Eng.", "The end."]),
        ("今日は晴れ。明日は「雨。」そう", ["今日は晴れ。", "明日は「雨。」", "そう"]),
        ("यह है। वह भी।", ["यह है।", "वह भी।"]),
        ("A title\n\nA text. More", ["A title", "A text.", "More"]),
        ("a line\nof one sentence", ["a line\nof one sentence"]),
        ("", []),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    stripped = [part.strip() for part in parts(text, split_sentences(text))]
    assert [part for part in stripped if part] == sentences


def test_paragraphs_end_at_blank_lines() -> None:
    text = "a\nb\n\nc\n \t\n\n\nd\r\n\r\ne"
    assert [part.strip() for part in parts(text, split_paragraphs(text))] == ["a\nb", "c", "d", "e"]


@pytest.fixture(scope="module")
def words(encoder: Model) -> TextTokenizer:
    """A tokenizer of pieces of words."""
    return encoder.tokenizer


def split(
    tokenizer: TextTokenizer, text: str, chunks: str, size: int | None, room: int
) -> list[str]:
    splitter = PassageSplitter(chunks, size, room, "a model")
    (encoded,) = tokenizer.encode([text], max_tokens=None)
    return parts(text, splitter.split(text, encoded))


def test_sizes_join_sentences_and_split_long_ones(words: TextTokenizer) -> None:
    text = "A cat sat. It slept. Then an unbelievably talkative parrot came, and spoke for long."
    assert split(words, text, "sentences", None, 100) == [
        "A cat sat.",
        "It slept.",
        "Then an unbelievably talkative parrot came, and spoke for long.",
    ]
    joined = split(words, text, "sentences", 8, 100)
    assert joined[0] == "A cat sat. It slept."  # 4 and 3 tokens
    # A sentence of more than 8 tokens is split between words.
    assert " ".join(joined[1:]) == text[len(joined[0]) + 1 :]
    assert split(words, text, "tokens", 100, 100) == [text]
    # So is a paragraph: 8 tokens are 4, 3 and a word.
    assert split(words, text, "paragraphs", None, 8)[0] == "A cat sat. It slept. Then"
    # One word of more tokens than a passage is split inside of it.
    assert "".join(split(words, "antidisestablishmentarianism" * 3, "tokens", 4, 100)) == (
        "antidisestablishmentarianism" * 3
    )


ALPHABET = "ab. \n\u3002\u00e9\u4e2d!\tZ"


@given(
    text=st.text(ALPHABET, max_size=60),
    chunks=st.sampled_from(["sentences", "tokens", "paragraphs"]),
    size=st.sampled_from([None, 1, 3, 9]),
    room=st.sampled_from([9, 30]),
)
def test_passages_have_all_of_a_text_and_fit(
    words: TextTokenizer, text: str, chunks: str, size: int | None, room: int
) -> None:
    splitter = PassageSplitter(chunks, size, room, "a model")
    (encoded,) = words.encode([text], max_tokens=None)
    spans = splitter.split(text, encoded)
    position = 0
    for start, end in spans:
        assert start >= position and not text[position:start].strip()
        position = end
    assert not text[position:].strip()
    limit = room if size is None else size
    starts = [
        offsets[0]
        for offsets, number in zip(encoded.offsets, encoded.sequence_ids, strict=True)
        if number is not None
    ]
    for start, end in spans:
        assert sum(start <= place < end for place in starts) <= limit


def test_tokens_that_begin_with_their_space() -> None:
    """Byte-level tokens include the space before a word, and passages do not."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {character: number for number, character in enumerate(alphabet)}
    definition = Tokenizer(models.BPE(vocabulary, []))
    definition.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer = TextTokenizer(definition, TokenizerInfo(special={}, max_tokens=None))
    text = "a b c  a b\n\nc d\u00e9 b"
    found = split(tokenizer, text, "tokens", 3, 30)
    # White space counts, and the two tokens of a character are not separated.
    assert found == ["a b", "c", "a", "b", "c", "d", "\u00e9", "b"]


def test_what_is_not_possible() -> None:
    cases: list[tuple[tuple[Any, Any, Any], str]] = [
        (("words", None, 9), "not split into 'words'"),
        (("tokens", 0, 9), "a passage of 0 tokens"),
        (("tokens", 10, 9), "a passage of 10 tokens is longer than the 9 that a model reads"),
        (("tokens", None, 0), "no room for text next to the prompt"),
    ]
    for arguments, message in cases:
        with pytest.raises(UsageError, match=message):
            PassageSplitter(*arguments, "a model")
