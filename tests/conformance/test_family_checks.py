"""Each conformance check fails on a family that is wrong in just the way that it looks for."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from dataclasses import replace as changed
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from torch import nn

import zoo_bert.recipe
from zoo.conformance.family_checks import FamilyChecks
from zoo.errors import VerificationError
from zoo.families.base import Family
from zoo.families.recipe import Recipe
from zoo.weights import Identity, WeightMap
from zoo_bert import Bert
from zoo_gpt import Gpt


@dataclass
class Faults:
    """Changes of a sound family.

    Attributes:
        model: changes a model in place.
        weights: changes the weight rules.
        sizes: changes the sizes.
        written: changes a configuration in the Hub's keys.
        seed: seed of every model; ``None`` for that of torch.
    """

    model: Callable[[Any], None] = lambda model: None
    weights: Callable[[WeightMap], WeightMap] = lambda weights: weights
    sizes: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda sizes: sizes
    written: Callable[[dict[str, Any]], dict[str, Any]] = lambda hub: hub
    seed: int | None = None


class Faulty:
    """Methods of ``Family`` with faults; see ``Faults``."""

    faults: Faults

    def sizes(self) -> Mapping[str, Any]:
        return self.faults.sizes(super().sizes())  # type: ignore[misc]

    def model(self, config: Any, head: str) -> nn.Module:
        if self.faults.seed is not None:
            torch.manual_seed(self.faults.seed)
        model: nn.Module = super().model(config, head)  # type: ignore[misc]
        self.faults.model(model)
        return model

    def weights(self, config: Any, head: str) -> WeightMap:
        return self.faults.weights(super().weights(config, head))  # type: ignore[misc]

    def to_hf(self, config: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self.faults.written(super().to_hf(config, extra))  # type: ignore[misc]


class FaultyBert(Faulty, Bert):
    """An encoder with faults."""


class FaultyGpt(Faulty, Gpt):
    """A decoder with faults."""


class Checks(FamilyChecks):
    """The checks of a family with faults."""

    def __init__(self, family: Family, faults: Faults) -> None:
        self.family = family  # type: ignore[misc]
        family.faults = faults  # type: ignore[attr-defined]

    @property
    def config(self) -> Any:
        return replace(super().config, hidden_size=32, num_heads=2, vocab_size=200)


def without(name: str) -> Callable[[Any], None]:
    """Return a fault: an argument of ``encode`` is ignored."""

    def change(model: Any) -> None:
        encode = model.encode

        @functools.wraps(encode)
        def ignoring(*args: Any, **options: Any) -> Any:
            return encode(*args, **{**options, name: None})

        model.encode = ignoring

    return change


def ignore_mask(model: Any) -> None:
    encode = model.encode
    model.encode = lambda ids, mask=None, types=None, **options: encode(ids, None, types, **options)


def forget_positions(model: Any) -> None:
    def at_the_first_position(tokens: Any, state: Any) -> Any:
        positions = torch.zeros_like(tokens)
        return model.encode(tokens, state.mask, position_ids=positions, cache=state.cache)

    model.forward_with_cache = at_the_first_position


def mask_last_by_default(model: Any) -> None:
    encode = model.encode

    def wrong(ids: Any, mask: Any = None, types: Any = None, **options: Any) -> Any:
        if mask is None:
            mask = torch.ones_like(ids)
            mask[:, -1] = 0
        return encode(ids, mask, types, **options)

    model.encode = wrong


def after(function: Callable[[Any], Any]) -> Callable[[Any], None]:
    """Return a fault: all outputs are changed by a function."""

    def change(model: Any) -> None:
        forward = model.forward

        @functools.wraps(forward)
        def changing(**inputs: Any) -> dict[str, Any]:
            return {name: function(tensor) for name, tensor in forward(**inputs).items()}

        model.forward = changing

    return change


def divide_by_real_tokens(model: Any) -> None:
    forward = model.forward

    def wrong(input_ids: Any, attention_mask: Any = None, token_type_ids: Any = None) -> Any:
        outputs = forward(input_ids, attention_mask, token_type_ids)
        real = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        return {name: tensor / real.sum(1)[:, None, None] * 0 for name, tensor in outputs.items()}

    model.forward = wrong


def unused_parameter(model: Any) -> None:
    model.unused = nn.Parameter(torch.ones(3))


def random_buffer(model: Any) -> None:
    noise = nn.Parameter(torch.randn(()), requires_grad=False)
    forward = model.forward
    model.forward = lambda **inputs: {n: t + noise for n, t in forward(**inputs).items()}


@dataclass(frozen=True)
class Reversed(Identity):
    """An operation that is not its own inverse on the way back."""

    def to_hf(self, array: Any) -> Any:
        return (array[::-1],)


def reversed_rows(weights: WeightMap) -> WeightMap:
    first, *rest = weights.rules
    return changed(weights, rules=[changed(first, op=Reversed()), *rest])


BERT, GPT = FaultyBert, FaultyGpt
CASES: dict[str, tuple[Any, Faults, dict[str, Any], str]] = {
    "declarations": (
        BERT,
        Faults(sizes=lambda sizes: {"base": sizes["base"]}),
        {},
        "there is no size tiny",
    ),
    "config_round_trip": (
        BERT,
        Faults(written=lambda hub: {k: v for k, v in hub.items() if k != "hidden_size"}),
        {"size": "tiny"},
        "comes back as",
    ),
    "rules_cover_parameters": (
        BERT,
        Faults(weights=lambda weights: changed(weights, rules=weights.rules[:-1])),
        {"size": "tiny", "head": "none"},
        "rules and model differ in",
    ),
    "rules_read_tensors_once": (
        BERT,
        Faults(weights=lambda weights: changed(weights, rules=[*weights.rules, weights.rules[0]])),
        {"head": "none"},
        "two rules read one tensor",
    ),
    "tensor_round_trip": (
        BERT,
        Faults(weights=reversed_rows),
        {"head": "none"},
        "does not come back bit for bit",
    ),
    "output_shapes": (
        BERT,
        Faults(model=after(lambda tensor: tensor[:, :1])),
        {"head": "token-classification"},
        "logits is not",
    ),
    "cached_decoding": (
        GPT,
        Faults(model=forget_positions),
        {"head": "causal-lm"},
        "logits with a cache differ",
    ),
    "padding": (BERT, Faults(model=ignore_mask), {"head": "masked-lm"}, "of a row of 7 tokens"),
    "packed_rows": (
        BERT,
        Faults(model=without("document_ids")),
        {"head": "none"},
        "documents of a packed row differ",
    ),
    "default_inputs": (
        BERT,
        Faults(model=mask_last_by_default),
        {"head": "none"},
        "without the inputs differs",
    ),
    "row_of_padding": (
        BERT,
        Faults(model=divide_by_real_tokens),
        {"head": "masked-lm"},
        "is not finite for a row of padding",
    ),
    "dropout": (
        BERT,
        Faults(model=after(lambda tensor: tensor + torch.rand(()))),
        {"head": "none"},
        "changes from run to run",
    ),
    "bfloat16": (
        BERT,
        Faults(model=after(lambda tensor: tensor.float())),
        {"head": "none"},
        "is torch.float32",
    ),
    "gradients": (BERT, Faults(model=unused_parameter), {"head": "none"}, "unused has no gradient"),
    "initialization": (BERT, Faults(seed=0), {"head": "none"}, "do not depend on the seed"),
}


@pytest.mark.parametrize("name", CASES)
def test_a_fault_fails_its_check(name: str) -> None:
    family, faults, arguments, message = CASES[name]
    check = f"check_{name}"
    getattr(Checks(family(), Faults()), check)(**arguments)  # a sound family passes
    with pytest.raises(VerificationError, match=message):
        getattr(Checks(family(), faults), check)(**arguments)


def test_weights_outside_of_the_state_dict_are_noticed(tmp_path: Path) -> None:
    checks = Checks(FaultyBert(), Faults(model=random_buffer))
    with pytest.raises(VerificationError, match="differs after loading"):
        checks.check_state_dict_round_trip("none", tmp_path)


def test_a_recipe_that_learns_nothing_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sound: Recipe = zoo_bert.recipe.recipe("tiny")
    standstill = replace(sound, optimizer=replace(sound.optimizer, learning_rate=1e-12))
    monkeypatch.setattr(zoo_bert.recipe, "recipe", lambda size: standstill)
    with pytest.raises(VerificationError, match="the loss does not decrease"):
        Checks(FaultyBert(), Faults()).check_loss_decreases(tmp_path / "run")
