"""Published weights of DeBERTa."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.families.deberta.versions import (
    CASES,
    DEBERTA,
    DISCRIMINATOR,
    HEADS,
    POSITIONS,
    THIRD,
    VERSIONS,
)
from tests.families.parity import assert_there_and_back, published
from zoo.io.tensors.formats import TensorInfo
from zoo.weights import match_tensors
from zoo_deberta.config import DebertaConfig


@pytest.mark.by_default("second-none", "third-masked-lm")
@pytest.mark.parametrize(("version", "head"), CASES)
def test_hub_round_trip(version: str, head: str, tmp_path: Path) -> None:
    assert_there_and_back(DEBERTA, VERSIONS[version], head, tmp_path)


@pytest.mark.by_default("first-True", "second-False", "third-True")
@pytest.mark.parametrize("legacy", [True, False])
@pytest.mark.parametrize("version", VERSIONS)
def test_the_table_of_the_decoder_is_kept(version: str, legacy: bool, tmp_path: Path) -> None:
    config = replace(VERSIONS[version], enhanced_decoder=True, legacy_names=legacy)
    assert_there_and_back(DEBERTA, config, "masked-lm", tmp_path, "bfloat16", POSITIONS)


def test_the_head_of_the_third_version_is_found(tmp_path: Path) -> None:
    config = replace(THIRD, enhanced_decoder=True)
    assert_there_and_back(
        DEBERTA, config, "pretraining", tmp_path, released=POSITIONS | DISCRIMINATOR
    )


@pytest.mark.parametrize("legacy_names", [True, False])
def test_both_names_of_the_masked_token_head_are_read(legacy_names: bool) -> None:
    present, other = (
        replace(THIRD, legacy_names=legacy) for legacy in (legacy_names, not legacy_names)
    )
    file = published(DEBERTA, other, "masked-lm")
    file["cls.predictions.decoder.weight"] = TensorInfo("F32", (101, 48))
    file["cls.predictions.decoder.bias"] = TensorInfo("F32", (101,))
    mapping = match_tensors(DEBERTA.weights(present, "masked-lm"), file)
    mapping.raise_if_incomplete("test")
    assert len(mapping.renamed) == 5 and len(mapping.ties) == 2


@pytest.mark.parametrize("head", ["none", "sequence-classification", "question-answering"])
def test_positions_without_a_decoder_are_ignored_with_a_reason(head: str) -> None:
    config = replace(THIRD, enhanced_decoder=True)
    table = {name: TensorInfo("F32", shape) for name, shape in POSITIONS.items()}
    mapping = match_tensors(DEBERTA.weights(config, head), published(DEBERTA, config, head) | table)
    mapping.raise_if_incomplete("test")
    assert [drop.reason for drop in mapping.drops.values()] == [
        "absolute positions, only used by masked-LM heads"
    ]


def released_file(config: DebertaConfig, head: str) -> dict[str, TensorInfo]:
    """Return the tensors of a file with a head; the reference has none for the discriminator."""
    if head not in ("pretraining", "replaced-token-detection"):
        return published(DEBERTA, config, head)
    tensors = published(DEBERTA, config, "masked-lm")
    if head == "replaced-token-detection":
        tensors = {name: info for name, info in tensors.items() if name.startswith("deberta.")}
    return tensors | {name: TensorInfo("F32", shape) for name, shape in DISCRIMINATOR.items()}


@pytest.mark.parametrize("head", HEADS)
def test_embedding_differences_are_ignored_with_a_reason(head: str) -> None:
    """As in the files of deberta-v3-xsmall and mdeberta-v3-base."""
    config = replace(THIRD, enhanced_decoder=True)
    added = {
        "deberta.embeddings.word_embeddings._weight": TensorInfo("F16", (101, 48)),
        "deberta.embeddings.position_embeddings._weight": TensorInfo("F16", (40, 48)),
    }
    mapping = match_tensors(DEBERTA.weights(config, head), released_file(config, head) | added)
    mapping.raise_if_incomplete("test")
    assert {drop.reason for drop in mapping.drops.values()} == {
        "the difference to the generator's; the sum is stored"
    }


def test_the_file_decides_whether_there_is_a_decoder() -> None:
    config = replace(THIRD, enhanced_decoder=True)
    file = published(DEBERTA, config, "masked-lm")
    file |= {name: TensorInfo("F32", shape) for name, shape in POSITIONS.items()}
    weights = DEBERTA.weights(config, "masked-lm")
    assert match_tensors(weights, file).present == ("enhanced_decoder",)
    del file["deberta.embeddings.position_embeddings.weight"]
    mapping = match_tensors(weights, file)
    mapping.raise_if_incomplete("test")
    assert mapping.absent == ("enhanced_decoder",)
