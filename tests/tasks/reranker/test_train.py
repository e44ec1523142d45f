"""Losses of rerankers, against the classes of sentence-transformers, and their runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import zoo
from tests import warm
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, settings, setup_of, write_table
from tests.tasks.reranker.making import samples
from tests.tasks.sentence_embedding.making import (
    assert_equal,
    float64,
    trained_module,
    wide,
)
from tests.training.runs import records
from zoo.errors import ZooError

TASK = "reranker"
WORDS = "embeddings.tokens.weight"
WEIGHTINGS = {
    "none": "NoWeightingScheme",
    "ndcg-loss1": "NDCGLoss1Scheme",
    "ndcg-loss2": "NDCGLoss2Scheme",
    "lambda-rank": "LambdaRankScheme",
    "ndcg-loss2++": "NDCGLoss2PPScheme",
}


def lists(count: int = 6) -> list[dict[str, Any]]:
    """Return queries with lists of texts, graded from 0 to 3."""
    return [
        {
            "text": sample["query"],
            "pair": sample["positive"] + sample["negative"],
            "label": [(3 * k + n) % 4 for n in range(len(sample["positive"]) + 4)],
        }
        for k, sample in enumerate(samples(count))
    ]


def pairs(rows: list[dict[str, Any]], low: float = 0.0, high: float = 3.0) -> list[dict[str, Any]]:
    """Return a row for each text, with labels from 0 to 1."""
    return [
        {"text": row["text"], "pair": text, "label": (label - low) / (high - low)}
        for row in rows
        for text, label in zip(row["pair"], row["label"], strict=True)
    ]


def scored(count: int = 8) -> list[dict[str, Any]]:
    """Return queries with a text, two negatives, and a teacher's scores."""
    return [
        {
            "text": sample["query"],
            "pair": sample["positive"][0],
            "other": sample["negative"][0],
            "third": sample["negative"][1],
            "scores": [3.0 + k, 1.0 - k, 0.5 * k],
            "margins": [2.0 + 2 * k, 3.0 + 0.5 * k],
        }
        for k, sample in enumerate(samples(count))
    ]


def tree_of(model: Path, train: Path, held: Path, **changes: Any) -> dict[str, Any]:
    data = {"pair": "pair", "label": "label", "eval": [str(held)], **changes.pop("data", {})}
    return settings(model, train, **{"task": TASK, "data": data, "max_steps": 1, **changes})


def loss_and_gradient(setup: Any) -> tuple[Tensor, Tensor]:
    """Return the loss of the evaluation data as one batch, and the gradient of the words."""
    module, rows = trained_module(setup), setup.eval_rows
    batch = setup.objective.collate([rows.example(k, None) for k in range(len(rows))])
    total = setup.objective.compute_loss(module, wide(batch.tensors)).sums[TASK]
    mean = total / batch.counts[TASK]
    mean.backward()
    (words,) = [p for name, p in module.named_parameters() if name.endswith(WORDS)]
    assert words.grad is not None
    return mean.detach(), words.grad


def compare(run: Path, source: Path, loss: Any, inputs: list[Any], labels: Any) -> None:
    """Compare the loss and its gradient with a class of sentence-transformers."""
    library: Any = pytest.importorskip("sentence_transformers")
    model = library.CrossEncoder(str(source), device="cpu").double()
    with float64():
        expected = loss(model)(inputs, labels)
        expected.backward()
    found = loss_and_gradient(setup_of(run))
    words = model.model.bert.embeddings.word_embeddings.weight
    assert words.grad.abs().max() > 1e-5, "a gradient to compare"
    assert_equal(found[0], expected.detach())
    assert_equal(found[1], words.grad)


def library_losses() -> Any:
    return pytest.importorskip("sentence_transformers.cross_encoder.losses")


def test_binary_cross_entropy_is_the_library_s(pretrained: Pretrained, tmp_path: Path) -> None:
    model, source = pretrained("BertForSequenceClassification", num_labels=1)
    rows = pairs(lists())
    data = write_table(tmp_path / "t.jsonl", rows)
    run = finetune(tmp_path / "run", tree_of(model, data, data))
    inputs = [[row[name] for row in rows] for name in ("text", "pair")]
    labels = torch.tensor([row["label"] for row in rows])
    compare(run, source, library_losses().BinaryCrossEntropyLoss, inputs, labels)


def test_cross_entropy_is_the_library_s(pretrained: Pretrained, tmp_path: Path) -> None:
    """Of four grades; the model classifies pairs."""
    model, source = pretrained("BertForSequenceClassification", num_labels=4)
    rows = pairs(lists(), 0, 1)
    data = write_table(tmp_path / "t.jsonl", rows)
    run = finetune(
        tmp_path / "run", tree_of(model, data, data, task_args={"loss": "cross-entropy"})
    )
    inputs = [[row[name] for row in rows] for name in ("text", "pair")]
    labels = torch.tensor([int(row["label"]) for row in rows])
    compare(run, source, library_losses().CrossEntropyLoss, inputs, labels)
    scores = zoo.load(run / "model", backend="cpu").run("classify", [("a", "b")])[0]["scores"]
    assert list(scores) == ["0", "1", "2", "3"]


