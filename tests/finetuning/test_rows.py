"""Tokenization of rows: long texts give the tokens of the whole, in bounded memory."""

from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from tests.data.making import trained
from tests.tokenizers.texts import prose, torture
from zoo.finetuning import rows
from zoo.finetuning.rows import chunks, tokenize
from zoo.tokenizers import TextTokenizer
from zoo.tokenizers.tokenizer import Text

FAMILIES = ("bert", "roberta", "gpt", "t5", "albert", "deberta", "modernbert")
INPUTS = ("input_ids", "token_type_ids")


def tokenizer_of(family: str) -> TextTokenizer:
    made = trained(family)
    return TextTokenizer(Tokenizer.from_buffer(made.json), made.info)


def long_texts() -> list[str]:
    """Return texts of all kinds: words, few spaces, no spaces, and only white space."""
    rng = np.random.default_rng(0)
    lines = [*(line for line in prose(2000) if line.strip()), *torture()]
    texts = [" ".join(rng.choice(lines, 40)) for _ in range(12)]
    texts += ["".join(torture()), "x" * 9000, " " * 9000, "a " * 4000, "\u0301 b" * 3000]
    return [*texts, "tail " + "word" * 3000, "one two"]


@pytest.mark.by_default("8-bert")
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [8, pytest.param(20, marks=pytest.mark.long)])
def test_of_a_long_text_the_beginning_has_the_same_tokens(
    family: str, length: int, monkeypatch: Any
) -> None:
    tokenizer, texts = tokenizer_of(family), long_texts()
    encoded: list[int] = []
    original = tokenizer.encode

    def counted(part: list[Text], **options: Any) -> Any:
        encoded.extend(map(len, part))
        return original(part, **options)

    monkeypatch.setattr(tokenizer, "encode", counted)
    kept = [number for number, text in enumerate(original(texts, max_tokens=length)) if text.n]
    texts = [texts[number] for number in kept]
    whole = original(texts, max_tokens=length)
    read = dict[int, Any]()
    ours = tokenize(
        texts, tokenizer, INPUTS, length, locations=["t"] * len(texts), read=read.__setitem__
    )
    assert ours.arrays["input_ids"].tolist() == [token for text in whole for token in text.ids]
    assert np.diff(ours.starts).tolist() == [text.n for text in whole]
    assert ours.truncated == sum(text.truncated > 0 for text in whole)
    for number, text in enumerate(whole):
        assert read[number].offsets == text.offsets and read[number].special == text.special
    if tokenizer.splits_at_spaces:
        assert sum(encoded) < sum(map(len, texts)) * 0.75


def test_a_tokenizer_that_cuts_the_start_reads_all() -> None:
    tokenizer = tokenizer_of("bert")
    assert tokenizer.splits_at_spaces
    left = TextTokenizer(
        tokenizer._tokenizer, type(tokenizer.info)(special={}, truncation_side="left")
    )
    assert not left.splits_at_spaces
    text = " ".join(prose(300))
    ours = tokenize([text], left, INPUTS[:1], 10, locations=["t"])
    assert ours.arrays["input_ids"].tolist() == left.encode([text], max_tokens=10)[0].ids


def test_texts_are_tokenized_in_chunks_of_few_characters(monkeypatch: Any) -> None:
    monkeypatch.setattr(rows, "CHUNK", 3)
    monkeypatch.setattr(rows, "CHUNK_CHARACTERS", 10)
    texts: list[Text] = ["a" * 4, "b" * 6, "c", ("d" * 30, "e"), "f", "g", "h", "i"]
    expected = [(0, texts[:2]), (2, texts[2:3]), (3, texts[3:4]), (4, texts[4:7]), (7, texts[7:])]
    assert list(chunks(texts)) == expected
    assert list(chunks([])) == []
