"""A distillation loss of a plugin: one file with a setting and labels, from the page of plugins."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import yaml

from tests.cli.imports import modules_after
from tests.distillation.making import assert_resumes_exactly, distill, narrow, views
from tests.finetuning.making import SETTINGS, finetune, labelled
from tests.finetuning.making import settings as finetune_settings
from tests.once import written_once
from tests.plugins.laying import find_again
from tests.training.runs import records
from tests.warm import check_plugin, zoo
from tools.settings import distillation_loss_rows
from zoo.distillation.discriminator import Discriminator
from zoo.distillation.losses import DISTILLATION_LOSSES
from zoo.distillation.losses.base import ModelShape
from zoo.distillation.make_objective import build_losses
from zoo.distillation.outputs import ModelOutput
from zoo.distillation.recipes import any_recipe, recipe_values
from zoo.distillation.term_tables import parse_term
from zoo.errors import PluginError, UsageError
from zoo.nn.capture import Captured
from zoo.objectives.base import Outputs, TrainingObjective
from zoo.objectives.masked import MaskedLanguageModelling
from zoo.training.config.overrides import deep_merge

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
IMPORTS = """
from typing import TYPE_CHECKING, ClassVar

from zoo.distillation.losses.base import LogitRows, LogitsLoss, LogitsSettings, LossSettings
from zoo.families.tasks import LabelType

if TYPE_CHECKING:
    from torch import Tensor


"""
ENTRY_POINTS = """
[zoo.api1]
mine = zoo_mine

[zoo.api1.distillation_losses]
mine = zoo_mine.loss:Mine
"""
RECIPE = """
objective_weight: 0.5
terms:
  careful: {kind: mine, weight: 2.0, wrong_weight: 0.25}
"""


def lay_out(folder: Path, entry_points: str = ENTRY_POINTS, **modules: str) -> Path:
    """Write the distribution with the loss of the page; return its directory."""
    (source,) = re.findall(r"```python\n(class MineSettings.*?)```", PAGE.read_text(), re.DOTALL)
    info = folder / "zoo_mine-1.2.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: zoo-mine\nVersion: 1.2\n")
    (info / "entry_points.txt").write_text(entry_points)
    (folder / "zoo_mine").mkdir()
    for name, text in {"__init__": "", "loss": IMPORTS + source, **modules}.items():
        (folder / "zoo_mine" / f"{name}.py").write_text(text)
    return folder


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The plugin, which this process and its commands find."""
    folder = lay_out(tmp_path / "site")
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(folder)
    find_again()
    yield folder
    monkeypatch.undo()
    find_again()


@pytest.fixture(scope="module")
def teacher() -> Path:
    def write(folder: Path) -> None:
        table = labelled(folder / "t.jsonl")
        finetune(folder / "run", finetune_settings("bert", table, max_steps=4, max_seq_len=24))

    return written_once("teacher-of-a-plugins-loss", write) / "run/model"


@pytest.fixture
def tree(teacher: Path, tmp_path: Path) -> dict[str, Any]:
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(RECIPE)
    values = {
        "task": "text-classification",
        "data": {"train": [str(labelled(tmp_path / "t.jsonl"))]},
        "distillation": {"teachers": [str(teacher)], "recipe": str(recipe)},
        "student": narrow("distilbert"),
    }
    return deep_merge(SETTINGS, values)


@pytest.mark.usefixtures("site")
def test_the_loss_is_its_formula_with_the_labels_of_the_data(
    tree: dict[str, Any], tmp_path: Path
) -> None:
    objective, outputs, batch = views(tree, tmp_path / "run")
    sums = objective.loss(outputs, batch.tensors).sums
    student, teacher = (
        view.outputs.logits["text-classification"].detach().double().numpy()
        for view in (outputs.student, *outputs.teachers)
    )
    labels = batch.tensors["labels"].numpy()
    errors = ((student - teacher) ** 2).sum(-1)
    weights = np.where(teacher.argmax(-1) == labels, 1.0, 0.25)
    assert 0 < (weights == 1).sum() < len(weights)
    assert sums["careful"].item() == pytest.approx((weights * errors).sum(), rel=1e-5)
    assert batch.counts["careful"] == len(labels)


