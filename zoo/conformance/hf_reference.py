"""Models of the reference library with our weights, its tensors, constants and outputs."""

import contextlib
import importlib
import inspect
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from zoo.errors import UsageError, VerificationError, ZooError
from zoo.families.base import Family

if TYPE_CHECKING:
    from torch import Tensor, nn
    from torch.overrides import TorchFunctionMode

    from zoo.io.tensors.formats import TensorInfo
    from zoo.weights import WeightMap

REFERENCE = "transformers"
LARGEST_FLOAT32 = 3.4028234663852886e38


class ReferenceUnavailable(UsageError):
    """The reference cannot be compared with: it is not installed, has no class, or fails."""


@contextlib.contextmanager
def report_reference_errors(class_name: str) -> Iterator[None]:
    """Raise errors of the reference library within the block as ``ReferenceUnavailable``."""
    try:
        yield
    except ZooError:
        raise
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise ReferenceUnavailable(f"{class_name} of {REFERENCE} fails with {message}") from error


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
        ReferenceUnavailable: see ``reference_class``.
        VerificationError: its model does not take exactly the tensors that the rules give; or see
            ``reference_class``.
    """
    weights = hub_state(family.weights(config, head), state)
    return build_reference(family, config, head, weights, family.to_hub(config))


def build_reference(
    family: Family,
    config: Any,
    head: str,
    weights: "Mapping[str, Tensor]",
    hub: Mapping[str, Any],
) -> "nn.Module":
    """Return the reference's model with tensors of the Hub's layout and a Hub configuration."""
    from zoo.nn.layers.skip_init import SkipInit

    model_class = reference_class(family, config, head)
    dtype = next(iter(weights.values())).dtype
    model_config = _make_config(model_class, hub)
    with _silent(), SkipInit(), report_reference_errors(model_class.__name__):
        model, loading = model_class.from_pretrained(
            None,
            config=model_config,
            state_dict=dict(weights),
            dtype=dtype,
            attn_implementation="eager",  # the plain formula, not the kernel that ours calls
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # they are part of the information, which is checked
            **_parts(model_class, family.onnx(config, head).outputs),
        )
    wrong = {problem: names for problem, names in loading.items() if names}
    if wrong:
        raise VerificationError(
            f"{model_class.__name__} of {REFERENCE} does not fit the rules: {wrong}"
        )
    is_untied = hub.get("tie_word_embeddings") is False
    if is_untied and not hasattr(type(model_config)(), "scale_decoder_outputs"):
        # Some classes of version 5 declare every model as tied, and scale its outputs by that,
        # instead of by a key of its own.
        model.config.tie_word_embeddings = False
    for name, parameter in model.named_parameters():
        if parameter.dtype is not dtype:  # its class chooses the dtype itself
            parameter.data = weights[name]
    return model.eval()  # type: ignore[no-any-return]


def reference_config(family: Family, config: Any, model_class: Any) -> Any:
    """Return a configuration of the reference library's, for a class that it has.

    Raises:
        VerificationError: it refuses the keys that the family writes.
    """
    return _make_config(model_class, family.to_hub(config))


@contextlib.contextmanager
def _silent() -> Iterator[None]:
    """Show no progress bars and reports of the reference library within the block."""
    settings = importlib.import_module(f"{REFERENCE}.utils.logging")
    shown = settings.is_progress_bar_enabled()
    verbosity = settings.get_verbosity()
    settings.disable_progress_bar()
    settings.set_verbosity_error()
    try:
        yield
    finally:
        settings.set_verbosity(verbosity)
        if shown:
            settings.enable_progress_bar()


def _make_config(model_class: Any, hub: Mapping[str, Any]) -> Any:
    try:
        return model_class.config_class(**hub)
    except Exception as error:
        message = " ".join(f"{type(error).__name__}: {error}".split())
        raise VerificationError(
            f"{model_class.config_class.__name__} of {REFERENCE} refuses the configuration: "
            f"{message}",
            "`to_hub` of the family has to write what its class reads",
        ) from error


def _parts(model_class: type, outputs: Collection[str]) -> dict[str, bool]:
    """Return the argument that gives the reference's backbone a pooler, if it takes one."""
    parameter_names = inspect.signature(model_class).parameters
    if "add_pooling_layer" not in parameter_names:
        return {}
    return {"add_pooling_layer": "pooler_output" in outputs}


def _import_reference(module: str = "") -> Any:
    try:
        return importlib.import_module(REFERENCE + module)
    except ModuleNotFoundError as error:
        raise ReferenceUnavailable(
            f"{REFERENCE} is not installed", f"pip install {REFERENCE}"
        ) from error


