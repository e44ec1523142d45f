"""What holds where two keys of a checkpoint's files state one fact, as in the libraries.

Each test writes files that contradict each other, and compares zoo with the library that the files
are of. docs/configuration-files.md has a row for each.
"""

import json
from collections.abc import Callable
from pathlib import Path
from shutil import rmtree
from typing import Any, TypeVar

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.checkpoints import VOCABULARY, Make, hub_checkpoint
from tests.closeness import assert_same
from tests.inference.conftest import converted
from tests.tokenizers.trained import byte_level
from tools.configuration_keys import PRECEDENCE
from zoo.api import Model, load
from zoo.checkpoint import load_text_tokenizer
from zoo.checkpoint.generation_config import generation_config
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir

__all__ = ["hub_checkpoint"]
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
LONG = "a b c d e f g h i j a b c d e f g h i j"
TEXTS = [LONG, "c d", "j i h g f e d c b a a a"]
MODULES = [
    {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
    {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
]
SIGMAS = ("\N{GREEK SMALL LETTER SIGMA}", "\N{GREEK SMALL LETTER FINAL SIGMA}")
POOLING = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True}
CROSS_ENCODER: dict[str, Any] = {
    "model_type": "CrossEncoder",
    "activation_fn": "torch.nn.modules.linear.Identity",
    "prompts": {},
    "default_prompt_name": None,
}


HELD: set[str] = set()  # facts with a test
Test = TypeVar("Test", bound=Callable[..., object])


def holds(*facts: str) -> Callable[[Test], Test]:
    """Say which rows of the page a test holds."""
    HELD.update(facts)
    return lambda test: test


def write(folder: Path, **files: dict[str, Any] | list[Any]) -> None:
    """Add keys to the JSON files of a directory; two underscores in a name are a slash."""
    for name, keys in files.items():
        path = folder / f"{name.replace('__', '/')}.json"
        path.parent.mkdir(exist_ok=True)
        if path.exists() and isinstance(keys, dict):
            keys = {**json.loads(path.read_text()), **keys}
        path.write_text(json.dumps(keys))


def sentence_encoder(hub_checkpoint: Make, **sentence: Any) -> Path:
    folder = hub_checkpoint("BertModel")
    write(folder, modules=MODULES, sentence_bert_config=sentence, **{"1_Pooling__config": POOLING})
    return folder


def cross_encoder(hub_checkpoint: Make, labels: int = 1, **sentence: Any) -> Path:
    names = {number: f"LABEL_{number}" for number in range(labels)}
    folder = hub_checkpoint("BertForSequenceClassification", id2label=names)
    text = {
        "transformer_task": "sequence-classification",
        "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}},
        "module_output_name": "scores",
    }
    write(
        folder,
        modules=MODULES[:1],
        sentence_bert_config={**text, **sentence},
        config_sentence_transformers=CROSS_ENCODER,
    )
    return folder


def both_ways(folder: Path) -> list[Model]:
    """Return a model that is read in place, and its conversion."""
    target = folder.with_name(f"{folder.name}-converted")
    checkpoint = converted(folder, target)
    return [load(str(folder), backend="cpu"), load(str(checkpoint.path), backend="cpu")]


def embedded(folder: Path) -> Any:
    library = pytest.importorskip("sentence_transformers")
    return library.SentenceTransformer(str(folder), device="cpu")


def set_lengths(folder: Path, tokenizer: int | None, **sentence: int | None) -> None:
    if tokenizer is not None:
        write(folder, tokenizer_config={"model_max_length": tokenizer})
    stated = {key: length for key, length in sentence.items() if length is not None}
    write(folder, sentence_bert_config=stated)


@pytest.mark.by_default("None-8")
@holds("the longest text or pair")
@pytest.mark.parametrize(("sentence", "tokenizer"), [(20, 8), (8, 20), (None, 8), (8, None)])
def test_the_length_of_a_text(
    hub_checkpoint: Make, sentence: int | None, tokenizer: int | None
) -> None:
    folder = sentence_encoder(hub_checkpoint)
    set_lengths(folder, tokenizer, max_seq_length=sentence)
    expected = embedded(folder).encode(TEXTS)
    for ours in both_ways(folder):
        assert_same(ours.embed(TEXTS), expected)
        assert ours.checkpoint.model.max_tokens == (sentence or tokenizer)


@pytest.mark.long
@holds("the longest text or pair")
@pytest.mark.parametrize("stated", [{"max_len": 8}, {"max_len": 8, "model_max_length": 12}, {}])
def test_other_lengths_of_the_tokenizer(hub_checkpoint: Make, stated: dict[str, int]) -> None:
    """``truncation`` of ``tokenizer.json`` is not one."""
    from transformers import AutoTokenizer

    folder = sentence_encoder(hub_checkpoint)
    AutoTokenizer.from_pretrained(folder).save_pretrained(folder)
    saved = json.loads((folder / "tokenizer_config.json").read_text())
    without = {key: value for key, value in saved.items() if key != "model_max_length"}
    (folder / "tokenizer_config.json").write_text(json.dumps({**without, **stated}))
    cut = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    write(folder, tokenizer={"truncation": cut})
    expected = embedded(folder).encode(TEXTS)
    for ours in both_ways(folder):
        assert_same(ours.embed(TEXTS), expected)


@pytest.mark.by_default("8-20")
@holds("the longest text or pair")
@pytest.mark.parametrize(("sentence", "tokenizer"), [(20, 8), (8, 20), (None, 8)])
def test_the_length_of_a_pair(hub_checkpoint: Make, sentence: int | None, tokenizer: int) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = cross_encoder(hub_checkpoint)
    set_lengths(folder, tokenizer, max_seq_length=sentence)
    pairs = [(text, TEXTS[1]) for text in TEXTS]
    encoder = library.CrossEncoder(str(folder), device="cpu")
    # In float32, its scores differ from these by 3e-5 on some CPUs.
    encoder.model.double()
    expected = encoder.predict(pairs)
    for ours in both_ways(folder):
        assert_same([row["score"] for row in ours.classify(pairs)], expected)


@pytest.mark.by_default("6-20-8-fixed")
@holds("the longest query or document")
@pytest.mark.parametrize("expansion", [None, "fixed", "min"])
@pytest.mark.parametrize(("own", "sentence", "tokenizer"), [(20, 12, 8), (6, 20, 8), (6, None, 8)])
def test_the_length_of_a_query(
    hub_checkpoint: Make, own: int, sentence: int | None, tokenizer: int, expansion: str | None
) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = hub_checkpoint("BertModel")
    mask = "sentence_transformers.multi_vector_encoder.modules.multi_vector_mask.MultiVectorMask"
    listed = [*MODULES[:1], {"idx": 1, "name": "1", "path": "1_MultiVectorMask", "type": mask}]
    write(folder, modules=listed, sentence_bert_config={}, **{"1_MultiVectorMask__config": {}})
    settings = {"model_type": "MultiVectorEncoder", "similarity_fn_name": "maxsim"}
    write(folder, config_sentence_transformers={**settings, "prompts": {}})
    if expansion is not None:
        added = {"strategy": expansion, "length": 5, "token": None, "attend": False}
        write(folder, sentence_bert_config={"query_expansion": added})
    set_lengths(folder, tokenizer, max_seq_length=sentence, query_length=own, document_length=own)
    theirs = library.MultiVectorEncoder(str(folder), device="cpu")
    for ours in both_ways(folder):
        for name in ("encode_query", "encode_document"):
            for found, expected in zip(
                getattr(ours, name)(TEXTS), getattr(theirs, name)(TEXTS), strict=True
            ):
                assert_same(found, expected)


@holds("lower case of a sentence encoder")
def test_lower_case_of_a_sentence_encoder(hub_checkpoint: Make) -> None:
    """The tokenizer's own steps follow, and added tokens stay as they are."""
    folder = sentence_encoder(hub_checkpoint, do_lower_case=True)
    (folder / "vocab.txt").write_text("\n".join([*VOCABULARY, "A", *SIGMAS, "[Q]"]) + "\n")
    grown = hub_checkpoint("BertModel", name="grown", vocab_size=len(VOCABULARY) + 4)
    (grown / "model.safetensors").rename(folder / "model.safetensors")
    (grown / "config.json").rename(folder / "config.json")
    write(
        folder,
        tokenizer_config={"do_lower_case": False, "additional_special_tokens": ["[Q]"]},
        config_sentence_transformers={"prompts": {"query": "[Q] A "}},
    )
    texts = ["A B c", f"a{SIGMAS[1]}", SIGMAS[0].upper()]
    theirs = embedded(folder)
    for ours in both_ways(folder):
        assert_same(ours.embed(texts), theirs.encode(texts))
        expected = theirs.encode(texts, prompt_name="query")
        assert_same(ours.embed(texts, prompt_name="query"), expected)


@pytest.mark.by_default("stated0")
@holds("pooling")
@pytest.mark.parametrize(
    ("stated", "width"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_max_tokens": True}, 64),
        ({"pooling_mode_lasttoken": True, "pooling_mode_cls_token": True}, 64),
        ({"pooling_mode": "cls", "pooling_mode_mean_tokens": True}, 32),
        ({"pooling_mode": ["mean", "cls"], "pooling_mode_max_tokens": True}, 64),
    ],
)
def test_the_pooling(hub_checkpoint: Make, stated: dict[str, Any], width: int) -> None:
    folder = sentence_encoder(hub_checkpoint)
    (folder / "1_Pooling/config.json").write_text(json.dumps({**stated, "embedding_dimension": 32}))
    expected = embedded(folder).encode(TEXTS)
    for ours in both_ways(folder):
        found = np.asarray(ours.embed(TEXTS))
        assert found.shape[1] == width
        assert_same(found, expected)


@holds("the number of outputs")
def test_the_number_of_labels(hub_checkpoint: Make, tmp_path: Path) -> None:
    from transformers import AutoModelForSequenceClassification

    names = {number: f"name {number}" for number in range(2)}
    folder = hub_checkpoint("BertForSequenceClassification", id2label=names)
    three = {str(number): f"name {number}" for number in range(3)}
    write(folder, config={"num_labels": 2, "id2label": three, "label2id": {"x": 0, "y": 1}})
    theirs: Any = AutoModelForSequenceClassification.from_pretrained(folder)
    for ours in both_ways(folder):
        assert list(ours.checkpoint.config.labels) == [*theirs.config.id2label.values()]
    # transformers fails where only the names fit the weights
    write(folder, config={"num_labels": 3, "id2label": {"0": "a", "1": "b"}})
    with pytest.raises(RuntimeError, match="mismatched"):
        AutoModelForSequenceClassification.from_pretrained(folder)
    assert converted(folder, tmp_path / "named").config.labels == ("a", "b")


@pytest.mark.by_default("stated0")
@holds("the dtype of the weights")
@pytest.mark.parametrize("stated", [{"dtype": "float16"}, {"torch_dtype": "float16"}, {}])
def test_the_dtype_of_the_weights(
    hub_checkpoint: Make, tmp_path: Path, stated: dict[str, str]
) -> None:
    """That of the files. transformers rounds them to the one that is stated."""
    folder = hub_checkpoint("BertModel")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "dtype": None, **stated}))
    stored = load_file(folder / "model.safetensors")
    checkpoint = converted(folder, tmp_path / "model")
    convert(CheckpointDir(checkpoint.path, "model"), tmp_path / "hub", to="hub")
    back = load_file(tmp_path / "hub" / "model.safetensors")
    assert back.keys() == stored.keys()
    for name, tensor in stored.items():
        assert back[name].dtype == tensor.dtype == torch.float32
        assert torch.equal(back[name], tensor)
    assert json.loads((tmp_path / "hub/config.json").read_text())["dtype"] == "float32"


