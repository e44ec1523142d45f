"""Sentence pairs: equal to those of a plain loop, best-fit packing, and the reference's losses."""

from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.families.parity import random_model
from tests.objectives.making import made, objective, one_a_row, reference_batch, small
from tests.objectives.pieces import CLS, PAD, SEP, SIZE, binomial
from zoo.conformance.hf_reference import reference_model
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.objectives import objective_type
from zoo.objectives.examples.bin_packing import best_fit_decreasing
from zoo.objectives.examples.sentence_pair_data import (
    Draw,
    consecutive_pairs,
    make_pairs,
    next_sentence_pairs,
    truncate_pairs,
    uniform,
)
from zoo.objectives.sentence_pairs import (
    NextSentence,
    SentenceOrder,
    SentencePairs,
)
from zoo.plugins import get_family

Document = list[list[int]]


def documents(count: int = 60, *, longest: int = 12, most: int = 9) -> list[Document]:
    """Return documents of distinct tokens."""
    rng, at = generator(0, "documents"), 0
    drawn_documents: list[Document] = []
    for sentences in rng.integers(1, most + 1, size=count):
        drawn_documents.append([])
        for size in rng.integers(1, longest + 1, size=sentences).tolist():
            drawn_documents[-1].append(list(range(at, at + size)))
            at += size
    return drawn_documents


def drawn(seed: int) -> Draw:
    return uniform(generator(seed))


def pairs_of(texts: list[Document], kind: str, room: int, draw: Draw) -> Iterator[Any]:
    """Return pairs by the released procedure, implemented with lists, before truncation."""
    for number, document in enumerate(texts):
        target = 2 + int(draw() * (room - 1)) if draw() < 0.1 else room
        chunk: list[list[int]] = []
        at = 0
        while at < len(document):
            chunk.append(document[at])
            if at == len(document) - 1 or sum(map(len, chunk)) >= target:
                cut = 1 + int(draw() * (len(chunk) - 1))
                first = list(chain.from_iterable(chunk[:cut]))
                if len(chunk) == 1 or draw() < 0.5:
                    other = int(draw() * (len(texts) - 1))
                    other += other >= number
                    second: list[int] = []
                    for sentence in texts[other][int(draw() * len(texts[other])) :]:
                        second = second + sentence
                        if len(second) >= target - len(first):
                            break
                    yield first, second, 1
                    at -= len(chunk) - cut
                else:
                    yield first, list(chain.from_iterable(chunk[cut:])), 0
                chunk = []
            at += 1


@pytest.mark.parametrize("room", [5, 20, 61, 200])
def test_next_sentences_are_those_of_the_released_procedure(room: int) -> None:
    texts = documents()
    split = Split.from_documents(texts)
    ours = [
        (split.read(a, b).tolist(), split.read(c, d).tolist(), label)
        for a, b, c, d, label in next_sentence_pairs(split, room, drawn(room))
    ]
    assert ours == list(pairs_of(texts, "next", room, drawn(room)))
    assert {label for _, _, label in ours} == {0, 1}


def test_half_of_the_pairs_are_random_where_there_is_a_choice() -> None:
    cuts = list(next_sentence_pairs(Split.from_documents(documents(300, most=40)), 40, drawn(0)))
    free = [label for a, b, _, _, label in cuts if b - a < 40]
    assert 0.5 < np.mean(free) < 0.6  # a single last sentence has a random successor


def test_texts_in_order_follow_each_other_and_leave_no_sentence_out() -> None:
    texts = documents(200)
    split = Split.from_documents(texts)
    pairs = list(consecutive_pairs(split, 30, drawn(1)))
    for a, b, c, d, label in pairs:
        assert a < b == c < d and label == 0
    starts = set(split.sentences.tolist())
    for a, b, _, d, _ in pairs:
        assert {a, b, d} <= starts
    seen = {token for a, _, _, d, _ in pairs for token in range(a, d)}
    expected = {token for doc in texts if len(doc) > 1 for sentence in doc for token in sentence}
    assert seen == expected


@settings(deadline=None)
@given(
    st.lists(st.tuples(st.integers(1, 60), st.integers(1, 60)), min_size=1, max_size=20),
    st.integers(2, 40),
    st.integers(0, 2**32),
)
def test_long_pairs_are_truncated(sizes: list[tuple[int, int]], room: int, seed: int) -> None:
    spans = np.array([(100, 100 + a, 500, 500 + b) for a, b in sizes])
    for (a, b), cut in zip(
        sizes, truncate_pairs(spans, room, generator(seed)).tolist(), strict=True
    ):
        while a + b > room:  # as in truncate_seq_pair
            a, b = (a - 1, b) if a > b else (a, b - 1)
        assert (cut[1] - cut[0], cut[3] - cut[2]) == (a, b)
        assert cut[0] >= 100 and cut[2] >= 500 and min(a, b) > 0


