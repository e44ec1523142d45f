"""Common mistakes in a model, each made in the reference library's model instead.

A mistake such as exchanged queries and keys is made by changing the weights, the inputs, the
configuration or an attribute of the reference. If it then computes what a family's model does, the
mistake is the likely cause of their difference; see ``zoo.conformance.diagnosis``.
"""

import copy
import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from zoo.conformance.comparison import draw_batches, run_with_hidden_states
from zoo.conformance.hf_reference import build_reference, hub_state, run_reference
from zoo.conformance.module_trace import EPSILON_NAMES, ModuleDifference
from zoo.conformance.tiny_model import smaller
from zoo.families.base import Family
from zoo.families.config.keys import BOOKKEEPING
from zoo.families.random_inputs import randomize_weights

EPSILONS = (1e-12, 1e-8, 1e-7, 1e-6, 1e-5, 1e-3)
POSITION_STARTS = range(5)
POSITION_SHIFTS = (1, 2, -1, -2)
PADDING_IDS = range(6)
PADDING_KEYS = ("pad_token_id", "pad_index")
ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": partial(F.gelu, approximate="tanh"),
    "relu": F.relu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "linear": lambda x: x,
}
# The parts of a joint projection, in the order of its rows.
PROJECTION_PARTS = ("query", "key", "value")

Inputs = dict[str, Any]
Outputs = dict[str, Tensor]


@dataclass(frozen=True)
class Cause:
    """A mistake that is made in the reference.

    Attributes:
        text: what the mistake is.
        build: returns the reference with the mistake.
        change_inputs: changes the arguments of the reference's forward pass.
    """

    text: str
    build: Callable[[], nn.Module]
    change_inputs: Callable[[Inputs], Inputs] | None = None


class ComparedModels:
    """A model with a small vocabulary, the reference with its weights, and inputs for both.

    Args:
        family: the family.
        config: its configuration.
        head: name of the head.
        lengths: number of tokens of the rows; see ``draw_batches``.
    """

    def __init__(
        self, family: Family, config: Any, head: str, lengths: Sequence[int] | None = None
    ) -> None:
        self.family = family
        self.config = smaller(config)
        self.head = head
        self.model = family.model(self.config, head).double().eval()
        randomize_weights(self.model)
        self.hub_config = family.to_hub(self.config)
        self.weights = family.weights(self.config, head)
        self.tensors = hub_state(self.weights, self.model.state_dict())
        self.reference = self.build({})
        self.batches = draw_batches(family, self.config, head, self.reference, lengths)
        self.axes = family.onnx(self.config, head).outputs

    def build(
        self, tensors: Mapping[str, Tensor], keys: Mapping[str, Any] | None = None
    ) -> nn.Module:
        """Return the reference with other tensors and keys of the configuration."""
        hub_config = {**self.hub_config, **(keys or {})}
        return build_reference(
            self.family, self.config, self.head, {**self.tensors, **tensors}, hub_config
        )

    def copy_reference(self) -> nn.Module:
        """Return a copy of the reference that may be changed."""
        return copy.deepcopy(self.reference)

    def change_tensors(self, changes: Mapping[str, Tensor]) -> nn.Module:
        """Return the reference with other tensors.

        They are changed in a copy, which takes a fraction of the time that a new model takes. A new
        one is built only if the reference stores a tensor in another way, or shares it.
        """
        stored_tensors = _tensors_by_name(self.reference)
        for name, tensor in changes.items():
            if name not in stored_tensors or stored_tensors[name].shape != tensor.shape:
                return self.build(changes)
        reference = self.copy_reference()
        copied_tensors = _tensors_by_name(reference)
        with torch.no_grad():
            for name, tensor in changes.items():
                copied_tensors[name].copy_(tensor)
        return reference

    def run_model(self, inputs: Mapping[str, Tensor]) -> tuple[Outputs, list[Tensor]]:
        """Return the outputs and the hidden states of the model."""
        outputs, hidden = run_with_hidden_states(self.model, inputs)
        return outputs, list(hidden.values())

    def run_reference(
        self, reference: nn.Module, inputs: Mapping[str, Tensor]
    ) -> tuple[Outputs, Sequence[Tensor]]:
        """Return the outputs and the hidden states of the reference, or of a changed one."""
        return run_reference(self.family, self.head, reference, inputs, list(self.axes))

    @cached_property
    def tensors_of_modules(self) -> Mapping[str, Sequence[str]]:
        """Template of a module of the reference -> its tensors in all layers, weights first."""
        modules: dict[str, list[str]] = {}
        for name in sorted(self.tensors, key=lambda name: (name.endswith("bias"), name)):
            modules.setdefault(_module_template(name), []).append(name)
        return modules

    @cached_property
    def joint_projections(self) -> Mapping[str, Sequence[str]]:
        """Template of a module with queries, keys and values in one -> its tensors."""
        modules: dict[str, list[str]] = {}
        for entry in self.weights.entries():
            if "qkv" not in entry.target or len(entry.sources) != 1:
                continue
            (name,) = entry.sources
            if name in self.tensors and max(self.tensors[name].shape) % len(PROJECTION_PARTS) == 0:
                modules.setdefault(_module_template(name), []).append(name)
        return modules


