"""PET: soft labels and losses by hand, resumed runs, and wrong settings."""

import json
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from click.testing import CliRunner

from tests.disks import fill
from tests.disks import small_disk as small_disk
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import HERE, write_table
from tests.training.runs import assert_equal_files, cut
from zoo.api import Model
from zoo.cli.models.info import command as info
from zoo.conversion.cache import resolve_checkpoint
from zoo.errors import UsageError
from zoo.finetuning.runs import FineTuneRun
from zoo.finetuning.setup import finetune_setup
from zoo.inference import load_session
from zoo.tasks.pet.soft_labels import FOLDER, TRAIN, write_soft_labels
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.overrides import read_config_file
from zoo.training.config.schema import validate_config
from zoo.training.state.verify import differing_files

TEMPLATES, WORDS = ["{text} b {label} c.", "{label}: {text}"], {"yes": "a", "no": "j"}
ROWS = [
    {"text": text, "label": label}
    for text, label in (("d e", "yes"), ("d f g", "yes"), ("h i f", "no"), ("i e", "no"))
]
TEXTS = [f"{a} {b} e f" for a in "dhi" for b in "dgi"]
SHORT = {"max_steps": 2, "save_steps": 1, "save_total_limit": 9, "keep_optimizer": True}


def settings(model: Path, folder: Path, **options: Any) -> dict[str, Any]:
    files = {
        "train": write_table(folder / "train.tsv", ROWS),
        "eval": write_table(folder / "eval.tsv", ROWS),
        "unlabelled": write_table(folder / "texts.tsv", [{"text": text} for text in TEXTS]),
    }
    args = {
        "template": TEMPLATES,
        "label_words": WORDS,
        "repetitions": 1,
        "patterns": {**SHORT, "optimizer": {"learning_rate": 1e-2}},
        **options,
    }
    return {
        "task": "pet",
        "init_from": {"model": str(model)},
        "data": {split: [str(file)] for split, file in files.items()},
        "task_args": args,
        **SHORT,
        "eval_steps": 2,
        "batch_size": 4,
        "report_to": [],
        "logging_steps": 1,
    }


def loaded(path: Path) -> Model:
    checkpoint = resolve_checkpoint(str(path))
    return Model(checkpoint, load_session(checkpoint, "cpu"))


def log_probs(model: Path, template: str, texts: list[str]) -> np.ndarray[Any, Any]:
    results = loaded(model).prompt(texts, template=template, label_words=WORDS)
    return np.array([[result["log_probs"][label] for label in WORDS] for result in results])


