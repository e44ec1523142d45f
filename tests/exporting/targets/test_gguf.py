"""GGUF: every family that declares its names, in llama.cpp where it is installed."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import msgspec
import numpy as np
import pytest
from click.testing import CliRunner, Result
from tokenizers import Tokenizer, models

from tests.exporting.targets.conftest import Small
from tests.inference.making import write_manifest
from tools.runtime_table import with_random_weights
from zoo.checkpoint import load_checkpoint
from zoo.cli import cli
from zoo.errors import UsageError, VerificationError
from zoo.exporting.gate import export_model
from zoo.exporting.session import open_session
from zoo.exporting.targets import find_target
from zoo.exporting.targets.base import ExportSettings
from zoo.exporting.targets.gguf import llama
from zoo.exporting.targets.gguf.llama import llama_problem
from zoo.plugins import get_family

TARGET = find_target("gguf")
needs_llama = pytest.mark.skipif(llama_problem() is not None, reason="llama.cpp is not installed")
HELD: dict[str, dict[str, Any]] = {
    "BertModel": {},
    "RobertaModel": {},
    "DistilBertModel": {},
    "ElectraModel": {"embedding_size": 32},
    "BertForSequenceClassification": {"num_labels": 3},
    "RobertaForSequenceClassification": {"num_labels": 3},
    "GPT2LMHeadModel": {},
    "XLMRobertaModel": {},
    "ModernBertModel": {},
    "EuroBertModel": {"num_key_value_heads": 2},
    "ModernBertForSequenceClassification": {"num_labels": 3, "classifier_pooling": "mean"},
    "T5EncoderModel": {"feed_forward_proj": "gated-gelu"},
}
LOOSE = ExportSettings(allow_tokenizer_differences=True)


@needs_llama
@pytest.mark.parametrize("architecture", HELD)
def test_llama_computes_what_torch_does(architecture: str, small: Small, tmp_path: Path) -> None:
    checkpoint = small(architecture, **HELD[architecture])
    report = export_model(TARGET, checkpoint, tmp_path / "export", LOOSE)
    assert report.validated and report.max_rel is not None and report.max_rel < 5e-3
    assert report.tokenizer is not None and len(report.tokenizer.different) < 20


# Family, head, and changes of its size ``tiny``: what the format declares and ``HELD`` lacks.
FURTHER = [
    ("bloom", "causal-lm", {}),
    ("bloom", "causal-lm", {"num_heads": 4}),
    ("eurobert", "none", {"num_kv_heads": 1, "rope_theta": 90.0}),
    ("neox", "causal-lm", {}),
    ("neox", "causal-lm", {"parallel": False, "rotary_fraction": 0.5, "rope_theta": 90.0}),
    ("nomic", "none", {}),
    ("nomic", "none", {"rope_theta": 90.0, "layer_norm_eps": 0.1}),
    ("t5", "encoder", {"series": "umt5", "feed_forward": "gated-gelu"}),
    ("t5", "encoder", {"series": "mt5", "feed_forward": "gated-gelu"}),
]


@pytest.mark.long
@needs_llama
@pytest.mark.parametrize(("family", "head", "changes"), FURTHER, ids=str)
def test_llama_computes_further_families(
    family: str, head: str, changes: dict[str, Any], tmp_path: Path
) -> None:
    checkpoint = with_random_weights(get_family(family), head, tmp_path / "model", **changes)
    report = export_model(TARGET, checkpoint, tmp_path / "export", LOOSE)
    assert report.validated and report.max_rel is not None and report.max_rel < 5e-3


def test_layers_that_are_not_quantized_are_in_float32(small: Small, tmp_path: Path) -> None:
    checkpoint = small("BertModel", hidden_size=64, intermediate_size=96)
    model = TARGET.mixed_precision(checkpoint, "q8_0")
    assert model is not None
    first, *others = model.layers
    model.write(tmp_path, others)
    tensors = gguf.GGUFReader(tmp_path / "model.gguf").tensors
    types = {tensor.name: tensor.tensor_type.name for tensor in tensors}
    assert types[first] == "F32"
    assert others and {types[name] for name in others} == {"Q8_0"}


@pytest.mark.by_default("float32", "q8_0", "q5_1")
@pytest.mark.parametrize("precision", list(TARGET.precisions))
def test_the_file_holds_what_the_package_quantizes(
    precision: str, small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "it is not here")
    checkpoint = small("BertModel", hidden_size=64, intermediate_size=96)
    settings = ExportSettings(precision=precision, unverified=True)
    report = export_model(TARGET, checkpoint.with_licence("mit"), tmp_path / "export", settings)
    assert report.unverified == "it is not here" and not report.validated
    reader = gguf.GGUFReader(tmp_path / "export" / "model.gguf")
    stored = {tensor.name: tensor for tensor in reader.tensors}
    with checkpoint.open_weights() as weights:
        exact = np.asarray(weights.read("layers.1.ffn.up.weight"), np.float32)
    tensor = stored["blk.1.ffn_up.weight"]
    expected = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}.get(precision)
    assert tensor.tensor_type.name == (expected or precision.upper())
    again = gguf.quants.dequantize(
        gguf.quants.quantize(exact, tensor.tensor_type), tensor.tensor_type
    )
    np.testing.assert_array_equal(
        gguf.quants.dequantize(tensor.data, tensor.tensor_type), again.astype(np.float32)
    )
    kinds = {name: t.tensor_type.name for name, t in stored.items()}
    assert kinds["position_embd.weight"] == kinds["blk.0.attn_q.bias"] == "F32"
    fields = {name: field.contents() for name, field in reader.fields.items()}
    assert fields["general.license"] == "mit"
    assert fields["bert.pooling_type"] == 1 and fields["bert.attention.causal"] is False
    assert fields["tokenizer.ggml.tokens"][:6] == [
        *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"),
        "\N{LOWER ONE EIGHTH BLOCK}a",
    ]


def test_info_lists_no_task_that_is_refused(
    small: Small, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(TARGET), "runtime_problem", lambda self: "it is not here")
    export_model(TARGET, small("BertModel"), tmp_path / "export", ExportSettings(unverified=True))

    def run(*words: str) -> Result:
        return CliRunner().invoke(cli, words)

    path = str(tmp_path / "export")
    shown = json.loads(run("info", path, "--json").stdout)["tasks"]
    every = load_checkpoint(tmp_path / "export").tasks
    unable = [t for t in every if "cannot run this" in str(run("run", t, path, "a").exception)]
    assert "features" in unable and "embed" in shown
    assert shown == [task for task in every if task not in unable]


@needs_llama
def test_quantized_weights_agree_on_text(small: Small, tmp_path: Path) -> None:
    checkpoint = small("BertModel", hidden_size=64, intermediate_size=96)
    report = export_model(
        TARGET,
        checkpoint,
        tmp_path / "export",
        ExportSettings(precision="q8_0", allow_tokenizer_differences=True),
    )
    assert report.agreement is not None and (report.agreement.cosine or 0) > 0.99
    assert open_session(load_checkpoint(tmp_path / "export")).dtype == "q8_0"


@needs_llama
def test_a_text_that_is_cut_differently_is_named(small: Small, tmp_path: Path) -> None:
    checkpoint = small("BertModel")
    file = checkpoint.path / "tokenizer.json"
    changed = re.sub(r'"lowercase":\s*true', '"lowercase": false', file.read_text("utf-8"))
    file.write_text(changed, "utf-8")
    write_manifest(checkpoint.path)
    with pytest.raises(VerificationError, match=r"cuts \d+ of 82 texts differently") as caught:
        export_model(
            TARGET, load_checkpoint(checkpoint.path), tmp_path / "export", ExportSettings()
        )
    assert caught.value.details and not (tmp_path / "export").exists()


@pytest.mark.by_default("BertForMaskedLM", "T5ForConditionalGeneration")
@pytest.mark.parametrize(
    ("architecture", "changes", "reason"),
    [
        ("BertForMaskedLM", {}, "no other head"),
        ("DistilBertForSequenceClassification", {}, "tanh"),
        ("BertModel", {"hidden_act": "relu"}, "gelu, not relu"),
        ("T5ForConditionalGeneration", {}, "does not scale hidden states"),
        ("EuroBertForMaskedLM", {}, "no head of this architecture"),
        ("EuroBertModel", {"hidden_act": "gelu"}, "silu, not gelu"),
        (
            "ModernBertForSequenceClassification",
            {"classifier_pooling": "cls"},
            "classifiers pool by mean, not cls",
        ),
    ],
)
def test_what_it_cannot_hold(
    architecture: str, changes: dict[str, object], reason: str, small: Small, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=f"llama.cpp cannot hold .*{reason}"):
        export_model(TARGET, small(architecture, **changes), tmp_path / "export", LOOSE)


@pytest.mark.parametrize(
    ("model", "reason"),
    [(None, "has no tokenizer"), (models.WordLevel({"a": 0}, "a"), "of the kind WordLevel")],
)
def test_a_tokenizer_is_refused_before_weights_are_read(
    model: models.WordLevel | None, reason: str, small: Small, tmp_path: Path
) -> None:
    checkpoint = small("BertModel")
    (checkpoint.path / "model.safetensors").unlink()
    if model is None:
        described = msgspec.structs.replace(checkpoint.model, tokenizer=None)
        checkpoint = replace(checkpoint, model=described)
    else:
        Tokenizer(model).save(str(checkpoint.tokenizer_file))
    with pytest.raises(UsageError, match=reason):
        export_model(TARGET, checkpoint, tmp_path / "export", LOOSE)


def test_node_or_python_runs_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    installed: list[str] = []
    monkeypatch.setattr("shutil.which", lambda name: None)
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: name if name in installed else None
    )
    monkeypatch.setattr(llama, "library", lambda: None)
    problem = llama.llama_problem() or ""
    assert [name for name in (llama.NODE, llama.PYTHON) if name not in problem] == []
    monkeypatch.setattr(llama, "library", lambda: tmp_path / "node-llama-cpp" / "dist" / "index.js")
    assert "Node.js is not" in (llama.llama_problem() or "")
    installed.append("llama_cpp")
    python = llama.program()
    monkeypatch.setattr("shutil.which", lambda name: name)
    found = [python, llama.program()]
    assert [one and (one.package, one.script) for one in found] == [
        (llama.PYTHON, "binding.py"),
        (llama.NODE, "llama.mjs"),
    ]
    assert llama.llama_version() == {llama.NODE: "unknown"}
