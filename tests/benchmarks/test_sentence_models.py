"""A run of the benchmark of sentence models, of seconds."""

import json
from pathlib import Path

import pytest

from benchmarks.sentence_models import main, spread
from tests.checkpoints import Make, hub_checkpoint
from tests.finetuning.making import texts

__all__ = ["hub_checkpoint"]


@pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
def test_all_sides_are_measured(
    hub_checkpoint: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment"
    for number, name in enumerate(("SICK_train.txt", "SICK_trial.txt")):
        pairs = zip(texts(40, number), texts(40, number + 10), strict=True)
        rows = [f"{k}\t{a}\t{b}\t{1 + k % 5}\tNEUTRAL" for k, (a, b) in enumerate(pairs)]
        (tmp_path / name).write_text("\n".join([header, *rows]) + "\n")
    model = hub_checkpoint("BertModel")
    options = ["--seeds", "1", "--steps", "2", "--batch-size", "4", "--dimensions", "32", "8"]
    output = tmp_path / "results.json"
    main([str(model), "--data", str(tmp_path), *options, "--json", str(output)])
    printed = capsys.readouterr().out
    found = json.loads(output.read_text())
    assert [len(seed) for seed in found["with Matryoshka"]] == [2]
    assert len(found["reranker"]) == 1
    assert spread(found["reranker"]) in printed
    assert "| 8 |" in printed and "| reranker |" in printed
