"""BART: the conformance kit, and equality with the reference library on random weights."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from tests.families import parity
from tests.families.making import SEQ2SEQ_SHAPE
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.families.random_inputs import random_inputs
from zoo.hub.source import CheckpointDir
from zoo.inference.load_model import load_model
from zoo.io.tensors.formats import TensorInfo
from zoo.testing.conformance import FamilyTests
from zoo.weights import match_tensors
from zoo_bart import Bart
from zoo_bart.config import SIZES, BartConfig

FAMILY = Bart()
HEADS = list(FAMILY.heads())
SMALL = BartConfig(**SEQ2SEQ_SHAPE)
UNTIED = replace(SMALL, tie_embeddings=False)
SHARED, TABLES = "model.shared.weight", ("model.encoder.embed_tokens.weight", "lm_head.weight")


class TestBart(FamilyTests):
    family = FAMILY
    golden = Path(__file__).parents[1] / "golden" / "bart"


# Parity with the reference library


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("config", [SMALL, UNTIED], ids=["tied", "untied"])
def test_small_models_equal_the_reference(config: BartConfig, head: str) -> None:
    parity.assert_equal(FAMILY, config, head)


@pytest.mark.parametrize(
    "changes",
    [
        {"scale_embedding": True},
        {"scale_embedding": True, "tie_embeddings": False},
        {"activation": "relu"},
        {"activation": "gelu_new", "num_layers": 1, "decoder_layers": 3},
        {"num_heads": 1, "decoder_attention_heads": 12},
        {"decoder_start_token_id": 7, "pad_token_id": 5, "eos_token_id": 9},
    ],
    ids=str,
)
def test_settings_equal_the_reference(changes: dict[str, Any]) -> None:
    parity.assert_equal(FAMILY, replace(SMALL, **changes), "seq2seq-lm")


@pytest.mark.long
@pytest.mark.parametrize(
    "head",
    [
        pytest.param(head, marks=[] if head == "seq2seq-lm" else pytest.mark.long)
        for head in HEADS  # they read the same two stacks
    ],
)
def test_padded_texts_up_to_the_longest_equal_the_reference(head: str) -> None:
    config = replace(SMALL, max_positions=512, num_layers=1, decoder_layers=1)
    inputs = random_inputs(FAMILY.onnx(config, head), config, (512, 300, 1))
    model = parity.random_model(FAMILY, parity.suited(config, head), head)
    parity.assert_equal(FAMILY, config, head, model, inputs)


def test_a_bias_of_the_logits_is_added_and_not_trained() -> None:
    model: Any = parity.random_model(FAMILY, SMALL, "seq2seq-lm")
    assert "logits_bias" in model.state_dict()
    assert "logits_bias" not in dict(model.named_parameters())
    inputs = random_inputs(FAMILY.onnx(SMALL, "seq2seq-lm"), SMALL, (9, 4))
    biased = model(**inputs)["logits"]
    bias, model.logits_bias = model.logits_bias, None
    assert torch.allclose(biased, model(**inputs)["logits"] + bias, atol=1e-12)
    assert bias.abs().min() > 0


def test_parameter_counts_are_the_published_ones() -> None:
    """139 million and 406,291,456 of the model cards; the bias of the logits is not among them."""
    counts = {size: FAMILY.weights(SIZES[size], "none").parameters() for size in ("base", "large")}
    assert counts == {"base": 139_420_416, "large": 406_291_456}
    head = FAMILY.weights(SIZES["large"], "seq2seq-lm").parameters()
    assert head == counts["large"] + SIZES["large"].vocab_size


def test_import_of_the_family_imports_no_torch() -> None:
    code = "import sys, zoo_bart; zoo_bart.Bart().heads(); assert 'torch' not in sys.modules"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Configuration


def test_keys_of_the_reference_are_known() -> None:
    translated = FAMILY.from_hub(transformers.BartConfig().to_dict())
    assert translated.unknown == ()
    large = replace(SIZES["large"], activation_dropout=0.0, attention_dropout=0.0)
    assert translated.config == large


# config.json of facebook/bart-large-cnn, with the keys of the implementation of its time
SUMMARIES: dict[str, Any] = {
    "activation_dropout": 0.0,
    "activation_function": "gelu",
    "add_bias_logits": False,
    "add_final_layer_norm": False,
    "architectures": ["BartForConditionalGeneration"],
    "attention_dropout": 0.0,
    "bos_token_id": 0,
    "classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "d_model": 1024,
    "decoder_attention_heads": 16,
    "decoder_ffn_dim": 4096,
    "decoder_layerdrop": 0.0,
    "decoder_layers": 12,
    "decoder_start_token_id": 2,
    "dropout": 0.1,
    "early_stopping": True,
    "encoder_attention_heads": 16,
    "encoder_ffn_dim": 4096,
    "encoder_layerdrop": 0.0,
    "encoder_layers": 12,
    "eos_token_id": 2,
    "force_bos_token_to_be_generated": True,
    "forced_bos_token_id": 0,
    "forced_eos_token_id": 2,
    "init_std": 0.02,
    "is_encoder_decoder": True,
    "length_penalty": 2.0,
    "max_length": 142,
    "max_position_embeddings": 1024,
    "min_length": 56,
    "model_type": "bart",
    "no_repeat_ngram_size": 3,
    "normalize_before": False,
    "num_beams": 4,
    "num_hidden_layers": 12,
    "pad_token_id": 1,
    "scale_embedding": False,
    "static_position_embeddings": False,
    "vocab_size": 50264,
}


def test_a_published_configuration_is_read_and_written_back() -> None:
    translated = FAMILY.from_hub(SUMMARIES)
    assert translated.unknown == ()
    assert translated.config == replace(
        SIZES["large"], vocab_size=50264, activation_dropout=0.0, attention_dropout=0.0
    )
    back = FAMILY.to_hub(translated.config, translated.extra)
    assert {k: back[k] for k in SUMMARIES if k != "architectures"} == {
        k: v for k, v in SUMMARIES.items() if k != "architectures"
    }


@pytest.mark.parametrize("forced", [{}, {"forced_eos_token_id": None}, {"forced_eos_token_id": 7}])
def test_the_last_token_is_forced_as_in_the_reference(forced: dict[str, Any]) -> None:
    """``generate`` of the reference reads the default of its configuration."""
    keys = {**transformers.BartConfig(**forced).to_dict(), **forced}
    if not forced:
        del keys["forced_eos_token_id"]
    settings = transformers.GenerationConfig.from_model_config(transformers.BartConfig(**keys))
    expected = settings.forced_eos_token_id
    assert FAMILY.from_hub(keys).extra["forced_eos_token_id"] == expected


@pytest.mark.parametrize(
    ("hub", "named"),
    [
        ({"normalize_before": True}, "normalize_before"),
        ({"static_position_embeddings": True}, "static_position_embeddings"),
        ({"normalize_embedding": False}, "normalize_embedding"),
        ({"is_decoder": True}, "is_decoder"),
        ({"is_encoder_decoder": False}, "is_encoder_decoder"),
        ({"d_model": "512"}, "d_model"),
        ({"num_hidden_layers": 3}, "num_hidden_layers = 3 contradicts"),
        ({"decoder_attention_heads": 5}, "decoder_attention_heads 5"),
        ({"eos_token_id": 50265}, "eos_token_id 50265 is outside"),
        ({"decoder_layers": 0}, "decoder_layers = 0 is not positive"),
    ],
)
def test_unimplemented_settings_are_refused_by_name(hub: dict[str, Any], named: str) -> None:
    keys = {"model_type": "bart", "encoder_layers": 12}
    with pytest.raises(VerificationError, match=named):
        FAMILY.from_hub({**keys, **hub})


# Published weights


@pytest.mark.by_default("seq2seq-lm", "sequence-classification")
@pytest.mark.parametrize("head", HEADS)
def test_hub_round_trip(head: str, tmp_path: Path) -> None:
    parity.assert_there_and_back(FAMILY, SMALL, head, tmp_path)


@pytest.mark.parametrize("head", ["none", "seq2seq-lm"])
def test_hub_round_trip_of_untied_tables(head: str, tmp_path: Path) -> None:
    """The table ``shared`` is not used; it is dropped, and written as a copy of the encoder's."""
    parity.save_reference(FAMILY, UNTIED, head, tmp_path / "hub")
    report = convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours")
    shared = SHARED.removeprefix("" if head == "seq2seq-lm" else "model.")
    assert list(report.mapping.unused) == [shared]
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    before, after = (load_file(tmp_path / d / "model.safetensors") for d in ("hub", "back"))
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == [shared]
    assert torch.equal(after[shared], before[shared.replace("shared", "encoder.embed_tokens")])


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_round_trip(dtype: str, tmp_path: Path) -> None:
    parity.assert_there_and_back(FAMILY, SMALL, "seq2seq-lm", tmp_path, dtype)


