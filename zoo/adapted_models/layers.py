"""The layers of adapters in a model: their tensors, and merging them into its weights."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, cast

import torch
from torch import Tensor, nn

from zoo.errors import UsageError, VerificationError, first_names
from zoo.nn.adapters import AdaptedLinear, LinearAdapter
from zoo.nn.layers.skip_init import init_empty_weights

if TYPE_CHECKING:
    from zoo.adapted_models.base import AdapterMethod
    from zoo.adapted_models.targets import AdaptableModel

ADAPTER_PART = ".adapter."  # The name of an adapter's tensor has it between two parts.


@torch.no_grad()
def add_stored_adapter(
    method: "AdapterMethod",
    model: nn.Module,
    adaptable: "AdaptableModel",
    tensors: Mapping[str, Tensor],
    file: Path,
) -> None:
    """Add an adapter to a model, with the values of its file; every tensor of it is used."""
    require_same_tensors(method, adaptable, tensors, file)
    model_names = set(model.state_dict())
    method.add_to(model, adaptable)
    # Loading is not strict, because the model keeps its own tensors; those of the adapter have to
    # be complete.
    keys = model.load_state_dict(tensors, strict=False, assign=True)
    mismatches = (set(keys.missing_keys) - model_names).union(keys.unexpected_keys)
    if mismatches:
        raise _tensor_mismatch(file, mismatches)


def require_same_tensors(
    method: "AdapterMethod",
    adaptable: "AdaptableModel",
    tensors: Mapping[str, Tensor],
    file: Path,
) -> None:
    """Check that tensors are all that an adapter with these settings has, in their shapes.

    The model that is compared with is empty: settings may ask for more memory than there is.
    """
    with init_empty_weights():
        model = adaptable.family.model(adaptable.config, adaptable.head)
        model_names = model.state_dict().keys()
        try:
            method.add_to(model, adaptable)
        except UsageError as error:  # The settings come from a file.
            raise VerificationError(f"{file}: {error.what}", error.hint) from error
    parameters = {}
    for name, parameter in model.state_dict().items():
        if name not in model_names:
            parameters[name] = parameter
    mismatches = list(parameters.keys() ^ tensors.keys())
    for name in parameters.keys() & tensors.keys():
        if parameters[name].shape != tensors[name].shape:
            mismatches.append(name)
    if mismatches:
        raise _tensor_mismatch(file, mismatches)


def _tensor_mismatch(file: Path, names: Iterable[str]) -> VerificationError:
    """Return the error of tensors that are missing, unknown or of another shape."""
    return VerificationError(
        f"{file}: the tensors do not match its settings: {first_names(sorted(names))}",
        "restore it from a copy",
    )


def adapted_modules(model: nn.Module) -> Iterator[tuple[str, nn.Linear, LinearAdapter]]:
    """Yield the linear maps of a model that have an adapter, by name."""
    for name, module in model.named_modules():
        adapter = getattr(module, "adapter", None)
        if isinstance(adapter, LinearAdapter):
            yield name, cast(nn.Linear, module), adapter


@torch.no_grad()
def merge_adapters(model: nn.Module) -> None:
    """Merge all adapters of a model into its weights, in place."""
    for _, linear, adapter in list(adapted_modules(model)):
        weight = linear.weight
        bias = linear.bias
        # The sum is in float32 or float64, so that it is rounded once.
        sum_dtype = torch.promote_types(weight.dtype, torch.float32)
        wide_bias = None if bias is None else bias.to(sum_dtype)
        merged_weight, merged_bias = adapter.merge(weight.to(sum_dtype), wide_bias)
        linear.weight = nn.Parameter(merged_weight.to(weight), requires_grad=weight.requires_grad)
        if bias is not None and merged_bias is not None:
            linear.bias = nn.Parameter(merged_bias.to(bias), requires_grad=bias.requires_grad)
        remove_adapter(linear)


def remove_adapter(linear: nn.Linear) -> None:
    """Remove the adapter of a linear map."""
    if type(linear) is AdaptedLinear:
        del linear.adapter
        linear.__class__ = nn.Linear  # type: ignore[assignment]
    else:
        linear.adapter = None  # type: ignore[assignment]
