"""Dtypes of the tensors of a source: integers, float8, several in one tensor of ours."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file

from tests.checkpoints import Make
from zoo.checkpoint import load_checkpoint
from zoo.conversion.convert import convert
from zoo.errors import UsageError, VerificationError
from zoo.hub.source import CheckpointDir
from zoo.inference.load_model import load_model

LAYER = "bert.encoder.layer.0.attention.self"
QUERY, KEY, VALUE = (f"{LAYER}.{part}.weight" for part in ("query", "key", "value"))


def directory(path: Path) -> CheckpointDir:
    return CheckpointDir(path, str(path))


def tensors(path: Path) -> dict[str, torch.Tensor]:
    return load_file(path / "model.safetensors")


def retyped(source: Path, dtypes: dict[str, torch.dtype]) -> dict[str, torch.Tensor]:
    """Store tensors of a checkpoint in other dtypes; return all tensors."""
    stored = tensors(source)
    stored |= {name: (stored[name] * 20).to(dtype) for name, dtype in dtypes.items()}
    save_file(stored, source / "model.safetensors", {"format": "pt"})
    return stored


@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.bool, torch.int64])
@pytest.mark.parametrize("dry_run", [True, False])
def test_integer_weights_are_refused(
    hub_checkpoint: Make, tmp_path: Path, dtype: torch.dtype, dry_run: bool
) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    name = "bert.encoder.layer.0.intermediate.dense.weight"
    retyped(source, {name: dtype})
    with pytest.raises(VerificationError) as caught:
        convert(directory(source), tmp_path / "ours", dry_run=dry_run)
    message = str(caught.value)
    assert f"{name} is {str(dtype).removeprefix('torch.')}" in message and "quantized" in message
    assert not (tmp_path / "ours").exists()


def test_integer_buffers_are_dropped(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    positions = {"bert.embeddings.position_ids": torch.arange(40)[None]}
    save_file({**tensors(source), **positions}, source / "model.safetensors", {"format": "pt"})
    report = convert(directory(source), tmp_path / "ours")
    assert list(report.mapping.drops) == ["bert.embeddings.position_ids"]
    assert report.round_trip == "partial"
    assert report.rebuilt().endswith("bit for bit; not rebuilt: 1 dropped")


def test_integer_weights_of_an_older_conversion(hub_checkpoint: Make, tmp_path: Path) -> None:
    convert(directory(hub_checkpoint("BertForMaskedLM")), tmp_path / "ours")
    stored = tensors(tmp_path / "ours")
    stored["layers.0.ffn.up.weight"] = stored["layers.0.ffn.up.weight"].to(torch.int8)
    save_file(stored, tmp_path / "ours" / "model.safetensors", {"format": "zoo"})
    with pytest.raises(VerificationError, match=r"layers\.0\.ffn\.up\.weight \(int8\) stored as"):
        load_model(load_checkpoint(tmp_path / "ours"))


def test_float8_needs_a_dtype(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    name = "bert.encoder.layer.1.output.dense.weight"
    stored = retyped(source, {name: torch.float8_e4m3fn})
    with pytest.raises(UsageError, match=f"{name} is float8_e4m3fn, in which no command computes"):
        convert(directory(source), tmp_path / "ours", dry_run=True)
    convert(directory(source), tmp_path / "ours", dtype="bfloat16")
    ours = tensors(tmp_path / "ours")["layers.1.ffn.down.weight"]
    assert torch.equal(ours, stored[name].to(torch.bfloat16))


MIXED = [
    ({QUERY: torch.float16}, torch.float32),
    ({QUERY: torch.float16, KEY: torch.bfloat16}, torch.float32),
    ({VALUE: torch.float64, KEY: torch.bfloat16}, torch.float64),
]


@pytest.mark.by_default("dtypes0")
@pytest.mark.parametrize(("dtypes", "widest"), MIXED)
def test_parts_of_several_dtypes(
    hub_checkpoint: Make, tmp_path: Path, dtypes: dict[str, torch.dtype], widest: torch.dtype
) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    stored = retyped(source, dtypes)
    dry = convert(directory(source), None, dry_run=True)
    report = convert(directory(source), tmp_path / "ours")
    ours = tensors(tmp_path / "ours")
    assert torch.equal(
        ours["layers.0.attention.qkv.weight"],
        torch.cat([stored[name].to(widest) for name in (QUERY, KEY, VALUE)]),
    )
    manifest = load_checkpoint(tmp_path / "ours").manifest
    names = {n: str(stored[n].dtype).removeprefix("torch.") for n in (QUERY, KEY, VALUE)}
    assert manifest.source_dtypes == names
    changed = [name for name in names if stored[name].dtype != widest]
    for text in ("\n".join(dry.lines()), "\n".join(report.lines())):
        said = [f"{n}: {names[n]} to {str(widest).removeprefix('torch.')}" for n in changed]
        assert [line for line in said if line not in text] == []
    # all dtypes come back, from a copy of the conversion as well
    convert(directory(tmp_path / "ours"), tmp_path / "copy")
    convert(directory(tmp_path / "copy"), tmp_path / "back", to="hub")
    convert(directory(source), tmp_path / "direct", to="hub")
    for path in (tmp_path / "back", tmp_path / "direct"):
        after = tensors(path)
        assert after.keys() == stored.keys()
        wrong = [
            name
            for name, tensor in stored.items()
            if after[name].dtype != tensor.dtype or not torch.equal(after[name], tensor)
        ]
        assert wrong == []


def test_a_dtype_of_the_user_wins(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    stored = retyped(source, {QUERY: torch.float16})
    report = convert(directory(source), tmp_path / "ours", dtype="bfloat16")
    assert (report.round_trip, report.rounded) == ("rounded", "bfloat16")
    convert(directory(tmp_path / "ours"), tmp_path / "back", to="hub")
    convert(directory(source), tmp_path / "direct", to="hub", dtype="bfloat16")
    convert(directory(source), tmp_path / "exact")
    convert(directory(tmp_path / "exact"), tmp_path / "late", to="hub", dtype="bfloat16")
    for path in (tmp_path / "back", tmp_path / "direct", tmp_path / "late"):
        after = tensors(path)
        assert {tensor.dtype for tensor in after.values()} == {torch.bfloat16}
        assert torch.equal(after[QUERY], stored[QUERY].to(torch.bfloat16))
    assert transformers.BertForMaskedLM.from_pretrained(tmp_path / "back").dtype == torch.bfloat16


def with_decoder(source: Path, dtype: torch.dtype) -> None:
    """Store the tied copy of the token embeddings in a dtype."""
    stored = tensors(source)
    words = stored["bert.embeddings.word_embeddings.weight"].to(torch.float16).float()
    stored["bert.embeddings.word_embeddings.weight"] = words
    stored["cls.predictions.decoder.weight"] = words.to(dtype, copy=True)
    save_file(stored, source / "model.safetensors", {"format": "pt"})


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_the_report_says_what_was_not_rebuilt(
    hub_checkpoint: Make, tmp_path: Path, dtype: torch.dtype
) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    with_decoder(source, dtype)
    report = convert(directory(source), tmp_path / "ours")
    count = len(tensors(source))
    rebuilt = f"{count - 1} of {count} tensors of the source were rebuilt bit for bit"
    text = "\n".join(report.lines())
    tie = "cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"
    assert f"round trip   {rebuilt}; not rebuilt: 1 tied" in text
    assert f"{tie[0]} = {tie[1]}, equal" in text
    manifest: dict[str, Any] = json.loads((tmp_path / "ours" / "zoo.json").read_text())
    for record in (manifest, report.to_dict()):
        assert record["round_trip"] == "partial"
        assert record["account"]["tied"] == dict([tie])
        assert record["account"]["tied_equal"] is True
        assert record["account"]["rebuilt"] == f"{rebuilt}; not rebuilt: 1 tied"
    convert(directory(tmp_path / "ours"), tmp_path / "back", to="hub")


def test_a_tie_that_another_dtype_rounded(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    with_decoder(source, torch.bfloat16)
    with pytest.raises(VerificationError, match=r"\(bfloat16\) and .*\(float32\) differ"):
        convert(directory(source), tmp_path / "ours")


@pytest.mark.parametrize("equal", [True, False])
def test_an_unused_copy_is_compared(hub_checkpoint: Make, tmp_path: Path, equal: bool) -> None:
    source = hub_checkpoint("BertForMaskedLM", tie_word_embeddings=False)
    stored = tensors(source)
    bias = stored["cls.predictions.decoder.bias"]
    stored["cls.predictions.bias"] = bias.clone() if equal else bias + 1
    save_file(stored, source / "model.safetensors", {"format": "pt"})
    report = convert(directory(source), tmp_path / "ours")
    word = "equal" if equal else "different"
    assert report.mapping_record()["dropped"] == {
        "cls.predictions.bias": "the model uses cls.predictions.decoder.bias instead, with "
        f"{word} values"
    }


def test_an_owner_that_is_read_from_its_alias(hub_checkpoint: Make, tmp_path: Path) -> None:
    source = hub_checkpoint("BertForMaskedLM")
    stored = tensors(source)
    words = "bert.embeddings.word_embeddings.weight"
    stored["cls.predictions.decoder.weight"] = stored.pop(words)
    save_file(stored, source / "model.safetensors", {"format": "pt"})
    report = convert(directory(source), tmp_path / "ours")
    assert report.mapping_record()["aliases"] == {"cls.predictions.decoder.weight": words}
    assert f"cls.predictions.decoder.weight read as {words}" in "\n".join(report.lines())
