"""Adapters of the tasks whose models are called or saved in a way of their own."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from safetensors.torch import load_file

import zoo as zoo_api
from tests.adapters.conftest import QUICK
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import finetune, labelled, settings, texts, write_table
from tests.training.runs import assert_resumes_from, finish_in_two_processes, records
from zoo.adapted_models.write import base_record, write_adapter
from zoo.adapters.extract import extract
from zoo.adapters.merge import merge
from zoo.checkpoint import AdapterRecord, load_checkpoint
from zoo.conversion.cache import resolve_adapted
from zoo.errors import UsageError
from zoo.finetuning.runs import FineTuneRun
from zoo.inference.load_model import load_model
from zoo.training.state.progress import list_checkpoints


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


@pytest.mark.long
def test_new_parameters_of_a_task_are_saved(pretrained: Pretrained, tmp_path: Path) -> None:
    """The projection of tokens and the regression, which the base lacks and no loss may read."""
    base, trained = pretrained()[0], dict[str, Path]()
    for task in ("late-interaction", "setfit"):
        steps = {**QUICK, "save_total_limit": 9, "optimizer": {"learning_rate": 0.05}}
        table = labelled(tmp_path / "l.tsv", 12)
        tree = settings(base, table, adapter={"method": "lora"}, task=task, **steps)
        if task == "late-interaction":
            tree |= {"data": positives(tmp_path), "task_args": {"dimension": 8}}
        run = finetune(tmp_path / task / "run", tree)
        assert_resumes_from(run, tmp_path / task, 0, 2, kind=FineTuneRun)
        last = load_file(list_checkpoints(run)[4] / "weights.safetensors")
        trained[task] = run / "model"
        model = zoo_api.load(run / "model", backend="cpu")
        if task == "setfit":
            head = load_file(run / "model" / "adapter.safetensors")["head.weight"]
            assert torch.equal(head, last["head.weight"]) and head.abs().max() > 0
            assert set(model.classify(["a b"])[0]["scores"]) == {"no", "yes"}
        else:
            (name,) = [name for name in last if "1_Dense" in name]
            (projection,) = load_file(run / "model" / "1_Dense" / "model.safetensors").values()
            assert torch.equal(projection, last[name])
            assert_modules_are_kept(model.checkpoint, tmp_path)
    both = resolve_adapted(str(base), [trained["setfit"], trained["late-interaction"]])
    with pytest.raises(UsageError, match="only the last may have a head"):
        load_model(both)


def assert_modules_are_kept(checkpoint: Any, folder: Path) -> None:
    """The projection of tokens stays when an adapter is merged or extracted."""

    def scores(path: Path) -> list[float]:
        found = zoo_api.load(path, backend="cpu").rerank("a b", ["a b j", "c"])
        return [row["score"] for row in found]

    expected = scores(checkpoint.path)
    merge(checkpoint, folder / "merged")
    assert scores(folder / "merged") == expected
    base, merged = checkpoint.base, load_checkpoint(folder / "merged")
    targets = ("query", "value")
    extract(str(base.path), base, merged, folder / "extracted", rank=8, targets=targets)
    assert scores(folder / "extracted") == pytest.approx(expected, abs=1e-5)
    # an adapter without modules has the base's
    tensors = load_file(folder / "extracted" / "adapter.safetensors")
    nothing = {name: torch.zeros_like(tensor) for name, tensor in tensors.items()}
    settings_of = load_checkpoint(folder / "extracted").manifest.adapter
    assert settings_of is not None
    record = AdapterRecord(settings_of.settings, base_record(str(merged.path), merged))
    write_adapter(folder / "nothing", merged.model, nothing, record, sources=[])
    assert scores(folder / "nothing") == expected


@pytest.mark.long
@pytest.mark.parametrize("task", ["sentence-embedding", "setfit"])
def test_two_processes_train_what_not_all_steps_read(
    task: str, pretrained: Pretrained, tmp_path: Path
) -> None:
    """A new pooler, and the head of a regression, have no gradients."""
    table = labelled(tmp_path / "l.tsv", 12)
    tree = settings(pretrained()[0], table, adapter={"method": "lora"}, task=task, **QUICK)
    if task == "sentence-embedding":
        tree |= {"data": pairs(tmp_path)}
    one = finetune(tmp_path / "one", tree)
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(tree))
    finish_in_two_processes("finetune", str(tmp_path / "run.yaml"), "-o", str(tmp_path / "two"))
    losses = [[row["loss"] for row in records(run)] for run in (one, tmp_path / "two")]
    assert losses[1] == pytest.approx(losses[0], abs=1e-5)
    names = [
        load_file(run / "model" / "adapter.safetensors").keys() for run in (one, tmp_path / "two")
    ]
    assert names[0] == names[1]
