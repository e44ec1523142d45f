"""Vectors are the hidden states of transformers, and the layers of ELMo's released code."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests import checkpoints
from tests.checkpoints import Make
from tests.families import elmo_numpy
from tests.families.elmo_files import published
from tests.probing.making import converted, reader_of, whole, worded
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.probing.layers import example_rows, resolve_layers, vector_tokens
from zoo_elmo.characters import sentence_ids

hub_checkpoint = checkpoints.hub_checkpoint


def hidden_states(folder: Path, words: list[str]) -> tuple[list[Any], list[int | None]]:
    """Return the states of transformers, (tokens, hidden) each, and the word of each token."""
    tokenizer = transformers.BertTokenizerFast.from_pretrained(folder)
    network = transformers.BertModel.from_pretrained(folder)
    inputs = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        states = network(**inputs, output_hidden_states=True).hidden_states
    return [state[0].numpy() for state in states], inputs.word_ids()


def test_word_vectors_are_the_hidden_states_of_transformers(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    checkpoint = converted(hub_checkpoint, "BertForMaskedLM", tmp_path)
    reader = reader_of(checkpoint)
    texts = [worded("a", "cab", "b"), worded("da", "e", "bbb", "j")]
    assert reader.names == ["embeddings", "layer 1", "layer 2"]
    expected: dict[str, list[list[Any]]] = {"first": [[], [], []], "mean": [[], [], []]}
    for text in texts:
        states, word_ids = hidden_states(tmp_path / "source", list(text.words))
        for layer, state in enumerate(states):
            for word in range(len(text.words)):
                tokens = state[[place for place, each in enumerate(word_ids) if each == word]]
                expected["first"][layer].append(tokens[0])
                expected["mean"][layer].append(tokens.mean(0))
    assert len(expected["first"][0]) == 7
    for pooling in ("first", "mean"):
        folder = tmp_path / pooling
        folder.mkdir()
        vectors = reader.read(texts, pooling, folder)
        assert vectors.has_tokens.all()
        for array, rows in zip(vectors.arrays, expected[pooling], strict=True):
            assert isinstance(array, np.memmap)
            np.testing.assert_allclose(array, rows, rtol=1e-4, atol=1e-5)


def test_text_vectors_pool_all_tokens(hub_checkpoint: Make, tmp_path: Path) -> None:
    checkpoint = converted(hub_checkpoint, "BertForMaskedLM", tmp_path)
    states, _ = hidden_states(tmp_path / "source", ["a", "b", "c"])
    reader = reader_of(checkpoint, layers=[-1])
    pools = {
        "mean": states[2].mean(0),
        "max": states[2].max(0),
        "first": states[2][0],
        "last": states[2][-1],
    }
    for pooling, expected in pools.items():
        (tmp_path / pooling).mkdir()
        vectors = reader.read([whole("a b c")], pooling, tmp_path / pooling)  # type: ignore[arg-type]
        assert vectors.numbers == [2]
        np.testing.assert_allclose(vectors.arrays[0][0], expected, rtol=1e-4, atol=1e-5)


def test_all_layers_come_from_one_pass(
    hub_checkpoint: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The model runs once for each batch, and each text is in one batch."""
    checkpoint = converted(hub_checkpoint, "BertForMaskedLM", tmp_path)
    reader = reader_of(checkpoint)
    rows = []
    model: Any = reader.session.model
    model.register_forward_hook(
        lambda module, arguments, inputs, output: rows.append(len(inputs["input_ids"])),
        with_kwargs=True,
    )
    monkeypatch.setattr("zoo.probing.layers.TEXTS_TOGETHER", 4)
    texts = [worded(*"abc"), worded("d"), *[worded(*"efghij")] * 9]
    vectors = reader.read(texts, "first", tmp_path)
    assert sum(rows) == len(texts)
    assert vectors.passes == len(rows) < len(texts)
    assert [array.shape for array in vectors.arrays] == [(58, 32)] * 3


