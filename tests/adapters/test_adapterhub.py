"""Adapters of AdapterHub's library against its outputs; see ``tests/golden/make_adapterhub.py``."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.adapters.making import GOLDEN, logits_of_inputs, zoo
from tests.inference.conftest import converted
from zoo.checkpoint import load_checkpoint
from zoo.conversion.cache import resolve_checkpoint
from zoo.errors import SourceError, UsageError, VerificationError
from zoo.inference.load_model import load_model


@pytest.mark.by_default("bert", "roberta")
@pytest.mark.parametrize("name", sorted(path.name for path in GOLDEN.iterdir()))
def test_outputs_equal_those_of_the_library(name: str, tmp_path: Path) -> None:
    base = converted(GOLDEN / name / "base", tmp_path / "base").path
    theirs, out = GOLDEN / name / "adapter", ("--base", base, "-o", tmp_path / "ours")
    if (theirs / "pytorch_adapter.bin").is_file():
        with pytest.raises(UsageError, match=r"pytorch_adapter\.bin, a pickle"):
            zoo("convert", theirs, *out)
    zoo("convert", theirs, *out, "--allow-pickle")
    expected = json.loads((GOLDEN / name / "outputs.json").read_text())
    checkpoint = resolve_checkpoint(str(tmp_path / "ours"))
    found = logits_of_inputs(
        load_model(checkpoint), {"input_ids": torch.tensor(expected["input_ids"])}
    )
    torch.testing.assert_close(found, torch.tensor(expected["logits"]), atol=1e-5, rtol=1e-5)
    assert checkpoint.config.labels == ("LABEL_0", "LABEL_1", "LABEL_2")
    record = load_checkpoint(tmp_path / "ours").manifest
    assert record.adapter is not None and record.source is not None
    assert record.adapter.settings["method"] == name.partition("-")[2]
    wanted = wanted_settings(name)
    assert {key: record.adapter.settings[key] for key in wanted} == wanted
    assert record.source.format == "adapterhub" and len(record.source.files) == 4


def wanted_settings(name: str) -> dict[str, Any]:
    if name == "bert-lora":
        return {"rank": 4, "alpha": 6.0, "dropout": 0.0}
    if name == "roberta-ia3":  # the library scales the outputs of intermediate.dense
        targets = ["intermediate.dense", "self.key", "self.value"]
        return {"target_modules": targets, "feedforward_modules": []}
    if name.endswith("-prefix"):  # of a network, and without one
        inner = 6 if name == "distilbert-prefix" else None
        return {
            "num_virtual_tokens": 3,
            "encoder_hidden_size": inner,
            "shift_positions": False,
        }
    return {"reduction_factor": 4}


Change = Callable[[Path], None]


def of_config(**changes: Any) -> Change:
    def change(folder: Path) -> None:
        file = folder / "adapter_config.json"
        described = json.loads(file.read_text())
        described["config"] |= changes
        file.write_text(json.dumps(described))

    return change


def of_tensors(name: str, **tensors: torch.Tensor) -> Change:
    def change(folder: Path) -> None:
        save_file({**load_file(folder / name), **tensors}, folder / name)

    return change


def of_pickle(where: str, name: str, other: str) -> Change:
    """Give a tensor another name and values."""

    def change(folder: Path) -> None:
        file = folder / "pytorch_adapter.bin"
        tensors = torch.load(file)
        key = next(key for key in tensors if where in key and name in key)
        tensors[key.replace(name, other)] = tensors.pop(key) + 1
        torch.save(tensors, file)

    return change


BAD: dict[str, tuple[Change, type[Exception]]] = {
    "leave_out is": (of_config(leave_out=[1]), UsageError),
    "a_new_setting is True": (of_config(a_new_setting=True), UsageError),
    "architecture prompt_tuning": (of_config(architecture="prompt_tuning"), UsageError),
    "architecture reft": (of_config(architecture="reft"), UsageError),
    "non_linearity": (of_config(non_linearity="mish"), UsageError),
    "surprise does not belong to a bottleneck": (
        of_tensors("adapter.safetensors", surprise=torch.zeros(2)),
        VerificationError,
    ),
    "unknown tensors: surprise": (
        of_tensors("model_head.safetensors", surprise=torch.zeros(2)),
        VerificationError,
    ),
    "do not match its settings": (of_config(reduction_factor=2), VerificationError),
    "neither adapter.safetensors nor": (
        lambda folder: (folder / "adapter.safetensors").unlink(),
        UsageError,
    ),
}


# of LoRA
BAD_UPDATES: dict[str, tuple[Change, type[Exception]]] = {
    "use_dora is True": (of_config(use_dora=True), UsageError),
    "vera_d is 0.1": (of_config(vera_d=0.1), UsageError),
    "a_new_setting is True": (of_config(a_new_setting=True), UsageError),
    "alpha is 2, which": (of_config(alpha=2), UsageError),
    "surprise does not belong to a IA3 adapter": (
        of_tensors("adapter.safetensors", surprise=torch.zeros(2)),
        VerificationError,
    ),
}


# of prefixes
BAD_PREFIXES: dict[str, tuple[Change, type[Exception]]] = {
    "use_gating is True": (of_config(use_gating=True), UsageError),
    "non_linearity is 'relu'": (of_config(non_linearity="relu"), UsageError),
    "leave_out is [0]": (of_config(leave_out=[0]), UsageError),
    "do not match its settings": (of_config(prefix_length=5), VerificationError),
    "num_virtual_tokens is 0": (of_config(prefix_length=0), UsageError),
    "is not the prefix of the other layers": (
        of_pickle("layer.1", "wte.weight", "wte.weight"),
        VerificationError,
    ),
    "does not belong to a prefix of self-attention": (
        of_pickle("layer.1", "self.wte", "cross_prefix.wte"),
        VerificationError,
    ),
}


@pytest.fixture(scope="module")
def bases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("adapterhub")
    names = ("bert-pfeiffer", "roberta-ia3", "distilbert-prefix")
    return {name: converted(GOLDEN / name / "base", folder / name).path for name in names}


@pytest.mark.parametrize(
    ("name", "message"),
    [
        *(("bert-pfeiffer", m) for m in BAD),
        *(("roberta-ia3", m) for m in BAD_UPDATES),
        *(("distilbert-prefix", m) for m in BAD_PREFIXES),
    ],
)
def test_what_is_not_known_is_refused(
    name: str, message: str, bases: dict[str, Path], tmp_path: Path
) -> None:
    base = bases[name]
    change, kind = {"bert": BAD, "roberta": BAD_UPDATES, "distilbert": BAD_PREFIXES}[
        name.partition("-")[0]
    ][message]
    shutil.copytree(GOLDEN / name / "adapter", tmp_path / "theirs")
    change(tmp_path / "theirs")
    with pytest.raises(kind) as error:
        out = ("-o", tmp_path / "ours", "--allow-pickle")
        zoo("convert", tmp_path / "theirs", "--base", base, *out)
    assert message in str(error.value)
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize("name", ["head_config.json", "model_head.safetensors"])
@pytest.mark.parametrize("target", ["nowhere", None])
def test_a_file_of_a_head_that_cannot_be_read_is_an_error(
    name: str, target: str | None, bases: dict[str, Path], tmp_path: Path
) -> None:
    base, theirs, ours = bases["bert-pfeiffer"], tmp_path / "theirs", tmp_path / "ours"
    shutil.copytree(GOLDEN / "bert-pfeiffer" / "adapter", theirs)
    (theirs / name).unlink()
    (theirs / name).symlink_to(target or name)  # a missing file, or a link to itself
    with pytest.raises(SourceError, match=re.escape(str(theirs / name))):
        zoo("convert", theirs, "--base", base, "-o", ours)
    assert not ours.exists()
    zoo("convert", theirs, "--base", base, "--head", "none", "-o", ours)
    assert name not in read_file_names(ours)


def test_a_head_without_weights_is_left_out_by_name(bases: dict[str, Path], tmp_path: Path) -> None:
    base, theirs, ours = bases["bert-pfeiffer"], tmp_path / "theirs", tmp_path / "ours"
    shutil.copytree(GOLDEN / "bert-pfeiffer" / "adapter", theirs)
    (theirs / "model_head.safetensors").unlink()
    with pytest.raises(UsageError, match=r"head_config\.json, and neither model_head"):
        zoo("convert", theirs, "--base", base, "-o", ours)
    zoo("convert", theirs, "--base", base, "--head", "none", "-o", ours)
    assert "head_config.json" not in read_file_names(ours)


def read_file_names(ours: Path) -> set[str]:
    """Return the names of the files that an adapter was converted from."""
    source = load_checkpoint(ours).manifest.source
    assert source is not None
    return set(source.files)


def test_a_head_that_the_hub_lacks_is_left_out_by_name(
    bases: dict[str, Path], tmp_path: Path
) -> None:
    base, theirs = bases["bert-pfeiffer"], tmp_path / "theirs"
    shutil.copytree(GOLDEN / "bert-pfeiffer" / "adapter", theirs)
    save_file({"heads.task.1.weight": torch.zeros(16, 16)}, theirs / "model_head.safetensors")
    with pytest.raises(UsageError, match="the library's own model classes"):
        zoo("convert", theirs, "--base", base, "-o", tmp_path / "ours")
    zoo("convert", theirs, "--base", base, "--head", "none", "-o", tmp_path / "ours")
    own = load_file(tmp_path / "ours" / "adapter.safetensors")
    assert [name for name in own if ".adapter." not in name] == []
    with pytest.raises(UsageError, match="give it as --base REF"):
        zoo("convert", theirs, "-o", tmp_path / "other")
