"""Inputs and outputs of the modules of a model and of the reference's, and the first that differs.

The weight rules of a family say which module of the reference holds the weights of each module,
and ``Family.reference_modules`` names further pairs. Modules are compared in the order in which
the reference runs them, so the first difference is where a mistake is.
"""

import contextlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from zoo.families.base import Family
from zoo.weights.ops import Identity, Transpose

EPSILON_NAMES = ("eps", "epsilon", "variance_epsilon")
# A message shows this number of integers of an input.
MAX_INTEGERS_SHOWN = 8
# name of a module -> masks of the tokens that are not padding, the likely one first
MasksOfModule = Callable[[str], Sequence[Tensor]]


@dataclass
class ModuleCall:
    """Copies of the first input and of the output of one call of a module, if they are tensors."""

    first_input: Tensor | None
    start: int  # number of starts and ends of calls before it
    output: Tensor | None = None
    end: int = 0


@dataclass
class Trace:
    """The calls of the modules of a model in one forward pass, in the order of their starts."""

    model: nn.Module
    calls: dict[str, list[ModuleCall]] = field(default_factory=dict)
    events: int = 0  # number of starts and ends of calls

    def find_source(self, module: str, value: Tensor, masks: Sequence[Tensor]) -> str:
        """Return the last module before another one whose output is a value; empty for none."""
        source = ""
        for name, calls in self.calls.items():
            if name == module:
                break
            for call in calls:
                output = call.output
                if output is None or output.shape != value.shape:
                    continue
                if torch.equal(select_real(output, masks), select_real(value, masks)):
                    source = name
        return source

    def epsilon(self, module: str) -> float | None:
        """Return the epsilon of a norm; ``None`` for other modules."""
        norm = self.model.get_submodule(module)
        for name in EPSILON_NAMES:
            value = getattr(norm, name, None)
            if isinstance(value, float):
                return value
        return None


class ModulePair(NamedTuple):
    """A module and the reference's module that computes the same."""

    module: str
    reference_module: str
    compares_inputs: bool = True
    compares_outputs: bool = True


class Explanation(NamedTuple):
    """What a message says about a difference."""

    text: str  # empty if nothing is known
    is_cause: bool  # whether the text names the mistake, and not only its place


@dataclass(frozen=True)
class ModuleDifference:
    """The first module that differs from the reference's.

    Attributes:
        module: name of the module.
        reference_module: name of the reference's module.
        is_in_input: whether its input differs, and not only its output.
        explanation: where a different input comes from, or what differs in the module.
    """

    module: str
    reference_module: str
    is_in_input: bool
    explanation: Explanation

    def __str__(self) -> str:
        names = self.module
        if self.reference_module != self.module:
            names += f" ({self.reference_module} in the reference)"
        part = "its input" if self.is_in_input else "its output, for the same input"
        message = f"the first module that differs: {names}, by {part}"
        return f"{message}; {self.explanation.text}" if self.explanation.text else message


