"""The tokenizer that keeps words."""

import pickle

import pytest

pytest.importorskip("datatrove")
from datatrove.utils.word_tokenizers import SpaCyTokenizer

from tests.cleaning.making import PROSE
from zoo.cleaning import words
from zoo.cleaning.words import KeepingTokenizer

TEXTS = [
    PROSE,
    "Dr. Smith's e-mail (smith@example.org) isn't here: it's 3.14% of http://a.b/c?d=e!",
    "  Two\nlines,\n\nand a third…  \t",
    "Zwei Sätze. „Über“ Äpfel 10km don't U.S.A. re-re-reading",
    PROSE.upper(),
]


@pytest.mark.parametrize("kept_characters", [0, 200, words.KEPT_CHARACTERS])
@pytest.mark.parametrize("language", ["en", pytest.param("de", marks=pytest.mark.long)])
def test_words_and_sentences_are_those_of_datatrove(
    language: str, kept_characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "KEPT_CHARACTERS", kept_characters)
    tokenizer = pickle.loads(pickle.dumps(KeepingTokenizer(language)))
    expected = SpaCyTokenizer(language)
    for text in TEXTS * 2:
        assert tokenizer.word_tokenize(text) == expected.word_tokenize(text)
        assert tokenizer.sent_tokenize(text) == expected.sent_tokenize(text)
        assert tokenizer.span_tokenize(text) == expected.span_tokenize(text)


@pytest.mark.parametrize("kept_characters", [0, words.KEPT_CHARACTERS])
def test_a_word_that_spacy_forgets_wrongly(
    kept_characters: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(words, "KEPT_CHARACTERS", kept_characters)
    tokenizer = KeepingTokenizer("fr")  # no other test uses it
    for index in range(300):  # words between use freed memory again
        assert tokenizer.word_tokenize("Le mot IS_ALPHA est là.")[2] == "IS_ALPHA"
        tokenizer.word_tokenize(" ".join(f"mot{index * number}" for number in range(50)))


def test_only_words_of_the_first_texts_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from datatrove.utils.word_tokenizers import load_word_tokenizer

    monkeypatch.setattr(words, "KEPT_CHARACTERS", 100)
    tokenizer = KeepingTokenizer("nl")  # no other test uses it
    tokenizer.word_tokenize("eerstewoord " * 10)
    tokenizer.word_tokenize("tweedewoord")
    vocabulary = load_word_tokenizer("nl").tokenizer.vocab
    assert "eerstewoord" in vocabulary
    assert "tweedewoord" not in vocabulary
