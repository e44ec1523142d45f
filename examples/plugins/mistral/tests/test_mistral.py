"""Mistral: the conformance checks, and the outputs of the reference library."""

from typing import Any

import pytest
import torch
from msgspec.structs import replace
from zoo_mistral import Mistral
from zoo_mistral.config import SIZES, MistralConfig

from zoo.checkpoint.generation_config import GenerationConfig
from zoo.conformance.hf_reference import reference_model
from zoo.errors import VerificationError
from zoo.families.random_inputs import randomize_weights
from zoo.inference.generation.generate import generate
from zoo.testing import ReferenceTests


class TestMistral(ReferenceTests):
    """The conformance checks, and the outputs of the reference library."""

    family = Mistral()
    settings = ({"sliding_window": None}, {"tie_embeddings": True}, {"num_kv_heads": 4})
    # longer than the window
    row_lengths = (70, 40, 2)
    packed_lengths = (60, 30)

    @property
    def config(self) -> MistralConfig:
        """``tiny`` with less width, for speed, and a short window."""
        return replace(SIZES["tiny"], hidden_size=48, intermediate_size=40, sliding_window=20)

    def test_generation_equals_the_reference(self) -> None:
        """Greedy search beyond the window; a prompt that is padded on the left is as alone."""
        config = replace(self.config, sliding_window=6, pad_token_id=3)
        model: Any = self.family.model(config, "causal-lm").double().eval()
        randomize_weights(model)
        reference: Any = reference_model(self.family, config, "causal-lm", model.state_dict())
        ids = torch.tensor([[3, 3, 7, 8, 9], [11, 12, 13, 14, 15]])
        expected = []
        for prompt in (ids[:1, 2:], ids[1:]):
            whole = reference.generate(prompt, max_new_tokens=12, do_sample=False)
            expected.append(whole[0, prompt.shape[1] :].tolist())
        inputs = {"input_ids": ids, "attention_mask": (ids != 3).long()}
        settings = GenerationConfig(max_new_tokens=12)
        assert generate(model, inputs, settings, eos_token_ids=[2]) == expected


def test_other_rotations_are_refused() -> None:
    """The message names the key."""
    with pytest.raises(VerificationError, match=r"rope_parameters\.rope_type"):
        Mistral.config_map.from_hub({"rope_parameters": {"rope_type": "yarn"}}, MistralConfig)


def test_parameter_count_of_mistral_7b() -> None:
    """The rules have as many parameters as the published checkpoint."""
    assert Mistral().weights(SIZES["7b"], "causal-lm").parameters() == 7_241_732_096
