"""The evaluation of multiple choice, against transformers' model."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests import warm
from tests.evaluate.conftest import Small
from zoo.errors import UsageError
from zoo.evaluate import make_evaluation
from zoo.evaluate.labelled.choices import MultipleChoice

TASK = "multiple-choice"
ROWS: list[dict[str, Any]] = [
    {"context": "a b c", "question": "d", "choices": ["e f", "g", "h h h h"]},
    {"context": "j", "question": "", "choices": ["a", "b b"]},
    {"context": "c d e f g h", "question": "a _ b", "choices": ["i", "j", "c", "d"]},
    {"context": "a " * 60, "question": "b", "choices": ["c", "d"]},  # truncated
]


def reference_logits(source: Path, row: dict[str, Any]) -> torch.Tensor:
    """Return the logits of a question's choices, (choices,)."""
    transformers: Any = pytest.importorskip("transformers")
    model: Any = transformers.BertForMultipleChoice.from_pretrained(source).eval()
    tokenizer = transformers.BertTokenizerFast(str(source / "vocab.txt"), do_lower_case=True)
    question, choices = row["question"], row["choices"]
    blank = "_" in question
    texts = [question.replace("_", c) if blank else f"{question} {c}" for c in choices]
    encoded = tokenizer(
        [row["context"]] * len(texts),
        texts,
        truncation=True,
        max_length=40,
        padding=True,
        return_tensors="pt",
    )
    with torch.no_grad():
        logits: torch.Tensor = model(**{k: v[None] for k, v in encoded.items()}).logits[0]
    return logits


# exporting takes longest; tests/export compares the graph of this head, too
@pytest.mark.parametrize("backend", ["cpu", pytest.param("onnx", marks=pytest.mark.long)])
def test_scores_and_accuracy(small: Small, tmp_path: Path, backend: str) -> None:
    from zoo.data.readers.choices import read_choices
    from zoo.export.session import open_or_export

    model, source = small("BertForMultipleChoice")
    expected = [reference_logits(source, row) for row in ROWS]
    best = [int(logits.argmax()) for logits in expected]
    table = tmp_path / "t.jsonl"
    labels = [*best[:-1], 1 - best[-1]]
    rows = [{**row, "label": label} for row, label in zip(ROWS, labels, strict=True)]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    session = open_or_export(model.checkpoint, backend)
    task = make_evaluation(TASK, model.checkpoint, session)
    assert isinstance(task, MultipleChoice)
    scores = torch.from_numpy(task._scores(read_choices([table])))
    torch.testing.assert_close(scores.float(), torch.cat(expected), atol=1e-4, rtol=1e-5)
    result = task.evaluate([table])
    assert dict(result.metrics) == {"accuracy": 0.75, "questions": 4}
    low, high = result.details["intervals"]["accuracy"]
    assert 0 <= low <= 0.75 <= high <= 1


def test_the_command_names_columns(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForMultipleChoice")
    (tmp_path / "t.tsv").write_text("p\tx\ty\tl\na\tb\tc\t0\na\tc\tb\t1\n")
    arguments = ("--text", "p", "--choices", "x", "--choices", "y", "--label", "l", "--json")
    data = ("--task", TASK, "--data", tmp_path / "t.tsv", "--backend", "cpu")
    done = warm.zoo("eval", model.checkpoint.path, *data, *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["accuracy"] in (0, 1)


def test_other_heads_are_refused(small: Small) -> None:
    model, _ = small("BertForSequenceClassification")
    with pytest.raises(UsageError, match="needs one that scores choices"):
        make_evaluation(TASK, model.checkpoint, model.session)
