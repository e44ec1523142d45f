"""The command ``zoo look``: the page, exact numbers, and errors."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from tests.checkpoints import Make
from tests.warm import zoo
from zoo.conversion import convert
from zoo.hub.source import CheckpointDir

TEXT = "a b [MASK] c"


@pytest.fixture
def model(hub_checkpoint: Make, tmp_path: Path) -> Path:
    """Convert a masked language model; its source is in the same directory."""
    convert(CheckpointDir(hub_checkpoint("BertForMaskedLM"), "source"), tmp_path / "ours")
    return tmp_path / "ours"


@pytest.mark.long
def test_json_has_the_numbers_of_transformers(model: Path) -> None:
    done = zoo("look", model, TEXT, "c b", "--json", cwd=model.parent)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    assert [text["text"] for text in value["texts"]] == [TEXT, "c b"]
    assert not (model.parent / "look.html").exists()  # --json writes a page with -o only
    (stack,) = value["texts"][0]["stacks"]
    source = model.parent / "source"
    network = transformers.BertForMaskedLM.from_pretrained(source, attn_implementation="eager")
    tokenizer = transformers.BertTokenizer.from_pretrained(source)
    with torch.no_grad():
        inputs = tokenizer(TEXT, return_tensors="pt")
        expected = network(**inputs, output_hidden_states=True, output_attentions=True)
    assert stack["tokens"] == tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    for ours, theirs in zip(stack["hidden_states"], expected.hidden_states, strict=True):
        np.testing.assert_allclose(ours, theirs[0], rtol=1e-5, atol=1e-5)
    found = stack["attention"]["self"]
    assert found["layers"] == [1, 2]
    for ours, theirs in zip(found["values"], expected.attentions, strict=True):
        np.testing.assert_allclose(ours, theirs[0], rtol=0, atol=1e-4)
    best = stack["predictions"]["token"]["probabilities"][-1]
    top = expected.logits[0].softmax(-1).topk(5).values
    np.testing.assert_allclose(best, top, rtol=0, atol=1e-4)


def test_a_page_is_written_and_kept(model: Path) -> None:
    done = zoo("look", model, TEXT, cwd=model.parent)
    assert (done.returncode, done.stdout) == (0, "page: look.html\n"), done.stderr
    page = model.parent / "look.html"
    assert "bert with head masked-lm, 2 layers of width 32" in page.read_text("utf-8")
    page.write_text("mine")
    done = zoo("look", model, TEXT, cwd=model.parent)
    assert done.returncode == 2 and "look.html exists; give --force" in done.stderr
    assert page.read_text() == "mine"
    assert zoo("look", model, TEXT, "--force", cwd=model.parent).returncode == 0
    assert page.read_text("utf-8").startswith("<!doctype html>")
    done = zoo("look", model, TEXT, "-o", model / "look.html")
    assert done.returncode == 2 and "holds a model" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["a", "b", "c"], "3 texts are given; give one, or two to compare"),
        (["a", "--text-target", "b"], "no decoder that reads a target"),
        (["a", "--max-seq-len", "41"], "texts cannot be cut at 41 tokens"),
        (["a", "--max-seq-len", "2"], "leave no room for text"),
    ],
)
def test_what_is_wrong_is_named(model: Path, arguments: list[str], message: str) -> None:
    done = zoo("look", model, *arguments, cwd=model.parent)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not (model.parent / "look.html").exists()
