"""Confusion matrices as text."""

import tracemalloc

from sklearn.metrics import confusion_matrix

from zoo.report.confusion import confusion_lines

ACTUAL = ["good", "good", "bad", "so so", "bad", "good"]
PREDICTED = ["good", "bad", "bad", "good", "bad", "good"]
LABELS = ["bad", "good", "so so"]


def counts(labels: list[str]) -> dict[str, dict[str, int]]:
    result: dict[str, dict[str, int]] = {label: {} for label in labels}
    for label, prediction in zip(ACTUAL, PREDICTED, strict=True):
        result[label][prediction] = result[label].get(prediction, 0) + 1
    return result


def test_rows_are_labels_and_columns_predictions() -> None:
    heading, header, *rows = confusion_lines(counts(LABELS), 80)
    assert heading == "rows: label, columns: prediction"
    assert header.split() == ["bad", "good", "so", "so"]
    expected = confusion_matrix(ACTUAL, PREDICTED, labels=LABELS).tolist()
    assert [list(map(int, row.split()[-3:])) for row in rows] == expected


def test_columns_are_numbered_where_names_are_long() -> None:
    labels = [*LABELS, *(f"a label with a long name {number}" for number in range(5))]
    _, header, *rows = confusion_lines(counts(labels), 80)
    assert header.split() == [str(number) for number in range(1, 9)]
    assert rows[1].split() == ["2", "good", "1", "2", *["0"] * 6]
    assert max(map(len, rows)) <= 80


def test_of_many_labels_the_worst_pairs() -> None:
    labels = [*LABELS, *(f"{number} " * 30 for number in range(200))]
    many = counts(labels)
    many[labels[-1]][labels[-2]] = 12_345
    lines = confusion_lines(many, 80)
    assert lines[0] == "most frequent confusions, 3 of 3"
    assert lines[2].endswith(" 12,345")
    assert max(map(len, lines)) <= 80


def test_the_memory_of_many_labels_is_that_of_their_cells() -> None:
    labels = [*LABELS, *map(str, range(3000))]
    tracemalloc.start()
    lines = confusion_lines(counts(labels), 80)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert lines[0] == "most frequent confusions, 2 of 2"
    assert peak < 4e6  # bytes; a matrix has 9 million cells
