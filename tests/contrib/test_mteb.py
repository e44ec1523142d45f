"""Sentence encoders in MTEB: the methods of its protocol, and an evaluation by it.

What needs mteb is skipped where it is not installed.
"""

import importlib.util
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from tests.checkpoints import Make, hub_checkpoint
from tests.contrib.sts import mteb_scores
from tests.inference.conftest import Small, small
from tests.tasks.sentence_embedding.making import pooled
from zoo.contrib.mteb import Encoder
from zoo.errors import UsageError
from zoo.sentence_models.pooling import Pooling
from zoo.tasks import make_evaluation

__all__ = ["Make", "hub_checkpoint", "small"]
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")
TEXTS = ["a b", "c d e", "", "a " * 60, "j i h g"]
TASK = SimpleNamespace(name="STS12", type="STS")


def encode(model: Encoder, texts: list[str], prompt_type: Any = None) -> Any:
    """Encode texts in batches of two, as mteb's loaders have them."""
    batches = [{"text": texts[k : k + 2]} for k in range(0, len(texts), 2)]
    place = {"hf_split": "test", "hf_subset": "default"}
    return model.encode(batches, task_metadata=TASK, **place, prompt_type=prompt_type, batch_size=2)


def test_embeddings_of_batches(small: Small) -> None:
    model, _ = small("BertModel")
    vectors = encode(Encoder(model), TEXTS)
    np.testing.assert_allclose(vectors, model.embed(TEXTS), atol=1e-6)
    with pytest.raises(UsageError, match="inputs of the task are image, and the model reads texts"):
        Encoder(model).encode([{"image": [0]}], task_metadata=TASK, hf_split="", hf_subset="")


@pytest.mark.parametrize(
    ("prompts", "prompt_type", "expected"),
    [
        ({"STS": "a ", "STS12": "b ", "STS12-query": "c "}, "query", "c "),
        ({"STS": "a ", "STS12": "b ", "STS12-query": "c "}, "document", "b "),
        ({"STS-query": "d ", "STS": "a ", "query": "e "}, SimpleNamespace(value="query"), "d "),
        ({"query": "e "}, "query", "e "),
        ({"query": "e "}, None, ""),
    ],
)
def test_the_most_specific_prompt(
    small: Small, prompts: dict[str, str], prompt_type: Any, expected: str
) -> None:
    """In the order that the documentation of ``EncoderProtocol.encode`` gives."""
    model, _ = small("BertModel")
    vectors = encode(Encoder(model, prompts=prompts), TEXTS, prompt_type)
    np.testing.assert_allclose(vectors, model.embed(expected + t for t in TEXTS), atol=1e-6)


def test_similarities(small: Small) -> None:
    model, rng = Encoder(small("BertModel")[0]), np.random.default_rng(0)
    first, second = rng.normal(size=(2, 4, 8))
    lengths = np.linalg.norm(first, axis=1)[:, None] * np.linalg.norm(second, axis=1)
    expected = first @ second.T / lengths
    np.testing.assert_allclose(model.similarity(first, torch.tensor(second)), expected)
    np.testing.assert_allclose(model.similarity_pairwise(first, second), np.diagonal(expected))
    assert float(model.similarity(first[0], second[1])) == pytest.approx(expected[0, 1])


def test_prompts_and_similarity_of_the_model(small: Small) -> None:
    """Where no name of a task or type fits, those of queries and documents, or the default."""
    model, rng = small("BertModel")[0], np.random.default_rng(0)
    prompts = {"query": "a ", "passage": "b ", "STS22": "c ", "web": "d "}
    named = pooled(
        model, Pooling(prompts=prompts, default_prompt_name="web", similarity_fn_name="dot")
    )
    encoder, plain = Encoder(named), pooled(model, Pooling())
    for kind, prompt in (("query", "a "), ("document", "b "), (None, "d ")):
        expected = plain.embed(prompt + text for text in TEXTS)
        np.testing.assert_allclose(encode(encoder, TEXTS, kind), expected, atol=1e-6)
    first, second = rng.normal(size=(2, 4, 8))
    np.testing.assert_allclose(encoder.similarity(first, second), first @ second.T)
    pairs = encoder.similarity_pairwise(first, torch.tensor(second))
    np.testing.assert_allclose(pairs, (first * second).sum(1))
    assert encoder.similarity(torch.ones(3, dtype=torch.bfloat16), np.ones(3)).item() == 3


@pytest.mark.skipif(importlib.util.find_spec("mteb") is None, reason="pip install mteb")
def test_an_evaluation_by_mteb(small: Small, tmp_path: Path) -> None:
    """Correlations of a task on local pairs are those of ``zoo eval``."""
    import mteb

    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(list("abcdefghij"), size)) for size in rng.integers(1, 9, 40)]
    columns = {"sentence1": texts[::2], "sentence2": texts[1::2], "score": rng.random(20).tolist()}

    model, _ = small("BertModel")
    encoder = Encoder(model)
    assert isinstance(encoder, mteb.models.EncoderProtocol)
    scores = mteb_scores(encoder, columns, (0, 1))
    path = tmp_path / "t.jsonl"
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = make_evaluation(
        "sentence-embedding",
        model.checkpoint,
        model.session,
        text="sentence1",
        pair="sentence2",
        label="score",
    )
    expected = task.evaluate([path]).metrics
    names = {"spearman": "cosine_spearman", "pearson": "cosine_pearson"}
    for name, theirs in names.items():
        assert scores[theirs] == pytest.approx(expected[name], abs=1e-5)
    assert scores["spearman"] == pytest.approx(expected["spearman"], abs=1e-5)
