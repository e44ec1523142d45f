"""Comparison of a model with the reference library's, output by output and layer by layer."""

import contextlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.conformance.hf_reference import keep_float64, reference_model, run_reference
from zoo.families.base import Family
from zoo.families.random_inputs import axis_lengths, random_inputs

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.conformance.module_trace import ModuleDifference
    from zoo.families.onnx import Axes, OnnxSpec

Run = Callable[[], "dict[str, Tensor]"]


@dataclass(frozen=True)
class TensorDifference:
    """The difference of two tensors."""

    absolute: float  # largest absolute difference of elements; infinite if the shapes differ
    relative: float  # the same, relative to the reference's largest magnitude

    @classmethod
    def between(cls, tensor: "Tensor", reference: "Tensor") -> "TensorDifference":
        """Compare two tensors; a value that is not finite makes both differences infinite."""
        if tensor.shape != reference.shape:
            return cls(float("inf"), float("inf"))
        if not reference.numel():
            return cls(0.0, 0.0)
        absolute = (tensor - reference).abs().max().item()
        largest = reference.abs().max().item()
        if not math.isfinite(absolute):
            return cls(float("inf"), float("inf"))
        return cls(absolute, absolute / largest if largest else absolute)


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison; tokens of padding do not count."""

    outputs: Mapping[str, TensorDifference]
    # embeddings and layers, in order -> the difference of their outputs; empty if the reference
    # returns another number of hidden states
    layers: Mapping[str, TensorDifference]
    # the first of the layers, then of the outputs, whose relative difference exceeds the tolerance;
    # ``None`` if all agree
    first_diverging: str | None
    # the first module that differs, if the family says which module of the reference is which
    module: "ModuleDifference | None" = None

    @property
    def place(self) -> str:
        """Where the models begin to differ, for messages."""
        if self.module is not None:
            return str(self.module)
        return f"the first of these outputs that differs: {self.first_diverging}"


@dataclass(frozen=True)
class InputBatch:
    """Inputs, and the tokens of them that are not padding."""

    inputs: "Mapping[str, Tensor]"
    # axis -> which of its tokens are real, (batch, tokens), bool, or (batch, choices, tokens)
    real: "Mapping[str, Tensor]"

    def masks_of_module(self, name: str) -> "list[Tensor]":
        """Return which tokens of a module's rows are real, (rows, tokens), the likely mask first.

        A module of a decoder may read rows of either stack.
        """
        axes = ["tokens", "decoder_tokens"]
        if name.startswith("decoder."):
            axes.reverse()
        return [self.real[axis].flatten(0, -2) for axis in axes if axis in self.real]


def compare_with_reference(
    family: Family,
    config: Any,
    head: str,
    model: "nn.Module",
    *,
    inputs: "Mapping[str, Tensor] | None" = None,
    lengths: Sequence[int] | None = None,
    tolerance: float = 1e-5,
) -> Comparison:
    """Run a model and the reference library's with the same weights."""
    reference = reference_model(family, config, head, model.state_dict())
    return compare_models(
        family, config, head, model, reference, inputs, lengths=lengths, tolerance=tolerance
    )


def compare_models(
    family: Family,
    config: Any,
    head: str,
    model: "nn.Module",
    reference: "nn.Module",
    inputs: "Mapping[str, Tensor] | None" = None,
    *,
    lengths: Sequence[int] | None = None,
    tolerance: float = 1e-5,
) -> Comparison:
    """Run a model and a reference that is built already; see ``compare_with_reference``."""
    if inputs is None:
        batches = draw_batches(family, config, head, reference, lengths)
    else:
        batches = [InputBatch(inputs, _input_masks(inputs))]
    outputs: dict[str, TensorDifference] = {}
    layers: dict[str, TensorDifference] = {}
    failing_batch = None  # the first whose outputs differ
    for batch in batches:
        result = compare_batch(family, config, head, model.eval(), reference, batch)
        if failing_batch is None and exceeding(result.outputs, tolerance):
            failing_batch = batch
        _keep_largest(outputs, result.outputs)
        _keep_largest(layers, result.layers)
    module = None
    if failing_batch is not None:
        module = _first_module(family, config, head, model, reference, failing_batch, tolerance)
    diverging = exceeding({**layers, **outputs}, tolerance)
    return Comparison(outputs, layers, diverging[0] if diverging else None, module)