def test_a_file_with_all_names_of_the_table_is_matched() -> None:
    """As ``.bin`` files have it, with the version of fairseq, and before the bias was stored."""
    file = parity.published(FAMILY, SMALL, "seq2seq-lm")
    decoder = "model.decoder.embed_tokens.weight"
    file |= dict.fromkeys((*TABLES, decoder), file[SHARED])
    file["model.encoder.version"] = file["model.decoder.version"] = TensorInfo("F32", (1,))
    del file["final_logits_bias"]
    mapping = match_tensors(FAMILY.weights(SMALL, "seq2seq-lm"), file)
    mapping.raise_if_incomplete("test")
    assert mapping.ties == dict.fromkeys((*TABLES, decoder), SHARED)
    assert sorted(mapping.drops) == ["model.decoder.version", "model.encoder.version"]
    assert mapping.absent == ("logits_bias",)


def test_a_bare_model_becomes_a_language_model(tmp_path: Path) -> None:
    """The first release is bare: its tables are tied, and a bias that it lacks would be zero."""
    parity.save_reference(FAMILY, SMALL, "none", tmp_path / "hub")
    assert convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "bare").head == "none"
    convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "lm", head="seq2seq-lm")
    checkpoint = load_checkpoint(tmp_path / "lm")
    assert checkpoint.config == replace(SMALL, logits_bias=False)
    inputs = random_inputs(FAMILY.onnx(SMALL, "seq2seq-lm"), SMALL, (9, 4))
    theirs: Any = transformers.BartForConditionalGeneration.from_pretrained(tmp_path / "hub")
    with torch.no_grad():
        ours = load_model(checkpoint)(**inputs)["logits"]
        expected = theirs.eval()(**inputs).logits
    assert (ours - expected).abs().max() <= 1e-5 * expected.abs().max()


