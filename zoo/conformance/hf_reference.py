"""Comparing a model with the reference library's, output by output and layer by layer.

The library is a test oracle: it is imported by name, where it is installed, and nothing else in
this package needs it.
"""

import contextlib
import importlib
import inspect
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.errors import VerificationError
from zoo.families.base import Family
from zoo.families.random_inputs import random_inputs

if TYPE_CHECKING:
    from torch import Tensor, nn

    from zoo.weights import WeightMap

REFERENCE = "transformers"


@dataclass(frozen=True)
class Difference:
    """How far two tensors are apart.

    Attributes:
        absolute: largest difference between elements; infinite if the shapes differ.
        relative: the same, as a part of the reference's largest magnitude.
    """

    absolute: float
    relative: float

    @classmethod
    def between(cls, ours: "Tensor", theirs: "Tensor") -> "Difference":
        """Compare two tensors; a value that is not finite makes both differences infinite."""
        apart = ours.shape != theirs.shape
        absolute = float("inf") if apart else (ours - theirs).abs().max().item()
        largest = theirs.abs().max().item()
        if not math.isfinite(absolute):
            return cls(float("inf"), float("inf"))
        return cls(absolute, absolute / largest if largest else absolute)


@dataclass(frozen=True)
class Comparison:
    """What a comparison found.

    Attributes:
        outputs: output name -> its difference.
        layers: the embeddings and each layer, in order, with the difference of what they return.
        first_diverging: the first of the layers, then of the outputs, whose relative difference
            is over the tolerance; ``None`` if all agree.
    """

    outputs: Mapping[str, Difference]
    layers: Mapping[str, Difference]
    first_diverging: str | None


