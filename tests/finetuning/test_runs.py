"""Runs: resumed bit for bit, ended early, the best checkpoint, seeds, and the use of the model."""

import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from safetensors.torch import load_file

import zoo
from tests import warm
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import (
    assert_resumes_exactly,
    finetune,
    labelled,
    settings,
    texts,
    write_table,
)
from tests.training.runs import assert_resumes_from, records
from zoo.checkpoint import encode_manifest, load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import UsageError
from zoo.finetuning.runs import FineTuneRun
from zoo.hub.source import CheckpointDir
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun
from zoo.training.state.pretrained import ModelRecord
from zoo.training.state.progress import list_checkpoints
from zoo.training.state.verify import verify_run

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


def resume_run(run: Path) -> None:
    FineTuneRun({}, DistContext.initialize("cpu")).resume(run)


def test_a_resumed_run_ends_bit_for_bit_the_same(pretrained: Pretrained, tmp_path: Path) -> None:
    """With dropout, and without the checkpoint that it started from."""
    model, _ = pretrained(**DROPOUT)
    tree = settings(model, labelled(tmp_path / "t.tsv"), save_total_limit=9, freeze_layers=1)
    whole = finetune(tmp_path / "whole", tree)
    shutil.rmtree(model)
    assert_resumes_from(whole, tmp_path, 6, 0, kind=FineTuneRun)
    assert {check.outcome for check in verify_run(whole)} == {"ok"}


@pytest.mark.long  # test_every_task.py resumes such runs
def test_a_run_from_random_weights_resumes(tmp_path: Path) -> None:
    """Its tokenizer, trained on the texts, is in the run's directory."""
    tree = settings("bert", labelled(tmp_path / "t.tsv"), save_total_limit=9, vocab_size=60)
    assert_resumes_exactly(tmp_path, tree, 4)


