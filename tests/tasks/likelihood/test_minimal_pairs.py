"""Minimal pairs: accuracy by log-likelihood, ties, and tables that cannot be used."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from tests.evaluation.conftest import Small
from zoo.api import Model
from zoo.cli.inference.eval import command
from zoo.errors import UsageError, VerificationError, ZooError
from zoo.tasks import make_evaluation

PAIRS = [
    ("order", "the cat sat on the mat.", "the mat sat on the cat."),
    ("order", "a dog ran", "ran dog a"),
    ("same", "the cat", "the cat"),
    ("number", "the dog ran to the cat", "the dog ran to the the"),
]


def write_pairs(path: Path) -> Path:
    lines = ["paradigm\tgood\tbad", *("\t".join(pair) for pair in PAIRS)]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_the_sentence_with_the_higher_log_likelihood_is_preferred(
    causal: tuple[Model, Any, Any], tmp_path: Path
) -> None:
    model, reference, tokenizer = causal

    def log_likelihood(text: str) -> float:
        ids = torch.tensor([[tokenizer.eos_token_id, *tokenizer(text)["input_ids"]]])
        with torch.inference_mode():  # the loss is the mean over all tokens but the first
            return -float(reference(ids, labels=ids).loss) * (ids.shape[1] - 1)

    points = {
        pair: 0.5
        if pair[1] == pair[2]
        else float(log_likelihood(pair[1]) > log_likelihood(pair[2]))
        for pair in PAIRS
    }
    table = write_pairs(tmp_path / "pairs.tsv")
    result = make_evaluation("minimal-pairs", model.checkpoint, model.session).evaluate([table])
    assert result.metrics["accuracy"] == sum(points.values()) / 4
    assert result.metrics["pairs"] == 4
    order = [points[pair] for pair in PAIRS if pair[0] == "order"]
    assert result.details["paradigms"] == {
        "order": sum(order) / 2,
        "same": 0.5,
        "number": points[PAIRS[3]],
    }


def test_the_command_prints_metrics(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForMaskedLM")
    table = tmp_path / "pairs.jsonl"
    rows = [
        {"paradigm": "p", "good": "a b", "bad": "b a"},
        {"paradigm": "p", "good": "a", "bad": "a"},
    ]
    table.write_text("\n".join(map(json.dumps, rows)))
    options = [str(model.checkpoint.path), "--task", "minimal-pairs", "--eval", str(table)]
    printed = CliRunner().invoke(command, options, catch_exceptions=False).stdout
    assert printed.splitlines()[0].split() == ["metric", "value"]
    output = CliRunner().invoke(command, [*options, "--json"], catch_exceptions=False).stdout
    value = json.loads(output)
    assert value["metrics"]["accuracy"] in (0.25, 0.75)
    limited = CliRunner().invoke(command, [*options, "--json", "--limit", "1"]).stdout
    assert json.loads(limited)["metrics"]["pairs"] == 1


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.tsv", "paradigm\tgod\tbad\np\ta\tb\n", "no column 'good'; did you mean god?"),
        ("a.tsv", "paradigm\tgood\tbad\np\ta\n", "a.tsv:2 has 2 columns, and the header has 3"),
        ("a.tsv", "paradigm\tgood\tbad\n", "has no pairs"),
        (
            "a.tsv",
            "paradigm\tgood\tbad\nq\t\tb\n",
            "a.tsv:2: a pair of 'q' lacks the sentence good",
        ),
        ("a.jsonl", '{"paradigm": "p", "good": 1, "bad": "b"}', "good is 1, which is not text"),
        ("a.jsonl", "[]", "a.jsonl:1 is not a JSON object"),
        ("a.csv", 'paradigm,good,bad\n"p,a,b\n', "a.csv:2"),
        ("a.zip", "", "its name must end in"),
    ],
)
def test_tables_that_cannot_be_used_are_one_line(
    small: Small, tmp_path: Path, name: str, content: str, message: str
) -> None:
    model, _ = small("BertForMaskedLM")
    (tmp_path / name).write_text(content)
    task = make_evaluation("minimal-pairs", model.checkpoint, model.session)
    with pytest.raises((UsageError, VerificationError)) as caught:
        task.evaluate([tmp_path / name])
    assert isinstance(caught.value, ZooError)
    assert message in str(caught.value)


def test_a_sentence_longer_than_the_model_allows_is_named(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForMaskedLM")
    (tmp_path / "a.tsv").write_text(f"paradigm\tgood\tbad\np\ta\t{'b ' * 60}\n")
    with pytest.raises(UsageError, match="a text has 62 tokens, and the model takes 40"):
        make_evaluation("minimal-pairs", model.checkpoint, model.session).evaluate(
            [tmp_path / "a.tsv"]
        )
