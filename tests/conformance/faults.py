"""Families with faults, for tests of the conformance checks."""

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from dataclasses import replace as changed
from typing import Any

import msgspec
import numpy as np
import torch
from msgspec.structs import replace
from torch import nn

from zoo.conformance.family_checks import FamilyChecks
from zoo.families.base import Family
from zoo.tokenizers import EOS_ONLY, Template, sentencepiece_tokenizer, wordpiece_tokenizer
from zoo.weights import Constant, Identity, WeightMap
from zoo_bert import Bert
from zoo_bert.config import BertConfig
from zoo_gpt import Gpt
from zoo_t5 import T5


@dataclass
class Faults:
    """Changes of a sound family.

    Attributes:
        model: changes a model in place.
        weights: changes the weight rules.
        sizes: changes the sizes.
        written: changes a configuration in the Hub's keys.
        seed: seed of every model; ``None`` for that of torch.
        attributes: attributes of the family that are replaced.
    """

    model: Callable[[Any], None] = lambda model: None
    weights: Callable[[WeightMap], WeightMap] = lambda weights: weights
    sizes: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda sizes: sizes
    written: Callable[[dict[str, Any]], dict[str, Any]] = lambda hub: hub
    seed: int | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)


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

    def to_hub(self, config: Any, extra: Mapping[str, Any] | None = None) -> dict[str, Any]:
        return self.faults.written(super().to_hub(config, extra))  # type: ignore[misc]


class FaultyBert(Faulty, Bert):
    """An encoder with faults."""


class FaultyGpt(Faulty, Gpt):
    """A decoder with faults."""


class FaultyT5(Faulty, T5):
    """An encoder-decoder with faults."""


class Checks(FamilyChecks):
    """The checks of a family with faults."""

    def __init__(self, family: Family, faults: Faults) -> None:
        self.family = family  # type: ignore[misc]
        family.faults = faults  # type: ignore[attr-defined]
        for name, value in faults.attributes.items():
            setattr(family, name, value)

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


def swallow_documents(model: Any) -> None:
    """``encode`` takes any option, and ignores the documents of packed rows."""
    encode = model.encode
    model.encode = lambda ids, mask=None, **options: encode(
        ids, mask, **{name: value for name, value in options.items() if name != "document_ids"}
    )


def no_packed_rows(model: Any) -> None:
    encode = model.encode
    model.encode = lambda ids, mask=None, types=None: encode(ids, mask, types)


def see_other_sources(model: Any) -> None:
    """In packed rows, a target attends to all sources."""

    def without_documents(forward: Any) -> Any:
        def changed_forward(x: Any, source: Any, mask: Any) -> Any:
            packs = mask is not None and mask.shape[2] > 1
            return forward(x, source, None if packs else mask)

        return changed_forward

    for layer in model.decoder.layers:
        layer.cross.forward = without_documents(layer.cross.forward)


def wrong_step(model: Any) -> None:
    step = model.step
    model.step = lambda tokens, state: step(tokens, state) * 0


def ignore_new_tokens(model: Any) -> None:
    step = model.step
    model.step = lambda tokens, state: step(torch.zeros_like(tokens), state)


def keep_order_of_rows(model: Any) -> None:
    init_state = model.init_state

    def without_select(*args: Any) -> Any:
        state = init_state(*args)
        state.select = lambda rows: None
        return state

    model.init_state = without_select


def ignore_padding_of_prompts(model: Any) -> None:
    init_state = model.init_state
    model.init_state = lambda inputs, tokens: init_state({"input_ids": inputs["input_ids"]}, tokens)


def fills_masks() -> Mapping[str, Any]:
    """Return the heads of a decoder whose tokens change the hidden states of earlier ones."""
    heads = dict(Gpt().heads())
    head = heads["causal-lm"]
    return {**heads, "causal-lm": changed(head, tasks=(*head.tasks, "fill-mask"))}


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


def frozen_parameter(model: Any) -> None:
    model.embeddings.norm.weight.requires_grad_(False)


