"""The benchmark of labels of examples draws its tables from sentences that do not overlap."""

import csv
import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.prompt_labels import POOL, SEPARATOR, main, write_tables
from zoo.cli import cli


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "sst2"
    folder.mkdir()
    for name, count in (("train.tsv", POOL + 12), ("dev.tsv", 9)):
        lines = [f"{name[0]} sentence {n}\t{n % 2}" for n in range(count)]
        lines.append(f"{'long ' * 13}\t1")
        (folder / name).write_text("\n".join(lines) + "\n")
    return folder


def test_examples_texts_and_documents_are_different_sentences(data: Path, tmp_path: Path) -> None:
    write_tables(data, tmp_path, 3)
    tables = {}
    for name in ("pool", "texts"):
        with (tmp_path / f"{name}.csv").open() as file:
            tables[name] = list(csv.DictReader(file))
    assert len(tables["pool"]) == POOL
    labels = [row["label"] for row in tables["texts"]]
    assert sorted(labels) == ["0", "0", "0", "1", "1", "1"]
    examples = {row["text"] for row in tables["pool"]}
    lines = (tmp_path / "documents.jsonl").read_text().splitlines()
    assert len(lines) == 10 * 3, "twelve sentences are documents of five, five and two"
    for line in lines:
        for prompt in json.loads(line)["text"].split(SEPARATOR):
            sentence, _, word = prompt.partition(". It was ")
            number = int(sentence.rpartition(" ")[2])
            assert sentence not in examples
            assert word == ("bad", "good")[number % 2]


@pytest.mark.long
def test_tables_are_printed(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run_command(*words: object) -> str:
        done = CliRunner().invoke(cli, list(map(str, words)), catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return done.stdout

    monkeypatch.setattr("benchmarks.prompt_labels.zoo", run_command)  # In this process.
    sizes = ["--rows", "1", "--seeds", "2", "--selections", "2", "--order-selections", "1"]
    main([str(data), *sizes, "--steps", "1", "--tuning-steps", "1"])
    rows = [line.split(" | ") for line in capsys.readouterr().out.splitlines()]
    models = [row[0].strip("| ") for row in rows if len(row) > 1]
    assert models.count("pretrained") == models.count("tuned on prompts") == 5 + 1
