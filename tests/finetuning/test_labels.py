"""Tests of what a run says about the labels of its data."""

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.data.readers.making import class_label, write_parquet
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    assert_resumes_exactly,
    finetune,
    labelled,
    settings,
    texts,
    write_table,
)
from tests.tasks.token_classification.making import tagged
from zoo.checkpoint import load_checkpoint
from zoo.errors import UsageError
from zoo.finetuning.config import finetune_config
from zoo.finetuning.setup import finetune_setup
from zoo.training.build import build_model


def warnings(caplog: pytest.LogCaptureFixture, table: Path, **changes: Any) -> list[str]:
    """Return the warnings of a run that does not start."""
    caplog.clear()
    finetune_setup(finetune_config(settings("bert", table, vocab_size=300, **changes), {}))
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_file_that_ends_within_a_label(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table, held = labelled(tmp_path / "t.tsv"), labelled(tmp_path / "e.tsv", seed=1)
    data = {"eval": [str(held)]}
    table.write_bytes(table.read_bytes() + b"a b\tyes\n")
    assert warnings(caplog, table, data=data) == []
    table.write_bytes(table.read_bytes().removesuffix(b"s\n"))
    assert warnings(caplog, table, data=data) == [
        f"warning: the label 'ye' has one training sample, {table}:42, the last line, which has "
        "no line feed: is the file complete?"
    ]


def test_a_file_of_words_that_ends_within_a_label(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, held = tagged(tmp_path / "t.conll"), tagged(tmp_path / "e.conll", seed=1)
    data = {"eval": [str(held)]}
    table.write_text(table.read_text() + "\nc O\na B-LO")
    number = len(table.read_text().splitlines())
    first, *_ = warnings(caplog, table, task="token-classification", data=data)
    assert first == (
        f"warning: the label 'B-LO' has one training sample, {table}:{number}, the last line, "
        "which has no line feed: is the file complete?"
    )


def test_labels_with_one_sample_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table, held = labelled(tmp_path / "t.tsv"), labelled(tmp_path / "e.tsv", seed=1)
    table.write_text(table.read_text() + "".join(f"a b{' z' * k}\tl{k}\n" for k in range(5)))
    first, *_, rest = warnings(caplog, table, data={"eval": [str(held)]})
    assert first == f"warning: the label 'l0' has one training sample, {table}:42"
    assert rest == "warning: 2 more labels have one training sample"


def test_a_class_that_the_evaluation_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"text": text, "label": "abc"[k % 3]} for k, text in enumerate(texts(30))]
    table, held = write_table(tmp_path / "t.tsv", rows), tmp_path / "e.tsv"
    others = [{**row, "text": f"{row['text']} z"} for row in rows]
    write_table(held, [row for row in others if row["label"] != "b"])
    assert warnings(caplog, table, data={"eval": [str(held)]}) == [
        "warning: no sample to evaluate has the label 'b', whose F1 counts as 0 where it is "
        "predicted, and not otherwise, in f1_macro"
    ]
    write_table(held, [row for row in others if row["label"] == "c"])
    assert warnings(caplog, table, data={"eval": [str(held)]}) == [
        "warning: all samples to evaluate have the label 'c': a model that always predicts it has "
        "an accuracy of 1, and correlations are 0"
    ]