def test_either_end_is_cut_off() -> None:
    spans = np.tile([0, 100, 200, 300], (1000, 1))
    front = truncate_pairs(spans, 100, generator(0))[:, 0]
    assert binomial(int(front.sum()), 1000 * 50, 0.5)


def tightest(sizes: list[int], length: int) -> list[int]:
    """Pack by best fit with a linear search over all rows."""
    free: list[int] = []
    for size in sorted(sizes, reverse=True):
        fitting = [k for k, room in enumerate(free) if room >= size]
        if fitting:
            free[min(fitting, key=lambda k: free[k])] -= size
        else:
            free.append(length - size)
    return sorted(free)


@settings(deadline=None)
@given(st.lists(st.integers(1, 40), min_size=1, max_size=60))
def test_rows_are_filled_by_best_fit(sizes: list[int]) -> None:
    row_of = best_fit_decreasing(np.array(sizes), 40)
    used = np.bincount(row_of, weights=sizes)
    assert sorted((40 - used).astype(int).tolist()) == tightest(sizes, 40)


@pytest.mark.parametrize("length", [128, 512])
@pytest.mark.parametrize("maker", [next_sentence_pairs, consecutive_pairs])
def test_hardly_any_padding_on_paragraphs(maker: Any, length: int) -> None:
    split = Split.from_documents(documents(2000, longest=40, most=8))
    pairs = make_pairs(
        split, maker, length=length, special_tokens=3, rng=generator(0), dupe_factor=1
    )
    used = (pairs.spans[:, 1::2] - pairs.spans[:, ::2]).sum() + 3 * len(pairs.spans)
    assert used / (len(pairs) * length) > 0.97


# Rows


def corpus(count: int = 120) -> Split:
    """Return documents whose sentences repeat one token, which identifies the document."""
    rng = generator(7)
    return Split.from_documents(
        [
            [[5 + doc % (SIZE - 5)] * int(size) for size in rng.integers(1, 8, size=sentences)]
            for doc, sentences in enumerate(rng.integers(2, 9, size=count).tolist())
        ]
    )


def segments(row: Any) -> Iterator[tuple[list[int], list[int]]]:
    """Yield the two original texts of each pair in a row."""
    ids = row.arrays["input_ids"].copy()
    ids[row.positions["label_positions"][1]] = row.values["labels"]
    for number in range(1, row.arrays["document_ids"].max() + 1):
        text = ids[row.arrays["document_ids"] == number]
        types = row.arrays["token_type_ids"][row.arrays["document_ids"] == number]
        assert text[0] == CLS and text[-1] == SEP and (text == SEP).sum() == 2
        assert types.tolist() == sorted(types.tolist())
        first, second = text[types == 0], text[types == 1]
        assert first[-1] == SEP
        yield first[1:-1].tolist(), second[:-1].tolist()


@pytest.mark.parametrize(("name", "kind"), [("bert", NextSentence), ("albert", SentenceOrder)])
def test_pairs_are_scored_without_dropout(name: str, kind: type[SentencePairs]) -> None:
    """``get_next_sentence_output`` and ``get_sentence_order_output`` of the released code."""
    family = get_family(name)
    config = replace(small(name), classifier_dropout=0.5)
    model: Any = family.model(config, kind.head).train()
    first = torch.randn(50, config.hidden_size)
    assert torch.equal(model.pair_scores(first), model.pair_scores(first))


def test_random_texts_are_of_another_document() -> None:
    labels = []
    for row in made(objective(NextSentence), corpus(59)):
        for (first, second), label in zip(segments(row), row.values["pair_labels"], strict=True):
            assert set(first).isdisjoint(second) == bool(label)
            labels.append(int(label))
        assert row.counts["next-sentence"] == len(row.values["pair_labels"])
        assert (
            row.positions["start_positions"][1].tolist()
            == np.flatnonzero(
                (row.arrays["position_ids"] == 0) & (row.arrays["document_ids"] > 0)
            ).tolist()
        )
    assert 0 < sum(labels) < len(labels)


def test_half_of_the_texts_are_swapped_anew_each_time() -> None:
    split = Split.from_documents([[[5 + 2 * k], [6 + 2 * k]] for k in range(25)] * 20)
    task = objective(SentenceOrder)
    laid = task.dataset(split, 0)
    labels: list[int] = []
    for time in range(2):
        for k in range(len(laid)):
            row = laid.example(k, generator(time, k))
            pair_labels = row.values["pair_labels"].tolist()
            assert [first > second for first, second in segments(row)] == pair_labels
            labels += pair_labels
    assert binomial(sum(labels), len(labels), 0.5)
    assert labels[:500] != labels[500:]


