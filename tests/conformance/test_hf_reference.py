"""Tensors of the reference library's models by the names in its files, and float64 in them."""

from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors import safe_open
from torch import nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm

from zoo.conformance.hf_reference import (
    ReferenceUnavailable,
    build_reference,
    hub_state,
    keep_float64,
    report_reference_errors,
    saved_state,
)
from zoo.errors import VerificationError
from zoo_bert import Bert

SMALL: dict[str, Any] = {
    "hidden_size": 16,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "vocab_size": 20,
    "tie_word_embeddings": False,
}


@pytest.mark.parametrize(
    ("config", "renamed"),
    [
        (transformers.GPTNeoXConfig(**SMALL), {"lm_head.weight": "embed_out.weight"}),
        (transformers.LlamaConfig(**SMALL), {}),
    ],
    ids=lambda value: getattr(value, "model_type", ""),
)
def test_saved_state_has_the_names_of_the_file(
    config: Any, renamed: dict[str, str], tmp_path: Path
) -> None:
    model = transformers.AutoModelForCausalLM.from_config(config)
    model.save_pretrained(tmp_path)
    saved = {name: tuple(tensor.shape) for name, tensor in saved_state(model).items()}
    assert saved.keys() == {renamed.get(name, name) for name in model.state_dict()}
    with safe_open(tmp_path / "model.safetensors", "np") as file:
        names = list(file.keys())
        assert saved == {name: tuple(file.get_slice(name).get_shape()) for name in names}


def test_tensors_of_another_shape_are_an_error_of_the_rules() -> None:
    """They are not taken for a failure of transformers, with which nothing is compared."""
    family = Bert()
    config = family.sizes()["tiny"]
    weights = hub_state(
        family.weights(config, "masked-lm"), family.model(config, "masked-lm").state_dict()
    )
    name = "bert.embeddings.position_embeddings.weight"
    weights[name] = weights[name][:-1]
    with pytest.raises(VerificationError, match=f"does not fit the rules: .*{name}"):
        build_reference(family, config, "masked-lm", weights, family.to_hub(config))


def test_a_failure_of_the_reference_is_reported_with_its_error() -> None:
    with (
        pytest.raises(ReferenceUnavailable, match="Some of transformers fails with ValueError: no"),
        report_reference_errors("Some"),
    ):
        raise ValueError("no")


@pytest.mark.parametrize("norm_type", [LlamaRMSNorm, T5LayerNorm])
def test_norms_that_compute_in_float32_keep_float64(norm_type: Any) -> None:
    norm = norm_type(16).double()
    x = torch.randn(3, 16, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    expected = x / (x.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()
    assert (norm(x) - expected).abs().max() > 1e-9  # without it, they do not
    with keep_float64():
        torch.testing.assert_close(norm(x), expected, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize(
    "operation",
    [
        lambda x: x.float(),
        lambda x: x.to(torch.float32),
        lambda x: x.to("cpu", torch.float32),
        lambda x: x.to(dtype=torch.float32),
        lambda x: x.type(torch.float32),
        lambda x: torch.softmax(x, -1, torch.float32),
        lambda x: x.softmax(-1, torch.float32),
        lambda x: torch.softmax(input=x, dim=-1, dtype=torch.float32),
        lambda x: nn.functional.softmax(x, dim=-1, dtype=torch.float32),
        lambda x: x.sum(dtype=torch.float32),
    ],
)
def test_float64_is_kept_however_float32_is_asked_for(operation: Any) -> None:
    x = torch.ones(2, 2, dtype=torch.float64)
    assert operation(x).dtype is torch.float32
    with keep_float64():
        assert operation(x).dtype is torch.float64
        assert operation(x.half()).dtype is torch.float32  # other dtypes are converted
