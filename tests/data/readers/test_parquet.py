"""Parquet files as the library datasets writes them: names of classes, lists, and their types."""

from pathlib import Path
from typing import Any

import pytest

from tests.data.readers.making import class_label, parquet, pyarrow, write_parquet
from zoo.data.readers.labelled import Columns, label_name, label_number, read_samples, sort_labels
from zoo.data.readers.problems import RowProblems
from zoo.data.readers.tables import read_rows
from zoo.errors import UsageError, VerificationError
from zoo.inference.processing.inputs import read_records
from zoo.tasks.token_classification.data import read_words

TEXT = {"dtype": "string", "_type": "Value"}


def test_names_of_classes_are_the_labels(tmp_path: Path) -> None:
    features = {"text": TEXT, "label": class_label("positive", "negative", "neutral")}
    columns = {"text": ["a", "b", "c"], "label": [1, 0, 1]}
    path = write_parquet(tmp_path / "t.parquet", columns, features)
    samples = read_samples([path], Columns())
    names = [label_name(sample.label, sample.location) for sample in samples]
    assert names == ["negative", "positive", "negative"]
    assert sort_labels(names) == ("positive", "negative"), "the order of the file, not by text"
    assert [label_number(sample.label, "") for sample in samples] == [1.0, 0.0, 1.0]
    records = list(read_records(source=str(path)))
    assert [record.extra for record in records] == [{"label": name} for name in names]
    assert {type(record.extra["label"]) for record in records} == {str}


# ``Dataset.from_dict(..., features=...).to_parquet(...)`` of datasets 5.2.0 wrote this.
METADATA = (
    '{"info": {"features": {"text": {"dtype": "string", "_type": "Value"}, "label": {"names": '
    '["no", "yes"], "_type": "ClassLabel"}, "tokens": {"feature": {"dtype": "string", "_type": '
    '"Value"}, "_type": "List"}, "tags": {"feature": {"names": ["O", "B-X", "I-X"], "_type": '
    '"ClassLabel"}, "_type": "List"}}}}'
)


def test_a_file_of_the_library_datasets(tmp_path: Path) -> None:
    columns = {
        "text": ["a", "b"],
        "label": [1, -1],
        "tokens": [["the", "cat"], ["sat"]],
        "tags": [[0, 1], [0]],
    }
    table = pyarrow.table(columns).replace_schema_metadata({"huggingface": METADATA})
    path = tmp_path / "t.parquet"
    parquet.write_table(table, path)
    samples = read_samples([path], Columns(), unlabelled=True)
    assert [sample.label for sample in samples] == ["yes", None], "-1 is no label"
    sentences = read_words([path], Columns("tokens", "tags"))
    assert [sentence.labels for sentence in sentences] == [("O", "B-X"), ("O",)]


@pytest.mark.parametrize(
    "feature",
    [
        {"feature": class_label("O", "B-X"), "_type": "Sequence"},
        {"feature": class_label("O", "B-X"), "length": -1, "_type": "List"},
        {"feature": class_label("O", "B-X"), "_type": "LargeList"},
        [class_label("O", "B-X")],
    ],
)
def test_lists_of_tokens_and_tags(tmp_path: Path, feature: Any) -> None:
    columns = {"tokens": [["the", "cat"], ["sat"]], "ner_tags": [[0, 1], [0]]}
    path = write_parquet(tmp_path / "t.parquet", columns, {"ner_tags": feature})
    sentences = read_words([path], Columns("tokens", "ner_tags"))
    assert [sentence.words for sentence in sentences] == [("the", "cat"), ("sat",)]
    assert [sentence.labels for sentence in sentences] == [("O", "B-X"), ("O",)]


def test_classes_in_structs_and_lists_of_lists(tmp_path: Path) -> None:
    columns = {"a": [{"b": 1, "c": [0, 1]}], "d": [[[0], [1, 0]]], "e": [7]}
    features = {
        "a": {"feature": {"b": class_label("x", "y"), "c": class_label("u", "v")}},
        "d": {"feature": {"feature": class_label("x", "y"), "_type": "List"}, "_type": "List"},
        "absent": class_label("x"),
    }
    path = write_parquet(tmp_path / "t.parquet", columns, features)
    (row,) = read_rows(path, None)
    assert row.values == {
        "a": {"b": "y", "c": ["u", "v"]},
        "d": [["x"], ["y", "x"]],
        "e": 7,
    }


