"""Comparisons of models with the reference library's, output by output and module by module."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, ClassVar

import msgspec
import pytest
import torch
from torch import Tensor, nn

from zoo.conformance.comparison import Comparison, compare_models, compare_with_reference
from zoo.conformance.hf_reference import reference_model
from zoo.families.onnx import OnnxSpec
from zoo.families.random_inputs import randomize_weights
from zoo_bert import Bert

HEAD = "token-classification"


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

    def reference_inputs(
        self, head: str, inputs: Mapping[str, Tensor], reference_config: Any
    ) -> Mapping[str, Tensor]:
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


def small_config(family: Bert) -> Any:
    """Return a configuration with one layer."""
    return msgspec.structs.replace(
        family.sizes()["tiny"], num_layers=1, hidden_size=16, num_heads=2, intermediate_size=24
    )


def largest_difference(family: Bert) -> float:
    """Return how far the classifier of a family is from the reference, on inputs drawn for it."""
    torch.manual_seed(0)
    config = small_config(family)
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


def compare(change: Callable[[Any], None], family: Bert | None = None) -> Comparison:
    """Compare a changed model with the reference that has its weights."""
    family = family or Bert()
    torch.manual_seed(0)
    config = small_config(family)
    model = family.model(config, HEAD).double().eval()
    randomize_weights(model)
    reference = reference_model(family, config, HEAD, model.state_dict())
    change(model)
    return compare_models(family, config, HEAD, model, reference, tolerance=1e-9)


def add_to_tokens(model: Any, value: float, *, at_padding: bool) -> None:
    """Add a number to the hidden states of the padding, or of the other tokens."""

    def hook(module: nn.Module, args: object, kwargs: Mapping[str, Tensor], outputs: Any) -> Any:
        mask = kwargs["attention_mask"].bool()
        chosen = ~mask if at_padding else mask
        return {name: tensor + value * chosen[..., None] for name, tensor in outputs.items()}

    model.register_forward_hook(hook, with_kwargs=True)


def test_outputs_at_padding_do_not_count() -> None:
    padding = compare(lambda model: add_to_tokens(model, 10.0, at_padding=True))
    assert padding.first_diverging is None and padding.outputs["logits"].relative < 1e-12
    tokens = compare(lambda model: add_to_tokens(model, 10.0, at_padding=False))
    assert tokens.first_diverging == "logits" and tokens.outputs["logits"].absolute > 9


def use_relu(model: Any) -> None:
    model.layers[0].ffn.act = nn.functional.relu


def change_epsilon(model: Any) -> None:
    model.layers[0].ffn_norm.eps = 0.1


def exchange_types(model: Any) -> None:
    table = model.embeddings.types
    table.register_forward_pre_hook(lambda module, args: (1 - args[0],))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            use_relu,
            "the first module that differs: layers.0.ffn.down (bert.encoder.layer.0.output.dense "
            "in the reference), by its input",
        ),
        (
            change_epsilon,
            "layers.0.ffn_norm (bert.encoder.layer.0.output.LayerNorm in the reference), by its "
            "output, for the same input; its epsilon is 0.1, and 1e-12 in the reference",
        ),
        (exchange_types, "embeddings.types (bert.embeddings.token_type_embeddings in the"),
    ],
)
def test_the_first_module_follows_from_the_rules(
    change: Callable[[Any], None], message: str
) -> None:
    assert message in compare(change).place


def test_without_pairs_an_output_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("zoo.conformance.module_trace.module_pairs", lambda *args: [])
    comparison = compare(use_relu)
    assert comparison.place == "the first of these outputs that differs: layers.0"


class NamesModules(Bert):
    """A family that names modules without weights."""

    reference_modules: ClassVar[Mapping[str, str]] = {
        "embeddings": "embeddings",
        "layers.{i}": "encoder.layer.{i}",
    }


def scale_layer(model: Any) -> None:
    model.layers[0].register_forward_hook(lambda module, args, output: 2 * output)


def test_the_family_names_further_modules() -> None:
    assert "the first module that differs: head (classifier in the" in compare(scale_layer).place
    place = compare(scale_layer, NamesModules()).place
    assert "the first module that differs: layers.0 (bert.encoder.layer.0 in the ref" in place
