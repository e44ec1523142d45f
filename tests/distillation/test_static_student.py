"""Distillation of encoders into static embeddings."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from tests.checkpoints import Make
from tests.distillation.making import distill
from tests.exporting.targets.making import teacher
from tests.finetuning.making import SETTINGS, texts
from tests.inference.conftest import converted
from tests.tasks.reranker.making import sparse
from zoo.conversion.convert import convert
from zoo.distillation.runs import DistillRun
from zoo.distillation.scoring.score import score_run
from zoo.errors import UsageError
from zoo.hub.source import CheckpointDir
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext


@pytest.fixture
def encoder(hub_checkpoint: Make, tmp_path: Path) -> Path:
    """Write an encoder with the vector of the first token, a Dense, unit length and a prompt."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.base.modules import Dense, Normalize, Transformer
    from sentence_transformers.sentence_transformer.modules import Pooling

    torch.manual_seed(5)
    modules = [Transformer(str(teacher(hub_checkpoint))), Pooling(32, pooling_mode="cls")]
    modules += [Dense(32, 12), Normalize()]
    prompts = {"text": "a b "}
    model = SentenceTransformer(
        modules=modules, prompts=prompts, default_prompt_name="text", device="cpu"
    )
    model.save(str(tmp_path / "hub"), create_model_card=False)
    return tmp_path / "hub"


def tree_of(teacher: Path, train: Path | None, **student: Any) -> dict[str, Any]:
    values = {
        "distillation": {"teachers": [str(teacher)]},
        "student": {"name": "static", **student},
        "data": {"paths": [str(train)]} if train else {},
        "optimizer": {"learning_rate": 0.02},
        "max_steps": 24,
    }
    return deep_merge(SETTINGS, values)


@pytest.mark.by_default("8")
@pytest.mark.parametrize("hidden_size", [None, 8])
def test_texts_are_embedded_as_by_the_teacher(
    encoder: Path, tmp_path: Path, hidden_size: int | None
) -> None:
    """The libraries open the student, which has no Dense and prompt of its teacher's."""
    from model2vec import StaticModel
    from sentence_transformers import SentenceTransformer

    native = converted(encoder, tmp_path / "native").path
    train = tmp_path / "sentences.txt"
    train.write_text("\n".join(texts(120, 2)) + "\n")
    fields = {} if hidden_size is None else {"hidden_size": hidden_size}
    run = distill(tmp_path / "run", tree_of(native, train, **fields))
    (taught,) = json.loads((run / "training/run.json").read_text())["teachers"]
    assert set(taught["files"]) == {"model.safetensors", "2_Dense/model.safetensors"}
    sentences, library = texts(20, 3), SentenceTransformer(str(encoder), device="cpu")
    expected = library.encode(sentences)
    vectors = {n: zoo.load(run / n).embed(sentences) for n in ("static", "model")}
    assert [found.shape[1] for found in vectors.values()] == [hidden_size or 12] * 2
    if hidden_size is None:  # the dimensions are the teacher's
        before, after = ((vectors[n] * expected).sum(1).mean() for n in ("static", "model"))
        assert before < 0.9 < 0.98 < after
    score = score_run(run / "training", device="cpu", backends=[])
    assert score.metric == "similarity" and score.teachers[0].metrics["similarity"] == 1
    convert(CheckpointDir(run / "model", "model"), tmp_path / "back", to="hub")
    opened: list[Any] = [
        StaticModel.from_pretrained(tmp_path / "back"),
        SentenceTransformer(str(tmp_path / "back"), device="cpu"),
    ]
    for model in opened:
        np.testing.assert_allclose(model.encode(sentences), vectors["model"], atol=1e-6)
    again = DistillRun({}, DistContext.initialize("cpu")).resume(run)
    assert again.model == run / "model"


def test_static_students_learn_from_sentences(encoder: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="static embeddings learn from sentences"):
        distill(tmp_path / "run", tree_of(encoder, None))
    assert not (tmp_path / "run").exists()


def test_a_teacher_without_vectors_of_tokens_is_refused(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    """Before the run begins, with what to do."""
    train = tmp_path / "sentences.txt"
    train.write_text("\n".join(texts(8, 2)) + "\n")
    pretraining = converted(hub_checkpoint(), tmp_path / "pre").path
    sparse(hub_checkpoint).save(str(tmp_path / "splade"), create_model_card=False)
    words = converted(tmp_path / "splade", tmp_path / "sparse").path
    for reference, message in (
        (pretraining, "head pretraining: it does not return hidden .*--head none -o pre-none"),
        (words, "does not return hidden states of tokens; give a sentence encoder"),
    ):
        with pytest.raises(UsageError, match=message):
            distill(tmp_path / "run", tree_of(reference, train))
        assert not (tmp_path / "run").exists()
