"""The commands of docs/guides/suites.md, in an empty folder with data in the published layouts."""

import re
import shlex
from pathlib import Path

import pytest

from tests import warm
from tests.checkpoints import Make, hub_checkpoint, shrink
from tests.inference.conftest import converted
from tests.suites.frozen_folders import (
    make_beir,
    make_cola,
    make_probing,
    make_senteval,
    make_sts,
)
from tests.suites.glue_folder import make_glue
from tests.suites.superglue_folder import make_superglue
from tests.tasks.seq2seq.making import model as t5
from tests.tasks.seq2seq.making import t5_hub
from zoo.suites.beir import SUITE as BEIR

__all__ = ["hub_checkpoint", "t5", "t5_hub"]
PAGE = Path(__file__).parents[2] / "docs" / "guides" / "suites.md"
# Runs of a step, and two seeds instead of five.
SHORT = ["--max-steps", "1", "--preset", "default", "--batch-size", "8", "--device", "cpu"]
COMMAND = re.compile(r"^\$ (zoo .*)$", re.MULTILINE)


def commands() -> list[list[str]]:
    """Return the commands of the page in order, but for those of a package that is not here."""
    found = [shlex.split(line) for line in COMMAND.findall(PAGE.read_text("utf-8"))]
    return [words for words in found if "mteb" not in words]


@pytest.mark.long
def test_the_commands_of_the_page(hub_checkpoint: Make, t5: Path, tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    folder.mkdir()
    make_glue(folder / "GLUE", 8)
    make_superglue(folder / "SuperGLUE", 8)
    make_sts(folder / "SentEval" / "data" / "downstream")
    make_senteval(folder / "SentEval" / "data")
    make_probing(folder / "SentEval" / "data")
    make_cola(folder / "cola_public")
    make_beir(folder / "datasets", [task.name for task in BEIR.tasks])
    source = hub_checkpoint("BertForMaskedLM", "hub", max_position_embeddings=128)
    shrink(source / "model.safetensors", 0.2)
    converted(source, folder / "bert-base-uncased")
    (folder / "roberta-base").symlink_to(folder / "bert-base-uncased")
    source = hub_checkpoint("BertModel", "backbone", max_position_embeddings=128)
    converted(source, folder / "all-minilm-l6-v2")
    (folder / "t5-small").symlink_to(t5)
    (folder / "runs").mkdir()
    for words in trained_first(commands()):
        if words[1] == "finetune":
            words = [*words, *SHORT]
        done = warm.zoo(*words[1:], cwd=folder)
        assert done.returncode == 0, (words, done.stderr)
        assert ("average" in done.stdout) != (words[1] == "compare")
        assert "missing" not in done.stdout
    assert len(list((folder / "answers").glob("*.tsv"))) == 11
    assert len(list((folder / "answers").glob("*.jsonl"))) == 10


def trained_first(page_commands: list[list[str]]) -> list[list[str]]:
    """Return each command once, after the one that trains its models."""
    unique = list(dict.fromkeys(tuple(words) for words in page_commands))
    trained = [list(words) for words in unique if words[1] == "finetune"]
    # The page evaluates models of SuperGLUE that the command for GLUE trains in the same way.
    trained.append(["zoo", "finetune", "bert-base-uncased", "--suite", "superglue", "SuperGLUE"])
    trained[-1] += ["-o", "runs/superglue"]
    shortened = [["2" if word == "5" else word for word in words] for words in trained]
    return [*shortened, *[list(words) for words in unique if words[1] != "finetune"]]
