"""ModernBERT: the conformance checks, and the outputs of the reference library."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from zoo_modernbert import ModernBert
from zoo_modernbert.config import SIZES, ModernBertConfig

from zoo.errors import VerificationError
from zoo.families.random_inputs import randomize_weights
from zoo.testing.conformance import ReferenceTests


class TestModernBert(ReferenceTests):
    """The conformance checks, and the outputs of the reference library."""

    family = ModernBert()
    settings = ({"classifier_pooling": "cls"}, {"classifier_pooling": "mean"})
    row_lengths = (70, 40, 2)  # longer than the window

    @property
    def config(self) -> ModernBertConfig:
        """``tiny`` with less width, for speed."""
        return replace(SIZES["tiny"], hidden_size=48, intermediate_size=40)

    def test_documents_of_a_packed_row_are_those_alone(self) -> None:
        """Windows and rotations are of positions within a document."""
        model: Any = self.family.model(self.config, "none").double().eval()
        randomize_weights(model)
        texts = [torch.arange(10, 40), torch.arange(100, 160)]
        batch = {
            "input_ids": torch.cat(texts),
            "document_ids": torch.tensor([1] * 30 + [2] * 60),
            "position_ids": torch.cat([torch.arange(30), torch.arange(60)]),
        }
        with torch.no_grad():
            together = model.encode(**{k: v[None] for k, v in batch.items()})
            alone = [model.encode(text[None]) for text in texts]
        assert torch.allclose(together, torch.cat(alone, dim=1), rtol=0, atol=1e-9)


def test_a_published_configuration_is_read() -> None:
    """answerdotai/ModernBERT-base has the names of an earlier release of transformers."""
    hub = {
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "classifier_pooling": "mean",
    }
    config = ModernBert.config_map.to_ours(hub, ModernBertConfig).config
    assert config == SIZES["base"]


@pytest.mark.parametrize("key", ["attention_bias", "mlp_bias", "norm_bias", "classifier_bias"])
def test_biases_are_refused(key: str) -> None:
    """The message names the key."""
    with pytest.raises(VerificationError, match=key):
        ModernBert.config_map.to_ours({key: True}, ModernBertConfig)


def test_parameter_count_of_modernbert_base() -> None:
    """The backbone has as many parameters as the published one."""
    assert ModernBert().weights(SIZES["base"], "none").parameters() == 149_014_272
