"""ALBERT: the conformance kit, and equality with the reference library on random weights."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
import transformers
from msgspec.structs import replace

from tests.families import parity
from tests.families.reference import SMALL_SIZES, ReferenceTests
from zoo.checkpoint import load_checkpoint
from zoo.conformance.comparison import compare_with_reference
from zoo.conformance.verify import verify
from zoo.families.random_inputs import random_inputs
from zoo.io.tensors.formats import TensorInfo
from zoo.testing.conformance import FamilyTests
from zoo.weights import match_tensors
from zoo_albert import Albert
from zoo_albert.config import SIZES, AlbertConfig

ALBERT = Albert()
SMALL = AlbertConfig(**SMALL_SIZES, embedding_size=24, type_vocab_size=3)


class TestAlbert(ReferenceTests, FamilyTests):
    family = ALBERT
    golden = Path(__file__).parents[1] / "golden" / "albert"
    base = SIZES["base-v2"]
    others = ("tiny", "large-v2", "xlarge-v1")
    small = SMALL
    settings = (
        {"tie_embeddings": False},
        {"embedding_size": 48},
        {"num_groups": 3},
        {"num_layers": 5, "num_groups": 2},
        {"blocks_in_group": 2},
        {"num_layers": 5, "num_groups": 3, "blocks_in_group": 2},
        {"type_vocab_size": 1},
        {"pad_token_id": 5},
        {"activation": "gelu"},
        {"layer_norm_eps": 0.1},
        {"labels": ("one",), "problem": "regression"},
    )
    default = SIZES["xxlarge-v2"]
    refused: ClassVar[dict[tuple[str, Any], str]] = {
        ("is_decoder", True): "is_decoder",
        ("hidden_act", "prelu"): "hidden_act",
        ("num_hidden_groups", 13): "num_groups 13",
        ("num_hidden_groups", 0): "num_hidden_groups = 0 is not positive",
        ("inner_group_num", 0): "inner_group_num = 0 is not positive",
    }
    counts: ClassVar[dict[tuple[str, str], int]] = {
        ("base-v2", "none"): 11_683_584,
        ("base-v2", "pretraining"): 11_813_810,
        ("large-v2", "none"): 17_683_968,
        ("large-v2", "pretraining"): 17_847_474,
        ("xlarge-v2", "none"): 58_724_864,
        ("xlarge-v2", "pretraining"): 59_021_490,
        ("xxlarge-v2", "none"): 222_595_584,
        ("xxlarge-v2", "pretraining"): 223_158_450,
        ("xxlarge-v1", "none"): 222_595_584,
    }
    variants = ({"num_groups": 2, "blocks_in_group": 2},)
    carried: ClassVar[dict[str, Any]] = {"gap_size": 0}
    half = "pretraining"

    @property
    def config(self) -> AlbertConfig:
        return replace(SIZES["tiny"], dropout=0.1, num_groups=2)


def test_layers_that_share_a_block_are_compared(tmp_path: Path) -> None:
    model = parity.random_model(ALBERT, SMALL, "masked-lm")
    comparison = compare_with_reference(ALBERT, SMALL, "masked-lm", model)
    assert list(comparison.layers) == ["embeddings", "layers.0", "layers.1", "layers.2"]
    assert len(list(model.get_submodule("layers").children())) == 1


@pytest.mark.by_default("{}")
@pytest.mark.parametrize("changes", [{}, {"num_groups": 2, "blocks_in_group": 2}], ids=str)
def test_session_returns_hidden_states_of_all_layers(
    changes: dict[str, Any], tmp_path: Path
) -> None:
    from zoo.inference import load_session

    config = replace(SMALL, **changes)
    parity.assert_there_and_back(ALBERT, config, "none", tmp_path)
    checkpoint = load_checkpoint(tmp_path / "ours")
    session = load_session(checkpoint, backend="cpu")
    inputs = random_inputs(ALBERT.onnx(config, "none"), config, (7, 3))
    states = session.hidden_states({name: tensor.numpy() for name, tensor in inputs.items()})
    assert len(states) == session.layers == 1 + 3 * config.blocks_in_group
    reference = transformers.AlbertModel.from_pretrained(
        tmp_path / "source", attn_implementation="eager"
    )
    with torch.no_grad():
        theirs = reference(**inputs, output_hidden_states=True).hidden_states
    for mine, other in zip(states, theirs, strict=True):
        assert abs(mine[0] - other[0].numpy()).max() <= 1e-5 * abs(other[0]).max()
    checks = list(verify(tmp_path / "ours"))
    assert [check.outcome for check in checks] == ["ok"] * len(checks), checks


def test_keys_of_the_first_release_are_known() -> None:
    first = {"down_scale_factor": 1, "gap_size": 0, "net_structure_type": 0, "num_memory_blocks": 0}
    translated = ALBERT.from_hub({"model_type": "albert", **first})
    assert translated.unknown == () and translated.extra["down_scale_factor"] == 1


def test_published_file_is_matched() -> None:
    weights = ALBERT.weights(SMALL, "masked-lm")
    file = parity.published(ALBERT, SMALL, "masked-lm")
    file["predictions.decoder.weight"] = file["albert.embeddings.word_embeddings.weight"]
    file["predictions.decoder.bias"] = file["predictions.bias"]
    file["albert.embeddings.position_ids"] = TensorInfo("I64", (1, 40))
    file["albert.pooler.weight"] = TensorInfo("F32", (48, 48))
    file["albert.pooler.bias"] = TensorInfo("F32", (48,))
    mapping = match_tensors(weights, file)
    mapping.raise_if_incomplete("test")
    assert len(mapping.ties) == 2 and len(mapping.drops) == 3
