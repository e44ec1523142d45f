"""The denoising objective: the paper's examples, the released code's lengths, no lost tokens."""

import itertools
from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.objectives.words import spans, vocabulary
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.objectives import OBJECTIVES, objective_type
from zoo.objectives.denoising import DenoisingObjective, sentinel_ids
from zoo.objectives.examples.span_noise import single_tokens
from zoo.objectives.examples.vocabulary import Ids, TokenizerView
from zoo.objectives.options import parse_options
from zoo.plugins import get_family
from zoo_t5.config import T5Config

T5 = get_family("t5")
NAMES = [
    "span-corruption",
    "replace-spans",
    "drop-tokens",
    "mask-tokens",
    "bert-style",
    "deshuffling",
]
TEXT = ["Thank", "you", "for", "inviting", "me", "to", "your", "party", "last", "week", "."]
MARKS = {"X": "<extra_id_0>", "Y": "<extra_id_1>", "Z": "<extra_id_2>", "M": "<extra_id_0>"}
WORDS = vocabulary([*TEXT, "apple"])
MANY = vocabulary([f"w{number}" for number in range(3000)])
MARKED = vocabulary([f"w{number}" for number in range(2000)], sentinels=1000)
RNG = generator(0, "unused")


def objective(name: str, words: TokenizerView = WORDS, **options: Any) -> DenoisingObjective:
    config = T5Config(vocab_size=words.vocab_size)
    kind = objective_type(T5, config, name)
    made = kind(words, config, 512, parse_options(kind.options_type, options, name))
    assert isinstance(made, DenoisingObjective)
    return made


def example(task: DenoisingObjective, text: Ids, rng: np.random.Generator) -> tuple[Ids, Ids]:
    (pair,) = task.source_target_pairs([text], rng)
    return pair


def ids(spelled: str) -> Ids:
    names = (MARKS.get(word.strip("<>"), word) for word in spelled.split())
    numbers = [WORDS.tokenizer.token_to_id(name) for name in names]
    return np.array(numbers, dtype=np.int64)


def many(tokens: int) -> Ids:
    return np.arange(3, 3 + tokens)  # ids above the special tokens


# Table 3 of the paper


@pytest.mark.parametrize(
    ("name", "noisy", "source", "target"),
    [
        (
            "mask-tokens",
            "for inviting last",
            "Thank you <M> <M> me to your party <M> week .",
            " ".join(TEXT),
        ),
        (
            "replace-spans",
            "for inviting last",
            "Thank you <X> me to your party <Y> week .",
            "<X> for inviting <Y> last <Z>",
        ),
        (
            "drop-tokens",
            "for inviting last",
            "Thank you me to your party week .",
            "for inviting last",
        ),
        (
            "span-corruption",
            "for inviting me your party last",
            "Thank you <X> to <Y> week .",
            "<X> for inviting me <Y> your party last <Z>",
        ),
    ],
)
def test_the_examples_of_the_paper(name: str, noisy: str, source: str, target: str) -> None:
    noise = np.array([word in noisy.split() for word in TEXT])
    task = objective(name).corrupt(ids(" ".join(TEXT)), noise, RNG)
    assert [side.tolist() for side in task] == [
        ids(source).tolist(),
        ids(target).tolist(),
    ]


def test_the_example_of_masks_and_other_words() -> None:
    text, noise = ids(" ".join(TEXT)), np.isin(TEXT, ["for", "inviting", "last"])
    expected = ids("Thank you <M> <M> me to your party apple week .")
    task, seen = objective("bert-style"), []
    for number in range(2000):
        source, target = task.corrupt(text, noise, generator(number, "example"))
        assert target.tolist() == text.tolist()
        assert source[~noise].tolist() == text[~noise].tolist()
        seen.append(source.tolist())
    assert expected.tolist() in seen


def test_the_example_of_deshuffling_is_one_of_all_orders() -> None:
    three, orders = ids("Thank you for"), Counter[tuple[int, ...]]()
    task = objective("deshuffling")
    for number in range(3000):
        source, target = example(task, three, generator(number, "example"))
        assert target.tolist() == three.tolist()
        orders[tuple(source.tolist())] += 1
    assert set(orders) == set(itertools.permutations(three.tolist()))
    # standard deviation 20.4
    assert [key for key, count in orders.items() if not abs(count - 500) < 5 * 20.5] == []


# Lengths in the released code


def released_lengths(tokens: int) -> tuple[int, int]:
    """Compute the lengths of ``random_spans_helper``, without its end tokens."""
    noise = round(tokens * 0.15)
    spans = round(noise / 3.0)
    return tokens - noise + spans, noise + spans


def test_lengths_are_those_of_the_released_code() -> None:
    task = objective("span-corruption", vocabulary(sentinels=200))
    for tokens in range(10, 2001):  # it has no spans for shorter texts
        assert task.max_lengths(tokens) == released_lengths(tokens)
    assert task.max_lengths(568) == (
        511,
        113,
    )  # the paper: 568 tokens in rows of 512


# Reconstruction


def whole(source: Ids, target: Ids, marks: Ids) -> list[int]:
    """Replace each sentinel of the source by its span in the target."""
    parts: dict[int, list[int]] = {}
    mark = -1  # noise at the start, before any sentinel
    for token in target.tolist():
        if token in marks:
            mark = token
        parts.setdefault(mark, [])
        if token not in marks:
            parts[mark].append(token)
    ids: list[int] = []
    for token in source.tolist():
        ids += parts.get(token, []) if token in marks else [token]
    return ids


