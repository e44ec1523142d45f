"""Selection of tokens to mask: the budget, special tokens, whole words, n-grams and spans."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.objectives.pieces import SIZE, WORDS, binomial, goes_on, packed, rows, split_words
from zoo.data.rng import generator
from zoo.objectives.examples.masking import (
    MAX_SPAN,
    SPAN_PROBS,
    MaskSelection,
    MaskStrategy,
    Words,
    label_runs,
    mask_budget,
    select_mask_positions,
    select_ngrams,
    select_spans,
    select_tokens,
    select_words,
)
from zoo.objectives.examples.packing import PackedRow

HOWS: list[MaskStrategy] = ["tokens", "words", "ngrams", "spans"]
budgets, seeds = st.integers(1, 40), st.integers(0, 2**32)


def chosen(how: MaskStrategy, row: PackedRow, budget: int, seed: int) -> MaskSelection:
    return select_mask_positions(how, row, budget, generator(seed), WORDS.starts_word)


def runs(positions: list[int], row: PackedRow) -> list[list[int]]:
    """Group positions into runs of adjacent positions in the same text."""
    runs_of_positions: list[list[int]] = []
    for place in positions:
        same = runs_of_positions and runs_of_positions[-1][-1] == place - 1
        same = same and row.document_ids[place] == row.document_ids[place - 1]
        if same:
            runs_of_positions[-1].append(place)
        else:
            runs_of_positions.append([place])
    return runs_of_positions


@pytest.mark.parametrize("how", HOWS)
@settings(deadline=None)
@given(row=rows, budget=budgets, seed=seeds)
def test_never_too_much_never_twice_never_special(
    how: MaskStrategy, row: PackedRow, budget: int, seed: int
) -> None:
    positions, fates = chosen(how, row, budget, seed)
    assert len(positions) == len(fates) <= budget
    assert (np.diff(positions) > 0).all()
    assert row.is_text[positions].all()
    assert chosen(how, row, budget, seed).positions.tolist() == positions.tolist()


@settings(deadline=None)
@given(row=rows, budget=budgets, seed=seeds)
def test_tokens_are_as_many_as_may_be(row: PackedRow, budget: int, seed: int) -> None:
    positions, fates = chosen("tokens", row, budget, seed)
    assert len(positions) == len(chosen("spans", row, budget, seed).positions)
    assert len(positions) == min(budget, row.is_text.sum())
    assert fates.tolist() == list(range(len(positions)))


@pytest.mark.parametrize("how", ["words", "ngrams"])
@settings(deadline=None)
@given(row=rows, budget=budgets, seed=seeds)
def test_words_are_whole(how: MaskStrategy, row: PackedRow, budget: int, seed: int) -> None:
    hidden = set(chosen(how, row, budget, seed).positions.tolist())
    for word in split_words(row):
        assert hidden.issuperset(word) or hidden.isdisjoint(word)


@settings(deadline=None)
@given(row=rows, budget=budgets, seed=seeds)
def test_no_word_that_fits_is_left(row: PackedRow, budget: int, seed: int) -> None:
    hidden = set(chosen("words", row, budget, seed).positions.tolist())
    left = [len(word) for word in split_words(row) if hidden.isdisjoint(word)]
    assert not left or min(left) > budget - len(hidden)


@settings(deadline=None)
@given(row=rows, budget=budgets, seed=seeds)
def test_the_tokens_of_a_span_share_a_fate(row: PackedRow, budget: int, seed: int) -> None:
    positions, fates = chosen("spans", row, budget, seed)
    expected = [k for k, run in enumerate(runs(positions.tolist(), row)) for _ in run]
    assert fates.tolist() == expected


@settings(deadline=None)
@given(row=rows)
def test_words_are_those_that_a_loop_finds(row: PackedRow) -> None:
    words, expected = Words.find(row, WORDS.starts_word), split_words(row)
    assert words.spans == [(word[0], word[-1] + 1) for word in expected]
    texts = [int(row.document_ids[word[0]]) for word in expected]
    behind = [max(k for k, text in enumerate(texts) if text == t) + 1 for t in texts]
    assert words.document_ends == behind


def test_a_hand_worked_row() -> None:
    """A word starts with each text, even if its first token is a continuation."""
    row = packed([5, 6, 6, 7], [9, 8])  # CLS 5 ##6 ##6 7 SEP CLS ##9 8 SEP
    words = Words.find(row, WORDS.starts_word)
    assert words.spans == [(1, 4), (4, 5), (7, 8), (8, 9)]
    assert words.document_ends == [2, 2, 4, 4]
    # of a budget of three tokens: the first word alone, or the other three words
    for seed in range(20):
        positions = chosen("words", row, 3, seed).positions.tolist()
        assert positions in ([1, 2, 3], [4, 7, 8])
    assert label_runs(np.array([1, 2, 3, 4, 7, 8]), row.document_ids).tolist() == [0] * 4 + [1] * 2


def test_stretches_of_two_texts_that_touch_are_two() -> None:
    texts = np.array([1, 1, 2, 2])
    assert label_runs(np.arange(4), texts).tolist() == [0, 0, 1, 1]


def long_row(count: int) -> PackedRow:
    return packed([5 + 3 * (k % 2) for k in range(count)])  # every token is a word


def test_every_token_is_as_likely() -> None:
    row, counts = long_row(20), np.zeros(22, int)
    for seed in range(4000):
        counts[chosen("tokens", row, 3, seed).positions] += 1
    assert counts[[0, -1]].tolist() == [0, 0]
    assert [count for count in counts[1:-1].tolist() if not binomial(count, 4000, 3 / 20)] == []


def test_every_word_is_as_likely() -> None:
    row = packed([5, 6, 7, 8, 9, 10] * 4)
    words = Words.find(row, WORDS.starts_word)
    counts = np.zeros(len(words.spans), int)
    for seed in range(4000):
        counts += np.frombuffer(select_words(words, 2, generator(seed)), np.uint8)
    single = np.array([end - start == 1 for start, end in words.spans])
    alike = counts[single].tolist()
    assert [count for count in alike if not binomial(count, sum(alike), 1 / len(alike))] == []


def test_the_length_of_ngrams() -> None:
    """Probabilities 6/11, 3/11 and 2/11; a budget of 3 is one run of 3 words only for n = 3."""
    row = long_row(2000)
    words, three = Words.find(row, WORDS.starts_word), 0
    for seed in range(2000):
        taken = np.frombuffer(select_ngrams(words, 3, generator(seed)), np.uint8)
        assert taken.sum() == 3
        positions = np.flatnonzero(taken)
        three += int(positions[-1] - positions[0] == 2)
    assert binomial(three, 2000, 2 / 11)


def test_the_length_of_spans() -> None:
    """Geometric distribution with p = 0.2, truncated at 10; the paper's mean is 3.8."""
    words = Words.find(long_row(40), WORDS.starts_word)
    lengths = [len(select_spans(words, np.array([9]), 40, generator(seed))) for seed in range(4000)]
    weights = np.array([0.2 * 0.8**k for k in range(10)])
    weights /= weights.sum()
    assert round(float(weights @ np.arange(1, 11)), 1) == 3.8
    for length, weight in enumerate(weights.tolist(), 1):
        assert binomial(lengths.count(length), 4000, weight)
    assert set(lengths) == set(range(1, 11))


