"""Metrics of generated texts that users select, in runs and in evaluations, against libraries."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from rouge_score.rouge_scorer import RougeScorer

import zoo
from tests import warm
from tests.finetuning.making import assert_two_processes_equal_one, finetune, write_table
from tests.tasks.seq2seq.making import TASK, pairs, sentences, tree_of
from tests.tasks.seq2seq.making import model as model
from tests.tasks.seq2seq.making import t5_hub as t5_hub
from tests.training.runs import records
from zoo.errors import UsageError

METRICS = ["rougeL", "bleu:max_ngram_order=1", "ter", "squad_f1"]


def several_targets(path: Path, count: int) -> Path:
    """Write sentences with one to three targets; the first one is trained on."""
    rows = []
    for k, text in enumerate(sentences(count)):
        first = "cat" if k % 2 else "dog"
        rows.append({"in": text, "out": [first, "cat cat", text][: k % 3 + 1]})
    return write_table(path, rows)


@pytest.fixture(scope="module")
def run(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("metrics")
    table = several_targets(folder / "e.jsonl", 24)
    tree = tree_of(
        model,
        several_targets(folder / "t.jsonl", 60),
        data={"eval": [str(table)]},
        metrics=METRICS,
        metric_for_best_model="chrf",
        optimizer={"learning_rate": 0.02},
        max_steps=30,
        eval_steps=15,
        save_steps=15,
    )
    return finetune(folder / "run", tree)


def test_metrics_are_those_of_the_libraries_on_the_generated_texts(run: Path) -> None:
    predictions: list[Any] = []
    result = zoo.evaluate(
        run / "model",
        task=TASK,
        eval=run.parent / "e.jsonl",
        text="in",
        label="out",
        metric=[*METRICS, "chrf"],
        record=False,
        on_prediction=predictions.append,
    )
    rows = [json.loads(line) for line in (run.parent / "e.jsonl").open()]
    texts = [row["prediction"] for row in predictions]
    references = [row["out"] for row in rows]
    assert len(set(texts)) > 1
    labels = [row["out"] if len(row["out"]) > 1 else row["out"][0] for row in rows]
    assert [row["label"] for row in predictions] == labels
    streams: Any = [[r[n] if n < len(r) else None for r in references] for n in range(3)]
    bleu, ter = sacrebleu.BLEU(max_ngram_order=1), sacrebleu.TER()
    expected = {
        "bleu": bleu.corpus_score(texts, streams).score,
        "ter": ter.corpus_score(texts, streams).score,
        "chrf": sacrebleu.CHRF().corpus_score(texts, streams).score,
    }
    assert {name: result.metrics[name] for name in expected} == expected
    scorer = RougeScorer(["rougeL"])
    f1 = [
        scorer.score_multi(r, t)["rougeL"].fmeasure for r, t in zip(references, texts, strict=True)
    ]
    assert result.metrics["rougeL"] == pytest.approx(sum(f1) / len(f1))
    exact = [t in [x.strip() for x in r] for r, t in zip(references, texts, strict=True)]
    assert result.metrics["exact_match"] == sum(exact) / len(exact)
    assert result.details["signatures"]["bleu"] == bleu.get_signature().format()
    for name in expected:
        low, high = result.details["intervals"][name]
        assert low <= result.metrics[name] <= high and low < high

    # The run computes the same from statistics of its batches.
    validation = records(run, "validation")
    best = max(validation, key=lambda record: record["metrics"]["chrf"])
    for name in (*expected, "rougeL", "squad_f1", "exact_match"):
        assert best["metrics"][name] == pytest.approx(result.metrics[name])
    manifest = json.loads((run / "model" / "zoo.json").read_text())
    assert manifest["training"]["best"] == [best["metrics"]["chrf"], best["step"]]


@pytest.mark.long
def test_a_lower_rate_of_edits_is_better(model: Path, tmp_path: Path) -> None:
    table = pairs(tmp_path / "t.tsv")
    tree = tree_of(
        model,
        table,
        data={"eval": [str(table)]},
        metric_for_best_model="ter",
        optimizer={"learning_rate": 0.02},
        max_steps=9,
        eval_steps=3,
        save_steps=3,
    )
    run = finetune(tmp_path / "run", tree)
    values = [record["metrics"]["ter"] for record in records(run, "validation")]
    manifest = json.loads((run / "model" / "zoo.json").read_text())
    assert manifest["training"]["best"][0] == min(values) < max(values)


@pytest.mark.long
def test_the_command_prints_values_and_signatures(run: Path) -> None:
    done = warm.zoo(
        *("eval", run / "model", "--task", TASK, "--eval", run.parent / "e.jsonl"),
        *("--text", "in", "--label", "out", "--limit", "6", "--backend", "cpu"),
        *("--metric", "rouge1:use_stemmer=true", "--metric", "bleu"),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^rouge1 +\d\.\d+ +\d\.\d+ to \d\.\d+$", done.stdout, re.MULTILINE)
    assert "type:rouge1|stemmer:yes|rouge-score:0.1" in done.stdout
    signature = "nrefs:var|case:mixed|eff:no|tok:13a|smooth:exp|version:2"
    assert signature in done.stdout
    (evaluation,) = json.loads((run / "model" / "zoo.json").read_text())["evaluations"]
    assert evaluation["signatures"]["bleu"].startswith(signature)
    assert evaluation["settings"]["metric"] == ["rouge1:use_stemmer=true", "bleu"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"metrics": ["rougel"]}, "no metric 'rougel' to select; did you mean rougeL"),
        (
            {"metrics": ["bleu:tokenize=moses"]},
            "the metric bleu: tokenize is 'moses'; it may be 13a, intl, zh",
        ),
        ({"metrics": ["bleu:max_ngram_order=0"]}, "max_ngram_order is 0, not from 1 to 100"),
        ({"metrics": ["bleu"], "task_args": {"generate": False}}, "do not generate"),
    ],
)
def test_what_does_not_fit_is_one_line(
    model: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    tree = tree_of(model, pairs(tmp_path / "t.tsv"), **changes)
    with pytest.raises(UsageError, match=message):
        finetune(tmp_path / "run", tree)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ([], "e.jsonl:2: the target is an empty list"),
        (["a", None], "e.jsonl:2: the target is ['a', None], which is not text"),
        (None, "e.jsonl:2 has no out"),
    ],
)
def test_a_row_without_a_reference_is_one_line(
    run: Path, tmp_path: Path, target: Any, message: str
) -> None:
    rows = [{"in": "a", "out": "b"}, {"in": "a b", "out": target}]
    table = write_table(tmp_path / "e.jsonl", rows)
    done = warm.zoo(
        *("eval", run / "model", "--task", TASK, "--eval", table, "--metric", "bleu"),
        *("--text", "in", "--label", "out", "--backend", "cpu"),
    )
    assert done.returncode == 2 and message in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.long
def test_two_processes_have_the_metrics_of_one(model: Path, tmp_path: Path) -> None:
    table = several_targets(tmp_path / "e.jsonl", 15)
    tree = tree_of(
        model,
        pairs(tmp_path / "t.tsv"),
        data={"eval": [str(table)]},
        metrics=["bleu:max_ngram_order=1", "rouge1"],
        max_steps=4,
        eval_steps=2,
    )
    assert_two_processes_equal_one(tmp_path / "runs", tree)
