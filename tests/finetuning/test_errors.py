"""Tests of refusals: one line, the documented exit code, and no file left behind."""

from pathlib import Path
from typing import Any

import pytest

from tests import warm
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, labelled, refused, settings, texts, write_table


def rows(*labels: Any, text: str = "text", label: str = "label") -> list[dict[str, Any]]:
    return [{text: t, label: name} for t, name in zip(texts(len(labels)), labels, strict=True)]


@pytest.fixture
def model(pretrained: Pretrained) -> Path:
    return pretrained()[0]


def test_a_label_that_training_lacks(model: Path, tmp_path: Path) -> None:
    held = write_table(tmp_path / "e.tsv", rows("yes", "maybe"))
    tree = settings(model, labelled(tmp_path / "t.tsv"), data={"eval": [str(held)]})
    refused(tmp_path, tree, r"e\.tsv:3: the label 'maybe' is not in the training data")


def test_steps_of_checkpoints_that_do_not_divide_an_epoch(model: Path, tmp_path: Path) -> None:
    tree = settings(model, labelled(tmp_path / "t.tsv"), save_steps=3, eval_steps=0)
    refused(tmp_path, tree, r"save_steps is 3, and does not divide eval_steps.* is 5 by default")


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"lr_scheduler": 7}, "lr_scheduler is 7, not a table of settings"),
        ({"data": [1]}, r"data is \[1\], not a table of settings"),
        ({"preset": 4}, "preset is 4, not a name"),
        ({"task": ["a"]}, "task is .*, not a name"),
        ({"family": None}, "family is None, not a name"),
    ],
)
def test_settings_of_other_kinds(model: Path, tmp_path: Path, changes: Any, match: str) -> None:
    """A file may have any YAML in the place of a table or a name."""
    refused(tmp_path, {**settings(model, labelled(tmp_path / "t.tsv")), **changes}, match)


def test_a_class_without_samples(model: Path, tmp_path: Path) -> None:
    table = labelled(tmp_path / "t.tsv")
    tree = settings(model, table, data={"labels": ["no", "yes", "perhaps"]})
    refused(tmp_path, tree, "no sample of the training data has the label 'perhaps'")


def test_a_class_that_is_named_twice(model: Path, tmp_path: Path) -> None:
    tree = settings(model, labelled(tmp_path / "t.tsv"), data={"labels": ["no", "yes", "yes"]})
    refused(tmp_path, tree, "data.labels has 'yes' twice; name each label once")


@pytest.mark.parametrize("task", ["text-classification", "sentence-embedding"])
def test_a_text_without_tokens(tmp_path: Path, task: str) -> None:
    """A model without special tokens would have no token to classify."""
    rows = [{"text": text, "label": str(k % 2)} for k, text in enumerate([*texts(20), ""])]
    columns = {} if task.startswith("text") else {"text": "label", "pair": "text"}
    tree = settings("gpt", write_table(tmp_path / "t.tsv", rows), task=task, data=columns)
    refused(
        tmp_path,
        {**tree, "vocab_size": 300},
        r"t\.tsv:22 has no tokens; correct the row, or leave it out with --skip-invalid",
    )


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        ("regression", {"data": {"labels": ["a"]}}, "data.labels; leave data.labels out"),
        ("multi-label", {"class_weights": "balanced"}, "class_weights; leave class_weights out"),
        ("text-classification", {"data": {"negatives": ["n"]}}, "data.negatives; leave --negative"),
        ("causal-lm", {"data": {"prefix": "p"}}, "data.prefix; leave --prefix out"),
        ("seq2seq", {"data": {"label_separator": ";"}}, "data.label_separator; leave data.label"),
    ],
)
def test_a_setting_that_a_task_does_not_read(
    tmp_path: Path, task: str, changes: dict[str, Any], message: str
) -> None:
    tree = settings("bert", tmp_path / "t.tsv", task=task, **changes)
    refused(tmp_path, tree, f"{task} does not read {message}")


def test_a_pretrained_model_keeps_its_size(model: Path, tmp_path: Path) -> None:
    for name, value in {"size": "large", "vocab_size": 77}.items():
        tree = settings(model, labelled(tmp_path / "t.tsv"), **{name: value})
        refused(tmp_path, tree, f"a pretrained model keeps its {name}; leave .*{name} out")