def logits_of_batch(folder: Path, texts: list[str]) -> Any:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    model: Any = AutoModelForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        return model.eval()(**tokenizer(texts, padding=True, return_tensors="pt")).logits


@pytest.mark.by_default("7-b")
@holds("the padding token of the model")
@pytest.mark.parametrize("pad", ["b", "[PAD]"])
@pytest.mark.parametrize("number", [0, 7])
def test_the_padding_token(hub_checkpoint: Make, pad: str, number: int) -> None:
    """The tokenizer pads, and the model has its own token, which no output may depend on."""
    folder = hub_checkpoint("BertForSequenceClassification", pad_token_id=0)
    write(folder, config={"pad_token_id": number}, tokenizer_config={"pad_token": pad})
    expected = logits_of_batch(folder, TEXTS).softmax(-1)
    for ours in both_ways(folder):
        found = [[*row["scores"].values()] for row in ours.classify(TEXTS)]
        assert_same(found, expected)


@holds("the padding token of the model")
def test_positions_follow_the_padding_token_of_the_model(hub_checkpoint: Make) -> None:
    """A text that has the token of ``config.json`` has positions that do not count it."""
    folder = hub_checkpoint("RobertaForSequenceClassification", type_vocab_size=2, pad_token_id=1)
    write(folder, tokenizer_config={"tokenizer_class": "BertTokenizer", "pad_token": "[PAD]"})
    texts = ["a [UNK] b c", "a b"]
    expected = logits_of_batch(folder, texts).softmax(-1)
    for ours in both_ways(folder):
        found = [[*row["scores"].values()] for row in ours.classify(texts)]
        assert_same(found, expected)


