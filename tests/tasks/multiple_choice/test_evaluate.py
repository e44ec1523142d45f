"""The evaluation of multiple choice, against transformers' model."""

import json
from pathlib import Path

import pytest

from tests import warm
from tests.evaluation.conftest import Small
from tests.tasks.multiple_choice.making import ROWS, reference_logits
from zoo.errors import UsageError
from zoo.exporting.session import open_session
from zoo.tasks import make_evaluation

TASK = "multiple-choice"


# exporting takes longest; tests/tasks compares the scores of a graph, too
@pytest.mark.parametrize("backend", ["cpu", pytest.param("onnx", marks=pytest.mark.long)])
@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_accuracy(small: Small, tmp_path: Path, backend: str) -> None:
    model, source = small("BertForMultipleChoice")
    best = [int(reference_logits(source, row).argmax()) for row in ROWS]
    table = tmp_path / "t.jsonl"
    labels = [*best[:-1], 1 - best[-1]]
    rows = [{**row, "label": label} for row, label in zip(ROWS, labels, strict=True)]
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    session = open_session(model.checkpoint, backend)
    result = make_evaluation(TASK, model.checkpoint, session).evaluate([table])
    assert dict(result.metrics) == {"accuracy": 0.75, "questions": 4, "truncated": 1}
    low, high = result.details["intervals"]["accuracy"]
    assert 0 <= low <= 0.75 <= high <= 1


def test_the_command_names_columns(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForMultipleChoice")
    (tmp_path / "t.tsv").write_text("p\tx\ty\tl\na\tb\tc\t0\na\tc\tb\t1\n")
    arguments = ("--text", "p", "--choices", "x", "--choices", "y", "--label", "l", "--json")
    data = ("--task", TASK, "--eval", tmp_path / "t.tsv", "--backend", "cpu")
    done = warm.zoo("eval", model.checkpoint.path, *data, *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["accuracy"] in (0, 1)


def test_other_heads_are_refused(small: Small) -> None:
    model, _ = small("BertForSequenceClassification")
    with pytest.raises(UsageError, match="serves classify, features, and not choose"):
        make_evaluation(TASK, model.checkpoint, model.session)