def test_rows_depend_on_the_seed_alone() -> None:
    task = objective(NextSentence)
    first, two, second = (task.dataset(corpus(), seed) for seed in (0, 0, 1))
    rows = [[laid.example(k, generator(0)) for k in range(5)] for laid in (first, two, second)]
    ids = [[row.arrays["input_ids"].tolist() for row in examples] for examples in rows]
    assert ids[0] == ids[1] != ids[2]


def test_copies_are_other_pairs() -> None:
    once, thrice = (
        len(objective(NextSentence, dupe_factor=n).dataset(corpus(), 0)) for n in (1, 3)
    )
    assert 2.7 * once < thrice < 3.3 * once


def test_rows_end_in_padding() -> None:
    for row in made(objective(SentenceOrder, length=40), corpus()):
        there = row.arrays["document_ids"] > 0
        assert there.tolist() == sorted(there.tolist(), reverse=True)
        assert (row.arrays["input_ids"][~there] == PAD).all()


@pytest.mark.parametrize(
    ("kind", "texts", "length", "message"),
    [
        (NextSentence, [[[5], [6]]], 32, "takes texts of 2 documents, and there is one"),
        (NextSentence, [[[5]], [[6]]], 32, "no document has two sentences"),
        (SentenceOrder, [[[5]], [[6]]], 32, "no document has two sentences"),
        (SentenceOrder, [[[5], [6]]], 4, "rows of 4 tokens have no place for two texts"),
    ],
)
def test_a_corpus_without_pairs(
    kind: type[SentencePairs], texts: Any, length: int, message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        objective(kind, length).dataset(Split.from_documents(texts), 0)


def test_a_family_that_compares_no_texts() -> None:
    roberta = get_family("roberta")
    with pytest.raises(
        UsageError, match=r"none of its heads \(.*masked-lm.*\) predicts both masked"
    ):
        objective_type(roberta, roberta.sizes()["tiny"], NextSentence.name)
    bert = get_family("bert")
    assert objective_type(bert, bert.sizes()["tiny"], SentenceOrder.name) is SentenceOrder


# Losses


@pytest.mark.parametrize(
    ("name", "kind", "label"),
    [
        ("bert", NextSentence, "next_sentence_label"),
        ("albert", SentenceOrder, "sentence_order_label"),
    ],
)
def test_the_losses_equal_the_reference_librarys(name: str, kind: Any, label: str) -> None:
    task = objective(kind)
    rows = one_a_row(made(task, corpus()))
    labels = np.concatenate([row.values["pair_labels"] for row in rows])
    assert len(rows) > 5 and set(labels.tolist()) == {0, 1}
    family = get_family(name)
    model = random_model(family, task.config, "pretraining")
    reference = reference_model(family, task.config, "pretraining", model.state_dict()).eval()
    batch = task.collate(rows)
    outcome = task.compute_loss(model, batch.tensors)
    with torch.no_grad():
        expected = reference(**reference_batch(rows), **{label: torch.from_numpy(labels)})
    means = {k: float(s.detach()) / batch.counts[k] for k, s in outcome.sums.items()}
    assert sum(means.values()) == pytest.approx(float(expected.loss), abs=1e-6)
    assert batch.counts[kind.term] == len(rows)
    right, count = outcome.metrics["pair_accuracy"]
    scores = expected["seq_relationship_logits" if name == "bert" else "sop_logits"]
    assert int(right) == int((scores.argmax(-1).numpy() == labels).sum())
    assert int(count) == len(labels)


@pytest.mark.parametrize("kind", [NextSentence, SentenceOrder])
def test_pairs_that_share_a_row_are_judged_as_if_alone(kind: Any) -> None:
    """Losses of a row of several pairs equal those of rows of one pair."""
    task = objective(kind, length=40)
    rows = [row for row in made(task, corpus()) if len(row.values["pair_labels"]) > 2][:4]
    assert rows
    model: Any = random_model(get_family("bert"), small("bert"), "pretraining")
    batch = task.collate(rows)
    with torch.no_grad():
        together = task.compute_loss(model, batch.tensors).sums[task.term]
        expected = torch.zeros((), dtype=torch.float64)
        for row in rows:
            mask = row.arrays["document_ids"]
            for number, label in enumerate(row.values["pair_labels"].tolist(), 1):
                alone = {
                    name: torch.from_numpy(row.arrays[name][mask == number])[None]
                    for name in ("input_ids", "token_type_ids")
                }
                scores = model(**alone)["seq_relationship_logits"]
                expected += torch.nn.functional.cross_entropy(scores, torch.tensor([label]))
    assert float(together) == pytest.approx(float(expected), abs=1e-5)
