"""Loading of a checkpoint into a torch module, without initializing its parameters first."""

from collections.abc import Mapping, Set
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from zoo.adapted_models.checkpoint import (
    AdaptedCheckpoint,
    adapter_file,
    adapter_method_of,
    require_finite_tensors,
)
from zoo.adapted_models.layers import ADAPTER_PART, add_stored_adapter, merge_adapters
from zoo.adapted_models.targets import AdaptableModel
from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError, VerificationError, first_names
from zoo.families.base import LABELLED
from zoo.io.paths import check_unicode
from zoo.io.tensors.formats import DTYPE_NAMES, FLOATING, TensorInfo
from zoo.nn.layers.skip_init import init_empty_weights

TORCH_DTYPES = {
    "F64": torch.float64,
    "F32": torch.float32,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
}


def load_model(
    checkpoint: Checkpoint,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
) -> nn.Module:
    """Build the model of a checkpoint and load its weights.

    On a CPU and in the stored dtype the parameters are views of the memory-mapped file: pages are
    copied when they are written to, and the file never changes. Adapters are merged into the
    weights where their method allows it.
    """
    if isinstance(checkpoint, AdaptedCheckpoint):
        return load_adapted_model(checkpoint, dtype, device)
    # This reads only the headers of the files.
    with checkpoint.open_weights() as reader:
        infos = dict(reader.tensors)
    with init_empty_weights():
        model = checkpoint.family.model(checkpoint.config, checkpoint.head_name)
    owners = _match(model, infos, str(checkpoint.path))
    checkpoint.require_unchanged()
    tensors = _read(checkpoint, dtype, device)
    _assign(model, tensors, owners)
    _compute_buffers(model, checkpoint, dtype, device)
    return model.eval().requires_grad_(False)


def load_adapted_model(
    checkpoint: AdaptedCheckpoint,
    dtype: torch.dtype | None = None,
    device: torch.device | str = "cpu",
    *,
    merge: bool = True,
) -> nn.Module:
    """Build the model of a base and its adapters, by default in the stored dtype."""
    base = checkpoint.base
    family = checkpoint.family
    with init_empty_weights():
        model = family.model(checkpoint.config, checkpoint.head_name)
    checkpoint.require_unchanged()
    places = base.sources_in(checkpoint.config, checkpoint.head_name)
    model_tensors = {}
    for name, tensor in _read(base, dtype, device).items():
        if name in places:
            model_tensors[places[name]] = tensor
    adapters_tensors = []
    for adapter in checkpoint.adapters:
        adapters_tensors.append(_read_file(adapter_file(adapter), None, device))
    for adapter, tensors in zip(checkpoint.adapters, adapters_tensors, strict=True):
        require_finite_tensors(tensors, adapter_file(adapter))
    model_names = model.state_dict().keys()
    base_names = set(places.values())
    for adapter, tensors in zip(checkpoint.adapters, adapters_tensors, strict=True):
        _require_or_drop_head(checkpoint, adapter, tensors, base_names)
        # The model's tensors in an adapter replace those of the base.
        for name in model_names & tensors.keys():
            model_tensors[name] = _cast(tensors.pop(name), dtype)
    owners = _match(model, infos_of(model_tensors), f"{base.name} and {checkpoint.name}")
    _assign(model, model_tensors, owners)
    _compute_buffers(model, checkpoint, dtype, device)
    adaptable = AdaptableModel.from_model(model, family, checkpoint.config, checkpoint.head_name)
    for adapter, tensors in zip(checkpoint.adapters, adapters_tensors, strict=True):
        method = adapter_method_of(adapter)
        is_merged = merge and method.can_merge
        if not is_merged:
            tensors = {name: _cast(tensor, dtype) for name, tensor in tensors.items()}
        add_stored_adapter(method, model, adaptable, tensors, adapter_file(adapter))
        if is_merged:
            merge_adapters(model)
    return model.eval().requires_grad_(False)


def _require_or_drop_head(
    checkpoint: AdaptedCheckpoint,
    adapter: Checkpoint,
    tensors: dict[str, Tensor],
    base_names: Set[str],
) -> None:
    """Check that only the last adapter has a head; drop the head of a language model.

    Embeddings may be trained with any adapter, and the head of a language model with them.

    Args:
        checkpoint: the base with its adapters.
        adapter: one of the adapters.
        tensors: the tensors of the adapter, from which those of a dropped head are removed.
        base_names: names of the model's tensors that the base has.
    """
    entries = checkpoint.family.weights(checkpoint.config, "none").entries()
    backbone = {entry.target for entry in entries}
    head_names = {name for name in tensors if ADAPTER_PART not in f".{name}"} - backbone
    if adapter.head_name == checkpoint.head_name:
        head_names -= base_names
    elif not LABELLED.intersection(adapter.head.tasks):
        # The task of the last adapter does not read the head of a language model.
        for name in head_names:
            del tensors[name]
        return
    if head_names and adapter is not checkpoint.adapters[-1]:
        raise UsageError(
            f"{adapter.path} has weights of its head {adapter.head_name}, and of several "
            "adapters only the last may have a head",
            "give it as the last --adapter",
        )


