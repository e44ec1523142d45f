"""The tasks next-sentence and sentence-order, compared with the reference's logits."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from msgspec.structs import replace
from safetensors.torch import load_file
from transformers import AutoTokenizer

from tests.checkpoints import Make
from tests.families.parity import save_reference
from tests.inference.conftest import Small, converted
from tests.warm import zoo
from zoo.errors import UsageError
from zoo.inference import load_session
from zoo.inference.processing.records import TextExample
from zoo.plugins.registry import get_family
from zoo.tasks.next_sentence.predict import PredictSentenceOrder, PredictSentenceStructure
from zoo.tokenizers.tokenizer import TextTokenizer

PAIRS = [("a b c", "d e"), ("f", "g h i j"), ("a" * 3, "b")]


def test_probabilities_are_the_references(small: Small) -> None:
    model, source = small("BertForPreTraining")
    results = model.next_sentence(PAIRS)
    tokenizer = AutoTokenizer.from_pretrained(source)
    network: Any = transformers.BertForPreTraining.from_pretrained(source).eval()
    for (first, second), result in zip(PAIRS, results, strict=True):
        assert (result["text"], result["text_pair"]) == (first, second)
        with torch.inference_mode():
            logits = network(**tokenizer(first, second, return_tensors="pt"))
        expected = logits.seq_relationship_logits[0].softmax(-1).numpy()
        np.testing.assert_allclose(list(result["scores"].values()), expected, atol=1e-5)
        # label 0 of the released code: the second text follows the first
        assert result["label"] == ["next", "random"][int(expected.argmax())]
        assert result["score"] == max(result["scores"].values())


def test_the_order_of_texts_is_the_references(small: Small, tmp_path: Path) -> None:
    bert, _ = small("BertForPreTraining")  # for its tokenizer alone
    tokenizer: TextTokenizer = bert.tokenizer
    family = get_family("albert")
    config = replace(family.sizes()["tiny"], vocab_size=20)
    save_reference(family, config, "pretraining", tmp_path / "albert")
    checkpoint = converted(tmp_path / "albert", tmp_path / "order")
    task = PredictSentenceOrder(checkpoint, load_session(checkpoint, "cpu"), tokenizer)
    records = [TextExample(first, second) for first, second in PAIRS]
    network: Any = transformers.AlbertForPreTraining.from_pretrained(tmp_path / "albert").eval()
    for pair, result in zip(PAIRS, task.run(records), strict=True):
        (encoded,) = tokenizer.encode([pair], max_tokens=None)
        with torch.inference_mode():
            output = network(torch.tensor([encoded.ids]), None, torch.tensor([encoded.type_ids]))
        expected = output.sop_logits[0].softmax(-1).numpy()
        np.testing.assert_allclose(list(result["scores"].values()), expected, atol=1e-5)
        assert result["label"] == ["in order", "swapped"][int(expected.argmax())]


def test_three_classes_are_those_of_a_bert_with_a_wider_head(small: Small, tmp_path: Path) -> None:
    """A StructBERT is converted by its shapes, and back without the third class."""
    bert, source = small("BertForPreTraining")
    network: Any = transformers.BertForPreTraining.from_pretrained(source).eval()
    torch.manual_seed(0)
    network.cls.seq_relationship = torch.nn.Linear(network.config.hidden_size, 3)
    network.save_pretrained(tmp_path / "structbert")
    AutoTokenizer.from_pretrained(source).save_pretrained(tmp_path / "structbert")
    checkpoint = converted(tmp_path / "structbert", tmp_path / "converted")
    assert checkpoint.head_name == "structural-pretraining"
    task = PredictSentenceStructure(checkpoint, load_session(checkpoint, "cpu"), bert.tokenizer)
    records = [TextExample(first, second) for first, second in PAIRS]
    tokenizer = AutoTokenizer.from_pretrained(source)
    for pair, result in zip(PAIRS, task.run(records), strict=True):
        with torch.inference_mode():
            logits = network(**tokenizer(*pair, return_tensors="pt")).seq_relationship_logits[0]
        expected = logits.softmax(-1).numpy()
        np.testing.assert_allclose(list(result["scores"].values()), expected, atol=1e-5)
        assert result["label"] == ["next", "random", "previous"][int(expected.argmax())]
    to_hub = ("convert", tmp_path / "converted", "--to", "hub", "-o", tmp_path / "hub")
    done = zoo(*to_hub)
    assert done.returncode == 2 and "the Hub has no class for bert with the head" in done.stderr
    done = zoo(*to_hub, "--head", "masked-lm")
    assert done.returncode == 0, done.stderr
    before = load_file(tmp_path / "structbert" / "model.safetensors")
    after = load_file(tmp_path / "hub" / "model.safetensors")
    assert before.keys() - after.keys() == {
        f"{module}.{parameter}"
        for module in ("bert.pooler.dense", "cls.seq_relationship")
        for parameter in ("weight", "bias")
    }
    assert [name for name in after if not torch.equal(after[name], before[name])] == []


def test_three_classes_are_not_an_order(tmp_path: Path) -> None:
    family = get_family("albert")
    config = replace(family.sizes()["tiny"], vocab_size=20, labels=("a", "b", "c"))
    save_reference(family, config, "pretraining", tmp_path / "albert")
    checkpoint = converted(tmp_path / "albert", tmp_path / "order")
    with pytest.raises(UsageError, match="does not have 2 classes of pairs"):
        PredictSentenceOrder(checkpoint, load_session(checkpoint, "cpu"), object())


def test_texts_of_the_command_line_are_pairs(hub_checkpoint: Make) -> None:
    source = hub_checkpoint("BertForPreTraining")
    done = zoo("run", "next-sentence", source, "a b", "c d", "--json")
    assert done.returncode == 0 and '"label": "' in done.stdout, done.stderr
    done = zoo("run", "next-sentence", source, "a b")
    assert done.returncode == 2 and "pair" in done.stderr, done.stderr
    done = zoo("run", "sentence-order", source, "a b", "c d")
    assert done.returncode == 2 and "serves fill-mask, features, next-sentence" in done.stderr
