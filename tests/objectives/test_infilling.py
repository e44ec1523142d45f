"""Text infilling and sentence permutation, compared with a port of the released code."""

import math
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from numpy.typing import NDArray
from scipy import stats

from tests.objectives.words import labels, texts, vocabulary
from zoo.data.corpus import Split
from zoo.data.rng import generator
from zoo.objectives import objective_type
from zoo.objectives.infilling import draw_span_lengths, permuted_order, poisson_probabilities
from zoo.objectives.options import parse_options
from zoo.objectives.seq2seq import Seq2SeqObjective
from zoo.plugins import get_family
from zoo_bart.config import BartConfig

BART = get_family("bart")
Ids = NDArray[np.int64]
EOS, MASK, FIRST = 1, 3, 4
# words that begin with a space, and pieces that continue a word
ROLES = {"pad": "<pad>", "eos": "</s>", "unk": "<unk>", "mask": "<mask>"}
PIECES = [f"{'' if number % 3 == 2 else '▁'}w{number}" for number in range(420)]
CONFIG = BartConfig.sized(1, 64, vocab_size=600, max_positions=64, decoder_start_token_id=EOS)
NAMES = ["text-infilling", "sentence-permutation", "text-infilling+sentence-permutation"]


# A port of ``denoising_dataset.py`` of fairseq: loops over tokens, with <s> and </s> around a text.
# Draws are in our order, so that the same generator gives the same noise


def ported_lengths(words: int, ratio: float, mean: float, rng: np.random.Generator) -> list[int]:
    table, power, factorial = [], 1.0, 1
    for k in range(128):
        table.append(math.exp(-mean) * power / factorial)
        power, factorial = power * mean, factorial * (k + 1)
        if table[-1] < 0.0000001:
            break
    total = sum(table)
    to_mask = math.ceil(words * ratio)
    drawn: list[int] = []
    while sum(drawn) < to_mask:
        drawn += rng.choice(len(table), size=to_mask, p=np.array(table) / total).tolist()
    last, reached = 0, drawn[0]
    while reached < to_mask:
        last += 1
        reached += drawn[last]
    drawn[last] = to_mask - sum(drawn[:last])
    return drawn[: last + 1]


def ported_infilling(
    text: Ids, is_start: NDArray[np.bool_], options: Any, rng: np.random.Generator, known: Ids
) -> Ids:
    source = [0, *text.tolist(), EOS]
    starts = [0, *is_start[text].astype(int).tolist(), 0]
    if not sum(starts):
        return text
    lengths = ported_lengths(sum(starts), options.noise_density, options.poisson_lambda, rng)
    inserts = lengths.count(0)
    lengths = [length for length in lengths if length > 0]
    places = [index for index, start in enumerate(starts) if start]
    indices = [places[k] for k in rng.permutation(len(places))[: len(lengths)]]
    is_random = rng.random(len(lengths)) < options.random_token_prob
    for index in indices:
        source[index] = MASK
    tokens = rng.choice(known, size=int(is_random.sum()))
    for index, token in zip(
        [i for i, r in zip(indices, is_random, strict=True) if r], tokens, strict=True
    ):
        source[index] = int(token)
    keep = [True] * len(source)
    starts[-1] = 255
    left = [length - 1 for length in lengths]
    while indices:
        left = [rest - starts[index + 1] for rest, index in zip(left, indices, strict=True)]
        going = [(rest, index + 1) for rest, index in zip(left, indices, strict=True) if rest >= 0]
        left, indices = [rest for rest, _ in going], [index for _, index in going]
        for index in indices:
            keep[index] = False
    kept = [token for token, stays in zip(source, keep, strict=True) if stays]
    inserts = min(inserts, len(source) - len(kept))  # not in the released code
    if inserts:
        order = rng.permutation(len(kept) + inserts - 2)[:inserts] + 1
        replaced = math.ceil(inserts * options.random_token_prob)
        result = [-1] * (len(kept) + inserts)
        for place in order[replaced:]:
            result[place] = MASK
        for place, token in zip(order[:replaced], rng.choice(known, size=replaced), strict=True):
            result[place] = int(token)
        rest = iter(kept)
        kept = [next(rest) if token < 0 else token for token in result]
    return np.array(kept[1:-1])


def ported_permutation(sentences: list[Ids], ratio: float, rng: np.random.Generator) -> list[Ids]:
    count = len(sentences)
    number = math.ceil((count * 2 * ratio) / 2.0)
    substitutions = rng.permutation(count)[:number].tolist()
    ordering = list(range(count))
    shuffled = rng.permutation(number).tolist()
    for place, other in zip(substitutions, shuffled, strict=True):
        ordering[place] = substitutions[other]
    return [sentences[index] for index in ordering]


def objective(name: str, length: int = 64, **values: Any) -> Any:
    kind = objective_type(BART, CONFIG, name)
    words = vocabulary(PIECES, roles=ROLES, sentinels=0, size=600)
    made = kind(words, CONFIG, length, parse_options(kind.options_type, values, name))
    assert isinstance(made, Seq2SeqObjective)
    return made


