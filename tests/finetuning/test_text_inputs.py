"""Start, delimiter and extract tokens, both orders, and the auxiliary loss, on the first GPT.

The references are transformers' classes and the formulas of the released code (train.py): rows of
the tokens ``_start_``, ``_delimiter_`` and ``_classify_``, and losses of ``reduce_mean`` over rows
of the mean over a row's tokens.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from safetensors.torch import load_file
from torch.nn import functional as F

import zoo
from tests.families.making import published_gpt
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    HERE,
    assert_resumes_exactly,
    finetune,
    labelled,
    refused,
    settings,
    setup_of,
    training_losses,
    write_table,
)
from tests.training.runs import records
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.finetuning.config import finetune_config
from zoo.hub.source import CheckpointDir
from zoo.tasks import make_evaluation

__all__ = ["published_gpt"]
INPUTS: dict[str, Any] = {"input_tokens": ["_start_", "_delimiter_", "_classify_"], "lm_coef": 0.5}
WORDS = ["the", "quick", "brown", "fox", "was", "it", "of", "times", "best", "worst"]
STILL = {"max_steps": 1, "eval_steps": 1, "save_steps": 1, "optimizer": {"learning_rate": 1e-12}}


def sentence(number: int, length: int) -> str:
    return " ".join(WORDS[(number * 7 + k * k + k) % len(WORDS)] for k in range(length))


def pairs(path: Path, count: int = 24) -> Path:
    """Write pairs of texts of different lengths, a class and a score."""
    rows = [
        {
            "a": sentence(k, 1 + k % 4),
            "b": sentence(k + 3, 1 + k % 3),
            "label": "yes" if k % 2 else "no",
            "score": k % 5,
        }
        for k in range(count)
    ]
    return write_table(path, rows)


def choices(path: Path, count: int = 12) -> Path:
    """Write questions with two or three choices."""
    rows = [
        {
            "context": sentence(k, 1 + k % 4),
            "choices": [sentence(k + j, 1 + j) for j in range(2 + k % 2)],
            "label": k % 2,
        }
        for k in range(count)
    ]
    return write_table(path, rows)


def tree(published_gpt: Path, file: Path, **changes: Any) -> dict[str, Any]:
    model = published_gpt.parent / "ours"
    columns = {"data": {"text": "a", "pair": "b"}} if file.suffix == ".tsv" else {}
    dry = dict.fromkeys(("dropout", "embedding_dropout", "attention_dropout", "choice_dropout"), 0)
    return settings(model, file, **{"config": dry, "task_args": INPUTS, **columns, **changes})


def first_batches(run: Path) -> Any:
    loader = setup_of(run).train_dataloader(HERE)
    batches = loader.make_batches(0)
    loader.close()
    return [batch.tensors for batch in batches]


def next_token_mean(hidden: torch.Tensor, ids: torch.Tensor, table: torch.Tensor) -> float:
    """Return the mean cross-entropy of a row's tokens after the first, in float64."""
    logits = hidden[:-1].double() @ table.double().T
    return float(F.cross_entropy(logits, ids[1:]))


def real_rows(batch: dict[str, torch.Tensor]) -> list[torch.Tensor]:
    """Return the tokens of each row without padding."""
    ids = batch["input_ids"].flatten(0, -2)
    mask = batch.get("attention_mask", torch.ones_like(batch["input_ids"])).flatten(0, -2)
    return [row[keep.bool()] for row, keep in zip(ids, mask, strict=True)]


def test_tokens_around_texts(published_gpt: Path, tmp_path: Path) -> None:
    reference = transformers.AutoTokenizer.from_pretrained(published_gpt)
    size = len(json.loads((published_gpt / "vocab.json").read_text("utf-8")))
    start, delimiter, extract = range(size, size + 3)
    table = pairs(tmp_path / "t.tsv")
    setup = setup_of(finetune(tmp_path / "run", tree(published_gpt, table, **STILL)))
    texts = [line.split("\t")[:2] for line in table.read_text().splitlines()[1:]]
    expected = [
        [start, *reference(a).input_ids, delimiter, *reference(b).input_ids, extract]
        for a, b in texts
    ]
    rows = [
        *(setup.train_rows.example(k, None) for k in range(len(setup.train_rows))),  # type: ignore
        *(setup.eval_rows.example(k, None) for k in range(len(setup.eval_rows))),  # type: ignore
    ]
    assert sorted(row.arrays["input_ids"].tolist() for row in rows) == sorted(expected)
    assert setup.model_config.vocab_size == size + 3


