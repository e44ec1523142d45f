"""Batches of evaluations during fine-tuning, which are made one by one."""

import gc
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    HERE,
    finetune,
    labelled,
    settings,
    setup_of,
    texts,
    write_table,
)
from tests.finetuning.test_mixture import make_setup
from zoo.errors import UsageError
from zoo.objectives.base import Batch


@pytest.mark.long
def test_batches_of_an_evaluation_are_not_held(pretrained: Pretrained, tmp_path: Path) -> None:
    files = {"train": [str(labelled(tmp_path / "t.tsv"))], "eval": []}
    files["eval"] = [str(labelled(tmp_path / "e.tsv", 50, seed=1))]
    run = finetune(tmp_path / "run", settings(pretrained()[0], tmp_path / "t.tsv", data=files))
    setup = setup_of(run)
    batches = setup.eval_batches(HERE)
    gc.collect()
    before = sum(isinstance(item, Batch) for item in gc.get_objects())
    rows, tokens, alive = 0, list[int](), 0
    for batch in batches:
        rows += batch.rows
        tokens.append(batch.tensors["input_ids"].shape[1])
        gc.collect()
        alive = max(alive, sum(isinstance(item, Batch) for item in gc.get_objects()) - before)
    assert (len(batches), rows, alive) == (13, 50, 1)
    assert tokens == sorted(tokens)
    last = batches[-1].tensors
    for name, values in batches[12:][0].tensors.items():
        assert torch.equal(values, last[name])


def test_a_trained_tokenizer_lower_cases_if_it_is_told_to(tmp_path: Path) -> None:
    """Capitals and accents are tokens of their own otherwise; a model's tokenizer is refused."""
    rows = [
        {"text": f"GRÜN {text}", "label": "no" if text[0] > "e" else "yes"} for text in texts(9)
    ]
    table = write_table(tmp_path / "t.jsonl", rows)
    values = settings("bert", table, vocab_size=60)
    kept = make_setup(values).tokenizer
    dropped = make_setup({**values, "lowercase": True}).tokenizer
    assert kept is not None and dropped is not None
    plain = Tokenizer.from_buffer(kept.json).encode("GRÜN").ids
    lower = Tokenizer.from_buffer(dropped.json)
    assert lower.encode("GRÜN").ids == lower.encode("grun").ids
    assert plain != Tokenizer.from_buffer(kept.json).encode("grun").ids
    with pytest.raises(UsageError, match="lowercase is for a tokenizer to train"):
        make_setup({**values, "tokenizer": str(tmp_path), "lowercase": True})
