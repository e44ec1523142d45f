"""The number of characters that a tokenizer changes in the texts of a corpus."""

import unicodedata
from pathlib import Path
from typing import Any

import pytest

from tests.data.making import built, paragraphs
from zoo.data import normalization as module
from zoo.data.corpus import Corpus
from zoo.data.normalization import NormalizationRecord, NormalizationSample
from zoo.data.tokenizer import TokenizerToTrain, corpus_tokenizer_description
from zoo.plugins import get_family

TEXT = "Ärger im Café,\nnaïve Ideen.\n\nÜber\u00a0das Glück und 中文"


def corpus(path: Path, text: str, family: str = "bert", **options: Any) -> Corpus:
    (path / "texts.txt").write_text(text, encoding="utf-8")
    tokenizer = TokenizerToTrain.for_family(get_family(family), vocab_size=400, **options)
    return built(path / "corpus", path / "texts.txt", tokenizer=tokenizer)


def stripped(character: str) -> str:
    """Return a character in lower case, without its accent."""
    decomposed = unicodedata.normalize("NFD", character)
    return "".join(c for c in decomposed if unicodedata.category(c) != "Mn").lower()


@pytest.mark.parametrize(
    ("options", "change"),
    [
        ({}, str),
        ({"lowercase": True}, stripped),
        ({"lowercase": True, "strip_accents": False}, str.lower),
    ],
)
def test_changed_characters_are_those_that_differ(
    tmp_path: Path, options: dict[str, Any], change: Any
) -> None:
    made = corpus(tmp_path, TEXT, **options)
    characters = "".join(TEXT.split())
    changed = sum(change(character) != character for character in characters)
    record = NormalizationRecord(characters=len(characters), changed=changed, sampled=False)
    assert made.record.normalization == record
    assert corpus_tokenizer_description(made).endswith(f"; {record.description()}")
    if changed:
        assert record.description().startswith(f"{changed} of {len(characters)} characters (")


def test_removed_characters_count(tmp_path: Path) -> None:
    """A letter with a separate accent loses one of its two characters; a soft hyphen is dropped."""
    made = corpus(tmp_path, "cafe\u0301s and\u00ad so on", strip_accents=True)
    assert made.record.normalization == NormalizationRecord(characters=14, changed=2, sampled=False)


def test_a_byte_level_tokenizer_changes_nothing(tmp_path: Path) -> None:
    made = corpus(tmp_path, TEXT, "gpt")
    assert corpus_tokenizer_description(made).endswith(
        "case and accents kept; no character of the texts changes"
    )


def test_a_large_corpus_is_sampled_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "FULL_CHARACTERS", 1000)
    monkeypatch.setattr(module, "GAP_CHARACTERS", 5000)
    sample = NormalizationSample()
    documents = [f"Text{number} " * 10 for number in range(1000)]
    assert list(sample.watch(documents)) == documents
    numbers = [int(word[4:]) for word in sample.words]
    assert numbers[:10] == list(range(10)) and len(numbers) < 60
    assert max(b - a for a, b in zip(numbers, [*numbers[1:], 1000], strict=True)) < 100
    made = corpus(tmp_path, "\n\n".join(paragraphs() * 2), lowercase=True)
    record = made.record.normalization
    assert record is not None and record.sampled
    assert record.description().endswith("of a sample of the texts change")


def test_corpora_of_earlier_versions_have_no_count(tmp_path: Path) -> None:
    made = corpus(tmp_path, TEXT)
    made.record.normalization = None
    assert corpus_tokenizer_description(made).endswith("case and accents kept")
