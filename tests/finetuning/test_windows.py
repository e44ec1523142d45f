"""Long texts in windows: rows are those of transformers, and evaluations those of ``zoo eval``."""

import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

import zoo
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    HERE,
    finetune,
    labelled,
    reference_losses,
    settings,
    setup_of,
    texts,
    training_losses,
    write_table,
)
from tests.tasks.token_classification.making import tagged
from tests.training.runs import records
from zoo.errors import UsageError
from zoo.finetuning.setup import finetune_setup
from zoo.finetuning.task import LABELS
from zoo.finetuning.windows import TEXTS
from zoo.nn.layers.crf import IGNORED
from zoo.objectives.base import Batch
from zoo.training.config.finetune import FineTuneConfig
from zoo.training.config.schema import validate_config

LENGTH, STRIDE = 9, 3
WINDOWS = {"max_seq_len": LENGTH, "task_args": {"doc_stride": STRIDE}}
SHORT = {"max_steps": 4, "eval_steps": 4, "save_steps": 4}
NAMES = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}


def real(batch: Batch, name: str = "input_ids") -> list[list[int]]:
    """Return the rows of a tensor without the places of padding."""
    mask = batch.tensors.get("attention_mask", torch.ones_like(batch.tensors["input_ids"]))
    rows = zip(batch.tensors[name], mask, strict=True)
    return [row[mask_row == 1].tolist() for row, mask_row in rows]


@pytest.mark.parametrize("pair", [False, True], ids=["texts", "pairs"])
def test_rows_are_windows_of_transformers(
    pretrained: Pretrained, tmp_path: Path, pair: bool
) -> None:
    import transformers

    model, source = pretrained("BertForSequenceClassification", **NAMES)
    rows = [
        {**({"first": "b a"} if pair else {}), "text": t, "label": "yes" if t[0] < "e" else "no"}
        for t in texts(30)
    ]
    columns = {"data": {"text": "first", "pair": "text"}} if pair else {}
    table = write_table(tmp_path / "t.tsv", rows)
    tree = settings(model, table, **WINDOWS, **columns)
    setup = finetune_setup(validate_config({**tree, "family": "bert"}, FineTuneConfig))
    tokenizer = transformers.AutoTokenizer.from_pretrained(source)
    expected = {}
    for row in rows:
        encoded = tokenizer(
            *([row["first"], row["text"]] if pair else [row["text"]]),
            truncation="only_second" if pair else True,
            max_length=LENGTH,
            stride=STRIDE,
            return_overflowing_tokens=True,
        )
        expected[tuple(map(tuple, encoded["input_ids"]))] = encoded["token_type_ids"]
    several = 0
    for batch in setup.train_dataloader(HERE).make_batches(0):
        windows, owners = real(batch), batch.tensors[TEXTS].tolist()
        kinds = real(batch, "token_type_ids") if pair else [[0] * len(w) for w in windows]
        assert batch.rows == len(batch.tensors[LABELS]) == owners[-1] + 1
        several += len(windows) - batch.rows
        for text in range(batch.rows):
            positions = [k for k, owner in enumerate(owners) if owner == text]
            types = expected[tuple(tuple(windows[k]) for k in positions)]
            assert [kinds[k] for k in positions] == types
    assert several


def test_losses_are_those_of_mean_logits(pretrained: Pretrained, tmp_path: Path) -> None:
    import transformers

    model, source = pretrained("BertForSequenceClassification", **NAMES)
    tree = settings(model, labelled(tmp_path / "t.tsv"), **WINDOWS)
    run = finetune(tmp_path / "run", tree)
    reference: Any = transformers.BertForSequenceClassification.from_pretrained(source)

    def batch_loss(batch: Batch) -> tuple[torch.Tensor, int]:
        tensors = dict(batch.tensors)
        labels, owners = tensors.pop(LABELS), tensors.pop(TEXTS)
        logits = reference(**tensors).logits
        means = torch.stack([logits[owners == text].mean(0) for text in range(batch.rows)])
        return F.cross_entropy(means, labels, reduction="sum"), batch.rows

    assert training_losses(run) == pytest.approx(
        reference_losses(run, reference, batch_loss), abs=1e-5
    )