def test_numbers_and_metadata_that_do_not_fit(tmp_path: Path) -> None:
    columns = {"text": ["a", "b"], "label": [0, 5]}
    path = write_parquet(tmp_path / "t.parquet", columns, {"label": class_label("x", "y")})
    with pytest.raises(UsageError, match=r"row 2: label is 5, and the metadata .* names 2 classes"):
        read_samples([path], Columns())
    problems = RowProblems(skip=True)
    assert len(read_samples([path], Columns(), problems)) == problems.count == 1
    write_parquet(path, columns, {"label": {"names": "x", "_type": "ClassLabel"}})
    with pytest.raises(VerificationError, match="label is a ClassLabel without names"):
        read_samples([path], Columns())
    unnamed: list[Any] = [{}, [], None, {"label": TEXT}]
    for features in unnamed:
        write_parquet(path, columns, features)
        assert [sample.label for sample in read_samples([path], Columns())] == [0, 5]
    truths = {"text": ["a", "b"], "label": [True, False]}
    write_parquet(path, truths, {"label": class_label("x", "y")})
    assert [sample.label for sample in read_samples([path], Columns())] == [True, False]
    texts = {"text": ["a"], "label": ["good"]}
    write_parquet(path, texts, {"label": class_label("x", "y")})
    assert [sample.label for sample in read_samples([path], Columns())] == ["good"]


VALUES = {
    "list<.*string>": [["a"], ["b"]],
    "struct<x: int64>": [{"x": 1}, {"x": 2}],
    "binary": [b"a", b"b"],
    "int64": [1, 2],
    "bool": [True, False],
    "date32": None,
}


@pytest.mark.parametrize("name", VALUES)
def test_other_types_than_text_are_named(tmp_path: Path, name: str) -> None:
    import datetime

    values = VALUES[name] or [datetime.date(2020, 1, 1)] * 2
    path = write_parquet(tmp_path / "t.parquet", {"text": values, "label": ["x", "y"]})
    message = rf"t\.parquet: the column 'text' has the type {name}.*, not string; cast it to string"
    with pytest.raises(UsageError, match=message):
        read_samples([path], Columns())
    with pytest.raises(UsageError, match=message):
        list(read_records(source=str(path)))


def test_nanoseconds_of_another_column(tmp_path: Path) -> None:
    times = pyarrow.array([1_600_000_000_000_000_001], pyarrow.timestamp("ns"))
    path = write_parquet(tmp_path / "t.parquet", {"text": ["a"], "label": ["x"], "time": times})
    assert [sample.label for sample in read_samples([path], Columns())] == ["x"]
    with pytest.raises(UsageError, match=r"t\.parquet: Nanosecond .*; cast the column to micro"):
        list(read_records(source=str(path)))


def test_nulls_and_dictionaries(tmp_path: Path) -> None:
    texts = pyarrow.array(["a", None, "a"]).dictionary_encode()
    path = write_parquet(tmp_path / "t.parquet", {"text": texts, "label": ["x", "y", "z"]})
    with pytest.raises(UsageError, match="row 2: text is null, where text is needed"):
        read_samples([path], Columns())
    problems = RowProblems(skip=True)
    samples = read_samples([path], Columns(), problems)
    assert [(sample.text, sample.label) for sample in samples] == [("a", "x"), ("a", "z")]
    write_parquet(path, {"text": pyarrow.nulls(2), "label": ["x", "y"]})
    with pytest.raises(UsageError, match="2 rows cannot be used"):
        read_samples([path], Columns())


def test_columns_of_tagging_that_are_no_lists(tmp_path: Path) -> None:
    path = write_parquet(tmp_path / "t.parquet", {"tokens": ["a b"], "tags": [["O", "O"]]})
    with pytest.raises(UsageError, match="the column 'tokens' has the type string, not list"):
        read_words([path], Columns("tokens", "tags"))
    write_parquet(path, {"tokens": [["a"], None], "tags": [["O"], ["O"]]})
    with pytest.raises(UsageError, match="row 2: tokens is None, not a list"):
        read_words([path], Columns("tokens", "tags"))
    write_parquet(path, {"tokens": [["a", None]], "tags": [["O", "O"]]})
    with pytest.raises(UsageError, match="row 1: tokens is null, where text is needed"):
        read_words([path], Columns("tokens", "tags"))