def test_a_classifier_learns_the_labels_of_the_patterns(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    path, _ = pretrained("BertForMaskedLM")
    paths = FineTuneRun(settings(path, tmp_path), HERE, tmp_path / "run").start()
    run = tmp_path / "run"
    stages = ["pattern-1-1", "pattern-2-1", "classifier"]
    assert json.loads((run / "stages.json").read_text())["stages"] == stages
    assert paths == (run / "classifier", run / "model")
    # the weight of a pattern is the accuracy of the pretrained model
    labels = np.array([list(WORDS).index(row["label"]) for row in ROWS])
    texts = [row["text"] for row in ROWS]
    found = [log_probs(path, template, texts).argmax(-1) for template in TEMPLATES]
    weights = np.array([(chosen == labels).mean() for chosen in found])
    record = json.loads((run / "soft-labels/soft-labels.json").read_text())
    assert list(record["weights"].values()) == pytest.approx(weights.tolist())
    models = [run / stage / "model" for stage in stages[:2]]
    scores = [log_probs(m, t, TEXTS) for m, t in zip(models, TEMPLATES, strict=True)]
    weights = weights if weights.any() else np.ones(2)
    mean = np.einsum("p,ptl->tl", weights, np.stack(scores)) / weights.sum()
    expected = torch.from_numpy(mean / 2.0).softmax(-1)
    lines = [json.loads(x) for x in (run / "soft-labels/train.jsonl").read_text().splitlines()]
    assert [line["text"] for line in lines] == TEXTS
    soft = torch.tensor([[line["label"][name] for name in WORDS] for line in lines])
    torch.testing.assert_close(soft.double(), expected, atol=1e-6, rtol=0)
    # the loss of the classifier
    values = read_config_file(run / "classifier" / "config.yaml")
    setup = finetune_setup(validate_config(values, FineTuneConfig))
    objective: Any = setup.objective
    assert objective.labels == tuple(WORDS)
    model = objective.model(setup.family, setup.model_config).eval()
    with closing(setup.train_dataloader(HERE)) as loader:
        batch = next(iter(loader.make_batches(0)))
    outputs = objective.forward(model, batch.tensors)
    q, logits = batch.tensors["labels"].double(), outputs.logits["pet"].double()
    p = (logits / 2).softmax(-1)
    by_hand = 4 * (q * (q.log() - p.log())).sum()
    loss = objective.loss(outputs, batch.tensors).sums["pet"]
    assert float(loss) == pytest.approx(float(by_hand), abs=1e-5)
    result = loaded(paths.model).classify(["d e"])[0]
    assert set(result["scores"]) == set(WORDS)
    described = CliRunner().invoke(info, [str(run), "--json"])
    value = json.loads(described.stdout)
    assert (value["run"], value["finished"]) == ("finetune", True)
    assert value["stages"] == dict.fromkeys(stages, "finished, step 2")
    (run / "classifier").rename(tmp_path / "later")
    described = CliRunner().invoke(info, [str(run)])
    assert "not begun" in described.stdout
    assert described.stdout.splitlines()[-1] == f"next: zoo finetune --resume {run}"


@pytest.mark.long
def test_the_models_of_patterns_and_the_classifier_are_adapters(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    path, _ = pretrained("BertForMaskedLM")
    tree = settings(path, tmp_path, template=TEMPLATES[:1], weighting="uniform")
    model = FineTuneRun({**tree, "adapter": {"method": "lora"}}, HERE, tmp_path / "run").start()
    record = json.loads((tmp_path / "run/soft-labels/soft-labels.json").read_text())
    assert "adapter.safetensors" in record["models"]["pattern-1-1"]
    lines = (tmp_path / "run/soft-labels/train.jsonl").read_text().splitlines()
    soft = np.array([list(json.loads(line)["label"].values()) for line in lines])
    scores = log_probs(tmp_path / "run/pattern-1-1/model", TEMPLATES[0], TEXTS)
    expected = torch.from_numpy(scores / 2).softmax(-1)
    np.testing.assert_allclose(soft, expected, atol=1e-6)
    assert set(loaded(model.model).classify(["d e"])[0]["scores"]) == set(WORDS)


@pytest.mark.long  # tests/training resumes runs of several stages
def test_a_run_resumes_exactly_in_any_stage(pretrained: Pretrained, tmp_path: Path) -> None:
    path, _ = pretrained("BertForMaskedLM", hidden_dropout_prob=0.1)
    tree = settings(path, tmp_path)
    whole, run = tmp_path / "whole", tmp_path / "run"
    FineTuneRun(tree, HERE, run).start()
    shutil.copytree(run, whole, symlinks=True)
    for stage in ("pattern-2-1", "classifier"):
        (run / "model").unlink()
        cut(run / stage, 1)
        if stage != "classifier":
            shutil.rmtree(run / "classifier")
            shutil.rmtree(run / "soft-labels")
        FineTuneRun({}, HERE).resume(run)
        assert differing_files(whole, run) == []
        for name in ("pattern-1-1", "pattern-2-1", "classifier"):
            assert_equal_files(whole / name, run / name)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"task_args": {"template": []}}, "pet has no pattern"),
        ({"task_args": {"template": ["{text}"]}}, "has no slot {label}"),
        ({"task_args": {"label_words": ""}}, "there are no label words"),
        ({"task_args": {"repetitions": 0}}, "repetitions is 0"),
        ({"task_args": {"temperature": 0}}, "temperature is 0"),
        ({"task_args": {"patterns": {"max_stepz": 3}}}, "max_stepz"),
        ({"data": {"unlabelled": []}}, "pet has no unlabelled texts"),
        ({"init_from": None}, "pet needs a pretrained model"),
    ],
)
def test_wrong_settings_are_refused_before_a_run_begins(
    pretrained: Pretrained, tmp_path: Path, change: dict[str, Any], message: str
) -> None:
    path, _ = pretrained("BertForMaskedLM")
    run = FineTuneRun(settings(path, tmp_path), HERE, tmp_path / "run", overrides=change)
    with pytest.raises(UsageError, match=message):
        run.start()
    assert not (tmp_path / "run").exists()


@pytest.mark.long
def test_a_disk_without_room_for_soft_labels(
    pretrained: Pretrained, small_disk: Path, tmp_path: Path
) -> None:
    model = Path(pretrained()[0])
    models = {"pattern": (model, TEMPLATES[0])}
    tree = settings(model, tmp_path)
    fill(small_disk, 0)
    with pytest.raises(UsageError, match="No space left on device") as error:
        write_soft_labels(small_disk / FOLDER, models, tree, "cpu")
    assert str(small_disk / FOLDER) in str(error.value)
    assert "nothing was left behind" in str(error.value) and "make room" in str(error.value)
    (small_disk / "filler").unlink()
    assert list(small_disk.iterdir()) == []
    write_soft_labels(small_disk / FOLDER, models, tree, "cpu")
    assert len((small_disk / FOLDER / TRAIN).read_text().splitlines()) == len(TEXTS)
