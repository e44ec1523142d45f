"""Tests of what a run says about the labels of its data."""

from pathlib import Path
from typing import Any

import pytest

from tests.finetune.making import labelled, settings, texts, write_table
from tests.finetune.tasks.test_tokens import tagged
from zoo.errors import UsageError
from zoo.finetune.config import build_config
from zoo.finetune.setup import build_setup


def warnings(caplog: pytest.LogCaptureFixture, table: Path, **changes: Any) -> list[str]:
    """Return the warnings of a run that does not start."""
    caplog.clear()
    build_setup(build_config(settings("bert", table, vocab_size=300, **changes), {}))
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_a_file_that_ends_within_a_label(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table, held = labelled(tmp_path / "t.tsv"), labelled(tmp_path / "e.tsv", seed=1)
    data = {"eval": [str(held)]}
    table.write_bytes(table.read_bytes() + b"a b\tyes\n")
    assert warnings(caplog, table, data=data) == []
    table.write_bytes(table.read_bytes().removesuffix(b"s\n"))
    assert warnings(caplog, table, data=data) == [
        f"warning: the label 'ye' has one training sample, {table}:42, the last line, which no "
        "line feed ends: is the file whole?"
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
        "which no line feed ends: is the file whole?"
    )


def test_labels_with_one_sample_each(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    table, held = labelled(tmp_path / "t.tsv"), labelled(tmp_path / "e.tsv", seed=1)
    table.write_text(table.read_text() + "".join(f"a b\tl{k}\n" for k in range(5)))
    first, *_, rest = warnings(caplog, table, data={"eval": [str(held)]})
    assert first == f"warning: the label 'l0' has one training sample, {table}:42"
    assert rest == "warning: 2 more labels have one training sample"


def test_a_class_that_the_evaluation_lacks(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = [{"text": text, "label": "abc"[k % 3]} for k, text in enumerate(texts(30))]
    table, held = write_table(tmp_path / "t.tsv", rows), tmp_path / "e.tsv"
    write_table(held, [row for row in rows if row["label"] != "b"])
    assert warnings(caplog, table, data={"eval": [str(held)]}) == [
        "warning: no sample to evaluate has the label 'b', whose F1 counts as 0 in f1_macro"
    ]
    write_table(held, [row for row in rows if row["label"] == "c"])
    assert warnings(caplog, table, data={"eval": [str(held)]}) == [
        "warning: all samples to evaluate have the label 'c': a model that always predicts it has "
        "an accuracy of 1, and correlations are 0"
    ]


@pytest.mark.parametrize("task", ["regression", "sentence-embedding"])
def test_equal_numbers(task: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"text": text, "pair": text[::-1], "label": 3.5} for text in texts(30)]
    table, held = write_table(tmp_path / "t.tsv", rows), tmp_path / "e.tsv"
    write_table(held, [{**rows[0], "label": 2}])
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
    with pytest.raises(UsageError, match=r"have the label '(maybe|no)', which data.labels lacks"):
        build_setup(build_config(tree, {}))


def test_a_table_of_texts_in_place_of_words(tmp_path: Path) -> None:
    tree = settings("bert", labelled(tmp_path / "t.tsv"), task="token-classification")
    with pytest.raises(
        UsageError, match=r"the 1 rows cannot .* words in columns, with a blank line"
    ):
        build_setup(build_config(tree, {}))
