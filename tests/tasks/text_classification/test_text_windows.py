"""Windows over long texts: logits by hand from transformers' model on each window."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers

from tests import warm
from tests.inference.conftest import Small
from tests.tasks.text_classification.making import softmax
from zoo.errors import UsageError
from zoo.tasks import make_evaluation

NAMES = {"id2label": {"0": "O", "1": "B-x", "2": "I-x"}}
LONG = "a b c d e f a c e b d f a"  # 13 tokens
LENGTH, STRIDE = 8, 2  # windows of 6 tokens of text between the special ones
PARTS = ((0, 6), (4, 10), (8, 13))
# the window in which the smaller of the numbers of tokens before and after each token is largest
OWNERS = [0] * 5 + [1] * 4 + [2] * 4


def window_logits(
    source: Path, architecture: str, text: str, parts: Any, first: str = ""
) -> "list[np.ndarray[Any, Any]]":
    """Return the logits of transformers' model for parts of the tokens of a text, float64."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    network = getattr(transformers, architecture).from_pretrained(source).eval()
    tokens, rows = tokenizer.tokenize(text), []
    for start, stop in parts:
        before = ["[CLS]", *([*tokenizer.tokenize(first), "[SEP]"] if first else [])]
        row = [*before, *tokens[start:stop], "[SEP]"]
        ids = torch.tensor([tokenizer.convert_tokens_to_ids(row)])
        types = torch.zeros_like(ids)
        types[:, len(before) :] = int(bool(first))
        with torch.inference_mode():
            rows.append(network(input_ids=ids, token_type_ids=types).logits[0].double().numpy())
    return rows


def test_logits_of_a_text_are_the_mean_over_windows(small: Small) -> None:
    model, source = small("BertForSequenceClassification", num_labels=3, hub=NAMES)
    texts = [LONG, "a b", f"{LONG} b"]
    results = model.classify(texts, doc_stride=STRIDE, max_seq_len=LENGTH)
    windows = (PARTS, ((0, 2),), ((0, 6), (4, 10), (8, 14)))
    for text, parts, result in zip(texts, windows, results, strict=True):
        rows = window_logits(source, "BertForSequenceClassification", text, parts)
        expected = softmax(np.mean(rows, axis=0))
        np.testing.assert_allclose(list(result["scores"].values()), expected, atol=1e-5)
        assert "truncated" not in result
    rows = window_logits(source, "BertForSequenceClassification", LONG, PARTS)
    pooled: dict[Any, Any] = {"max": np.max(rows, axis=0), "first": rows[0]}
    for pooling, logits in pooled.items():
        (result,) = model.classify(
            [LONG], doc_stride=STRIDE, max_seq_len=LENGTH, window_pooling=pooling
        )
        np.testing.assert_allclose(list(result["scores"].values()), softmax(logits), atol=1e-5)
        assert result.get("truncated", 0) == (7 if pooling == "first" else 0)
    with pytest.warns(UserWarning, match=r"2 of \d texts were longer than 8 tokens"):
        cut = model.classify(texts, max_seq_len=LENGTH)
    assert cut[0]["truncated"] == 7 and cut[0]["scores"] != results[0]["scores"]


def test_windows_over_the_second_text_of_a_pair(small: Small) -> None:
    model, source = small("BertForSequenceClassification", num_labels=1, hub={})
    (result,) = model.classify([("f e", LONG)], doc_stride=1, max_seq_len=10)
    parts = ((0, 5), (4, 9), (8, 13))
    rows = window_logits(source, "BertForSequenceClassification", LONG, parts, "f e")
    assert result["score"] == pytest.approx(float(np.mean(rows)), abs=1e-4)
    with pytest.raises(UsageError, match="text 1: the text in each window has 16 tokens"):
        model.classify([(LONG, LONG)], doc_stride=1, max_seq_len=10)


