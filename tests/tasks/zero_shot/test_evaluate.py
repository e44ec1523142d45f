"""Evaluation of zero-shot classification, against the labels of ``zero_shot``."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.checkpoints import hub_checkpoint
from tests.inference.conftest import Small, small
from tests.tasks.zero_shot.making import NLI, labelled
from zoo.tasks.zero_shot.evaluate import ZeroShotEvaluation

__all__ = ["hub_checkpoint", "small"]


def test_words_stand_for_labels_and_templates_vary(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForSequenceClassification", **labelled(NLI))
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice([*"abcdefghij"], 4)) for _ in range(20)]
    labels = ["01"[k % 2] for k in range(20)]
    data = tmp_path / "test.csv"
    with data.open("w", newline="") as file:
        csv.writer(file).writerows([("text", "label"), *zip(texts, labels, strict=True)])
    templates, words = ["a {}", "{} b c"], {"0": "d e", "1": "j"}
    evaluation = ZeroShotEvaluation(
        model.checkpoint, model.session, template=templates, label_words=["0=d e,1=j"]
    )
    result = evaluation.evaluate([data])
    accuracies = []
    for template in templates:
        found = model.zero_shot(texts, list(words.values()), hypothesis_template=template)
        right = [r["labels"][0] == words[label] for r, label in zip(found, labels, strict=True)]
        accuracies.append(sum(right) / len(right))
    assert result.metrics["accuracy"] == pytest.approx(np.mean(accuracies))
    assert result.details["variation"]["template"]["highest"] == max(accuracies)
    reading: dict[str, Any] = {"max_seq_len": 9, "doc_stride": 0, "window_pooling": "max"}
    in_windows = ZeroShotEvaluation(
        model.checkpoint,
        model.session,
        template=templates[0],
        label_words="0=d e,1=j",
        **reading,
    )
    found = model.zero_shot(texts, ["d e", "j"], hypothesis_template=templates[0], **reading)
    right = [r["labels"][0] == words[label] for r, label in zip(found, labels, strict=True)]
    assert in_windows.evaluate([data]).metrics["accuracy"] == pytest.approx(np.mean(right))
    once = ZeroShotEvaluation(
        model.checkpoint, model.session, template=templates[1], label_words="0=d e,1=j"
    )
    assert once.evaluate([data]).metrics["accuracy"] == pytest.approx(accuracies[1])
