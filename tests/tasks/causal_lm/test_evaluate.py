"""Metrics of completions that users select, in runs and in evaluations, against the library."""

import json
from pathlib import Path
from typing import Any

import pytest
import sacrebleu

import zoo
from tests.finetuning.making import (
    assert_two_processes_equal_one,
    finetune,
    settings,
    write_table,
)
from tests.tasks.causal_lm.making import MakeSource, prompts, source
from tests.training.runs import records
from zoo.errors import UsageError

__all__ = ["source"]
TASK = "causal-lm"
COMPLETIONS = [" the cat", " a dog ran", " on the mat."]


@pytest.fixture
def model(source: MakeSource) -> Path:
    return source()


def several(path: Path, count: int = 24) -> Path:
    """Write prompts, some empty or with spaces at the end, with one to three completions."""
    rows = []
    for k in range(count):
        prompt = ["the cat sat", "a dog ran to ", "", "on the mat"][k % 4]
        rows.append({"text": prompt, "label": COMPLETIONS[: k % 3 + 1]})
    return write_table(path, rows)


def test_metrics_are_those_of_the_library_on_the_completions(model: Path, tmp_path: Path) -> None:
    table = several(tmp_path / "t.jsonl")
    tree = settings(
        model,
        table,
        task=TASK,
        data={"label": "label", "eval": [str(table)]},
        metric_for_best_model="chrf",
        metrics=["ter"],
        optimizer={"learning_rate": 0.01},
        max_steps=12,
        eval_steps=6,
        save_steps=6,
    )
    run = finetune(tmp_path / "run", tree)
    predictions: list[Any] = []
    result = zoo.evaluate(
        run / "model",
        task=TASK,
        eval=table,
        metric=["chrf:word_order=2", "ter", "rouge1"],
        record=False,
        on_prediction=predictions.append,
    )
    rows = [json.loads(line) for line in table.open()]
    texts = [row["prediction"] for row in predictions]
    longest = max(record["tokens"] for record in predictions)
    prompt_texts = [row["text"].rstrip() for row in rows]
    loaded = zoo.load(run / "model", backend="cpu")
    generated = loaded.generate(prompt_texts, max_new_tokens=longest)
    assert texts == [row["generated"].strip() for row in generated]
    assert len(set(texts)) > 1
    references = [row["label"] for row in rows]
    streams: Any = [[r[n] if n < len(r) else None for r in references] for n in range(3)]
    plus = sacrebleu.CHRF(word_order=2).corpus_score(texts, streams).score
    ter = sacrebleu.TER().corpus_score(texts, streams).score
    assert (result.metrics["chrf"], result.metrics["ter"]) == (plus, ter)
    assert {"loss", "perplexity", "accuracy", "tokens", "samples"} <= result.metrics.keys()

    validation = records(run, "validation")
    best = max(validation, key=lambda record: record["metrics"]["chrf"])
    manifest = json.loads((run / "model" / "zoo.json").read_text())
    assert manifest["training"]["best"] == [best["metrics"]["chrf"], best["step"]]
    chrf = sacrebleu.CHRF().corpus_score(texts, streams).score
    assert best["metrics"]["chrf"] == pytest.approx(chrf)
    assert best["metrics"]["ter"] == pytest.approx(ter)


def test_documents_have_no_completions(model: Path, tmp_path: Path) -> None:
    table = write_table(tmp_path / "t.tsv", [{"text": f"the cat {k}"} for k in range(20)])
    with pytest.raises(UsageError, match="chrf is a metric of generated texts, and the data have"):
        finetune(tmp_path / "run", settings(model, table, task=TASK, metric_for_best_model="chrf"))
    assert not (tmp_path / "run").exists()


def test_what_only_generation_reads_needs_a_metric(model: Path, tmp_path: Path) -> None:
    table = prompts(tmp_path / "t.jsonl")
    with pytest.raises(UsageError, match="num_beams is for metrics of generated texts"):
        zoo.evaluate(model, task=TASK, eval=table, num_beams=2)


@pytest.mark.long
@pytest.mark.parametrize("method", ["prompt", "prefix", "lora"])
def test_a_run_with_an_adapter_has_the_metrics_of_zoo_eval(
    method: str, model: Path, tmp_path: Path
) -> None:
    table = several(tmp_path / "t.jsonl")
    tree = settings(
        model,
        table,
        task=TASK,
        data={"label": "label", "eval": [str(table)]},
        adapter={"method": method},
        metrics=["chrf"],
        optimizer={"learning_rate": 0.05},
        max_steps=4,
        eval_steps=4,
        save_steps=4,
    )
    run = finetune(tmp_path / "run", tree)
    result = zoo.evaluate(run / "model", task=TASK, eval=table, metric=["chrf"], record=False)
    (validation,) = records(run, "validation")
    assert validation["metrics"]["chrf"] == pytest.approx(result.metrics["chrf"])


@pytest.mark.long
def test_two_processes_have_the_metrics_of_one(model: Path, tmp_path: Path) -> None:
    table = several(tmp_path / "t.jsonl", 15)
    tree = settings(
        model,
        table,
        task=TASK,
        data={"label": "label", "eval": [str(table)]},
        config={"dropout": 0.0, "attention_dropout": 0.0, "embedding_dropout": 0.0},
        metrics=["chrf"],
        max_steps=4,
        eval_steps=2,
    )
    assert_two_processes_equal_one(tmp_path / "runs", tree)
