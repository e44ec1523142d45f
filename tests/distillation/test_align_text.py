"""Students and teachers of other tokens, which are compared by the embeddings of their texts."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.distillation.losses.making import teacher, tree  # noqa: F401 (fixtures)
from tests.distillation.making import (
    assert_resumes_exactly,
    distill,
    make_setup,
    pretrained,
    settings,
)
from tests.training.runs import WIDTH, assert_same, records
from zoo.checkpoint import load_checkpoint, load_text_tokenizer
from zoo.distillation.losses.base import squared_error
from zoo.distillation.outputs import pool_texts
from zoo.distillation.teachers.cached_teacher import CachedTeacher
from zoo.errors import UsageError
from zoo.inference.task_warnings import CutTexts
from zoo.training.config.overrides import deep_merge
from zoo.training.distributed.context import DistContext

NEW = {"data": {"tokenizer": None}, "vocab_size": 300}
TEXT = {"distillation": {"align": "text"}}


def by_text(family: str, student: str, /, **changes: Any) -> dict[str, Any]:
    return deep_merge(settings(pretrained(family), student), NEW, TEXT, changes)


def test_the_error_of_means_of_texts() -> None:
    """Of a packed row of two texts and padding, and a row of one, in float64."""
    torch.manual_seed(0)
    documents = torch.tensor([[1, 1, 1, 2, 0], [1, 1, 1, 1, 1]])
    student = torch.randn(2, 5, 3, dtype=torch.float64)
    vectors = pool_texts(student, {"document_ids": documents})
    rows = student.tolist()
    texts = [rows[0][:3], rows[0][3:4], rows[1]]
    means = [[sum(column) / len(text) for column in zip(*text, strict=True)] for text in texts]
    torch.testing.assert_close(vectors, torch.tensor(means, dtype=torch.float64))
    # the teacher's own tokens of the same texts: three padded rows
    padded = torch.randn(3, 4, 3, dtype=torch.float64)
    mask = torch.tensor([[1, 1, 0, 0], [1, 1, 1, 1], [1, 0, 0, 0]])
    targets = pool_texts(padded, {"attention_mask": mask})
    total = 0.0
    for mean, row, size in zip(means, padded.tolist(), (2, 4, 1), strict=True):
        for k in range(3):
            total += (mean[k] - sum(token[k] for token in row[:size]) / size) ** 2
    assert float(squared_error(vectors, targets)) == pytest.approx(total, rel=1e-12)


@pytest.mark.long
@pytest.mark.parametrize(
    ("family", "name", "changes"),
    [
        pytest.param(
            "roberta",
            "distilbert",
            {"student": {"hidden_size": 64, "intermediate_size": 128}},
            marks=pytest.mark.long,
        ),
        pytest.param("deberta", "bert", {}, marks=pytest.mark.long),
        ("gpt", "bert", {"data": {"reader": {"document_separator": "line"}}}),
    ],
)
def test_pairs_of_families(family: str, name: str, changes: dict[str, Any], tmp_path: Path) -> None:
    few = {"max_steps": 6, "optimizer": {"learning_rate": 3e-3}}
    run = assert_resumes_exactly(tmp_path, by_text(family, name, **few, **changes), 3)
    losses = [record["losses"] for record in records(run, "validation")]
    assert set(losses[0]) == {"masked-lm", "sentence"}
    assert losses[-1]["sentence"] < losses[0]["sentence"]
    assert load_checkpoint(run / "model").config.vocab_size == 300


def test_the_teacher_reads_the_students_text() -> None:
    """Unmasked, with its own tokens, one padded row for each document."""
    lines = {"reader": {"document_separator": "line"}}
    setup = make_setup(by_text("roberta", "distilbert", data=lines, micro_batch_tokens=256))
    loader = setup.train_dataloader(DistContext.initialize("cpu"))
    batch = loader.make_batches(0)[0]
    rows = loader._rows(0, loader.micro_batches[0])
    loader.close()
    student = setup.objective.base.vocabulary.tokenizer  # type: ignore[attr-defined]
    texts = []
    for row in rows:
        ids = row.arrays["input_ids"].copy()
        ids[row.positions["label_positions"][1]] = row.values["labels"]
        for number in range(1, row.arrays["document_ids"].max() + 1):
            texts.append(student.decode(ids[row.arrays["document_ids"] == number].tolist()))
    tokenizer = load_text_tokenizer(load_checkpoint(pretrained("roberta")))
    ids, mask = (batch.tensors[f"teacher:{name}"] for name in ("input_ids", "attention_mask"))
    assert len(ids) == len(texts) > 2
    expected = tokenizer.encode(texts, max_tokens=None)
    for row, real, text in zip(ids, mask, expected, strict=True):
        assert row[real.bool()].tolist() == text.ids
    assert batch.counts["sentence"] == len(texts) * WIDTH["hidden_size"]
    # Texts that are longer than the teacher reads are counted.
    aligner = setup.objective.aligner
    assert aligner is not None and aligner.cut_lines() == []
    short = replace(aligner, max_tokens=20, cut_texts=CutTexts())
    short.teacher_tensors(batch.tensors, setup.objective.base)
    cut = sum(len(text.ids) > 20 for text in expected)
    line = f"{cut} of {len(texts)} texts were longer than 20 tokens and were cut"
    assert 1 < cut < len(texts) and short.cut_lines() == [f"for the teacher: {line}"]


@pytest.mark.long
@pytest.mark.parametrize("name", ["by_text", pytest.param("sentences", marks=pytest.mark.long)])
def test_embeddings_are_kept_in_a_cache(
    name: str,
    tree: dict[str, Any],  # noqa: F811 (a fixture)
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = {"distillation": {"cache_teacher": str(tmp_path / "cache")}}
    few = {"max_steps": 4, "eval_steps": 2, "save_steps": 2}
    values = deep_merge(by_text("roberta", "distilbert") if name == "by_text" else tree, cache, few)
    cold = distill(tmp_path / "cold", values)
    with monkeypatch.context() as patch:
        patch.setattr(CachedTeacher, "_add", None)  # not called
        warm = distill(tmp_path / "warm", values)
    assert_same(cold, warm)
    shutil.rmtree(tmp_path / "cache")
    without = distill(
        tmp_path / "without", deep_merge(values, {"distillation": {"cache_teacher": None}})
    )
    for record, other in zip(records(cold), records(without), strict=True):
        assert record["losses"] == pytest.approx(other["losses"], rel=1e-5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"distillation": {"align": "tokens"}}, "different tokens: .*--align text compares texts"),
        ({"distillation": {"recipe": "distilbert"}}, "the term kl compares kl of tokens"),
        ({"distillation": {"align": "words"}}, "words"),
    ],
)
def test_what_needs_common_tokens_is_refused(
    changes: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=message):
        distill(tmp_path / "run", by_text("roberta", "distilbert", **changes))
    assert not (tmp_path / "run").exists()
