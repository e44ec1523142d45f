"""Pairs of many documents at once, compared with a loop that makes one pair after another."""

from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.objectives.examples.former_sentence_pairs import best_fit_decreasing
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.io.paths import home
from zoo.objectives.examples import sentence_pair_blocks, sentence_pair_data
from zoo.objectives.examples.sentence_pair_blocks import (
    consecutive_block,
    count_heads,
    next_sentence_block,
    pair_row_blocks,
    structure_block,
)
from zoo.objectives.examples.sentence_pair_data import (
    cached_pairs,
    consecutive_pairs,
    next_sentence_pairs,
    structure_pairs,
)

KINDS = {next_sentence_block: "next", consecutive_block: "order", structure_block: "structure"}


def random_split(count: int, most: int, longest: int, seed: int, first_token: int = 0) -> Split:
    """Return offsets of documents of 1 to ``most`` sentences of 1 to ``longest`` tokens."""
    rng = np.random.default_rng(seed)
    documents = np.concatenate([[0], np.cumsum(rng.integers(1, most + 1, size=count))])
    sizes = rng.integers(1, longest + 1, size=documents[-1])
    sentences = first_token + np.concatenate([[0], np.cumsum(sizes)])
    return Split([np.zeros(0, np.uint16)], sentences, documents, key=f"{count} {most} {seed}")


# The reference