SPECIAL = {"pad_token": "a", "mask_token": "b"}


@holds("the padding token of the model")
def test_a_decoder_reads_the_last_token_before_padding(hub_checkpoint: Make) -> None:
    """Every text ends in the token that ``config.json`` calls padding."""
    sizes = {"n_embd": 32, "n_head": 4, "n_layer": 1, "bos_token_id": 2, "eos_token_id": 2}
    folder = hub_checkpoint("GPT2ForSequenceClassification", **sizes, pad_token_id=3)
    inputs = ["input_ids", "attention_mask"]
    stated = {"tokenizer_class": "BertTokenizer", "model_input_names": inputs}
    write(folder, tokenizer_config=stated)
    expected = logits_of_batch(folder, ["a b c"]).softmax(-1)
    for ours in both_ways(folder):
        found = [[*row["scores"].values()] for row in ours.classify(["a b c"])]
        assert_same(found, expected)


@pytest.mark.by_default("True")
@holds("a special token")
@pytest.mark.parametrize("decoder", [True, False])
def test_special_tokens(hub_checkpoint: Make, decoder: bool) -> None:
    """special_tokens_map.json counts where no ``added_tokens_decoder`` is."""
    from transformers import AutoTokenizer

    folder = hub_checkpoint("BertModel")
    added = {"0": {"content": "[PAD]", "special": True}} if decoder else None
    stated = {"pad_token": "c", "mask_token": "d", "tokenizer_class": "BertTokenizer"}
    write(
        folder,
        tokenizer_config={**stated, **({"added_tokens_decoder": added} if added else {})},
        special_tokens_map=SPECIAL,
    )
    theirs: Any = AutoTokenizer.from_pretrained(folder)
    for ours in both_ways(folder):
        tokenizer = load_text_tokenizer(ours.checkpoint)
        assert tokenizer.info.special["pad"] == theirs.pad_token
        assert tokenizer.info.special["mask"] == theirs.mask_token


