"""``zoo look`` computes what transformers does with eager attention, and ELMo's released code."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors

from tests.families import elmo_numpy
from tests.families.elmo_files import published
from tests.families.parity import save_reference
from zoo.checkpoint import Checkpoint, load_checkpoint, load_text_tokenizer
from zoo.conformance.hf_reference import keep_float64, reference_model
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.inference.task_warnings import TaskWarning
from zoo.inference.torch_session import TorchSession
from zoo.inspection.inspection import Inspector, Look, readable, words_of
from zoo.inspection.page import render
from zoo.plugins.registry import get_family
from zoo.tokenizers.info import TokenizerInfo
from zoo.tokenizers.tokenizer import TextTokenizer
from zoo_elmo.characters import sentence_ids

WORDS = [f"w{number}" for number in range(120)]
TEXT = "w5 w9 w30 w7 w8 w9 w41"
HEADS = [
    ("bert", "pretraining"),
    ("bert", "multiple-choice"),
    ("roberta", "masked-lm"),
    ("modernbert", "masked-lm"),
    ("distilbert", "masked-lm"),
    ("electra", "replaced-token-detection"),
    ("albert", "masked-lm"),
    ("deberta", "masked-lm"),
    ("gpt", "causal-lm"),
    ("t5", "seq2seq-lm"),
]


def word_tokenizer() -> TextTokenizer:
    """Return a tokenizer whose token number n is the word wn."""
    tokenizer = Tokenizer(models.WordLevel({word: k for k, word in enumerate(WORDS)}, "w1"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return TextTokenizer(tokenizer, TokenizerInfo(special={"mask": "w7", "pad": "w0"}))


def checkpoint_of(name: str, head: str, folder: Path) -> Checkpoint:
    family = get_family(name)
    config = replace(family.sizes()["tiny"], vocab_size=len(WORDS))
    save_reference(family, config, head, folder / "source")
    convert(CheckpointDir(folder / "source", "source"), folder / "model", head=head)
    return load_checkpoint(folder / "model")


def config_of(checkpoint: Checkpoint) -> Any:
    return checkpoint.config


def look_into(checkpoint: Checkpoint, *texts: str, **options: Any) -> tuple[Look, TorchSession]:
    # the softmax of random weights is so steep that two computations in float32 differ visibly
    session = TorchSession(checkpoint, "cpu", dtype="float64")
    inspector = Inspector(checkpoint, session, word_tokenizer(), top_k=len(WORDS))
    with keep_float64():
        return inspector.look("model", texts, **options), session


def reference_of(checkpoint: Checkpoint, session: TorchSession, **inputs: Any) -> Any:
    """Run the model of transformers, with eager attention, on the weights of the checkpoint."""
    model: Any = reference_model(
        checkpoint.family, checkpoint.config, checkpoint.head_name, session.model.state_dict()
    )
    model.set_attn_implementation("eager")
    with torch.no_grad(), keep_float64():
        return model(**inputs, output_hidden_states=True, output_attentions=True)


def assert_equal(values: Any, expected: Any) -> None:
    assert len(values) == len(expected)
    for value, tensor in zip(values, expected, strict=True):
        scale = max(1.0, float(tensor.abs().max()))
        np.testing.assert_allclose(value / scale, tensor.squeeze(0) / scale, rtol=0, atol=1e-5)


@pytest.mark.by_default(
    "modernbert-masked-lm",
    "deberta-masked-lm",
    "gpt-causal-lm",
    "t5-seq2seq-lm",
    "bert-pretraining",
)
@pytest.mark.parametrize(("name", "head"), HEADS)
def test_numbers_are_those_of_transformers(name: str, head: str, tmp_path: Path) -> None:
    checkpoint = checkpoint_of(name, head, tmp_path)
    target = {"target": "w3 w4 w6"} if name == "t5" else {}
    look, session = look_into(checkpoint, TEXT, **target)
    ids = torch.tensor([[int(word[1:]) for word in TEXT.split()]])
    inputs = {"input_ids": ids[:, None] if head == "multiple-choice" else ids}
    written = look.to_json()["texts"][0]["stacks"]
    if name == "t5":
        start = config_of(checkpoint).decoder_start_token_id
        inputs["decoder_input_ids"] = torch.tensor([[start, 3, 4, 6]])
    expected = reference_of(checkpoint, session, **inputs)
    states, attentions = (
        ("hidden_states", "attentions")
        if name != "t5"
        else (
            "encoder_hidden_states",
            "encoder_attentions",
        )
    )
    first, last = (
        {k: [np.array(v) for v in stack[k]] for k in ("hidden_states",)}
        | {k: np.array(v["values"]) for k, v in stack["attention"].items()}
        for stack in (written[0], written[-1])
    )
    assert_equal(first["hidden_states"], expected[states])
    assert_equal(first["self"], expected[attentions])
    if name == "t5":
        assert_equal(last["hidden_states"], expected["decoder_hidden_states"])
        assert_equal(last["self"], expected["decoder_attentions"])
        assert_equal(last["cross"], expected["cross_attentions"])


@pytest.mark.by_default(
    "bert-pretraining", "gpt-causal-lm", "t5-seq2seq-lm", "modernbert-masked-lm"
)
@pytest.mark.parametrize(("name", "head"), [pair for pair in HEADS if pair[1] != "multiple-choice"])
def test_the_last_predictions_are_the_outputs_of_transformers(
    name: str, head: str, tmp_path: Path
) -> None:
    checkpoint = checkpoint_of(name, head, tmp_path)
    look, session = look_into(checkpoint, TEXT, **({"target": "w3 w4"} if name == "t5" else {}))
    inputs = {"input_ids": torch.tensor([[int(word[1:]) for word in TEXT.split()]])}
    if name == "t5":
        start = config_of(checkpoint).decoder_start_token_id
        inputs["decoder_input_ids"] = torch.tensor([[start, 3, 4]])
    expected = reference_of(checkpoint, session, **inputs)
    logits = (expected["prediction_logits"] if head == "pretraining" else expected["logits"])[0]
    (found,) = look.texts[0].stacks[-1].predictions
    assert len(found.layers) == len(look.texts[0].stacks[-1].layers)
    if head == "replaced-token-detection":
        np.testing.assert_allclose(found.probabilities[-1, :, 0], logits.sigmoid(), atol=1e-5)
        return
    probabilities = logits.double().softmax(-1).numpy()
    for row, words, values in zip(
        probabilities, found.tokens[-1], found.probabilities[-1], strict=True
    ):
        assert (np.diff(values) <= 0).all()
        ours = {int(word.strip("w#")): value for word, value in zip(words, values, strict=True)}
        np.testing.assert_allclose([ours[k] for k in sorted(ours)], row[sorted(ours)], atol=1e-5)


def test_predictions_of_earlier_layers_are_read_by_the_head(tmp_path: Path) -> None:
    """The logit lens of GPT-2: the final norm and the output embeddings of transformers."""
    checkpoint = checkpoint_of("gpt", "causal-lm", tmp_path)
    look, session = look_into(checkpoint, TEXT)
    (found,) = look.texts[0].stacks[0].predictions
    model: Any = reference_model(
        checkpoint.family, checkpoint.config, "causal-lm", session.model.state_dict()
    )
    for layer, state in enumerate(look.texts[0].stacks[0].hidden[:-1]):
        with torch.no_grad():
            normed = model.transformer.ln_f(torch.from_numpy(np.array(state)).to(model.dtype))
            expected = model.lm_head(normed).double().softmax(-1).max(-1).values
        np.testing.assert_allclose(found.probabilities[layer, :, 0], expected, atol=1e-5)


@pytest.mark.parametrize("case", ["none-mixed", "pretraining"])
def test_layers_of_elmo_are_those_of_the_numpy_model(case: str, tmp_path: Path) -> None:
    source, golden = published(tmp_path / "source", case)
    convert(CheckpointDir(source, "source"), tmp_path / "model")
    checkpoint = load_checkpoint(tmp_path / "model")
    session = TorchSession(checkpoint, "cpu")
    text = "The bank of the river ."
    look = Inspector(checkpoint, session, load_text_tokenizer(checkpoint)).look("elmo", [text])
    (stack,) = look.texts[0].stacks
    ids = sentence_ids(text.split(), config_of(checkpoint).max_characters)
    weights = {name: np.asarray(array, np.float64) for name, array in golden.weights.items()}
    expected = elmo_numpy.layers(golden.hub_config, weights, ids)
    outputs = elmo_numpy.outputs(golden.hub_config, weights, ids)
    for state, layer in zip(stack.hidden, expected, strict=False):
        np.testing.assert_allclose(state, layer, rtol=0, atol=1e-5)
    assert stack.attention == []
    if case == "pretraining":
        assert [found.name for found in stack.predictions] == ["next word", "previous word"]
        for found, name in zip(stack.predictions, outputs, strict=True):
            exact = np.exp(outputs[name] - outputs[name].max(-1, keepdims=True))
            best = (exact / exact.sum(-1, keepdims=True)).max(-1)
            np.testing.assert_allclose(found.probabilities[-1, :, 0], best, atol=1e-5)
        return
    assert f"{len(expected) - 1} layers of width" in render(look)
    assert stack.layers[-1] == "mix" and len(stack.hidden) == len(expected) + 1
    np.testing.assert_allclose(stack.hidden[-1], outputs["last_hidden_state"], rtol=0, atol=1e-5)
    shares = np.exp(weights["ELMo_W"]) / np.exp(weights["ELMo_W"]).sum()
    np.testing.assert_allclose(look.mixes[0].weights, shares.ravel(), atol=1e-6)
    assert look.mixes[0].gamma == pytest.approx(float(weights["ELMo_gamma"].item()))


def test_similarities_are_cosines_within_and_between_texts(tmp_path: Path) -> None:
    checkpoint = checkpoint_of("bert", "none", tmp_path)
    look, _ = look_into(checkpoint, "w5 w9 w30", "w9 w5")
    for layer, values in enumerate(look.similarities()):
        states = [torch.tensor(v.stacks[0].hidden[layer]).double() for v in look.texts]
        joined = torch.cat(states)
        expected = torch.cosine_similarity(joined[:, None], joined[None], dim=-1)
        np.testing.assert_allclose(values, expected, rtol=0, atol=1e-12)


def test_a_decoder_reads_what_the_model_generates(tmp_path: Path) -> None:
    checkpoint = checkpoint_of("t5", "seq2seq-lm", tmp_path)
    look, _ = look_into(checkpoint, TEXT)
    decoder = look.texts[0].stacks[1]
    assert 1 < len(decoder.tokens) <= 32
    (found,) = decoder.predictions  # each token is the best prediction at the one before
    assert decoder.tokens[1:] == [words[0] for words in found.tokens[-1][:-1]]


def test_texts_are_cut_and_masks_are_found(tmp_path: Path) -> None:
    checkpoint = checkpoint_of("bert", "none", tmp_path)
    session = TorchSession(checkpoint, "cpu")
    inspector = Inspector(checkpoint, session, word_tokenizer(), max_tokens=4)
    with pytest.warns(TaskWarning, match="longer than 4 tokens and was cut; --max-seq-len N shows"):
        (view,) = inspector.look("model", [TEXT]).texts
    assert view.truncated == 3 and view.masked == [3]
    assert view.stacks[0].tokens == ["w5", "w9", "w30", "w7"]
    with pytest.warns(TaskWarning, match="1 of 1 texts was longer than 64 tokens"):
        long = Inspector(checkpoint, session, word_tokenizer()).look("model", ["w5 " * 200])
    assert len(long.texts[0].stacks[0].tokens) == min(64, config_of(checkpoint).max_positions)
    with pytest.raises(UsageError, match="no decoder that reads a target"):
        inspector.look("model", [TEXT], target="w5")


PIECES = (
    "the",
    "un",
    "##believ",
    "##able",
    "bank",
    "'",
    "t",
    "don",
    "[CLS]",
    "[SEP]",
    "[MASK]",
    "[UNK]",
    ".",
)


def pieces_tokenizer(kind: str) -> TextTokenizer:
    """Return a tokenizer of pieces of words: WordPiece, bytes or SentencePiece."""
    special = {"cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]", "unk": "[UNK]"}
    if kind == "wordpiece":
        model: Any = models.WordPiece({word: k for k, word in enumerate(PIECES)}, unk_token="[UNK]")
        tokenizer = Tokenizer(model)
        tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        tokenizer.normalizer = normalizers.Lowercase()
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 8), ("[SEP]", 9)]
        )
        tokenizer.add_special_tokens(["[CLS]", "[SEP]", "[MASK]"])
    elif kind == "bytes":
        letters = sorted(pre_tokenizers.ByteLevel.alphabet())
        tokenizer = Tokenizer(models.BPE({letter: k for k, letter in enumerate(letters)}, []))
        tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        letters = sorted({*"theunbliavkdon'.[CLSMAK]", "\N{LOWER ONE EIGHTH BLOCK}"})
        tokenizer = Tokenizer(models.Unigram([("<unk>", 0.0), *((c, -1.0) for c in letters)], 0))
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    return TextTokenizer(tokenizer, TokenizerInfo(special=special))


@pytest.mark.parametrize("kind", ["wordpiece", "bytes", "sentencepiece"])
def test_words_are_those_of_the_text_for_any_tokenizer(kind: str) -> None:
    text = "The unbelievable  bank don't."
    tokenizer = pieces_tokenizer(kind)
    encoded = tokenizer.encode([text], max_tokens=64)[0]
    words = words_of(text, encoded, [readable(token) for token in encoded.tokens])
    names = [word.text for word in words]
    ends = ["[CLS]", "[SEP]"] if kind == "wordpiece" else []
    assert names == [*ends[:1], "The", "unbelievable", "bank", "don't", ".", *ends[1:]]
    # each token is in one word, in order
    assert [place for word in words for place in word.tokens] == list(range(len(encoded.tokens)))


def test_a_mask_is_a_word() -> None:
    text = "the [MASK] bank"
    encoded = pieces_tokenizer("wordpiece").encode([text], max_tokens=64)[0]
    words = [word.text for word in words_of(text, encoded, list(encoded.tokens))]
    assert words == ["[CLS]", "the", "[MASK]", "bank", "[SEP]"]


def test_a_words_vector_is_the_mean_of_its_tokens(tmp_path: Path) -> None:
    checkpoint = checkpoint_of("bert", "pretraining", tmp_path)
    session = TorchSession(checkpoint, "cpu")
    inspector = Inspector(checkpoint, session, pieces_tokenizer("wordpiece"))
    written = inspector.look("model", ["unbelievable bank"]).to_json()
    (text,) = written["texts"]
    assert text["words"] == [
        {"word": "[CLS]", "tokens": [0]},
        {"word": "unbelievable", "tokens": [1, 2, 3]},
        {"word": "bank", "tokens": [4]},
        {"word": "[SEP]", "tokens": [5]},
    ]
    for states, similarity in zip(
        text["stacks"][0]["hidden_states"], written["word_similarity"], strict=True
    ):
        rows = np.array(states)
        one, other = rows[1:4].mean(0), rows[4]
        cosine = one @ other / (np.linalg.norm(one) * np.linalg.norm(other))
        assert similarity[1][2] == pytest.approx(cosine, abs=1e-5)
