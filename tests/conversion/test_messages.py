"""Errors of checkpoints that cannot be converted: what was found, and what to do."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.checkpoints import SMALL, Make
from zoo.checkpoint import load_checkpoint
from zoo.conversion.cache import resolve_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import ZooError
from zoo.hub.select_files import files_to_download
from zoo.hub.source import CheckpointDir


def edit(source: Path, **changes: Any) -> None:
    config = json.loads((source / "config.json").read_text()) | changes
    (source / "config.json").write_text(json.dumps(config))


def error_of(source: Path) -> ZooError:
    """Return the error of a conversion; a dry run and other commands give the same."""
    messages, target = [], source.with_name("ours")
    for run in (
        lambda: convert(CheckpointDir(source, str(source)), target),
        lambda: convert(CheckpointDir(source, str(source)), None, dry_run=True),
        lambda: resolve_checkpoint(str(source)),
    ):
        with pytest.raises(ZooError) as caught:
            run()
        messages.append(str(caught.value))
    assert len(set(messages)) == 1 and "\n" not in messages[0]
    assert not target.exists()
    return caught.value


def test_fewer_names_than_labels(hub_checkpoint: Make) -> None:
    source = hub_checkpoint("BertForSequenceClassification", num_labels=3)
    edit(source, num_labels=4, id2label={"0": "good", "1": "bad"})
    message = str(error_of(source))
    assert "num_labels is 4, and id2label names 2; the tensors do not match" in message
    assert message.endswith("correct num_labels and id2label, or leave one of them out")
    # what the message says works
    edit(source, id2label={"0": "good", "1": "bad", "2": "mixed"})
    report = convert(CheckpointDir(source, str(source)), None, dry_run=True)
    assert report.head == "sequence-classification"


def test_names_that_fit_the_weights(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForSequenceClassification")
    edit(source, num_labels=3, id2label={"0": "good", "1": "bad"})
    convert(CheckpointDir(source, str(source)), tmp_path / "ours")
    assert load_checkpoint(tmp_path / "ours").config.labels == ("good", "bad")


ONLY: dict[str, tuple[str, str]] = {
    "adapter_model.safetensors": (
        "adapter of peft",
        "`zoo convert DIR --base REF -o ADAPTER` converts it",
    ),
    "adapter_config.json": (
        "adapter of peft",
        "`zoo convert DIR --base REF -o ADAPTER` converts it",
    ),
    "tf_model.h5": ("TensorFlow", "from_tf=True"),
    "tf_model-00001-of-00002.h5": ("TensorFlow", "from_tf=True"),
    "flax_model.msgpack": ("Flax", "from_flax=True"),
    "model.onnx": ("ONNX graph", "the model that it was exported from"),
    "onnx/model.onnx": ("ONNX graph", "the model that it was exported from"),
    "rust_model.ot": ("another runtime", "the model that it was made from"),
    "openvino_model.xml": ("another runtime", "the model that it was made from"),
    "openvino/openvino_model_qint8.xml": ("another runtime", "the model that it was made from"),
    "ctranslate2/model.bin": ("another runtime", "the model that it was made from"),
    "model.bin": ("another runtime", "the model that it was made from"),
    "last.ckpt": ("file of PyTorch", "save_pretrained"),
    "nothing.txt": ("no weights in a known format; its files are", "zoo reads safetensors"),
}


@pytest.mark.parametrize("file", ONLY)
@pytest.mark.parametrize("configured", [True, False])
def test_weights_that_are_not_read(hub_checkpoint: Make, file: str, configured: bool) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    (source / "model.safetensors").unlink()
    (source / file).parent.mkdir(exist_ok=True)
    (source / file).write_bytes(b"{}")
    names = ["vocab.txt", file]
    if configured:
        names.append("config.json")
    else:
        (source / "config.json").unlink()
    if not configured and (file == "nothing.txt" or "/" in file):
        assert "holds no config.json" in str(error_of(source))
        return
    error = error_of(source)
    found, remedy = ONLY[file]
    assert found in error.what and remedy in error.hint
    assert file in error.what and error.exit_code == 4
    with pytest.raises(ZooError, match=found) as caught:  # of a repository on the Hub
        files_to_download(names, "someone/model", allow_pickle=False)
    assert caught.value.hint == error.hint


def test_a_folder_that_ctranslate2_wrote(hub_checkpoint: Make) -> None:
    source = hub_checkpoint("BertModel")
    (source / "model.safetensors").rename(source / "model.bin")
    (source / "config.json").write_text('{"unk_token": "[UNK]", "layer_norm_epsilon": 1e-12}')
    error = error_of(source)
    assert "another runtime" in error.what and error.exit_code == 4


def test_an_adapter_next_to_a_model(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    (source / "adapter_config.json").write_text("{}")
    assert "move its files away" in error_of(source).hint
    (source / "adapter_config.json").unlink()
    convert(CheckpointDir(source, str(source)), tmp_path / "ours")


def test_an_export_without_weights(small_export: Path, tmp_path: Path) -> None:
    with pytest.raises(ZooError, match="is an ONNX export without the weights") as caught:
        convert(CheckpointDir(small_export / "export", "graph"), tmp_path / "back", to="hub")
    assert caught.value.exit_code == 4 and "exported from" in caught.value.hint


def test_next_sentence_prediction(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForNextSentencePrediction")
    message = str(error_of(source))
    assert "no head is of the class BertForNextSentencePrediction" in message
    assert message.endswith("--head none converts the model without its head (2 tensors)")
    report = convert(CheckpointDir(source, str(source)), tmp_path / "ours", head="none")
    assert len(report.mapping.drops) == 2


def test_unknown_keys_come_before_the_tensors(hub_checkpoint: Make) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    edit(source, num_experts=4, router="top")
    stored = load_file(source / "model.safetensors")
    renamed = {name.replace("intermediate", "experts.0"): t for name, t in stored.items()}
    save_file(renamed, source / "model.safetensors", {"format": "pt"})
    message = str(error_of(source))
    keys = "the configuration has keys that bert does not know: num_experts, router; the tensors"
    assert keys in message and message.index(keys) < message.index("missing")
    assert message.endswith("see `zoo families` and `zoo plugins`")


@pytest.mark.parametrize(
    ("model_type", "architecture", "hint"),
    [
        ("ibert", "IBertModel", "'ibert'; installed: albert, bart"),
        ("longt5", "LongT5ForConditionalGeneration", "'longt5'; "),
        ("ours", "BertModel", "its class BertModel is one of bert: `--model-type bert`"),
        ("our-xlm", "XLMRobertaModel", "is one of xlm-roberta: `--model-type xlm-roberta`"),
    ],
)
def test_the_class_tells_another_architecture_from_a_typing_error(
    hub_checkpoint: Make, model_type: str, architecture: str, hint: str
) -> None:
    source = hub_checkpoint("BertModel")
    edit(source, model_type=model_type, architectures=[architecture])
    assert hint in str(error_of(source))


@pytest.mark.parametrize(
    ("model_type", "near"),
    [
        ("bertt", "did you mean bert"),
        ("robberta", "did you mean roberta"),
        ("rwkv", "t5, umt5, xglm"),
        ("esm", "installed: albert, bart"),
    ],
)
def test_an_unknown_model_type(hub_checkpoint: Make, model_type: str, near: str) -> None:
    source = hub_checkpoint("BertModel")
    edit(source, model_type=model_type, architectures=None)
    message = str(error_of(source))
    assert f"no installed family has model_type {model_type!r}; " in message and near in message
    assert "`zoo plugins install` adds families, `zoo plugins new` writes one" in message


OUTPUT_HEADS = {
    "GPT2LMHeadModel": "causal-lm",
    "BartForConditionalGeneration": "seq2seq-lm",
}
OUTPUTS = {  # class -> configuration, and the tensor of its output layer
    "BertForMaskedLM": ({}, "cls.predictions.decoder.weight"),
    "DistilBertForMaskedLM": ({"dim": 32, "hidden_dim": 48}, "vocab_projector.weight"),
    "ElectraForMaskedLM": ({"embedding_size": 16}, "generator_lm_head.weight"),
    "DebertaV2ForMaskedLM": ({}, "cls.predictions.decoder.weight"),
    "GPT2LMHeadModel": ({"n_embd": 32, "n_inner": 48}, "lm_head.weight"),
    "BartForConditionalGeneration": ({"d_model": 32}, "lm_head.weight"),
}
SIZES = {"encoder_ffn_dim": 48, "decoder_ffn_dim": 48, "n_heads": 4, "n_head": 4}


@pytest.mark.by_default(
    "BartForConditionalGeneration-True", "ElectraForMaskedLM-True", "GPT2LMHeadModel-False"
)
@pytest.mark.parametrize("stated", [True, False])
@pytest.mark.parametrize("architecture", OUTPUTS)
def test_hints_for_tied_output_layers_help(
    hub_checkpoint: Make, tmp_path: Path, architecture: str, stated: bool
) -> None:
    """A tie of two matrices that differ, and an output layer that is neither tied nor there."""
    changes, output = OUTPUTS[architecture]
    ids = {"pad_token_id": 0, "bos_token_id": 2, "eos_token_id": 3, "forced_eos_token_id": None}
    if "Bart" in architecture:
        ids["decoder_start_token_id"] = 3
    source = hub_checkpoint(architecture, tokenizer=False, **{**SIZES, **changes, **ids})
    tensors = load_file(source / "model.safetensors")
    assert output not in tensors
    if stated:
        embeddings = next(t for n, t in tensors.items() if t.shape[0] == SMALL["vocab_size"])
        tensors[output] = torch.randn_like(embeddings)
        save_file(tensors, source / "model.safetensors", {"format": "pt"})
    edit(source, tie_word_embeddings=stated)
    if architecture.startswith("Deberta") and not stated:
        assert "tie_word_embeddings = False is not implemented; only True" in str(error_of(source))
        return
    with pytest.raises(ZooError) as caught:
        convert(CheckpointDir(source, "source"), tmp_path / "model")
    remedy = re.search("set tie_word_embeddings to (true|false)|--head none", str(caught.value))
    assert remedy is not None, caught.value
    head = "none" if remedy[1] is None else None
    if head is None:
        edit(source, tie_word_embeddings=remedy[1] == "true")
    convert(CheckpointDir(source, "source"), tmp_path / "model", head=head)
    assert load_checkpoint(tmp_path / "model").head_name == (
        head or OUTPUT_HEADS.get(architecture, "masked-lm")
    )
