"""Adapters and models whose weights would be infinite or NaN are not written."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import peft
import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.adapters.making import (
    GOLDEN,
    base_of,
    change_first_number,
    randomize,
    write_random_adapter,
    zoo,
)
from tests.checkpoints import Make
from zoo.checkpoint import load_checkpoint
from zoo.errors import VerificationError


def settings_changed(path: Path, **changes: Any) -> None:
    file = path / "adapter_config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **changes}))


def tensor_changed(file: Path, ending: str, value: float, dtype: torch.dtype) -> None:
    tensors = load_file(file)
    for name in tensors:
        if name.endswith(ending):
            tensors[name] = torch.full_like(tensors[name], value, dtype=dtype)
    save_file(tensors, file)


@pytest.fixture
def peft_adapter(hub_checkpoint: Make, tmp_path: Path) -> Callable[..., tuple[Path, Path]]:
    """Return a function that writes an adapter of peft; it returns the base and the adapter."""

    def make(**settings: Any) -> tuple[Path, Path]:
        base, source = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
        model = transformers.BertForSequenceClassification.from_pretrained(source)
        config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query"], **settings)
        adapted: Any = peft.get_peft_model(model, config)
        randomize(adapted)
        adapted.save_pretrained(str(tmp_path / "theirs"))
        return base, tmp_path / "theirs"

    return make


@pytest.mark.by_default("changes1")
@pytest.mark.parametrize(
    ("changes", "settings"),
    [
        ({"lora_alpha": 1e40}, {}),
        ({"lora_alpha": 1e40}, {"use_dora": True}),
        ({"alpha_pattern": {"query": 1e41}}, {}),
        ({"lora_alpha": 1e-38, "alpha_pattern": {"query": 1e30}}, {}),
        ({"lora_alpha": 1e40, "use_rslora": True}, {}),
    ],
)
def test_a_scaling_that_is_too_large(
    changes: dict[str, Any],
    settings: dict[str, Any],
    peft_adapter: Callable[..., tuple[Path, Path]],
    tmp_path: Path,
) -> None:
    base, theirs = peft_adapter(**settings)
    settings_changed(theirs, **changes)
    with pytest.raises(VerificationError, match="holds NaN or infinity"):
        zoo("convert", theirs, "--base", base, "-o", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


@pytest.mark.parametrize(
    ("ending", "value", "dtype"),
    [
        ("lora_A.weight", 1e300, torch.float64),  # a cast to float32
        ("classifier.weight", 1e300, torch.float64),
        ("lora_B.weight", 3e38, torch.float32),  # a product
    ],
)
def test_tensors_that_overflow(
    ending: str,
    value: float,
    dtype: torch.dtype,
    peft_adapter: Callable[..., tuple[Path, Path]],
    tmp_path: Path,
) -> None:
    base, theirs = peft_adapter()
    file = theirs / "adapter_model.safetensors"
    tensor_changed(file, "lora_A.weight", 9.0, torch.float32)
    tensor_changed(file, ending, value, dtype)
    with pytest.raises(VerificationError, match="holds NaN or infinity"):
        zoo("convert", theirs, "--base", base, "-o", tmp_path / "ours")
    assert not (tmp_path / "ours").exists()


def test_it_is_neither_merged_nor_written_for_peft(hub_checkpoint: Make, tmp_path: Path) -> None:
    path, _ = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    write_random_adapter(load_checkpoint(path), tmp_path / "ours", method="lora", alpha=1e41)
    for command in (
        ["adapter", "merge", tmp_path / "ours", "-o", tmp_path / "out"],
        ["convert", tmp_path / "ours", "--to", "hub", "-o", tmp_path / "out"],
    ):
        with pytest.raises(VerificationError, match=r"not finite after merging|NaN or infinity"):
            zoo(*command)
        assert not (tmp_path / "out").exists()


def test_merging_into_float16_does_not_overflow_unseen(
    hub_checkpoint: Make, tmp_path: Path
) -> None:
    """The sum is finite in float32, and the base holds float16."""
    _, source = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    zoo("convert", source, "--dtype", "float16", "-o", tmp_path / "half")
    half = load_checkpoint(tmp_path / "half")
    write_random_adapter(half, tmp_path / "ours", method="lora", alpha=1e8)
    with pytest.raises(VerificationError, match="not finite after merging"):
        zoo("adapter", "merge", tmp_path / "ours", "-o", tmp_path / "merged")


@pytest.mark.long
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_models_that_are_not_finite_have_no_difference(
    value: float, hub_checkpoint: Make, tmp_path: Path
) -> None:
    path, source = base_of(hub_checkpoint, "BertForSequenceClassification", tmp_path)
    zoo("convert", source, "-o", tmp_path / "tuned")
    change_first_number(tmp_path / "tuned", "layers.0.ffn.up.weight", value)
    with pytest.raises(VerificationError, match=r"tuned: layers.0.ffn.up.weight holds NaN or inf"):
        zoo("adapter", "extract", path, tmp_path / "tuned", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_factor_of_adapterhub(tmp_path: Path) -> None:
    folder = GOLDEN / "roberta-parallel"
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    for file in (folder / "adapter").iterdir():
        (adapter / file.name).write_bytes(file.read_bytes())
    described = json.loads((adapter / "adapter_config.json").read_text())
    described["config"]["scaling"] = 3e38
    (adapter / "adapter_config.json").write_text(json.dumps(described))
    tensor_changed(adapter / "adapter.safetensors", "adapter_up.weight", 2.0, torch.float32)
    zoo("convert", folder / "base", "-o", tmp_path / "base")
    with pytest.raises(VerificationError, match="scaled, holds NaN or infinity"):
        zoo("convert", adapter, "--base", tmp_path / "base", "-o", tmp_path / "ours")