def test_classification(published_gpt: Path, tmp_path: Path) -> None:
    """The loss is that of the released code, and transformers opens the model with its tokens."""
    run = finetune(tmp_path / "run", tree(published_gpt, pairs(tmp_path / "t.tsv"), **STILL))
    convert(CheckpointDir(run / "model", "model"), tmp_path / "hub", to="hub")
    model: Any = transformers.AutoModelForSequenceClassification.from_pretrained(tmp_path / "hub")
    assert type(model).__name__ == "OpenAIGPTForSequenceClassification"
    model = model.eval()
    table = model.transformer.tokens_embed.weight.detach()
    before = load_file(published_gpt / "model.safetensors")["transformer.tokens_embed.weight"]
    assert torch.equal(table[:-3], before) and float(table[-3:].std()) < 0.05
    losses, auxiliary = list[float](), list[float]()
    for batch in first_batches(run):
        for ids, label in zip(real_rows(batch), batch["labels"], strict=True):
            with torch.no_grad():
                logits = model(ids[None]).logits[0].double()
                hidden = model.transformer(ids[None]).last_hidden_state[0]
            losses.append(float(F.cross_entropy(logits, label)))
            auxiliary.append(next_token_mean(hidden, ids, table))
    expected = np.mean(losses) + 0.5 * np.mean(auxiliary)
    assert training_losses(run) == [pytest.approx(expected, abs=1e-5)]

    tokenizer = transformers.AutoTokenizer.from_pretrained(tmp_path / "hub")
    ours = zoo.load(run / "model", backend="cpu")
    for pair in (("the quick", "fox"), ("it was", "the best of times")):
        ids = tokenizer(*pair, return_tensors="pt").input_ids
        with torch.no_grad():
            scores = model(ids).logits[0].softmax(-1).tolist()
        (result,) = ours.classify([pair])
        assert list(result["scores"].values()) == pytest.approx(scores, abs=1e-5)


