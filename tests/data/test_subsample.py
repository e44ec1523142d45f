"""Sampling of texts for tokenizer training: all of a small input, a bounded part of a large one."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.making import built, files_of, paragraphs
from zoo.data import tokenizer as module
from zoo.data.tokenizer import (
    PIECE_CHARS,
    SAMPLE_CHARS,
    Texts,
    TokenizerToTrain,
    count_characters,
    mix_texts,
    subsample,
)
from zoo.plugins import get_family


def batches(texts: list[str], size: int = 7) -> Texts:
    return lambda: [texts[k : k + size] for k in range(0, len(texts), size)]


def flat(texts: Texts) -> list[str]:
    return [text for batch in texts() for text in batch]


def test_small_texts_are_not_sampled() -> None:
    texts = batches(paragraphs())
    total = sum(map(len, paragraphs()))
    assert list(subsample(texts, total)()) == texts()
    assert flat(subsample(texts, total // 2)) != paragraphs()


def test_texts_are_read_once_or_twice() -> None:
    reads = []

    def texts() -> list[list[str]]:
        reads.append(1)
        return [paragraphs()]

    total = sum(map(len, paragraphs()))
    for most, count in ((total, 1), (total // 2, 2)):
        reads.clear()
        sample = subsample(texts, most)
        assert flat(sample) and flat(sample) and len(reads) == count


@settings(deadline=None)
@given(st.lists(st.integers(0, 300), min_size=1, max_size=200), st.integers(1, 2000))
def test_a_sample_is_as_large_as_is_asked_and_in_order(sizes: list[int], most: int) -> None:
    texts = [f"{number:04}" + " " * size for number, size in enumerate(sizes)]
    sample = flat(subsample(batches(texts), most))
    assert [text for text in texts if text in set(sample)] == sample
    if sum(map(len, texts)) > most:
        assert most - 304 <= sum(map(len, sample)) <= most + 304
    else:
        assert sample == texts


def test_a_sample_is_from_all_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PIECE_CHARS", 50)
    words = [f"word{number:05}" for number in range(20_000)]
    texts = [" ".join(words[:15_000]), *words[15_000:]]  # one long text, and many short ones
    sample = flat(subsample(batches(texts), 20_000))
    numbers = [int(word[4:]) for text in sample for word in text.split()]
    assert numbers == sorted(set(numbers))  # no word is cut or repeated
    assert 2000 <= len(numbers) <= 2230  # 10 characters each, or 9 without a space
    long = [n for n in numbers if n < 15_000]
    assert np.diff([0, *long, 15_000]).max() < 150
    assert np.diff([15_000, *numbers[len(long) :], 20_000]).max() < 30


def test_memory_is_that_of_the_sample() -> None:
    def texts() -> Iterator[list[str]]:
        for number in range(400):
            yield [f"{number} " * (PIECE_CHARS // 2)]  # 20 million characters in all

    tracemalloc.start()
    sample = flat(subsample(texts, 400_000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sum(map(len, sample)) <= 400_000 + PIECE_CHARS
    assert peak < 2_000_000


@pytest.mark.by_default("bert", "roberta")
@pytest.mark.parametrize(("family", "kind"), [("bert", None), ("roberta", None), ("t5", None)])
def test_a_corpus_that_fits_has_the_tokenizer_of_all_its_texts(
    family: str, kind: str | None
) -> None:
    texts, total = batches(paragraphs()), sum(map(len, paragraphs()))
    made = [
        TokenizerToTrain.for_family(get_family(family), vocab_size=700, sample_chars=sample)
        .make(texts)
        .json
        for sample in (total, 10 * total, total // 4)
    ]
    assert made[0] == made[1] != made[2]


@pytest.mark.long
def test_a_corpus_records_the_training_of_its_tokenizer(tmp_path: Path) -> None:
    path = tmp_path / "texts.txt"
    path.write_text("\n\n".join(paragraphs()), encoding="utf-8")
    of = get_family("bert")
    usual, small, again = (
        built(
            tmp_path / str(number),
            path,
            tokenizer=TokenizerToTrain.for_family(of, vocab_size=500, sample_chars=most),
        )
        for number, most in enumerate((SAMPLE_CHARS, 5000, 5000))
    )
    assert "sample" not in usual.record.settings["tokenizer"]
    assert small.record.settings["tokenizer"]["sample"] == 5000
    assert usual.tokenizer_json != small.tokenizer_json
    assert files_of(small.path) == files_of(again.path)


def test_sources_have_their_shares_of_the_characters() -> None:
    """A large source is sampled, a small one repeated: counted by a letter of each."""
    texts = {"a": batches(["a" * 99 + " "] * 3000), "b": batches(["b" * 99 + " "] * 300)}
    characters = {name: count_characters(source) for name, source in texts.items()}
    assert characters == {"a": 300_000, "b": 30_000}
    for weight, limit in ((0.6, 10**9), (0.6, 100_000), (0.05, 10**9), (1.0, 10**9)):
        shares = {"a": 1 - weight, "b": weight}
        mixed = "".join(flat(mix_texts(texts, characters, shares, limit)))
        total = min(limit, 330_000)
        assert len(mixed) == pytest.approx(total, abs=2 * PIECE_CHARS)
        assert mixed.count("b") / len(mixed) == pytest.approx(0.99 * weight, abs=0.02)
        assert mixed.count("a") / len(mixed) == pytest.approx(0.99 * (1 - weight), abs=0.02)
