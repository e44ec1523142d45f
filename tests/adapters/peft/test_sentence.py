"""Adapters of sentence encoders and cross-encoders in the layout of peft."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentence_transformers

import zoo as zoo_api
from tests.adapters.conftest import QUICK
from tests.adapters.making import zoo
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, settings, texts, write_table
from zoo.errors import UsageError

TEXTS = ["a b c", "j i", "d e f g h"]
# task -> its settings, and the class of sentence-transformers that opens the result
TASKS: dict[str, tuple[dict[str, Any], str]] = {
    "late-interaction": ({"dimension": 8}, "MultiVectorEncoder"),
    "reranker": ({}, "CrossEncoder"),
    "sparse-embedding": ({}, "SparseEncoder"),
}


@pytest.mark.by_default("reranker")
@pytest.mark.parametrize("task", TASKS)
def test_the_library_opens_the_whole_directory(
    task: str, pretrained: Pretrained, tmp_path: Path
) -> None:
    """And zoo reads it again, as what it is."""
    base, source = pretrained()
    pairs = zip(texts(24), texts(24, seed=1), strict=True)
    rows = [{"text": one, "pair": two, "label": k % 2} for k, (one, two) in enumerate(pairs)]
    table = write_table(tmp_path / "t.tsv", rows)
    arguments, kind = TASKS[task]
    steps = {**QUICK, "optimizer": {"learning_rate": 0.05}}
    tree = settings(base, table, task=task, adapter={"method": "lora"}, **steps)
    run = finetune(
        tmp_path / "run", {**tree, "task_args": arguments, "data": {**tree["data"], "pair": "pair"}}
    )
    zoo("convert", run / "model", "--to", "hub", "-o", tmp_path / "hub")
    expected = scores(zoo_api.load(run / "model"))
    zoo("convert", tmp_path / "hub", "--base", base, "-o", tmp_path / "back")
    assert scores(zoo_api.load(tmp_path / "back")) == pytest.approx(expected, abs=1e-6)
    config = tmp_path / "hub" / "adapter_config.json"
    config.write_text(config.read_text().replace(str(base), str(source)))
    library: Any = getattr(sentence_transformers, kind)(str(tmp_path / "hub"), device="cpu")
    assert library_scores(library) == pytest.approx(expected, abs=1e-5)


def test_what_no_class_of_the_hub_computes_is_refused(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    """The transitions between labels, as of a whole model."""
    base, _ = pretrained()
    table = tmp_path / "t.conll"
    table.write_text("\n\n".join("\tB-x\n".join([*text.split(), ""]) for text in texts(24)))
    tree = settings(base, table, task="token-classification", adapter={"method": "lora"}, **QUICK)
    run = finetune(tmp_path / "run", {**tree, "task_args": {"crf": True}})
    with pytest.raises(UsageError, match="labels words by a CRF"):
        zoo("convert", run / "model", "--to", "hub", "-o", tmp_path / "hub")
    assert not (tmp_path / "hub").exists()


def scores(model: Any) -> list[float]:
    found = {row["corpus_id"]: row["score"] for row in model.rerank(TEXTS[0], TEXTS)}
    return [found[number] for number in range(len(TEXTS))]


def library_scores(model: Any) -> list[float]:
    if hasattr(model, "predict"):
        return [float(score) for score in model.predict([(TEXTS[0], text) for text in TEXTS])]
    query, documents = model.encode_query([TEXTS[0]]), model.encode_document(TEXTS)
    return np.asarray(model.similarity(query, documents))[0].tolist()  # type: ignore[no-any-return]
