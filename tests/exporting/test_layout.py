"""The files of an export, as programs that read the Hub's layout expect them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.exporting.conftest import Exported
from zoo.checkpoint import Checkpoint, Manifest, encode_manifest, load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.exporting.layout import unreadable_elsewhere
from zoo.hub.source import CheckpointDir
from zoo.io.json import read_json_record

SENTENCE_FILES = {
    "1_Pooling/config.json",
    "config.json",
    "config_sentence_transformers.json",
    "modules.json",
    "sentence_bert_config.json",
    "special_tokens_map.json",
    "tokenizer.json",
    "tokenizer_config.json",
}


def test_the_files_are_those_of_a_conversion_to_the_hub(
    int8_encoder: Exported, tmp_path: Path
) -> None:
    checkpoint, export, report = int8_encoder
    convert(CheckpointDir(checkpoint.path, "model"), tmp_path / "hub", to="hub")
    graphs = {"onnx/model.onnx", "onnx/model_quantized.onnx"}
    assert export.manifest.files.keys() == SENTENCE_FILES | graphs | {"README.md"}
    for name in SENTENCE_FILES - {"tokenizer_config.json"}:
        assert (export.path / name).read_bytes() == (tmp_path / "hub" / name).read_bytes()
    # Programs that open graphs cut texts at this length, and sentence-transformers at its own.
    tokenizer = json.loads((tmp_path / "hub" / "tokenizer_config.json").read_text())
    own = json.loads((export.path / "sentence_bert_config.json").read_text())
    tokenizer["model_max_length"] = own["max_seq_length"]
    assert json.loads((export.path / "tokenizer_config.json").read_text()) == tokenizer
    assert export.model.pooling == checkpoint.model.pooling
    settings = json.loads((export.path / "config_sentence_transformers.json").read_text())
    assert settings["prompts"] == {"query": "a "} and settings["default_prompt_name"] == "query"
    assert settings["similarity_fn_name"] == "dot"
    assert not json.loads((export.path / "1_Pooling/config.json").read_text())["include_prompt"]
    config = json.loads((export.path / "config.json").read_text())
    assert (config["model_type"], config["architectures"]) == ("bert", ["BertModel"])
    assert report.unreadable_elsewhere is None


def rewritten(export: Path, target: Path, **changes: Any) -> Path:
    """Copy an export with another manifest."""
    shutil.copytree(export, target)
    manifest = read_json_record(export / "zoo.json", Manifest)
    (target / "zoo.json").write_bytes(encode_manifest(replace(manifest, **changes)))
    return target


def test_an_older_layout_is_refused_in_one_line(
    exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    path = rewritten(exported("none")[1].path, tmp_path / "old", model=None)
    with pytest.raises(VerificationError, match="older layout; export it again") as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


def test_a_configuration_within_a_changed_manifest_is_refused(
    exported: Callable[[str], Exported], tmp_path: Path
) -> None:
    path = shutil.copytree(exported("none")[1].path, tmp_path / "changed")
    manifest = (path / "zoo.json").read_text()
    assert manifest.count('"activation":"gelu"') == 1 or manifest.count('"gelu"') == 1
    (path / "zoo.json").write_text(manifest.replace('"gelu"', '"relu"'))
    with pytest.raises(VerificationError, match=r"zoo\.json"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, None),
        ({"transitions": [[0.0]]}, "the model labels words by a CRF, which no class of the Hub"),
        ({"both_orders": True}, "the model reads a pair in both orders, which no class"),
    ],
)
def test_what_other_programs_do_not_compute_is_said(
    exported: Callable[[str], Exported], changes: dict[str, Any], reason: str | None
) -> None:
    checkpoint = exported("none")[0]
    changed = Checkpoint(
        checkpoint.path,
        replace(checkpoint.model, **changes),
        checkpoint.manifest,
        checkpoint.family,
        checkpoint.config,
    )
    actual = unreadable_elsewhere(changed)
    assert actual is None if reason is None else str(actual).startswith(reason)
