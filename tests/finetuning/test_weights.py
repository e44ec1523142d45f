"""Tests of initial weights: which heads are kept, and which are new."""

import itertools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from tests.families.every import every_family, families_with
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import HERE, finetune, labelled, settings, texts, write_table
from tests.tasks.token_classification.making import tagged
from zoo.errors import UsageError
from zoo.finetuning.config import finetune_config
from zoo.finetuning.setup import FineTuneSetup, finetune_setup
from zoo.finetuning.weights import freeze_lowest, highest_layers
from zoo.nn.layers.init import init_weights
from zoo.objectives.base import Batch
from zoo.training.build import build_model, prepare_run
from zoo.training.state.pretrained import InitRecord

CLASSES = "BertForSequenceClassification"
REGRESSION, MULTI_LABEL = "regression", "multi_label_classification"
# task -> class, settings of its checkpoint
HEADS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "text-classification": (CLASSES, {"problem_type": "single_label_classification"}),
    "multi-label": (CLASSES, {"problem_type": MULTI_LABEL}),
    "regression": (CLASSES, {"problem_type": REGRESSION, "num_labels": 1}),
    "token-classification": ("BertForTokenClassification", {}),
    "question-answering": ("BertForQuestionAnswering", {}),
    "multiple-choice": ("BertForMultipleChoice", {}),
}
LABELLED = ("text-classification", "multi-label", "token-classification")


def source(task: str, labels: int) -> dict[str, Any]:
    """Return the settings of a checkpoint for a task, whose labels are letters."""
    architecture, changes = HEADS[task]
    names = dict(enumerate("abcdefgh"[:labels]))
    if task in LABELLED:
        changes = {"id2label": names, "label2id": {name: k for k, name in names.items()}, **changes}
    return {"architecture": architecture, **changes}


def table(task: str, labels: int, folder: Path) -> tuple[Path, dict[str, Any]]:
    """Return data for a task with labels that are letters, and the names of its columns."""
    names = ["abcdefgh"[k % labels] for k in range(40)]
    rows: list[dict[str, Any]]
    match task:
        case "token-classification":
            rows = [{"text": [t[0]], "label": [n]} for t, n in zip(texts(40), names, strict=True)]
        case "question-answering":
            answers = {"text": ["a"], "answer_start": [0]}
            rows = [{"text": t[:1], "pair": f"a {t}", "answers": answers} for t in texts(40)]
        case "multiple-choice":
            rows = [{"text": t, "choices": ["a b", "c"], "label": 0} for t in texts(40)]
        case _:
            rows = [{"text": t, "label": n} for t, n in zip(texts(40), names, strict=True)]
            if task == "regression":
                rows = [{"text": row["text"], "label": len(row["text"])} for row in rows]
    pair = {"pair": "pair"} if task == "question-answering" else {}
    return write_table(folder / f"{task}-{labels}.jsonl", rows), {"text": "text", **pair}


def load(model: Path, task: str, labels: int, folder: Path) -> tuple[InitRecord, Tensor]:
    """Load the weights of a run that does not start; return the record and the head's weight."""
    data, columns = table(task, labels, folder)
    setup = finetune_setup(finetune_config(settings(model, data, task=task, data=columns), {}))
    network = setup.objective.model(setup.family, setup.model_config)
    record = setup.load_pretrained(network)
    assert setup.model_config.problem == setup.objective.problem
    return record, network.state_dict()["head.weight"]


