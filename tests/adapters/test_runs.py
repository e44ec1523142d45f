"""Runs that train an adapter: what they train, what they save, and how they resume."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.adapters.conftest import QUICK, Adapted
from tests.families.every import every_family
from tests.finetuning.conftest import Pretrained
from tests.finetuning.making import HERE, finetune, labelled, settings, setup_of
from tests.training.runs import assert_resumes_from, finish_in_two_processes, records
from zoo.adapted_models.registry import ADAPTERS
from zoo.checkpoint import load_checkpoint, weights_digest
from zoo.conversion.cache import resolve_adapted, resolve_checkpoint
from zoo.errors import UsageError, VerificationError
from zoo.finetuning.config import finetune_config
from zoo.finetuning.runs import FineTuneRun
from zoo.inference.load_model import load_model
from zoo.plugins import all_families, get_family
from zoo.training.build import open_trainer
from zoo.training.config.distill import DistillTaskConfig
from zoo.training.config.schema import validate_config
from zoo.training.distributed.context import DistContext
from zoo.training.run import PretrainRun
from zoo.training.state.progress import list_checkpoints
from zoo.training.state.verify import verify_run

DROPOUT = {"hidden_dropout_prob": 0.1, "attention_probs_dropout_prob": 0.1}


MECHANISMS = [  # others scale as they do, or have adapters in more places
    pytest.param(method, marks=() if method in ("lora", "pfeiffer", "prefix") else pytest.mark.long)
    for method in ADAPTERS.built_in
]


@pytest.mark.by_default("lora")
@pytest.mark.parametrize("method", MECHANISMS)
def test_a_run_resumes_bit_for_bit(method: str, pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained(**DROPOUT)
    more: dict[str, dict[str, Any]] = {
        "lora": {"dropout": 0.1},
        "prefix": {"prefix_projection": True},
    }
    adapter = {"method": method, **more.get(method, {})}
    table = labelled(tmp_path / "t.tsv")
    tree = settings(model, table, adapter=adapter, save_total_limit=9, ema_decay=0.9)
    whole = finetune(tmp_path / "whole", tree)
    assert_resumes_from(whole, tmp_path, 6, 0, kind=FineTuneRun)
    assert {check.outcome for check in verify_run(whole)} == {"ok"}


@pytest.mark.by_default("prefix")
@pytest.mark.parametrize("method", MECHANISMS)
def test_the_base_is_frozen_to_the_bit(method: str, pretrained: Pretrained, tmp_path: Path) -> None:
    model, _ = pretrained()
    before = load_file(model / "model.safetensors")
    tree = settings(model, labelled(tmp_path / "t.tsv"), adapter={"method": method}, **QUICK)
    tree["optimizer"] = {"learning_rate": 0.1, "weight_decay": 0.5}
    setup = setup_of(finetune(tmp_path / "run", tree))
    with open_trainer(setup, tmp_path / "again", HERE, new=True) as trainer:
        trainer.train()
        state = trainer.model.state_dict()
        trained = {name for name, p in trainer.model.named_parameters() if p.requires_grad}
    same = [name for name in before.keys() & state.keys() if name not in trained]
    changed = [
        name for name in same if state[name].numpy().tobytes() != before[name].numpy().tobytes()
    ]
    assert same and changed == []
    own = load_file(tmp_path / "again" / "model" / "adapter.safetensors")
    assert own.keys() == trained
    assert {name.split(".")[0] for name in own if not is_of_adapter(name)} == {"pooler", "head"}


def is_of_adapter(name: str) -> bool:
    return ".adapter." in f".{name}"


def test_checkpoints_only_hold_what_is_trained(adapted: Adapted, tmp_path: Path) -> None:
    base, adapter = adapted()
    own = load_file(adapter / "adapter.safetensors")
    for path in list_checkpoints(tmp_path / "run").values():
        assert load_file(path / "weights.safetensors").keys() == own.keys()
    manifest = load_checkpoint(adapter).manifest
    assert manifest.adapter is not None
    recorded = manifest.adapter.base
    assert recorded.reference == str(base)
    assert recorded.weights == weights_digest(load_checkpoint(base).manifest.files)
    assert manifest.adapter.settings["target_modules"] == ["query", "value"]
    assert sorted(path.name for path in adapter.iterdir()) == [
        *("adapter.safetensors", "config.json", "zoo.json")
    ]


@pytest.mark.long
def test_a_run_needs_its_base_to_resume(adapted: Adapted, tmp_path: Path) -> None:
    """The base is opened again, and compared with its digest."""
    base, _ = adapted()
    run = tmp_path / "run"
    shutil.rmtree(run / "model")
    weights = base / "model.safetensors"
    content = weights.read_bytes()
    manifest = (base / "zoo.json").read_text()
    other = manifest.replace(json.loads(manifest)["files"]["model.safetensors"]["blake3"], "0" * 64)
    (base / "zoo.json").write_text(other)
    with pytest.raises(VerificationError, match="is not the model that the run began with"):
        FineTuneRun({}, DistContext.initialize("cpu")).resume(run)
    (base / "zoo.json").write_text(manifest)
    assert weights.read_bytes() == content
    FineTuneRun({}, DistContext.initialize("cpu")).resume(run)
    assert (run / "model" / "adapter.safetensors").is_file()


@pytest.mark.long
def test_a_run_is_continued(adapted: Adapted, tmp_path: Path) -> None:
    adapted(keep_optimizer=True)
    longer = FineTuneRun({"max_steps": 6}, DistContext.initialize("cpu"), tmp_path / "longer")
    longer.continue_from(tmp_path / "run")
    assert [record["step"] for record in records(tmp_path / "longer")][-1] == 6


@pytest.mark.by_default("lora")
@pytest.mark.parametrize(
    "method",
    [
        pytest.param(m, marks=[] if m in ("lora", "prompt", "prefix") else pytest.mark.long)
        for m in ADAPTERS.built_in
    ],
)
def test_packed_rows_compute_the_same(
    method: str, pretrained: Pretrained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training on a CPU packs the rows of a batch, which changes no loss."""
    model, _ = pretrained()
    table = labelled(tmp_path / "t.tsv")
    losses = []
    for packed in (True, False):
        if not packed:
            monkeypatch.setattr("zoo.nn.encoder.pack_rows", lambda *_, **__: None)
        tree = settings(model, table, adapter={"method": method}, **QUICK)
        run = finetune(tmp_path / f"packed-{packed}", tree)
        losses.append([record["loss"] for record in records(run)])
    assert losses[0] == pytest.approx(losses[1], abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [pytest.param(m, marks=pytest.mark.long if m != "lora" else []) for m in ADAPTERS.built_in],
)
def test_bfloat16_trains(method: str, adapted: Adapted, tmp_path: Path) -> None:
    _, adapter = adapted(method, precision="bfloat16")
    own = load_file(adapter / "adapter.safetensors")
    assert {tensor.dtype for tensor in own.values()} == {torch.float32}
    assert (tmp_path / "run" / "report.html").is_file()


