"""Runs of distillation: exact resumes, several processes, what moves and what does not."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

from tests.distillation.making import (
    assert_resumes_exactly,
    distill,
    make_setup,
    pretrained,
    settings,
)
from tests.training.runs import finish_in_two_processes, records
from zoo.checkpoint import load_checkpoint
from zoo.distillation.config.build import distill_config
from zoo.distillation.runs import DistillRun
from zoo.errors import UsageError
from zoo.training.build import prepare_run
from zoo.training.distributed.context import DistContext

TERMS = {  # one of each kind, between models of other widths and depths
    "hidden": {"kind": "hidden-mse", "embeddings": True, "layers": "uniform"},
    "attention": {"kind": "attention-mse", "layers": "last"},
    "queries": {"kind": "attention-kl", "layers": [[0, 1]]},
    "relations": {"kind": "relations", "relation_heads": 4},
    "first": {"kind": "first-token-mse", "layers": "last", "projection": "always"},
    "logits": {"kind": "logits-mse"},
}

STAGES = "stages: {one: {objective_weight: 1}}"


@pytest.fixture(scope="module")
def teacher() -> Path:
    return pretrained("bert")


def test_a_resumed_run_equals_one_that_was_not_interrupted(teacher: Path, tmp_path: Path) -> None:
    tree = settings(
        teacher,
        "distilbert",
        student={"num_layers": 1, "hidden_size": 64, "intermediate_size": 128},
        distillation={"terms": TERMS},
    )
    run = assert_resumes_exactly(tmp_path, tree, 6)
    (last,) = records(run, "validation")[-1:]
    assert set(last["losses"]) == {"masked-lm", "kl", "cosine", *TERMS}
    weights = load_file(run / "model" / "model.safetensors")
    assert not [name for name in weights if "projection" in name]
    checkpoint = sorted((run / "checkpoints").iterdir())[-1]
    saved = [name for file in checkpoint.glob("*.safetensors") for name in load_file(file)]
    assert [name for name in saved if "projections.hidden" in name]


@pytest.mark.long
def test_terms_without_the_head_resume_exactly(teacher: Path, tmp_path: Path) -> None:
    """The last layer's feed-forward network and the head have no gradient then."""
    tree = settings(teacher, "distilbert", distillation={"recipe": "minilm"})
    assert_resumes_exactly(tmp_path, tree, 6)


@pytest.mark.long
# a recipe whose terms leave parameters without gradients is the harder one for processes
@pytest.mark.parametrize("recipe", [pytest.param("distilbert", marks=pytest.mark.long), "minilm"])
def test_two_processes_equal_one(teacher: Path, recipe: str, tmp_path: Path) -> None:
    tree = settings(teacher, "distilbert", distillation={"recipe": recipe}, max_steps=4)
    single, parallel, file = tmp_path / "one", tmp_path / "two", tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(tree))
    distill(single, tree)
    finish_in_two_processes("distill", str(file), "-o", str(parallel))
    for split in ("train", "validation"):
        for record, other in zip(records(parallel, split), records(single, split), strict=True):
            assert record["losses"] == pytest.approx(other["losses"], abs=1e-5)


def test_the_student_begins_with_layers_of_its_teacher() -> None:
    deep = pretrained("bert", seed=1)
    setup = make_setup(settings(deep, "distilbert", distillation={"init_layers": [[0, 1]]}))
    model = setup.objective.model(setup.family, setup.model_config)
    setup.prepare_model(model)
    student = model.student.state_dict()
    weights = load_file(deep / "model.safetensors")
    layer = [name for name in student if name.startswith("layers.0.")]
    for name in layer:
        assert torch.equal(student[name], weights[name.replace("layers.0", "layers.1")])
    assert torch.equal(student["embeddings.tokens.weight"], weights["embeddings.tokens.weight"])
    assert len(layer) > 10


def test_frozen_modules_and_the_teacher_do_not_move(teacher: Path, tmp_path: Path) -> None:
    tree = settings(teacher, "distilbert", distillation={"freeze": ["embeddings", "layers.0"]})
    run = distill(tmp_path / "run", tree)
    before, after = (load_file(path / "model.safetensors") for path in (teacher, run / "model"))
    assert torch.equal(before["embeddings.tokens.weight"], after["embeddings.tokens.weight"])
    name = next(name for name in after if name.startswith("layers.0."))
    assert torch.equal(before[name], after[name])
    head = next(name for name in after if name.startswith("head.") and name in before)
    assert not torch.equal(before[head], after[head])
    training = load_checkpoint(run / "model").manifest.training
    assert training is not None
    files = training["teachers"][0]["files"]
    assert files == {
        "model.safetensors": load_checkpoint(teacher).manifest.files["model.safetensors"].blake3
    }


