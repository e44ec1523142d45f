"""Terms of recipes: tables that their losses check, also those that older versions recorded."""

import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from tests.distillation.making import distill, pretrained, settings
from tests.training.runs import assert_same, cut
from zoo.distillation.recipes import SHARED, any_recipe, with_stage_changes
from zoo.distillation.runs import DistillRun
from zoo.distillation.term_tables import checked_recipe, checked_terms, parse_term, term_table
from zoo.errors import UsageError
from zoo.families.distillation import DistillationRecipe, Stage
from zoo.io.json import encode_json
from zoo.plugins import all_families
from zoo.training.distributed.context import DistContext
from zoo.training.logging.report import REPORT
from zoo.training.state.run_manifest import MANIFEST, read_manifest

# The terms in the config.yaml of a run of an older version, which recorded the settings of all
# losses for each term: `zoo distill --recipe distilbert`, before losses had settings of their own.
RECORDED = """
kl:
  kind: kl
  weight: 5.0
  temperature: 2.0
  scale_by_temperature: true
  reduction: rows
  positions: all
  logits_of: null
  layers: last
  embeddings: false
  relations:
  - queries
  - keys
  - values
  relation_heads: null
  projection: auto
cosine:
  kind: hidden-cosine
  weight: 1.0
  temperature: 1.0
  scale_by_temperature: true
  reduction: rows
  positions: predicted
  logits_of: null
  layers: last
  embeddings: false
  relations:
  - queries
  - keys
  - values
  relation_heads: null
  projection: auto
"""
NOW = {
    "kl": {
        "kind": "kl",
        "weight": 5.0,
        "reduction": "rows",
        "positions": "all",
        "logits_of": None,
        "temperature": 2.0,
        "scale_by_temperature": True,
    },
    "cosine": {
        "kind": "hidden-cosine",
        "weight": 1.0,
        "layers": "last",
        "embeddings": False,
        "projection": "auto",
    },
}


def all_built_in() -> dict[str, DistillationRecipe]:
    families = all_families().values()
    recipes = [*SHARED, *(recipe for family in families for recipe in family.distillation())]
    return {recipe.name: recipe for recipe in recipes}


@pytest.mark.parametrize("name", all_built_in())
def test_the_terms_of_a_built_in_recipe_have_settings_of_their_losses(name: str) -> None:
    recipe = all_built_in()[name]
    assert checked_recipe(recipe).terms.keys() == recipe.terms.keys()


def test_terms_that_an_older_version_recorded_are_read() -> None:
    recorded = yaml.safe_load(RECORDED)
    assert checked_terms(recorded, recorded=True) == NOW
    with pytest.raises(UsageError, match=r"terms\.kl\.layers is 'last', which kl does not read"):
        checked_terms(recorded)
    recorded["cosine"]["temperature"] = 2.0
    with pytest.raises(UsageError, match=r"terms\.cosine\.temperature is 2\.0") as error:
        checked_terms(recorded, recorded=True)
    assert error.value.hint == "leave it out; it is a setting of kl"


@pytest.mark.long
def test_a_run_of_an_older_version_resumes(tmp_path: Path) -> None:
    tree = settings(pretrained("bert"), "distilbert", keep_optimizer=True)
    run = distill(tmp_path / "run", tree)
    config = yaml.safe_load((run / "config.yaml").read_text())
    assert config["distillation"]["terms"] == NOW
    config["distillation"]["terms"] = yaml.safe_load(RECORDED)
    (run / "config.yaml").write_text(yaml.safe_dump(config, sort_keys=False))
    manifest = msgspec.structs.replace(read_manifest(run), settings=config, files={}, digest="")
    (run / MANIFEST).write_bytes(encode_json(msgspec.to_builtins(manifest)))
    copy = tmp_path / "copy"
    shutil.copytree(run, copy)
    cut(copy, 6)
    DistillRun({}, DistContext.initialize("cpu")).resume(copy)
    # The states of checkpoints have a digest of the manifest, and the report has the settings.
    assert_same(run, copy, ignore=["checkpoints/*/state.json", REPORT])
    again = DistillRun.build_config(config, {})
    assert again.distillation.terms == NOW


def test_the_stages_of_an_older_version_are_compared_by_their_meaning() -> None:
    recorded = Stage(terms=yaml.safe_load(RECORDED))
    declared = Stage(
        terms={
            "kl": {"kind": "kl", "weight": 5.0, "temperature": 2, "positions": "all"},
            "cosine": {"kind": "hidden-cosine"},
        }
    )
    recipes = [DistillationRecipe(stages={"one": stage}) for stage in (recorded, declared)]
    assert checked_recipe(recipes[0], recorded=True) == checked_recipe(recipes[1])


@pytest.mark.parametrize(
    ("table", "message", "hint"),
    [
        ({"kind": "kl", "temprature": 2}, "no setting terms.x.temprature", "did you mean temper"),
        ({"kind": "kl", "alpha": 2}, "no setting terms.x.alpha", "kl has kind, weight, reduction"),
        ({"kind": "kl", "layers": "last"}, "x.layers is 'last', which kl does not", "relations"),
        ({"kind": "kl", "weight": -1}, "terms.x: weight is -1.0, not 0 or more and finite", ""),
        ({"kind": "kl", "weight": "two"}, "terms.x.weight: Expected `float`, got `str`", ""),
        ({"kind": "kll"}, "terms.x.kind is 'kll', which is not a distillation loss", "mean kl"),
        ({"kind": ["kl"]}, "terms.x.kind is ['kl'], which is not a distillation loss", "there are"),
        ({"kind": "relations", "relations": ["key"]}, "terms.x.relations[0]: Invalid enum", ""),
        ({"kind": "relations", "relation_heads": 0}, "terms.x: relation_heads is 0", ""),
        ({"weight": 1}, "terms.x has no kind", ""),
    ],
)
def test_a_wrong_term_is_one_line(table: dict[str, Any], message: str, hint: str) -> None:
    with pytest.raises(UsageError) as error:
        parse_term("x", table, "terms.x")
    assert message in error.value.what and "\n" not in str(error.value)
    assert hint in error.value.hint


def test_settings_with_their_defaults_are_left_out_of_a_recipe_to_edit() -> None:
    table = {"kind": "hidden-mse", "weight": 1, "layers": [[0, 1]], "projection": "auto"}
    term = parse_term("x", table, "terms.x")
    assert term_table(term, defaults=False) == {"kind": "hidden-mse", "layers": [[0, 1]]}
    assert parse_term("x", term_table(term), "terms.x") == term


def test_a_change_of_kind_in_a_stage_keeps_only_the_weight() -> None:
    changes = {"prediction": {"terms": {"kl": {"kind": "logits-mse"}}}}
    recipe = with_stage_changes(any_recipe("tinybert-task"), changes)
    term = recipe.stages["prediction"].terms["kl"]
    assert (term["kind"], term["weight"], term["reduction"]) == ("logits-mse", 1.0, "rows")