@pytest.mark.long
def test_both_orders(published_gpt: Path, tmp_path: Path) -> None:
    """Logits are the head of the sum of both extract tokens, in training and everywhere else."""
    options = {"task_args": {**INPUTS, "both_orders": True}, "task": "regression"}
    held = pairs(tmp_path / "e.tsv", 7)
    table = tree(
        published_gpt,
        pairs(tmp_path / "t.tsv"),
        **{**options, **STILL},
        data={"text": "a", "pair": "b", "label": "score", "eval": [str(held)]},
    )
    run = finetune(tmp_path / "run", table)
    source = CheckpointDir(run / "model", "model")
    with pytest.raises(UsageError, match="reads a pair in both orders"):
        convert(source, tmp_path / "refused", to="hub")
    convert(source, tmp_path / "hub", to="hub", head="none")
    backbone: Any = transformers.AutoModel.from_pretrained(tmp_path / "hub").eval()
    head = load_file(run / "model" / "model.safetensors")["head.weight"].double()
    embeddings = backbone.tokens_embed.weight.detach()

    def hidden_of(ids: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return backbone(ids[None]).last_hidden_state[0]  # type: ignore[no-any-return]

    losses, auxiliary = list[float](), list[float]()
    for batch in first_batches(run):
        rows = real_rows(batch)
        for first, second, label in zip(rows[::2], rows[1::2], batch["labels"], strict=True):
            states = hidden_of(first), hidden_of(second)
            score = (states[0][-1] + states[1][-1]).double() @ head[0]
            losses.append(float((score - label) ** 2))
            auxiliary += [
                next_token_mean(state, ids, embeddings)
                for state, ids in zip(states, (first, second), strict=True)
            ]
    expected = np.mean(losses) + 0.5 * np.mean(auxiliary)
    assert training_losses(run) == [pytest.approx(expected, abs=1e-4)]

    model = zoo.load(run / "model", backend="cpu")
    score, swapped = (
        model.classify([p])[0]["score"] for p in (("the fox", "it"), ("it", "the fox"))
    )
    tokenizer = model.tokenizer
    ids = [
        torch.tensor(tokenizer.encode([pair], max_tokens=None)[0].ids)
        for pair in (("the fox", "it"), ("it", "the fox"))
    ]
    total = sum(hidden_of(row)[-1].double() @ head[0] for row in ids)
    assert (score, swapped) == pytest.approx((float(total), float(total)), abs=1e-5)
    evaluation = make_evaluation(
        "regression", model.checkpoint, model.session, text="a", pair="b", label="score"
    )
    logged = records(run, "validation")[-1]["metrics"]
    assert evaluation.evaluate([held]).metrics["mse"] == pytest.approx(logged["mse"], abs=1e-4)
    with pytest.raises(UsageError, match="is one text, and the model compares two"):
        model.classify(["the fox"])


def test_choices(published_gpt: Path, tmp_path: Path) -> None:
    """The loss is that of transformers' double-head class, with the extract token's index."""
    table = tree(published_gpt, choices(tmp_path / "t.jsonl"), task="multiple-choice", **STILL)
    run = finetune(tmp_path / "run", table)
    convert(CheckpointDir(run / "model", "model"), tmp_path / "hub", to="hub")
    kind: Any = transformers.OpenAIGPTDoubleHeadsModel
    model = kind.from_pretrained(tmp_path / "hub").eval()
    losses, auxiliary = list[float](), list[float]()
    for batch in first_batches(run):
        texts, count = real_rows(batch), batch["input_ids"].shape[1]
        for number, label in enumerate(batch["labels"]):
            scores = []
            for ids in texts[number * count : (number + 1) * count]:
                if not len(ids):
                    continue
                with torch.no_grad():
                    outputs = model(ids[None, None], mc_token_ids=torch.tensor([[len(ids) - 1]]))
                scores.append(outputs.mc_logits.flatten()[0].double())
                logits = outputs.logits[0, 0, :-1].double()
                auxiliary.append(float(F.cross_entropy(logits, ids[1:])))
            losses.append(float(F.cross_entropy(torch.stack(scores), label)))
    expected = np.mean(losses) + 0.5 * np.mean(auxiliary)
    assert training_losses(run) == [pytest.approx(expected, abs=1e-5)]


@pytest.mark.long
def test_resume(published_gpt: Path, tmp_path: Path) -> None:
    steps = {"max_steps": 4, "eval_steps": 2, "save_steps": 1, "save_total_limit": 4}
    assert_resumes_exactly(
        tmp_path, tree(published_gpt, pairs(tmp_path / "t.tsv"), **steps), step=1
    )


def test_the_preset_is_of_tasks() -> None:
    values = {"family": "gpt", "preset": "paper-inputs", "data": {"train": ["t.tsv"]}}
    config = finetune_config(values, {"task": "text-classification"})
    assert config.task_args == INPUTS and config.optimizer.learning_rate == 6.25e-5
    assert finetune_config(values, {"task": "token-classification"}).task_args == {}
    changed = finetune_config(values, {"task": "regression", "task_args": {"lm_coef": 0.0}})
    assert changed.task_args == {**INPUTS, "lm_coef": 0.0}


def test_refusals(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv")
    for options, message in (
        ({"input_tokens": ["a", "b", "c"]}, r"puts \[CLS\] and \[SEP\] around texts already"),
        ({"lm_coef": 0.5}, "does not predict tokens in addition to text-classification"),
        ({"lm_coef": -1.0}, "lm_coef is -1.0"),
        ({"both_orders": True}, "both_orders needs pairs of texts"),
    ):
        refused(tmp_path / "run", settings(model, table, task_args=options), message)
