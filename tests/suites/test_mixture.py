"""All tasks of a suite as one data set: its sources, and the texts that are read from them."""

import json
from pathlib import Path

import pytest

from tests.suites.glue_folder import make_glue
from tests.suites.superglue_folder import make_superglue
from zoo.data.readers.problems import RowProblems
from zoo.errors import UsageError
from zoo.suites.base import TrainingData
from zoo.suites.glue import SUITE as GLUE
from zoo.suites.mixture import mix_tasks
from zoo.suites.superglue import SUITE as SUPERGLUE
from zoo.tasks.seq2seq.data import TextToText
from zoo.tasks.seq2seq.train import TextToTextData
from zoo.training.config.finetune import TableConfig

COUNT = 4


def prepared(suite: object, data: Path, folder: Path) -> dict[str, TrainingData]:
    """Return the data of the tasks of a suite that have a text-to-text form."""
    trainings = {}
    for task in suite.tasks:  # type: ignore[attr-defined]
        training = task.prepare_training(data, folder / task.name, text_to_text=True)
        if training is not None:
            trainings[task.name] = training
    return trainings


def read(mixed: TrainingData) -> tuple[list[TextToText], list[TextToText]]:
    """Return the samples that a run trains on and those that it is evaluated on."""
    reader = TextToTextData()
    files = reader.find_dataset_files({"train": mixed.train, "eval": mixed.eval})
    prefix = mixed.settings.get("data.prefix")
    table = TableConfig(train=tuple(files["train"]), eval=tuple(files["eval"]), prefix=prefix)
    return (
        reader.read(table.train, table, RowProblems()),
        reader.read(table.eval, table, RowProblems()),
    )


def test_sources_of_superglue_have_the_forms_of_its_tasks(tmp_path: Path) -> None:
    data = make_superglue(tmp_path / "SuperGLUE", COUNT)
    mixed = mix_tasks(prepared(SUPERGLUE, data, tmp_path / "tables"))
    train, evaluation = read(mixed)
    names = ["boolq", "cb", "copa", "multirc", "record", "rte", "wic", "wsc"]
    assert list(dict.fromkeys(sample.dataset for sample in train)) == names
    for sample in (*train, *evaluation):
        assert sample.source.split()[0] in (sample.dataset, f"{sample.dataset}:")
        assert sample.source.count(f"{sample.dataset} ") <= 1, "a form has no second prefix"
    rows = [json.loads(line) for line in (data / "CB/val.jsonl").read_text().splitlines()]
    expected = [
        (f"cb hypothesis: {row['hypothesis']} premise: {row['premise']}", row["label"])
        for row in rows
    ]
    assert [(s.source, s.target) for s in evaluation if s.dataset == "cb"] == expected
    # WSC is learned, and its checkpoint selected, by correct noun phrases only.
    assert {s.target for s in (*train, *evaluation) if s.dataset == "wsc"} == {"i j"}


def test_sources_of_glue_have_its_forms(tmp_path: Path) -> None:
    data = make_glue(tmp_path / "GLUE", COUNT)
    mixed = mix_tasks(prepared(GLUE, data, tmp_path / "tables"))
    train, evaluation = read(mixed)
    assert mixed.settings == {"data.skip_invalid": True}, "QQP has broken rows"
    assert "glue/wnli" not in {sample.dataset for sample in train}
    assert len(train) == 8 * COUNT and len(evaluation) == 9 * COUNT  # MNLI has two files.
    assert train[0].source.startswith("cola sentence: ")
    assert train[0].target in ("acceptable", "unacceptable")


def test_classifiers_are_not_mixed() -> None:
    training = TrainingData(task="text-classification", train=("a.tsv",))
    with pytest.raises(UsageError, match="rte cannot be mixed with other tasks"):
        mix_tasks({"rte": training})
