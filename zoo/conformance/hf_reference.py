"""Comparison of a model with the reference library's, output by output and layer by layer."""

import contextlib
import importlib
import inspect
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError, VerificationError
from zoo.families.base import Family
from zoo.families.random_inputs import random_inputs

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.overrides import TorchFunctionMode

    from zoo.io.tensors.formats import TensorInfo
    from zoo.weights import WeightMap

REFERENCE = "transformers"
Run = Callable[[], "dict[str, Tensor]"]


@dataclass(frozen=True)
class Difference:
    """The difference of two tensors."""

    absolute: float  # largest absolute difference of elements; infinite if the shapes differ
    relative: float  # the same, relative to the reference's largest magnitude

    @classmethod
    def between(cls, tensor: "Tensor", reference: "Tensor") -> "Difference":
        """Compare two tensors; a value that is not finite makes both differences infinite."""
        same_shape = tensor.shape == reference.shape
        absolute = (tensor - reference).abs().max().item() if same_shape else float("inf")
        largest = reference.abs().max().item()
        if not math.isfinite(absolute):
            return cls(float("inf"), float("inf"))
        return cls(absolute, absolute / largest if largest else absolute)


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison."""

    outputs: Mapping[str, Difference]
    # embeddings and layers, in order -> the difference of their outputs
    layers: Mapping[str, Difference]
    # the first of the layers, then of the outputs, whose relative difference exceeds the tolerance;
    # ``None`` if all agree
    first_diverging: str | None


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
    # The library is optional; only this module imports it, by name.
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
    spec = family.onnx(config, head)
    if inputs is not None:
        batches = [inputs]
    else:
        longest = min([48, *spec.limits.values()])
        lengths = lengths or (longest, longest // 2 + 1, spec.minimums.get("tokens", 1))
        # without a padding token, the reference cannot find the last token of a row in a batch
        unpadded = getattr(reference.config, "pad_token_id", None) is None
        groups = [[length] for length in lengths] if unpadded else [lengths]
        batches = [
            random_inputs(spec, config, rows, seed=seed, padding_side=family.padding_side)
            for seed, rows in enumerate(groups)
        ]
    results = []
    for batch in batches:
        named, hidden = _run(model.eval(), batch)
        arguments = family.reference_inputs(head, batch)
        expected, states = _run_reference(reference, arguments, list(spec.outputs))
        by_layer = _differences(hidden, dict(zip(hidden, states, strict=True)))
        results.append((_differences(named, expected), by_layer))
    # the largest difference of each tensor over the batches
    outputs, layers = (
        {
            name: max((result[part][name] for result in results), key=lambda d: d.relative)
            for name in results[0][part]
        }
        for part in (0, 1)
    )
    first = (name for name, d in (layers | outputs).items() if d.relative > tolerance)
    return Comparison(outputs, layers, next(first, None))


def reference_runs(
    family: Family,
    config: Any,
    head: str,
    model: "nn.Module",
    reference: "nn.Module",
    inputs: "Mapping[str, Tensor]",
) -> "tuple[Run, Run]":
    """Return functions that run a model and the reference in their current mode."""
    # Both return hidden states and outputs under the same names
    outputs = list(family.onnx(config, head).outputs)

    def run() -> "dict[str, Tensor]":
        named, layers = _run(model, inputs)
        return {**layers, **named}

    names = [name for name in run() if name not in outputs]

    def run_reference() -> "dict[str, Tensor]":
        arguments = family.reference_inputs(head, inputs)
        named, states = _run_reference(reference, arguments, outputs)
        return {**dict(zip(names, states, strict=True)), **named}

    return run, run_reference


def reference_model(
    family: Family, config: Any, head: str, state: "Mapping[str, Tensor]"
) -> "nn.Module":
    """Return the reference library's model with our weights, which are not copied.

    Args:
        family: the family.
        config: its configuration.
        head: name of the head.
        state: state dict of our model; its dtype becomes the reference's.

    Raises:
        UsageError: see ``reference_class``.
        VerificationError: its model does not take exactly the tensors that the rules give; or see
            ``reference_class``.
    """
    from zoo.nn.layers.skip_init import SkipInit

    kind = reference_class(family, config, head)
    weights = hub_state(family.weights(config, head), state)
    dtype = next(iter(weights.values())).dtype
    bars = importlib.import_module(f"{REFERENCE}.utils.logging")
    shown = bars.is_progress_bar_enabled()
    bars.disable_progress_bar()
    try:
        with SkipInit():
            model, loading = kind.from_pretrained(
                None,
                config=kind.config_class(**family.to_hub(config)),
                state_dict=weights,
                dtype=dtype,
                attn_implementation="eager",  # the plain formula, not the kernel that ours calls
                output_loading_info=True,
                **_parts(kind, family.onnx(config, head).outputs),
            )
    finally:
        if shown:
            bars.enable_progress_bar()
    wrong = {problem: names for problem, names in loading.items() if names}
    if wrong:
        raise VerificationError(f"{kind.__name__} of {REFERENCE} does not fit the rules: {wrong}")
    for name, parameter in model.named_parameters():
        if parameter.dtype is not dtype:  # its class chooses the dtype itself
            parameter.data = weights[name]
    return model.eval()  # type: ignore[no-any-return]


def _parts(kind: type, outputs: Collection[str]) -> dict[str, bool]:
    """Return the argument that gives the reference's backbone a pooler, if it takes one."""
    known = inspect.signature(kind).parameters
    return {"add_pooling_layer": "pooler_output" in outputs} if "add_pooling_layer" in known else {}


