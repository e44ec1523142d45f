"""Token ids from the cache of words are those that the tokenizer gives to whole texts."""

import json
import random
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tokenizers import AddedToken, Regex, Tokenizer, pre_tokenizers

from tests.data.making import paragraphs, trained
from tests.tokenizers.texts import torture
from tests.tokenizers.trained import padded
from zoo.data import word_cache as module
from zoo.data.encoding import DocumentTokenizer, EncodedDocuments, join_lines
from zoo.data.tokenizer import ExistingTokenizer
from zoo.data.word_cache import MAX_WORD_CHARACTERS, WordCache
from zoo.plugins import get_family
from zoo.tokenizers import SourceFiles, tokenizer_info

ODD = [
    *"aé1.,'\"-Ωσς中한ก\u0e33ुअ",
    "don't",
    "``quoted''",
    "\u0301",  # a combining accent
    "e\u0301",
    "\u0308x\u0308",
    "\u200d\U0001f468\u200d\U0001f469\u200d\U0001f467",
    "\U0001f44d\U0001f3fd",
    "\U0001f3fd",  # a modifier
    "\ufe0f",
    "\u0600",  # a character that combines with the next one
    "\u0d4e",
    "\uff9e",
    "\u00a8",  # decomposes to a space and an accent
    "\ufc5e",
    "\ufdfa",  # decomposes to words
    "\u1100\u1161",
    "\u2581",
    "\u2581b",
    "ﬁ½①",
    "[MASK]",
    "[CLS]x",
    "<s>",
    "</s>",
    "<extra_id_0>",
    "x" * (MAX_WORD_CHARACTERS + 1),
    "https://example.org/a?b=c&d",
    "ΣΊΣΥΦΟΣ",
    "İstanbul",
]
BREAKS = [" ", " ", " ", " ", "", "  ", "   ", "\t", "\u00a0", "\u3000", "\u200b", "\r", "\x1c"]
BREAKS += ["\x00", "\u2028", ". ", ".\u00a0", "! ", "\n", "\n\n"]
texts = st.lists(
    st.tuples(st.sampled_from(ODD) | st.text(max_size=3), st.sampled_from(BREAKS)), max_size=12
).map(lambda pairs: "".join(part for pair in pairs for part in pair))


@cache
def piece_model() -> ExistingTokenizer:
    """Return the tokenizer of a SentencePiece model with a map of characters."""
    family = get_family("t5")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "spiece.model").write_bytes(padded())
        files = SourceFiles(Path(folder))
        tokenizer = family.tokenizer(files)
        info = tokenizer_info(files, tokenizer, family.special_tokens)
    return ExistingTokenizer(tokenizer.to_str().encode(), info)


def with_pre_tokenizer(pre_tokenizer: Any) -> ExistingTokenizer:
    """Return a Unigram tokenizer with another pre-tokenizer."""
    original = trained("t5")
    tokenizer = Tokenizer.from_buffer(original.json)
    tokenizer.pre_tokenizer = pre_tokenizer
    return ExistingTokenizer(tokenizer.to_str().encode(), original.info)


def metaspace(scheme: Any) -> ExistingTokenizer:
    return with_pre_tokenizer(pre_tokenizers.Metaspace("\u2581", prepend_scheme=scheme))


MAKERS: dict[str, Callable[[], ExistingTokenizer]] = {
    "WordPiece": lambda: trained("bert"),
    "WordPiece in lower case": lambda: trained("bert", lowercase=True),
    "bytes": lambda: trained("gpt"),
    "bytes without accents": lambda: trained("gpt", strip_accents=True),
    "bytes, trimmed offsets": lambda: trained("roberta"),
    "Unigram": lambda: trained("t5"),
    "Unigram in lower case": lambda: trained("albert", lowercase=True),
    "a map of characters": piece_model,
    "words": lambda: trained("elmo"),
    "Metaspace, always": lambda: metaspace("always"),
    "Metaspace, first": lambda: metaspace("first"),
    "Metaspace, never": lambda: metaspace("never"),
}


def coders(name: str, splitter: str = "rule") -> tuple[DocumentTokenizer, DocumentTokenizer]:
    """Return a tokenizer of documents with the cache, and one without."""
    tokenizer = MAKERS[name]()
    cached = DocumentTokenizer(tokenizer.json, tokenizer.info, splitter, "uint16")
    plain = DocumentTokenizer(tokenizer.json, tokenizer.info, splitter, "uint16")
    plain.__dict__["_word_cache"] = None
    assert cached._word_cache is not None
    return cached, plain


def assert_equal(one: EncodedDocuments, other: EncodedDocuments) -> None:
    for field in ("tokens", "sentences", "documents"):
        np.testing.assert_array_equal(getattr(one, field), getattr(other, field))
        assert getattr(one, field).dtype == getattr(other, field).dtype