def _keep_largest(
    largest: dict[str, TensorDifference], differences: Mapping[str, TensorDifference]
) -> None:
    """Update the largest difference of each tensor over the batches."""
    for name, difference in differences.items():
        if name not in largest or difference.relative > largest[name].relative:
            largest[name] = difference


@dataclass(frozen=True)
class BatchComparison:
    """The differences of a batch."""

    outputs: Mapping[str, TensorDifference]
    layers: Mapping[str, TensorDifference]


def compare_batch(
    family: Family,
    config: Any,
    head: str,
    model: "nn.Module",
    reference: "nn.Module",
    batch: InputBatch,
) -> BatchComparison:
    """Return the differences of outputs and hidden states of a batch, without padding."""
    import torch

    axes = family.onnx(config, head).outputs
    with torch.no_grad():
        outputs, hidden = run_with_hidden_states(model, batch.inputs)
        expected, states = run_reference(family, head, reference, batch.inputs, list(axes))
    layers = {}
    if len(hidden) == len(states):
        for (name, tensor), state in zip(hidden.items(), states, strict=True):
            layers[name] = _layer_difference(tensor, state, batch.masks_of_module(name))
    return BatchComparison(output_differences(outputs, expected, axes, batch), layers)


def output_differences(
    outputs: "Mapping[str, Tensor]",
    expected: "Mapping[str, Tensor]",
    axes: "Mapping[str, Axes]",
    batch: InputBatch,
) -> dict[str, TensorDifference]:
    """Return the differences of outputs of a batch, without padding."""
    differences = {}
    for name, tensor in expected.items():
        differences[name] = _output_difference(outputs[name], tensor, axes[name], batch)
    return differences