def _import_reference(module: str = "") -> Any:
    try:
        return importlib.import_module(REFERENCE + module)
    except ModuleNotFoundError as error:
        raise UsageError(f"{REFERENCE} is not installed", f"pip install {REFERENCE}") from error


def reference_class(family: Family, config: Any, head: str) -> Any:
    """Return the class of the reference library with the name that a family gives."""
    name = family.architecture(config, head)
    library = _import_reference()
    kind, model_type = getattr(library, name, None), family.model_type(config)
    if kind is None:
        spellings = [other for other in dir(library) if other.lower() == name.lower()]
        if spellings:
            raise VerificationError(
                f"{family.name} has the class {name}, which {REFERENCE} spells {spellings[0]}",
                "give its heads the prefix of the class names as it is spelled there",
            )
        raise UsageError(f"{REFERENCE} {library.__version__} has no class {name}")
    if kind.config_class.model_type != model_type:
        raise VerificationError(
            f"{family.name} has the model type {model_type}, and {name} of {REFERENCE} has "
            f"{kind.config_class.model_type}",
            "set `model_types` of the family to the model_type in its checkpoints' config.json",
        )
    return kind


def reference_tokenizer_class(family: Family, config: Any) -> Any:
    """Return the reference library's tokenizer class for the model type of a configuration."""
    library = _import_reference()
    names = _import_reference(".models.auto.tokenization_auto")
    model_type = family.model_type(config)
    name = names.TOKENIZER_MAPPING_NAMES.get(model_type)
    if not isinstance(name, str):  # versions before 5 have pairs of classes
        raise UsageError(f"{REFERENCE} has no tokenizer class for the model type {model_type}")
    return getattr(library, name)


def reference_tensors(family: Family, config: Any, head: str) -> "dict[str, TensorInfo]":
    """Return the tensors of the reference library's model as it saves them, without our rules."""
    # Names and layout in its files may differ from those in its modules
    import torch

    from zoo.io.tensors.formats import TensorInfo

    kind = reference_class(family, config, head)
    parts = _parts(kind, family.onnx(config, head).outputs)
    with torch.device("meta"):
        model = kind(kind.config_class(**family.to_hub(config)), **parts)
    state = saved_state(model)
    return {name: TensorInfo("F32", tuple(t.shape)) for name, t in state.items()}


def reference_constants(family: Family, config: Any, head: str) -> "dict[str, Tensor]":
    """Return the constants that a new model of the reference library saves, by Hub name."""
    weights = family.weights(config, head)
    if not (constants := weights.constant_tensors()):
        return {}
    state = reference_state(family, config, head)
    known = {name: state.get(weights.written(name)) for name in constants}
    return {name: tensor for name, tensor in known.items() if tensor is not None}


def reference_state(family: Family, config: Any, head: str) -> "Mapping[str, Tensor]":
    """Return the initial tensors of a new model of the reference library, as it saves them."""
    kind = reference_class(family, config, head)
    parts = _parts(kind, family.onnx(config, head).outputs)
    return saved_state(kind(kind.config_class(**family.to_hub(config)), **parts))