def test_a_single_class(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.tsv", rows(*["yes"] * 20))
    refused(tmp_path, settings(model, table), "all samples .* have the label 'yes'")


def test_rows_that_cannot_be_split(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.tsv", rows(*(f"l{k}" for k in range(6))))
    refused(tmp_path, settings(model, table), "the 6 rows cannot be split .*; give --eval")


def test_a_column_that_is_not_there(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.tsv", rows("a", "b", label="lable"))
    refused(tmp_path, settings(model, table), r"t\.tsv:1 has no column 'label'; did you mean")


def test_options_are_checked_before_the_data(model: Path, tmp_path: Path) -> None:
    missing = tmp_path / "missing.tsv"
    for arguments, message in (
        ({"poolin": "mean"}, "text-classification has no option 'poolin'; did you mean pooling"),
        ({"lm_coef": "x"}, r"task_args\.lm_coef: Expected `float`, got `str`"),
    ):
        refused(tmp_path, settings(model, missing, task_args=arguments), message)


def test_a_truncated_file(model: Path, tmp_path: Path) -> None:
    table = labelled(tmp_path / "t.tsv")
    table.write_bytes(table.read_bytes().rpartition(b"\t")[0])
    refused(tmp_path, settings(model, table), "has 1 columns, and the header has 2")


def test_an_empty_table(model: Path, tmp_path: Path) -> None:
    table = tmp_path / "t.tsv"
    table.write_text("text\tlabel\n")
    refused(tmp_path, settings(model, table), r"t\.tsv has no rows")


def test_a_head_that_does_not_fit(pretrained: Pretrained, tmp_path: Path) -> None:
    names = {"id2label": {0: "x", 1: "y", 2: "z"}, "label2id": {"x": 0, "y": 1, "z": 2}}
    model, _ = pretrained("BertForSequenceClassification", **names)
    tree = settings(model, labelled(tmp_path / "t.tsv"))
    refused(tmp_path, tree, r"head for x, y, z, .*: no, yes; .*--set init_from\.new_modules")
    tree["init_from"] = {**tree["init_from"], "new_modules": ["head"]}
    finetune(tmp_path / "run", {**tree, "max_steps": 1})


def test_a_number_that_is_none(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.tsv", rows("1.5", "two"))
    tree = settings(model, table, task="regression")
    refused(tmp_path, tree, r"t\.tsv:3: the label is 'two', which is not a number")


def test_an_unknown_metric(model: Path, tmp_path: Path) -> None:
    tree = settings(model, labelled(tmp_path / "t.tsv"), metric_for_best_model="pearson")
    refused(tmp_path, tree, "text-classification has no metric 'pearson'; it has loss, accuracy")


def test_a_family_without_the_head(tmp_path: Path) -> None:
    tree = settings("elmo", labelled(tmp_path / "t.tsv"), task="causal-lm")
    refused(tmp_path, tree, "elmo has no head causal-lm")


def test_more_layers_than_there_are(model: Path, tmp_path: Path) -> None:
    tree = settings(model, labelled(tmp_path / "t.tsv"), freeze_layers=3)
    refused(tmp_path, tree, "3 layers cannot be frozen: the model has 2")
    tree |= {"freeze_layers": 0, "reinit_layers": 50}
    refused(tmp_path, tree, "50 layers cannot get new weights: the model has 2; set a lower reinit")


def test_the_mix_of_layers_is_no_layer(tmp_path: Path) -> None:
    tree = settings("elmo", labelled(tmp_path / "t.tsv"), freeze_layers=3)
    refused(tmp_path, tree, "3 layers cannot be frozen: the model has 2")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--task", "text-clasification"], "did you mean text-classification"),
        (["--task", "sentiment-analisis"], "did you mean sentiment-analysis"),
        (["--task", "regression", "--preset", "papper"], "has no preset 'papper'"),
        (["--task", "regression", "--set", "batchsize=3"], "there is no setting batchsize"),
        ([], "no task is named"),
    ],
)
def test_options_that_do_not_exist(arguments: list[str], message: str, tmp_path: Path) -> None:
    table = labelled(tmp_path / "t.tsv")
    done = warm.zoo("finetune", "bert", "--train", table, *arguments, "-o", tmp_path / "run")
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_long_texts_are_counted(model: Path, tmp_path: Path) -> None:
    table = write_table(
        tmp_path / "t.tsv",
        [{"text": " ".join("ab" * (20 if k < 3 else 2)), "label": k % 2} for k in range(20)],
    )
    done = warm.zoo(
        *("finetune", model, "--task", "text-classification", "--train", table),
        *("--set", "max_seq_len=16", "--max-steps", "1", "--device", "cpu", "-o", tmp_path / "run"),
    )
    assert done.returncode == 0, done.stderr
    warning = "warning: 3 of 20 texts were longer than 16 tokens and were cut; --set max_seq_len"
    # At the beginning, and once more at the end.
    assert done.stderr.count(warning) == 2
    assert done.stderr.splitlines()[-1].startswith(warning)
