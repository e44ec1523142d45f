"""Incremental decoding of generated tokens."""

from collections.abc import Sequence

import pytest

from zoo.inference.generation.task import stream_text


def of_bytes(tokens: Sequence[int]) -> str:
    return bytes(tokens).decode("utf-8", errors="replace")


@pytest.mark.parametrize("text", ["plain", "na\u00efve caf\u00e9", "\u65e5\u672c \U0001f600!", ""])
def test_characters_are_told_whole(text: str) -> None:
    pieces = list(stream_text(text.encode(), of_bytes))
    assert "".join(pieces) == text
    assert pieces == list(text)


def test_what_never_becomes_a_character_is_told_at_the_end() -> None:
    assert list(stream_text(b"a\xe6\x97", of_bytes)) == ["a", "\ufffd"]


def test_what_stands_before_is_not_told() -> None:
    words = ["one", "two", "three"]

    def of_words(tokens: Sequence[int]) -> str:
        return " ".join(words[token] for token in tokens)

    assert list(stream_text([1, 2], of_words, before=[0])) == [" two", " three"]
    assert list(stream_text([1, 2], of_words)) == ["two", " three"]