def token_logits(source: Path) -> "np.ndarray[Any, Any]":
    """Return the logits of the tokens of the long text, (tokens, labels)."""
    rows = window_logits(source, "BertForTokenClassification", LONG, PARTS)
    chosen = [rows[w][1 + k - PARTS[w][0]] for k, w in enumerate(OWNERS)]
    return np.stack(chosen)


def test_a_token_has_the_label_of_the_window_with_most_context(small: Small) -> None:
    model, source = small("BertForTokenClassification", num_labels=3, hub=NAMES)
    expected = softmax(token_logits(source))
    options: Any = {"doc_stride": STRIDE, "max_seq_len": LENGTH}
    result, short = model.classify([LONG, "c"], **options)
    assert [t["start"] for t in result["tokens"]] == list(range(0, 2 * 13, 2))
    assert [t["label"] for t in result["tokens"]] == [
        ["O", "B-x", "I-x"][k] for k in expected.argmax(axis=1)
    ]
    scores = [t["score"] for t in result["tokens"]]
    np.testing.assert_allclose(scores, expected.max(axis=1), atol=1e-5)
    assert len(short["tokens"]) == 1
    joined = model.classify([LONG], aggregate="simple", **options)[0]["entities"]
    assert joined
    assert max(entity["end"] for entity in joined) <= len(LONG)


def test_evaluations_read_windows(small: Small, tmp_path: Path) -> None:
    """No word is cut off, and each counts by its label in its window."""
    model, source = small("BertForTokenClassification", num_labels=3, hub=NAMES)
    labels = np.array(["O", "B-x", "I-x"])[token_logits(source).argmax(axis=1)].tolist()
    file = tmp_path / "long.jsonl"
    file.write_text(json.dumps({"text": LONG.split(), "label": ["O"] * 13}) + "\n")
    options: Any = {"text": "text", "label": "label"}
    evaluation = make_evaluation(
        "token-classification",
        model.checkpoint,
        model.session,
        max_seq_len=LENGTH,
        doc_stride=STRIDE,
        **options,
    )
    measured = evaluation.evaluate([file]).metrics
    assert measured["accuracy"] == pytest.approx(labels.count("O") / 13)
    arguments = ("--max-seq-len", str(LENGTH), "--doc-stride", str(STRIDE), "--json")
    path = str(model.checkpoint.path)
    done = warm.zoo("eval", path, "--task", "token-classification", "--eval", str(file), *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["accuracy"] == pytest.approx(measured["accuracy"])
    run = warm.zoo("run", "classify", path, LONG, "--max-seq-len", "8", "--doc-stride", "2")
    assert run.returncode == 0, run.stderr
    assert [token["label"] for token in json.loads(run.stdout)["tokens"]] == labels


def test_texts_are_scored_by_windows(small: Small, tmp_path: Path) -> None:
    model, source = small("BertForSequenceClassification", num_labels=1, hub={})
    file = tmp_path / "long.tsv"
    file.write_text(f"text\tlabel\n{LONG}\t1.5\na b\t-1\n")
    options: Any = {"max_seq_len": LENGTH, "doc_stride": STRIDE}
    evaluation = make_evaluation("regression", model.checkpoint, model.session, **options)
    texts = ((LONG, PARTS), ("a b", ((0, 2),)))
    values = [
        np.mean(window_logits(source, "BertForSequenceClassification", *text)) for text in texts
    ]
    expected = ((values[0] - 1.5) ** 2 + (values[1] + 1) ** 2) / 2
    assert evaluation.evaluate([file]).metrics["mse"] == pytest.approx(expected, rel=1e-4)


def test_what_does_not_fit(small: Small) -> None:
    model, _ = small("BertForSequenceClassification", num_labels=3, hub=NAMES)
    with pytest.raises(UsageError, match="windows of 8 tokens cannot share 8"):
        model.classify([LONG], doc_stride=8, max_seq_len=8)
    with pytest.raises(UsageError, match="text 1: the text in each window has 2 tokens"):
        model.classify([LONG], doc_stride=6, max_seq_len=8)