def _tensors_by_name(module: nn.Module) -> dict[str, Tensor]:
    """Return the parameters and buffers of a module, shared ones only under their first name."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}


def common_causes(models: ComparedModels, module: ModuleDifference | None) -> Iterator[Cause]:
    """Yield the mistakes to try, the most specific first.

    Args:
        models: the models that differ.
        module: the first module that differs; ``None`` if that is not known. A difference in its
            input was made before it, and any other one in the module itself.
    """
    may_be_before = module is None or module.is_in_input
    may_be_inside = module is None or not module.is_in_input
    if may_be_before:
        yield from _wrong_inputs(models)
    yield from _wrong_keys(models)
    if may_be_before:
        yield from _exchanged_parts(models)
        yield from _shifted_positions(models)
        yield from _scaled_scores(models)
        yield from _scaled_embeddings(models)
    yield from _exchanged_modules(models)
    if may_be_before:
        yield from _wrong_attributes(models, _activation_names, "activation", ACTIVATIONS)
    if may_be_inside:
        epsilons = {f"{value:g}": value for value in EPSILONS}
        yield from _wrong_attributes(models, _epsilon_names, "epsilon", epsilons)
        yield from _unused_tensors(models)


# Inputs


def _wrong_inputs(models: ComparedModels) -> Iterator[Cause]:
    """Yield inputs that are ignored, and other positions."""
    text = "the attention mask is ignored, and padding is read"
    yield Cause(text, models.copy_reference, _unmask)
    yield Cause("the token types are ignored", models.copy_reference, _clear_token_types)
    for start in POSITION_STARTS:
        change_inputs = partial(_number_positions, start=start)
        yield Cause(f"positions count from {start}", models.copy_reference, change_inputs)
    yield Cause("positions do not count padding", models.copy_reference, _number_real_tokens)


def _unmask(inputs: Inputs) -> Inputs:
    return {**inputs, "attention_mask": torch.ones_like(inputs["attention_mask"])}


def _clear_token_types(inputs: Inputs) -> Inputs:
    return {**inputs, "token_type_ids": torch.zeros_like(inputs["token_type_ids"])}


def _number_positions(inputs: Inputs, start: int) -> Inputs:
    ids = inputs["input_ids"]
    positions = torch.arange(start, start + ids.shape[-1])
    return {**inputs, "position_ids": positions.expand_as(ids)}


def _number_real_tokens(inputs: Inputs) -> Inputs:
    positions = inputs["attention_mask"].cumsum(-1) - 1
    return {**inputs, "position_ids": positions.clamp(min=0)}


# Weights


def _exchanged_modules(models: ComparedModels) -> Iterator[Cause]:
    """Yield exchanges of two modules of one parent, or of two norms, in all layers."""
    for first, second in itertools.combinations(models.tensors_of_modules, 2):
        are_siblings = first.rpartition(".")[0] == second.rpartition(".")[0]
        are_norms = "norm" in first.lower() and "norm" in second.lower()
        if not (are_siblings or are_norms):
            continue
        changes = _exchange(models, first, second)
        if changes is None:
            continue
        if {_role(first), _role(second)} == {"query", "key"}:
            text = f"query and key are exchanged: {first} and {second}"
        else:
            text = f"two modules are exchanged: {first} and {second}"
        yield Cause(text, partial(models.change_tensors, changes))


def _exchange(models: ComparedModels, first: str, second: str) -> dict[str, Tensor] | None:
    """Return the tensors of two modules exchanged; ``None`` if their shapes differ."""
    first_names = models.tensors_of_modules[first]
    second_names = models.tensors_of_modules[second]
    if len(first_names) != len(second_names):
        return None
    changes = {}
    for name, other_name in zip(first_names, second_names, strict=True):
        tensor = models.tensors[name]
        other_tensor = models.tensors[other_name]
        if tensor.shape != other_tensor.shape:
            return None
        changes[name] = other_tensor
        changes[other_name] = tensor
    return changes


def _exchanged_parts(models: ComparedModels) -> Iterator[Cause]:
    """Yield exchanges of two parts of joint projections."""
    for module, names in models.joint_projections.items():
        for first, second in itertools.combinations(range(len(PROJECTION_PARTS)), 2):
            changes = {}
            for name in names:
                tensor = models.tensors[name]
                axis = _longest_axis(tensor)
                parts = list(tensor.chunk(len(PROJECTION_PARTS), axis))
                parts[first], parts[second] = parts[second], parts[first]
                changes[name] = torch.cat(parts, axis)
            exchanged_parts = f"{PROJECTION_PARTS[first]} and {PROJECTION_PARTS[second]}"
            text = f"{exchanged_parts} are exchanged in {module}"
            yield Cause(text, partial(models.change_tensors, changes))


def _scaled_scores(models: ComparedModels) -> Iterator[Cause]:
    """Yield other scales of the attention scores, which are linear in the queries."""
    factors = _likely_factors(models.config)
    groups = {
        module: names
        for module, names in models.tensors_of_modules.items()
        if _role(module) == "query" or module in models.joint_projections
    }
    if len(groups) > 1:
        groups["all attention"] = [name for names in groups.values() for name in names]
    for module, names in groups.items():
        for label, factor in factors.items():
            changes = {name: _scale_queries(models, name, factor) for name in names}
            text = (
                f"the scale of the attention scores differs: those of {module} are multiplied by "
                f"{label}"
            )
            yield Cause(text, partial(models.change_tensors, changes))


def _likely_factors(config: Any) -> dict[str, float]:
    """Return factors by which scores may be scaled, by their formulas."""
    width = getattr(config, "hidden_size", 0)
    heads = getattr(config, "num_heads", 0)
    head_size = getattr(config, "head_size", 0)
    if not head_size and width and heads:
        head_size = width // heads
    if not head_size:
        return {}
    factors = {
        "sqrt(head size)": head_size**0.5,
        "head size": float(head_size),
        "sqrt(width)": width**0.5,
        "sqrt(heads)": heads**0.5,
        "2": 2.0,
    }
    factors = {formula: factor for formula, factor in factors.items() if factor}
    inverses = {f"1 / {formula}": 1 / factor for formula, factor in factors.items()}
    return {**factors, **inverses}


def _scale_queries(models: ComparedModels, name: str, factor: float) -> Tensor:
    """Return a projection to queries, or the first part of a joint one, times a factor."""
    scaled = models.tensors[name].clone()
    axis = _longest_axis(scaled)
    size = scaled.shape[axis]
    if _module_template(name) in models.joint_projections:
        size //= len(PROJECTION_PARTS)
    scaled.narrow(axis, 0, size).mul_(factor)
    return scaled


def _scaled_embeddings(models: ComparedModels) -> Iterator[Cause]:
    """Yield other scales of the token embeddings."""
    width = getattr(models.config, "hidden_size", 0)
    if not width:
        return
    for label, factor in (("sqrt(width)", width**0.5), ("1 / sqrt(width)", width**-0.5)):
        text = f"the scale of the token embeddings differs: they are multiplied by {label}"
        yield Cause(text, partial(_scale_embeddings, models, factor))


def _scale_embeddings(models: ComparedModels, factor: float) -> nn.Module:
    """Return the reference with its token embeddings, but not their matrix, times a factor."""
    reference = models.copy_reference()
    for module in reference.modules():
        is_table = isinstance(module, nn.Embedding)
        if is_table and module.num_embeddings == models.config.vocab_size:
            module.register_forward_hook(lambda module, args, output: output * factor)
    return reference


def _shifted_positions(models: ComparedModels) -> Iterator[Cause]:
    """Yield tables of positions whose rows are moved."""
    tables = {}
    for name, tensor in models.tensors.items():
        if "position" in name and tensor.dim() == 2 and len(tensor) > max(POSITION_SHIFTS):
            tables[name] = tensor
    if not tables:
        return
    for shift in POSITION_SHIFTS:
        changes = {name: tensor.roll(-shift, 0) for name, tensor in tables.items()}
        yield Cause(f"positions are off by {abs(shift)}", partial(models.change_tensors, changes))


def _unused_tensors(models: ComparedModels) -> Iterator[Cause]:
    """Yield tensors that the model may leave out: embeddings, maps and biases."""
    templates: dict[str, list[str]] = {}
    for name in models.tensors:
        if "norm" not in name.lower():
            templates.setdefault(_template(name), []).append(name)
    for template, names in templates.items():
        changes = {name: torch.zeros_like(models.tensors[name]) for name in names}
        yield Cause(f"{template} has no effect", partial(models.change_tensors, changes))


def _longest_axis(tensor: Tensor) -> int:
    return tensor.shape.index(max(tensor.shape))


# Configuration and attributes


def _wrong_keys(models: ComparedModels) -> Iterator[Cause]:
    """Yield other values of the keys of the reference's configuration."""
    keys = models.reference.config.to_dict()  # type: ignore[operator, union-attr]
    for key, value in keys.items():
        for other_value in other_key_values(key, value):
            text = f"it computes with {key} {other_value!r}, and the configuration has {value!r}"
            yield Cause(text, partial(models.build, {}, {key: other_value}))