@pytest.mark.by_default("2-text-classification")
@pytest.mark.parametrize("old", HEADS)
@pytest.mark.parametrize("labels", [2, pytest.param(3, marks=pytest.mark.long)])
def test_the_head_of_another_task_is_not_used(
    pretrained: Pretrained, tmp_path: Path, old: str, labels: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Its tensors have the names and, for as many labels, the shapes of those of the new head."""
    model, _ = pretrained(**source(old, labels))
    before = load_file(model / "model.safetensors")["head.weight"]
    for new, count in itertools.product(HEADS, [2, 3]):
        if new == old:
            continue
        caplog.clear()
        with caplog.at_level(logging.INFO, "zoo"):
            record, head = load(model, new, count, tmp_path)
        assert {"head.weight", "head.bias"} <= set(record.new_parameters), new
        assert {"head.weight", "head.bias"} <= set(record.models["model"].unused), new
        assert head.shape != before.shape or not torch.equal(head, before), new
        name = "sequence-classification (" if HEADS[old][0] == CLASSES else old
        assert f"not used of {model}, with the head {name}" in caplog.text, new


@pytest.mark.by_default("text-classification", "regression", "token-classification")
@pytest.mark.parametrize("task", HEADS)
def test_the_head_of_the_same_task_is_kept(
    pretrained: Pretrained, tmp_path: Path, task: str
) -> None:
    model, _ = pretrained(**source(task, 2))
    record, head = load(model, task, 2, tmp_path)
    torch.testing.assert_close(head, load_file(model / "model.safetensors")["head.weight"])
    assert not [name for name in record.new_parameters if name.startswith("head.")]
    if task in LABELLED:
        with pytest.raises(UsageError, match=r"head for a, b, but not for these .*: c;"):
            load(model, task, 3, tmp_path)


def test_the_seed_decides_a_new_head_and_nothing_else_is_initialized(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    model, _ = pretrained("BertModel")
    data, _ = table("token-classification", 3, tmp_path)
    heads = []
    for seed in (5, 6):
        tree = settings(model, data, task="token-classification", data={"text": "text"}, seed=seed)
        setup = finetune_setup(finetune_config(tree, {}))
        built = build_model(setup)
        skipped = {id(parameter) for parameter, _ in built.skipped}
        new = [n for n, p in built.module.named_parameters() if id(p) not in skipped]
        assert new == ["head.weight", "head.bias"]
        torch.manual_seed(seed)
        alone = nn.Linear(setup.model_config.hidden_size, 3)  # type: ignore[attr-defined]
        init_weights(alone, std=0.02)  # of the whole model, and then of a head for a task
        init_weights(alone, std=0.02, truncated=False)
        head: Any = built.module.head
        assert torch.equal(head.weight, alone.weight)
        with pytest.raises(RuntimeError, match="neither initialized nor loaded"):
            built.require_values()
        setup.load_pretrained(built.module)
        built.require_values()
        heads.append(head.weight.detach())
    assert not torch.equal(*heads)


@pytest.mark.parametrize("changes", [{"reinit_layers": 1}, {"init_from": {"new_modules": []}}])
def test_a_run_has_the_weights_of_the_checkpoint_and_of_a_new_model(
    pretrained: Pretrained, tmp_path: Path, changes: dict[str, Any]
) -> None:
    """All values are those of the file, or are drawn: none is left over in memory."""
    model, _ = pretrained()
    tree = settings(model, labelled(tmp_path / "train.tsv"), **changes)
    setup = finetune_setup(finetune_config(tree, {}))
    stored = load_file(model / "model.safetensors")
    started = prepare_run(setup, tmp_path / "run", HERE)
    assert started.pretrained is not None
    new = set(started.pretrained.new_parameters)
    assert {"head.weight", "pooler.weight"} <= new
    assert ("layers.1.ffn.up.weight" in new) == ("reinit_layers" in changes)
    for name, value in started.loss_module.model.state_dict().items():
        if name not in new:
            assert torch.equal(value, stored[name]), name
        elif name.endswith("norm.weight") or name.endswith("bias"):
            assert torch.equal(value, torch.full_like(value, float("norm.w" in name))), name
        else:
            assert 0.015 < float(value.std()) < 0.025, name


def outputs_of_layer(setup: FineTuneSetup, model: nn.Module, layer: str, batch: Batch) -> Tensor:
    """Return the output of a layer, of the first of several tensors, and backpropagate the loss."""
    outputs: list[Any] = []
    hook = model.get_submodule(layer).register_forward_hook(lambda *call: outputs.append(call[2]))
    loss = setup.objective.compute_loss(model, batch.tensors).sums[setup.objective.name]
    loss.backward()  # type: ignore[no-untyped-call]
    hook.remove()
    return outputs[-1].detach().clone()  # type: ignore[no-any-return]


@pytest.mark.parametrize("family", every_family(families_with("sequence-classification")))
def test_a_frozen_layer_keeps_its_output(family: str, tmp_path: Path) -> None:
    """All that it reads is frozen, such as relative positions, which each layer has in common."""
    depth = 3 if family == "albert" else 1  # whose layers share their weights
    tree = settings(family, labelled(tmp_path / "t.tsv"), vocab_size=300, preset="default")
    setup = finetune_setup(finetune_config({**tree, "freeze_layers": depth}, {}))
    torch.manual_seed(0)
    model: Any = setup.objective.model(setup.family, setup.model_config).eval()
    setup.prepare_model(model)
    (batch, *_) = setup.train_dataloader(HERE).make_batches(0)
    names = [n for n, _ in model.named_modules() if n.endswith("layers.0")]
    before = outputs_of_layer(setup, model, min(names, key=len), batch)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter -= 0.0 if parameter.grad is None else parameter.grad.sign() * 0.01
    after = outputs_of_layer(setup, model, min(names, key=len), batch)
    assert torch.equal(before, after)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert not {n for n in trained if "embeddings." in n or "positions." in n or "relative" in n}
    assert trained >= {n for n, _ in model.named_parameters() if "layers.1." in n or "head." in n}


def test_layers_that_share_weights_are_frozen_together(tmp_path: Path) -> None:
    tree = settings("albert", labelled(tmp_path / "t.tsv"), vocab_size=300)
    for name, change in (("freeze_layers", "be frozen"), ("reinit_layers", "get new weights")):
        setting = name.replace("freeze_layers", "--freeze")
        message = f"1 layers cannot {change}: they share .* others; set {setting} to 3, or leave"
        with pytest.raises(UsageError, match=message):
            setup = finetune_setup(finetune_config({**tree, name: 1}, {}))
            model = setup.objective.model(setup.family, setup.model_config)
            freeze_lowest(model, setup.config.freeze_layers)
            highest_layers(model, setup.config.reinit_layers)


def test_a_classifier_starts_from_a_language_model(tmp_path: Path) -> None:
    """Also where the Hub's classes of the two name the backbone differently."""
    table = labelled(tmp_path / "t.tsv")
    once = {"max_steps": 1, "eval_steps": 1, "save_steps": 1}
    learned = settings("t5", table, task="seq2seq", vocab_size=300, **once)
    before = finetune(tmp_path / "lm", learned) / "model"
    parts = {"text-classification": table, "token-classification": tagged(tmp_path / "t.conll")}
    for task, file in parts.items():
        tree = settings(before, file, task=task, **once, optimizer={"learning_rate": 1e-12})
        after = load_file(finetune(tmp_path / task, tree) / "model" / "model.safetensors")
        kept = {n: t for n, t in load_file(before / "model.safetensors").items() if n in after}
        assert {n for n in after.keys() - kept if not n.startswith("head.")} == set()
        assert any(n.startswith("decoder.") for n in kept) is (task == "text-classification")
        for name, tensor in kept.items():
            torch.testing.assert_close(after[name], tensor)