def reference_class(family: Family, config: Any, head: str) -> Any:
    """Return the class of the reference library with the name that a family gives.

    Raises:
        ReferenceUnavailable: it has none.
        VerificationError: the class has another spelling or another model type.
    """
    name = family.architecture(config, head)
    library = _import_reference()
    model_class = getattr(library, name, None)
    model_type = family.model_type(config)
    if model_class is None:
        spellings = [other for other in dir(library) if other.lower() == name.lower()]
        if spellings:
            raise VerificationError(
                f"{family.name} has the class {name}, which {REFERENCE} spells {spellings[0]}",
                "give its heads the prefix of the class names as it is spelled there",
            )
        raise ReferenceUnavailable(f"{REFERENCE} {library.__version__} has no class {name}")
    if model_class.config_class.model_type != model_type:
        raise VerificationError(
            f"{family.name} has the model type {model_type}, and {name} of {REFERENCE} has "
            f"{model_class.config_class.model_type}",
            "set `model_types` of the family to the model_type in its checkpoints' config.json",
        )
    return model_class


def reference_tokenizer_class(family: Family, config: Any) -> Any:
    """Return the reference library's tokenizer class for the model type of a configuration."""
    library = _import_reference()
    names = _import_reference(".models.auto.tokenization_auto")
    model_type = family.model_type(config)
    name = names.TOKENIZER_MAPPING_NAMES.get(model_type)
    if not isinstance(name, str):  # versions before 5 have pairs of classes
        raise ReferenceUnavailable(
            f"{REFERENCE} has no tokenizer class for the model type {model_type}"
        )
    return getattr(library, name)


def reference_tensors(family: Family, config: Any, head: str) -> "dict[str, TensorInfo]":
    """Return the tensors of the reference library's model as it saves them, without our rules."""
    # Names and layout in its files may differ from those in its modules
    import torch

    from zoo.io.tensors.formats import TensorInfo

    model_class = reference_class(family, config, head)
    parts = _parts(model_class, family.onnx(config, head).outputs)
    model_config = reference_config(family, config, model_class)
    with torch.device("meta"), report_reference_errors(model_class.__name__):
        model = model_class(model_config, **parts)
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
    model_class = reference_class(family, config, head)
    parts = _parts(model_class, family.onnx(config, head).outputs)
    model_config = reference_config(family, config, model_class)
    with report_reference_errors(model_class.__name__):
        return saved_state(model_class(model_config, **parts))


def reference_start(family: Family, config: Any, head: str) -> int | None:
    """Return the first token that the reference's decoder reads; ``None`` if it takes no labels."""
    import torch

    model_class = reference_class(family, config, head)
    model_config = reference_config(family, config, model_class)
    with torch.random.fork_rng(devices=[]), report_reference_errors(model_class.__name__):
        model = model_class(model_config).eval()
    if not hasattr(model, "prepare_decoder_input_ids_from_labels"):
        return None
    read: list[Tensor] = []

    def record(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        ids = kwargs.get("input_ids", args[0] if args else None)
        read.extend([] if ids is None else [ids])

    hook = model.get_decoder().register_forward_pre_hook(record, with_kwargs=True)
    source = torch.full((1, 4), 3)
    labels = torch.full((1, 3), 4)
    try:
        with torch.no_grad(), report_reference_errors(model_class.__name__):
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


def run_reference(
    family: Family,
    head: str,
    model: "nn.Module",
    inputs: "Mapping[str, Tensor]",
    names: Sequence[str],
) -> "tuple[dict[str, Tensor], Sequence[Tensor]]":
    """Return the reference's outputs and hidden states, the decoder's after the encoder's.

    Args:
        family: the family, which may give the reference other inputs.
        head: name of the head.
        model: the reference's model.
        inputs: inputs of our model.
        names: names of our outputs.

    Raises:
        ReferenceUnavailable: the reference fails.
        VerificationError: it takes no argument with the name of an input.
    """
    arguments = family.reference_inputs(head, inputs, model.config)
    parameters = inspect.signature(model.forward).parameters
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    unknown = sorted(arguments.keys() - parameters.keys())
    class_name = type(model).__name__
    if unknown and not takes_any:
        raise VerificationError(
            f"{class_name} of {REFERENCE} takes no {', '.join(unknown)}",
            "override `reference_inputs` in the family",
        )
    with keep_float64(), report_reference_errors(class_name):
        outputs = model(**arguments, output_hidden_states=True)
    states = outputs.get("hidden_states")
    if states is None and outputs.get("encoder_hidden_states") is not None:
        # the decoder's without its embeddings, which our capture does not record
        states = (*outputs.encoder_hidden_states, *outputs.decoder_hidden_states[1:])
    return named_outputs(outputs, names), states or ()


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
            fill_value = args[1] if func is torch.full and len(args) > 1 else None
            if isinstance(fill_value, float) and abs(fill_value) > LARGEST_FLOAT32:
                kwargs.setdefault("dtype", torch.float64)  # the lowest score
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
