"""Packed sources and targets: full rows, and losses equal to the reference library's."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from tests.families.parity import random_model
from tests.objectives.words import counted, labels, split, texts, vocabulary
from zoo.conformance.hf_reference import reference_model
from zoo.data.corpus import Split
from zoo.data.order import KeyedPermutation
from zoo.data.rng import generator
from zoo.errors import UsageError
from zoo.objectives import objective_type
from zoo.objectives.base import Example
from zoo.objectives.examples.seq2seq_packing import plan_decoder_length
from zoo.objectives.examples.vocabulary import TokenizerView
from zoo.objectives.losses.predictions import gather_positions
from zoo.objectives.options import parse_options
from zoo.objectives.seq2seq import Seq2SeqObjective
from zoo.plugins import get_family
from zoo_t5.config import T5Config

T5 = get_family("t5")
EOS = 1
# pad 0, eos 1, unk 2, words 3 to 422, sentinels 442 down to 423
WORDS = vocabulary([f"w{number}" for number in range(420)], sentinels=20, size=500)
SMALL = T5Config(
    vocab_size=500,
    hidden_size=24,
    head_size=10,
    intermediate_size=40,
    num_layers=2,
    num_heads=2,
    decoder_start_token_id=0,
)
LATER = replace(SMALL, feed_forward="gated-gelu", output_table=True, scale_outputs=False)
MANY = vocabulary(["a"], sentinels=100, size=200_000)
NAMES = [
    "span-corruption",
    "replace-spans",
    "drop-tokens",
    "mask-tokens",
    "bert-style",
    "deshuffling",
    "prefix-lm",
]


def objective(
    name: str, length: int, words: TokenizerView = WORDS, **values: Any
) -> Seq2SeqObjective:
    """Return an objective, by default with texts of one document each."""
    kind, options = objective_type(T5, SMALL, name), {"concat_documents": False, **values}
    made = kind(words, SMALL, length, parse_options(kind.options_type, options, name))
    assert isinstance(made, Seq2SeqObjective)
    return made


def rows(task: Seq2SeqObjective, split: Split, seed: int = 0) -> list[Example]:
    laid = task.dataset(split, seed)
    return [laid.example(index, generator(seed, "row", index)) for index in range(len(laid))]


def sources(row: Example) -> list[list[int]]:
    return texts(row.arrays["input_ids"], row.arrays["document_ids"])


def read(row: Example) -> list[list[int]]:
    return texts(row.arrays["decoder_input_ids"], row.arrays["decoder_document_ids"])


def labelled_texts(row: Example) -> list[list[int]]:
    return labels(row, "decoder_input_ids", "decoder_document_ids")


# Rows


def test_a_row_by_hand() -> None:
    # of 4 tokens one is noise, always the last; 5 source and 3 target positions, or 10 and 6
    (row,) = rows(objective("span-corruption", 10), split([50, 51, 52, 53]))
    mark = 442
    assert row.arrays["input_ids"].tolist() == [50, 51, 52, mark, EOS, 0, 0, 0, 0, 0]
    assert row.arrays["document_ids"].tolist() == [1] * 5 + [0] * 5
    assert row.arrays["decoder_input_ids"].tolist() == [0, mark, 53, 0, 0, 0]
    assert row.arrays["decoder_document_ids"].tolist() == [1] * 3 + [0] * 3
    assert labelled_texts(row) == [[mark, 53, EOS]]
    assert row.counts == {"seq2seq-lm": 3}


def test_a_row_of_two_texts_by_hand() -> None:
    (row,) = rows(objective("mask-tokens", 10), split([50, 51, 52, 53], [60, 61, 62, 63]))
    assert sorted(labelled_texts(row)) == [[50, 51, 52, 53, EOS], [60, 61, 62, 63, EOS]]
    assert sorted(read(row)) == [[0, 50, 51, 52, 53], [0, 60, 61, 62, 63]]
    for source, target in zip(sources(row), labelled_texts(row), strict=True):
        assert [a for a, b in zip(source, target, strict=True) if a != b] == [442]
    for plane in ("document_ids", "decoder_document_ids"):
        assert row.arrays[plane].tolist() == [1] * 5 + [2] * 5


@pytest.mark.parametrize("name", NAMES)
def test_every_objective_fills_rows(name: str) -> None:
    task = objective(name, 64)
    examples = rows(task, split(*(range(30 + n, 60 + 3 * n) for n in range(12))))
    batch = task.collate(examples)
    assert batch.tensors["input_ids"].shape == (len(examples), 64)
    assert batch.tensors["decoder_input_ids"].shape[0] == len(examples)
    assert batch.counts["seq2seq-lm"] == len(batch.tensors["labels"])
    flat = batch.tensors["decoder_document_ids"].flatten()
    assert batch.tensors["label_positions"].tolist() == flat.nonzero().flatten().tolist()
    for row in examples:
        for source, before, target in zip(
            sources(row), read(row), labelled_texts(row), strict=True
        ):
            assert source[-1] == target[-1] == EOS
            assert before == [0, *target[:-1]]


@settings(deadline=None)
@given(
    st.lists(st.integers(1, 300), min_size=1, max_size=15),
    st.integers(16, 200),
    st.floats(0.05, 0.5),
    st.floats(1, 5),
    st.integers(0, 9),
)
def test_an_epoch_has_every_token_once(
    lengths: list[int], length: int, rate: float, span: float, seed: int
) -> None:
    words = vocabulary(sentinels=20, size=6000)
    task = objective("span-corruption", length, words, noise_density=rate, mean_span_length=span)
    split = rows(task, counted(lengths, first=23), seed)
    seen = [
        token
        for row in split
        for part in (*sources(row), *labelled_texts(row))
        for token in part
        if token >= 23  # without special tokens
    ]
    assert sorted(seen) == list(range(23, 23 + sum(lengths)))


LONG = (2000, 3000)
SHORT = tuple(np.random.default_rng(0).integers(4, 45, size=300).tolist())
PARAGRAPHS = tuple(np.random.default_rng(0).integers(10, 400, size=60).tolist())
AT_MOST = {"replace-spans": 0.07}  # its source and target lengths are random


@pytest.mark.parametrize("lengths", [LONG, SHORT, PARAGRAPHS], ids=["long", "short", "both"])
@pytest.mark.parametrize("name", NAMES)
def test_few_places_stay_empty(name: str, lengths: tuple[int, ...]) -> None:
    task = rows(objective(name, 128, MANY), counted(lengths, first=104))[:-1]
    planes = [
        np.concatenate([row.arrays[plane] for row in task])
        for plane in ("document_ids", "decoder_document_ids")
    ]
    empty = np.mean(np.concatenate(planes) == 0)
    assert empty < AT_MOST.get(name, 0.05), f"{empty:.1%}"


def test_the_published_rows() -> None:
    # logged by the released code for length 512: 568 tokens, and 114 target positions
    words = vocabulary(sentinels=100, size=40_000)
    task = objective("span-corruption", 512, words)
    (row,) = rows(task, counted([568], first=103))
    assert row.arrays["input_ids"].shape == (512,)
    assert row.arrays["decoder_input_ids"].shape == (114,)
    assert row.arrays["document_ids"].all() and row.arrays["decoder_document_ids"].all()


def test_stretches_that_run_out_of_sentinels_share_a_row() -> None:
    task = objective("span-corruption", 512, vocabulary(sentinels=4, size=40_000))
    first = rows(task, counted([3000], first=30))[0]
    assert first.arrays["document_ids"].max() > 3
    assert np.count_nonzero(first.arrays["document_ids"]) > 0.9 * 512


@settings(deadline=None)
@given(st.integers(8, 300), st.lists(st.integers(1, 400), min_size=1), st.floats(0.05, 0.9))
def test_texts_within_the_budget_fit_into_both_rows(
    length: int, requested: list[int], rate: float
) -> None:
    def lengths(tokens: int) -> tuple[int, int]:
        noise = round(tokens * rate)
        return tokens - noise, noise + 1

    measure, decoder_length = plan_decoder_length(lengths, counted(requested), length)
    row, source, target = measure(), 0, 0
    for size in requested:
        taken = min(size, row.capacity())
        if taken < 1:
            continue
        row.add(taken)
        source, target = source + lengths(taken)[0] + 1, target + lengths(taken)[1] + 1
    assert source <= length
    assert target <= decoder_length


@pytest.mark.parametrize("name", NAMES)
def test_concatenated_documents_are_one_text(name: str) -> None:
    """As ``reduce_concat_tokens`` and ``split_tokens``: every text but the last is as long."""
    lengths = [3, 40, 1, 17, 200, 9] * 6
    split = counted(lengths, first=104)
    options = {} if name in ("prefix-lm", "deshuffling") else {"noise_density": 0.15}
    task = objective(name, 64, MANY, concat_documents=True, **options)
    order = KeyedPermutation(len(lengths), 0, "documents").take(np.arange(len(lengths))).tolist()
    starts = np.cumsum([104, *lengths])
    stream = [token for k in order for token in range(starts[k], starts[k + 1])]
    dataset: Any = task.dataset(split, 0)
    texts_of_rows = [
        [dataset.documents.read(*stretch).tolist() for stretch in dataset.layout.row(index)]
        for index in range(len(dataset))
    ]
    assert [token for row in texts_of_rows for text in row for token in text] == stream
    if name not in ("prefix-lm", "replace-spans"):
        sizes = [[len(text) for text in row] for row in texts_of_rows[:-1]]
        assert [size for size in sizes if size != sizes[0] or len(size) != 1] == []
    rows(task, split)


def test_released_rows_of_concatenated_documents() -> None:
    """``random_spans_helper`` for 512: segments of 568 tokens, of whatever documents."""
    words = vocabulary(sentinels=100, size=40_000)
    kind = objective_type(T5, SMALL, "span-corruption")
    examples = rows(
        kind(words, SMALL, 512),  # type: ignore[arg-type]
        counted([100] * 71, first=103),
    )
    assert len(examples) == 13  # 12.5 texts
    for row in examples[:-1]:
        assert (row.arrays["document_ids"] == 1).all()
        assert row.arrays["decoder_document_ids"].tolist() == [1] * 114
        text = [*sources(row)[0], *labelled_texts(row)[0]]
        assert len([token for token in text if token >= 103]) == 568


def test_rows_without_room_are_refused() -> None:
    with pytest.raises(UsageError, match="no place for text"):
        objective("span-corruption", 1).dataset(counted([9]), 0)


def test_a_tokenizer_without_an_end_is_refused() -> None:
    words = vocabulary(roles={"pad": "<pad>", "unk": "<unk>"}, size=500)
    with pytest.raises(UsageError, match="no eos token"):
        objective("span-corruption", 64, words).dataset(counted([9]), 0)


def test_rows_follow_from_seed_and_generator() -> None:
    task, documents = objective("span-corruption", 64), counted([100, 30, 80, 7])

    def drawn(seed: int) -> list[list[int]]:
        return [row.arrays["input_ids"].tolist() for row in rows(task, documents, seed)]

    assert drawn(1) == drawn(1) != drawn(2)


# Losses


def summed(scores: torch.Tensor, targets: torch.Tensor) -> float:
    """Return the summed cross-entropy of logits and labels."""
    return float(torch.nn.functional.cross_entropy(scores.detach(), targets, reduction="sum"))


CONFIGS = {"v1.0": SMALL, "v1.1": LATER}
DOCUMENTS = (30, 9, 2, 44, 17)


@pytest.mark.by_default(
    "span-corruption-v1.0",
    "prefix-lm-v1.1",
    "bert-style-v1.0",
    "deshuffling-v1.1",
    "mask-tokens-v1.0",
    "replace-spans-v1.1",
    "drop-tokens-v1.1",
)
@pytest.mark.parametrize("version", CONFIGS)
@pytest.mark.parametrize("name", NAMES)
def test_the_loss_equals_the_reference_of_each_text_alone(name: str, version: str) -> None:
    config = CONFIGS[version]
    model = random_model(T5, config, "seq2seq-lm").float()
    reference = reference_model(T5, config, "seq2seq-lm", model.state_dict()).float()
    task = objective(name, 64)
    split = rows(task, counted(DOCUMENTS))
    batch = task.collate(split)
    with torch.no_grad():
        ours = float(task.compute_loss(model, batch.tensors).sums["seq2seq-lm"])
        theirs = 0.0
        for row in split:
            for source, target in zip(sources(row), labelled_texts(row), strict=True):
                out = reference(input_ids=torch.tensor([source]), labels=torch.tensor([target]))
                theirs += float(out.loss) * len(target)
    assert batch.tensors["document_ids"].max() > 1
    assert ours == pytest.approx(theirs, rel=1e-6)


@pytest.mark.by_default(
    "span-corruption-v1.0",
    "prefix-lm-v1.1",
    "bert-style-v1.0",
    "deshuffling-v1.1",
    "mask-tokens-v1.0",
    "replace-spans-v1.1",
    "drop-tokens-v1.1",
)
@pytest.mark.parametrize("version", CONFIGS)
@pytest.mark.parametrize("name", NAMES)
def test_texts_that_share_a_row_are_as_they_are_alone(name: str, version: str) -> None:
    model: Any = random_model(T5, CONFIGS[version], "seq2seq-lm")
    task = objective(name, 128)
    row = rows(task, counted(DOCUMENTS))[0]
    tensors = task.collate([row]).tensors
    numbers = tensors["decoder_document_ids"]
    losses = 0.0
    _, hidden = model.hidden(
        tensors["input_ids"],
        None,
        tensors["decoder_input_ids"],
        document_ids=tensors["document_ids"],
        decoder_document_ids=numbers,
    )
    packed = hidden[0]
    assert numbers.max() > 2
    together = summed(
        model.scores(gather_positions(packed[None], tensors["label_positions"])), tensors["labels"]
    )
    each_text = zip(sources(row), read(row), labelled_texts(row), strict=True)
    for number, (source, before, target) in enumerate(each_text, 1):
        alone = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([before]))[
            "logits"
        ][0]
        assert (model.scores(packed[numbers[0] == number]) - alone).abs().max() < 1e-12
        losses += summed(alone, torch.tensor(target))
    assert together == pytest.approx(losses, rel=1e-9)


def test_padding_changes_nothing() -> None:
    model: Any = random_model(T5, SMALL, "seq2seq-lm")
    task = objective("span-corruption", 64)
    tensors = task.collate(rows(task, counted([20]))).tensors
    loss = task.compute_loss(model, tensors).sums["seq2seq-lm"]
    other = {name: tensor.clone() for name, tensor in tensors.items()}
    for ids, mask in (
        ("input_ids", "document_ids"),
        ("decoder_input_ids", "decoder_document_ids"),
    ):
        other[ids][other[mask] == 0] = 77
    assert torch.equal(task.compute_loss(model, other).sums["seq2seq-lm"], loss)


# Recipes


@pytest.mark.parametrize("size", list(T5.sizes()))
def test_every_size_has_a_recipe(size: str) -> None:
    recipe = T5.recipe(size)
    assert recipe.objective == "span-corruption"
    assert set(recipe.config) <= set(T5Config.__struct_fields__)


def test_the_recipes_are_the_papers() -> None:
    first, later, many = (T5.recipe(size) for size in ("base", "v1.1-base", "mt5-base"))
    assert (first.seq_len, first.global_batch_tokens, first.max_steps) == (512, 2**16, 2**19)
    assert first.optimizer.learning_rate == pytest.approx(1 / first.lr_scheduler.warmup_steps**0.5)
    assert (first.config, later.config) == ({}, {"dropout": 0.0})
    assert (many.seq_len, many.global_batch_tokens, many.max_steps) == (1024, 2**20, 1_000_000)
