"""Results of ``zoo eval`` in the manifest of a model, and in its model card."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from blake3 import blake3
from click.testing import CliRunner
from huggingface_hub import ModelCard

from tests.checkpoints import hub_checkpoint
from tests.inference.conftest import Small, small
from zoo.checkpoint import MANIFEST, load_checkpoint
from zoo.checkpoint.digests import check_digests
from zoo.cli.inference.eval import command
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.exporting.cache import _key
from zoo.hub.source import CheckpointDir
from zoo.io.paths import store

__all__ = ["hub_checkpoint", "small"]
NAMES = {"id2label": {"0": "no", "1": "yes"}, "label2id": {"no": 0, "yes": 1}}


@pytest.fixture
def model(small: Small) -> Path:
    return small("BertForSequenceClassification", hub=NAMES)[0].checkpoint.path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    rows = [f"{'abcdefghij'[k % 10]} b\t{('no', 'yes')[k % 2]}" for k in range(12)]
    path = tmp_path / "data" / "test.tsv"
    path.parent.mkdir()
    path.write_text("text\tlabel\n" + "\n".join(rows) + "\n")
    return path


def evaluate(
    reference: Path | str, table: Path | str, *options: str, stdin: bytes = b""
) -> dict[str, Any]:
    arguments = [str(reference), "--task", "text-classification", "--eval", str(table), "--json"]
    result = CliRunner().invoke(command, [*arguments, *options], stdin, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)  # type: ignore[no-any-return]


@pytest.mark.by_default(".csv", ".jsonl")
@pytest.mark.parametrize("ending", [".tsv", ".csv", ".jsonl"])
def test_standard_input_is_read_like_a_file(model: Path, table: Path, ending: str) -> None:
    rows = [line.split("\t") for line in table.read_text().splitlines()]
    text = "\n".join(f'"{a}",{b}' for a, b in rows) if ending == ".csv" else table.read_text()
    if ending == ".jsonl":
        text = "\n".join(json.dumps({"text": a, "label": b}) for a, b in rows[1:])
    expected = evaluate(model, table, "--no-record")
    piped = evaluate(model, "-", "--no-record", stdin=text.encode())
    assert piped["metrics"] == expected["metrics"] and piped["data"][0].endswith(ending)


def test_the_manifest_has_what_was_printed(model: Path, table: Path) -> None:
    key = _key(load_checkpoint(model), None)
    printed = evaluate(model, table, "--seed", "3")
    (record,) = load_checkpoint(model).manifest.evaluations
    assert (record.task, record.settings) == ("text-classification", {"seed": 3})
    assert record.metrics == printed["metrics"] and printed["recorded"] is True
    assert record.intervals["accuracy"] == tuple(printed["intervals"]["accuracy"])
    digest = record.data["test.tsv"]
    assert digest.blake3 == blake3(table.read_bytes()).hexdigest()
    assert "files are what was written" in check_digests(model)
    assert _key(load_checkpoint(model), None) == key, "a cached graph stays that of the model"

    evaluate(model, table, "--seed", "3")
    assert len(load_checkpoint(model).manifest.evaluations) == 1, "the same evaluation"
    evaluate(model, table, "--limit", "4")
    table.write_text(table.read_text() + "j\tno\n")
    changed = evaluate(model, table, "--limit", "4")
    records = load_checkpoint(model).manifest.evaluations
    assert [r.metrics["samples"] for r in records] == [12, 4, 4]
    assert records[-1].metrics == changed["metrics"]
    check_digests(model)


def test_the_model_card_shows_results(model: Path, table: Path, tmp_path: Path) -> None:
    printed = evaluate(model, table)
    convert(CheckpointDir(model, "model"), tmp_path / "hub", to="hub")
    card = ModelCard.load(tmp_path / "hub" / "README.md")
    text = card.text
    low, high = printed["intervals"]["accuracy"]
    accuracy = printed["metrics"]["accuracy"]
    assert "text-classification on test.tsv (" in text
    assert f"| accuracy | {accuracy:.4f} | {low:.4f} to {high:.4f} |" in text
    assert "| samples | 12 | |" in text.replace("|  |", "| |")
    found = {r.metric_type: r.metric_value for r in card.data.eval_results or []}
    assert found == {k: v for k, v in printed["metrics"].items() if k != "samples"}
    assert {r.dataset_name for r in card.data.eval_results or []} == {"test.tsv"}
    assert str(tmp_path) not in text
    convert(CheckpointDir(model, "model"), tmp_path / "backbone", to="hub", head="none")
    assert "Evaluation" not in (tmp_path / "backbone" / "README.md").read_text()


def test_no_record(model: Path, table: Path) -> None:
    before = (model / MANIFEST).read_bytes()
    assert evaluate(model, table, "--no-record")["recorded"] is False
    assert (model / MANIFEST).read_bytes() == before


def test_models_that_are_not_directories_are_left_alone(
    model: Path, table: Path, tmp_path: Path
) -> None:
    """A name of the store, and a directory in the Hub's layout, which is converted into a cache."""
    stored = store() / "tagger"
    shutil.copytree(model, stored)
    before = (stored / MANIFEST).read_bytes()
    assert evaluate("tagger", table)["recorded"] is False
    assert (stored / MANIFEST).read_bytes() == before
    assert evaluate(tmp_path / "source", table)["recorded"] is False
    assert not (tmp_path / "source" / MANIFEST).exists()


def test_a_changed_manifest_is_refused(model: Path, table: Path) -> None:
    content = (model / MANIFEST).read_bytes()
    (model / MANIFEST).write_bytes(content.replace(b'"exact"', b'"Exact"'))
    with pytest.raises(VerificationError, match="was changed: its digest is not right"):
        evaluate(model, table)
