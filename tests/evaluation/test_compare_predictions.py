"""``zoo compare`` of two systems' predictions, next to scikit-learn, SciPy and sacreBLEU."""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sacrebleu
import scipy.stats
import sklearn.metrics

from tests.in_process import exit_code

TEXTS = [f"text {number}" for number in range(60)]


def write_csv(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        for row in rows:
            cells = {k: json.dumps(v) if isinstance(v, bool) else v for k, v in row.items()}
            writer.writerow(cells)
    return path


def write_json_lines(path: Path, rows: Sequence[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def class_rows(labels: Sequence[str], predictions: Sequence[str]) -> list[dict[str, Any]]:
    rows = []
    for text, label, prediction in zip(TEXTS, labels, predictions, strict=True):
        row = {"location": "x", "text": text, "label": label, "prediction": prediction}
        rows.append({**row, "probability": 0.9, "correct": label == prediction})
    return rows


def compare(capsys: pytest.CaptureFixture[str], *words: object) -> dict[tuple[str, str], Any]:
    assert exit_code(["compare", *map(str, words), "--json"]) == 0
    comparisons = json.loads(capsys.readouterr().out)["comparisons"]
    return {(row.get("name", ""), row["metric"]): row for row in comparisons}


@pytest.mark.long
def test_classes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    labels = rng.choice(list("abc"), 60)
    systems = []
    for error in (0.2, 0.5):
        systems.append(np.where(rng.random(60) < error, rng.choice(list("abc"), 60), labels))
    first = write_csv(tmp_path / "first.csv", class_rows(list(labels), list(systems[0])))
    second = write_json_lines(tmp_path / "second.jsonl", class_rows(list(labels), list(systems[1])))
    rows = compare(capsys, first, second)
    functions = {
        "accuracy": sklearn.metrics.accuracy_score,
        "f1_macro": lambda y, p: sklearn.metrics.f1_score(y, p, average="macro"),
        "matthews_correlation": sklearn.metrics.matthews_corrcoef,
    }
    assert {metric for _, metric in rows} == functions.keys()
    for name, function in functions.items():
        row = rows["", name]
        assert row["first"] == pytest.approx(function(labels, systems[0]))
        assert row["second"] == pytest.approx(function(labels, systems[1]))
        assert row["samples"] == 60 and row["low"] < row["second"] - row["first"] < row["high"]
    correct = [system == labels for system in systems]
    counts = [int((correct[k] & ~correct[1 - k]).sum()) for k in (0, 1)]
    expected = scipy.stats.binomtest(counts[0], sum(counts)).pvalue
    assert rows["", "accuracy"]["test"] == "mcnemar"
    assert rows["", "accuracy"]["p"] == pytest.approx(expected)
    assert rows["", "f1_macro"]["test"] == "permutation"
    assert rows["", "accuracy"]["adjusted"] >= rows["", "accuracy"]["p"]


def test_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rng = np.random.default_rng(0)
    labels = rng.normal(size=60)
    systems = [labels + 0.1 * rng.normal(size=60), labels + 2 * rng.normal(size=60)]
    files = []
    for number, system in enumerate(systems):
        rows = []
        for text, label, prediction in zip(TEXTS, labels, system, strict=True):
            row = {"text": text, "label": label, "prediction": prediction}
            rows.append({**row, "error": prediction - label})
        files.append(write_csv(tmp_path / f"{number}.csv", rows))
    rows_by_metric = compare(capsys, *files)
    for name, function in (("pearson", scipy.stats.pearsonr), ("spearman", scipy.stats.spearmanr)):
        row = rows_by_metric["", name]
        assert row["first"] == pytest.approx(function(systems[0], labels).statistic)
        assert row["p"] < 0.001
    assert rows_by_metric["", "mse"]["second"] == pytest.approx(np.mean((systems[1] - labels) ** 2))


def test_generated_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    references = [f"the quick fox number {number} jumps over the dog" for number in range(60)]
    systems = [references, [text.replace("quick fox", "slow cat") for text in references]]
    files = []
    for number, system in enumerate(systems):
        rows = []
        for text, label, prediction in zip(TEXTS, references, system, strict=True):
            rows.append({"text": text, "label": label, "prediction": prediction})
        files.append(write_csv(tmp_path / f"{number}.csv", rows))
    row = compare(capsys, *files, "--metric", "bleu")["", "bleu"]
    assert row["first"] == pytest.approx(100)
    assert row["second"] == pytest.approx(sacrebleu.corpus_bleu(systems[1], [references]).score)
    assert row["p"] < 0.001


@pytest.mark.parametrize("write", [write_csv, write_json_lines])
def test_a_sample_may_have_several_references(
    write: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    references = [
        ["the fox jumps over the dog", "a fox jumps over a dog", "a quick fox jumps over it"],
        ["the cat sat on the mat"],
        ["[brackets] are a part of this text", "a text with brackets at the start"],
    ]
    systems = [
        ["a fox jumps over the dog", "the cat sat on a mat", "[brackets] are a part of it"],
        ["a quick fox jumps over a dog", "the cat is on the mat", "a text with brackets"],
    ]
    files = []
    for number, system in enumerate(systems):
        rows = []
        for text, prediction, labels in zip(TEXTS[:3], system, references, strict=True):
            label: Any = labels[0] if len(labels) == 1 else labels
            if write is write_csv and isinstance(label, list):
                label = json.dumps(label)
            rows.append({"text": text, "label": label, "prediction": prediction})
        files.append(
            write(tmp_path / f"{number}{'.csv' if write is write_csv else '.jsonl'}", rows)
        )
    row = compare(capsys, *files, "--metric", "bleu")["", "bleu"]
    streams: Any = []
    for number in range(3):
        streams.append([labels[number] if number < len(labels) else None for labels in references])
    for key, system in zip(("first", "second"), systems, strict=True):
        expected = sacrebleu.corpus_bleu(system, streams).score
        assert row[key] == pytest.approx(expected) and expected > 10


@pytest.mark.long
def test_folders_are_corrected_for_their_number(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    labels = ["a", "b"] * 30
    for task in ("cola", "sst2"):
        write_csv(tmp_path / "first" / f"{task}.csv", class_rows(labels, labels))
        wrong = ["b"] * 10 + labels[10:]
        write_csv(tmp_path / "second" / f"{task}.csv", class_rows(labels, wrong))
    rows = compare(capsys, tmp_path / "first", tmp_path / "second")
    assert {name for name, _ in rows} == {"cola", "sst2"}
    # Five samples are only right in the first: 2 * 2^-5, which is the largest of six p-values.
    assert rows["cola", "accuracy"]["p"] == pytest.approx(1 / 16)
    assert rows["cola", "accuracy"]["adjusted"] >= 1 / 8


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"text": "another"}, "sample 1 of "),
        ({"label": "c"}, "has another label"),
        (None, "has 60 samples and "),
    ],
)
def test_other_samples_are_refused(
    change: dict[str, str] | None,
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    labels = ["a", "b"] * 30
    rows = class_rows(labels, labels)
    first = write_csv(tmp_path / "first.csv", rows)
    changed = [{**rows[0], **(change or {})}, *rows[1:]] if change else rows[:-1]
    second = write_csv(tmp_path / "second.csv", changed)
    assert exit_code(["compare", str(first), str(second)]) == 2
    errors = capsys.readouterr().err
    assert message in errors and errors.count("\n") == 1


def test_wrong_usage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    table = tmp_path / "table.csv"
    table.write_text("text\nx\n")
    assert exit_code(["compare", str(table), str(table)]) == 2
    assert "has no column 'label'" in capsys.readouterr().err
    assert exit_code(["compare", str(table)]) == 2
    assert "two systems are compared, and 1 were given" in capsys.readouterr().err
