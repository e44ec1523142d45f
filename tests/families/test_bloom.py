"""BLOOM: the conformance checks, and the outputs of the reference library."""

from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from zoo.checkpoint.generation_config import GenerationConfig
from zoo.conformance.hf_reference import reference_model
from zoo.errors import VerificationError
from zoo.families.random_inputs import randomize_weights
from zoo.inference.generation.generate import generate
from zoo.testing import ReferenceTests
from zoo_bloom import Bloom
from zoo_bloom.config import SIZES, BloomConfig


class TestBloom(ReferenceTests):
    """The conformance checks, and the outputs of the reference library."""

    family = Bloom()
    golden = Path(__file__).parents[1] / "golden" / "bloom"
    row_lengths = (90, 40, 1)

    @property
    def config(self) -> BloomConfig:
        """``tiny`` with heads whose number is no power of two, and a padding token."""
        return replace(SIZES["tiny"], hidden_size=48, num_heads=6, pad_token_id=3)

    def test_generation_equals_the_reference(self) -> None:
        """Greedy search with a cache; a prompt that is padded on the left is as it is alone."""
        model: Any = self.family.model(self.config, "causal-lm").double().eval()
        randomize_weights(model)
        state = model.state_dict()
        reference: Any = reference_model(self.family, self.config, "causal-lm", state)
        ids = torch.tensor([[3, 3, 7, 8, 9], [11, 12, 13, 14, 15]])
        expected = []
        for prompt in (ids[:1, 2:], ids[1:]):
            whole = reference.generate(prompt, max_new_tokens=12, do_sample=False)
            expected.append(whole[0, prompt.shape[1] :].tolist())
        inputs = {"input_ids": ids, "attention_mask": (ids != 3).long()}
        settings = GenerationConfig(max_new_tokens=12)
        assert generate(model, inputs, settings, eos_token_ids=[2]) == expected


def test_a_published_configuration_is_read() -> None:
    """bigscience/bloom-560m has the names of the code that trained it."""
    hub = {"n_embed": 1024, "n_layer": 24, "num_attention_heads": 16, "pad_token_id": 3}
    config = Bloom.config_map.from_hub(hub, BloomConfig).config
    assert config == SIZES["560m"]


def test_other_residual_connections_are_refused() -> None:
    """The message names the key."""
    key = "apply_residual_connection_post_layernorm"
    with pytest.raises(VerificationError, match=key):
        Bloom.config_map.from_hub({key: True}, BloomConfig)


def test_parameter_count_of_bloom_560m() -> None:
    """The rules have as many parameters as the published checkpoint."""
    assert Bloom().weights(SIZES["560m"], "causal-lm").parameters() == 559_214_592