@pytest.mark.long
@pytest.mark.parametrize("grouped", [False, True])
def test_list_net_is_the_library_s(pretrained: Pretrained, tmp_path: Path, grouped: bool) -> None:
    """Of lists of different lengths in a row each, and of rows that are joined."""
    model, source = pretrained("BertForSequenceClassification", num_labels=1)
    rows = lists()
    data = write_table(tmp_path / "t.jsonl", pairs(rows, 0, 1) if grouped else rows)
    run = finetune(tmp_path / "run", tree_of(model, data, data, task_args={"loss": "list-net"}))
    inputs = [[row[name] for row in rows] for name in ("text", "pair")]
    labels = [torch.tensor(row["label"]) for row in rows]
    compare(run, source, library_losses().ListNetLoss, inputs, labels)


@pytest.mark.long
@pytest.mark.parametrize("weighting", WEIGHTINGS)
def test_lambda_is_the_library_s(pretrained: Pretrained, tmp_path: Path, weighting: str) -> None:
    losses = library_losses()
    model, source = pretrained("BertForSequenceClassification", num_labels=1)
    rows = lists()
    data = write_table(tmp_path / "t.jsonl", rows)
    arguments = {"loss": "lambda", "weighting": weighting, "sigma": 2.0}
    run = finetune(tmp_path / "run", tree_of(model, data, data, task_args=arguments))
    scheme = getattr(losses, WEIGHTINGS[weighting])()
    inputs = [[row[name] for row in rows] for name in ("text", "pair")]
    labels = [torch.tensor(row["label"]) for row in rows]
    compare(
        run,
        source,
        lambda model: losses.LambdaLoss(model, weighting_scheme=scheme, sigma=2.0),
        inputs,
        labels,
    )


@pytest.mark.long
@pytest.mark.parametrize("label", ["scores", "margins"])
def test_margin_mse_is_the_library_s(pretrained: Pretrained, tmp_path: Path, label: str) -> None:
    model, source = pretrained("BertForSequenceClassification", num_labels=1)
    rows = scored()
    data = write_table(tmp_path / "t.jsonl", rows)
    columns = {"label": label, "negatives": ["other", "third"]}
    tree = tree_of(model, data, data, task_args={"loss": "margin-mse"}, data=columns)
    run = finetune(tmp_path / "run", tree)
    inputs = [[row[name] for row in rows] for name in ("text", "pair", "other", "third")]
    labels = torch.tensor([row[label] for row in rows])
    compare(run, source, library_losses().MarginMSELoss, inputs, labels)


@pytest.mark.long
@pytest.mark.by_default("lambda")
@pytest.mark.parametrize("loss", ["binary-cross-entropy", "lambda"])
def test_metrics_are_those_of_zoo_eval(pretrained: Pretrained, tmp_path: Path, loss: str) -> None:
    """Of the last evaluation; micro-batches change nothing."""
    model, _ = pretrained("BertForSequenceClassification", num_labels=1)
    rows = lists(8)
    high = 3 if loss == "lambda" else 1
    rows = pairs(rows, 0, 3 / high)
    data = write_table(tmp_path / "t.jsonl", rows)
    found = []
    for micro in (2, 8):
        changes: dict[str, Any] = {
            "max_steps": 3,
            "micro_batch_size": micro,
            "task_args": {"loss": loss},
            "lr_scheduler": {"warmup_steps": 0},
            "optimizer": {"learning_rate": 3e-3},
        }
        run = finetune(tmp_path / f"run{micro}", tree_of(model, data, data, **changes))
        found.append(records(run, "validation")[-1])
    assert found[0]["loss"] == pytest.approx(found[1]["loss"], rel=1e-5)
    trained = zoo.load(run / "model", backend="cpu")
    metrics = zoo.evaluate(trained, task=TASK, eval=data, pair="pair").metrics
    logged = found[1]["metrics"]
    for name in ("ndcg_at_10", "mrr_at_10", "map"):
        assert logged[name] == pytest.approx(metrics[name], abs=1e-4)
    scores = [r["score"] for r in trained.run("classify", [(r["text"], r["pair"]) for r in rows])]
    between = [0 < score < 1 for score in scores]
    assert between == [True] * len(scores) or loss == "lambda", "a sigmoid makes the scores"


