"""Settings that follow from a teacher, a student and a recipe."""

import math
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.distillation.making import distill, make_setup, pretrained, settings
from tests.training.runs import records
from zoo.checkpoint import CONFIG, MANIFEST, Manifest, encode_manifest, load_checkpoint
from zoo.distillation.recipes import all_recipes, any_recipe, recipe_values
from zoo.distillation.runs import DistillRun
from zoo.distillation.term_tables import checked_recipe
from zoo.errors import UsageError
from zoo.families.distillation import DistillationRecipe
from zoo.io.json import encode_json, read_json, read_json_record
from zoo.io.yaml import parse_yaml
from zoo.plugins import all_families, get_family
from zoo.training.config.schema import validate_config
from zoo.training.setup import PretrainSetup

SHAPE = ("hidden_size", "num_layers", "num_heads", "intermediate_size", "max_positions")


@pytest.fixture(scope="module")
def teacher() -> Path:
    return pretrained("bert")


@pytest.fixture(scope="module")
def base_teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a checkpoint with the configuration of BERT-base, of which no weights are read."""
    path = tmp_path_factory.mktemp("base") / "model"
    shutil.copytree(pretrained("bert"), path)
    model = read_json(path / CONFIG)
    shape = msgspec.to_builtins(get_family("bert").sizes()["base"])
    model["config"] |= {name: shape[name] for name in SHAPE}
    (path / CONFIG).write_bytes(encode_json(model))
    manifest = read_json_record(path / MANIFEST, Manifest)
    files = {name: file for name, file in manifest.files.items() if name != CONFIG}
    changed = msgspec.structs.replace(manifest, files=files)
    (path / MANIFEST).write_bytes(encode_manifest(changed))
    return path


@pytest.mark.parametrize(
    ("recipe", "rows", "seq_len", "rate", "steps", "warmup"),
    [  # 3,000,000 tokens; steps and warm-up as each paper has them, or 3 epochs of which 5 %
        ("distilbert", 250, 512, 5e-4, 71, 4),
        ("logits", 250, 512, 1e-4, 71, 4),
        ("tinybert", 256, 128, 5e-5, 275, 28),
        ("minilm", 1024, 512, 5e-4, 400_000, 4000),
        ("minilmv2", 256, 512, 6e-4, 400_000, 4000),
    ],
)
def test_the_schedule_of_a_published_size_is_that_of_the_paper(
    base_teacher: Path, recipe: str, rows: int, seq_len: int, rate: float, steps: int, warmup: int
) -> None:
    tree = {"distillation": {"teachers": [str(base_teacher)], "recipe": recipe}}
    config: Any = DistillRun.build_config({**tree, "student": "distilbert"}, {})
    resolved = config.resolved(3_000_000)
    assert (resolved.global_batch_size, resolved.seq_len) == (rows, seq_len)
    assert resolved.optimizer.learning_rate == rate
    assert (resolved.max_steps, resolved.lr_scheduler.warmup_steps) == (steps, warmup)
    assert resolved.micro_batch_tokens == 4096 and resolved.seq_len_warmup is None


BY_NAME = {
    recipe.name: recipe for f in all_families().values() for recipe in all_recipes(f).values()
}


@pytest.mark.parametrize("name", BY_NAME)
def test_a_built_in_recipe_as_a_file_is_the_same(name: str) -> None:
    values = parse_yaml(yaml.safe_dump(recipe_values(any_recipe(name))), name)
    expected = msgspec.structs.replace(checked_recipe(BY_NAME[name]), name="")
    assert checked_recipe(validate_config(values, DistillationRecipe)) == expected


@pytest.mark.parametrize("name", ["distilbert", "logits", "minilmv2", "tinybert"])
def test_a_run_with_the_file_of_a_recipe_is_that_of_its_name(
    base_teacher: Path, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump(recipe_values(any_recipe(name))))
    configs: list[Any] = []
    for recipe in (name, str(file)):
        distillation = {"teachers": [str(base_teacher)], "recipe": recipe}
        tree = {"distillation": distillation, "student": "distilbert"}
        configs.append(DistillRun.build_config(tree, {}))
    of_name = msgspec.structs.replace(configs[0].distillation, recipe=str(file))
    assert configs[1] == msgspec.structs.replace(configs[0], distillation=of_name)


def test_a_recipe_of_text_has_the_schedule_of_the_task_on_labelled_data(base_teacher: Path) -> None:
    tree = {"task": "text-classification", "data": {"train": ["t.tsv"]}, "student": "bert"}
    distillation = {"teachers": [str(base_teacher)], "recipe": "minilmv2"}
    config: Any = DistillRun.build_config({**tree, "distillation": distillation}, {})
    assert (config.max_steps, config.num_train_epochs) == (0, 3)
    assert config.lr_scheduler.warmup_steps == 0


def test_epochs_are_steps_of_the_corpus(teacher: Path, tmp_path: Path) -> None:
    tree = settings(teacher, "distilbert", num_train_epochs=0.125, warmup_ratio=0.25)
    del tree["max_steps"], tree["lr_scheduler"]
    setup = make_setup(tree)
    assert isinstance(setup.base, PretrainSetup)
    epoch = setup.base.corpus.record.splits["train"].tokens / 256
    steps = math.ceil(epoch / 8)
    values = yaml.safe_load((distill(tmp_path / "run", tree) / "config.yaml").read_text())
    assert (values["max_steps"], values["num_train_epochs"]) == (steps, None)
    assert values["lr_scheduler"]["warmup_steps"] == math.ceil(steps / 4)
    assert len(records(tmp_path / "run")) == steps


def test_numbers_of_steps_replace_those_of_epochs(base_teacher: Path) -> None:
    tree = {"distillation": {"teachers": [str(base_teacher)]}, "student": "distilbert"}
    steps = {"max_steps": 7, "lr_scheduler": {"warmup_steps": 2}}
    shares = {"num_train_epochs": 2.0, "warmup_ratio": 0.5}
    for values, overrides in (({**tree, **shares}, steps), ({**tree, **steps}, {})):
        config: Any = DistillRun.build_config(values, overrides)
        resolved = config.resolved(10**6)
        assert (resolved.max_steps, resolved.lr_scheduler.warmup_steps) == (7, 2)
    config = DistillRun.build_config({**tree, **steps}, shares)
    resolved = config.resolved(10**6)
    assert (resolved.max_steps, resolved.lr_scheduler.warmup_steps) == (16, 8)


def test_positions_are_of_text(base_teacher: Path) -> None:
    """The recipe distilbert compares all tokens of text, and the outputs of labelled data."""
    tree = {"task": "text-classification", "data": {"train": ["t.tsv"]}, "student": "distilbert"}
    distillation = {"teachers": [str(base_teacher)], "recipe": "distilbert"}
    config: Any = DistillRun.build_config({**tree, "distillation": distillation}, {})
    assert config.distillation.terms["kl"]["positions"] == "predicted"


def test_a_term_of_another_kind_keeps_its_weight_alone(teacher: Path) -> None:
    terms = {"kl": {"kind": "logits-mse", "reduction": "rows"}}
    tree = settings(teacher, "distilbert", distillation={"terms": terms})
    (_, term), *_ = make_setup(tree).config.distillation.terms.items()
    defaults = {"reduction": "rows", "positions": "predicted", "logits_of": None}
    assert term == {"kind": "logits-mse", "weight": 5, **defaults}


def relation_heads(tree: dict[str, Any]) -> int | None:
    config: Any = DistillRun.build_config(tree, {})
    heads: int | None = config.distillation.terms["relations"]["relation_heads"]
    return heads


def test_relation_heads_of_a_recipe_divide_the_widths_of_both_models(
    teacher: Path, tmp_path: Path
) -> None:
    """48, of the paper, divides neither 128, the width of size tiny, nor 80."""
    recipe = {"recipe": "minilmv2"}
    tree = settings(teacher, "tiny", distillation=recipe)
    assert relation_heads(tree) == 32  # the width of both
    make_setup(tree)
    narrow = {"hidden_size": 80, "num_heads": 5}
    assert relation_heads(settings(teacher, "bert", distillation=recipe, student=narrow)) == 16
    file = tmp_path / "mine.yaml"
    file.write_text(yaml.safe_dump({"terms": {"relations": {"kind": "relations"}}}))
    assert relation_heads(settings(teacher, "tiny", distillation={"recipe": str(file)})) is None


@pytest.mark.parametrize(
    ("changes", "student", "message"),
    [
        ({"relation_heads": 48}, {}, "is 48, .* width 32; --set .* takes a divisor of 32"),
        ({}, {"num_heads": 4}, "has 4, the teacher 2; --set .*=N splits both"),
    ],
)
def test_relation_heads_of_a_user_are_named(
    teacher: Path, changes: Any, student: Any, message: str
) -> None:
    terms = {"values": {"kind": "relations", **changes}}
    tree = settings(teacher, "bert", student=student, distillation={"terms": terms})
    with pytest.raises(UsageError, match=message) as error:
        make_setup(tree)
    assert "--set distillation.terms.values.relation_heads=N" in error.value.hint


@pytest.mark.by_default("bert")
@pytest.mark.parametrize(
    ("student", "new_modules"),
    [("bert", []), ("electra", ["head"])],  # a discriminator has no head that predicts tokens
)
def test_a_pretrained_student_takes_the_objective_that_both_models_support(
    student: str, new_modules: list[str], tmp_path: Path
) -> None:
    """The families' own are masked-lm+next-sentence and replaced-token-detection."""
    teacher = pretrained("bert", objective="masked-lm")
    changes = {"max_steps": 2, "save_steps": 2, "init_from": {"new_modules": new_modules}}
    tree = settings(teacher, str(pretrained(student)), **changes)
    run = distill(tmp_path / "run", tree)
    assert yaml.safe_load((run / "config.yaml").read_text())["objective"] == "masked-lm"
    assert load_checkpoint(run / "model").head_name == "masked-lm"
