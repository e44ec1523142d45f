"""Ranking of texts that are read in windows, against scores of transformers' windows."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import zoo
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, settings, setup_of, write_table
from tests.inference.conftest import Small
from tests.tasks.reranker.test_train import loss_and_gradient
from tests.training.runs import records
from zoo.api import Model
from zoo.errors import UsageError
from zoo.inference.processing.windows import WindowSettings
from zoo.tasks.retrieval.scoring import make_ranker

pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
QUERY = "c a"
TEXTS = ["a b c d e f g h i j a c e", "b", "j i h g f e d c b a j i h g f e d", "d e"]
LENGTH, STRIDE = 11, 2
READING: Any = {"max_seq_len": LENGTH, "doc_stride": STRIDE}
POOLINGS: dict[str, Any] = {"max": np.max, "mean": np.mean, "first": lambda scores: scores[0]}


def pair_scores(source: Path) -> list[list[float]]:
    """Return the scores of the windows of each text, by a cross-encoder."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    network = transformers.AutoModelForSequenceClassification.from_pretrained(source).eval()
    scores = []
    for text in TEXTS:
        windows = tokenizer(
            QUERY,
            text,
            truncation="only_second",
            max_length=LENGTH,
            stride=STRIDE,
            return_overflowing_tokens=True,
            padding=True,
            return_tensors="pt",
        )
        windows.pop("overflow_to_sample_mapping")
        with torch.inference_mode():
            scores.append(network(**windows).logits[:, 0].tolist())
    return scores


def cosines(source: Path) -> list[list[float]]:
    """Return the cosines of the query and the windows of each text, by means of tokens."""
    import transformers

    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    network = transformers.AutoModel.from_pretrained(source).eval()

    def vectors(text: str) -> torch.Tensor:
        windows = tokenizer(
            text,
            truncation=True,
            max_length=LENGTH,
            stride=STRIDE,
            return_overflowing_tokens=True,
        )["input_ids"]
        means = []
        for ids in windows:
            with torch.inference_mode():
                hidden = network(input_ids=torch.tensor([ids])).last_hidden_state[0]
            means.append(torch.nn.functional.normalize(hidden.mean(0), dim=0))
        return torch.stack(means)

    (query,) = vectors(QUERY)
    return [(vectors(text) @ query).tolist() for text in TEXTS]


def assert_scores(model: Model, window_scores: list[list[float]], tmp_path: Path) -> None:
    """Check rerank and both rankings of evaluations against the scores of windows."""
    assert [len(scores) > 1 for scores in window_scores] == [True, False, True, False]
    for pooling, pool in POOLINGS.items():
        expected = [float(pool(scores)) for scores in window_scores]
        options = {**READING, "window_pooling": pooling}
        ranked = model.rerank(QUERY, TEXTS, **options)
        assert [row["text"] for row in ranked] == [TEXTS[row["corpus_id"]] for row in ranked]
        scores = {row["corpus_id"]: row["score"] for row in ranked}
        assert scores == pytest.approx(dict(enumerate(expected)), abs=1e-5)
        assert [row["score"] for row in ranked] == sorted(scores.values(), reverse=True)
        # The relevant text is the one that is ranked second.
        table = write_table(
            tmp_path / f"{pooling}.jsonl",
            [
                {
                    "text": QUERY,
                    "pair": TEXTS,
                    "label": [int(k == ranked[1]["corpus_id"]) for k in range(len(TEXTS))],
                }
            ],
        )
        result = zoo.evaluate(model, task="reranker", eval=table, pair="pair", **options)
        assert result.metrics["mrr_at_10"] == pytest.approx(0.5)
    assert model.rerank(QUERY, TEXTS, **READING) == model.rerank(
        QUERY, TEXTS, window_pooling="max", **READING
    )


def test_a_cross_encoder_scores_windows_with_the_query(small: Small, tmp_path: Path) -> None:
    model, source = small("BertForSequenceClassification", num_labels=1)
    assert_scores(model, pair_scores(source), tmp_path)
    with pytest.raises(UsageError, match="the text in each window has 14 tokens"):
        model.rerank("a " * 11, TEXTS, **READING)


def test_an_encoder_compares_the_query_with_windows(small: Small, tmp_path: Path) -> None:
    model, source = small("BertModel")
    expected = cosines(source)
    assert_scores(model, expected, tmp_path)
    windows = WindowSettings(LENGTH, STRIDE)
    ranker = make_ranker(model.checkpoint, model.session, windows=windows)
    ((scores, _),) = ranker.search([QUERY], TEXTS)
    np.testing.assert_allclose(scores, [max(row) for row in expected], atol=1e-5)
    with pytest.raises(UsageError, match="--window-pooling is for texts that are read in windows"):
        model.rerank(QUERY, TEXTS, window_pooling="max")


@pytest.mark.parametrize("pooling", ["max", "mean", "first"])
def test_training_pools_the_scores_of_windows(
    pretrained: Pretrained, tmp_path: Path, pooling: Any
) -> None:
    """The loss and its gradient are those of transformers' windows, and metrics of zoo eval."""
    import transformers

    model, source = pretrained("BertForSequenceClassification", num_labels=1)
    rows = []
    for number, query in enumerate(["a b", "c", "d e f"]):
        labels = [(number + k) % 3 / 2 for k in range(len(TEXTS))]
        rows.append({"text": query, "pair": TEXTS, "label": labels})
    data = write_table(tmp_path / "t.jsonl", rows)
    windows = {"doc_stride": STRIDE, "window_pooling": pooling}
    columns = {"pair": "pair", "label": "label", "eval": [str(data)]}
    tree = settings(
        model,
        data,
        task="reranker",
        data=columns,
        max_seq_len=LENGTH,
        task_args={"loss": "list-net", **windows},
        max_steps=2,
        eval_steps=2,
        save_steps=2,
    )
    run = finetune(tmp_path / "run", tree)
    loss, gradient = loss_and_gradient(setup_of(run))

    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    network: Any = transformers.AutoModelForSequenceClassification.from_pretrained(source)
    network = network.double().eval()
    losses = []
    for row in rows:
        scores = []
        for text in TEXTS:
            encoded = tokenizer(
                row["text"],
                text,
                truncation="only_second",
                max_length=LENGTH,
                stride=STRIDE,
                return_overflowing_tokens=True,
                padding=True,
                return_tensors="pt",
            )
            encoded.pop("overflow_to_sample_mapping")
            logits = network(**encoded).logits[:, 0]
            pooled = {"max": logits.amax(0), "mean": logits.mean(0), "first": logits[0]}
            scores.append(pooled[pooling])
        shares = torch.tensor(row["label"], dtype=torch.float64).softmax(0)
        losses.append(-(shares * torch.stack(scores).log_softmax(0)).sum())
    expected: Any = torch.stack(losses).mean()
    expected.backward()
    words = network.bert.embeddings.word_embeddings.weight.grad
    assert float(loss) == pytest.approx(float(expected.detach()), abs=1e-6)
    torch.testing.assert_close(gradient, words, atol=1e-6, rtol=1e-5)

    (record,) = [entry for entry in records(run, "validation") if entry["step"] == 2]
    options = {"max_seq_len": LENGTH, **windows, "pair": "pair"}
    result = zoo.evaluate(run / "model", task="reranker", eval=data, **options)
    shared = result.metrics.keys() & record["metrics"].keys()
    assert shared >= {"ndcg_at_10", "mrr_at_10"}
    for name in shared - {"queries", "texts"}:
        assert record["metrics"][name] == pytest.approx(result.metrics[name], abs=1e-6)
