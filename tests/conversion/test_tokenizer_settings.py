"""Settings of a tokenizer's files after a conversion, training and an export."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests import warm
from tests.checkpoints import VOCABULARY, Make, hub_checkpoint
from tests.exporting.making import export_onnx
from zoo.checkpoint import load_checkpoint

__all__ = ["hub_checkpoint"]
SETTINGS = {
    "do_lower_case": False,
    "truncation_side": "left",
    "padding_side": "left",
    "model_max_length": 12,
    "model_input_names": ["input_ids", "attention_mask"],
    "split_special_tokens": True,
    "extra_special_tokens": ["[MASK]"],
    "chat_template": "{{ messages }}",
    "another_library": [1, 2],
}
TEXT = "a b c d e f g h i j a b c d e f g h j j j"


@pytest.fixture
def source(hub_checkpoint: Make) -> Path:
    path = hub_checkpoint("BertForSequenceClassification", num_labels=3)
    (path / "tokenizer_config.json").write_text(json.dumps(SETTINGS))
    return path


def run(*arguments: object) -> str:
    done = warm.zoo(*arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def scores(model: Path, *arguments: str) -> list[float]:
    row: dict[str, Any] = json.loads(run("run", "classify", model, TEXT, *arguments))
    assert row["truncated"] == 11
    return list(row["scores"].values())


def settings(directory: Path) -> dict[str, Any]:
    written = json.loads((directory / "tokenizer_config.json").read_text("utf-8"))
    return {key: written.get(key) for key in SETTINGS}


def test_in_a_conversion(source: Path, tmp_path: Path) -> None:
    import torch
    from transformers import AutoModelForSequenceClassification as Model

    words = [VOCABULARY.index(word) for word in ("[CLS]", *TEXT.split()[-10:], "[SEP]")]
    with torch.no_grad():
        logits = Model.from_pretrained(source).eval()(torch.tensor([words])).logits
    wanted = logits.softmax(-1)[0].tolist()
    model, hub = tmp_path / "model", tmp_path / "hub"
    run("convert", source, "-o", model)
    run("convert", model, "--to", "hub", "-o", hub)
    run("convert", hub, "-o", tmp_path / "again")
    np.testing.assert_allclose(scores(model), wanted, atol=1e-5)
    np.testing.assert_allclose(scores(tmp_path / "again"), wanted, atol=1e-5)
    assert settings(hub) == SETTINGS


@pytest.mark.long  # an export, which has the tokenizer of its model
def test_next_to_graphs(source: Path, tmp_path: Path) -> None:
    model, graphs = tmp_path / "model", tmp_path / "onnx"
    run("convert", source, "-o", model)
    export_onnx(load_checkpoint(model), graphs)
    np.testing.assert_allclose(scores(graphs), scores(model), atol=1e-5)
    assert settings(graphs) == SETTINGS


@pytest.mark.long
def test_after_training(source: Path, tmp_path: Path) -> None:
    table = tmp_path / "train.tsv"
    rows = [f"{TEXT[k:]}\tLABEL_{k % 3}" for k in range(9)]
    table.write_text("\n".join(["text\tlabel", *rows]) + "\n")
    options = ("--task", "text-classification", "--max-steps", "2", "--device", "cpu")
    run("finetune", source, "--train", table, "-o", tmp_path / "run", *options)
    run("convert", tmp_path / "run" / "model", "--to", "hub", "-o", tmp_path / "hub")
    assert settings(tmp_path / "hub") == SETTINGS


def test_an_added_token_without_a_row_is_named(source: Path, tmp_path: Path) -> None:
    (source / "added_tokens.json").write_text(json.dumps({"<new>": len(VOCABULARY)}))
    done = warm.zoo("convert", source, "-o", tmp_path / "model")
    assert done.returncode == 3 and done.stderr.count("\n") == 1
    assert "'<new>' (id 17)" in done.stderr and "resize_token_embeddings(18)" in done.stderr
