"""The task similarity, and the method ``encode``, against transformers and numpy."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from click.testing import CliRunner
from numpy.typing import NDArray

from tests.inference.conftest import Small
from tests.tasks.sentence_embedding.making import pooled
from zoo.cli.inference.run import command
from zoo.errors import UsageError
from zoo.inference.task import TaskWarning
from zoo.sentence_models.pooling import Pooling

PAIRS = [("a b", "a b"), ("a b", "c d e ab"), ("", "j"), ("a " * 60, "b")]
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")


def vectors(folder: Path, texts: list[str]) -> NDArray[np.float64]:
    """Return the mean hidden states of texts, cut at 40 tokens."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    network: Any = transformers.BertModel.from_pretrained(folder)
    network.eval()
    rows = []
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt", truncation=True, max_length=40)
        with torch.inference_mode():
            rows.append(network(**inputs).last_hidden_state[0].double().mean(0).numpy())
    return np.stack(rows)


def test_similarities_are_cosines_of_embeddings(small: Small) -> None:
    model, folder = small("BertModel")
    first, second = (vectors(folder, [pair[k] for pair in PAIRS]) for k in (0, 1))
    lengths = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    expected = (first * second).sum(1) / lengths
    result = model.similarity(PAIRS)
    assert result.shape == (4,) and result[0] == pytest.approx(1)
    np.testing.assert_allclose(result, expected, atol=1e-5)


@pytest.mark.by_default("cosine", "manhattan")
@pytest.mark.parametrize("function", ["cosine", "dot", "euclidean", "manhattan"])
def test_the_model_names_the_function(small: Small, function: Any) -> None:
    model, folder = small("BertModel")
    first, second = (vectors(folder, [pair[k] for pair in PAIRS]) for k in (0, 1))
    expected = {
        "cosine": (first * second).sum(1) / np.sqrt((first**2).sum(1) * (second**2).sum(1)),
        "dot": (first * second).sum(1),
        "euclidean": -np.sqrt(((first - second) ** 2).sum(1)),
        "manhattan": -abs(first - second).sum(1),
    }
    encoder = pooled(model, Pooling(similarity_fn_name=function))
    np.testing.assert_allclose(encoder.similarity(PAIRS), expected[function], atol=2e-4)


def test_pairs_on_the_command_line(small: Small, tmp_path: Path) -> None:
    model, _ = small("BertModel")
    lines = [{"text": a, "text_pair": b, "gold": k} for k, (a, b) in enumerate(PAIRS)]
    path = tmp_path / "pairs.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    arguments = ["similarity", str(model.checkpoint.path)]
    printed = CliRunner().invoke(command, [*arguments, "--input", str(path)]).stdout
    results = [json.loads(line) for line in printed.splitlines()]
    assert [result["similarity"] for result in results] == model.similarity(PAIRS).tolist()
    assert [result["gold"] for result in results] == [0, 1, 2, 3]
    assert [result.get("truncated", 0) for result in results] == [0, 0, 0, 22]
    failed = CliRunner().invoke(command, [*arguments, "a", "b", "c"])
    assert "3 texts are not pairs; give a text and a text_pair" in str(failed.exception)


def test_cut_texts_are_counted_in_a_warning(small: Small) -> None:
    model, _ = small("BertModel")
    with pytest.warns(TaskWarning, match="was longer than 40 tokens and was cut"):
        model.similarity(PAIRS)


def test_encode_returns_the_embeddings_for_any_batch_size(small: Small) -> None:
    model, folder = small("BertModel")
    texts = [text for pair in PAIRS for text in pair]
    expected = vectors(folder, texts)
    for size in (None, 1, 3):
        result = model.encode(texts, batch_size=size, task_name="STS", show_progress_bar=False)
        assert result.dtype == np.float32
        np.testing.assert_allclose(result, expected, atol=1e-5)
    with pytest.raises(UsageError, match="a batch of 0 texts is not possible"):
        model.encode(texts, batch_size=0)
