"""Causal language modelling against transformers' model: rows, losses, perplexity, runs."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import zoo
from tests import warm
from tests.finetuning.making import (
    assert_resumes_exactly,
    assert_two_processes_equal_one,
    finetune,
    reference_losses,
    settings,
    setup_of,
    training_losses,
    write_table,
)
from tests.tasks.causal_lm.making import LINES, LONGEST, MakeSource, prompts, source
from tests.training.runs import records
from zoo.errors import UsageError
from zoo.objectives.base import Batch
from zoo.tasks import make_evaluation

__all__ = ["source"]
TASK = "causal-lm"
DRY = {"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0}


@pytest.fixture
def model(source: MakeSource) -> Path:
    return source()


def tree_of(model: Path, table: Path, **changes: Any) -> dict[str, Any]:
    data = {"label": "label", **changes.pop("data", {})}
    return settings(model, table, task=TASK, data=data, config=DRY, **changes)


def row_of(tokenizer: Any, prompt: str, completion: str) -> tuple[list[int], list[int]]:
    """Return the tokens and labels of a sample by transformers' tokenizer."""
    end = tokenizer.eos_token_id
    known = tokenizer(prompt.rstrip())["input_ids"]
    ids = tokenizer(prompt + completion)["input_ids"]
    start = [] if known else [end]
    row = [*start, *ids, end]
    first = max(1, len(start) + len(known))
    return row, [-100] * first + row[first:]


def test_the_losses_are_those_of_the_reference(model: Path, tmp_path: Path) -> None:
    """Of torch's AdamW over transformers' model with labels of -100 for prompts."""
    import transformers

    run = finetune(tmp_path / "run", tree_of(model, prompts(tmp_path / "t.jsonl")))
    reference: Any = transformers.GPT2LMHeadModel.from_pretrained(
        model.parent / "hub", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0
    )

    def batch_loss(batch: Batch) -> tuple[Tensor, int]:
        labels = torch.nn.functional.pad(batch.tensors["labels"], (1, 0), value=-100)
        ids = torch.nn.functional.pad(batch.tensors["input_ids"], (0, 1))
        count = int((labels != -100).sum())
        return reference(input_ids=ids, labels=labels).loss * count, count

    losses = reference_losses(run, reference, batch_loss)
    assert training_losses(run) == pytest.approx(losses, abs=2e-5)
    assert losses[-1] != pytest.approx(losses[0], abs=1e-2), "the weights changed"


def test_prompts_count_for_no_loss(model: Path, tmp_path: Path) -> None:
    """Tokens and labels are those of transformers' tokenizer, of whole text and prompt."""
    import json

    import transformers

    table = prompts(tmp_path / "t.jsonl")
    tree = tree_of(model, table, data={"eval": [str(table)]}, max_steps=1)
    setup = setup_of(finetune(tmp_path / "run", tree))
    tokenizer = transformers.AutoTokenizer.from_pretrained(model.parent / "hub")
    samples = [json.loads(line) for line in table.read_text().splitlines()]
    assert len(setup.eval_rows) == len(samples)
    for number, sample in enumerate(samples):
        ids, labels = row_of(tokenizer, sample["text"], sample["label"])
        example = setup.eval_rows.example(number, np.random.default_rng(0))
        assert example.arrays["input_ids"].tolist() == ids[:-1]
        assert example.arrays["labels"].tolist() == labels[1:]
        assert example.counts == {TASK: sum(label != -100 for label in labels[1:])}


@pytest.mark.long
def test_documents_are_cut_and_each_token_is_predicted_once(model: Path, tmp_path: Path) -> None:
    import transformers

    documents = [" ".join(LINES[k : k + 9]) for k in range(0, 90, 9)]
    (tmp_path / "t.txt").write_text("\n\n".join(documents))
    held = tmp_path / "e.tsv"
    held.write_text("body\n" + "\n".join(LINES[:5]) + "\n")
    tree = tree_of(model, tmp_path / "t.txt", data={"label": None}, max_steps=2, max_seq_len=32)
    run = finetune(tmp_path / "run", tree)
    setup = setup_of(run)
    assert setup.train_rows.lengths.max() == 32
    tokenizer = transformers.AutoTokenizer.from_pretrained(model.parent / "hub")
    end = tokenizer.eos_token_id
    expected = [[*tokenizer(text)["input_ids"], end] for text in documents]
    labels: list[list[int]] = []
    for rows in (setup.train_rows, setup.eval_rows):
        for number in range(len(rows)):
            arrays = rows.example(number, np.random.default_rng(0)).arrays
            if arrays["input_ids"][0] == end:
                labels.append([])
            labels[-1] += arrays["labels"].tolist()
    assert sorted(labels) == sorted(expected)
    tree["max_seq_len"] = LONGEST
    tree["data"] = {**tree["data"], "text": "body", "eval": [str(held)], "train": [str(held)]}
    assert len(setup_of(finetune(tmp_path / "table", tree)).train_rows) == 5