def draw_batches(
    family: Family,
    config: Any,
    head: str,
    reference: "nn.Module",
    lengths: Sequence[int] | None = None,
) -> list[InputBatch]:
    """Return random inputs for a comparison: a padded batch, or a row each if there is no padding.

    Args:
        family: the family.
        config: its configuration.
        head: name of the head.
        reference: the reference's model.
        lengths: number of tokens of the rows; ``None`` for three different ones up to 48.
    """
    spec = family.onnx(config, head)
    longest = min([48, *spec.limits.values()])
    shortest = spec.minimums.get("tokens", 1)
    rows = list(lengths or (longest, longest // 2 + 1, shortest))
    # without a padding token, the reference cannot find the last token of a row in a batch
    unpadded = getattr(reference.config, "pad_token_id", None) is None
    groups = [[length] for length in rows] if unpadded else [rows]
    batches = []
    for seed, group in enumerate(groups):
        inputs = random_inputs(spec, config, group, seed=seed, padding_side=family.padding_side)
        batches.append(InputBatch(inputs, _drawn_masks(spec, group, inputs, family.padding_side)))
    return batches


def reference_runs(
    family: Family,
    config: Any,
    head: str,
    model: "nn.Module",
    reference: "nn.Module",
    inputs: "Mapping[str, Tensor]",
) -> "tuple[Run, Run]":
    """Return functions that run a model and the reference in their current mode.

    Both return hidden states and outputs under the same names.
    """
    import torch

    outputs = list(family.onnx(config, head).outputs)

    def run() -> "dict[str, Tensor]":
        with torch.no_grad():
            named, layers = run_with_hidden_states(model, inputs)
        return {**layers, **named}

    names = [name for name in run() if name not in outputs]

    def run_library() -> "dict[str, Tensor]":
        with torch.no_grad():
            named, states = run_reference(family, head, reference, inputs, outputs)
        layers = dict(zip(names, states, strict=True)) if len(names) == len(states) else {}
        return {**layers, **named}

    return run, run_library


def run_with_hidden_states(
    model: "nn.Module", inputs: "Mapping[str, Tensor]"
) -> "tuple[dict[str, Tensor], dict[str, Tensor]]":
    """Return the outputs, and the hidden states by the names of the modules that return them."""
    from zoo.nn.capture import capture

    decoder = getattr(model, "decoder", None)
    with contextlib.ExitStack() as stack, keep_float64():
        captured = stack.enter_context(capture(model, hidden="all")).hidden
        target = stack.enter_context(capture(decoder, hidden="all")).hidden if decoder else {}
        outputs = model(**inputs)
    layers = {f"layers.{number - 1}": captured[number] for number in sorted(captured) if number}
    decoder_layers = {
        f"decoder.layers.{number - 1}": target[number] for number in sorted(target) if number
    }
    return outputs, {"embeddings": captured[0], **layers, **decoder_layers}


def _first_module(
    family: Family,
    config: Any,
    head: str,
    model: "nn.Module",
    reference: "nn.Module",
    batch: InputBatch,
    tolerance: float,
) -> "ModuleDifference | None":
    """Return the first module that differs; ``None`` if that is not known."""
    import torch

    from zoo.conformance.module_trace import first_difference, module_pairs, record_modules

    pairs = module_pairs(family, config, head, model, reference)
    names = list(family.onnx(config, head).outputs)
    with torch.no_grad(), record_modules(model) as trace:
        run_with_hidden_states(model, batch.inputs)
    with torch.no_grad(), record_modules(reference) as reference_trace:
        run_reference(family, head, reference, batch.inputs, names)
    return first_difference(trace, reference_trace, pairs, batch.masks_of_module, tolerance)


def _input_masks(inputs: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return the tokens of a batch that are real, as far as a mask says so."""
    names = {"tokens": "attention_mask", "decoder_tokens": "decoder_attention_mask"}
    return {axis: inputs[name].bool() for axis, name in names.items() if name in inputs}


def _drawn_masks(
    spec: "OnnxSpec", lengths: Sequence[int], inputs: "Mapping[str, Tensor]", side: str
) -> "dict[str, Tensor]":
    """Return the tokens of a drawn batch that are real, by the lengths of its rows."""
    import torch

    masks = _input_masks(inputs)
    for axis, row_lengths in axis_lengths(spec, lengths).items():
        is_output_axis = any(axis in axes for axes in spec.outputs.values())
        if axis in masks or not is_output_axis:
            continue
        width = max(row_lengths)
        places = torch.arange(width).expand(len(row_lengths), width)
        counts = torch.tensor(row_lengths)[:, None]
        masks[axis] = places >= width - counts if side == "left" else places < counts
    return masks


def _layer_difference(
    tensor: "Tensor", reference: "Tensor", masks: "Sequence[Tensor]"
) -> TensorDifference:
    """Compare two hidden states at the tokens that are not padding."""
    from zoo.conformance.module_trace import select_real

    if tensor.shape != reference.shape:
        return TensorDifference.between(tensor, reference)
    return TensorDifference.between(select_real(tensor, masks), select_real(reference, masks))


def _output_difference(
    tensor: "Tensor", reference: "Tensor", axes: Sequence[str | int], batch: InputBatch
) -> TensorDifference:
    """Compare two outputs at the tokens that are not padding."""
    for number, axis in enumerate(axes):
        mask = batch.real.get(str(axis))
        if mask is None or tensor.shape != reference.shape:
            continue
        if tensor.shape[: number + 1] == mask.shape:
            return TensorDifference.between(tensor[mask], reference[mask])
    return TensorDifference.between(tensor, reference)


def exceeding(differences: Mapping[str, TensorDifference], tolerance: float) -> list[str]:
    """Return the names of the tensors that differ by more than a relative tolerance."""
    return [name for name, d in differences.items() if d.relative > tolerance]
