"""Declarations of plugins that are refused, and rules that do not fit its model."""

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.checkpoints import SMALL, VOCABULARY
from tests.plugins.laying import FAMILY, lay_out
from tests.warm import zoo
from zoo.conformance.declaration import SECONDS, check_declaration
from zoo.errors import VerificationError

IN_HOOK = FAMILY.replace("    return [", "    import torch.version\n    return [")

IN_OTHER_HOOK = "def {}():\n    import torch.version\n    return []\n"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import torch.version\n", "zoo_mine imports torch when it is declared"),
        pytest.param(IN_HOOK, "zoo_mine imports torch when it is declared", marks=pytest.mark.long),
        pytest.param(
            IN_OTHER_HOOK.format("zoo_loggers"),
            "zoo_mine imports torch when it is declared",
            marks=pytest.mark.long,
        ),
        pytest.param(
            IN_OTHER_HOOK.format("zoo_checkpoints"),
            "zoo_mine imports torch when it is declared",
            marks=pytest.mark.long,
        ),
        ("import os\nos.system('echo noise')\n", "zoo_mine prints 'noise' when it is declared"),
        ("import zoo_other\n", "zoo_mine imports another plugin, zoo_other"),
        pytest.param(
            "import time\ntime.sleep(2.1)\n",
            "zoo_mine takes 2.. s to import",
            marks=pytest.mark.long,
        ),
        ("import nowhere\n", "cannot be imported: ModuleNotFoundError: No module named 'nowhere'"),
    ],
)
def test_declaration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, message: str
) -> None:
    site = lay_out(tmp_path / "site", {}, first=source)
    (site / "zoo_other.py").write_text("")
    monkeypatch.syspath_prepend(site)
    other = SimpleNamespace(module="zoo_other", built_in=False)
    plugins = "zoo.conformance.declaration.entry_points_by_name"
    monkeypatch.setattr(plugins, lambda: {"other": [other]})
    with pytest.raises(VerificationError, match=message):
        check_declaration("zoo_mine")


def test_built_in_declarations() -> None:
    for module in ("zoo_bert", "zoo_converters", "zoo.training.logging"):
        assert 0 < check_declaration(module) <= SECONDS


MISTYPED = """
import dataclasses
from zoo_bert.weights import weights as of_bert

def weights(config, head):
    ours = of_bert(config, head)
    rules = [
        dataclasses.replace(rule, target=rule.target.replace("ffn.up", "ffn.upp"))
        for rule in ours.rules
    ]
    return dataclasses.replace(ours, rules=rules)
"""


def test_conversion_finds_a_mistyped_target(tmp_path: Path) -> None:
    """The rules match the file; the model has no such tensors."""
    import torch
    import transformers

    torch.manual_seed(0)
    model = transformers.BertModel(transformers.BertConfig(**SMALL))
    model.save_pretrained(tmp_path / "hub")
    (tmp_path / "hub" / "vocab.txt").write_text("\n".join(VOCABULARY) + "\n")
    config = json.loads((tmp_path / "hub" / "config.json").read_text())
    (tmp_path / "hub" / "config.json").write_text(json.dumps({**config, "model_type": "mine"}))
    site = lay_out(tmp_path / "site", {"weights.py": MISTYPED})
    done = zoo("convert", tmp_path / "hub", "-o", tmp_path / "out", PYTHONPATH=str(site))
    assert (done.returncode, done.stderr.count("\n")) == (5, 1), done.stderr
    assert "plugin mine (from zoo-mine 1.2) is broken: the rules of mine with" in done.stderr
    assert "layers.0.ffn.up.bias" in done.stderr and "layers.0.ffn.upp.bias" in done.stderr
    assert not (tmp_path / "out").exists()