def test_tables_that_are_untied_and_stored_once_are_read_into_each(tmp_path: Path) -> None:
    parity.save_reference(FAMILY, UNTIED, "seq2seq-lm", tmp_path / "hub")
    path = tmp_path / "hub" / "model.safetensors"
    tensors = load_file(path)
    for stack in ("encoder", "decoder"):
        del tensors[f"model.{stack}.embed_tokens.weight"]
    save_file(tensors, path)
    convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours")
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    for name in ("embeddings.tokens.weight", "decoder.embeddings.tokens.weight"):
        assert torch.equal(ours[name], tensors[SHARED])
    assert torch.equal(ours["head.weight"], tensors["lm_head.weight"])
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert {name for name in back if torch.equal(back[name], tensors[SHARED])} == {
        SHARED,
        "model.encoder.embed_tokens.weight",
        "model.decoder.embed_tokens.weight",
    }


def test_a_table_that_contradicts_its_owner_is_refused(tmp_path: Path) -> None:
    parity.save_reference(FAMILY, SMALL, "seq2seq-lm", tmp_path / "hub")
    path = tmp_path / "hub" / "model.safetensors"
    tensors = load_file(path)
    tensors["lm_head.weight"] = tensors[SHARED] + 1
    save_file(tensors, path)
    with pytest.raises(VerificationError, match=r"lm_head\.weight"):
        convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("layout", ["sharded", "bin"])
def test_other_layouts_are_read(layout: str, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    parity.save_reference(FAMILY, SMALL, "sequence-classification", hub)
    tensors = load_file(hub / "model.safetensors")
    if layout == "bin":
        (hub / "model.safetensors").unlink()
        torch.save(tensors, hub / "pytorch_model.bin")
    else:
        model = transformers.BartForSequenceClassification.from_pretrained(hub)
        (hub / "model.safetensors").unlink()
        model.save_pretrained(hub, max_shard_size="100KB")
        assert json.loads((hub / "model.safetensors.index.json").read_text())["weight_map"]
    convert(CheckpointDir(hub, "hub"), tmp_path / "ours", allow_pickle=layout == "bin")
    ours = load_file(tmp_path / "ours" / "model.safetensors")
    weights = FAMILY.weights(SMALL, "sequence-classification")
    assert ours.keys() == {entry.target for entry in weights.entries()}
    assert torch.equal(ours["embeddings.tokens.weight"], tensors[SHARED])


@pytest.mark.long
@pytest.mark.parametrize("tied", [True, False])
def test_odd_files_are_converted_both_ways(tied: bool, tmp_path: Path) -> None:
    """Shards of a ``.bin`` file in half precision, with all names and the version of fairseq."""
    hub = tmp_path / "hub"
    parity.save_reference(FAMILY, replace(SMALL, tie_embeddings=tied), "seq2seq-lm", hub, "float16")
    tensors = load_file(hub / "model.safetensors")
    (hub / "model.safetensors").unlink()
    decoder = "model.decoder.embed_tokens.weight"
    all_names = dict.fromkeys((*TABLES, decoder), tensors[SHARED]) if tied else {}
    version = dict.fromkeys(("model.encoder.version", "model.decoder.version"), torch.ones(1))
    stored = {**tensors, **all_names, **version}
    files = {f"pytorch_model-0000{k + 1}-of-00002.bin": sorted(stored)[k::2] for k in range(2)}
    for file, names in files.items():
        torch.save({name: stored[name] for name in names}, hub / file)
    index = {name: file for file, names in files.items() for name in names}
    (hub / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": index}))
    convert(CheckpointDir(hub, "hub"), tmp_path / "ours", allow_pickle=True)
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    back = load_file(tmp_path / "back" / "model.safetensors")
    assert back.keys() == tensors.keys()
    different = [name for name in back if not torch.equal(back[name], tensors[name])]
    assert different == ([] if tied else [SHARED])  # which no part of an untied model uses
