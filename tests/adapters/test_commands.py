"""``zoo run``, ``eval`` and ``export`` with an adapter, and ``zoo adapter``."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

import zoo as zoo_api
from tests.adapters.conftest import Adapted
from tests.adapters.making import TEXTS, change_first_number, error_of, scores, zoo
from tests.finetuning.making import labelled
from tests.inference.making import make_checkpoint, store
from zoo.adapted_models.checkpoint import AdaptedCheckpoint, adapter_record
from zoo.adapted_models.write import write_adapter
from zoo.adapters.merge import merge
from zoo.checkpoint import load_checkpoint
from zoo.conformance.verify import verify
from zoo.conversion.cache import resolve_adapted, resolve_checkpoint
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.exporting.fastest import fastest_backend, save_speeds
from zoo.inference.load_model import load_adapted_model, load_model

MERGED, APART = ("lora", "dora", "ia3"), ("houlsby", "parallel", "pfeiffer", "prompt", "prefix")


def both(base: Path, adapter: Path) -> AdaptedCheckpoint:
    checkpoint = resolve_adapted(str(base), [adapter])
    assert isinstance(checkpoint, AdaptedCheckpoint)
    return checkpoint


@pytest.mark.by_default("lora")
@pytest.mark.parametrize("method", MERGED)
def test_an_adapter_is_applied_to_its_base(method: str, adapted: Adapted, tmp_path: Path) -> None:
    """By its own directory, with its base, and merged."""
    base, adapter = adapted(method)
    expected = scores(adapter)
    whole = load_adapted_model(both(base, adapter), merge=False)
    merged = load_model(resolve_checkpoint(str(adapter)))
    ids = torch.tensor([[2, 5, 6, 7, 3]])
    torch.testing.assert_close(whole(ids)["logits"], merged(ids)["logits"])
    assert scores(base, "--adapter", adapter) == expected
    loaded = zoo_api.load(base, adapter=[adapter]).classify(TEXTS)
    assert [list(row["scores"].values()) for row in loaded] == expected
    zoo("adapter", "merge", adapter, "-o", tmp_path / "merged")
    assert scores(tmp_path / "merged") == expected
    failed = [c for c in verify(tmp_path / "merged", reference=False) if c.outcome != "ok"]
    assert failed == []
    assert [c.outcome for c in verify(adapter)] == ["ok", "ok"]


@pytest.mark.long  # the parts that meet here have tests of their own: merging and exporting
def test_a_graph_is_that_of_the_merged_model(adapted: Adapted, tmp_path: Path) -> None:
    base, adapter = adapted("lora")
    expected = [score for row in scores(adapter) for score in row]
    zoo("export", base, "--adapter", adapter, "-o", tmp_path / "graph")
    for arguments in ((tmp_path / "graph",), (adapter, "--backend", "onnx")):
        found = [score for row in scores(*arguments) for score in row]
        assert found == pytest.approx(expected, abs=1e-6)


@pytest.mark.long
@pytest.mark.parametrize(
    "method",
    [  # one of three bottlenecks
        *(pytest.param(name, marks=pytest.mark.long) for name in ("houlsby", "pfeiffer")),
        # rows before those of the text, as prefix has them in each layer
        pytest.param("prompt", marks=pytest.mark.long),
        *("parallel", "prefix"),
    ],
)
def test_an_adapter_that_is_no_change_of_weights(
    method: str, adapted: Adapted, tmp_path: Path
) -> None:
    """It cannot be merged, and is exported as a part of the graph."""
    base, adapter = adapted(method)
    expected = [score for row in scores(base, "--adapter", adapter) for score in row]
    kind, message = error_of(["adapter", "merge", adapter, "-o", tmp_path / "merged"])
    assert kind is UsageError and "cannot be merged" in message
    if method in ("houlsby", "parallel", "pfeiffer"):
        kind, message = error_of(["convert", adapter, "--to", "hub", "-o", tmp_path / "hub"])
        assert kind is UsageError and "peft has no adapter of the method" in message
    for arguments, hint in (
        (("convert", adapter), "apply it with --adapter"),
        (("retokenize", adapter, "--tokenizer", base), f"give its base, {base}"),
    ):
        kind, message = error_of([*arguments, "-o", tmp_path / "whole"])
        assert kind is UsageError and hint in message
    zoo("export", base, "--adapter", adapter, "-o", tmp_path / "graph")
    found = [score for row in scores(tmp_path / "graph") for score in row]
    assert found == pytest.approx(expected, abs=1e-6)
    assert [c.outcome for c in verify(adapter)] == ["ok", "ok"]


def test_targets_that_hold_an_adapter_that_cannot_be_merged(
    adapted: Adapted, tmp_path: Path
) -> None:
    """Static embeddings are made of its outputs; formats that hold weights refuse it."""
    pairs = {"task": "sentence-embedding", "data": {"pair": "label"}}
    base, adapter = adapted("pfeiffer", **pairs)
    for target in ("ctranslate2", "gguf"):
        arguments = ["export", adapter, "--to", target, "--unverified", "-o", tmp_path / "out"]
        kind, message = error_of(arguments)
        assert kind is UsageError and "cannot be merged" in message and "--to onnx" in message
        assert not (tmp_path / "out").exists()
    zoo("convert", base, "--head", "none", "-o", tmp_path / "encoder")
    for name, *model in (("plain", tmp_path / "encoder"), ("changed", adapter)):
        loose = ("--max-drop", "1", "--dim", "8")
        zoo("export", *model, "--to", "static", *loose, "-o", tmp_path / name)
    plain, changed = (zoo_api.load(tmp_path / n).embed(TEXTS) for n in ("plain", "changed"))
    assert plain.shape == changed.shape and not np.allclose(plain, changed, atol=1e-3)


@pytest.mark.long
def test_layers_are_of_the_tokens_of_a_text(adapted: Adapted, tmp_path: Path) -> None:
    """Not of virtual tokens, which have no words to show."""
    _, adapter = adapted("prompt")
    session = zoo_api.load(adapter, backend="cpu").session
    ids = np.array([[2, 5, 6, 7, 3]])
    states = session.hidden_states({"input_ids": ids, "attention_mask": np.ones_like(ids)})
    assert {state.shape for state in states} == {(1, 5, 32)}
    kind, message = error_of(["look", adapter, "a b", "-o", tmp_path / "page.html"])
    assert kind is UsageError and "virtual tokens" in message


@pytest.mark.long
def test_an_evaluation_is_recorded_in_the_adapter(adapted: Adapted, tmp_path: Path) -> None:
    base, adapter = adapted()
    data = labelled(tmp_path / "e.tsv", 20, seed=2)
    arguments = ("--task", "text-classification", "--eval", data, "--json")
    first = json.loads(zoo("eval", adapter, *arguments))
    second = json.loads(zoo("eval", base, "--adapter", adapter, *arguments))
    assert first["metrics"] == second["metrics"]
    (record,) = load_checkpoint(adapter).manifest.evaluations
    assert record.metrics["accuracy"] == first["metrics"]["accuracy"]
    assert load_checkpoint(base).manifest.evaluations == []


def test_merging_reports_the_largest_change(adapted: Adapted, tmp_path: Path) -> None:
    base, adapter = adapted()
    report = json.loads(zoo("adapter", "merge", adapter, "-o", tmp_path / "merged", "--json"))
    before, own = load_file(base / "model.safetensors"), load_file(adapter / "adapter.safetensors")
    after = load_file(tmp_path / "merged" / "model.safetensors")
    changes = {}
    for name in [name for name in before if not name.startswith("head.")]:
        change = float((after[name].double() - before[name].double()).abs().max())
        if change > 0:
            changes[name] = change
    assert set(changes) == {f"layers.{k}.attention.qkv.weight" for k in range(2)}
    assert report["changed"] == 2
    assert report["largest_change"] == pytest.approx(max(changes.values()))
    assert changes[report["largest_in"]] == max(changes.values())
    prefix = "layers.1.attention.qkv.adapter."
    update = own[f"{prefix}lora_B.2"] @ own[f"{prefix}lora_A.2"]  # alpha / rank is 1
    weight = before["layers.1.attention.qkv.weight"][64:] + update
    torch.testing.assert_close(after["layers.1.attention.qkv.weight"][64:], weight)


@pytest.mark.long
def test_merging_keeps_ties(tmp_path: Path) -> None:
    """The head for masked tokens shares the embeddings, before and after."""
    from transformers import BertForMaskedLM

    adapter = extracted(tmp_path, head="masked-lm")
    checkpoint = resolve_checkpoint(str(adapter))
    assert isinstance(checkpoint, AdaptedCheckpoint)
    report = merge(checkpoint, tmp_path / "merged")
    assert "cls.predictions.decoder.weight" in report.tied
    zoo("convert", tmp_path / "merged", "--to", "hub", "-o", tmp_path / "hub")
    model = BertForMaskedLM.from_pretrained(tmp_path / "hub")
    assert model.cls.predictions.decoder.weight is model.bert.embeddings.word_embeddings.weight
    failed = [c for c in verify(tmp_path / "merged", reference=False) if c.outcome != "ok"]
    assert failed == []


def extracted(tmp_path: Path, *options: str, head: str = "none") -> Path:
    """Extract an adapter of two models that differ by matrices of rank 3, and a norm."""
    base = make_checkpoint(tmp_path / "base", head, dropout=0.0)
    model = load_model(base)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("ffn.up.weight"):
                left = torch.randn(parameter.shape[0], 3, generator=generator)
                right = torch.randn(3, parameter.shape[1], generator=generator)
                parameter.add_(left @ right)
        if "norm" in options:
            model.get_parameter("layers.0.ffn_norm.weight").mul_(2)
    store(tmp_path / "tuned", model, base.family, base.config, head)
    zoo(
        *("adapter", "extract", tmp_path / "base", tmp_path / "tuned"),
        *("--rank", 3, "-o", tmp_path / "extracted"),
    )
    return tmp_path / "extracted"


def test_extraction_finds_a_low_rank_difference(tmp_path: Path) -> None:
    adapter = extracted(tmp_path)
    model = load_model(resolve_checkpoint(str(adapter)))
    tuned = load_model(load_checkpoint(tmp_path / "tuned"))
    for name, parameter in tuned.named_parameters():
        torch.testing.assert_close(model.get_parameter(name), parameter, atol=1e-5, rtol=1e-5)


def test_extraction_says_what_it_loses(tmp_path: Path) -> None:
    """The error comes from the singular values that are left out."""
    extracted(tmp_path, "norm")
    report = json.loads(
        zoo(
            *("adapter", "extract", tmp_path / "base", tmp_path / "tuned"),
            *("--rank", 2, "-o", tmp_path / "two", "--json"),
        )
    )
    before, after = (load_file(tmp_path / name / "model.safetensors") for name in ("base", "tuned"))
    lost = total = elsewhere = 0.0
    for name, tensor in before.items():
        difference = after[name].double() - tensor.double()
        if name.endswith("ffn.up.weight"):
            lost += float(torch.linalg.svdvals(difference)[2:].square().sum())
            total += float(difference.square().sum())
        else:
            elsewhere += float(difference.square().sum())
    assert report["error"] == pytest.approx((lost / total) ** 0.5)
    assert report["outside"] == pytest.approx((elsewhere / (total + elsewhere)) ** 0.5)
    assert report["left"] == ["layers.0.ffn_norm.weight"]


def test_adapters_are_listed_and_described(adapted: Adapted, tmp_path: Path) -> None:
    base, adapter = adapted()
    adapted("ia3", "second")
    listed = json.loads(zoo("adapter", "list", tmp_path, "--json"))["adapters"]
    methods = {row["adapter"]: row["method"] for row in listed}
    assert methods == {str(adapter): "lora", str(tmp_path / "second" / "model"): "ia3"}
    described = json.loads(zoo("adapter", "info", adapter, "--json"))
    own = load_file(adapter / "adapter.safetensors")
    assert described["parameters"] == sum(tensor.numel() for tensor in own.values())
    assert described["base"] == str(base) and described["base_problem"] is None
    assert "labels     " in zoo("adapter", "info", adapter)
    # a base in the layout of the Hub is used by its conversion in the cache
    manifest, source = adapter / "zoo.json", tmp_path / "source"
    manifest.write_text(manifest.read_text().replace(str(base), str(source)))
    assert "is not converted yet" in zoo("adapter", "info", adapter)
    resolve_checkpoint(str(source))
    assert json.loads(zoo("adapter", "info", adapter, "--json"))["base_problem"] is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"method": "vera"}, "no adapter is called 'vera'"),
        ({"rnak": 4}, "no setting 'rnak'; did you mean rank"),
        ({"rank": 0}, "rank is 0, and at least 1 is needed"),
    ],
)
def test_adapters_with_unknown_settings_are_broken(
    changes: dict[str, Any], message: str, adapted: Adapted, tmp_path: Path
) -> None:
    """An adapter of a later version is an error, except in a list, which marks it."""
    _, adapter = adapted()
    checkpoint, broken = load_checkpoint(adapter), tmp_path / "broken"
    record = adapter_record(checkpoint)
    record.settings |= changes
    tensors = load_file(adapter / "adapter.safetensors")
    write_adapter(broken, checkpoint.model, tensors, record, sources=[])
    for arguments in (["adapter", "info", broken], ["run", "classify", broken, "a"]):
        kind, found = error_of(arguments)
        assert kind is VerificationError and message in found
    listed = json.loads(zoo("adapter", "list", tmp_path, "--json"))["adapters"]
    problems = {row["adapter"]: row["problem"] for row in listed}
    assert problems.pop(str(adapter)) is None and message in problems.pop(str(broken))
    assert problems == {}
    assert f"{broken} broken".split() in map(
        str.split, zoo("adapter", "list", tmp_path).split("\n")
    )


def test_no_adapters_are_listed_before_the_first_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "absent"))
    assert json.loads(zoo("adapter", "list", "--json")) == {"adapters": []}


@pytest.mark.long
def test_several_adapters_add_up(adapted: Adapted, tmp_path: Path) -> None:
    """Of a language and of a task: only the last has a head."""
    base, task = adapted()
    checkpoint = load_checkpoint(base)
    tuned = load_model(checkpoint)
    with torch.no_grad():
        tuned.get_parameter("layers.0.ffn.up.weight").add_(0.1)
    store(tmp_path / "tuned", tuned, checkpoint.family, checkpoint.config, checkpoint.head_name)
    zoo(
        *("adapter", "extract", base, tmp_path / "tuned", "--rank", 1),
        *("-o", tmp_path / "language"),
    )
    both = load_model(resolve_adapted(str(base), [tmp_path / "language", task]))
    alone = load_model(resolve_adapted(str(base), [task]))
    change = both.get_parameter("layers.0.ffn.up.weight") - alone.get_parameter(
        "layers.0.ffn.up.weight"
    )
    torch.testing.assert_close(change, torch.full_like(change, 0.1), atol=1e-5, rtol=0)
    for name in ("head.weight", "layers.1.attention.qkv.weight"):
        torch.testing.assert_close(both.get_parameter(name), alone.get_parameter(name))
    with pytest.raises(UsageError, match="only the last may have a head"):
        load_model(resolve_adapted(str(base), [task, tmp_path / "language"]))


def extract_two_adapters(base: Path, folder: Path) -> list[Path]:
    """Write adapters of low rank that change the same weights differently; return their paths."""
    checkpoint = load_checkpoint(base)
    adapters = []
    for number in range(2):
        tuned = load_model(checkpoint)
        with torch.no_grad():
            tuned.get_parameter("layers.0.ffn.up.weight").add_(0.1 + number)
        path = folder / f"tuned-{number}"
        adapter = folder / f"first-{number}"
        store(path, tuned, checkpoint.family, checkpoint.config, checkpoint.head_name)
        zoo("adapter", "extract", base, path, "--rank", 1, "-o", adapter)
        adapters.append(adapter)
    return adapters


@pytest.mark.long
def test_speeds_are_kept_for_all_adapters_together(adapted: Adapted, tmp_path: Path) -> None:
    """A model with the same last adapter and another first one is another model."""
    base, task = adapted("pfeiffer")
    adapters = extract_two_adapters(base, tmp_path)
    both = [resolve_adapted(str(base), [adapter, task]) for adapter in adapters]
    save_speeds(both[0], None, {"cpu": 1.0, "onnx": 2.0})
    assert (fastest_backend(both[0]), fastest_backend(both[1])) == ("onnx", None)


# Graphs have the names of the speeds in the cache, which the test above compares.
@pytest.mark.long
def test_graphs_are_kept_for_all_adapters_together(adapted: Adapted, tmp_path: Path) -> None:
    base, task = adapted("pfeiffer")
    found = []
    for adapter in extract_two_adapters(base, tmp_path):
        arguments = (base, "--adapter", adapter, "--adapter", task)
        expected = [score for row in scores(*arguments) for score in row]
        found.append([score for row in scores(*arguments, "--backend", "onnx") for score in row])
        assert found[-1] == pytest.approx(expected, abs=1e-6)
    assert found[0] != pytest.approx(found[1], abs=1e-4)


def test_an_adapter_of_another_base_is_refused(adapted: Adapted, tmp_path: Path) -> None:
    base, adapter = adapted()
    other = make_checkpoint(tmp_path / "other", "masked-lm")
    kind, message = error_of(["run", "classify", other.path, "--adapter", adapter, "a"])
    assert kind is VerificationError and "their digests differ" in message
    family = make_checkpoint(tmp_path / "gpt", family=_family("gpt"))
    kind, message = error_of(["run", "classify", family.path, "--adapter", adapter, "a"])
    assert kind is UsageError and "is an adapter of a model of bert" in message
    kind, message = error_of(["run", "classify", adapter, "--adapter", adapter, "a"])
    assert kind is UsageError and "is an adapter itself" in message
    kind, message = error_of(["run", "classify", base, "--adapter", base, "a"])
    assert kind is UsageError and "is a whole model" in message
    kind, message = error_of(["run", "classify", base, "--adapter", tmp_path / "nowhere", "a"])
    assert kind is SourceError and "is not there" in message
    kind, message = error_of(["adapter", "info", base / "zoo.json"])
    assert kind is SourceError and "is a file" in message
    twice = ("--adapter", adapter, "--adapter", adapter / ".")
    kind, message = error_of(["run", "classify", base, *twice, "a"])
    assert kind is UsageError and "is given twice" in message
    texts = ("--tokenizer", base, "-o", tmp_path / "vocabulary")
    kind, message = error_of(["retokenize", adapter, *texts])
    assert kind is UsageError and "of a model with the old vocabulary" in message
    kind, message = error_of(["run", "embed", adapter, "a"])
    assert kind is UsageError and f"zoo adapter merge {adapter}" in message


def test_an_adapter_without_its_base(adapted: Adapted, tmp_path: Path) -> None:
    base, adapter = adapted()
    base.rename(tmp_path / "moved")
    kind, message = error_of(["run", "classify", adapter, "a"])
    assert kind is SourceError and f"an adapter of {base}, which is not available" in message
    assert f"--adapter {adapter}" in message
    assert "no: " in zoo("adapter", "info", adapter)
    assert scores(tmp_path / "moved", "--adapter", adapter)
    kind, message = error_of(["convert", adapter, "-o", tmp_path / "x"])
    assert kind is UsageError and "zoo adapter merge" in message
    assert not (tmp_path / "x").exists()


@pytest.mark.long
def test_a_graph_takes_no_adapter(adapted: Adapted, tmp_path: Path) -> None:
    """Neither in float32 nor quantized: its weights are not the base's."""
    base, adapter = adapted()
    zoo("export", base, "--only", "int8", "--max-drop", "1", "-o", tmp_path / "graph")
    for arguments in (
        ["run", "classify", tmp_path / "graph", "--adapter", adapter, "a"],
        ["adapter", "merge", adapter, "--base", tmp_path / "graph", "-o", tmp_path / "merged"],
    ):
        kind, message = error_of(arguments)
        assert kind is UsageError and "is an exported graph" in message
    zoo("convert", adapter, "--to", "hub", "-o", tmp_path / "theirs")
    foreign = ("convert", tmp_path / "theirs", "--base", tmp_path / "graph")
    kind, message = error_of([*foreign, "-o", tmp_path / "merged"])
    assert kind is UsageError and "is an export" in message and "--base" in message
    assert not (tmp_path / "merged").exists()


