"""ELMo's objective: labels, the loss computed by hand, and the recurrent state across batches."""

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import settings as checks
from hypothesis import strategies as st
from tokenizers import Tokenizer, models
from torch import Tensor

from tests.families import elmo_numpy
from tests.families.elmo_streams import (
    BEGIN,
    CONFIG,
    ELMO,
    END,
    ROLES,
    WORDS,
    losses,
    make_model,
    objective,
    random_split,
    rows,
)
from tests.objectives.words import vocabulary
from zoo.conformance.hf_reference import hub_state
from zoo.data.corpus import Split
from zoo.data.order import KeyedPermutation
from zoo.errors import UsageError
from zoo.objectives.base import Example
from zoo.objectives.examples.vocabulary import TokenizerView
from zoo.objectives.losses.sampled_softmax import SampledOptions
from zoo.tokenizers.info import TokenizerInfo
from zoo_elmo.characters import sentence_ids, word_ids
from zoo_elmo.objective import BidirectionalLm


def planes(row: Example) -> dict[str, list[int]]:
    return {name: plane.tolist() for name, plane in row.arrays.items()}


# Labels


def test_a_window_has_both_streams() -> None:
    split = Split.from_documents([[[3, 4], [5]]])
    (row,) = rows(split, 5)
    # forward: <S> 3 4 | <S> 5; backward: </S> 4 3 | </S> 5, reversed here
    assert planes(row) == {
        "forward": [BEGIN, 3, 4, BEGIN, 5],
        "forward_targets": [3, 4, END, 5, END],
        "backward": [5, END, 3, 4, END],
        "backward_targets": [BEGIN, 5, BEGIN, 3, 4],
    }
    assert row.counts == {"forward": 5, "backward": 5}


def test_windows_cut_sentences_and_drop_the_remainder() -> None:
    first, second = rows(Split.from_documents([[[3, 4], [5]]]), 2)
    assert planes(first) == {
        "forward": [BEGIN, 3],
        "forward_targets": [3, 4],
        "backward": [4, END],
        "backward_targets": [3, 4],
    }
    assert planes(second) == {
        "forward": [4, BEGIN],
        "forward_targets": [END, 5],
        "backward": [END, 3],
        "backward_targets": [5, BEGIN],
    }


@checks(deadline=None)
@given(
    st.lists(st.lists(st.integers(1, 6), min_size=1, max_size=4), min_size=1, max_size=5),
    st.integers(1, 9),
    st.integers(0, 3),
)
def test_consecutive_rows_are_the_streams(sizes: list[list[int]], length: int, seed: int) -> None:
    numbers = itertools.count(3)
    documents = [[[next(numbers) for _ in range(n)] for n in document] for document in sizes]
    examples = rows(Split.from_documents(documents), length, seed=seed)
    order = KeyedPermutation(len(documents), seed, "documents")
    shuffled = [documents[order[k]] for k in range(len(documents))]
    texts = [[BEGIN, *sentence, END] for document in shuffled for sentence in document]
    end = len(examples) * length
    assert end <= sum(len(text) - 1 for text in texts) < end + length
    for way, streams in (("forward", texts), ("backward", [text[::-1] for text in texts])):
        read = [word for text in streams for word in text[:-1]][:end]
        labels = [word for text in streams for word in text[1:]][:end]
        turn = -1 if way == "backward" else 1
        assert [w for row in examples for w in row.arrays[way].tolist()[::turn]] == read
        assert [
            w for row in examples for w in row.arrays[f"{way}_targets"].tolist()[::turn]
        ] == labels


def test_character_ids_of_a_batch() -> None:
    task = objective(5)
    batch = task.collate(rows(Split.from_documents([[[3, 4], [2]]]), 5))
    read = batch.tensors["character_ids"][batch.tensors["word_indices"]].tolist()
    room = CONFIG.max_characters
    begin, three, four, end = sentence_ids(["w3", "w4w4"], room)
    unknown = word_ids("<UNK>", room)
    assert read == [[[begin, three, four, begin, unknown]], [[unknown, end, three, four, end]]]
    assert len(batch.tensors["character_ids"]) == 5  # each distinct word once
    assert (batch.rows, batch.tokens) == (1, 5)
    assert batch.counts == {"forward": 5, "backward": 5}