def infos_of(tensors: Mapping[str, Tensor]) -> dict[str, TensorInfo]:
    """Return names, dtypes and shapes of tensors, as a file has them."""
    codes = {dtype: code for code, dtype in TORCH_DTYPES.items()}
    infos = {}
    for name, tensor in tensors.items():
        code = codes.get(tensor.dtype, "I64")
        infos[name] = TensorInfo(code, tuple(tensor.shape))
    return infos


def stored_dtype(checkpoint: Checkpoint) -> torch.dtype:
    """Return the stored dtype with the most bytes; float32 if torch does not support it."""
    if isinstance(checkpoint, AdaptedCheckpoint):
        checkpoint = checkpoint.base
    dtype_sizes: dict[str, int] = {}
    with checkpoint.open_weights() as reader:
        for info in reader.tensors.values():
            dtype_sizes[info.dtype] = dtype_sizes.get(info.dtype, 0) + info.nbytes
    code = max(dtype_sizes, key=dtype_sizes.__getitem__, default="F32")
    return TORCH_DTYPES.get(code, torch.float32)


def _match(model: nn.Module, infos: Mapping[str, TensorInfo], source: str) -> dict[str, str]:
    """Return name in the model -> name of the stored tensor.

    All names of a tied parameter map to the stored one.

    Args:
        model: the model.
        infos: the stored tensors.
        source: what stores them, for errors.

    Raises:
        VerificationError: the tensors are not those of the model.
    """
    groups: dict[int, list[str]] = {}
    state: dict[str, Tensor] = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        groups.setdefault(id(tensor), []).append(name)
    owners: dict[str, str] = {}
    missing_names = []
    repeated_names = []
    for group in groups.values():
        stored_names = [name for name in group if name in infos]
        if not stored_names:
            missing_names.append(group[0])
            continue
        repeated_names += stored_names[1:]
        for name in group:
            owners[name] = stored_names[0]
    unknown_names = []
    reshaped_names = []
    integer_names = []
    for name, info in infos.items():
        if name not in state:
            unknown_names.append(name)
            continue
        if info.shape != state[name].shape:
            reshaped_names.append(name)
        if state[name].is_floating_point() and info.dtype not in FLOATING:
            integer_names.append(f"{name} ({DTYPE_NAMES[info.dtype]})")
    problems = {
        "missing": missing_names,
        "stored twice": repeated_names,
        "not the model's": unknown_names,
        "of a different shape": reshaped_names,
        "stored as integers": integer_names,
    }
    messages = [f"{first_names(names)} {problem}" for problem, names in problems.items() if names]
    if messages:
        raise VerificationError(
            f"{source}: the weights do not fit the model: {'; '.join(messages)}",
            "convert it again, or run zoo verify",
        )
    return owners


def _read(
    checkpoint: Checkpoint, dtype: torch.dtype | None, device: torch.device | str
) -> dict[str, Tensor]:
    tensors: dict[str, Tensor] = {}
    check_unicode(checkpoint.path, "the directory of the model")
    for path in checkpoint.weight_files():
        tensors |= _read_file(path, dtype, device)
    return tensors


def _read_file(
    path: Path, dtype: torch.dtype | None, device: torch.device | str
) -> dict[str, Tensor]:
    with safe_open(path, framework="pt", device=str(device)) as file:
        return {name: _cast(file.get_tensor(name), dtype) for name in file.keys()}  # noqa: SIM118


def _cast(tensor: Tensor, dtype: torch.dtype | None) -> Tensor:
    return tensor.to(dtype) if dtype and tensor.is_floating_point() else tensor


def _assign(model: nn.Module, tensors: Mapping[str, Tensor], owners: Mapping[str, str]) -> None:
    """Make stored tensors the parameters of a model; tied parameters share one."""
    state = {name: tensors[owner] for name, owner in owners.items()}
    model.load_state_dict(state, assign=True)
    # ``assign=True`` makes an object for each name.
    for name, owner in owners.items():
        if name != owner:
            module, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(module), leaf, model.get_parameter(owner))


def _compute_buffers(
    model: nn.Module,
    checkpoint: Checkpoint,
    dtype: torch.dtype | None,
    device: torch.device | str,
) -> None:
    """Fill non-persistent buffers with the values of a newly built model.

    They have the dtype of the parameters, as after ``model.to(dtype)``.
    """
    buffer_names = dict(model.named_buffers()).keys() - model.state_dict().keys()
    if not buffer_names:
        return
    with torch.random.fork_rng(devices=[]):
        initialized = checkpoint.family.model(checkpoint.config, checkpoint.head_name)
    dtype = dtype or next(p.dtype for p in model.parameters() if p.is_floating_point())
    for name in buffer_names:
        module, _, leaf = name.rpartition(".")
        value = _cast(initialized.get_buffer(name), dtype).to(device)
        setattr(model.get_submodule(module), leaf, value)