@pytest.mark.long
@pytest.mark.usefixtures("site")
def test_a_run_resumes_exactly_and_records_the_setting(
    tree: dict[str, Any], tmp_path: Path
) -> None:
    run = assert_resumes_exactly(tmp_path, tree, 6)
    assert "careful" in records(run, "validation")[-1]["losses"]
    config = yaml.safe_load((run / "config.yaml").read_text())
    logits = {"reduction": "rows", "positions": "predicted", "logits_of": None}
    expected = {"kind": "mine", "weight": 2.0, **logits, "wrong_weight": 0.25}
    assert config["distillation"]["terms"] == {"careful": expected}


@pytest.mark.long
@pytest.mark.usefixtures("site")
def test_a_cache_has_the_same_results(tree: dict[str, Any], tmp_path: Path) -> None:
    cached = {"distillation": {"cache_teacher": str(tmp_path / "cache")}}
    runs = [
        distill(tmp_path / name, deep_merge(tree, changes))
        for name, changes in (("plain", {}), ("first", cached), ("second", cached))
    ]
    losses = [[record["losses"]["careful"] for record in records(run)] for run in runs]
    assert losses[1] == losses[2] == pytest.approx(losses[0], rel=1e-6)
    header = json.loads((tmp_path / "cache" / "outputs-0.json").read_text())["header"]
    assert header["outputs"] == ["logits:text-classification:predicted"]


def test_the_command_and_its_messages(site: Path, tree: dict[str, Any], tmp_path: Path) -> None:
    data = tree["data"]["train"][0]
    names = ("--teacher", tree["distillation"]["teachers"][0], "--student", "distilbert")
    task = ("--task", "text-classification", "--train", data)
    recipe = ("--recipe", tree["distillation"]["recipe"])
    words = ("distill", *names, *task, *recipe, "--no-score", "--device", "cpu")
    environment: dict[str, Any] = {"PYTHONPATH": str(site), "ZOO_HOME": str(tmp_path / "home")}
    done = zoo(*words, "--max-steps", 2, "-o", tmp_path / "run", **environment)
    assert done.returncode == 0, done.stderr
    for setting, message in (
        ("wrong_weight=2", "distillation.terms.careful: wrong_weight is 2.0, not from 0 to 1"),
        ("wrong_wieght=0", "did you mean wrong_weight?"),
        ("temperature=2", "temperature is 2, which mine does not read"),
        ("kind=min", "did you mean mine?"),
    ):
        change = ("--set", f"distillation.terms.careful.{setting}")
        done = zoo(*words, *change, "-o", tmp_path / "other", **environment)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
        assert message in done.stderr and not (tmp_path / "other").exists()
    text = zoo("distill", "--help", **environment).stdout
    assert re.search(r"^  kl +divergence of softened probabilities$", text, re.MULTILINE)
    assert re.search(
        r"^  mine +squared differences of logits, weighted by labels$", text, re.MULTILINE
    )
    done = zoo("plugins", "check", "mine", "--json", **environment)
    (report,) = json.loads(done.stdout)["plugins"]
    assert (done.returncode, report["health"]) == (0, "ok"), report
    assert report["provides"] == {"distillation_losses": ["mine"]}


@pytest.mark.long
@pytest.mark.usefixtures("site")
def test_the_page_of_settings_has_it() -> None:
    rows = {row.name: row for row in distillation_loss_rows()}
    row = rows["distillation.terms.NAME.wrong_weight"]
    assert (row.kind, row.default) == ("number", "`0.5`")
    assert row.meaning.endswith("does not predict; of `mine`")
    kind = rows["distillation.terms.NAME.kind"].meaning
    assert "`mine` (squared differences of logits, weighted by labels)" in kind


@pytest.mark.usefixtures("site")
def test_a_recipe_to_edit_has_its_settings(tree: dict[str, Any]) -> None:
    values = recipe_values(any_recipe(tree["distillation"]["recipe"]))
    assert values["terms"] == {"careful": {"kind": "mine", "weight": 2.0, "wrong_weight": 0.25}}