@pytest.mark.long
def test_a_frozen_part_of_a_module_does_not_move(teacher: Path, tmp_path: Path) -> None:
    """Position embeddings alone, of which some implementations have an option without effect."""
    tree = settings(teacher, "distilbert", distillation={"freeze": ["embeddings.positions"]})
    tree["optimizer"] = {"weight_decay": 0.1}
    run = distill(tmp_path / "run", tree)
    before, after = (load_file(path / "model.safetensors") for path in (teacher, run / "model"))
    names = [f"embeddings.{part}.weight" for part in ("positions", "tokens", "norm")]
    assert [torch.equal(before[name], after[name]) for name in names] == [True, False, False]


def test_padding_is_in_no_mean(teacher: Path, tmp_path: Path) -> None:
    """Neither the number of its tokens nor what they are changes a term."""
    recipe = {"terms": {"states": {"kind": "hidden-mse"}, "first": {"kind": "first-token-mse"}}}
    setup = make_setup(settings(teacher, "distilbert", distillation=recipe))
    prepared = prepare_run(setup, tmp_path, DistContext.initialize("cpu"))
    batch = prepared.train_dataloader.batches(0)[0]
    prepared.train_dataloader.close()
    documents = batch.tensors["document_ids"].clone()
    documents[0, -20:] = 0
    in_text = documents.flatten()[batch.tensors["label_positions"]] != 0
    predicted = {n: batch.tensors[n][in_text] for n in ("label_positions", "labels")}
    tensors = {**batch.tensors, **predicted, "document_ids": documents}
    padded = replace(batch, tensors=tensors)
    counts = {c.term_name: c.count(padded) for c in setup.objective.losses}
    tokens = documents.numel() - 20
    assert counts == {"kl": tokens, "cosine": tokens, "states": tokens, "first": 2}
    module: Any = prepared.loss_module.model.eval()
    sums = setup.objective.compute_loss(module, tensors).sums
    changed = torch.where(documents == 0, 7, tensors["input_ids"])
    others = setup.objective.compute_loss(module, {**tensors, "input_ids": changed}).sums
    assert sums.keys() == {"masked-lm", *counts}
    for name, value in sums.items():
        torch.testing.assert_close(others[name], value, msg=name)


