"""The task choose, against transformers' classes for multiple choice."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from click.testing import CliRunner

from tests.checkpoints import Make, byte_level_roberta, hub_checkpoint
from tests.inference.conftest import Small, converted
from tests.tasks.causal_lm.making import MakeSource, source
from tests.tasks.multiple_choice.making import ROWS, Row, reference_logits
from zoo.api import Model
from zoo.checkpoint import load_checkpoint
from zoo.cli.inference.run import command
from zoo.errors import UsageError
from zoo.exporting.session import open_session

__all__ = ["hub_checkpoint", "source"]
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")


def ask(model: Model, rows: list[Row]) -> list[Row]:
    return model.choose((row["context"], row["question"], row["choices"]) for row in rows)


def assert_same(result: Row, row: Row, logits: torch.Tensor) -> None:
    best = int(logits.argmax())
    assert {name: result[name] for name in row} == row
    assert (result["label"], result["choice"]) == (best, row["choices"][best])
    assert result["scores"] == pytest.approx(logits.softmax(-1).tolist(), abs=1e-4)
    assert result["score"] == result["scores"][best]


@pytest.mark.parametrize("backend", ["cpu", pytest.param("onnx", marks=pytest.mark.long)])
def test_scores_are_those_of_transformers(small: Small, backend: str) -> None:
    loaded, folder = small("BertForMultipleChoice")
    model = Model(loaded.checkpoint, open_session(loaded.checkpoint, backend))
    results = ask(model, ROWS)
    for row, result in zip(ROWS, results, strict=True):
        assert_same(result, row, reference_logits(folder, row))
    assert [result.get("truncated", 0) for result in results] == [0, 0, 0, 2 * 25]


def test_a_causal_model_reads_the_last_token(source: MakeSource) -> None:
    checkpoint = load_checkpoint(source("GPT2DoubleHeadsModel"))
    folder = checkpoint.path.parent / "hub"
    kind: Any = transformers.GPT2DoubleHeadsModel
    reference = kind.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    row = {"context": "the cat sat", "question": "", "choices": [" on the mat", " a dog", " to"]}
    logits = []
    for choice in row["choices"]:
        ids = torch.tensor([[tokenizer(row["context"]).input_ids + tokenizer(choice).input_ids]])
        last = torch.tensor([[ids.shape[-1] - 1]])
        with torch.no_grad():
            logits.append(reference(ids, mc_token_ids=last).mc_logits[0, 0])
    (result,) = ask(Model(checkpoint, open_session(checkpoint, "cpu")), [row])
    assert_same(result, row, torch.stack(logits))


@pytest.mark.long
def test_byte_level_models_read_the_space_before_a_choice(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    """With ``Paris`` and `` Paris``, as the choices have it; a question adds one space."""
    folder = byte_level_roberta(hub_checkpoint, "RobertaForMultipleChoice")
    checkpoint = converted(folder, tmp_path / "model")
    loaded = Model(checkpoint, open_session(checkpoint, "cpu"))
    reference: Any = transformers.RobertaForMultipleChoice.from_pretrained(folder).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    rows: list[Row] = [
        {"context": "the cat sat", "question": "", "choices": [" on the mat", "on the mat"]},
        {"context": " the cat", "question": "sat ", "choices": [" on", "on ", "  on"]},
    ]
    for row, result in zip(rows, ask(loaded, rows), strict=True):
        before = f"{row['question']} " if row["question"] else ""
        texts = [f"{before}{choice}" for choice in row["choices"]]
        encoded = tokenizer([row["context"]] * len(texts), texts, padding=True, return_tensors="pt")
        assert len({tuple(ids) for ids in encoded["input_ids"].tolist()}) == len(texts)
        with torch.no_grad():
            logits = reference(**{k: v[None] for k, v in encoded.items()}).logits[0]
        assert_same(result, row, logits)


def test_the_command_line(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertForMultipleChoice")
    (tmp_path / "q.jsonl").write_text("".join(json.dumps({**r, "id": 7}) + "\n" for r in ROWS))
    expected = ask(model, ROWS)

    def run(*arguments: object) -> Any:
        call = ["choose", model.checkpoint.path, "--backend", "cpu", *arguments]
        return CliRunner().invoke(command, list(map(str, call)))

    lines = run("--input", tmp_path / "q.jsonl").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [{**r, "id": 7} for r in expected]
    options = ("--question", "d", "--choice", "e f", "--choice", "g", "--choice", "h h h h")
    result = json.loads(run("a b c", *options).stdout)
    assert result.pop("scores") == pytest.approx(expected[0].pop("scores"), abs=1e-5)
    assert result.pop("score") == pytest.approx(expected[0].pop("score"), abs=1e-5)
    assert result == expected[0]
    refusals = {
        "text 1 has no list of two choices or more": ("a", "--choice", "b"),
        "q.jsonl:1 has choices of its own": ("--input", tmp_path / "q.jsonl", *options[2:]),
        "q.jsonl:1 has a question of its own": ("--input", tmp_path / "q.jsonl", *options[:2]),
    }
    for message, arguments in refusals.items():
        assert message in str(run(*arguments).exception)


def test_choices_are_texts(small: Small) -> None:
    model, _ = small("BertForMultipleChoice")
    with pytest.raises(UsageError, match="text 1: choice 2 is of type int, not a string"):
        model.choose([("a", "", ["b", 3])])  # type: ignore[list-item]
