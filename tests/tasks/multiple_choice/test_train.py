"""Multiple choice: losses of transformers' models, rows, runs, and use of the model."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import zoo
from tests import warm
from tests.checkpoints import Make, byte_level_roberta
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    assert_resumes_exactly,
    assert_two_processes_equal_one,
    finetune,
    reference_losses,
    refused,
    settings,
    setup_of,
    training_losses,
    write_table,
)
from tests.inference.conftest import converted
from tests.tasks.causal_lm.making import MakeSource, source
from tests.tasks.multiple_choice.making import chosen
from tests.training.runs import records
from zoo.finetuning.config import finetune_config
from zoo.finetuning.setup import finetune_setup
from zoo.objectives.base import Batch
from zoo.tasks import make_evaluation

__all__ = ["source"]
TASK = "multiple-choice"
CHOICES = "BertForMultipleChoice"


def test_losses_are_those_of_the_reference(pretrained: Pretrained, tmp_path: Path) -> None:
    import transformers

    model, source = pretrained(CHOICES)
    reference: Any = getattr(transformers, CHOICES).from_pretrained(source)

    def batch_loss(batch: Batch) -> tuple[Tensor, int]:
        tensors = {k: v for k, v in batch.tensors.items() if k != "choice_lengths"}
        return reference(**tensors).loss * batch.rows, batch.rows

    run = finetune(tmp_path / "run", settings(model, chosen(tmp_path / "t.jsonl", 80), task=TASK))
    expected = reference_losses(run, reference, batch_loss)
    assert training_losses(run) == pytest.approx(expected, abs=1e-5)
    assert expected[-1] != pytest.approx(expected[0], abs=1e-2), "the weights changed"


def test_batches_are_those_of_the_reference(pretrained: Pretrained, tmp_path: Path) -> None:
    """Ids, types and masks of transformers' tokenizer, padded in the batch."""
    import transformers

    model, source = pretrained()
    data = chosen(tmp_path / "t.jsonl", 12)
    tree = settings(model, data, task=TASK, max_steps=1, data={"eval": [str(data)]})
    setup = setup_of(finetune(tmp_path / "run", {**tree, "max_seq_len": 12}))
    rows = [json.loads(line) for line in data.read_text().splitlines()]
    examples = [setup.train_rows.example(k, None) for k in range(12)]  # type: ignore[arg-type]
    batch = setup.objective.collate(examples)
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    contexts = [row["context"] for row in rows for _ in row["choices"]]
    endings = [f"e {choice}" for row in rows for choice in row["choices"]]
    encoded = tokenizer(
        contexts,
        endings,
        truncation=True,
        max_length=12,
        padding=True,
        return_tensors="pt",
    )
    for name, tensor in encoded.items():
        assert torch.equal(batch.tensors[name], tensor.view(12, 4, -1)), name
    assert batch.tensors["labels"].tolist() == [row["label"] for row in rows]
    assert batch.tokens == int(encoded["attention_mask"].sum())
    whole = tokenizer(contexts, endings)["input_ids"]
    assert setup.train_rows.truncated == sum(len(ids) > 12 for ids in whole) > 0