@settings(deadline=None)
@given(st.integers(1, 2000), st.floats(0.02, 0.6), st.floats(1, 8), st.integers(0, 2**32))
def test_source_and_target_of_spans_are_the_text(
    tokens: int, rate: float, span: float, seed: int
) -> None:
    task = objective("span-corruption", MARKED, noise_density=rate, mean_span_length=span)
    text = many(tokens)
    lengths = task.max_lengths(tokens)
    if lengths is None:
        return
    source, target = example(task, text, generator(seed, "row"))
    assert (len(source), len(target)) == lengths
    assert whole(source, target, task.sentinels) == text.tolist()
    marks = [t for t in target.tolist() if t in set(task.sentinels.tolist())]
    assert marks == task.sentinels[: len(marks)].tolist()


@settings(deadline=None)
@given(st.integers(1, 400), st.floats(0.02, 0.9), st.integers(0, 2**32))
def test_noise_of_single_tokens_is_the_target(tokens: int, rate: float, seed: int) -> None:
    def rng() -> np.random.Generator:
        return generator(seed, "row")

    text, noise = many(tokens), single_tokens(tokens, rate, rng())
    source, target = example(objective("drop-tokens", MANY, noise_density=rate), text, rng())
    assert sorted([*source, *target]) == text.tolist()
    assert target.tolist() == text[noise].tolist()

    source, target = example(objective("mask-tokens", MANY, noise_density=rate), text, rng())
    assert target.tolist() == text.tolist()
    assert (source != text).tolist() == noise.tolist()

    task = objective("replace-spans", MANY, noise_density=rate)
    if task.max_lengths(tokens) is None:
        return
    source, target = example(task, text, rng())
    marks = set(task.sentinels.tolist())
    assert sum(t in marks for t in source.tolist()) == spans(noise)
    assert sum(t in marks for t in target.tolist()) == spans(~noise)
    hidden = [t for t in target.tolist() if t not in marks]
    rest = [t for t in source.tolist() if t not in marks]
    assert (hidden, rest) == (text[noise].tolist(), text[~noise].tolist())


def test_a_tenth_of_noise_becomes_other_words() -> None:
    task, text = objective("bert-style", MANY), many(2000)
    source, _ = example(task, text, generator(1, "row"))
    noise = source != text
    masks = np.count_nonzero(source == task.sentinels[0])
    assert abs(np.count_nonzero(noise) - 300) <= 1  # a random word can be the original
    assert abs(300 - masks - 30) < 5 * 5.2  # standard deviation 5.2
    assert set(source.tolist()) - {int(task.sentinels[0])} <= set(MANY.ordinary_ids.tolist())


@pytest.mark.parametrize("name", NAMES)
def test_lengths_hold_and_do_not_fall(name: str) -> None:
    task, before = objective(name, MANY), (0, 0)
    exact = name != "replace-spans"
    for tokens in range(1, 640):
        lengths = task.max_lengths(tokens)
        assert lengths is not None
        assert lengths[0] >= before[0] and lengths[1] >= before[1]
        source, target = example(task, many(tokens), generator(tokens, "row"))
        assert len(source) <= lengths[0] and len(target) <= lengths[1]
        assert not exact or (len(source), len(target)) == lengths
        before = lengths


@pytest.mark.parametrize("name", NAMES)
def test_examples_follow_from_the_generator(name: str) -> None:
    task = objective(name, MANY)

    def drawn(seed: int) -> list[list[int]]:
        return [side.tolist() for side in example(task, many(200), generator(seed, "row"))]

    assert drawn(3) == drawn(3) != drawn(4)


# Sentinels


def test_sentinels_are_found_by_name() -> None:
    words = vocabulary(["a", "b"], sentinels=3)
    assert sentinel_ids(words).tolist() == [7, 6, 5]  # the last ids, descending


def test_a_tokenizer_without_sentinels_is_refused() -> None:
    with pytest.raises(UsageError, match="no tokens <extra_id_0>"):
        objective("span-corruption", vocabulary(sentinels=0)).max_lengths(10)


@pytest.mark.parametrize("name", ["span-corruption", "replace-spans"])
def test_a_stretch_is_no_longer_than_its_sentinels_last(name: str) -> None:
    task = objective(name, vocabulary([f"w{n}" for n in range(200)], sentinels=4))
    most = max(n for n in range(1, 200) if task.max_lengths(n) is not None)
    assert task.max_lengths(most + 1) is None
    for seed in range(200):
        pair = example(task, many(most), generator(seed, "row"))
        assert [
            side for side in pair if not sum(t in task.sentinels for t in side.tolist()) <= 4
        ] == []


# Options


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("span-corruption", {"noise_density": 1.0}, "noise_density is 1.0"),
        ("span-corruption", {"mean_span_length": 0.5}, "mean_span_length is 0.5"),
        ("drop-tokens", {"noise_density": 0.0}, "noise_density is 0.0"),
        ("bert-style", {"random_token_prob": 2.0}, "random_token_prob is 2.0"),
        ("deshuffling", {"noise_density": 0.1}, "no option 'noise_density'"),
    ],
)
def test_wrong_options_are_refused(name: str, options: dict[str, Any], why: str) -> None:
    with pytest.raises(UsageError, match=why):
        objective(name, **options)


@pytest.mark.parametrize("name", [name for name in NAMES if name in OBJECTIVES])
def test_a_family_without_a_decoder_cannot_learn_them(name: str) -> None:
    bert = get_family("bert")
    refused: Callable[[], Any] = lambda: objective_type(bert, bert.sizes()["tiny"], name)  # noqa: E731
    with pytest.raises(UsageError, match="bert cannot learn"):
        refused()
