"""RemBERT: the conformance checks, and the outputs of the reference library."""

import pytest
import torch
import transformers
from msgspec.structs import replace
from zoo_rembert import RemBert
from zoo_rembert.config import SIZES, RemBertConfig

from zoo.errors import VerificationError
from zoo.testing import ReferenceTests


class TestRemBert(ReferenceTests):
    """The conformance checks, and the outputs of the reference library."""

    family = RemBert()
    settings = ({}, {"pooler": False, "activation": "relu"}, {"embedding_size": 128})

    @property
    def config(self) -> RemBertConfig:
        """``tiny``, with rows of at most 40 tokens, for speed."""
        return replace(SIZES["tiny"], max_positions=40)


@pytest.mark.parametrize("key", ["tie_word_embeddings", "is_decoder"])
def test_other_values_of_fixed_keys_are_refused(key: str) -> None:
    """The message names the key."""
    with pytest.raises(VerificationError, match=key):
        RemBert.config_map.from_hub({key: True}, RemBertConfig)


@pytest.mark.parametrize(("head", "count"), [("none", 575_920_384), ("masked-lm", 993_263_548)])
def test_parameters_are_those_of_the_reference(head: str, count: int) -> None:
    """The count of a model of the reference library, which has no weights here."""
    assert RemBert().weights(SIZES["released"], head).parameters() == count
    name = {"none": "RemBertModel", "masked-lm": "RemBertForMaskedLM"}[head]
    with torch.device("meta"):
        model = getattr(transformers, name)(transformers.RemBertConfig())
    assert sum(parameter.numel() for parameter in model.parameters()) == count


@pytest.mark.parametrize("size", SIZES)
def test_every_size_has_a_recipe(size: str) -> None:
    """Its rows are not longer than the size's positions."""
    family = RemBert()
    recipe = family.recipe(size)
    assert recipe.objective == "masked-lm"
    longest = family.max_seq_len(SIZES[size])
    assert longest is not None and recipe.seq_len <= longest