def test_perplexity_is_that_of_an_evaluation(model: Path, tmp_path: Path) -> None:
    """The last evaluation's numbers are those of ``zoo eval``, and of transformers' model."""
    import json

    import transformers

    held = prompts(tmp_path / "e.jsonl", 11, first=50)
    tree = tree_of(model, prompts(tmp_path / "t.jsonl"), data={"eval": [str(held)]})
    run = finetune(tmp_path / "run", {**tree, "eval_steps": 12, "save_steps": 12})
    (record,) = records(run, "validation")
    trained = zoo.load(run / "model", backend="cpu")
    result = make_evaluation(TASK, trained.checkpoint, trained.session).evaluate([held])
    assert result.metrics["loss"] == pytest.approx(record["loss"], abs=1e-5)
    metrics = record["metrics"]
    assert result.metrics["perplexity"] == pytest.approx(metrics["perplexity"], rel=1e-5)
    assert result.metrics["accuracy"] == pytest.approx(metrics["accuracy"])
    done = warm.zoo("convert", run / "model", "--to", "hub", "-o", tmp_path / "hub2")
    assert done.returncode == 0, done.stderr
    reference: Any = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "hub2")
    reference.eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub2")
    total, count = 0.0, 0
    with torch.no_grad():
        for line in held.read_text().splitlines():
            sample = json.loads(line)
            ids, labels = row_of(tokenizer, sample["text"], sample["label"])
            tokens = sum(label != -100 for label in labels[1:])
            loss = reference(input_ids=torch.tensor([ids]), labels=torch.tensor([labels])).loss
            total, count = total + float(loss) * tokens, count + tokens
    assert metrics["perplexity"] == pytest.approx(math.exp(total / count), rel=1e-4)
    assert result.metrics["tokens"] == count


def test_what_is_too_long_loses_the_beginning_of_the_prompt(model: Path, tmp_path: Path) -> None:
    rows = [{"text": "a b " * 60 + "end", "label": " yes"}, {"text": "a", "label": " b" * 90}]
    table = write_table(tmp_path / "t.jsonl", [*rows, *({"text": "q", "label": " r"},) * 8])
    tree = tree_of(model, table, data={"eval": [str(table)]}, max_steps=1)
    rows_of = setup_of(finetune(tmp_path / "run", tree)).eval_rows
    assert rows_of.truncated == 2 and rows_of.lengths.max() == LONGEST
    tokenizer: Any = zoo.load(model, backend="cpu").tokenizer
    first, second = (rows_of.example(k, np.random.default_rng(0)).arrays for k in (0, 1))
    assert tokenizer.decode(first["input_ids"].tolist()).endswith("end yes")
    assert (first["labels"] != -100).sum() == len(
        tokenizer.encode([" yes"], max_tokens=None)[0].ids
    ) + 1
    assert second["labels"][0] != -100 and second["input_ids"].tolist()[0] != 0


@pytest.mark.long  # tests/tasks/seq2seq resumes a decoder
def test_a_resumed_run_ends_bit_for_bit_the_same(model: Path, tmp_path: Path) -> None:
    tree = tree_of(model, prompts(tmp_path / "t.jsonl"), save_total_limit=9)
    assert_resumes_exactly(tmp_path, {**tree, "config": {}}, 6)  # with dropout


@pytest.mark.long
def test_two_processes_have_the_losses_and_metrics_of_one(model: Path, tmp_path: Path) -> None:
    tree = tree_of(model, prompts(tmp_path / "t.jsonl"), max_steps=4, eval_steps=2)
    assert_two_processes_equal_one(tmp_path / "runs", tree)


@pytest.mark.parametrize(
    ("changes", "message", "kind"),
    [
        ({"data": {"label": "labl"}}, "has no column 'labl'; did you mean label", UsageError),
        ({"data": {"pair": "text"}}, "causal-lm has no second text", UsageError),
        ({"metric_for_best_model": "exact_match"}, "it has loss, perplexity", UsageError),
        ({"data": {"text": "list"}}, "is \\['a'\\], which is not text", UsageError),
    ],
)
def test_what_does_not_fit_is_one_line(
    model: Path, tmp_path: Path, changes: dict[str, Any], message: str, kind: Any
) -> None:
    rows = [{"text": f"a {k}", "list": ["a"], "label": "b"} for k in range(20)]
    table = write_table(tmp_path / "t.jsonl", rows)
    with pytest.raises(kind, match=message):
        finetune(tmp_path / "run", tree_of(model, table, **changes))
    assert not (tmp_path / "run").exists()