@contextlib.contextmanager
def record_modules(model: nn.Module) -> Iterator[Trace]:
    """Record the calls of all submodules of a model within the block."""
    trace = Trace(model)
    handles = []

    def make_start_hook(name: str) -> Callable[..., None]:
        def record_start(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
            values = [*args, *kwargs.values()]
            first = next((value for value in values if isinstance(value, Tensor)), None)
            copy = None if first is None else first.detach().clone()
            trace.calls.setdefault(name, []).append(ModuleCall(copy, trace.events))
            trace.events += 1

        return record_start

    def make_end_hook(name: str) -> Callable[..., None]:
        def record_end(module: nn.Module, args: object, output: Any) -> None:
            first = output[0] if isinstance(output, tuple | list) and output else output
            if isinstance(first, Tensor):
                # The last call without an output: a module may call itself.
                open_calls = [call for call in trace.calls[name] if call.output is None]
                open_calls[-1].output = first.detach().clone()
                open_calls[-1].end = trace.events
            trace.events += 1

        return record_end

    for name, module in model.named_modules():
        if name:
            start = module.register_forward_pre_hook(make_start_hook(name), with_kwargs=True)
            end = module.register_forward_hook(make_end_hook(name))
            handles += [start, end]
    try:
        yield trace
    finally:
        for handle in handles:
            handle.remove()


def module_pairs(
    family: Family, config: Any, head: str, model: nn.Module, reference: nn.Module
) -> list[ModulePair]:
    """Return the pairs of modules that hold the same weights, or that the family names."""
    weights = family.weights(config, head)
    module_names = {name for name, _ in model.named_modules()}
    reference_names = {name for name, _ in reference.named_modules()}
    pairs = []
    for entry in weights.entries():
        module = entry.target.rpartition(".")[0]
        reference_module = weights.written(entry.sources[0]).rpartition(".")[0]
        # Rearranged weights may rearrange the outputs as well.
        has_same_output = len(entry.sources) == 1 and type(entry.op) in (Identity, Transpose)
        pairs.append(ModulePair(module, reference_module, compares_outputs=has_same_output))
    # The names of a backbone's modules have a prefix in models with a head.
    prefix = f"{getattr(reference, 'base_model_prefix', '')}."
    for module, name in _expand(family.reference_modules, module_names):
        for reference_module in (name, prefix + name):
            pairs.append(ModulePair(module, reference_module, compares_inputs=False))
    return [
        pair
        for pair in dict.fromkeys(pairs)
        if pair.module in module_names and pair.reference_module in reference_names
    ]


def _expand(templates: Mapping[str, str], module_names: set[str]) -> Iterator[tuple[str, str]]:
    """Yield pairs of modules by their templates, with the numbers of layers in place of ``{i}``."""
    for template, reference_template in templates.items():
        pattern = re.compile(re.escape(template).replace(r"\{i\}", r"(\d+)"))
        for name in sorted(module_names):
            match = pattern.fullmatch(name)
            if match is None:
                continue
            number = match[1] if pattern.groups else ""
            yield name, reference_template.replace("{i}", number)


def first_difference(
    trace: Trace,
    reference_trace: Trace,
    pairs: Sequence[ModulePair],
    masks_of_module: MasksOfModule,
    tolerance: float,
) -> ModuleDifference | None:
    """Return the first module that differs, by what it reads or by what it returns.

    Args:
        trace: the calls of the model's modules.
        reference_trace: the calls of the reference's modules.
        pairs: see ``module_pairs``.
        masks_of_module: returns the masks of the tokens that count; padding is left out.
        tolerance: accepted difference, relative to the largest magnitude.
    """
    differences: dict[int, ModuleDifference] = {}  # number of the reference's event -> difference
    for pair in pairs:
        calls = trace.calls.get(pair.module, [])
        reference_calls = reference_trace.calls.get(pair.reference_module, [])
        if len(calls) != len(reference_calls):
            continue
        masks = masks_of_module(pair.module)
        for call, reference_call in zip(calls, reference_calls, strict=True):
            inputs = (call.first_input, reference_call.first_input)
            outputs = (call.output, reference_call.output)
            if pair.compares_inputs and _differ(*inputs, masks, tolerance):
                explanation = _explain_inputs(
                    trace, reference_trace, pair, pairs, call, reference_call, masks
                )
                difference = ModuleDifference(
                    pair.module, pair.reference_module, is_in_input=True, explanation=explanation
                )
                differences.setdefault(reference_call.start, difference)
            elif pair.compares_outputs and _differ(*outputs, masks, tolerance):
                explanation = _explain_outputs(trace, reference_trace, pair)
                difference = ModuleDifference(
                    pair.module, pair.reference_module, is_in_input=False, explanation=explanation
                )
                differences.setdefault(reference_call.end, difference)
    return differences[min(differences)] if differences else None


def _explain_outputs(trace: Trace, reference_trace: Trace, pair: ModulePair) -> Explanation:
    """Say how the epsilons of two norms differ."""
    epsilon = trace.epsilon(pair.module)
    reference_epsilon = reference_trace.epsilon(pair.reference_module)
    if epsilon is None or reference_epsilon is None or epsilon == reference_epsilon:
        return Explanation("", is_cause=False)
    text = f"its epsilon is {epsilon:g}, and {reference_epsilon:g} in the reference"
    return Explanation(text, is_cause=True)


def _explain_inputs(
    trace: Trace,
    reference_trace: Trace,
    pair: ModulePair,
    pairs: Sequence[ModulePair],
    call: ModuleCall,
    reference_call: ModuleCall,
    masks: Sequence[Tensor],
) -> Explanation:
    """Say where two different inputs come from."""
    value = call.first_input
    reference_value = reference_call.first_input
    assert value is not None and reference_value is not None, "they differ"
    if not reference_value.is_floating_point():
        numbers = value.flatten()[:MAX_INTEGERS_SHOWN].tolist()
        reference_numbers = reference_value.flatten()[:MAX_INTEGERS_SHOWN].tolist()
        text = f"it begins with {numbers}, and with {reference_numbers} in the reference"
        return Explanation(text, is_cause=False)
    texts = []
    source = trace.find_source(pair.module, value, masks)
    reference_source = reference_trace.find_source(pair.reference_module, reference_value, masks)
    if source and reference_source:
        texts.append(f"it reads {source}, and {reference_source} in the reference")
    elif source:
        texts.append(f"it reads {source}, and another value in the reference")
    elif reference_source:
        texts.append(f"in the reference, it reads {reference_source}")
    moved_norm = _find_moved_norm(trace, reference_trace, pair, pairs)
    if moved_norm:
        texts.append(f"{moved_norm}: are the norms in the same order?")
    return Explanation("; ".join(texts), is_cause=bool(moved_norm))


def _find_moved_norm(
    trace: Trace, reference_trace: Trace, pair: ModulePair, pairs: Sequence[ModulePair]
) -> str:
    """Return which norm runs on the other side of a module; empty for none."""
    order = list(trace.calls)
    reference_order = list(reference_trace.calls)
    for other in pairs:
        is_norm = "norm" in other.module.lower() or "norm" in pair.module.lower()
        was_run = other.module in order and other.reference_module in reference_order
        if not (other.compares_inputs and is_norm and was_run):
            continue
        distance = order.index(pair.module) - order.index(other.module)
        place = reference_order.index(pair.reference_module)
        reference_distance = place - reference_order.index(other.reference_module)
        if distance > 0 > reference_distance:
            return f"it runs after {other.module}, and before it in the reference"
        if distance < 0 < reference_distance:
            return f"it runs before {other.module}, and after it in the reference"
    return ""


def _differ(
    tensor: Tensor | None,
    reference: Tensor | None,
    masks: Sequence[Tensor],
    tolerance: float,
) -> bool:
    """Return whether two tensors differ at tokens that are not padding; ``False`` if unknown."""
    if tensor is None or reference is None:
        return False
    if tensor.shape != reference.shape:
        if tensor.is_floating_point() or tensor.shape[-1:] != reference.shape[-1:]:
            return False
        # Positions may be those of one row or of each row.
        shape = torch.broadcast_shapes(tensor.shape, reference.shape)  # type: ignore[no-untyped-call]
        tensor = tensor.expand(shape)
        reference = reference.expand(shape)
    values = select_real(tensor, masks).double()
    reference_values = select_real(reference, masks).double()
    if not values.numel():
        return False
    distance = (values - reference_values).abs()
    # The difference of two equal infinities is NaN. Every other NaN stays, and is a difference.
    distance = distance.masked_fill(values == reference_values, 0)
    largest = reference_values.abs().max().clamp(min=1e-30)
    return not bool(distance.max() <= tolerance * largest)


def select_real(tensor: Tensor, masks: Sequence[Tensor]) -> Tensor:
    """Return the vectors of tokens that are not padding; all if no mask has the tensor's shape."""
    for mask in masks:
        if tensor.shape[: mask.dim()] == mask.shape:
            return tensor[mask]
    return tensor
