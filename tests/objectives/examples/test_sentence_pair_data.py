"""Rows of sentence pairs: those of the former implementation, to the bit, and their cache."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.data.making import built, paragraphs
from tests.objectives.examples import former_sentence_pairs as former
from tests.objectives.making import objective
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.io.paths import home
from zoo.objectives.examples import sentence_pair_data
from zoo.objectives.examples.bin_packing import best_fit_decreasing
from zoo.objectives.examples.sentence_pair_data import (
    SentencePairRows,
    cached_pairs,
    consecutive_pairs,
    make_pairs,
    next_sentence_pairs,
)
from zoo.objectives.sentence_pairs import NextSentence, SentenceOrder

KINDS = {
    next_sentence_pairs: former.next_sentence_pairs,
    consecutive_pairs: former.consecutive_pairs,
}


def texts(count: int, *, most: int, longest: int, seed: int = 0) -> Split:
    """Return a split of documents of 1 to ``most`` sentences of 1 to ``longest`` tokens."""
    rng = np.random.default_rng(seed)
    documents = np.concatenate([[0], np.cumsum(rng.integers(1, most + 1, size=count))])
    sizes = rng.integers(1, longest + 1, size=documents[-1])
    sentences = np.concatenate([[0], np.cumsum(sizes)])
    tokens = np.arange(sentences[-1], dtype=np.uint32) % 40
    # Runs of earlier versions draw pairs one after another.
    return Split([tokens], sentences, documents, order="arrays")


def assert_equal(rows: SentencePairRows, expected: Any) -> None:
    for ours, theirs in zip((rows.rows, rows.spans, rows.labels), expected, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("kind", KINDS, ids=["next", "order"])
@pytest.mark.parametrize("seed", [0, 1, 2**40])
@pytest.mark.parametrize(
    ("most", "longest", "length", "copies"),
    [
        (9, 12, 32, 1),
        (9, 12, 32, 3),
        (1, 5, 16, 2),
        (2, 300, 128, 1),
        (40, 30, 512, 2),
        (5, 9, 5, 1),
    ],
)
def test_rows_are_those_of_the_former_implementation(
    kind: Any, seed: int, most: int, longest: int, length: int, copies: int, monkeypatch: Any
) -> None:
    monkeypatch.setattr(sentence_pair_data, "BLOCK_PAIRS", 97)
    split = texts(150, most=most, longest=longest, seed=seed % 7)
    options: Any = {"length": length, "special_tokens": 3, "dupe_factor": copies}
    ours = make_pairs(split, kind, rng=generator(seed, "pairs"), **options)
    expected = former.make_pairs(split, KINDS[kind], rng=generator(seed, "pairs"), **options)
    assert_equal(ours, expected)
    draw = former.uniform(generator(seed, "pairs")).__next__
    cut = 0
    for _ in range(copies):
        for start, end, other_start, other_end, _ in KINDS[kind](split, length - 3, draw):
            cut += end - start + other_end - other_start > length - 3
    assert ours.truncated.tolist() == [cut]
    assert len(ours.labels) > 50 or (kind is consecutive_pairs and most == 1)


@pytest.mark.parametrize("kind", KINDS, ids=["next", "order"])
def test_rows_of_a_corpus_on_disk(kind: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(sentence_pair_data, "CACHED_SENTENCES", 0)
    (tmp_path / "text.txt").write_text("\n\n".join(paragraphs()), "utf-8")
    corpus = built(tmp_path / "corpus", tmp_path / "text.txt")
    split = corpus.split("train", order="arrays")
    assert isinstance(split.sentences, np.memmap)
    options: Any = {"length": 64, "special_tokens": 3, "dupe_factor": 3}
    expected = former.make_pairs(split, KINDS[kind], rng=generator(0, "pairs"), **options)
    for _ in range(2):  # the second one is mapped
        assert_equal(cached_pairs(split, kind, seed=0, **options), expected)


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), max_size=120), st.integers(40, 70))
def test_packing_is_that_of_the_former_implementation(sizes: list[int], length: int) -> None:
    items = np.array(sizes, dtype=np.int64)
    ours = best_fit_decreasing(items, length)
    assert ours.tolist() == former.best_fit_decreasing(items, length).tolist()


# The cache


@pytest.fixture
def always_cached(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sentence_pair_data, "CACHED_SENTENCES", 0)


def entries() -> set[str]:
    folder = home() / "pairs"
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


@pytest.mark.usefixtures("always_cached")
@pytest.mark.parametrize("kind", [NextSentence, SentenceOrder])
def test_examples_from_the_cache_are_those_from_memory(kind: Any, monkeypatch: Any) -> None:
    split, task = texts(80, most=6, longest=9), objective(kind, dupe_factor=2)
    first: Any = task.dataset(split, 3)
    second: Any = task.dataset(split, 3)
    assert isinstance(second.pairs.spans, np.memmap) and len(entries()) == 1
    monkeypatch.setattr(sentence_pair_data, "CACHED_SENTENCES", 1 << 30)
    in_memory: Any = task.dataset(split, 3)
    assert not isinstance(in_memory.pairs.spans, np.memmap)
    assert len(first) == len(second) == len(in_memory) > 20
    for index in range(len(in_memory)):
        rows = [d.example(index, generator(1, index)) for d in (first, second, in_memory)]
        for name, array in rows[2].arrays.items():
            np.testing.assert_array_equal(rows[0].arrays[name], array)
            np.testing.assert_array_equal(rows[1].arrays[name], array)
        assert rows[0].values["pair_labels"].tolist() == rows[2].values["pair_labels"].tolist()


@pytest.mark.usefixtures("always_cached")
def test_an_entry_is_for_everything_that_the_pairs_depend_on() -> None:
    base: dict[str, Any] = {"length": 32, "special_tokens": 3, "seed": 0, "dupe_factor": 1}
    cases = [
        (texts(50, most=5, longest=9), next_sentence_pairs, base),
        (texts(50, most=5, longest=9, seed=1), next_sentence_pairs, base),
        (texts(50, most=5, longest=9), consecutive_pairs, base),
        *(
            (texts(50, most=5, longest=9), next_sentence_pairs, base | {name: value})
            for name, value in {
                "length": 33,
                "special_tokens": 4,
                "seed": 1,
                "dupe_factor": 2,
            }.items()
        ),
    ]
    for number, (split, kind, settings_) in enumerate(cases, 1):
        for _ in range(2):  # the second one is mapped
            rows = cached_pairs(split, kind, **settings_)
            assert len(entries()) == number
            options = {k: v for k, v in settings_.items() if k != "seed"}
            rng = generator(settings_["seed"], "pairs")
            assert_equal(rows, former.make_pairs(split, KINDS[kind], rng=rng, **options))


@pytest.mark.usefixtures("always_cached")
def test_another_version_of_the_code_or_of_numpy_makes_its_own(monkeypatch: Any) -> None:
    split = texts(50, most=5, longest=9)
    for name, value in (("VERSION", 0), ("__version__", "0.0"), ("VERSION", 99)):
        before = entries()
        monkeypatch.setattr(sentence_pair_data, name, value)
        cached_pairs(split, next_sentence_pairs, length=32, special_tokens=3, seed=0, dupe_factor=1)
        assert len(entries()) == len(before) + 1
    monkeypatch.setattr(np, "__version__", "9.9")
    cached_pairs(split, next_sentence_pairs, length=32, special_tokens=3, seed=0, dupe_factor=1)
    assert len(entries()) == 4


@pytest.mark.usefixtures("always_cached")
def test_pairs_of_a_plugins_generator_are_not_cached() -> None:
    def theirs(split: Split, room: int, draw: Any) -> Any:
        return next_sentence_pairs(split, room, draw)

    options: Any = {"length": 32, "special_tokens": 3, "seed": 0, "dupe_factor": 1}
    cached_pairs(texts(50, most=5, longest=9), theirs, **options)
    assert entries() == set()


def test_small_splits_leave_no_files() -> None:
    objective(NextSentence).dataset(texts(50, most=5, longest=9), 0)
    assert not Path(home(), "pairs").exists()
