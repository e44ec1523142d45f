"""ELMo: the conformance kit, equality with a numpy implementation, and character ids."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from torch import Tensor

from tests.families import elmo_numpy
from zoo.conformance.hf_reference import hub_state
from zoo.errors import UsageError, VerificationError
from zoo.families.random_inputs import random_inputs, randomize_weights
from zoo.nn.layers.recurrent import RecurrentState
from zoo.nn.layers.skip_init import init_empty_weights
from zoo.testing.conformance import FamilyTests
from zoo_elmo import ElmoFamily
from zoo_elmo.characters import sentence_ids, word_ids
from zoo_elmo.config import SIZES, ElmoConfig
from zoo_elmo.model import Elmo
from zoo_elmo.tokenizer import WordTokenizer

ELMO = ElmoFamily()
TINY = SIZES["tiny"]
# the golden files' values, at which cells and projections are clipped
CLIPPED = replace(TINY, cell_clip=0.5, projection_clip=0.3)


class TestElmo(FamilyTests):
    family = ELMO
    golden = Path(__file__).parents[1] / "golden" / "elmo"


def random_model(config: ElmoConfig, head: str, scale: float = 1.5) -> Elmo:
    model = ELMO.model(config, head).double().eval()
    assert isinstance(model, Elmo)
    randomize_weights(model)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
    return model


def as_numpy(config: ElmoConfig, head: str, model: Elmo) -> tuple[dict[str, Any], Any]:
    """Return options and weights as in the released files."""
    hub = hub_state(ELMO.weights(config, head), model.state_dict())
    return ELMO.to_hub(config), {name: tensor.numpy() for name, tensor in hub.items()}


def batch(config: ElmoConfig, lengths: tuple[int, ...], seed: int = 0) -> Tensor:
    return random_inputs(ELMO.onnx(config, "none"), config, lengths, seed=seed)["character_ids"]


# Parity with the independent model


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"cell_clip": None, "projection_clip": None},
        {"cell_clip": 0.2},
        {"projection_clip": 0.05},
        {"skip_connections": False},
        {"activation": "tanh"},
        {"highways": 0},
        {"lstm_layers": 1},
        {"lstm_layers": 3},
        {"lstm_size": 10},
        {"filters": ((2, 10),)},
        {"mix": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("head", ["none", "bidirectional-lm"])
def test_every_setting_equals_the_numpy_model(changes: dict[str, Any], head: str) -> None:
    config = replace(CLIPPED, **changes)
    model = random_model(config, head)
    options, weights = as_numpy(config, head, model)
    lengths = (9, 4, 1)
    ids = batch(config, lengths)
    with torch.no_grad():
        exact, single = model(ids), model.float()(ids)
    for row, length in enumerate(lengths):
        expected = elmo_numpy.outputs(options, weights, ids[row, :length].tolist())
        assert list(expected) == list(exact)
        for name, values in expected.items():
            assert np.abs(exact[name][row, :length].numpy() - values).max() <= 1e-9
            difference = np.abs(single[name][row, :length].numpy() - values).max()
            assert difference <= 1e-5 * np.abs(values).max()


@pytest.mark.parametrize("clip", ["cell_clip", "projection_clip"])
def test_a_limit_changes_the_outputs(clip: str) -> None:
    ids = batch(TINY, (9, 4, 1))
    tight, loose = (replace(TINY, **{clip: limit}) for limit in (0.1, 1e6))
    with torch.no_grad():
        hidden = [random_model(c, "none")(ids)["last_hidden_state"] for c in (tight, loose)]
    assert (hidden[0] - hidden[1]).abs().max() > 1e-2


def test_the_released_shape_equals_the_numpy_model() -> None:
    config = replace(SIZES["small"], vocab_size=0, mix=False)
    model = random_model(config, "none", scale=1.0)
    options, weights = as_numpy(config, "none", model)
    words = ["The", "mix", "of", "its", "layers"]
    rows = [sentence_ids(words, 50), sentence_ids(words[:2], 50)]
    ids = torch.zeros(2, len(rows[0]), 50, dtype=torch.int64)
    for place, row in zip(ids, rows, strict=True):
        place[: len(row)] = torch.tensor(row)
    with torch.no_grad():
        exact, single = model(ids), model.float()(ids)
    for k, row in enumerate(rows):
        expected = elmo_numpy.outputs(options, weights, row)["last_hidden_state"]
        mine, mine32 = (out["last_hidden_state"][k, : len(row)].numpy() for out in (exact, single))
        assert np.abs(mine - expected).max() <= 1e-9
        assert np.abs(mine32 - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("activation", ["relu", "tanh"])
def test_initialization_equals_the_released_code(activation: str) -> None:
    # training.py: characters uniform in [-1, 1]; filters uniform in [-0.05, 0.05], or normal with
    # 1 / sqrt(fan-in); highways and projection 1 / sqrt(fan-in), carry biases -2; LSTMs glorot;
    # softmax 1 / sqrt(width)
    torch.manual_seed(0)
    config = replace(SIZES["small"], activation=activation, vocab_size=900)
    drawn = ELMO.model(config, "bidirectional-lm").state_dict()
    last = config.filters[-1]  # 7 characters of width 16
    filters = 0.05 / 3**0.5 if activation == "relu" else (7 * 16) ** -0.5
    for name, std in {
        "embeddings.characters.weight": 3**-0.5,
        f"embeddings.filters.{len(config.filters) - 1}.weight": filters,
        "embeddings.highways.0.carry.weight": 2048**-0.5,
        "embeddings.highways.0.transform.weight": 2048**-0.5,
        "embeddings.projection.weight": 2048**-0.5,
        "layers.1.right_to_left.kernel": (2 / (256 + 4096)) ** 0.5,
        "layers.1.right_to_left.projection": (2 / (1024 + 128)) ** 0.5,
        "head.weight": 128**-0.5,
    }.items():
        assert drawn[name].std().item() == pytest.approx(std, rel=0.03), name
        assert abs(drawn[name].mean().item()) <= 4 * std * drawn[name].numel() ** -0.5, name
    assert last == (7, 1024)
    biases = {name: tensor for name, tensor in drawn.items() if name.endswith("bias")}
    for name, bias in biases.items():
        assert (bias == (-2.0 if "carry" in name else 0.0)).all(), name


# Recurrent state across batches


def test_state_is_carried_row_by_row() -> None:
    model = random_model(CLIPPED, "none")
    options, weights = as_numpy(CLIPPED, "none", model)
    memories: list[elmo_numpy.Memory] = [{}, {}, {}]
    state = RecurrentState()
    for seed, lengths in enumerate([(5, 3), (2, 6, 4), (3,), (4, 1, 2)]):
        ids = batch(CLIPPED, lengths, seed)
        with torch.no_grad():
            layers = model.backbone(ids, None, state)
        state = RecurrentState(state.ended)
        for row, length in enumerate(lengths):
            sentence = ids[row, :length].tolist()
            expected = elmo_numpy.layers(options, weights, sentence, memories[row])
            for mine, layer in zip(layers, expected, strict=True):
                assert np.abs(mine[row, :length].numpy() - layer).max() <= 1e-9


def test_state_is_not_carried_by_default() -> None:
    model = random_model(CLIPPED, "none")
    ids = batch(CLIPPED, (5, 3))

    def run(state: RecurrentState | None) -> Tensor:
        with torch.no_grad():
            hidden: Tensor = model(ids, state=state)["last_hidden_state"]
        return hidden

    state = RecurrentState()
    first, second = run(state), run(RecurrentState(state.ended))
    assert (first - second).abs().max() > 1e-3
    assert torch.equal(run(state), first)  # the state is reset
    assert torch.equal(run(None), first) and torch.equal(run(None), first)


def test_gradients_stop_at_carried_state() -> None:
    model, state = random_model(CLIPPED, "none"), RecurrentState()
    for seed in range(2):
        loss = model(batch(CLIPPED, (4, 2), seed), state=state)["last_hidden_state"].square().sum()
        loss.backward()  # raises if the graph extends over batches
        state = RecurrentState(state.ended)


def test_a_word_of_zeros_is_padding_without_a_mask() -> None:
    model, ids = random_model(TINY, "none"), batch(TINY, (5, 2))
    mask = torch.tensor([[1] * 5, [1] * 2 + [0] * 3])
    with torch.no_grad():
        assert torch.equal(model(ids)["last_hidden_state"], model(ids, mask)["last_hidden_state"])
        assert not model(ids)["last_hidden_state"][1, 2:].any()


# Characters


def test_words_have_the_ids_of_the_released_code() -> None:
    # 259 begins a word, bytes have ids of their value + 1, 260 ends the word, 261 is padding
    assert word_ids("A", 6) == [259, 66, 260, 261, 261, 261]
    assert word_ids("", 4) == [259, 260, 261, 261]
    assert word_ids("\u00e9", 5) == [259, 0xC3 + 1, 0xA9 + 1, 260, 261]
    assert word_ids("\0\x7f", 4) == [259, 1, 128, 260]
    # the example of the library that the fixture is from
    expected = [259, 196, 134, 111, 104, 116, 117, 115, 196, 183, 110, 260]
    assert word_ids("\u00c5ngstr\u00f6m", 50) == expected + [261] * 38


def test_long_word_is_truncated() -> None:
    assert word_ids("abcdef", 5) == [259, 98, 99, 100, 260]
    assert word_ids("ab\u00e9", 5) == [259, 98, 99, 0xC3 + 1, 260]  # cut inside a character


def test_a_sentence_has_boundaries() -> None:
    assert sentence_ids(["a"], 5) == [
        [259, 257, 260, 261, 261],
        [259, 98, 260, 261, 261],
        [259, 258, 260, 261, 261],
    ]


def test_texts_are_split_at_white_space() -> None:
    (encoding,) = WordTokenizer(5).encode([" A cat ,\u00a0sat. "], max_tokens=None)
    assert encoding.tokens == ["<S>", "A", "cat", ",", "sat.", "</S>"]
    assert encoding.offsets == [(0, 0), (1, 2), (3, 6), (7, 8), (9, 13), (0, 0)]
    assert encoding.special == [True, False, False, False, False, True]
    ids: Any = encoding.ids
    assert ids == sentence_ids(["A", "cat", ",", "sat."], 5)


def test_text_is_truncated_before_its_end() -> None:
    long, short = WordTokenizer(5).encode(["a b c d", "a b"], max_tokens=4)
    assert long.tokens == ["<S>", "a", "b", "</S>"] and long.truncated == 2
    assert short.tokens == ["<S>", "a", "b", "</S>"] and short.truncated == 0
    assert len(long.ids) == len(long.offsets) == len(long.special) == 4


@pytest.mark.parametrize("text", [("a", "b"), 3, "\ud800"])
def test_invalid_sentences_are_refused(text: Any) -> None:
    with pytest.raises(UsageError, match="text 2"):
        WordTokenizer(5).encode(["a", text], max_tokens=None)


# Configuration


@pytest.mark.parametrize(
    ("size", "count"),
    [
        # characters 261 x 16; filters 12,320 x 16 + 2,048; each highway 2 (2,048^2 + 2,048);
        # projection 2,048 P + P; each of 4 LSTMs 2 P x 4 D + 4 D + D P. Published as 13.6, 28.0
        # and 93.6 million
        ("small", 4_176 + 199_168 + 8_392_704 + 262_272 + 4 * 1_183_744),
        ("medium", 4_176 + 199_168 + 8_392_704 + 524_544 + 4 * 4_726_784),
        ("original", 4_176 + 199_168 + 2 * 8_392_704 + 1_049_088 + 4 * 18_890_752),
    ],
)
def test_parameter_counts_are_the_published_ones(size: str, count: int) -> None:
    config = replace(SIZES[size], mix=False)
    with init_empty_weights():
        model = ELMO.model(config, "none")
    assert sum(parameter.numel() for parameter in model.parameters()) == count
    assert ELMO.weights(config, "none").parameters() == count
    published = {"small": 13.6, "medium": 28.0, "original": 93.6}[size]
    assert round(count / 1e6, 1) == published


def options(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = json.loads(json.dumps(ELMO.to_hub(TINY)))
    for key, value in changes.items():
        group, _, name = key.partition("__")
        if name:
            values[group][name] = value
        else:
            values[group] = value
    return values


def test_training_options_are_known_and_kept() -> None:
    training = {"n_epochs": 10, "batch_size": 128, "all_clip_norm_val": 10.0, "unroll_steps": 20}
    hub = options(bidirectional=True, char_cnn__n_characters=261, **training)
    translated = ELMO.from_hub(hub)
    assert translated.config == TINY and not translated.unknown
    back = json.loads(json.dumps(ELMO.to_hub(TINY, translated.extra)))
    assert back == {**hub, "char_cnn": {**hub["char_cnn"], "n_characters": 262}}


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"bidirectional": False}, "bidirectional"),
        ({"char_cnn__n_characters": 300}, "n_characters"),
        ({"char_cnn__activation": "gelu"}, "activation"),
        ({"char_cnn__filters": []}, "filters"),
        ({"char_cnn__filters": [[13, 4]]}, "wider than max_characters"),
        ({"lstm__projection_dim": 25}, "projection_size 25 is over"),
        ({"lstm__cell_clip": -1}, "cell_clip"),
        ({"lstm__dim": "24"}, "lstm.dim"),
        ({"char_cnn": {}}, "char_cnn.embedding.dim is missing"),
    ],
)
def test_options_that_are_not_implemented_are_refused(changes: Any, named: str) -> None:
    with pytest.raises(VerificationError, match=named):
        ELMO.from_hub(options(**changes))


def test_import_of_the_family_imports_no_torch() -> None:
    code = (
        "import sys, zoo_elmo; family, = zoo_elmo.zoo_families(); family.sizes(); family.heads();"
        "family.weights(family.sizes()['tiny'], 'none').entries(); "
        "print({'torch', 'numpy', 'tokenizers', 'onnx', 'rich', 'h5py'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