def test_a_recipe_is_printed_without_torch(
    site: Path, tree: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(site))
    recipe = tree["distillation"]["recipe"]
    loaded = modules_after("distill", "--recipe", recipe, "--print-recipe")
    assert "zoo_mine.loss" in loaded and "torch" not in loaded


@pytest.mark.usefixtures("site")
def test_logits_without_labels_are_refused() -> None:
    masked = MaskedLanguageModelling(None, None, 8)  # type: ignore[arg-type]
    detection = Discriminator(SimpleNamespace(config=None))  # type: ignore[arg-type]
    shape = ModelShape(layers=2, hidden_size=8, heads=2, classes=0, causal=False)
    cases: list[tuple[TrainingObjective, dict[str, str], str]] = [
        (masked, {"positions": "all"}, "mine reads labels, which only predicted tokens have"),
        (detection, {"logits_of": detection.name}, "the logits of replaced-token-detection have"),
    ]
    for objective, settings, message in cases:
        term = parse_term("mine", {"kind": "mine", **settings}, "terms.mine")
        with pytest.raises(UsageError, match=message):
            term.loss.build(term, objective, shape, [shape])
    (loss,) = build_losses({"mine": {"kind": "mine"}}, masked, shape, [shape])
    assert loss.term_name == "mine"
    with pytest.raises(
        UsageError, match=r"terms\.mine: the loss mine reads labels, and replaced-token-det"
    ):
        build_losses({"mine": {"kind": "mine"}}, detection, shape, [shape])


@pytest.mark.long
def test_a_misspelt_setting_in_a_recipe_of_a_plugin_is_found(tmp_path: Path) -> None:
    package = """
from zoo.families.distillation import DistillationRecipe
from zoo.plugins.hookspecs import hookimpl

@hookimpl
def zoo_recipes():
    return (DistillationRecipe(name="hot", terms={"kl": {"kind": "kl", "temprature": 2.0}}),)
"""
    site = lay_out(tmp_path / "site", __init__=package)
    (problem,) = check_plugin("mine", tmp_path, PYTHONPATH=str(site))
    assert problem.startswith("distillation recipe hot: there is no setting terms.kl.temprature")


@pytest.mark.by_default("argmax(-1)-argmx(-1)")
@pytest.mark.parametrize(
    ("text", "replacement", "problem"),
    [
        ("argmax(-1)", "argmx(-1)", "AttributeError: 'Tensor' object has no attribute 'argmx'"),
        ("errors).sum()", "errors)", "distance returns no scalar tensor with a gradient"),
        ('("classes",)', "()", "TypeError: a loss that reads labels declares them as label_types"),
    ],
)
def test_a_mistake_in_the_sum_is_found(
    text: str, replacement: str, problem: str, tmp_path: Path
) -> None:
    site = lay_out(tmp_path / "site")
    file = site / "zoo_mine" / "loss.py"
    source = file.read_text()
    assert source.count(text) == 1
    file.write_text(source.replace(text, replacement))
    (message,) = check_plugin("mine", tmp_path, PYTHONPATH=str(site))
    assert message.startswith(f"distillation loss mine: {problem}")


def test_a_class_of_another_kind_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    monkeypatch.syspath_prepend(
        lay_out(tmp_path / "site", ENTRY_POINTS.replace("loss:Mine", "loss:MineSettings"))
    )
    find_again()
    with pytest.raises(PluginError, match="loss:MineSettings is not a subclass of Distillation"):
        DISTILLATION_LOSSES.find("mine")
    find_again()


def test_labels_are_those_of_the_rows() -> None:
    """Of tokens, those that have logits; of rows, all."""
    objective: Any = SimpleNamespace(label_tensors={"words": "labels"})

    def labels(tensor: torch.Tensor) -> list[Any]:
        output = ModelOutput(None, objective, Outputs({}), Captured(), {"labels": tensor})
        values: list[Any] = output.labels("words").tolist()
        return values

    assert labels(torch.tensor([[1, -100, 2], [-100, 0, -100]])) == [1, 2, 0]
    assert labels(torch.tensor([1, -100])) == [1, -100]
    assert labels(torch.tensor([[0.0, 1.0]])) == [[0.0, 1.0]]