def test_damaged_adapters_are_refused(adapted: Adapted, tmp_path: Path) -> None:
    _, adapter = adapted()
    file = adapter / "adapter.safetensors"
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    for arguments in (
        ["run", "classify", adapter, "a"],
        ["convert", adapter, "--to", "hub", "-o", tmp_path / "hub"],
    ):
        kind, message = error_of(arguments)
        assert kind is VerificationError and "is not what was written" in message
    assert not (tmp_path / "hub").exists()


def test_tensors_that_no_place_is_for_are_not_converted(adapted: Adapted, tmp_path: Path) -> None:
    """Though their digests are right."""
    _, lora = adapted()
    record, tensors = adapter_record(load_checkpoint(lora)), load_file(lora / "adapter.safetensors")
    name = next(name for name in tensors if "lora_A" in name)
    for number, change in enumerate(
        ({"surprise": torch.zeros(2)}, {name: torch.zeros(3, 3)}, {"head.weight": torch.zeros(1)})
    ):
        folder = tmp_path / str(number)
        model = load_checkpoint(lora).model
        write_adapter(folder, model, {**tensors, **change}, record, sources=[])
        kind, message = error_of(["convert", folder, "--to", "hub", "-o", tmp_path / "hub"])
        assert kind is VerificationError and "the tensors do not match its settings" in message


