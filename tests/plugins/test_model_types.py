"""The plugin of a model type is found by its name or its declaration, and no other is imported."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import transformers

from tests.plugins.laying import declare_model_types
from tests.plugins.making import HEALTHY, distribution, zoo
from zoo.plugins.registry import families_of

ROOT = Path(__file__).parents[2]
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
IMPORTED = """
import sys
from zoo.plugins import family_of_model_type
family = family_of_model_type(sys.argv[1])
print(family.name, *sorted(name for name in sys.modules if name in sys.argv[2:]))
"""


def test_built_in_plugins_declare_the_model_types_that_are_not_their_names() -> None:
    families = [family for name in DECLARED["zoo.api1"] for family in families_of(name)]
    assert DECLARED["zoo.api1.model_types"] == {
        model_type: type(family).__module__
        for family in families
        for model_type in family.model_types
        if model_type not in DECLARED["zoo.api1"]
    }


def lay_out_current_metadata(folder: Path) -> None:
    """Write the metadata that an installation of this tree would have, which precede others."""
    info = folder / "plm_zoo-99.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: plm-zoo\nVersion: 99\n")
    groups = [
        f"[{group}]\n" + "".join(f"{name} = {value}\n" for name, value in entries.items())
        for group, entries in DECLARED.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(groups))


@pytest.mark.by_default("bert", "new", "theirs")
@pytest.mark.parametrize("model_type", ["bert", *DECLARED["zoo.api1.model_types"], "theirs"])
def test_model_type_imports_the_plugin_that_declares_it_alone(
    tmp_path: Path, model_type: str
) -> None:
    """The third party's plugin has another name than its model type, and derives from BERT."""
    lay_out_current_metadata(tmp_path)
    source = HEALTHY.format(name="theirs")
    distribution(tmp_path, "zoo-mine", "mine", "zoo_mine", source)
    distribution(tmp_path, "zoo-sad", "sad", "zoo_sad", "1 / 0\n")
    declare_model_types(tmp_path, "zoo_mine", "theirs")
    modules = [*DECLARED["zoo.api1"].values(), "zoo_mine", "zoo_sad"]
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED, model_type, *modules],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])},
        capture_output=True,
        text=True,
        check=False,
    )
    expected = {"bert": "zoo_bert", "theirs": "zoo_mine", **DECLARED["zoo.api1.model_types"]}
    family, *imported = done.stdout.split()
    assert {*imported} - {"zoo_bert"} == {expected[model_type]} - {"zoo_bert"}, done.stderr
    assert ("zoo_bert" in imported) == (model_type in ("bert", "theirs"))
    assert done.stderr == "" and family in ("theirs", expected[model_type].removeprefix("zoo_"))


def test_model_type_of_two_plugins_is_an_error(tmp_path: Path) -> None:
    for name in ("one", "two"):
        source = HEALTHY.format(name=name).replace(f'("{name}",)', '("shared",)')
        distribution(tmp_path, f"zoo-{name}", name, f"zoo_{name}", source)
        declare_model_types(tmp_path, f"zoo_{name}", "shared")
    (tmp_path / "config.json").write_text('{"model_type": "shared"}')
    (tmp_path / "model.safetensors").write_bytes(b"")
    done = zoo(tmp_path, "convert", str(tmp_path), "--dry-run")
    assert done.returncode == 5
    assert "2 plugins provide the model type shared: one from zoo-one 1.2 and two" in done.stderr


def test_model_types_of_built_in_families_precede_others(tmp_path: Path) -> None:
    """The entry point has the name of the model type."""
    distribution(tmp_path, "zoo-gpt2", "gpt2", "zoo_gpt2", HEALTHY.format(name="gpt2"))
    source = tmp_path / "source"
    transformers.GPT2LMHeadModel(
        transformers.GPT2Config(vocab_size=50, n_positions=8, n_embd=8, n_layer=1, n_head=2)
    ).save_pretrained(source)
    done = zoo(tmp_path, "convert", str(source), "--dry-run", "--json")
    assert done.returncode == 0 and json.loads(done.stdout)["family"] == "gpt", done.stderr
    (line,) = done.stderr.splitlines()
    for word in ("model type gpt2: gpt from plm-zoo", "gpt2 from zoo-gpt2 1.2", "disable gpt2"):
        assert word in line
    strict = zoo(tmp_path, "convert", str(source), "--dry-run", ZOO_STRICT_PLUGINS="1")
    assert strict.returncode == 5