@pytest.mark.long
@pytest.mark.parametrize("task", ["text-classification", "token-classification"])
def test_evaluations_are_those_of_zoo_eval(
    pretrained: Pretrained, tmp_path: Path, task: str
) -> None:
    words = task == "token-classification"
    table = tagged(tmp_path / "t.conll") if words else labelled(tmp_path / "t.tsv")
    data = {"data": {"eval": [str(table)]}}
    run = finetune(
        tmp_path / "run", settings(pretrained()[0], table, task=task, **WINDOWS, **SHORT, **data)
    )
    (record,) = (r for r in records(run, "validation") if r["step"] == SHORT["max_steps"])
    options: Any = {"task": task, "eval": table, "max_seq_len": LENGTH, "doc_stride": STRIDE}
    result = zoo.evaluate(run / "model", **options)
    assert record["metrics"] == pytest.approx({k: result.metrics[k] for k in record["metrics"]})
    cut = zoo.evaluate(run / "model", **{**options, "doc_stride": None})
    assert cut.metrics != pytest.approx(result.metrics), "windows make a difference"


def test_each_word_is_labelled_once(pretrained: Pretrained, tmp_path: Path) -> None:
    table = tagged(tmp_path / "t.conll")
    data = {"data": {"eval": [str(table)]}}
    tree = settings(pretrained()[0], table, task="token-classification", **WINDOWS, **data)
    setup = finetune_setup(validate_config({**tree, "family": "bert"}, FineTuneConfig))
    sentences = sorted(text.split("\n") for text in table.read_text().strip().split("\n\n"))
    named = []
    for batch in setup.eval_batches(HERE):
        labels, owners = batch.tensors[LABELS], batch.tensors[TEXTS]
        of_texts = [labels[owners == text].flatten() for text in range(batch.rows)]
        named += [[setup.objective.labels[k] for k in row[row != IGNORED]] for row in of_texts]
        assert batch.counts == {"token-classification": sum(map(len, named[-batch.rows :]))}
    assert max(map(len, named)) > LENGTH
    assert sorted(named) == sorted([line.split("\t")[1] for line in s] for s in sentences)


def test_an_auxiliary_loss_counts_windows(tmp_path: Path) -> None:
    table = labelled(tmp_path / "t.tsv")
    both = {**WINDOWS, "task_args": {"doc_stride": STRIDE, "lm_coef": 0.5}}
    run = finetune(tmp_path / "run", settings("gpt", table, size="tiny", **both, **SHORT))
    rows = setup_of(run).train_rows
    lengths = rows.values["window_lengths"]
    assert rows.counts["causal-lm"].tolist() == [len(windows) for windows in lengths]
    assert rows.counts["text-classification"].tolist() == [1] * len(rows) and rows.truncated == 0


def test_refusals_and_the_offer(
    pretrained: Pretrained, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model, _ = pretrained()
    rows = [{"a": "a b", "b": t, "label": "yes" if t[0] < "e" else "no"} for t in texts(20)]
    pairs = write_table(tmp_path / "pairs.tsv", rows)
    orders = {"task_args": {"doc_stride": 1, "both_orders": True}}
    with pytest.raises(UsageError, match="pairs in both orders cannot be split"):
        finetune(tmp_path / "x", settings(model, pairs, data={"text": "a", "pair": "b"}, **orders))
    crf = {"task": "token-classification", "task_args": {"doc_stride": 1, "crf": True}}
    with pytest.raises(UsageError, match="a CRF is not trained on windows"):
        finetune(tmp_path / "x", settings(model, tagged(tmp_path / "t.conll"), **crf))
    table = labelled(tmp_path / "t.tsv")
    wide = {"max_seq_len": LENGTH, "task_args": {"doc_stride": LENGTH}}
    with pytest.raises(UsageError, match="cannot share 9"):
        finetune(tmp_path / "x", settings(model, table, **wide))
    assert not (tmp_path / "x").exists()
    with caplog.at_level(logging.INFO, "zoo"):
        finetune(tmp_path / "run", settings(model, table, max_seq_len=LENGTH, **SHORT))
    assert (
        "longer than 9 tokens and were cut; --set max_seq_len=N reads more, up to 40, "
        "--doc-stride N reads them in windows" in caplog.text
    )