@pytest.mark.parametrize("architecture", ["RobertaForMultipleChoice", "GPT2DoubleHeadsModel"])
def test_byte_level_tokens_are_those_of_the_reference(
    hub_checkpoint: Make, source: MakeSource, tmp_path: Path, architecture: str
) -> None:
    """White space of choices and questions is part of their tokens."""
    import transformers

    if architecture.startswith("GPT2"):
        model = source(architecture)
        hub = model.parent / "hub"
    else:
        hub = byte_level_roberta(hub_checkpoint, architecture)
        model = converted(hub, tmp_path / "model").path
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    question = {"context": "the cat", "question": "sat "}
    rows: list[dict[str, Any]] = [
        {**question, "choices": [" on", "on", "on  the"], "label": 1},
        {"context": "It is", "question": "", "choices": [" a cat", "a cat"], "label": "a cat"},
    ]
    data = write_table(tmp_path / "t.jsonl", rows)
    tree = settings(model, data, task=TASK, max_steps=1, data={"eval": [str(data)]})
    setup = finetune_setup(finetune_config(tree, {}))
    for index, row in enumerate(rows):
        texts = [f"{row['question']} {c}" if row["question"] else c for c in row["choices"]]
        theirs = [tokenizer(row["context"], text)["input_ids"] for text in texts]
        ours = setup.train_rows.example(index, np.random.default_rng()).arrays["input_ids"]
        assert ours.tolist() == [token for ids in theirs for token in ids]
    assert setup.train_rows.values["labels"].tolist() == [1, 1]


@pytest.mark.long
def test_questions_with_fewer_choices(pretrained: Pretrained, tmp_path: Path) -> None:
    """A question has the loss over its own choices, whatever others of the batch have."""
    model, _ = pretrained()
    data = chosen(tmp_path / "t.jsonl", 12, sizes=(2, 3, 4))
    tree = settings(model, data, task=TASK, max_steps=1, data={"eval": [str(data)]})
    setup = setup_of(finetune(tmp_path / "run", tree))
    task = setup.objective
    torch.manual_seed(0)
    module = task.model(setup.family, setup.model_config).eval()
    examples = [setup.train_rows.example(k, None) for k in range(12)]  # type: ignore[arg-type]
    with torch.no_grad():
        together = task.compute_loss(module, task.collate(examples).tensors)
        alone = [task.compute_loss(module, task.collate([row]).tensors) for row in examples]
    losses = [float(output.sums[TASK]) for output in alone]
    assert float(together.sums[TASK]) == pytest.approx(sum(losses), rel=1e-5)
    predicted = torch.cat([output.predictions["prediction"] for output in alone])
    assert torch.equal(together.predictions["prediction"], predicted)
    assert {row.values["choice_lengths"].astype(bool).sum() for row in examples} == {2, 3, 4}


