"""``zoo models``: the registry and the store, searched, with sizes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from tests.checkpoints import Make
from zoo.cli import cli
from zoo.errors import UsageError


def models(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["models", *arguments], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_words_and_a_family_select() -> None:
    everything = json.loads(models("--json"))["registry"]
    squad = json.loads(models("SQuAD", "--family", "bert", "--json"))["registry"]
    expected = [
        name
        for name, row in everything.items()
        if row["family"] == "bert" and "squad" in f"{name} {row['repo']}".lower()
    ]
    assert [*squad] == expected and len(squad) > 1
    unchecked = models("unchecked", "snowflake").splitlines()
    rows = [
        name
        for name, row in everything.items()
        if row["unchecked"] and "snowflake" in f"{name} {row['repo']}".lower()
    ]
    assert len(unchecked) == 1 + len(rows) > 3 and "apache-2.0, unchecked" in unchecked[1]
    assert models("no-such-model") == "no model matches\n"
    with pytest.raises(UsageError, match="did you mean bert"):
        CliRunner().invoke(cli, ["models", "--family", "brt"], catch_exceptions=False)


def test_models_of_the_store_have_parameters_and_size(
    hub_checkpoint: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "home"))
    model = tmp_path / "home" / "models" / "mine"
    source = str(hub_checkpoint("BertForMaskedLM"))
    CliRunner().invoke(cli, ["convert", source, "-o", str(model)], catch_exceptions=False)
    (row,) = models("mine").splitlines()[1:]
    size = sum(path.stat().st_size for path in model.iterdir())
    assert row.split()[:3] == ["mine", "bert", "masked-lm"]
    number, unit = row.split()[-2:]
    assert unit == "kB" and float(number) == pytest.approx(size / 1000, rel=0.005)
    assert json.loads(models("mine", "--json"))["stored"] == ["mine"]
    (model / "zoo.json").write_text("{}")
    assert "mine" in models()
