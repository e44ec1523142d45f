"""A run of the benchmark of sentence models, of seconds."""

import json
from pathlib import Path

import pytest

from benchmarks.sentence_models import main, split, spread
from tests.checkpoints import Make, hub_checkpoint
from tests.finetuning.making import texts

__all__ = ["hub_checkpoint"]


@pytest.mark.long
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
    options += ["--rounds", "1", "--static-dim", "8", "--static-seeds", "1"]
    output = tmp_path / "results.json"
    main([str(model), "--data", str(tmp_path), *options, "--json", str(output)])
    printed = capsys.readouterr().out
    found = json.loads(output.read_text())
    assert [len(seed) for seed in found["with Matryoshka"]] == [2]
    assert len(found["reranker"]) == len(found["static vectors, trained"]) == 1
    assert spread([seed[0] for seed in found["reranker"]]) in printed
    assert "| 8 |" in printed and "| reranker |" in printed and "| static vectors of" in printed
    assert "| static vectors, trained |" in printed
    (gain,) = (
        after[1] - before[1]
        for before, after in zip(found["fine-tuned"], found["with Matryoshka"], strict=True)
    )
    assert f" {gain:+.1f} |" in printed


def test_pairs_to_measure_are_not_trained_on(tmp_path: Path) -> None:
    """In either order."""
    rows = [("a b", "c"), ("c", "a b"), ("a b", "d")]
    for name, chosen in (("SICK_train.txt", rows), ("SICK_trial.txt", rows[:1])):
        lines = ["sentence_A\tsentence_B\trelatedness_score", *(f"{a}\t{b}\t2" for a, b in chosen)]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    pairs, labels = split(tmp_path, tmp_path / "train.tsv", 5)
    assert (pairs, labels) == (rows[:1], [2.0])
    assert (tmp_path / "train.tsv").read_text().splitlines()[1:] == ["a b\td\t2"]
