"""The command ``zoo tokenize``."""

import json
from pathlib import Path

import pytest
from tokenizers import Tokenizer
from transformers import AutoTokenizer, BertTokenizer

from tests.checkpoints import Make, byte_level_roberta
from tests.families.elmo_files import published
from tests.warm import zoo

TEXT = "a ba [MASK] c"


def test_tokens_are_those_of_transformers(hub_checkpoint: Make, tmp_path: Path) -> None:
    bert = hub_checkpoint("BertModel", "bert")
    roberta = byte_level_roberta(hub_checkpoint, "RobertaModel", name="roberta")
    elmo, _ = published(tmp_path / "elmo")
    done = zoo("tokenize", bert, roberta, elmo, TEXT, "--json")
    assert done.returncode == 0, done.stderr
    value = json.loads(done.stdout)
    found = {Path(model["model"]).name: model for model in value["models"]}
    for name, reference in (
        ("bert", BertTokenizer.from_pretrained(bert)),
        ("roberta", AutoTokenizer.from_pretrained(roberta)),
    ):
        ids = reference(TEXT)["input_ids"]
        assert found[name]["ids"] == ids
        assert found[name]["tokens"] == reference.convert_ids_to_tokens(ids)
    assert found["elmo"]["tokens"] == ["<S>", *TEXT.split(), "</S>"]
    assert [TEXT[a:b] for a, b in found["elmo"]["offsets"]] == ["", *TEXT.split(), ""]
    done = zoo("tokenize", bert, roberta, TEXT)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["model", "tokens"] and len(lines) == 3
    assert lines[1].endswith("7  [CLS] a b ##a [MASK] c [SEP]")


def test_a_model_without_a_tokenizer_is_named(hub_checkpoint: Make) -> None:
    done = zoo("tokenize", hub_checkpoint("BertModel", tokenizer=False), "a b")
    assert done.returncode != 0 and done.stderr.splitlines()[-1].startswith("error: ")
    assert "tokenizer" in done.stderr and zoo("tokenize", "bert").returncode == 2


def test_a_text_of_standard_input(hub_checkpoint: Make) -> None:
    model = hub_checkpoint("BertModel")
    named, piped = zoo("tokenize", model, TEXT), zoo("tokenize", model, "-", stdin=f"{TEXT}\n")
    assert piped.returncode == 0 and piped.stdout == named.stdout


@pytest.mark.long
def test_the_tokenizer_of_a_corpus(tmp_path: Path) -> None:
    text = tmp_path / "text.txt"
    text.write_text("the cat sat on the mat\n" * 50)
    arguments = ("--tokenizer", "train", "--family", "bert", "--vocab-size", 60)
    separator = ("--document-separator", "line")
    built = zoo("corpus", "build", text, "-o", tmp_path / "corpus", *arguments, *separator)
    assert built.returncode == 0, built.stderr
    done = zoo("tokenize", tmp_path / "corpus", "the cat [MASK]", "--json")
    assert done.returncode == 0, done.stderr
    (model,) = json.loads(done.stdout)["models"]
    reference = Tokenizer.from_file(str(tmp_path / "corpus/tokenizer.json"))
    assert model["ids"] == reference.encode("the cat [MASK]").ids