@pytest.mark.parametrize("task", ["regression", "sentence-embedding"])
def test_equal_numbers(task: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": text, "pair": text[::-1], "label": 3.5} for text in texts(30)]
    table, held = write_table(tmp_path / "t.tsv", rows), tmp_path / "e.tsv"
    write_table(held, [{**rows[0], "text": "z z", "label": 2}])
    data = {"eval": [str(held)], "pair": "pair", "label": "label"}
    assert warnings(caplog, table, task=task, data=data) == [
        "warning: all samples to train on have the label 3.5: no difference can be learned",
        "warning: all samples to evaluate have the label 2: correlations are 0",
    ]


@pytest.mark.parametrize("chosen", [["yes"], ["yes", "maybe"]])
def test_a_label_that_the_settings_lack(chosen: list[str], tmp_path: Path) -> None:
    table = labelled(tmp_path / "t.tsv")
    table.write_text(table.read_text() + "a b\tmaybe\n" * 2)
    tree = settings("bert", table, data={"labels": chosen})
    with pytest.raises(UsageError, match=r"t\.tsv:\d+: the label 'no' is not in data.labels, yes"):
        finetune_setup(finetune_config(tree, {}))


def test_a_table_of_texts_in_place_of_words(tmp_path: Path) -> None:
    tree = settings("bert", labelled(tmp_path / "t.tsv"), task="token-classification")
    with pytest.raises(
        UsageError, match=r"the 1 rows cannot .* words in columns, with a blank line"
    ):
        finetune_setup(finetune_config(tree, {}))


@pytest.mark.parametrize("task", ["text-classification", "multi-label", "token-classification"])
def test_labels_of_a_kept_head_are_matched_by_name(
    pretrained: Pretrained, tmp_path: Path, caplog: pytest.LogCaptureFixture, task: str
) -> None:
    """The head has them in another order, and one more: its rows and its order are kept."""
    kind = "Token" if task == "token-classification" else "Sequence"
    names = (
        ("O", "I-LOW", "B-MID", "I-MID", "B-LOW", "B-NEW") if kind == "Token" else ("z", "y", "x")
    )
    problem = {"problem_type": "multi_label_classification"} if task == "multi-label" else {}
    labels = {"id2label": dict(enumerate(names)), "label2id": {n: k for k, n in enumerate(names)}}
    model, _ = pretrained(f"BertFor{kind}Classification", **labels, **problem)
    rows = [{"text": text, "label": "yz"[k % 2]} for k, text in enumerate(texts(30))]
    table = (
        tagged(tmp_path / "t.conll") if kind == "Token" else write_table(tmp_path / "t.tsv", rows)
    )
    setup = finetune_setup(finetune_config(settings(model, table, task=task), {}))
    assert setup.model_config.labels == setup.objective.labels == names
    unseen = "B-NEW" if kind == "Token" else "x"
    warning = f"warning: no training sample has these labels of the pretrained model: {unseen}"
    assert warning in [record.getMessage() for record in caplog.records]
    module = build_model(setup).module
    record = setup.load_pretrained(module)
    assert record.new_parameters == []
    head = load_file(model / "model.safetensors")["head.weight"]
    torch.testing.assert_close(module.state_dict()["head.weight"], head)
    if task == "text-classification":
        indices = setup.train_rows.values["labels"]
        shares = {names[k]: int((indices == k).sum()) for k in range(3)}
        kept = len(indices)
        assert shares["x"] == 0 and shares["y"] + shares["z"] == kept


def test_names_of_the_outputs_of_a_head_without_names(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    model, _ = pretrained("BertForSequenceClassification")
    table = labelled(tmp_path / "t.tsv")
    with pytest.raises(
        UsageError, match=r"has a head for LABEL_0, LABEL_1, but not for .*: no, yes"
    ):
        finetune_setup(finetune_config(settings(model, table), {}))
    tree = settings(model, table, data={"labels": ["yes", "no"]})
    assert finetune_setup(finetune_config(tree, {})).objective.labels == ("yes", "no")
    rows = [{"text": text, "label": 1} for text in texts(30)]
    numbered = write_table(tmp_path / "n.tsv", rows)
    assert finetune_setup(finetune_config(settings(model, numbered), {})).objective.labels == (
        "0",
        "1",
    )


def test_classes_of_a_parquet_file(pretrained: Pretrained, tmp_path: Path) -> None:
    """Names in the order of the file; numbers where a head has no names."""
    columns = {"text": texts(30), "label": [k % 2 for k in range(30)]}
    classes = {"label": class_label("unlike", "alike")}
    table = write_parquet(tmp_path / "t.parquet", columns, classes)
    tree = settings("bert", table, vocab_size=300)
    setup = finetune_setup(finetune_config(tree, {}))
    assert setup.objective.labels == ("unlike", "alike")
    model, _ = pretrained("BertForSequenceClassification")
    kept = finetune_setup(finetune_config(settings(model, table), {}))
    assert kept.objective.labels == ("0", "1")
    for rows in (setup.train_rows, kept.train_rows):
        assert set(rows.values["labels"].tolist()) == {0, 1}


def test_a_resumed_run_has_the_labels_of_its_head(pretrained: Pretrained, tmp_path: Path) -> None:
    names = {"id2label": {0: "yes", 1: "maybe", 2: "no"}}
    labels = {**names, "label2id": {name: k for k, name in names["id2label"].items()}}
    model, _ = pretrained("BertForSequenceClassification", **labels)
    tree = settings(model, labelled(tmp_path / "t.tsv"), max_steps=4, save_total_limit=9)
    whole = assert_resumes_exactly(tmp_path / "runs", tree, step=2)
    assert load_checkpoint(whole / "model").config.labels == ("yes", "maybe", "no")


def test_steps_that_read_rows_twice_or_learn_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table, held = labelled(tmp_path / "t.tsv"), labelled(tmp_path / "e.tsv", seed=1)
    changes: dict[str, Any] = {"data": {"eval": [str(held)]}}
    assert warnings(caplog, table, **changes, batch_size=40) == []
    (line,) = warnings(caplog, table, **changes, batch_size=41)
    assert "batch_size is 41, and the training data has 40 rows" in line
    one_step = {"max_steps": 1, "eval_steps": 1, "save_steps": 1}
    tree = settings("bert", table, vocab_size=300, **changes, **one_step)
    with caplog.at_level("WARNING", "zoo"):
        finetune(tmp_path / "run", tree)
    assert "the learning rate is 0 in all 1 steps" in caplog.text
    assert "warmup_steps=0 and warmup_ratio=0" in caplog.text
