"""Adapters of the tasks whose models are called or saved in a way of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import zoo as zoo_api
from tests.adapters.conftest import QUICK
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, labelled, settings, texts, write_table
from tests.training.runs import assert_resumes_from
from zoo.finetuning.runs import FineTuneRun
from zoo.training.state.checkpoints import list_checkpoints


def words(folder: Path) -> dict[str, Any]:
    sentences = [[f"{w}\t{'B-x' if w < 'e' else 'O'}" for w in t.split()] for t in texts(24)]
    file = folder / "t.conll"
    file.write_text("\n\n".join("\n".join(lines) for lines in sentences) + "\n")
    return {"train": [str(file)]}


def pairs(folder: Path) -> dict[str, Any]:
    both = zip(texts(24), texts(24, seed=1), strict=True)
    rows = [{"text": one, "pair": two, "label": float(one[0] == two[0])} for one, two in both]
    return {"train": [str(write_table(folder / "t.tsv", rows))], "pair": "pair"}


def choices(folder: Path) -> dict[str, Any]:
    rows = [
        {"context": t, "choices": ["a b", "c"], "label": k % 2} for k, t in enumerate(texts(24))
    ]
    return {"train": [str(write_table(folder / "t.jsonl", rows))]}


TABLES: dict[str, Callable[[Path], dict[str, Any]]] = {
    "token-classification": words,
    "sentence-embedding": pairs,
    "multiple-choice": choices,
}


@pytest.mark.parametrize("task", TABLES)
def test_the_prompt_is_trained(task: str, pretrained: Pretrained, tmp_path: Path) -> None:
    steps = {**QUICK, "save_total_limit": 9, "optimizer": {"learning_rate": 0.05}}
    adapter = {"method": "prompt", "num_virtual_tokens": 3}
    tree = settings(pretrained()[0], Path("unused"), adapter=adapter, **steps)
    run = finetune(tmp_path / "run", {**tree, "task": task, "data": TABLES[task](tmp_path)})
    first = load_file(list_checkpoints(run)[0] / "weights.safetensors")
    (before,) = [tensor for name, tensor in first.items() if name.endswith("adapter.prompt")]
    last = load_file(run / "model" / "adapter.safetensors")["embeddings.tokens.adapter.prompt"]
    assert before.shape == (3, 32) and not torch.equal(before, last)


def positives(folder: Path) -> dict[str, Any]:
    rows = [{"text": one, "pair": f"{one} j"} for one in texts(24)]
    return {"train": [str(write_table(folder / "t.tsv", rows))], "pair": "pair"}


@pytest.mark.parametrize("task", ["late-interaction", "setfit"])
def test_new_parameters_of_a_task_are_saved(
    task: str, pretrained: Pretrained, tmp_path: Path
) -> None:
    """The projection of tokens and the regression, which the base lacks and no loss may read."""
    steps = {**QUICK, "save_total_limit": 9, "optimizer": {"learning_rate": 0.05}}
    table = labelled(tmp_path / "l.tsv", 12)
    tree = settings(pretrained()[0], table, adapter={"method": "lora"}, task=task, **steps)
    if task == "late-interaction":
        tree |= {"data": positives(tmp_path), "task_args": {"dimension": 8}}
    run = finetune(tmp_path / "run", tree)
    assert_resumes_from(run, tmp_path, 0, 2, kind=FineTuneRun)
    last = list_checkpoints(run)[4] / "weights.safetensors"
    model = zoo_api.load(run / "model", backend="cpu")
    if task == "setfit":
        head = load_file(run / "model" / "adapter.safetensors")["head.weight"]
        assert torch.equal(head, load_file(last)["head.weight"]) and head.abs().max() > 0
        assert set(model.classify(["a b"])[0]["scores"]) == {"no", "yes"}
    else:
        (name,) = [name for name in load_file(last) if "1_Dense" in name]
        (projection,) = load_file(run / "model" / "1_Dense" / "model.safetensors").values()
        assert torch.equal(projection, load_file(last)[name])
        assert len(model.rerank("a b", ["a b j", "c"])) == 2
