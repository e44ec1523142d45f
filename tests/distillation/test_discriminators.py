"""Students of replaced-token detection: discriminators, and their generators."""

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from tests.distillation.making import (
    assert_resumes_exactly,
    distill,
    make_setup,
    pretrained,
    settings,
    views,
)
from tests.training.runs import records, run_training
from zoo.checkpoint import load_checkpoint
from zoo.distillation.runs import DistillRun
from zoo.distillation.scoring.score import score_run
from zoo.errors import UsageError
from zoo.inference.load_model import load_model
from zoo.objectives.masked import model_inputs
from zoo.training.config.overrides import deep_merge


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = {"objective_args": {"generator_fraction": 0.0}, "config": {"num_layers": 2}}
    path = tmp_path_factory.mktemp("teacher") / "run"
    return run_training(path, "electra", max_steps=4, **options) / "model"


@pytest.mark.long
def test_the_teacher_reads_what_the_students_generator_wrote(teacher: Path, tmp_path: Path) -> None:
    """The divergence of two Bernoulli distributions, over all tokens but padding."""
    tree = settings(teacher, "electra", student={"num_layers": 1})
    objective, outputs, batch = views(tree, tmp_path / "run")
    tensors = batch.tensors
    real = tensors["document_ids"] != 0
    ids = outputs.student.outputs.inputs["input_ids"]
    assert (ids != tensors["input_ids"])[real].any()
    (view,) = outputs.teachers
    hidden = view.model.encode(
        ids, position_ids=tensors["position_ids"], document_ids=tensors["document_ids"]
    )
    target = view.model.scores(hidden, tensors["position_ids"])[real].double()
    mine = outputs.student.outputs.logits["replaced-token-detection"][real].double()
    expected = torch.zeros_like(mine)
    for sign in (1, -1):
        p, q = F.logsigmoid(sign * target), F.logsigmoid(sign * mine)
        expected += p.exp() * (p - q)
    sums = objective.loss(outputs, tensors).sums
    torch.testing.assert_close(sums["kl"].double(), expected.sum(), rtol=1e-4, atol=1e-6)
    assert batch.counts["kl"] == int(real.sum())

    # the generator reads the masked tokens, and its term is that of all classes
    generator: Any = load_model(load_checkpoint(teacher.parent / "generator"), torch.float64)
    inputs = model_inputs(tensors)
    states = generator.encode(**inputs).flatten(0, 1)[tensors["label_positions"]]
    p = generator.scores(states).log_softmax(-1)
    q = outputs.student.outputs.logits["masked-lm"].double().log_softmax(-1)
    divergence = (p.exp() * (p - q)).sum().detach()
    assert float(divergence) > 0
    torch.testing.assert_close(
        sums["generator"].detach().double(), divergence, rtol=1e-4, atol=1e-6
    )
    assert batch.counts["generator"] == len(tensors["labels"])


def test_without_a_generator_there_is_no_term_of_it(
    teacher: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    alone = tmp_path / "model"
    shutil.copytree(teacher, alone)
    caplog.set_level("INFO", logger="zoo")
    config: Any = DistillRun.build_config(settings(alone, "electra"), {})
    assert set(config.distillation.terms) == {"kl"} and config.distillation.generator is None
    assert "without generator: the teacher has no generator" in caplog.text
    named = {"generator": str(teacher.parent / "generator")}
    config = DistillRun.build_config(settings(alone, "electra", distillation=named), {})
    assert set(config.distillation.terms) == {"kl", "generator"}
    wrong = {"generator": str(teacher)}
    with pytest.raises(UsageError, match="has the head replaced-token-detection, not mas"):
        make_setup(settings(alone, "electra", distillation=wrong))
    odd = {"terms": {"kl": {"logits_of": "masked_lm"}}}
    with pytest.raises(UsageError, match="has no such loss") as error:
        make_setup(settings(teacher, "electra", distillation=odd))
    assert "did you mean masked-lm?" in (error.value.hint or "")


@pytest.mark.long
def test_runs_resume_exactly(teacher: Path, tmp_path: Path) -> None:
    tree = settings(teacher, "electra", student={"num_layers": 1})
    run = assert_resumes_exactly(tmp_path, tree, 6)
    losses = records(run, "validation")[-1]["losses"]
    assert set(losses) == {"masked-lm", "replaced-token-detection", "kl", "generator"}
    assert (run / "generator" / "model.safetensors").is_file()
    scores = score_run(run, device="cpu", backends=["cpu"])
    mine, other = scores.student.metrics, scores.teachers[0].metrics
    assert mine["loss"] == pytest.approx(losses["replaced-token-detection"], abs=1e-5)
    assert mine["masked-lm"] == pytest.approx(losses["masked-lm"], abs=1e-5)
    assert "masked-lm" not in other and "perplexity" not in other
    assert scores.retention == pytest.approx(other["loss"] / mine["loss"])


@pytest.mark.parametrize("sharing", ["tied", "gradient-disentangled"])
def test_the_students_embeddings_begin_as_the_teachers(
    teacher: Path, sharing: str, tmp_path: Path
) -> None:
    options = {"objective_args": {"embedding_sharing": sharing}}
    _, outputs, _ = views(settings(teacher, "electra", **options), tmp_path / "run")
    tables = [v.model.embeddings.tokens.weight for v in (outputs.student, *outputs.teachers)]
    torch.testing.assert_close(tables[0], tables[1])


def test_embeddings_that_are_sums_cannot_be_frozen(teacher: Path, tmp_path: Path) -> None:
    options = {"objective_args": {"embedding_sharing": "gradient-disentangled"}}
    frozen = {"distillation": {"freeze": ["embeddings"]}}
    with pytest.raises(UsageError, match="embeddings is computed from parameters"):
        distill(tmp_path / "run", settings(teacher, "electra", **options, **frozen))


def test_a_stage_with_the_generator_alone_is_refused(teacher: Path, tmp_path: Path) -> None:
    alone = {"objective_args": {"generator_fraction": 0.5}}
    tree = deep_merge(settings(teacher, "electra"), alone)
    with pytest.raises(UsageError, match=r"generator_fraction is 0.5"):
        distill(tmp_path / "run", tree)


def test_another_teacher_teaches_masked_language_modelling(tmp_path: Path) -> None:
    tree: dict[str, Any] = settings(pretrained("bert"), "electra", max_steps=2, eval_steps=2)
    run = distill(tmp_path / "run", tree)
    assert set(records(run, "validation")[-1]["losses"]) == {"masked-lm", "kl"}