@pytest.mark.long
@pytest.mark.parametrize("method", ADAPTERS.built_in)
@pytest.mark.parametrize("fsdp", [False, True], ids=["ddp", "fsdp"])
def test_two_processes_equal_one(
    method: str, fsdp: bool, pretrained: Pretrained, tmp_path: Path
) -> None:
    import yaml

    model, _ = pretrained()
    held = labelled(tmp_path / "e.tsv", 20, seed=1)
    table = labelled(tmp_path / "t.tsv")
    tree = settings(model, table, data={"eval": [str(held)]}, adapter={"method": method}, **QUICK)
    one = finetune(tmp_path / "one", tree)
    file = tmp_path / "run.yaml"
    file.write_text(yaml.safe_dump(tree | {"fsdp": fsdp}))
    finish_in_two_processes("finetune", str(file), "-o", str(tmp_path / "two"))
    for split in ("train", "validation"):
        pairs = zip(records(tmp_path / "two", split), records(one, split), strict=True)
        for record, other in pairs:
            assert record["loss"] == pytest.approx(other["loss"], abs=1e-5)
    first, second = (
        load_file(run / "model" / "adapter.safetensors") for run in (one, tmp_path / "two")
    )
    assert first.keys() == second.keys()
    for name, tensor in first.items():
        torch.testing.assert_close(second[name], tensor, atol=1e-5, rtol=1e-4)


# why a family does not take a method
# families whose attention depends on the distances of tokens
BY_DISTANCE = (
    *("bloom", "deberta", "ettin", "eurobert", "gte", "jina", "llama", "modernbert", "mpnet"),
    *("neox", "nomic", "roformer", "xlnet"),
)
NOT_FOR = {
    ("elmo", "houlsby"): "have no Transformer blocks",
    ("elmo", "pfeiffer"): "have no Transformer blocks",
    ("elmo", "parallel"): "have no Transformer blocks",
    ("elmo", "prompt"): "have no table of token embeddings",
    ("elmo", "prefix"): "have no attention that takes a prefix",
    ("lstm", "lora"): "has no linear maps that an adapter changes",
    ("lstm", "dora"): "has no linear maps that an adapter changes",
    ("lstm", "ia3"): "has no linear maps that an adapter changes",
    ("lstm", "houlsby"): "have no Transformer blocks",
    ("lstm", "pfeiffer"): "have no Transformer blocks",
    ("lstm", "parallel"): "have no Transformer blocks",
    ("lstm", "prefix"): "have no attention that takes a prefix",
    ("xlnet", "prompt"): "have no table of token embeddings",
    **{(name, "prefix"): "have no attention that takes a prefix" for name in BY_DISTANCE},
}
DECLARED = ("lora", "ia3")
OF_TEXTS = ("prompt", "prefix")  # not of rows of several documents
SMALL = {"prefix": {"num_virtual_tokens": 4}, "parallel": {"reduction_factor": 16}}


