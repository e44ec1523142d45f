"""Comparisons with the reference library's models, and their tensors by the names in its files."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest
import torch
import transformers
from safetensors import safe_open
from torch import Tensor, nn
from transformers.models.llama.modeling_llama import LlamaRMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm

from zoo.conformance.hf_reference import compare_with_reference, keep_float64, saved_state
from zoo.families.onnx import OnnxSpec
from zoo.families.random_inputs import randomize_weights
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


class ChangedModel(nn.Module):
    """A model that differs from the reference.

    Args:
        model: a model that computes what the reference does.
        shortest: number of tokens; 1 is added to the outputs of rows with fewer.
        swaps_types: whether the two token types are swapped.
    """

    def __init__(self, model: Any, shortest: int, swaps_types: bool) -> None:
        super().__init__()
        self.model, self.layers, self.embeddings = model, model.layers, model.embeddings
        self.shortest, self.swaps_types = shortest, swaps_types

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Return the state dict of the model."""
        return self.model.state_dict(*args, **kwargs)

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor, token_type_ids: Tensor
    ) -> dict[str, Tensor]:
        """Return the outputs."""
        types = 1 - token_type_ids if self.swaps_types else token_type_ids
        short = attention_mask.sum(dim=1) < self.shortest
        outputs = self.model(input_ids, attention_mask, types)
        return {name: tensor + short[:, None] for name, tensor in outputs.items()}


class ChangedFamily(Bert):
    """A family that declares how its model differs from the reference."""

    changes: ClassVar[Mapping[str, Any]] = {"shortest": 1, "swaps_types": False}
    tells_reference: ClassVar[bool] = False
    shortest_row: ClassVar[int] = 1

    def model(self, config: Any, head: str) -> nn.Module:
        """Return the model."""
        return ChangedModel(super().model(config, head), **self.changes)

    def reference_inputs(self, head: str, inputs: Mapping[str, Tensor]) -> Mapping[str, Tensor]:
        """Return the inputs, with the token types swapped where that is declared."""
        types = inputs["token_type_ids"]
        return {**inputs, "token_type_ids": 1 - types if self.tells_reference else types}

    def onnx(self, config: Any, head: str) -> OnnxSpec:
        """Return the axes, with the smallest number of tokens."""
        return replace(super().onnx(config, head), minimums={"tokens": self.shortest_row})


class SwapsTypes(ChangedFamily):
    """Its model swaps the token types."""

    changes: ClassVar[Mapping[str, Any]] = {"shortest": 1, "swaps_types": True}


class TellsReference(SwapsTypes):
    """The reference gets the swapped token types."""

    tells_reference: ClassVar[bool] = True


class NeedsTokens(ChangedFamily):
    """Its model computes something else for rows of fewer than five tokens."""

    changes: ClassVar[Mapping[str, Any]] = {"shortest": 5, "swaps_types": False}


class DeclaresTokens(NeedsTokens):
    """The smallest number of tokens is declared."""

    shortest_row: ClassVar[int] = 5


def largest_difference(family: Bert) -> float:
    """Return how far the classifier of a family is from the reference, on inputs drawn for it."""
    torch.manual_seed(0)
    config = msgspec.structs.replace(
        family.sizes()["tiny"], num_layers=1, hidden_size=16, num_heads=2, intermediate_size=24
    )
    model = family.model(config, "sequence-classification")
    randomize_weights(model)
    comparison = compare_with_reference(family, config, "sequence-classification", model)
    return max(difference.absolute for difference in comparison.outputs.values())


def test_the_reference_gets_the_inputs_that_the_family_declares() -> None:
    assert largest_difference(SwapsTypes()) > 1e-2
    assert largest_difference(TellsReference()) < 1e-5


def test_rows_have_the_number_of_tokens_that_the_family_declares() -> None:
    """The shortest row has exactly that, so that a limit of one token fewer is found."""
    assert largest_difference(NeedsTokens()) > 0.9
    assert largest_difference(DeclaresTokens()) < 1e-5

    class OneTooFew(NeedsTokens):
        shortest_row: ClassVar[int] = 4

    assert largest_difference(OneTooFew()) > 0.9


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