def reference_start(family: Family, config: Any, head: str) -> int | None:
    """Return the first token that the reference's decoder reads; ``None`` if it takes no labels."""
    import torch

    kind = reference_class(family, config, head)
    with torch.random.fork_rng(devices=[]):
        model = kind(kind.config_class(**family.to_hub(config))).eval()
    if not hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return None
    read: list[Tensor] = []

    def record(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        read.extend([] if ids is None else [ids])

    hook = model.get_decoder().register_forward_pre_hook(record, with_kwargs=True)
    source, labels = torch.full((1, 4), 3), torch.full((1, 3), 4)
    try:
        with torch.no_grad():
            model(input_ids=source, labels=labels)
    finally:
        hook.remove()
    return int(read[0][0, 0]) if read else None


def saved_state(model: "nn.Module") -> "Mapping[str, Tensor]":
    """Return the state dict of a reference model as ``save_pretrained`` converts it."""
    # It includes copies of tied tensors, which ``save_pretrained`` leaves out. Versions before 5
    # save the state dict unchanged
    try:
        loading = importlib.import_module(f"{REFERENCE}.core_model_loading")
    except ModuleNotFoundError:
        return model.state_dict()
    return loading.revert_weight_conversion(model, model.state_dict())  # type: ignore[no-any-return]


def hub_state(weights: "WeightMap", state: "Mapping[str, Tensor]") -> "dict[str, Tensor]":
    """Return a state dict under the Hub's names and in its layout, with the constants."""
    import torch

    hub: dict[str, Tensor] = {}
    dtype = next(iter(state.values())).dtype
    for name, constant in weights.constant_tensors().items():
        if constant.written:
            values = torch.from_numpy(constant.values())
            hub[name] = values.to(dtype) if values.is_floating_point() else values
    for entry in weights.entries():
        parts = entry.op.to_hub(state[entry.target].numpy())
        hub |= {n: torch.from_numpy(a) for n, a in zip(entry.sources, parts, strict=True)}
    hub |= {copy: hub[owner] for owner, names in weights.copies().items() for copy in names}
    return {weights.written(name): tensor for name, tensor in hub.items()}


def _run(
    model: "nn.Module", inputs: "Mapping[str, Tensor]"
) -> "tuple[dict[str, Tensor], dict[str, Tensor]]":
    """Return the outputs, and the hidden states by the names of the modules that return them."""
    import torch

    from zoo.nn.capture import capture

    decoder = getattr(model, "decoder", None)
    with contextlib.ExitStack() as stack, torch.no_grad(), keep_float64():
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
    """Return the reference's outputs and hidden states, the decoder's after the encoder's."""
    import torch

    with torch.no_grad(), keep_float64():
        outputs = model(**inputs, output_hidden_states=True)
    states = outputs.get("hidden_states")
    if states is None:  # the decoder's without its embeddings, which our capture does not record
        states = (*outputs.encoder_hidden_states, *outputs.decoder_hidden_states[1:])
    return named_outputs(outputs, names), states


def keep_float64() -> "TorchFunctionMode":
    """Return a context in which operations on float64 return float64."""
    # Some models, ours and the reference's, compute a norm, a softmax or a rotation in float32
    # whatever the dtype of their weights
    import torch
    from torch.overrides import TorchFunctionMode

    class KeepFloat64(TorchFunctionMode):
        def __torch_function__(
            self,
            func: Any,
            types: Sequence[type],
            args: tuple[Any, ...] = (),
            kwargs: dict[str, Any] | None = None,
        ) -> Any:
            kwargs = dict(kwargs or {})
            first = args[0] if args else kwargs.get("input")
            if func is torch.tensor and isinstance(first, int | float):  # a number in a formula
                return func(*args, **{name: _widened(value) for name, value in kwargs.items()})
            if not isinstance(first, torch.Tensor) or first.dtype is not torch.float64:
                return func(*args, **kwargs)
            if func is torch.Tensor.float:
                return first
            kwargs = {name: _widened(value) for name, value in kwargs.items()}
            return func(*map(_widened, args), **kwargs)

    def _widened(value: Any) -> Any:
        return torch.float64 if value is torch.float32 else value

    return KeepFloat64()


def named_outputs(outputs: Mapping[str, Any], names: Sequence[str]) -> "dict[str, Tensor]":
    """Return the reference's outputs by our names: by name if it has them all, else in order."""
    import torch

    if all(name in outputs for name in names):
        return {name: outputs[name] for name in names}
    tensors = [value for value in outputs.values() if isinstance(value, torch.Tensor)]
    return dict(zip(names, tensors, strict=True))


def _differences(
    tensors: "Mapping[str, Tensor]", references: "Mapping[str, Tensor]"
) -> dict[str, Difference]:
    return {name: Difference.between(tensors[name], r) for name, r in references.items()}