def other_key_values(key: str, value: Any) -> list[Any]:
    """Return values of a key of the reference's configuration that a mistake may use."""
    if key in PADDING_KEYS:
        return [number for number in PADDING_IDS if number != value]
    if key in BOOKKEEPING:
        return []
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, str) and value in ACTIVATIONS:
        return [name for name in ACTIVATIONS if name != value]
    if isinstance(value, float) and ("eps" in key or "epsilon" in key):
        return [epsilon for epsilon in EPSILONS if epsilon != value]
    return []


def _wrong_attributes(
    models: ComparedModels,
    find_names: Callable[[nn.Module], Iterator[str]],
    noun: str,
    values: Mapping[str, Any],
) -> Iterator[Cause]:
    """Yield other values of an attribute of the reference's modules: of all, then of each kind."""
    groups: dict[tuple[str, str], list[str]] = {}
    for name, module in models.reference.named_modules():
        for attribute in find_names(module):
            groups.setdefault(("all modules", attribute), []).append(name)
    for name, module in models.reference.named_modules():
        for attribute in find_names(module):
            groups.setdefault((_template(name), attribute), []).append(name)
    for (place, attribute), names in groups.items():
        for label, value in values.items():
            text = f"the {noun} is {label}, and another one in {place} of the reference"
            yield Cause(text, partial(_set_attribute, models, names, attribute, value))