@pytest.mark.long
def test_the_best_checkpoint_becomes_the_final_model(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    """Here, the best evaluation is that of the highest loss, which a high rate makes early."""
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv", 60)
    changes = {"metric_for_best_model": "loss", "greater_is_better": True, "eval_steps": 2}
    tree = settings(model, table, optimizer={"learning_rate": 0.3}, **changes)
    run = finetune(tmp_path / "run", tree)
    losses = {record["step"]: record["loss"] for record in records(run, "validation")}
    best = max(losses, key=losses.__getitem__)
    assert best < 12, losses
    checkpoints = list_checkpoints(run)
    assert set(checkpoints) == {best, 12}
    weights = load_file(checkpoints[best] / "weights.safetensors")
    final = load_file(run / "model" / "model.safetensors")
    assert weights.keys() == final.keys()
    assert [name for name in final if not torch.equal(final[name], weights[name])] == []
    manifest = json.loads((run / "model" / "zoo.json").read_text())
    assert manifest["training"]["steps"] == best
    assert manifest["training"]["best"] == [losses[best], best]


@pytest.mark.long
def test_a_metric_selects_the_highest_value(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    run = finetune(tmp_path / "run", settings(model, labelled(tmp_path / "t.tsv"), eval_steps=2))
    scores = {r["step"]: r["metrics"]["accuracy"] for r in records(run, "validation")}
    best = max(scores, key=lambda step: (scores[step], -step))
    manifest = json.loads((run / "model" / "zoo.json").read_text())
    assert manifest["training"]["best"] == [scores[best], best]
    assert manifest["training"]["metrics"]["accuracy"] == scores[best]


@pytest.mark.long
def test_a_run_without_progress_ends_early(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    changes = {"optimizer": {"learning_rate": 1e-12}, "early_stopping_patience": 2}
    tree = settings(model, labelled(tmp_path / "t.tsv"), eval_steps=2, **changes)
    run = finetune(tmp_path / "run", {**tree, "max_steps": 100})
    assert [record["step"] for record in records(run, "validation")] == [2, 4, 6]
    whole = (run / "metrics.jsonl").read_bytes()
    shutil.rmtree(run / "model")
    resume_run(run)
    assert (run / "metrics.jsonl").read_bytes() == whole
    assert (run / "model" / "model.safetensors").is_file()


def test_frozen_layers_keep_their_weights(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    tree = settings(model, labelled(tmp_path / "t.tsv"), freeze_layers=1)
    run = finetune(tmp_path / "run", tree)
    before = load_file(model / "model.safetensors")
    after = load_file(run / "model" / "model.safetensors")
    same = {name for name in after if name in before and torch.equal(before[name], after[name])}
    frozen = {n for n in after if n.startswith(("embeddings.", "layers.0."))}
    assert frozen and frozen <= same
    assert not {n for n in same if n.startswith("layers.1.") and n.endswith("weight")}


def test_highest_layers_can_begin_anew(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained("BertModel")
    tree = settings(model, labelled(tmp_path / "t.tsv"), reinit_layers=1, max_steps=1)
    run = finetune(tmp_path / "run", {**tree, "optimizer": {"learning_rate": 1e-9}})
    before = load_file(model / "model.safetensors")
    after = load_file(run / "model" / "model.safetensors")
    close = {n for n in before if torch.allclose(before[n], after[n], atol=1e-6)}
    matrices = {n for n in before if before[n].dim() == 2}
    assert {n for n in matrices if n not in close} == {
        n for n in matrices if n.startswith(("layers.1.", "pooler."))
    }
    new = json.loads((run / "run.json").read_text())["init_from"]["new_parameters"]
    assert {name.split(".")[0] for name in new} == {"head", "layers", "pooler"}


def test_the_model_classifies_and_converts(pretrained: Pretrained, tmp_path: Path) -> None:
    """Labels and scores are those of transformers on the converted directory."""
    import transformers

    model, _ = pretrained()
    tree = settings(model, labelled(tmp_path / "t.tsv"))
    run = finetune(tmp_path / "run", tree)
    hub = tmp_path / "hub"
    done = warm.zoo("convert", run / "model", "--to", "hub", "-o", hub)
    assert done.returncode == 0, done.stderr
    inputs = texts(5, seed=9)
    ours = zoo.load(run / "model", backend="cpu").classify(inputs)
    reference: Any = transformers.AutoModelForSequenceClassification.from_pretrained(hub)
    tokenizer = transformers.AutoTokenizer.from_pretrained(hub)
    assert reference.config.id2label == {0: "no", 1: "yes"}
    for text, result in zip(inputs, ours, strict=True):
        with torch.no_grad():
            probabilities = reference(**tokenizer(text, return_tensors="pt")).logits.softmax(-1)[0]
        assert result["scores"] == pytest.approx(
            {"no": float(probabilities[0]), "yes": float(probabilities[1])}, abs=1e-5
        )


def test_the_card_has_the_command_and_the_licence_of_the_base_model(
    pretrained: Pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The licence stays that of the base model in a model that is trained from the result."""
    model, _ = pretrained()
    manifest = msgspec.structs.replace(load_checkpoint(model).manifest, licence="mit")
    (model / "zoo.json").write_bytes(encode_manifest(manifest))
    table, run, hub = labelled(tmp_path / "t.tsv"), tmp_path / "run", tmp_path / "hub"
    monkeypatch.setattr("sys.argv", ["zoo", "finetune", str(model), "--train", str(table)])
    finetune(run, settings(model, table, max_steps=1))
    convert(CheckpointDir(run / "model", "run"), hub, to="hub")
    card = (hub / "README.md").read_text()
    assert "$ zoo finetune pretrained --train t.tsv\n" in card
    assert "| licence of the base model | mit |" in card and "license:" not in card
    record = ModelRecord.from_checkpoint("run", load_checkpoint(run / "model"), [])
    assert record.licence == "mit"


def test_new_weights_are_named(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv")
    arguments = ["--task", "text-classification", "--train", table, "--max-steps", "2"]
    done = warm.zoo(
        "finetune",
        model,
        *arguments,
        "--device",
        "cpu",
        "-o",
        tmp_path / "run",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "new weights: pooler, head (1,122)" in done.stderr
    new = json.loads((tmp_path / "run" / "run.json").read_text())["init_from"]["new_parameters"]
    assert new == ["pooler.weight", "pooler.bias", "head.weight", "head.bias"]


def test_a_head_with_the_labels_of_the_data_goes_on(pretrained: Pretrained, tmp_path: Path) -> None:
    names = {"id2label": {0: "no", 1: "yes"}, "label2id": {"no": 0, "yes": 1}}
    model, _ = pretrained("BertForSequenceClassification", **names)
    tree = settings(model, labelled(tmp_path / "t.tsv"), optimizer={"learning_rate": 1e-9})
    run = finetune(tmp_path / "run", {**tree, "max_steps": 1})
    before = load_file(model / "model.safetensors")["head.weight"]
    after = load_file(run / "model" / "model.safetensors")["head.weight"]
    torch.testing.assert_close(before, after, atol=1e-6, rtol=0)
    assert json.loads((run / "run.json").read_text())["init_from"].get("new_parameters", []) == []


def test_runs_of_another_kind_are_refused(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    run = finetune(tmp_path / "run", settings(model, labelled(tmp_path / "t.tsv"), max_steps=2))
    with pytest.raises(UsageError, match="is a run of `zoo finetune`, not of `zoo pretrain`"):
        PretrainRun({}, DistContext.initialize("cpu")).resume(run)


def test_a_changed_table_is_refused(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv")
    run = finetune(tmp_path / "run", settings(model, table, max_steps=2))
    with table.open("a") as file:
        file.write("a b\tyes\n")
    with pytest.raises(UsageError, match=r"t\.tsv is not what .* began with"):
        resume_run(run)


@pytest.mark.long
def test_the_median_of_several_seeds_is_kept(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    table, held = labelled(tmp_path / "t.tsv"), labelled(tmp_path / "e.tsv", seed=1)
    runs = tmp_path / "runs"
    sets = [f"--set={name}={value}" for name, value in (("eval_steps", 2), ("batch_size", 8))]
    done = warm.zoo(
        *("finetune", model, "--task", "text-classification", "--train", table, "--eval", held),
        *("--seeds", "3", "--max-steps", "4", "--device", "cpu", "-o", runs, *sets),
    )
    assert done.returncode == 0, done.stderr
    best = {
        f"seed-{seed}": max(
            r["metrics"]["accuracy"] for r in records(runs / f"seed-{seed}", "validation")
        )
        for seed in range(3)
    }
    summary = json.loads((runs / "summary.json").read_text())
    low, middle, high = sorted(best.values())
    assert summary["metrics"]["accuracy"] == {"median": middle, "lowest": low, "highest": high}
    assert best[summary["median_run"]] == middle
    median_weights = (runs / "model" / "model.safetensors").read_bytes()
    assert (
        median_weights
        == (runs / summary["median_run"] / "model" / "model.safetensors").read_bytes()
    )


def test_numbers_are_predicted(pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    rows = [{"text": t, "label": len(t) / 10} for t in texts(40)]
    tree = settings(model, write_table(tmp_path / "t.jsonl", rows), task="regression")
    run = finetune(tmp_path / "run", tree)
    (result,) = zoo.load(run / "model", backend="cpu").classify(["a b"])
    assert set(result) == {"text", "score"}
    assert set(records(run, "validation")[-1]["metrics"]) == {"pearson", "spearman", "mse"}