PATHS = ("torch.nn.modules.activation.Tanh", "torch.nn.modules.linear.Identity", "torch.nn.Sigmoid")


@pytest.mark.by_default("places0")
@holds("the function of a score")
@pytest.mark.parametrize("places", [(0, 1, 2), (None, 1, 2), (None, None, 2), (0, None, 1)])
def test_the_function_of_a_score(
    hub_checkpoint: Make, places: tuple[int | None, int | None, int | None]
) -> None:
    library = pytest.importorskip("sentence_transformers")
    folder = cross_encoder(hub_checkpoint)
    newest, group, oldest = [None if place is None else PATHS[place] for place in places]
    if newest is None:
        for name in ("modules", "sentence_bert_config", "config_sentence_transformers"):
            (folder / f"{name}.json").unlink()
    else:
        write(folder, config_sentence_transformers={"activation_fn": newest})
    if group is not None:
        write(folder, config={"sentence_transformers": {"activation_fn": group}})
    write(folder, config={"sbert_ce_default_activation_function": oldest})
    pairs = [("a b", "c"), ("d", "e f")]
    expected = library.CrossEncoder(str(folder), device="cpu").predict(pairs)
    for ours in both_ways(folder):
        assert_same([row["score"] for row in ours.classify(pairs)], expected)


@pytest.mark.by_default("other-nobody")
@holds("the prompt of a query or document")
@pytest.mark.parametrize("role", ["query", "nobody"])
@pytest.mark.parametrize("default", [None, "other", "passage"])
def test_the_prompt_of_a_query(hub_checkpoint: Make, default: str | None, role: str) -> None:
    folder = sentence_encoder(hub_checkpoint)
    prompts = {role: "a b ", "other": "c ", "passage": "d "}
    write(
        folder,
        config_sentence_transformers={"prompts": prompts, "default_prompt_name": default},
    )
    theirs = embedded(folder)
    for ours in both_ways(folder):
        assert_same(ours.embed(TEXTS), theirs.encode(TEXTS))
        assert_same(ours.encode_query(TEXTS), theirs.encode_query(TEXTS))
        assert_same(
            ours.embed(TEXTS, prompt_name="other"), theirs.encode(TEXTS, prompt_name="other")
        )


SEQ2SEQ = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "decoder_start_token_id": 3,
    "forced_eos_token_id": None,
}
GENERATION = ("bos_token_id", "eos_token_id", "forced_bos_token_id", "num_beams", "max_length")
OLDER = {"num_beams": 2, "max_length": 9, "eos_token_id": 5, "bos_token_id": 6}