# A family declares its targets of low rank and those that are rescaled; blocks have all others.
@pytest.mark.parametrize(
    ("name", "method"),
    [
        pytest.param(*family.values, method, marks=() if method in DECLARED else family.marks)
        for family in every_family(sorted({*all_families()} - {"model2vec"}))  # no linear maps
        for method in ADAPTERS.built_in
    ],
)
def test_every_family_has_default_targets(name: str, method: str) -> None:
    """An adapter adds parameters, few of them, and renames none."""
    from zoo.adapted_models.registry import parse_adapter
    from zoo.adapted_models.targets import AdaptableModel
    from zoo.nn.layers.skip_init import init_empty_weights

    family = get_family(name)
    config = family.sizes()["tiny"]
    with init_empty_weights():
        model = family.model(config, "none")
        before = dict(model.named_parameters())
        adaptable = AdaptableModel.from_model(model, family, config, "none")
        method_of = parse_adapter({"method": method, **SMALL.get(method, {})})
        if (name, method) in NOT_FOR:
            with pytest.raises(UsageError, match=NOT_FOR[name, method]):
                method_of.add_to(model, adaptable)
            return
        method_of.add_to(model, adaptable)
    after = dict(model.named_parameters())
    own = after.keys() - before.keys()
    assert own and before.keys() < after.keys()
    assert sum(after[n].numel() for n in own) < 0.2 * sum(p.numel() for p in before.values())


def test_shared_layers_have_one_adapter(tmp_path: Path) -> None:
    """ALBERT's layers share their weights, and so the adapter."""
    from tests.inference.making import make_checkpoint

    base = make_checkpoint(
        tmp_path / "base", family=get_family("albert"), num_layers=3, dropout=0.0
    )
    adaptable = adaptable_of(base)
    names = [part.name for site in adaptable.find_sites(("query",)) for part in site.parts.values()]
    assert len(names) == 1


def adaptable_of(base: Any) -> Any:
    from zoo.adapted_models.targets import AdaptableModel
    from zoo.inference.load_model import load_model

    return AdaptableModel.from_model(load_model(base), base.family, base.config, base.head_name)


def pretraining(model: Path, tmp_path: Path, method: str, **changes: Any) -> dict[str, Any]:
    text = tmp_path / "text.txt"
    text.write_text(
        "\n\n".join(" ".join("abcdefghij"[k % 10] for k in range(n, n + 9)) for n in range(200))
    )
    return {
        "family": "bert",
        "init_from": {"model": str(model)},
        "adapter": {"method": method},
        "objective": "masked-lm",
        "data": {"paths": [str(text)]},
        "seq_len": 16,
        "global_batch_tokens": 64,
        "max_steps": 4,
        "eval_steps": 4,
        "eval_sequences": 2,
        "save_steps": 2,
        "save_total_limit": 9,
        "keep_optimizer": True,
        **changes,
    }


@pytest.mark.long
@pytest.mark.parametrize("method", MECHANISMS)
def test_further_pretraining(method: str, pretrained: Pretrained, tmp_path: Path) -> None:
    """Of the head for masked tokens nothing is trained, and nothing is saved."""
    tree = pretraining(pretrained()[0], tmp_path, method)
    if method in OF_TEXTS:
        with pytest.raises(UsageError, match="a row of pretraining holds several"):
            PretrainRun(tree, DistContext.initialize("cpu"), tmp_path / "run").start()
        return
    PretrainRun(tree, DistContext.initialize("cpu"), tmp_path / "run").start()
    own = load_file(tmp_path / "run" / "model" / "adapter.safetensors")
    assert [name for name in own if not is_of_adapter(name)] == []
    assert_resumes_from(tmp_path / "run", tmp_path, 2, 0)
    assert resolve_checkpoint(str(tmp_path / "run" / "model")).head_name == "masked-lm"