def stored_buffer(model: Any) -> None:
    model.register_buffer("sines", torch.ones(3))


def constant(**changes: Any) -> Callable[[WeightMap], WeightMap]:
    """Return a fault: the rules have a constant of three numbers that is changed."""
    sound = Constant("bert.sines", (3,), lambda: np.ones(3, np.float32), "ones")
    return lambda weights: weights.plus(constants=[changed(sound, **changes)])


def half_norm(model: Any) -> None:
    nn.init.constant_(model.embeddings.norm.weight, 0.5)


def large_weights(model: Any) -> None:
    nn.init.normal_(model.get_parameter("layers.0.ffn.up.weight"), std=0.1)


def dropout_twice(model: Any) -> None:
    model.embeddings.dropout = nn.Sequential(nn.Dropout(0.2), nn.Dropout(0.2))


def start_with_padding(model: Any) -> None:
    model.decoder_input_ids = lambda ids: torch.zeros_like(ids[:, :1])


def decoder_as_deep_as_encoder(model: Any) -> None:
    if hasattr(model, "decoder"):
        del model.decoder.layers[len(model.layers) :]


def pair_template(pair: str) -> dict[str, Any]:
    """Return attributes of a family that puts other special tokens around pairs."""
    template = Template("cls $A sep", pair)
    return {"tokenizer": lambda files: wordpiece_tokenizer(files, template=template)}


def ids_moved_by_one() -> dict[str, Any]:
    """Return attributes of a family that puts a token before the pieces of a published model."""
    options: dict[str, Any] = {"roles": T5.special_tokens, "template": EOS_ONLY, "sentinels": 100}
    return {"tokenizer": lambda files: sentencepiece_tokenizer(files, first=("<new>",), **options)}


def random_buffer(model: Any) -> None:
    noise = nn.Parameter(torch.randn(()), requires_grad=False)
    forward = model.forward
    model.forward = lambda **inputs: {n: t + noise for n, t in forward(**inputs).items()}


@dataclass(frozen=True)
class Reversed(Identity):
    """An operation that is not its own inverse on the way back."""

    def to_hub(self, array: Any) -> Any:
        return (array[::-1],)


def reversed_rows(weights: WeightMap) -> WeightMap:
    first, *rest = weights.rules
    return changed(weights, rules=[changed(first, op=Reversed()), *rest])


def unseeded_bias(model: Any) -> None:
    generator = torch.Generator().manual_seed(torch.seed() % 2**31)
    nn.init.normal_(model.get_parameter("layers.0.ffn.up.bias"), generator=generator)


def no_dropout(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if hasattr(module, "dropout") and isinstance(module.dropout, float):
            setattr(module, "dropout", 0.0)  # noqa: B010 (mypy takes it for a module)


def more_dropout(model: Any) -> None:
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.5


def without_types(model: Any) -> None:
    embeddings = model.embeddings
    forward = embeddings.forward
    embeddings.forward = lambda ids, types, positions=None: forward(ids, None, positions)


def fewer_positions(model: Any) -> None:
    """The table ends before the longest row that the configuration declares."""
    table = model.embeddings.positions
    table.weight = nn.Parameter(table.weight[:-1])


def rule(target: str, **changes: Any) -> Callable[[WeightMap], WeightMap]:
    """Return a fault: the rule with a target is changed."""

    def change(weights: WeightMap) -> WeightMap:
        (old,) = [rule for rule in weights.rules if rule.target == target]
        rules = [changed(old, **changes) if rule is old else rule for rule in weights.rules]
        return changed(weights, rules=rules)

    return change


class DropoutConfig(BertConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration with a default that is not the reference's."""

    dropout: float = 0.2


class SilentConfig(BertConfig, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A configuration whose errors do not name the field."""

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except ValueError:
            raise ValueError("a number is out of its range") from None


def silent_config(sizes: Mapping[str, Any]) -> Mapping[str, Any]:
    values = msgspec.to_builtins(sizes["tiny"])
    return {"tiny": msgspec.convert(values, SilentConfig)}
