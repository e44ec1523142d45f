"""The benchmark of adapters: each side trains, and has a row."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import transformers

from benchmarks import adapters
from tests.checkpoints import Make, hub_checkpoint
from tests.finetuning.making import labelled

__all__ = ["hub_checkpoint"]


@pytest.mark.long
def test_both_libraries_have_a_row(
    hub_checkpoint: Make,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "sst2").mkdir()
    for split, count in (("train", 40), ("dev", 20)):
        table = labelled(tmp_path / "table.tsv", count=count)
        text = table.read_text().split("\n", 1)[1].replace("yes", "1").replace("no", "0")
        (tmp_path / "sst2" / f"{split}.tsv").write_text(text)
    model = hub_checkpoint("BertModel")
    sides = ["--sides", "lora-4", "peft lora-4", "full"]
    argv = ["adapters", str(model), str(tmp_path), "--tasks", "sst2", "--rows", "32", *sides]
    results = tmp_path / "results.jsonl"
    monkeypatch.setattr(sys, "argv", [*argv, "--smoke", "--results", str(results)])
    adapters.main()
    printed, runs = capsys.readouterr().out, results.read_text()
    adapters.main()  # all runs are known
    assert capsys.readouterr().out == printed and results.read_text() == runs
    lines = printed.splitlines()[-3:]
    rows = {line.split("|")[1].strip(): line.split("|")[2:-1] for line in lines}
    trained = {side: int(cells[3].replace(",", "")) for side, cells in rows.items()}
    of_lora = 2 * 2 * 2 * 4 * 32 + 2 * 33  # layers, parts, factors, head
    transformers.set_seed(0)
    every = transformers.BertForSequenceClassification.from_pretrained(model).num_parameters()
    assert trained == {"lora-4": of_lora, "peft lora-4": of_lora, "full": every}


def test_words_are_read_as_by_zoo(tmp_path: Path) -> None:
    """The label of a word is that of its first token."""
    file = tmp_path / "words.conll"
    file.write_text("a\tO\nbaa\tB-x\n\nc\tO\n")
    rows = adapters.read_words([file, adapters.first_rows(file, 1, str(tmp_path))], Words())
    assert rows.labels == ["B-x", "O"] and len(rows.held) == 1
    assert rows.train[0]["labels"] == [-100, 1, 0, -100, -100]


class Words:
    """A tokenizer that splits words of more than two letters in two, between special tokens."""

    def __call__(self, words: list[str], **options: Any) -> Any:
        ids = [n for n, word in enumerate(words) for _ in range(1 + (len(word) > 2))]
        return Encoded({"input_ids": [0] * (len(ids) + 2)}, [None, *ids, None])


class Encoded(dict[str, Any]):
    def __init__(self, values: dict[str, Any], words: list[int | None]) -> None:
        super().__init__(values)
        self.words = words

    def word_ids(self) -> list[int | None]:
        return self.words


def test_scores_compare_what_the_trainer_evaluated() -> None:
    """Its rows are in another order than ours; tokens without a label do not count."""
    held = [{"labels": 0}, {"labels": 0}, {"labels": 1}]
    rows = adapters.Rows([], held, ["0", "1"], "SEQ_CLS")
    output = SimpleNamespace(predictions=np.eye(2)[[1, 0, 1]], label_ids=np.array([1, 0, 0]))
    assert adapters.score(adapters.TASKS["sst2"], output, rows) == pytest.approx(2 / 3)
    assert adapters.score(adapters.TASKS["cola"], output, rows) == pytest.approx(0.5)
    tags = adapters.Rows([], [], ["B-x", "O"], "TOKEN_CLS")
    logits = np.eye(2)[[[0, 0, 1], [1, 0, 0]]]
    output = SimpleNamespace(predictions=logits, label_ids=np.array([[0, -100, 1], [1, 0, 1]]))
    assert adapters.score(adapters.TASKS["wnut17"], output, tags) == pytest.approx(0.8)
