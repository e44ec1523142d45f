"""The tasks that are offered for a model and a table, against what the tasks read."""

import inspect
import json
from pathlib import Path
from typing import Any

import pytest

from tests import cold
from tests.checkpoints import hub_checkpoint
from tests.inference.conftest import Small, small
from zoo.api.fitting_tasks import missing_task
from zoo.families.tasks import TaskSpec
from zoo.plugins.tasks import load_part, public_tasks
from zoo.training.config.finetune import TableConfig

__all__ = ["hub_checkpoint", "small"]
CLASSES = ["text-classification", "multi-label", "ordinal-regression", "setfit", "pet"]
FILES = {
    "labels.tsv": "text\tlabel\ngood\tyes\nbad\tno\n",
    "numbers.tsv": "text\tlabel\ngood\t1\nbad\t0.5\n",
    "reviews.csv": "id,review,stars\n1,fine,5\n",
    "pairs.tsv": "a\tb\none\ttwo\n",
    "book.txt": "It was a dark night.\n",
    "words.jsonl": json.dumps({"text": ["a", "b"], "label": ["O", "B"]}) + "\n",
    "questions.jsonl": json.dumps({"question": "a", "context": "b", "answers": {}}) + "\n",
    "swag.csv": "sent1,sent2,ending0,ending1,label\na,b,c,d,0\n",
    "blimp.tsv": "paradigm\tgood\tbad\na\tb\tc\n",
    "squad.json": "{}",
}


def offered(error: Exception) -> list[str]:
    """Return the tasks that an error names."""
    _, _, names = str(error).partition("--task ")
    return names.split(", ") if names else []


@pytest.fixture
def files(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("family", "file", "options", "expected"),
    [
        ("bert", "labels.tsv", {}, [*CLASSES, "prompt"]),
        ("t5", "labels.tsv", {}, ["seq2seq", "causal-lm", *CLASSES]),
        ("elmo", "labels.tsv", {}, CLASSES),
        ("model2vec", "labels.tsv", {}, []),
        ("bert", "numbers.tsv", {}, [CLASSES[0], "regression", *CLASSES[1:], "prompt"]),
        ("elmo", "reviews.csv", {"text": "review"}, []),
        ("elmo", "reviews.csv", {"text": "review", "label": "id"}, ["regression", *CLASSES]),
        ("elmo", "reviews.csv", {"text": "2", "label": "3"}, ["regression", *CLASSES]),
        (
            "bert",
            "pairs.tsv",
            {"text": "a", "pair": "b"},
            ["sentence-embedding", "sparse-embedding", "late-interaction", "reranker"],
        ),
        ("elmo", "words.jsonl", {}, ["token-classification"]),
        ("bert", "questions.jsonl", {}, ["question-answering"]),
        ("bert", "squad.json", {}, ["question-answering"]),
        ("bert", "swag.csv", {}, ["multiple-choice"]),
        ("gpt", "book.txt", {}, ["causal-lm"]),
    ],
)
def test_tasks_of_a_family_and_a_table(
    family: str, file: str, options: dict[str, str], expected: list[str], files: Path
) -> None:
    error = missing_task("train", family, [str(files / file)], options)
    assert sorted(offered(error)) == sorted(expected)


def test_a_classifier_is_offered_what_its_head_computes(small: Small, files: Path) -> None:
    model, source = small("BertForSequenceClassification", id2label={0: "no", 1: "yes"})
    converted = str(model.checkpoint.path)
    error = missing_task("evaluate", converted, [str(files / "labels.tsv")], {})
    assert offered(error) == ["text-classification", "ordinal-regression"]
    error = missing_task("evaluate", converted, [str(files / "book.txt")], {})
    assert offered(error) == []
    # A checkpoint that is not converted yet has the tasks of its family.
    error = missing_task("train", str(source), [str(files / "squad.json")], {})
    assert offered(error) == ["question-answering"]


@pytest.mark.long
def test_tasks_of_a_converted_model_are_named_without_torch(small: Small, files: Path) -> None:
    model, _ = small("BertForSequenceClassification", id2label={0: "no", 1: "yes"})
    done = cold.zoo_again("eval", model.checkpoint.path, "--eval", files / "labels.tsv")
    assert done.returncode == 2
    assert "--task text-classification, ordinal-regression" in done.stderr
    assert "torch" not in done.modules


def test_a_missing_column_is_named(files: Path) -> None:
    error = missing_task("train", "bert", [str(files / "reviews.csv")], {"text": "reviw"})
    assert "has no column 'reviw'; did you mean review? There are id," in str(error)


def test_columns_without_a_task_are_listed(files: Path) -> None:
    error = missing_task("train", "bert", [str(files / "reviews.csv")], {})
    assert "(id, review, stars) with --text and --label" in str(error)


def test_plain_text_has_no_columns(files: Path) -> None:
    error = missing_task("train", "bert", [str(files / "book.txt")], {})
    assert "book.txt, which is plain text" in str(error) and "--text" not in str(error)


def test_without_data_the_tasks_of_the_model_are_named() -> None:
    error = str(missing_task("train", "gpt", [], {}))
    assert "causal-lm" in error
    assert "sparse-embedding" not in error
    assert "perplexity" in str(missing_task("evaluate", None, [], {}))


@pytest.mark.parametrize("spec", public_tasks("train"), ids=lambda spec: spec.name)
def test_columns_of_fine_tuning_are_those_of_its_settings(spec: TaskSpec) -> None:
    defaults: dict[str, Any] = load_part(spec, "train").defaults.get("data", {})
    table = TableConfig(**{"train": ("file",), **defaults})
    assert spec.columns["text"].name == table.text
    assert spec.columns["text"].required
    pair = spec.columns.get("pair")
    assert (pair.name if pair else "") == (table.pair or "")
    label = spec.columns["label"]
    assert label.name in ("", table.label_column)


@pytest.mark.parametrize("spec", public_tasks("evaluate"), ids=lambda spec: spec.name)
def test_columns_of_evaluations_are_their_arguments(spec: TaskSpec) -> None:
    parameters: dict[str, inspect.Parameter] = {}
    for ancestor in reversed(load_part(spec, "evaluate").__mro__[:-1]):
        parameters.update(inspect.signature(ancestor.__init__).parameters)
    accepted = {option.name for option in spec.eval_options}
    for option in ("text", "pair", "label"):
        column = (spec.eval_columns or spec.columns).get(option)
        if option in accepted and option in parameters:
            default = parameters[option].default
            assert column is not None
            assert default in (None, column.name), option