# enough words for the cache, whatever texts are drawn
MANY_WORDS = " ".join(f"{letter}e" for letter in ascii_lowercase)


@pytest.mark.by_default("WordPiece", "bytes", "Unigram in lower case", "a map of characters")
@pytest.mark.parametrize("splitter", ["rule", "line"])
@pytest.mark.parametrize("name", MAKERS)
def test_odd_texts_have_equal_ids(name: str, splitter: str) -> None:
    cached, plain = coders(name, splitter)

    # A word is only added where most words of a batch are known: documents are repeated.
    @given(st.lists(texts, min_size=1, max_size=3))
    @example([MANY_WORDS])
    @example(["a \u0301b", "a\u00a0 b", "a \u00a0b", "a.  B", "x " * 70])
    def check(documents: list[str]) -> None:
        documents = documents * 4
        assert_equal(cached.encode(documents), plain.encode(documents))

    check()
    assert cached._word_cache is not None and len(cached._word_cache.ids_by_word) > 20


@pytest.mark.by_default("WordPiece", "bytes", "Unigram")
@pytest.mark.parametrize("name", MAKERS)
def test_prose_has_equal_ids(name: str) -> None:
    cached, plain = coders(name)
    documents = [*paragraphs(), *torture()] * 2
    assert_equal(cached.encode(documents), plain.encode(documents))
    words = cached._word_cache
    assert words is not None and len(words.ids_by_word) > 200
    # Once the words are known, nothing else is tokenized, but where three spaces follow each other.
    simple = [text for text in map(join_lines, paragraphs()) if "   " not in text]
    assert len(simple) > 30
    assert None not in words.encode(simple, [[(0, len(text))] for text in simple])


def test_the_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_WORDS", 100)
    cached, plain = coders("WordPiece")
    draw = random.Random(0)
    for _ in range(20):
        words = [f"word{draw.randrange(10_000)}" for _ in range(30)]
        documents = [" ".join(words)] * 3
        assert_equal(cached.encode(documents), plain.encode(documents))
        assert cached._word_cache is not None and len(cached._word_cache.ids_by_word) <= 100


def test_texts_of_new_words_are_not_added() -> None:
    cached, plain = coders("WordPiece")
    documents = [" ".join(f"{number}" for number in range(1000))]
    assert_equal(cached.encode(documents), plain.encode(documents))
    assert cached._word_cache is not None and not cached._word_cache.ids_by_word


def test_other_tokenizers_have_no_cache() -> None:
    def has_cache(tokenizer: Tokenizer) -> bool:
        definition = tokenizer.to_str().encode()
        return WordCache.for_tokenizer(tokenizer, definition, np.arange(9)) is not None

    def wordpiece() -> Tokenizer:
        return Tokenizer.from_buffer(trained("bert").json)

    assert has_cache(wordpiece())
    tokenizer = wordpiece()
    tokenizer.add_tokens([AddedToken("New York")])
    assert not has_cache(tokenizer)
    splitters = [
        pre_tokenizers.Split(Regex("o"), "removed"),
        pre_tokenizers.ByteLevel(use_regex=False),
        pre_tokenizers.Metaspace(split=False),
        pre_tokenizers.Sequence([pre_tokenizers.Split(Regex("o"), "removed")]),
    ]
    for splitter in splitters:
        tokenizer = wordpiece()
        tokenizer.pre_tokenizer = splitter
        assert not has_cache(tokenizer), splitter
    definition = json.loads(wordpiece().to_str())
    definition["normalizer"] = {"type": "Strip", "strip_left": True, "strip_right": True}
    assert not has_cache(Tokenizer.from_str(json.dumps(definition)))


@pytest.mark.by_default("WordPiece", "bytes", "Unigram")
@pytest.mark.parametrize("name", MAKERS)
def test_texts_without_spaces_have_the_ids_of_the_library(name: str) -> None:
    """Also next to texts of several sentences, whose tokens are found by their offsets."""
    cached, _ = coders(name)
    draw = random.Random(0)
    documents = []
    for _ in range(40):
        characters = draw.choices("猫坐在垫子上看见七只小灰鼠跑过石头中한ก", k=90)
        documents.append("".join(characters) + draw.choice(["。", ". A B. C", " 猫。", ""]))
    tokenizer = Tokenizer.from_buffer(cached.json)
    tokenizer.encode_special_tokens = True
    expected: list[int] = []
    for document in documents:
        expected += tokenizer.encode(document, add_special_tokens=False).ids
    encoded = cached.encode(documents)
    assert encoded.tokens.tolist() == expected
    assert len(encoded.documents) == len(documents)
    assert encoded.sentences.sum() == len(expected)