def test_a_base_that_is_not_at_hand(adapted: Adapted, tmp_path: Path) -> None:
    """Each command says that the directory is an adapter, of what, and what to give."""
    base, lora = adapted()
    zoo("convert", lora, "--to", "hub", "-o", tmp_path / "peft")
    adapterhub = tmp_path / "adapterhub"
    adapterhub.mkdir()
    described = {"config": {"architecture": "lora"}, "model_name": str(base)}
    (adapterhub / "adapter_config.json").write_text(json.dumps(described))
    shutil.rmtree(base)
    out = ("-o", tmp_path / "out")
    for arguments in (
        ["convert", tmp_path / "peft", *out],
        ["convert", adapterhub, *out],
        ["convert", lora, "--to", "hub", *out],
        ["adapter", "merge", lora, *out],
        ["run", "classify", lora, "a"],
        ["export", lora, *out],
    ):
        kind, message = error_of(arguments)
        assert kind is SourceError
        assert f"is an adapter of {base}, which is not available" in message
        assert "--base REF" in message or f"give its base, and --adapter {lora}" in message
    for folder in (tmp_path / "peft", adapterhub):
        kind, message = error_of(["run", "classify", folder, "a"])
        assert kind is SourceError and "an adapter of peft or AdapterHub" in message


@pytest.mark.by_default("nan")
@pytest.mark.parametrize("value", [torch.nan, -torch.inf])
def test_adapters_that_hold_no_numbers_are_refused(
    value: float, adapted: Adapted, tmp_path: Path
) -> None:
    """Of adapter and head, in both layouts, by the commands that read weights."""
    base, lora = adapted()
    shutil.copytree(lora, tmp_path / "broken")
    names = load_file(lora / "adapter.safetensors")
    name = next(name for name in names if "lora_A" in name)
    change_first_number(tmp_path / "broken", name, value)
    zoo("convert", lora, "--to", "hub", "-o", tmp_path / "theirs")
    file = tmp_path / "theirs" / "adapter_model.safetensors"
    of_peft = load_file(file)
    of_peft["base_model.model.classifier.bias"][0] = value
    save_file(of_peft, file)
    out = ("-o", tmp_path / "out")
    for arguments in (
        ["run", "classify", base, "a", "--adapter", tmp_path / "broken"],
        ["convert", tmp_path / "broken", "--to", "hub", *out],
        ["adapter", "merge", tmp_path / "broken", *out],
        ["convert", tmp_path / "theirs", "--base", base, *out],
    ):
        kind, message = error_of(arguments)
        assert kind is VerificationError and "holds NaN or infinity" in message
    assert [check.outcome for check in verify(tmp_path / "broken")] == ["ok", "failed"]
    assert not (tmp_path / "out").exists()


def _family(name: str) -> Any:
    from zoo.plugins import get_family

    return get_family(name)
