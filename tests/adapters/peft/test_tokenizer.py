"""Adapters with a tokenizer of their own, and embeddings of its words."""

import json
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from click.testing import CliRunner
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.adapters.making import GOLDEN, Trained, ids_of, write_random_adapter, zoo
from tests.adapters.making import trained as trained
from tests.checkpoints import VOCABULARY
from tests.inference.conftest import converted
from zoo.checkpoint import load_checkpoint
from zoo.cli import cli
from zoo.conversion.cache import resolve_checkpoint
from zoo.errors import UsageError, VerificationError, ZooError
from zoo.inference.load_model import load_model

TEXT = "a word b"  # the base cuts the word
OUTPUTS = ("last_hidden_state", "logits", "pooler_output")


def outputs_of(model: nn.Module, ids: Any) -> list[Tensor]:
    model.eval()
    with torch.no_grad():
        outputs: Any = model(**ids)
    return [outputs[name] for name in OUTPUTS if name in outputs]


def assert_same(model: nn.Module, ids: Any, expected: list[Tensor]) -> None:
    outputs = outputs_of(model, ids)
    assert len(outputs) == len(expected) > 0
    for one, other in zip(outputs, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.by_default("BertModel")
@pytest.mark.parametrize(
    ("architecture", "settings"),
    [
        ("BertForSequenceClassification", {"task_type": "SEQ_CLS"}),
        ("BertModel", {"task_type": "FEATURE_EXTRACTION"}),
        pytest.param("BertForMaskedLM", {}, marks=pytest.mark.long),
        # rows that the base has, with trained embeddings or as they are
        (
            "BertForSequenceClassification",
            {"task_type": "SEQ_CLS", "spare": 5, "save_embedding_layers": True},
        ),
        (
            "BertForSequenceClassification",
            {"task_type": "SEQ_CLS", "spare": 5, "modules": ["word_embeddings"]},
        ),
        ("BertForSequenceClassification", {"task_type": "SEQ_CLS", "spare": 5}),
        pytest.param(
            "BertForMaskedLM", {"spare": 5, "save_embedding_layers": True}, marks=pytest.mark.long
        ),
    ],
)
def test_the_word_is_read_as_in_peft(
    architecture: str, settings: dict[str, Any], trained: Trained, tmp_path: Path
) -> None:
    model, tokenizer = trained(architecture, **settings)
    ids = tokenizer([TEXT], return_tensors="pt")
    expected = outputs_of(model, ids)
    zoo("convert", tmp_path / "theirs", "--base", tmp_path / "base", "-o", tmp_path / "ours")
    zoo("convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "hub")
    zoo("convert", tmp_path / "hub", "--base", tmp_path / "base", "-o", tmp_path / "back")
    zoo("adapter", "merge", tmp_path / "ours", "-o", tmp_path / "merged")
    for name in ("ours", "back", "merged"):
        checkpoint = resolve_checkpoint(str(tmp_path / name))
        assert ids_of(checkpoint, TEXT) == ids["input_ids"][0].tolist()
        assert_same(load_model(checkpoint), ids, expected)
    # as ``peft.AutoPeftModel`` opens it
    again = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    assert again([TEXT])["input_ids"] == ids["input_ids"].tolist()
    base = getattr(transformers, architecture).from_pretrained(tmp_path / "source")
    if len(again) > base.config.vocab_size:
        base.resize_token_embeddings(len(again), mean_resizing=False)
    assert_same(peft.PeftModel.from_pretrained(base, tmp_path / "hub"), ids, expected)


def test_a_tokenizer_that_reads_texts_like_the_base_is_not_kept(
    trained: Trained, tmp_path: Path
) -> None:
    trained("BertForSequenceClassification", task_type="SEQ_CLS", spare=5)
    for file in (tmp_path / "theirs").glob("*token*"):
        file.unlink()
    text = (tmp_path / "source" / "vocab.txt").read_text()
    (tmp_path / "theirs" / "vocab.txt").write_text(text)
    zoo("convert", tmp_path / "theirs", "--base", tmp_path / "base", "-o", tmp_path / "ours")
    assert not (tmp_path / "ours" / "tokenizer.json").exists()


def error_of(*arguments: object) -> ZooError:
    with pytest.raises(ZooError) as error:
        zoo(*arguments)
    return error.value


def test_a_word_without_a_row_is_refused(trained: Trained, tmp_path: Path) -> None:
    trained("BertForSequenceClassification", task_type="SEQ_CLS")
    file = tmp_path / "theirs" / "adapter_model.safetensors"
    tensors = load_file(file)
    rows = tensors.pop("base_model.model.bert.embeddings.word_embeddings.weight")
    out = ("--base", tmp_path / "base", "-o", tmp_path / "ours")
    save_file(tensors, file)
    error = error_of("convert", tmp_path / "theirs", *out)
    assert isinstance(error, VerificationError)
    assert "no row of the model's token embedding, which has 17, is for 'word' (id 17)" in str(
        error
    )
    name = "base_model.model.bert.embeddings.word_embeddings.weight"
    save_file({**tensors, name: rows[:, :30].contiguous()}, file)
    error = error_of("convert", tmp_path / "theirs", *out)
    assert "of shape (18, 30), not (18, 32); give the base that it was trained from" in str(error)
    assert not (tmp_path / "ours").exists()


def test_embeddings_that_peft_unties_are_refused(trained: Trained, tmp_path: Path) -> None:
    trained("BertForMaskedLM", spare=5, modules=["word_embeddings"])
    options = ("--base", tmp_path / "base", "-o", tmp_path / "ours")
    error = error_of("convert", tmp_path / "theirs", *options)
    assert isinstance(error, UsageError)
    assert "is trained apart from cls.predictions.decoder.weight" in str(error)


def test_two_adapters_read_one_tokenizer(trained: Trained, tmp_path: Path) -> None:
    trained("BertForSequenceClassification", task_type="SEQ_CLS", spare=5)
    base = tmp_path / "base"
    zoo("convert", tmp_path / "theirs", "--base", base, "-o", tmp_path / "ours")
    write_random_adapter(load_checkpoint(base), tmp_path / "plain", method="lora")
    first = ("--adapter", tmp_path / "ours")
    command = ["run", "classify", base, "a", *first, "--adapter", tmp_path / "plain"]
    outcome = CliRunner().invoke(cli, list(map(str, command)))
    assert isinstance(outcome.exception, UsageError)
    assert "has a tokenizer of its own, and" in str(outcome.exception)


def test_a_tokenizer_next_to_an_adapter_of_adapterhub(tmp_path: Path) -> None:
    base = converted(GOLDEN / "bert-pfeiffer" / "base", tmp_path / "base")
    folder = tmp_path / "theirs"
    folder.mkdir()
    for file in (GOLDEN / "bert-pfeiffer" / "adapter").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    words = [*VOCABULARY[: base.config.vocab_size - 1], "word"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    zoo("convert", folder, "--base", base.path, "-o", tmp_path / "ours")
    assert len(ids_of(resolve_checkpoint(str(tmp_path / "ours")), "word")) == 3
    record = json.loads((tmp_path / "ours" / "zoo.json").read_text())
    assert "vocab.txt" in record["source"]["files"]