def test_words_outside_the_vocabulary_have_characters_and_the_unknown_label() -> None:
    task = objective(5, vocab_size=4)
    batch = task.collate(rows(Split.from_documents([[[3, 4], [39]]]), 5))
    read = batch.tensors["character_ids"][batch.tensors["word_indices"]].tolist()
    begin, three, four, last, end = sentence_ids(["w3", "w4w4", "w39"], CONFIG.max_characters)
    assert read == [[[begin, three, four, begin, last]], [[last, end, three, four, end]]]
    unknown = WORDS.special_token_id("unk")
    assert batch.tensors["targets"].tolist() == [
        [[3, unknown, END, unknown, END]],
        [[BEGIN, unknown, BEGIN, 3, unknown]],
    ]
    assert losses(task.compute_loss(make_model(task), batch.tensors))["forward"] > 0


def test_long_words_of_a_batch_are_truncated() -> None:
    words = vocabulary(["\u00e9" * 9, "a" * 10, "a" * 11], roles=ROLES, sentinels=0)
    table = BidirectionalLm(words, CONFIG, 4).characters
    for number, word in enumerate(("\u00e9" * 9, "a" * 10, "a" * 11), 3):
        assert table[number].tolist() == word_ids(word, CONFIG.max_characters)
    assert table.max() <= 261 and table.min() >= 1


# The loss


def by_hand(model: Any, task: BidirectionalLm, windows: list[Example]) -> dict[str, float]:
    """Compute the loss word by word in both directions, with the state kept across windows."""
    options = ELMO.to_hub(task.config)
    state = hub_state(ELMO.weights(task.config, task.head), model.state_dict())
    weights = {name: tensor.numpy() for name, tensor in state.items()}
    table, bias = weights["softmax/W"], weights["softmax/b"]
    memory: elmo_numpy.Memory = {}
    losses = {"forward": 0.0, "backward": 0.0}
    for row, (way, name) in itertools.product(windows, enumerate(losses)):
        turn = -1 if name == "backward" else 1
        read = task.characters[row.arrays[name][::turn]].tolist()
        hidden = [elmo_numpy.word_vector(options, weights, word) for word in read]
        for layer in range(task.config.lstm_layers):
            hidden = elmo_numpy.lstm(options, weights, hidden, (way, layer), memory)
        for vector, target in zip(hidden, row.arrays[f"{name}_targets"][::turn], strict=True):
            scores = table @ vector + bias
            losses[name] += np.log(np.exp(scores).sum()) - scores[target]
    return losses


@pytest.mark.parametrize("skip", [True, False])
def test_loss_equals_a_loop(skip: bool) -> None:
    task = objective(6, skip_connections=skip)
    windows = rows(random_split(40), 6)[:4]
    model = make_model(task).eval()
    tensors: dict[str, Tensor] = {}
    sums = {"forward": 0.0, "backward": 0.0}
    for row in windows:
        outcome = task.compute_loss(model, task.collate([row]).tensors | tensors)
        tensors = outcome.recurrent_state
        sums = {way: sums[way] + total for way, total in losses(outcome).items()}
    assert sums == pytest.approx(by_hand(model, task, windows), rel=1e-12)
    assert task.loss_weights == {"forward": 0.5, "backward": 0.5}


def test_windows_with_state_equal_the_whole_stream() -> None:
    split = random_split(50)
    (whole,) = rows(split, 24)[:1]
    model = make_model(objective(24)).eval()
    at_once = losses(objective(24).compute_loss(model, objective(24).collate([whole]).tensors))
    task = objective(4)
    memory: dict[str, Tensor] = {}
    parts = []
    for row in rows(split, 4)[:6]:
        outcome = task.compute_loss(model, task.collate([row]).tensors | memory)
        memory = outcome.recurrent_state
        parts.append(losses(outcome))
    for way, total in at_once.items():
        assert abs(sum(part[way] for part in parts) - total) <= 1e-12 * total
    forgetful = [
        losses(task.compute_loss(model, task.collate([row]).tensors)) for row in rows(split, 4)
    ]
    assert abs(sum(part["forward"] for part in forgetful[:6]) - at_once["forward"]) > 1e-3