@pytest.mark.long
def test_embeddings_and_an_adapter_are_trained(pretrained: Pretrained, tmp_path: Path) -> None:
    """As for a new vocabulary; both are in the adapter, and merge."""
    model, _ = pretrained()
    rate = {"optimizer": {"learning_rate": 0.05}}
    tree = pretraining(model, tmp_path, "lora", trainable="embeddings", **rate)
    PretrainRun(tree, DistContext.initialize("cpu"), tmp_path / "run").start()
    adapter = tmp_path / "run" / "model"
    own, before = load_file(adapter / "adapter.safetensors"), load_file(model / "model.safetensors")
    of_tokens = {name for name in own if not is_of_adapter(name)}
    assert of_tokens == {"embeddings.tokens.weight", "head.bias"}
    assert max(float(own[name].abs().max()) for name in own if "lora_B" in name) > 0
    assert not torch.equal(own["embeddings.tokens.weight"], before["embeddings.tokens.weight"])
    assert_resumes_from(tmp_path / "run", tmp_path, 2, 0)
    merged = load_model(resolve_checkpoint(str(adapter))).state_dict()
    changed = {name for name in before if not torch.equal(before[name], merged[name])}
    of_layers = {f"layers.{k}.attention.qkv.weight" for k in range(2)}
    assert changed == {*of_tokens, *of_layers}
    assert torch.equal(merged["embeddings.tokens.weight"], own["embeddings.tokens.weight"])
    # of a language, below an adapter of a task, which has no output of tokens
    tree = settings(model, labelled(tmp_path / "t.tsv"), adapter={"method": "lora"}, **QUICK)
    task = finetune(tmp_path / "task", tree) / "model"
    both = load_model(resolve_adapted(str(model), [adapter, task])).state_dict()
    alone = load_model(resolve_checkpoint(str(task))).state_dict()
    assert torch.equal(both["embeddings.tokens.weight"], own["embeddings.tokens.weight"])
    for name in ("head.weight", "head.bias"):
        assert torch.equal(both[name], alone[name])


def test_a_student_has_no_adapter(tmp_path: Path) -> None:
    tree = settings("bert", labelled(tmp_path / "t.tsv"), adapter={"method": "lora"})
    with pytest.raises(UsageError, match="a student is trained as a whole"):
        validate_config({**tree, "distillation": {"teachers": ["bert"]}}, DistillTaskConfig)


def test_runs_that_an_adapter_does_not_suit_are_refused(
    pretrained: Pretrained, tmp_path: Path
) -> None:
    table, adapter = labelled(tmp_path / "t.tsv"), {"method": "lora"}
    base, _ = pretrained()
    tree = settings(base, table, adapter={"method": "prompt"}, **QUICK)
    other = finetune(tmp_path / "prompt", tree)
    for model, changes, message in (
        ("bert", {}, "an adapter changes a pretrained model"),
        (other / "model", {}, "training starts from a whole model; give its base"),
        (base, {"freeze_layers": 1}, "freeze_layers would freeze its own"),
    ):
        with pytest.raises(UsageError, match=message):
            finetune(tmp_path / "run", settings(model, table, adapter=adapter, **changes))
        assert not (tmp_path / "run").exists()


def test_a_preset_freezes_no_layers_next_to_an_adapter(tmp_path: Path) -> None:
    tree = settings("elmo", labelled(tmp_path / "t.tsv"), preset="paper")
    tree["init_from"] = {"model": "elmo"}
    assert finetune_config(tree, {}).freeze_layers == 2
    assert finetune_config({**tree, "adapter": {"method": "lora"}}, {}).freeze_layers == 0


@pytest.mark.parametrize(
    ("adapter", "message"),
    [
        ({"method": "lor"}, "no adapter is called 'lor'; did you mean lora"),
        ({"method": "lora", "r": 4}, "no setting 'r'; did you mean rank"),
        ({"method": "lora", "rnak": 4}, "no setting 'rnak'; did you mean rank"),
        ({"rank": 4}, "adapter has settings and no method"),
        ({"method": "lora", "rank": 0}, "rank is 0, and at least 1 is needed"),
        (
            {"method": "lora", "target_modules": ["qeury"]},
            "no linear map of bert is called 'qeury'; did you mean query",
        ),
        ({"method": "prefix", "encoder_hidden_size": 8}, "set prefix_projection"),
        ({"method": "prompt", "num_virtual_tokens": 38}, "the model has 40 positions"),
        (
            {"method": "ia3", "target_modules": ["key"], "feedforward_modules": ["value"]},
            "adapter.feedforward_modules has 'value', which adapter.target_modules lacks",
        ),
        (  # the others read the same inputs
            {"method": "ia3", "target_modules": ["query"], "feedforward_modules": ["query"]},
            "self.query is one product with 2 more here, and its inputs cannot be scaled",
        ),
    ],
)
def test_wrong_settings(
    adapter: dict[str, Any], message: str, pretrained: Pretrained, tmp_path: Path
) -> None:
    model, _ = pretrained()
    tree = settings(model, labelled(tmp_path / "t.tsv"), adapter=adapter)
    with pytest.raises(UsageError) as error:
        finetune(tmp_path / "run", tree)
    assert message in str(error.value)
    assert not (tmp_path / "run").exists()
