"""Tensors of the reference library's models, by the names in its files."""

from pathlib import Path
from typing import Any

import pytest
import transformers
from safetensors import safe_open

from zoo.conformance.hf_reference import saved_state

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
