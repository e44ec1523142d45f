"""The step of datatrove that embeds, in its own executors."""

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zoo
from tests.checkpoints import hub_checkpoint
from tests.inference.conftest import Small, small

executor: Any = pytest.importorskip("datatrove.executor")
readers: Any = pytest.importorskip("datatrove.pipeline.readers")
writers: Any = pytest.importorskip("datatrove.pipeline.writers.jsonl")
pytestmark = pytest.mark.filterwarnings("ignore::zoo.inference.task.TaskWarning")

__all__ = ["hub_checkpoint", "small"]


def test_each_document_has_the_embedding_of_its_text(small: Small, tmp_path: Path) -> None:
    from zoo.contrib.datatrove import Embedder

    model = small("BertModel")[0]
    source = tmp_path / "texts"
    source.mkdir()
    for number in range(3):
        rows = [{"id": f"{number}-{k}", "text": "a b c " * (k + 1)} for k in range(5)]
        text = "".join(f"{json.dumps(row)}\n" for row in rows)
        (source / f"{number}.jsonl").write_text(text)
    step = Embedder(str(model.checkpoint.path), backend="cpu", dim=8, normalize=True)
    pipeline = [
        readers.JsonlReader(str(source)),
        step,
        writers.JsonlWriter(str(tmp_path / "vectors")),
    ]
    logs = str(tmp_path / "logs")
    executor.LocalPipelineExecutor(pipeline, tasks=2, workers=1, logging_dir=logs).run()
    documents = []
    for path in (tmp_path / "vectors").glob("*.jsonl.gz"):
        lines = gzip.decompress(path.read_bytes()).splitlines()
        documents += [json.loads(line) for line in lines]
    expected_ids = [f"{number}-{k}" for number in range(3) for k in range(5)]
    assert sorted(document["id"] for document in documents) == expected_ids
    loaded = zoo.load(model.checkpoint.path, backend="cpu")
    vectors = loaded.embed([document["text"] for document in documents], dim=8, normalize=True)
    found = np.array([document["metadata"]["embedding"] for document in documents])
    np.testing.assert_allclose(found, vectors, atol=1e-6)