@pytest.mark.long
def test_the_model_learns_and_metrics_are_those_of_the_evaluation(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    model, _ = pretrained()
    held = chosen(tmp_path / "e.jsonl", 40, 7)
    tree = settings(model, chosen(tmp_path / "t.jsonl", 60), task=TASK, data={"eval": [str(held)]})
    run = finetune(tmp_path / "run", {**tree, "max_steps": 20, "eval_steps": 20, "save_steps": 20})
    metrics = records(run, "validation")[-1]["metrics"]
    loaded = zoo.load(run / "model", backend="cpu")
    result = make_evaluation(TASK, loaded.checkpoint, loaded.session).evaluate([held])
    assert metrics == {"accuracy": pytest.approx(result.metrics["accuracy"])}


@pytest.mark.long  # tests/finetuning/test_every_task.py resumes three tasks
def test_a_resumed_run_ends_bit_for_bit_the_same(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained(hidden_dropout_prob=0.1)
    tree = settings(model, chosen(tmp_path / "t.jsonl"), task=TASK, save_total_limit=9)
    assert_resumes_exactly(tmp_path, tree, 6)


@pytest.mark.long
def test_two_processes_have_the_losses_and_metrics_of_one(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    model, _ = pretrained()
    held = chosen(tmp_path / "e.jsonl", 21, 1, sizes=(2, 3, 4))
    data = chosen(tmp_path / "t.jsonl", sizes=(2, 3, 4))
    tree = settings(model, data, task=TASK, data={"eval": [str(held)]})
    assert_two_processes_equal_one(tmp_path / "runs", tree)


@pytest.mark.long
def test_the_model_converts(pretrained: Pretrained, tmp_path: Path) -> None:
    """With the weights that are new named, and the logits of transformers' class."""
    import transformers

    model, _ = pretrained()
    arguments = ("--task", TASK, "--train", chosen(tmp_path / "t.jsonl"), "--max-steps", "2")
    done = warm.zoo(
        *("finetune", model, *arguments, "--device", "cpu", "-o", tmp_path / "run"), cwd=tmp_path
    )
    assert done.returncode == 0, done.stderr
    assert "new weights: pooler, head (1,089)" in done.stderr
    hub = tmp_path / "hub"
    done = warm.zoo("convert", tmp_path / "run" / "model", "--to", "hub", "-o", hub)
    assert done.returncode == 0, done.stderr
    reference: Any = transformers.AutoModelForMultipleChoice.from_pretrained(hub).eval()
    assert type(reference).__name__ == CHOICES
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    encoded = tokenizer(["a b", "a b"], ["c", "d e"], padding=True, return_tensors="pt")
    inputs = {name: tensor[None] for name, tensor in encoded.items()}
    with torch.no_grad():
        expected = reference(**inputs).logits
    loaded = zoo.load(tmp_path / "run" / "model", backend="cpu")
    arrays = {name: tensor.numpy() for name, tensor in inputs.items()}
    logits = torch.from_numpy(loaded.session.run(arrays, ("logits",))["logits"])
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


@pytest.mark.long
def test_a_causal_model_converts(tmp_path: Path) -> None:
    """With the logits of the class with two heads, of which it trains the one of choices."""
    import transformers

    changes = {"task": TASK, "vocab_size": 300, "max_steps": 1}
    run = finetune(tmp_path / "run", settings("gpt", chosen(tmp_path / "t.jsonl"), **changes))
    done = warm.zoo("convert", run / "model", "--to", "hub", "-o", tmp_path / "hub")
    assert done.returncode == 0, done.stderr
    kind: Any = transformers.GPT2DoubleHeadsModel
    reference = kind.from_pretrained(tmp_path / "hub").eval()
    ids = torch.arange(5, 29).view(1, 4, 6)
    with torch.no_grad():
        expected = reference(ids, mc_token_ids=torch.full((1, 4), 5)).mc_logits
    loaded = zoo.load(run / "model", backend="cpu")
    logits = loaded.session.run({"input_ids": ids.numpy()}, ("mc_logits",))["mc_logits"]
    torch.testing.assert_close(torch.from_numpy(logits), expected, atol=1e-5, rtol=0)


LIKE_BERT = ("albert", "distilbert", "electra", "roberta")


@pytest.mark.long
@pytest.mark.parametrize(
    "family",
    [
        "gpt",
        *(
            pytest.param(name, marks=pytest.mark.long)
            for name in ("deberta", "modernbert", *LIKE_BERT)
        ),
    ],
)
def test_families_learn_from_random_weights(tmp_path: Path, family: str) -> None:
    data = chosen(tmp_path / "t.jsonl", 80)
    changes = {"task": TASK, "vocab_size": 300, "max_steps": 2, "eval_steps": 2, "save_steps": 2}
    run = finetune(tmp_path / "run", settings(family, data, **changes))
    (record,) = records(run, "validation")
    assert set(record["metrics"]) == {"accuracy"}
    assert max(training_losses(run)) < 3
    loaded = zoo.load(run / "model", backend="cpu")
    result = make_evaluation(TASK, loaded.checkpoint, loaded.session).evaluate([data])
    assert 0 < result.metrics["accuracy"] <= 1


def test_what_does_not_fit(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    row = {"context": "a", "choices": ["b", "c"], "label": "d"}
    tree = settings(model, write_table(tmp_path / "t.jsonl", [row]), task=TASK)
    refused(tmp_path, tree, "label is 'd', which is none of the 2 choices")
    tree = settings("t5", chosen(tmp_path / "c.jsonl"), task=TASK)
    refused(tmp_path, tree, "t5 has no head multiple-choice, which multiple-choice needs")
