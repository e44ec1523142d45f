"""Llama and the decoders of its kind: equality with the reference library on random weights."""

from typing import Any

import pytest
from msgspec.structs import replace

from tests.families import parity
from tests.families.reference import SMALL_SIZES
from zoo.families.random_inputs import random_inputs
from zoo_llama import Llama
from zoo_llama.config import LlamaConfig

LLAMA = Llama()
SMALL = LlamaConfig(**{**SMALL_SIZES, "max_positions": 96}, num_kv_heads=2, pad_token_id=3)
QWEN: dict[str, Any] = {"use_sliding_window": False, "max_window_layers": 1, "sliding_window": 7}
GEMMA: dict[str, Any] = {
    "num_kv_heads": 1,
    "head_dim": 10,
    "activation": "gelu_pytorch_tanh",
    "sliding_window": 7,
    "query_pre_attn_scalar": 24,
    "tie_embeddings": True,
}
WAVELENGTHS: dict[str, Any] = {
    "rope_type": "llama3",
    "rope_factor": 8.0,
    "rope_low_freq_factor": 1.0,
    "rope_high_freq_factor": 4.0,
    "rope_original_max_positions": 64,
}
YARN: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_factor": 3.0,
    "rope_original_max_positions": 32,
}
# Name -> a configuration of each model type, and of each branch that they have.
CONFIGS: dict[str, LlamaConfig] = {
    "llama": SMALL,
    "llama-biases": replace(
        SMALL,
        num_kv_heads=4,
        attention_bias=True,
        mlp_bias=True,
        tie_embeddings=True,
        layer_norm_eps=0.1,
    ),
    "llama-wide-heads": replace(SMALL, head_dim=20, rope_theta=500.0, activation="gelu"),
    "llama-linear": replace(SMALL, rope_type="linear", rope_factor=3.0),
    "llama-wavelengths": replace(SMALL, **WAVELENGTHS),
    "mistral": replace(SMALL, model_type="mistral", sliding_window=7),
    "mistral-global": replace(SMALL, model_type="mistral", tie_embeddings=True),
    "qwen2": replace(SMALL, model_type="qwen2", **QWEN),
    "qwen2-local": replace(SMALL, model_type="qwen2", **{**QWEN, "use_sliding_window": True}),
    "qwen2-yarn": replace(SMALL, model_type="qwen2", **QWEN, **YARN),
    "qwen3": replace(SMALL, model_type="qwen3", head_dim=16, tie_embeddings=True, **QWEN),
    "qwen3-biases": replace(
        SMALL,
        model_type="qwen3",
        attention_bias=True,
        **{**QWEN, "use_sliding_window": True},
        **YARN,
        rope_beta_fast=4.0,
        rope_beta_slow=0.5,
        rope_attention_factor=1.3,
    ),
    "smollm3": replace(
        SMALL, model_type="smollm3", no_rope_layer_interval=2, use_sliding_window=False
    ),
    "smollm3-local": replace(
        SMALL,
        model_type="smollm3",
        no_rope_layer_interval=2,
        sliding_window=7,
        attention_bias=True,
        mlp_bias=True,
        tie_embeddings=True,
    ),
    "olmo2": replace(SMALL, model_type="olmo2"),
    "olmo2-biases": replace(
        SMALL, model_type="olmo2", attention_bias=True, num_kv_heads=4, tie_embeddings=True
    ),
    "gemma2": replace(
        SMALL,
        model_type="gemma2",
        **GEMMA,
        sliding_window_pattern=2,
        attn_logit_softcapping=0.7,
        final_logit_softcapping=20.0,
    ),
    "gemma2-unbounded": replace(
        SMALL,
        model_type="gemma2",
        **{**GEMMA, "tie_embeddings": False},
        sliding_window_pattern=3,
        attention_bias=True,
    ),
    "gemma3": replace(
        SMALL,
        model_type="gemma3_text",
        **GEMMA,
        sliding_window_pattern=3,
        rope_theta=9000.0,
        local_rope_theta=90.0,
        final_logit_softcapping=20.0,
    ),
    "gemma3-linear": replace(
        SMALL,
        model_type="gemma3_text",
        **{**GEMMA, "tie_embeddings": False},
        sliding_window_pattern=2,
        attention_bias=True,
        rope_type="linear",
        rope_factor=8.0,
        local_rope_theta=100.0,
    ),
    "gemma3-bidirectional": replace(
        SMALL,
        model_type="gemma3_text",
        **GEMMA,
        sliding_window_pattern=2,
        local_rope_theta=100.0,
        bidirectional=True,
    ),
}


def heads_of(config: LlamaConfig) -> list[str]:
    """Return the heads that the reference library has for a configuration."""
    return [head for head in LLAMA.heads() if LLAMA.has_reference(config, head)]


CASES = [(name, head) for name, config in CONFIGS.items() for head in heads_of(config)]


@pytest.mark.parametrize(("name", "head"), CASES)
def test_outputs_and_hidden_states_equal_the_reference(name: str, head: str) -> None:
    """To 1e-9 in float64 and 1e-5 in float32, in rows that are longer than a window."""
    config = parity.suited(CONFIGS[name], head)
    inputs = random_inputs(LLAMA.onnx(config, head), config, (40, 25, 2))
    parity.assert_equal(LLAMA, config, head, inputs=inputs)