def test_the_model_comes_back_in_the_library(pretrained: Pretrained, tmp_path: Path) -> None:
    """With the activation that the loss is for."""
    library: Any = pytest.importorskip("sentence_transformers")
    model, _ = pretrained("BertForMaskedLM")
    data = write_table(tmp_path / "t.jsonl", lists(8))
    for loss in ("list-net", "binary-cross-entropy"):
        options = {"loss": loss, "score_range": [0, 3]}
        folder = tmp_path / loss
        run = finetune(folder, tree_of(model, data, data, task_args=options))
        done = warm.zoo("convert", run / "model", "--to", "hub", "-o", tmp_path / f"{loss}-hub")
        assert done.returncode == 0, done.stderr
        texts = [(row["text"], text) for row in lists(2) for text in row["pair"]]
        theirs = library.CrossEncoder(str(tmp_path / f"{loss}-hub"), device="cpu").predict(texts)
        scores = zoo.load(run / "model", backend="cpu").run("classify", texts)
        assert [row["score"] for row in scores] == pytest.approx(theirs.tolist(), abs=1e-5)


@pytest.mark.long  # that of sentence embeddings reads the same options
def test_the_command(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained("BertForMaskedLM")
    data = write_table(tmp_path / "t.tsv", pairs(lists(8)))
    done = warm.zoo(
        *("finetune", model, "--task", TASK, "--train", data, "--pair", "pair"),
        *("--set", "task_args.loss=list-net", "--preset", "default", "--max-steps", "3"),
        *("--device", "cpu", "--set", "batch_size=2", "-o", tmp_path / "run"),
    )
    assert done.returncode == 0, done.stderr
    done = warm.zoo(
        *("eval", tmp_path / "run" / "model", "--task", TASK, "--eval", data, "--pair", "pair"),
        *("--backend", "cpu", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["metrics"]["queries"] == 8


@pytest.mark.by_default("list-net-changes0", "margin-mse-changes1", "cross-entropy-changes7")
@pytest.mark.parametrize(
    ("loss", "changes", "message"),
    [
        ("list-net", {"data": {"pair": None}}, "ranks texts for a query; name the column of the"),
        (
            "margin-mse",
            {"data": {"label": None, "negatives": ["other"]}},
            "needs the scores of a t",
        ),
        ("margin-mse", {"data": {"label": "teacher"}}, "has no column 'teacher'"),
        ("margin-mse", {"data": {"label": "one"}}, "has one text, and margin-mse compares it"),
        ("list-net", {"data": {"label": "margins", "negatives": ["other", "third"]}}, "for the n"),
        ("lambda", {"data": {"label": "scores"}}, "has 3 labels and 1 texts"),
        (
            "binary-cross-entropy",
            {"data": {"label": "scores", "negatives": ["other", "third"]}},
            "not from 0 to 1; --set task_args.score_range",
        ),
        ("cross-entropy", {"data": {"label": "half"}}, "the label 0.5 is not a class"),
        ("cross-entropy", {"data": {"label": "huge"}}, "has the label 100000000000, and cross-ent"),
        ("cross-entropy", {"task_args": {"score_range": [0, 3]}}, "cross-entropy takes classes"),
        ("rank-net", {}, "the task reranker: loss is 'rank-net'"),
        ("lambda", {"task_args": {"sigma": 0}}, "sigma is 0.0, not positive"),
    ],
)
def test_what_does_not_fit_is_one_line(
    pretrained: Pretrained, tmp_path: Path, loss: str, changes: dict[str, Any], message: str
) -> None:
    model, _ = pretrained("BertForMaskedLM")
    rows = [{**row, "one": 1, "half": 0.5, "huge": 1e11} for row in scored()]
    data = write_table(tmp_path / "t.jsonl", rows)
    arguments = {"loss": loss, **changes.pop("task_args", {})}
    columns = {"label": "one", **changes.pop("data", {})}
    with pytest.raises(ZooError, match=message):
        finetune(
            tmp_path / "run",
            tree_of(model, data, data, task_args=arguments, data=columns, **changes),
        )
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("label", [3, 0.5])
def test_grades_to_evaluate_are_those_of_the_training_data(
    pretrained: Pretrained, tmp_path: Path, label: float
) -> None:
    model, _ = pretrained("BertForMaskedLM")
    rows = [
        {"text": row["text"], "pair": row["pair"][0], "label": k % 3}
        for k, row in enumerate(lists())
    ]
    train = write_table(tmp_path / "t.jsonl", rows)
    held = write_table(tmp_path / "e.jsonl", [{**rows[0], "label": label}, *rows[1:]])
    tree = tree_of(model, train, held, task_args={"loss": "cross-entropy"})
    with pytest.raises(ZooError, match=f"the label {label:g} is not a class; .* 0 to 2"):
        finetune(tmp_path / "run", tree)


def test_queries_of_one_text_are_said(
    pretrained: Pretrained, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, _ = pretrained("BertForMaskedLM")
    rows = [{"text": row["text"], "pair": row["pair"][0], "label": 1} for row in lists(8)]
    data = write_table(tmp_path / "t.jsonl", rows)
    with caplog.at_level("WARNING", "zoo"):
        finetune(tmp_path / "run", tree_of(model, data, data))
    assert "each query to evaluate has one text, so that ndcg_at_10 does not tell" in caplog.text
