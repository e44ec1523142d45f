from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from transformers import AutoTokenizer

import zoo
from tests.inference.conftest import Small
from tests.tasks.causal_lm.making import MakeSource, source
from tests.tasks.text_classification.making import softmax
from zoo.errors import UsageError

__all__ = ["source"]
TEXTS: list[str | tuple[str, str]] = ["a b ab", "c", ("d e", "f"), ""]
NAMES = {"id2label": {"0": "bad", "1": "fair", "2": "good"}}


def logits(source: Path, architecture: str, text: Any) -> "np.ndarray[Any, Any]":
    tokenizer = AutoTokenizer.from_pretrained(source)
    network = getattr(transformers, architecture).from_pretrained(source).eval()
    inputs = tokenizer(*((text,) if isinstance(text, str) else text), return_tensors="pt")
    with torch.inference_mode():
        logits: np.ndarray[Any, Any] = network(**inputs).logits[0].double().numpy()
    return logits


def test_one_label_of_several(small: Small) -> None:
    model, source = small("BertForSequenceClassification", num_labels=3, hub=NAMES)
    for text, result in zip(TEXTS, model.classify(TEXTS), strict=True):
        expected = softmax(logits(source, "BertForSequenceClassification", text))
        assert list(result["scores"]) == ["bad", "fair", "good"]
        np.testing.assert_allclose(list(result["scores"].values()), expected, atol=1e-5)
        assert result["label"] == ["bad", "fair", "good"][expected.argmax()]
        assert result["score"] == max(result["scores"].values())
        assert result.get("text_pair") == (None if isinstance(text, str) else text[1])


def test_a_text_without_tokens_is_refused(source: MakeSource) -> None:
    """A decoder without special tokens would take the last token of the padding."""
    model = zoo.load(source("GPT2ForSequenceClassification"), backend="cpu")
    (alone,) = model.classify(["the cat"])
    assert alone["label"] == model.classify(["the cat", "a dog ran"])[0]["label"]
    with pytest.raises(UsageError, match="text 2 has no tokens; leave it out"):
        model.classify(["the cat", ""])


def test_tokens_of_a_text_without_any(source: MakeSource) -> None:
    """Alone or in a batch."""
    model = zoo.load(source("GPT2ForTokenClassification"), backend="cpu")
    for texts in ([""], ["the cat", ""]):
        with pytest.raises(UsageError, match=f"text {len(texts)} has no tokens; leave it out"):
            model.classify(texts)


def test_any_number_of_labels(small: Small) -> None:
    problem = {**NAMES, "problem_type": "multi_label_classification"}
    model, source = small("BertForSequenceClassification", num_labels=3, hub=problem)
    seen = set()
    for text, result in zip(TEXTS, model.classify(TEXTS), strict=True):
        expected = 1 / (1 + np.exp(-logits(source, "BertForSequenceClassification", text)))
        np.testing.assert_allclose(list(result["scores"].values()), expected, atol=1e-5)
        assert result["labels"] == [n for n, p in result["scores"].items() if p >= 0.5]
        assert "label" not in result and "score" not in result
        seen.add(len(result["labels"]))
    assert seen != {0}


@pytest.mark.parametrize("hub", [{"problem_type": "regression"}, {}])
def test_a_single_output_is_the_number_itself(small: Small, hub: dict[str, str]) -> None:
    model, source = small("BertForSequenceClassification", num_labels=1, hub=hub)
    for text, result in zip(TEXTS, model.classify(TEXTS), strict=True):
        expected = logits(source, "BertForSequenceClassification", text)[0]
        assert result["score"] == pytest.approx(expected, abs=1e-4)
        assert "label" not in result and "scores" not in result


def test_several_numbers(small: Small) -> None:
    hub = {**NAMES, "problem_type": "regression"}
    model, source = small("BertForSequenceClassification", num_labels=3, hub=hub)
    (result,) = model.classify(["a b"])
    expected = logits(source, "BertForSequenceClassification", "a b")
    np.testing.assert_allclose(list(result["scores"].values()), expected, atol=1e-4)


def test_a_label_for_each_token(small: Small) -> None:
    model, source = small("BertForTokenClassification", num_labels=3, hub=NAMES)
    texts = ["a b ab", "c"]
    for text, result in zip(texts, model.classify(texts), strict=True):
        expected = softmax(logits(source, "BertForTokenClassification", text))[1:-1]
        assert [t["label"] for t in result["tokens"]] == [
            ["bad", "fair", "good"][k] for k in expected.argmax(axis=1)
        ]
        scores = [t["score"] for t in result["tokens"]]
        np.testing.assert_allclose(scores, expected.max(axis=1), atol=1e-5)
    first = model.classify(texts)[0]["tokens"]
    assert [(t["token"], t["start"], t["end"]) for t in first] == [
        ("a", 0, 1),
        ("b", 2, 3),
        ("a", 4, 5),
        ("##b", 5, 6),
    ]


def test_pairs_are_not_labelled_by_token(small: Small) -> None:
    model, _ = small("BertForTokenClassification", num_labels=3)
    with pytest.raises(UsageError, match="text 2 has a text_pair"):
        model.classify(["a", ("b", "c")])