def test_the_teacher_is_in_evaluation_mode_in_every_step(teacher: Path, tmp_path: Path) -> None:
    """With dropout, its outputs would differ from pass to pass."""
    dropout = {"student": {"dropout": 0.5, "attention_dropout": 0.5}}
    setup = make_setup(settings(teacher, "distilbert", **dropout))
    prepared = prepare_run(setup, tmp_path, DistContext.initialize("cpu"))
    batch: Any = prepared.train_dataloader.batches(0)[0].tensors
    prepared.train_dataloader.close()
    prepared.loss_module.train()
    outputs = [setup.objective.forward(prepared.loss_module.model, batch) for _ in range(2)]
    states = [output.teachers[0].captured.hidden[-1] for output in outputs]
    assert torch.equal(states[0], states[1])
    assert not states[0].requires_grad
    mine = [output.student.captured.hidden[-1] for output in outputs]
    assert not torch.equal(mine[0], mine[1])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distillation": {"recipe": "distilbrt"}}, "unknown distillation recipe 'distilbrt'"),
        ({"distillation": {"terms": {"kl": {"wieght": 1}}}}, "terms.kl.wieght; did you mean"),
        (
            {"distillation": {"terms": {"x": {"kind": "hidden-mse", "layers": [[0, 7]]}}}},
            "the teacher has no layer 7",
        ),
        (
            {"distillation": {"terms": {"x": {"kind": "hidden-mse", "layers": "unifrom"}}}},
            "distillation.terms.x.layers is 'unifrom'; did you mean uniform",
        ),
        ({"precision": "half"}, "precision is 'half'; it is one of auto, float32, bfloat16"),
        ({"distillation": {"freeze": ["nowhere"]}}, "no module 'nowhere'"),
        (
            {"distillation": {"freeze": ["embeddings", "layers", "head"]}},
            "all modules of the student",
        ),
        ({"distillation": {"freeze": [""]}}, "all modules of the student"),
        ({"distillation": {"terms": {"x": {"kind": "embeddings"}}}}, "not of masked-lm"),
        (
            {"distillation": {"terms": {"c": {"kind": "hidden-cosine", "reduction": "elements"}}}},
            "reduction is .elements., which hidden-cosine does not read",
        ),
        (
            {"distillation": {"terms": {"values": {"kind": "hidden-mse", "projection": "always"}}}},
            "cannot be called 'values'",
        ),
        ({"student": {"num_layer": 1}}, "no setting student.num_layer"),
    ],
)
def test_bad_settings_are_refused(
    teacher: Path, changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        distill(tmp_path / "run", settings(teacher, "distilbert", **changes))
    assert not (tmp_path / "run").exists()


def test_another_vocabulary_is_refused(teacher: Path, tmp_path: Path) -> None:
    other = pretrained("distilbert", vocab_size=300)
    with pytest.raises(UsageError, match="student and teacher have different tokens"):
        distill(tmp_path / "run", settings(teacher, str(other)))


def test_the_recipe_of_a_file_is_used(teacher: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    terms = "objective_weight: 0\nterms:\n  kl: {kind: kl, temperature: 3}\n"
    file.write_text(terms + "settings: {ema_decay: 0.5, optimizer: {learning_rate: 0.007}}\n")
    tree = settings(teacher, "distilbert", distillation={"recipe": str(file)})
    config = distill_config(tree, {})
    assert config.distillation.terms["kl"]["temperature"] == 3
    assert config.distillation.objective_weight == 0
    assert (config.ema_decay, config.optimizer.learning_rate) == (0.5, 0.007)
    file.write_text(terms + "settings: {nonsense: 1}\n")
    with pytest.raises(UsageError, match="nonsense"):
        distill_config(tree, {})


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("objectiv_weight: 1", "objectiv_weight; did you mean objective_weight"),
        ("terms: {kl: {kind: kl, temprature: 2}}", "terms.kl.temprature; did you mean temperature"),
        ("terms: {layer.1: {kind: kl}}", "a term cannot be called 'layer.1'"),
        ("terms: {'': {kind: kl}}", "a term cannot be called ''"),
        ("stages: {one: {}}", "there are no terms"),
        ("stages: {../evil: {objective_weight: 1}}", "a stage cannot be called '../evil'"),
        ("stages: {model: {objective_weight: 1}}", "a stage cannot be called 'model'"),
        ("terms: {kl: {kind: kl, temperature: 1.0e+300}}", "temperature is 1e"),
        ("targets: {num_beams: 2}", "there are no stages"),
        (f"terms: {{kl: {{kind: kl}}}}\n{STAGES}", "terms, .* are set in each stage"),
        (f"freeze: [embeddings]\n{STAGES}", "freeze are set in each stage"),
        (f"objective_weight: 0.5\n{STAGES}", "objective_weight and freeze are set in each stage"),
    ],
)
def test_bad_recipes_are_refused(teacher: Path, recipe: str, message: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(recipe)
    with pytest.raises(UsageError, match=message):
        distill(
            tmp_path / "run",
            settings(teacher, "distilbert", distillation={"recipe": str(file)}),
        )
    assert not (tmp_path / "run").exists()


def test_the_configuration_of_a_run_keeps_its_student_and_recipe(
    teacher: Path, tmp_path: Path
) -> None:
    tree = settings(teacher, "distilbert", max_steps=2, eval_steps=2)
    run = distill(tmp_path / "run", tree)
    resolved = yaml.safe_load((run / "config.yaml").read_text())
    assert distill_config(resolved, {"seed": 3}).seed == 3
    for changes, key in (
        ({"student": {"name": "electra"}}, "student"),
        ({"distillation": {"recipe": "minilm"}}, "recipe"),
        ({"distillation": {"align": "text"}}, "align"),
    ):
        with pytest.raises(UsageError, match=f"{key} cannot be changed"):
            distill_config(resolved, changes)
    student: Any = {"student": {"name": "distilbert"}}
    with pytest.raises(UsageError, match="with its own student"):
        DistillRun({}, DistContext.initialize("cpu"), overrides=student).resume(run)


def test_compiled_runs_have_the_batches_of_others(teacher: Path, tmp_path: Path) -> None:
    """A term counts all positions, of which shapes that never change would add some."""
    batches = []
    for compiled in (False, True):
        setup = make_setup(settings(teacher, "distilbert", compile=compiled))
        prepared = prepare_run(setup, tmp_path, DistContext.initialize("cpu"))
        batches.append(prepared.train_dataloader.batches(0)[0])
        prepared.train_dataloader.close()
    assert batches[0].counts == batches[1].counts
    for name, tensor in batches[0].tensors.items():
        assert torch.equal(tensor, batches[1].tensors[name]), name