def test_words_behind_the_cut_have_no_vector(hub_checkpoint: Make, tmp_path: Path) -> None:
    checkpoint = converted(hub_checkpoint, "BertForMaskedLM", tmp_path)
    texts = [worded("a", "b", "c", "d"), worded("e")]
    vectors = reader_of(checkpoint, max_tokens=5).read(texts, "first", tmp_path)
    assert vectors.has_tokens.tolist() == [True, True, True, False, True]
    rows, text_numbers, is_complete = example_rows(texts, vectors.has_tokens)
    assert rows.tolist() == [[0], [1], [2], [4]]
    assert text_numbers.tolist() == [0, 0, 0, 1]
    assert is_complete.tolist() == [True, True, True, False, True]


def test_the_encoder_of_an_encoder_decoder_is_read(hub_checkpoint: Make, tmp_path: Path) -> None:
    make = hub_checkpoint
    changes = {"num_layers": 2, "d_model": 32, "d_kv": 8, "num_heads": 4, "d_ff": 48}
    checkpoint = converted(make, "T5ForConditionalGeneration", tmp_path, tokenizer=False, **changes)
    from tests.inspection.test_inspection import word_tokenizer
    from zoo.inference.torch_session import TorchSession
    from zoo.probing.layers import LayerReader

    reader = LayerReader(checkpoint, TorchSession(checkpoint, "cpu"), word_tokenizer())
    vectors = reader.read([worded("w3", "w5", "w4")], "first", tmp_path)
    network = transformers.T5EncoderModel.from_pretrained(tmp_path / "source")
    with torch.no_grad():
        states = network(torch.tensor([[3, 5, 4]]), output_hidden_states=True).hidden_states
    for array, state in zip(vectors.arrays, states, strict=True):
        scale = float(state.abs().max())
        np.testing.assert_allclose(array / scale, state[0] / scale, atol=1e-5)


@pytest.mark.parametrize("case", ["none-mixed", "pretraining"])
def test_layers_of_elmo_are_those_of_its_released_code(case: str, tmp_path: Path) -> None:
    source, golden = published(tmp_path / "source", case)
    convert(CheckpointDir(source, "source"), tmp_path / "model")
    checkpoint: Any = load_checkpoint(tmp_path / "model")
    words = ["The", "bank", "of", "the", "river", "."]
    vectors = reader_of(checkpoint).read([worded(*words)], "first", tmp_path)
    ids = sentence_ids(words, checkpoint.config.max_characters)
    weights = {name: np.asarray(array, np.float64) for name, array in golden.weights.items()}
    expected = elmo_numpy.layers(golden.hub_config, weights, ids)
    if case == "none-mixed":
        expected = [
            *expected,
            elmo_numpy.outputs(golden.hub_config, weights, ids)["last_hidden_state"],
        ]
        assert vectors.names[-1] == "model's mix"
    for array, layer in zip(vectors.arrays, expected, strict=True):
        np.testing.assert_allclose(array, layer[1:-1], rtol=0, atol=1e-5)


def test_layers_are_numbered_from_both_ends() -> None:
    assert resolve_layers(None, 3, "m") == [0, 1, 2]
    assert resolve_layers([-1, 0, 2], 3, "m") == [0, 2]
    for layers in ([3], [-4]):
        with pytest.raises(UsageError, match="m has no layer"):
            resolve_layers(layers, 3, "m")
    with pytest.raises(UsageError, match="no layers"):
        resolve_layers([], 3, "m")


def test_a_span_has_the_tokens_of_its_words(hub_checkpoint: Make, tmp_path: Path) -> None:
    checkpoint = converted(hub_checkpoint, "BertForMaskedLM", tmp_path)
    reader = reader_of(checkpoint)
    text = worded("ca", "b", "dab")
    (encoded,) = reader.tokenizer.encode([text.text], max_tokens=None)
    assert list(encoded.tokens)[:4] == ["[CLS]", "c", "##a", "b"]
    assert vector_tokens(text, encoded) == [[1, 2], [3], list(range(4, len(encoded.ids) - 1))]