@pytest.mark.by_default("config1-generation1")
@holds(
    "settings of generation, such as `bos_token_id`, `eos_token_id` and `max_length`",
    "the first token of a target",
)
@pytest.mark.parametrize(
    ("config", "generation"),
    [
        (OLDER, None),
        (OLDER, {"eos_token_id": 3}),
        (OLDER, {"eos_token_id": 3, "_from_model_config": True, "bos_token_id": 2}),
        ({"force_bos_token_to_be_generated": True}, None),
        ({"force_bos_token_to_be_generated": True, "forced_bos_token_id": 7}, None),
        ({"forced_bos_token_id": 7}, {"bos_token_id": 2, "forced_bos_token_id": 8}),
        ({}, {"force_bos_token_to_be_generated": True, "bos_token_id": 2}),
        (
            {},
            {
                "force_bos_token_to_be_generated": True,
                "bos_token_id": 6,
                "_from_model_config": True,
            },
        ),
    ],
)
def test_the_settings_of_generation(
    hub_checkpoint: Make, config: dict[str, Any], generation: dict[str, Any] | None
) -> None:
    from transformers import AutoModelForSeq2SeqLM

    folder = hub_checkpoint("BartForConditionalGeneration", **SEQ2SEQ)
    (folder / "generation_config.json").unlink()
    write(folder, config=config, tokenizer_config={"tokenizer_class": "BertTokenizer"})
    if generation is not None:
        write(folder, generation_config=generation)
    theirs: Any = AutoModelForSeq2SeqLM.from_pretrained(folder).generation_config
    for ours in both_ways(folder):
        settings = generation_config(ours.checkpoint.model.generation, {})
        for name in GENERATION:
            found, expected = getattr(settings, name), getattr(theirs, name)
            default = 1 if name == "num_beams" else None
            assert found == (default if expected is None else expected), name


@holds("the token whose state a classifier reads")
def test_a_classifier_reads_the_end_token_of_the_model(hub_checkpoint: Make) -> None:
    """BART's classifier reads the last ``eos_token_id`` of ``config.json``."""
    folder = hub_checkpoint("BartForSequenceClassification", **{**SEQ2SEQ, "eos_token_id": 6})
    write(
        folder,
        tokenizer_config={"tokenizer_class": "BertTokenizer", "eos_token": "c", "bos_token": "d"},
    )
    texts = ["a b c d", "a b"]  # the model's token is b
    expected = logits_of_batch(folder, texts).softmax(-1)
    for ours in both_ways(folder):
        found = [[*row["scores"].values()] for row in ours.classify(texts)]
        assert_same(found, expected)


@holds("tied weights")
def test_tied_weights(hub_checkpoint: Make, tmp_path: Path) -> None:
    """A file with two different matrices contradicts a tie, and one without contradicts none."""
    folder = hub_checkpoint("BertForMaskedLM", tie_word_embeddings=False)
    write(folder, config={"tie_word_embeddings": True})
    with pytest.raises(VerificationError, match="set tie_word_embeddings to false"):
        converted(folder, tmp_path / "refused")
    write(folder, config={"tie_word_embeddings": False})
    assert converted(folder, tmp_path / "model").head_name == "masked-lm"


@holds("a size, by two names")
def test_two_names_of_a_size(hub_checkpoint: Make, tmp_path: Path) -> None:
    folder = hub_checkpoint("BartForConditionalGeneration", **SEQ2SEQ)
    write(folder, config={"hidden_size": 16})
    with pytest.raises(VerificationError, match="hidden_size = 16 contradicts d_model = 32"):
        converted(folder, tmp_path / "refused")


# tests/families/test_tokenizer_classes.py compares all families and classes.
@holds("the kind of a tokenizer")
def test_the_kind_of_a_tokenizer(hub_checkpoint: Make) -> None:
    from transformers import AutoTokenizer

    folder = hub_checkpoint("BertModel", vocab_size=1500)
    (folder / "vocab.txt").unlink()
    vocabulary, merges = byte_level()
    (folder / "vocab.json").write_text(vocabulary)
    (folder / "merges.txt").write_text(merges)
    write(folder, config={"tokenizer_class": "RobertaTokenizer"})
    for stated in ("BartTokenizer", None):
        write(folder, tokenizer_config={"tokenizer_class": stated})
        theirs: Any = AutoTokenizer.from_pretrained(folder)
        tokenizer = load_text_tokenizer(both_ways(folder)[0].checkpoint)
        (found,) = tokenizer.encode(["a cat sat"], max_tokens=None)
        assert found.ids == theirs("a cat sat")["input_ids"]
        rmtree(folder.with_name(f"{folder.name}-converted"))


def test_each_row_of_the_page_has_a_test() -> None:
    assert {row.fact for row in PRECEDENCE} == HELD
