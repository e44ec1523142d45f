"""Students that learn sentence embeddings."""

import gzip
import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

import zoo
from tests.distillation.losses.making import teacher as teacher
from tests.distillation.losses.making import tree as tree
from tests.distillation.making import assert_resumes_exactly, distill, views
from tests.finetuning.making import texts, write_table
from tests.training.runs import records
from zoo.checkpoint import load_checkpoint
from zoo.distillation.scoring.score import score_run
from zoo.errors import UsageError
from zoo.finetuning.config import finetune_config
from zoo.finetuning.setup import SplitProblems, read_splits
from zoo.plugins.tasks import training_task
from zoo.tasks.sentences.train import read_sentences
from zoo.training.config.distill import DistillTaskConfig
from zoo.training.config.overrides import deep_merge
from zoo.training.config.schema import validate_config


def test_lines_and_columns(tmp_path: Path) -> None:
    lines, table = tmp_path / "a.txt.gz", tmp_path / "t.tsv"
    lines.write_bytes(gzip.compress(b"one a\n\ntwo b\n"))
    write_table(table, [{"id": 1, "sentence": "three"}])
    rows = write_table(tmp_path / "t.jsonl", [{"sentence": "four\nfive"}])
    sentences = read_sentences([lines, table, rows], "sentence")
    assert [s.texts for s in sentences] == [("one a",), ("two b",), ("three",), ("four\nfive",)]


def test_the_student_embeds_as_its_teacher(
    teacher: Path, tree: dict[str, Any], tmp_path: Path
) -> None:
    run = distill(tmp_path / "run", deep_merge(tree, {"max_steps": 60, "eval_steps": 20}))
    losses = [record["losses"]["embeddings"] for record in records(run, "validation")]
    assert losses[-1] < 0.7 * losses[0]
    saved = load_checkpoint(run / "model").model.pooling
    assert saved is not None
    assert (saved.mode, saved.normalize, saved.max_tokens) == ("cls", True, 24)
    sentences = texts(20, 3)
    vectors = []
    for path in (teacher, run / "model"):
        vectors.append(zoo.load(path).embed(sentences))
    cosines = (vectors[0] * vectors[1]).sum(1)
    assert cosines.mean() > 0.9


@pytest.mark.long
def test_the_score_is_the_rank_correlation_of_similarities(
    teacher: Path, tree: dict[str, Any], tmp_path: Path
) -> None:
    from scipy.stats import spearmanr

    run = distill(tmp_path / "run", tree)
    scores = score_run(run, device="cpu", backends=["cpu"])
    held = [sample.texts[0] for sample in splits_of(run)[1]]
    similarities, embeddings = [], []
    for path in (teacher, run / "model"):
        vectors = zoo.load(path).embed(held)
        embeddings.append(vectors)
        similarities.append([float(a @ b) for a, b in itertools.combinations(vectors, 2)])
    expected = spearmanr(*similarities).statistic
    assert scores.metric == "similarity"
    # two of six similarities of the student differ by less than float32 rounds
    assert scores.retention == pytest.approx(expected, abs=0.05)
    assert scores.teachers[0].metrics["similarity"] == pytest.approx(1)
    other, mine = embeddings
    lengths = np.linalg.norm(other, axis=1) * np.linalg.norm(mine, axis=1)
    cosine, mse = ((other * mine).sum(1) / lengths).mean(), ((other - mine) ** 2).mean()
    metrics = scores.student.metrics
    assert (metrics["cosine"], metrics["mse"]) == pytest.approx((cosine, mse), rel=1e-3)
    assert "loss" not in metrics


def splits_of(run: Path) -> Any:
    """Return the samples of a run to train and to evaluate on."""
    config: Any = validate_config(
        yaml.safe_load((run / "config.yaml").read_text()), DistillTaskConfig
    )
    return read_splits(
        training_task(config.task).data, config, SplitProblems(skip=False), announce=False
    )


def test_the_loss_is_the_mean_squared_error(
    tree: dict[str, Any], teacher: Path, tmp_path: Path
) -> None:
    """MSELoss of sentence-transformers: torch.nn.MSELoss of embeddings; layers are removed."""
    objective, outputs, batch = views(tree, tmp_path / "run")
    (total,) = objective.loss(outputs, batch.tensors).sums.values()
    student, other = (
        view.outputs.logits["sentences"] for view in (outputs.student, *outputs.teachers)
    )
    expected = torch.nn.MSELoss()(student, other)
    torch.testing.assert_close(total / batch.counts["embeddings"], expected)
    torch.testing.assert_close(student.norm(dim=-1), torch.ones(len(student)))
    weights = load_file(teacher / "model.safetensors")
    for layer, source in ((0, 1), (1, 3)):
        name = "attention.qkv.weight"
        mine = outputs.student.model.layers[layer].get_parameter(name)
        assert torch.equal(mine, weights[f"layers.{source}.{name}"])


@pytest.mark.long
def test_a_narrower_student_has_a_projection_and_resumes_exactly(
    tree: dict[str, Any], tmp_path: Path
) -> None:
    tree["student"] |= {"hidden_size": 48, "intermediate_size": 96, "num_layers": 1}
    run = assert_resumes_exactly(tmp_path, tree, 6)
    assert not [n for n in load_file(run / "model" / "model.safetensors") if "projection" in n]


def test_what_does_not_fit(tree: dict[str, Any], tmp_path: Path) -> None:
    labels = deep_merge(tree, {"data": {"label": "x"}})
    with pytest.raises(UsageError, match="single texts"):
        distill(tmp_path / "run", labels)
    with pytest.raises(UsageError, match="can only be learned from a teacher"):
        finetune_config({"task": "sentences", "family": "bert", "data": {"train": ["x"]}}, {})
    with pytest.raises(UsageError, match="need a recipe for embeddings"):
        other = {"task": "sentences", "distillation": {"recipe": "patient"}}
        distill(tmp_path / "run", deep_merge(tree, other))
