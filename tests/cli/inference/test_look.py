"""The command ``zoo look``: the page, exact numbers, and errors."""

import json
import re
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import numpy as np
import pytest
import torch
import transformers

from tests.checkpoints import Make
from tests.warm import zoo
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir

TEXT = "a b [MASK] c"
SVG = "{http://www.w3.org/2000/svg}"


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


def attention_of(model: Path) -> tuple[list[str], list[torch.Tensor]]:
    """Return tokens and attention of transformers."""
    source = model.parent / "source"
    network = transformers.BertForMaskedLM.from_pretrained(source, attn_implementation="eager")
    tokenizer = transformers.BertTokenizer.from_pretrained(source)
    inputs = tokenizer(TEXT, return_tensors="pt")
    with torch.no_grad():
        attentions = network(**inputs, output_attentions=True).attentions
    tokens: list[str] = tokenizer.convert_ids_to_tokens(inputs["input_ids"][0])
    return tokens, [layer[0] for layer in attentions]


@pytest.mark.long
def test_an_svg_has_the_attention_of_transformers(model: Path) -> None:
    tokens, attentions = attention_of(model)
    cases = [
        ([], attentions[1].mean(0), "Attention, layer 2, mean of 4 heads"),
        (["--layer", 1, "--head", 2], attentions[0][1], "Attention, layer 1, head 2"),
    ]
    for options, expected, heading in cases:
        done = zoo("look", model, TEXT, "-o", "x.svg", "--force", *options, cwd=model.parent)
        assert (done.returncode, done.stdout) == (0, "picture: x.svg\n"), done.stderr
        root = ElementTree.parse(model.parent / "x.svg").getroot()
        shown = [each.text for each in root.iter(f"{SVG}text")]
        # The heading, the rows, and the columns.
        assert shown == [heading, *tokens, *tokens]
        values = []
        shades = []
        for cell in root.iter(f"{SVG}rect"):
            if (title := cell.find(f"{SVG}title")) is not None:
                values.append(float((title.text or "").rpartition(": ")[2]))
                shades.append(float(cell.get("fill-opacity", "")))
        np.testing.assert_allclose(values, expected.flatten(), rtol=0, atol=1.5e-4)
        np.testing.assert_allclose(np.square(shades), expected.flatten(), rtol=0, atol=2e-3)


def test_a_png_has_the_attention_of_transformers(model: Path) -> None:
    pytest.importorskip("resvg_py")
    image_module = pytest.importorskip("PIL.Image")
    for name in ("x.svg", "x.png"):
        done = zoo("look", model, TEXT, "-o", name, "--head", 1, cwd=model.parent)
        assert done.returncode == 0, done.stderr
    root = ElementTree.parse(model.parent / "x.svg").getroot()
    image = image_module.open(model.parent / "x.png").convert("RGB")
    scale = image.width / float(root.get("viewBox", "").split()[2])
    assert image.size == (2 * float(root.get("width", "")), 2 * float(root.get("height", "")))
    _, attentions = attention_of(model)
    weights = attentions[1][0].flatten().sqrt()
    squares = [each for each in root.iter(f"{SVG}rect") if each.get("class") == "heat"]
    blue = np.array([0x34, 0x60, 0xA0])
    for square, weight in zip(squares, weights.tolist(), strict=True):
        # The panel begins 14 units from the left, and 14 and 24 from the top.
        across = scale * (float(square.get("x", "")) + 14 + 10)
        down = scale * (float(square.get("y", "")) + 14 + 24 + 10)
        expected = blue * weight + 255 * (1 - weight)
        np.testing.assert_allclose(image.getpixel((int(across), int(down))), expected, atol=3)


@pytest.mark.by_default("arguments0", "arguments4", "arguments6")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x.pdf"], "x.pdf: a look is written as a page or a picture; end the name in"),
        (["-o", "x"], "end the name in .html, .svg or .png"),
        (["--view", "attention"], "select what a picture shows; name one that ends in .svg"),
        (["-o", "x.html", "--layer", 1], "select what a picture shows"),
        (["-o", "x.svg", "--view", "similarity", "--head", 1], "leave --head out"),
        (["-o", "x.svg", "--view", "attention", "--layer", 0], "numbered from 1"),
        (["-o", "x.svg", "--layer", 7], "has no layer 7; its layers are 0 (the embeddings) to 2"),
        (["-o", "x.svg", "--head", 99], "has no head 99; its heads are 1 to 4"),
    ],
)
def test_a_picture_that_cannot_be_drawn_is_refused(
    model: Path, arguments: list[object], message: str
) -> None:
    done = zoo("look", model, "a", *arguments, cwd=model.parent)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not list(model.parent.glob("x*"))


def test_a_format_is_refused_before_torch_is_imported(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "zoo", "look", "gpt2", "a", "-o", "x.pdf"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 2 and "end the name in .html, .svg or .png" in done.stderr
    assert not re.search(r"\| +torch$", done.stderr, re.MULTILINE)


@pytest.mark.by_default("arguments1", "arguments3")
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


def test_models_are_compared_on_one_page(model: Path, hub_checkpoint: Make, tmp_path: Path) -> None:
    source = CheckpointDir(hub_checkpoint("DistilBertForMaskedLM"), "other")
    convert(source, tmp_path / "other")
    options = ("--compare", tmp_path / "other", "--compare", model)
    done = zoo("look", model, TEXT, *options, "--json", "-o", "all.html", cwd=model.parent)
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    values = [value, *value.pop("compared")]
    for reference, compared in zip((model, tmp_path / "other", model), values, strict=True):
        alone = zoo("look", reference, TEXT, "--json", cwd=model.parent)
        compared.pop("page", None)
        assert compared == json.loads(alone.stdout)
    page = (model.parent / "all.html").read_text("utf-8")
    assert page.count("<iframe") == 3 and page.count("srcdoc=") == 3


@pytest.mark.by_default("arguments2")
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["-o", "x.svg"], "a picture shows one model, and --compare several"),
        (["--revision", "main"], "--revision belongs to one model"),
        (["--text-target", "b"], "none of the models has a decoder"),
    ],
)
def test_options_that_models_cannot_share_are_refused(
    model: Path, arguments: list[str], message: str
) -> None:
    done = zoo("look", model, "a", "--compare", model, *arguments, cwd=model.parent)
    assert done.returncode == 2 and message in done.stderr, done.stderr
    assert done.stderr.count("\n") == 1 and not list(model.parent.glob("*.html"))