def test_a_span_starts_with_the_anchors_word() -> None:
    row = packed([5, 6, 6, 7, 8])
    words = Words.find(row, WORDS.starts_word)
    seen = {
        tuple(select_spans(words, np.array([3]), 4, generator(seed)).tolist())  # the second ##6
        for seed in range(50)
    }
    assert seen == {(1, 2, 3), (1, 2, 3, 4)}


def mask_spans_as_released(
    row: PackedRow, anchors: list[int], lengths: list[int], mask_num: int
) -> set[int]:
    """``PairWithSpanMaskingScheme.mask`` of fairseq/data/masking.py, for drawn spans."""
    mask: set[int] = set()

    def starts_word(place: int) -> bool:
        same = row.is_text[place - 1] and row.document_ids[place - 1] == row.document_ids[place]
        return not same or not goes_on(int(row.input_ids[place]))

    def in_sentence(place: int, anchor: int) -> bool:
        return bool(
            place < len(row.input_ids)
            and row.is_text[place]
            and row.document_ids[place] == row.document_ids[anchor]
        )

    def word_end(place: int, anchor: int) -> int:
        place += 1
        while in_sentence(place, anchor) and not starts_word(place):
            place += 1
        return place

    for anchor, length in zip(anchors, lengths, strict=True):
        if anchor in mask:
            continue
        right = anchor
        while not starts_word(right):
            right -= 1
        for _ in range(length):
            if not in_sentence(right, anchor):
                break
            left, right = right, word_end(right, anchor)
            for place in range(left, right):
                if len(mask) >= mask_num:
                    return mask
                mask.add(place)
    return mask