def compare_with_reference(
    family: Family,
    config: Any,
    head: str,
    model: "nn.Module",
    *,
    inputs: "Mapping[str, Tensor] | None" = None,
    tolerance: float = 1e-5,
) -> Comparison:
    """Run a model and the reference library's with the same weights.

    Args:
        family: the family.
        config: its configuration.
        head: the head's name.
        model: our model with its weights, float32 or float64 on the CPU.
        inputs: a batch, by default three texts of different length, one by one where the reference
            has no padding id.
        tolerance: the relative difference from which a layer counts as diverging.

    Returns:
        the differences of all outputs and layers.

    Raises:
        ModuleNotFoundError: the reference library is not installed.
        VerificationError: its model does not take exactly the tensors that the rules give.
    """
    reference = reference_model(family, config, head, model.state_dict())
    spec = family.onnx(config, head)
    if inputs is not None:
        batches = [inputs]
    else:
        longest = min([48, *spec.limits.values()])
        lengths = (longest, longest // 2 + 1, 1)
        batches = [
            random_inputs(spec, config, rows, seed=seed)
            for seed, rows in enumerate(_split(lengths, reference))
        ]
    found = [_compare(model.eval(), reference, batch, list(spec.outputs)) for batch in batches]
    outputs, layers = (_largest([pair[part] for pair in found]) for part in (0, 1))
    first = (name for name, d in (layers | outputs).items() if d.relative > tolerance)
    return Comparison(outputs, layers, next(first, None))


def _split(lengths: Sequence[int], reference: "nn.Module") -> list[Sequence[int]]:
    """Return the lengths of the rows of each batch.

    A reference without a padding id refuses batches, since it could not tell the last token of a
    text; it reads one text at a time.
    """
    unpadded = getattr(reference.config, "pad_token_id", None) is None
    return [[length] for length in lengths] if unpadded else [lengths]


def _compare(
    model: "nn.Module",
    reference: "nn.Module",
    inputs: "Mapping[str, Tensor]",
    names: Sequence[str],
) -> tuple[dict[str, Difference], dict[str, Difference]]:
    """Return the differences of the outputs and of the layers on one batch."""
    outputs, layers = _run(model, inputs)
    theirs, their_layers = _run_reference(reference, inputs, names)
    by_layer = _differences(layers, dict(zip(layers, their_layers, strict=True)))
    return _differences(outputs, theirs), by_layer


def _largest(batches: Sequence[Mapping[str, Difference]]) -> dict[str, Difference]:
    """Return the largest difference of each tensor over several batches."""
    return {
        name: max((batch[name] for batch in batches), key=lambda d: d.relative)
        for name in batches[0]
    }


def reference_model(
    family: Family, config: Any, head: str, state: "Mapping[str, Tensor]"
) -> "nn.Module":
    """Build the reference library's model around our weights, which it does not copy.

    Args:
        family: the family.
        config: its configuration.
        head: the head's name.
        state: our weights by our names; their dtype becomes the model's.

    Raises:
        ModuleNotFoundError: the reference library is not installed.
        VerificationError: its model does not take exactly the tensors that the rules give.
    """
    library = importlib.import_module(REFERENCE)
    kind = getattr(library, family.architecture(config, head))
    weights = hub_state(family.weights(config, head), state)
    bars = importlib.import_module(f"{REFERENCE}.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        model, loading = kind.from_pretrained(
            None,
            config=kind.config_class(**family.to_hf(config)),
            state_dict=weights,
            dtype=next(iter(weights.values())).dtype,
            attn_implementation="eager",  # the plain formula, not the kernel that ours calls
            output_loading_info=True,
            **_parts(kind, family.onnx(config, head).outputs),
        )
    finally:
        if shown:
            bars.enable_progress_bar()
    wrong = {name: found for name, found in loading.items() if found}
    if wrong:
        raise VerificationError(f"{kind.__name__} of {REFERENCE} does not fit the rules: {wrong}")
    return model.eval()  # type: ignore[no-any-return]


def _parts(kind: type, outputs: Collection[str]) -> dict[str, bool]:
    """Say whether the reference's bare trunk has a pooler; its configuration does not."""
    known = inspect.signature(kind).parameters
    return {"add_pooling_layer": "pooler_output" in outputs} if "add_pooling_layer" in known else {}


def hub_state(weights: "WeightMap", state: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return weights as a file of the Hub's layout holds them."""
    import torch

    found: dict[str, Tensor] = {}
    for entry in weights.entries():
        parts = entry.op.to_hf(state[entry.target].numpy())
        found |= {n: torch.from_numpy(a) for n, a in zip(entry.sources, parts, strict=True)}
    found |= {copy: found[owner] for owner, names in weights.copies().items() for copy in names}
    return {weights.written(name): tensor for name, tensor in found.items()}


def _run(
    model: "nn.Module", inputs: "Mapping[str, Tensor]"
) -> "tuple[dict[str, Tensor], dict[str, Tensor]]":
    """Return the outputs, and the hidden states by the names of the modules that return them."""
    import torch

    from zoo.nn.capture import capture

    decoder = getattr(model, "decoder", None)
    with contextlib.ExitStack() as stack, torch.no_grad():
        captured = stack.enter_context(capture(model, hidden="all")).hidden
        target = stack.enter_context(capture(decoder, hidden="all")).hidden if decoder else {}
        outputs = model(**inputs)
    layers = {f"layers.{number - 1}": captured[number] for number in sorted(captured) if number}
    decoder_layers = {
        f"decoder.layers.{number - 1}": target[number] for number in sorted(target) if number
    }
    return outputs, {"embeddings": captured[0], **layers, **decoder_layers}


def _run_reference(
    model: "nn.Module", inputs: "Mapping[str, Tensor]", names: Sequence[str]
) -> "tuple[dict[str, Tensor], Sequence[Tensor]]":
    """Return the reference's outputs, and its hidden states: a decoder's after the encoder's."""
    import torch

    with torch.no_grad():
        found = model(**inputs, output_hidden_states=True)
    states = found.get("hidden_states")
    if states is None:  # what a decoder is given has no counterpart here
        states = (*found.encoder_hidden_states, *found.decoder_hidden_states[1:])
    return named_outputs(found, names), states


def named_outputs(found: Mapping[str, Any], names: Sequence[str]) -> "dict[str, Tensor]":
    """Return the reference's outputs by our names: its own, or else in its order.

    Args:
        found: what its model returned.
        names: ours, in order.
    """
    import torch

    if all(name in found for name in names):
        return {name: found[name] for name in names}
    outputs = [value for value in found.values() if isinstance(value, torch.Tensor)]
    return dict(zip(names, outputs, strict=True))


def _differences(
    ours: "Mapping[str, Tensor]", theirs: "Mapping[str, Tensor]"
) -> dict[str, Difference]:
    return {name: Difference.between(ours[name], other) for name, other in theirs.items()}
