"""ModernBERT: the conformance checks, and the outputs of the reference library."""

import pytest
from msgspec.structs import replace
from zoo_modernbert import ModernBert
from zoo_modernbert.config import SIZES, ModernBertConfig

from zoo.errors import VerificationError
from zoo.testing import ReferenceTests


class TestModernBert(ReferenceTests):
    """The conformance checks, and the outputs of the reference library."""

    family = ModernBert()
    settings = ({"classifier_pooling": "cls"}, {"classifier_pooling": "mean"})
    row_lengths, packed_lengths = (70, 40, 2), (60, 30)  # longer than the window

    @property
    def config(self) -> ModernBertConfig:
        """``tiny`` with less width, for speed."""
        return replace(SIZES["tiny"], hidden_size=48, intermediate_size=40)


def test_a_published_configuration_is_read() -> None:
    """answerdotai/ModernBERT-base has the names of an earlier release of transformers."""
    hub = {
        "global_attn_every_n_layers": 3,
        "global_rope_theta": 160000.0,
        "local_rope_theta": 10000.0,
        "classifier_pooling": "mean",
    }
    config = ModernBert.config_map.from_hub(hub, ModernBertConfig).config
    assert config == SIZES["base"]


@pytest.mark.parametrize("key", ["attention_bias", "mlp_bias", "norm_bias", "classifier_bias"])
def test_biases_are_refused(key: str) -> None:
    """The message names the key."""
    with pytest.raises(VerificationError, match=key):
        ModernBert.config_map.from_hub({key: True}, ModernBertConfig)


def test_parameter_count_of_modernbert_base() -> None:
    """The backbone has as many parameters as the published one."""
    assert ModernBert().weights(SIZES["base"], "none").parameters() == 149_014_272