def test_gradients_stop_where_a_window_begins() -> None:
    task = objective(4)
    first, second = rows(random_split(30), 4)[:2]
    model = make_model(task)
    memory = task.compute_loss(model, task.collate([first]).tensors).recurrent_state
    assert memory
    assert [name for name, tensor in memory.items() if tensor.requires_grad] == []
    sizes = {name.rpartition(".")[2]: tensor.shape for name, tensor in memory.items()}
    assert sizes == {"output": (1, CONFIG.projection_size), "cell": (1, CONFIG.lstm_size)}
    states = {name: tensor.clone().requires_grad_() for name, tensor in memory.items()}
    sums = task.compute_loss(model, task.collate([second]).tensors | states).sums
    torch.stack(list(sums.values())).sum().backward()  # type: ignore[no-untyped-call]
    gradients = {name: tensor.grad for name, tensor in states.items()}
    assert [name for name, grad in gradients.items() if grad is None or not grad.any()] == []


# Negative samples


def test_the_sample_is_a_function_of_the_first_row() -> None:
    task = objective(4, samples=9)
    first, second, third = rows(random_split(60), 4, samples=9)[:3]

    def drawn(*batch: Example) -> list[list[int]]:
        samples: list[list[int]] = task.collate(batch).tensors["samples"].tolist()
        return samples

    assert drawn(first, second) == drawn(first, third) == drawn(first)
    assert drawn(first) != drawn(second)
    forward, backward = drawn(first)
    assert forward != backward and len(set(forward)) == len(set(backward)) == 9


def test_sampled_loss_equals_its_formula_and_validation_is_over_all_words() -> None:
    task = objective(6, samples=12)
    batch = task.collate(rows(random_split(40), 6, samples=12)[:2])
    model = make_model(task)
    hidden: dict[str, Any] = {}
    model.directions = lambda layers: hidden.setdefault(
        "seen", type(model).directions(model, layers)
    )
    loss = losses(task.compute_loss(model, batch.tensors))
    table, bias = model.head.weight.detach().numpy(), model.head.bias.detach().numpy()
    directions = zip(loss, hidden["seen"], batch.tensors["targets"], strict=True)
    for k, (way, seen, targets) in enumerate(directions):
        words, tries = batch.tensors["samples"][k].tolist(), int(batch.tensors["tries"][k])
        total = 0.0
        for vector, target in zip(
            seen.detach().flatten(0, 1).numpy(), targets.flatten().tolist(), strict=True
        ):
            among = [target, *(word for word in words if word != target)]
            p = [np.log((word + 2) / (word + 1)) / np.log(41) for word in among]
            scores = table[among] @ vector + bias[among] - np.log(1 - (1 - np.array(p)) ** tries)
            total += np.log(np.exp(scores).sum()) - scores[0]
        assert loss[way] == pytest.approx(total, rel=1e-9)
    model.eval()
    plain = {name: batch.tensors[name] for name in ("character_ids", "word_indices", "targets")}
    assert losses(task.compute_loss(model, batch.tensors)) == losses(
        task.compute_loss(model, plain)
    )


# Invalid combinations


def test_subword_tokenizer_is_refused() -> None:
    tokenizer = Tokenizer(models.WordPiece({"<UNK>": 0}, unk_token="<UNK>"))
    words = TokenizerView(tokenizer, TokenizerInfo(special=ROLES), 1)
    with pytest.raises(UsageError, match=r"WordPiece.*has pieces of words"):
        BidirectionalLm(words, CONFIG, 5)


def test_sample_must_be_smaller_than_the_vocabulary() -> None:
    with pytest.raises(UsageError, match=r"num_sampled is 40, and the vocabulary has 40 words"):
        objective(5, samples=40)
    with pytest.raises(ValueError, match="num_sampled is 0"):
        SampledOptions(num_sampled=0)
