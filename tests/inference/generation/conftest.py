"""Random models, paired with models of the reference library with the same weights."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from msgspec.structs import replace

from zoo.conformance.hf_reference import reference_model
from zoo.nn.layers.skip_init import init_empty_weights
from zoo_gpt import Gpt
from zoo_gpt.config import SIZES, GptConfig

Pair = tuple[Any, Any]
MakePair = Callable[..., Pair]
VOCABULARY = 61
SMALL = GptConfig(
    vocab_size=VOCABULARY, hidden_size=32, num_layers=3, num_heads=4, max_positions=48
)


def sharp(model: Any, seed: int) -> None:
    """Draw weights with peaked output distributions, such that outputs vary with the prompt."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.3 if parameter.dim() == 1 else 1.5 * parameter.shape[-1] ** -0.5
            parameter.copy_(torch.empty(parameter.shape).normal_(generator=generator) * scale)
            if name.endswith("norm.weight"):
                parameter.add_(1)
            if name.startswith("final_norm.bias"):
                parameter.zero_()  # a bias favours the same tokens everywhere


@pytest.fixture
def pair() -> MakePair:
    """Return a function that makes a model, and the reference library's with the same weights."""

    def make(seed: int = 4, **changes: Any) -> Pair:
        config = replace(SMALL, **changes)
        with init_empty_weights():  # skip the slow initialization, which is replaced
            model: Any = Gpt().model(config, "causal-lm").eval()
        model.to_empty(device="cpu")
        sharp(model, seed)
        reference: Any = reference_model(Gpt(), config, "causal-lm", model.state_dict())
        # the implementation of attention is not under test here, only the search
        reference.set_attn_implementation("sdpa" if config.norm == "pre" else "eager")
        return model, reference

    return make


def prompts(count: int, longest: int = 9, vocabulary: int = VOCABULARY) -> list[list[int]]:
    """Return token ids of several lengths."""
    generator = torch.Generator().manual_seed(5)
    lengths = torch.randint(1, longest + 1, (count,), generator=generator).tolist()
    return [torch.randint(2, vocabulary, (n,), generator=generator).tolist() for n in lengths]


__all__ = ["SIZES", "MakePair", "Pair", "pair", "prompts"]
