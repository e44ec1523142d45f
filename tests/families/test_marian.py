"""Marian: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from msgspec.structs import replace
from safetensors.torch import load_file, save_file

from tests.families import parity
from tests.families.making import SEQ2SEQ_SHAPE
from zoo.conversion.convert import convert
from zoo.errors import VerificationError
from zoo.hub.source import CheckpointDir
from zoo.testing.conformance import FamilyTests
from zoo.weights import sinusoidal_positions
from zoo_marian import Marian
from zoo_marian.config import MarianConfig

FAMILY = Marian()
HEADS = list(FAMILY.heads())
SMALL = MarianConfig(
    **SEQ2SEQ_SHAPE,
    activation="swish",
    scale_embedding=True,
    pad_token_id=100,
    decoder_start_token_id=100,
)


class TestMarian(FamilyTests):
    family = FAMILY
    golden = Path(__file__).parents[1] / "golden" / "marian"


@pytest.mark.by_default("seq2seq-lm")
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"tie_embeddings": False},
        {"share_encoder_decoder_embeddings": False},
        {"share_encoder_decoder_embeddings": False, "tie_embeddings": False},
        {"activation": "relu", "scale_embedding": False},
        {"num_layers": 1, "decoder_layers": 3, "hidden_size": 60, "activation": "gelu"},
        {"decoder_start_token_id": 7, "pad_token_id": 5, "eos_token_id": 9},
    ],
    ids=str,
)
@pytest.mark.parametrize("head", HEADS)
def test_small_models_equal_the_reference(changes: dict[str, Any], head: str) -> None:
    parity.assert_equal(FAMILY, replace(SMALL, **changes), head)


def publish(config: MarianConfig, head: str, folder: Path, dtype: str = "float32") -> None:
    """Write a checkpoint as published files are, with the tables of sinusoidal positions."""
    parity.save_reference(FAMILY, config, head, folder, dtype)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    stacks = "model." if head == "seq2seq-lm" else ""
    table = torch.from_numpy(sinusoidal_positions(config.max_positions, config.hidden_size))
    for stack in ("encoder", "decoder"):
        tensors[f"{stacks}{stack}.embed_positions.weight"] = table.to(getattr(torch, dtype)).clone()
    save_file(tensors, file)


@pytest.mark.parametrize(
    ("changes", "head", "dtype"),
    [
        pytest.param({}, "none", "float32", marks=pytest.mark.long),
        ({}, "seq2seq-lm", "float16"),
        pytest.param(
            {"share_encoder_decoder_embeddings": False},
            "seq2seq-lm",
            "float32",
            marks=pytest.mark.long,
        ),
        ({"share_encoder_decoder_embeddings": False}, "none", "bfloat16"),
    ],
    ids=str,
)
def test_hub_round_trip(changes: dict[str, Any], head: str, dtype: str, tmp_path: Path) -> None:
    config = replace(SMALL, **changes)
    publish(config, head, tmp_path / "hub", dtype)
    convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours")
    convert(CheckpointDir(tmp_path / "ours", "ours"), tmp_path / "back", to="hub")
    before, after = (load_file(tmp_path / d / "model.safetensors") for d in ("hub", "back"))
    assert before.keys() == after.keys()
    assert [name for name in before if not torch.equal(before[name], after[name])] == []
    kind = getattr(transformers, FAMILY.architecture(config, head))
    loading = kind.from_pretrained(tmp_path / "back", output_loading_info=True)[1]
    assert {key: value for key, value in loading.items() if value} == {}


def test_files_of_transformers_5_lack_positions(tmp_path: Path) -> None:
    parity.save_reference(FAMILY, SMALL, "seq2seq-lm", tmp_path / "hub")
    names = load_file(tmp_path / "hub" / "model.safetensors").keys()
    assert [name for name in names if "positions" in name] == []
    assert convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours").head == "seq2seq-lm"


def test_other_positions_are_refused(tmp_path: Path) -> None:
    publish(SMALL, "seq2seq-lm", tmp_path / "hub")
    file = tmp_path / "hub" / "model.safetensors"
    tensors = load_file(file)
    tensors["model.decoder.embed_positions.weight"][3, 1] += 1e-3
    save_file(tensors, file)
    with pytest.raises(VerificationError, match="sinusoidal positions"):
        convert(CheckpointDir(tmp_path / "hub", "hub"), tmp_path / "ours")


def test_keys_of_the_reference_are_known() -> None:
    translated = FAMILY.from_hub(transformers.MarianConfig().to_dict())
    assert translated.unknown == ()
    assert translated.config == MarianConfig()