@settings(deadline=None)
@given(row=rows, budget=budgets, seed=seeds)
def test_spans_are_those_of_the_released_code(row: PackedRow, budget: int, seed: int) -> None:
    words, texts = Words.find(row, WORDS.starts_word), np.flatnonzero(row.is_text)
    draws = generator(seed)
    lengths = draws.choice(MAX_SPAN, size=len(texts), p=SPAN_PROBS) + 1
    anchors = draws.permutation(texts)
    expected = mask_spans_as_released(row, anchors.tolist(), lengths.tolist(), budget)
    positions = select_spans(words, texts, budget, generator(seed))
    assert positions.tolist() == sorted(expected)


@pytest.mark.parametrize(
    ("strategy", "tokens", "budget"),
    # create_pretraining_data.py: max(1, int(round(len(tokens) * 0.15))), with [CLS] and [SEP];
    # fairseq/data/masking.py: ceil(0.15 * tokens) without them
    [
        ("tokens", 126, 19),
        ("words", 126, 19),
        ("spans", 126, 19),
        ("tokens", 28, 4),
        ("spans", 28, 5),
        ("ngrams", 22, 4),
        ("spans", 22, 4),
        ("tokens", 1, 1),
        ("spans", 1, 1),
    ],
)
def test_the_number_of_selected_tokens(strategy: MaskStrategy, tokens: int, budget: int) -> None:
    row = packed([5] * tokens, length=tokens + 9)
    assert mask_budget(strategy, row, 0.15) == budget
    assert len(chosen(strategy, row, budget, 0).positions) == budget


def test_special_tokens_of_every_text_of_a_row_count() -> None:
    assert mask_budget("tokens", packed([5] * 10, [5] * 10), 0.15) == round(0.15 * 24)


def test_tokens_are_drawn_by_their_weights() -> None:
    """As often as by ``torch.multinomial`` without replacement, as the code of DistilBERT draws."""
    row = packed([5, 6, 7, 8])
    inside = np.flatnonzero(row.is_text)
    table = np.zeros(SIZE)
    table[[5, 6, 7, 8]] = np.array([1.0, 10, 100, 1000]) ** -0.7
    weights, draws = torch.tensor(table[row.input_ids[inside]]), 4000
    for budget in (1, 2):
        picked = np.zeros(len(row.input_ids))
        for seed in range(draws):
            picked[select_tokens(row.weighted(table), budget, generator(seed))] += 1
        rng = torch.Generator().manual_seed(0)
        theirs = torch.multinomial(weights.expand(draws, -1), budget, generator=rng)
        expected = torch.bincount(theirs.flatten(), minlength=len(inside)) / draws
        np.testing.assert_allclose(picked[inside] / draws, expected.numpy(), atol=0.03)
        assert picked.sum() == budget * draws