def groups_of(split: Split) -> Iterator[range]:
    """Yield the numbers of the documents of each group."""
    documents = split.documents.tolist()
    count = len(documents) - 1
    first = 0
    while first < count:
        last = first
        while last < min(first + sentence_pair_blocks.GROUP_DOCUMENTS, count):
            if documents[last + 1] - documents[first] > sentence_pair_blocks.GROUP_SENTENCES:
                break
            last += 1
        last = max(last, first + 2)
        if count - last < max(2, (last - first) // 2):
            last = count
        yield range(first, last)
        first = last


def pairs_of_group(split: Split, group: range, kind: str, room: int, rng: Any) -> list[list[int]]:
    """Make the pairs of a group one by one; each has its four offsets and its label."""
    sentences = split.sentences.tolist()
    documents = split.documents.tolist()
    parts: list[dict[str, int]] = []
    for document in group:
        first, size = documents[document], documents[document + 1] - documents[document]
        count = -(-size // sentence_pair_blocks.PART_SENTENCES)
        for number in range(count):
            bounds = [first + size * (number + side) // count for side in (0, 1)]
            parts.append({"document": document, "at": bounds[0], "last": bounds[1]})
    draws = rng.random((2, len(parts)))
    for part, short, size in zip(parts, *draws, strict=True):
        part["target"] = 2 + int(size * (room - 1)) if short < 0.1 else room
    pairs: list[list[int]] = []
    if kind != "next":
        parts = [part for part in parts if part["last"] - part["at"] > 1]
    while parts:
        if kind == "order":
            for part, draw in zip(parts, rng.random(len(parts)), strict=True):
                at = min(part["at"], part["last"] - 2)
                goal = sentences[at] + part["target"]
                end = bisect_left(sentences, goal, at + 2, part["last"])
                cut = sentences[at + 1 + int(draw * (end - at - 1))]
                pairs.append([sentences[at], cut, cut, sentences[end], 0])
                part["at"] = end
        else:
            random_parts = []
            least, share = (1, 0.5) if kind == "next" else (2, 1 / 3)
            for part, cut_draw, label_draw in zip(parts, *rng.random((2, len(parts))), strict=True):
                at = part["at"] if kind == "next" else min(part["at"], part["last"] - 2)
                goal = sentences[at] + part["target"]
                end = bisect_left(sentences, goal, at + least, part["last"])
                cut = at + 1 + int(cut_draw * (end - at - 1))
                pair = [sentences[at], sentences[cut], sentences[cut], sentences[end], 0]
                pairs.append(pair)
                part["at"] = end
                if cut == end or label_draw < share:
                    part["at"] = cut
                    random_parts.append((part, pair))
            draws = rng.random((2, len(random_parts)))
            for (part, pair), other_draw, place_draw in zip(random_parts, *draws, strict=True):
                other = group[0] + int(other_draw * (len(group) - 1))
                other += other >= part["document"]
                first, last = documents[other], documents[other + 1]
                drawn = first + int(place_draw * (last - first))
                goal = sentences[drawn] + part["target"] - (pair[1] - pair[0])
                until = bisect_left(sentences, goal, drawn + 1, last)
                pair[2:] = [sentences[drawn], sentences[until], 1]
        parts = [part for part in parts if part["at"] < part["last"]]
    return pairs


def heads(tosses: list[int], rng: Any) -> list[int]:
    """Count the highest bits of words, of 64 tosses each."""
    counts = [0] * len(tosses)
    left = list(tosses)
    while any(count > 0 for count in left):
        places = [place for place, count in enumerate(left) if count > 0]
        words = rng.integers(1 << 64, size=len(places), dtype=np.uint64).tolist()
        for place, word in zip(places, words, strict=True):
            counts[place] += (word >> (64 - min(left[place], 64))).bit_count()
        left = [count - 64 for count in left]
    return counts


def truncated(pairs: list[list[int]], room: int, rng: Any) -> list[list[int]]:
    """Remove tokens of the longer segment, then of both in turn, beginning with the second."""
    long_pairs = []
    lost = []
    for pair in pairs:
        sizes = [pair[1] - pair[0], pair[3] - pair[2]]
        removed = [0, 0]
        while sum(sizes) > room:
            side = 0 if sizes[0] > sizes[1] else 1
            sizes[side] -= 1
            removed[side] += 1
        if sum(removed):
            long_pairs.append(pair)
            lost.append(removed)
    for side in (0, 1):
        counts = [removed[side] for removed in lost]
        for pair, removed, front in zip(long_pairs, lost, heads(counts, rng), strict=True):
            pair[2 * side] += front
            pair[2 * side + 1] -= removed[side] - front
    return pairs


def reference(
    split: Split, kind: str, length: int, special_tokens: int, copies: int, rng: Any
) -> list[list[list[int]]]:
    """Return the pairs of each row."""
    room = length - special_tokens
    rows: list[list[list[int]]] = []
    waiting: list[list[int]] = []

    def pack() -> None:
        sizes = [p[1] - p[0] + p[3] - p[2] + special_tokens for p in waiting]
        numbers = best_fit_decreasing(np.array(sizes, np.int64), length).tolist()
        packed: list[list[list[int]]] = [[] for _ in range(max(numbers, default=-1) + 1)]
        for pair, number in zip(waiting, numbers, strict=True):
            packed[number].append(pair)
        rows.extend(packed)
        waiting.clear()

    for _ in range(copies):
        for group in groups_of(split):
            waiting += truncated(pairs_of_group(split, group, kind, room, rng), room, rng)
            if len(waiting) >= sentence_pair_blocks.PACKED_PAIRS:
                pack()
    pack()
    return rows


def planned(split: Split, make_block: Any, **options: Any) -> tuple[list[list[list[int]]], int]:
    """Return the pairs of each row of a plan, and how many of them are truncated."""
    blocks = list(pair_row_blocks(split, make_block, **options))
    joined = {name: np.concatenate([b[name] for b in blocks]) for name in blocks[0]}
    pairs = np.column_stack([joined["spans"].astype(np.int64), joined["labels"]]).tolist()
    bounds = joined["rows"].tolist()
    rows = [pairs[bounds[row] : bounds[row + 1]] for row in range(len(bounds) - 1)]
    return rows, int(joined["truncated"].sum())


# The tests


@pytest.mark.parametrize("make_block", KINDS, ids=KINDS.values())
@settings(deadline=None)
@given(
    split=st.builds(
        random_split,
        st.integers(2, 60),
        st.sampled_from([1, 2, 9, 40]),
        st.sampled_from([1, 12, 300]),
        st.integers(0, 1 << 16),
        st.sampled_from([0, 1 << 33]),
    ),
    length=st.sampled_from([5, 16, 64, 512]),
    copies=st.integers(1, 2),
    limits=st.tuples(
        st.sampled_from([3, 10, 1000]), st.sampled_from([20, 1000]), st.sampled_from([2, 5, 256])
    ),
    packed=st.sampled_from([1, 50, 1 << 18]),
    int32_tokens=st.sampled_from([0, 1 << 30]),
)
def test_pairs_are_those_of_the_loop(
    make_block: Any,
    split: Split,
    length: int,
    copies: int,
    limits: tuple[int, int, int],
    packed: int,
    int32_tokens: int,
) -> None:
    options: dict[str, Any] = {"length": length, "special_tokens": 3}
    names = ("GROUP_DOCUMENTS", "GROUP_SENTENCES", "PART_SENTENCES", "PACKED_PAIRS", "INT32_TOKENS")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in zip(names, (*limits, packed, int32_tokens), strict=True):
            patch.setattr(sentence_pair_blocks, name, value)
        rng = generator(3, "pairs")
        rows, truncated = planned(split, make_block, rng=rng, dupe_factor=copies, **options)
        rng = generator(3, "pairs")
        expected = reference(split, KINDS[make_block], copies=copies, rng=rng, **options)
    assert rows == expected
    # A pair that was cut fills a row, and so may others.
    full = sum(pair[1] - pair[0] + pair[3] - pair[2] == length - 3 for row in rows for pair in row)
    assert truncated <= full


@pytest.mark.parametrize("make_block", KINDS, ids=KINDS.values())
def test_pairs_have_the_statistics_of_the_loop_of_earlier_versions(make_block: Any) -> None:
    """Number of pairs, share of labels, and mean lengths of segments, for 3,000 documents."""
    split = random_split(3000, 60, 40, 0)
    loops = {
        next_sentence_block: next_sentence_pairs,
        consecutive_block: consecutive_pairs,
        structure_block: structure_pairs,
    }
    draw = sentence_pair_data.uniform(generator(0, "loop"))
    loop_pairs = np.array(list(loops[make_block](split, 125, draw)))
    (group,) = sentence_pair_blocks.document_groups(split)
    spans, labels = make_block(group, 125, generator(0, "block"))
    assert len(spans) == pytest.approx(len(loop_pairs), rel=0.01)
    assert labels.mean() == pytest.approx(loop_pairs[:, 4].mean(), abs=0.01)
    sizes = spans[:, 1::2] - spans[:, ::2]
    loop_sizes = loop_pairs[:, 1:4:2] - loop_pairs[:, 0:4:2]
    assert sizes.mean(0) == pytest.approx(loop_sizes.mean(0), rel=0.02)
    assert sizes.std(0) == pytest.approx(loop_sizes.std(0), rel=0.02)


def test_heads_are_binomial() -> None:
    """Mean and variance are n / 2 and n / 4, also of more tosses than a word has bits."""
    for tosses in (1, 7, 64, 65, 200):
        heads_of = count_heads(np.full(20_000, tosses, np.int32), generator(0, tosses))
        assert heads_of.min() >= 0 and heads_of.max() <= tosses
        assert heads_of.mean() == pytest.approx(tosses / 2, abs=4 * (tosses / 4 / 20_000) ** 0.5)
        assert heads_of.var() == pytest.approx(tosses / 4, rel=0.06)


@pytest.mark.parametrize("generate", [next_sentence_pairs, consecutive_pairs])
def test_a_cached_plan_equals_one_in_memory(generate: Any, monkeypatch: Any) -> None:
    split = random_split(200, 9, 12, 0)
    options: Any = {"length": 32, "special_tokens": 3, "seed": 0, "dupe_factor": 2}
    in_memory = cached_pairs(split, generate, **options)
    assert not Path(home(), "pairs").exists()
    monkeypatch.setattr(sentence_pair_data, "CACHED_SENTENCES", 0)
    for _ in range(2):  # The second one is mapped.
        cached = cached_pairs(split, generate, **options)
        assert isinstance(cached.spans, np.memmap)
        for name, array in vars(in_memory).items():
            np.testing.assert_array_equal(vars(cached)[name], array)
            assert vars(cached)[name].dtype == array.dtype
    assert len(in_memory) > 50
