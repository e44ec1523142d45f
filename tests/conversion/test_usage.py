"""The snippets of model cards run, and print a result, in the programs that they are for."""

import contextlib
import io
import re
import shlex
from pathlib import Path

import pytest

from tests import warm
from tests.checkpoints import Make, hub_checkpoint
from tests.conversion.making import pooled_source
from tests.tasks.causal_lm.making import MakeSource, source
from tests.tasks.seq2seq.making import hub as hub  # fixture of ``seq2seq_path``
from tests.tasks.seq2seq.making import path as seq2seq_path
from zoo.conversion.convert import convert
from zoo.hub.source import CheckpointDir

__all__ = ["hub", "hub_checkpoint", "seq2seq_path", "source"]


def snippets(model: Path, folder: Path) -> list[tuple[str, str, str]]:
    """Return program, language and text of each snippet of the card of a model."""
    path = folder / "card"
    convert(CheckpointDir(model, "model"), path, to="hub")
    text = (path / "README.md").read_text()
    found = re.findall(r"With ([\w-]+):\n\n```(\w+)\n(.*?)```", text, re.DOTALL)
    return [(a, b, code.replace("organisation/name", str(path))) for a, b, code in found]


def run(language: str, code: str) -> str:
    """Return what a snippet prints."""
    if language == "console":
        words = shlex.split(code.removeprefix("$ zoo "))
        done = warm.zoo(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "card", "exec"), {})
    return printed.getvalue()


def assert_all_print(found: list[tuple[str, str, str]], programs: list[str]) -> None:
    assert [program for program, *_ in found] == programs
    silent = [program for program, language, code in found if not run(language, code).strip()]
    assert silent == []


@pytest.mark.by_default("BertForMaskedLM")
@pytest.mark.parametrize(
    "architecture",
    [
        *("BertForSequenceClassification", "BertForTokenClassification", "BertForMaskedLM"),
        *("BertForQuestionAnswering", "BertForMultipleChoice"),
    ],
)
def test_of_encoders(hub_checkpoint: Make, tmp_path: Path, architecture: str) -> None:
    found = snippets(hub_checkpoint(architecture), tmp_path)
    assert_all_print(found, ["transformers", "zoo"])


@pytest.mark.long
def test_of_a_backbone(hub_checkpoint: Make, tmp_path: Path) -> None:
    found = snippets(hub_checkpoint("BertModel"), tmp_path)
    assert_all_print(found, ["transformers", "zoo"])


def test_of_a_sentence_encoder(hub_checkpoint: Make, tmp_path: Path) -> None:
    found = snippets(pooled_source(hub_checkpoint), tmp_path)
    assert_all_print(found, ["sentence-transformers", "zoo"])


@pytest.mark.long
def test_of_models_that_generate(source: MakeSource, seq2seq_path: Path, tmp_path: Path) -> None:
    assert_all_print(snippets(source(), tmp_path), ["transformers", "zoo"])
    (tmp_path / "other").mkdir()
    assert_all_print(snippets(seq2seq_path, tmp_path / "other"), ["transformers", "zoo"])