def sentences(rng: np.random.Generator, most: int = 6) -> list[Ids]:
    count = int(rng.integers(1, most + 1))
    return [rng.integers(FIRST, 420, size=int(rng.integers(1, 12))) for _ in range(count)]


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"noise_density": 0.5, "random_token_prob": 0.3},
        {"poisson_lambda": 0.4},
        {"poisson_lambda": 8},
    ],
    ids=str,
)
def test_infilling_equals_a_port_of_the_released_code(values: dict[str, Any]) -> None:
    made = objective("text-infilling", **values)
    known, starts = made.vocabulary.ordinary_ids, made.vocabulary.starts_word
    lengths = set()
    for seed in range(150):
        text = sentences(generator(seed, "texts"))
        source, target = made.source_and_target(text, generator(seed, "noise"))
        whole = np.concatenate(text)
        expected = ported_infilling(whole, starts, made.options, generator(seed, "noise"), known)
        assert source.tolist() == expected.tolist()
        assert target.tolist() == whole.tolist()
        assert len(source) <= len(whole)
        lengths.add(len(whole) - len(source))
    assert len(lengths) > 5


@pytest.mark.parametrize("ratio", [1.0, 0.4, 0.0])
def test_permutation_equals_a_port_of_the_released_code(ratio: float) -> None:
    made = objective("sentence-permutation", permute_sentences=ratio)
    for seed in range(200):
        text = sentences(generator(seed, "texts"))
        source, target = made.source_and_target(text, generator(seed, "noise"))
        expected = np.concatenate(ported_permutation(text, ratio, generator(seed, "noise")))
        assert source.tolist() == expected.tolist()
        assert target.tolist() == np.concatenate(text).tolist()


def test_both_permute_first() -> None:
    made = objective(NAMES[2])
    known, starts = made.vocabulary.ordinary_ids, made.vocabulary.starts_word
    for seed in range(100):
        text = sentences(generator(seed, "texts"))
        source, _ = made.source_and_target(text, generator(seed, "noise"))
        rng = generator(seed, "noise")
        order = np.concatenate(ported_permutation(text, 1.0, rng))
        assert source.tolist() == ported_infilling(order, starts, made.options, rng, known).tolist()


def test_lengths_have_a_poisson_distribution_and_reach_the_budget() -> None:
    table = poisson_probabilities(3.0)
    assert np.abs(table - stats.poisson.pmf(np.arange(len(table)), 3.0)).max() <= 1e-7
    drawn = [draw_span_lengths(1000, table, generator(seed, "spans")) for seed in range(20)]
    assert {int(lengths.sum()) for lengths in drawn} == {1000}
    inner = np.concatenate([lengths[:-1] for lengths in drawn])
    counts = np.bincount(inner, minlength=len(table))
    usual = table * len(inner) >= 5
    assert (
        stats.chisquare(
            counts[usual], table[usual] / table[usual].sum() * counts[usual].sum()
        ).pvalue
        > 0.01
    )


def test_an_order_of_few_sentences() -> None:
    orders = {tuple(permuted_order(3, 1.0, generator(seed, "order"))) for seed in range(100)}
    assert len(orders) == 6
    assert permuted_order(1, 1.0, generator(0, "order")) == [0]


def rows(made: Any, split: Split) -> list[Any]:
    laid = made.dataset(split, 0)
    return [laid.example(index, generator(0, "row", index)) for index in range(len(laid))]


def test_rows_have_the_sentences_of_their_documents() -> None:
    """A document of two sentences that fits is permuted as a whole, and keeps its tokens."""
    documents = [
        [[10 * k + 3, 10 * k + 4, 10 * k + 5], [10 * k + 6, 10 * k + 7]] for k in range(40)
    ]
    made = objective("sentence-permutation", 24)
    seen = set()
    for row in rows(made, Split.from_documents(documents)):
        for source, target in zip(
            texts(row.arrays["input_ids"], row.arrays["document_ids"]),
            labels(row, "decoder_input_ids", "decoder_document_ids"),
            strict=True,
        ):
            assert source[-1] == target[-1] == EOS
            if len(target) == 6:
                first = target[0]
                assert source[:-1] in (
                    [*range(first, first + 5)],
                    [first + 3, first + 4, first, first + 1, first + 2],
                )
                seen.add(source[0] == first)
    assert seen == {True, False}


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_twenty_sentences_are_learned_by_heart(name: str) -> None:
    config = replace(CONFIG, dropout=0.0)
    made = objective(name, 32)
    rng = generator(0, "texts")
    split = Split.from_documents([[rng.integers(FIRST, 420, size=6).tolist()] for _ in range(20)])
    laid = made.dataset(split, 0)
    torch.manual_seed(0)
    model = BART.model(config, "seq2seq-lm").train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    losses = []
    for step in range(120):
        examples = [laid.example(k, generator(0, "step", step, k)) for k in range(len(laid))]
        batch = made.collate(examples)
        output = made.compute_loss(model, batch.tensors)
        loss = output.sums["seq2seq-lm"] / batch.counts["seq2seq-lm"]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    assert losses[0] > 5 and np.mean(losses[-5:]) < 0.5, (losses[0], losses[-5:])