def _set_attribute(
    models: ComparedModels, names: Sequence[str], attribute: str, value: Any
) -> nn.Module:
    """Return the reference with another value of an attribute of some modules."""
    reference = models.copy_reference()
    for name in names:
        module = reference.get_submodule(name)
        is_submodule = attribute in module._modules
        setattr(module, attribute, FunctionModule(value) if is_submodule else value)
    return reference


class FunctionModule(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        """Apply the function."""
        return self.function(x)


def _epsilon_names(module: nn.Module) -> Iterator[str]:
    """Yield the attributes of a module that hold an epsilon."""
    for name in EPSILON_NAMES:
        if isinstance(getattr(module, name, None), float):
            yield name


def _activation_names(module: nn.Module) -> Iterator[str]:
    """Yield the attributes of a module that hold an activation function."""
    for name, value in [*vars(module).items(), *module._modules.items()]:
        if "act" in name and callable(value) and not name.startswith("_"):
            yield name


# Names


def _template(name: str) -> str:
    """Return a name with ``{i}`` in place of the numbers of layers."""
    return re.sub(r"(^|\.)\d+(?=\.|$)", r"\1{i}", name)


def _module_template(tensor: str) -> str:
    """Return the template of the module that a tensor belongs to."""
    return _template(tensor.rpartition(".")[0])


def _role(module: str) -> str:
    """Return whether a module projects to queries or to keys, by its name; empty for others."""
    words = set(re.split(r"[._]", module.rpartition(".")[2].lower()))
    if words & {"q", "query"}:
        return "query"
    return "key" if words & {"k", "key"} else ""
