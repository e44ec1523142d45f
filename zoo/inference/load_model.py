"""Loading of a checkpoint into a torch module, without initializing its parameters first."""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor, nn

from zoo.adapters.checkpoint import (
    AdaptedCheckpoint,
    adapter_file,
    adapter_method_of,
    require_finite_tensors,
)
from zoo.adapters.layers import ADAPTER_PART, add_stored_adapter, merge_adapters
from zoo.adapters.targets import AdaptableModel
from zoo.checkpoint import Checkpoint
from zoo.errors import UsageError, VerificationError, first_names
from zoo.families.base import LABELLED
from zoo.io.paths import check_unicode
from zoo.io.tensors.formats import DTYPE_NAMES, FLOATING, TensorInfo
from zoo.nn.layers.skip_init import init_empty_weights

TORCH = {
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
    with checkpoint.open_weights() as reader:  # reads only the headers
        stored_as = dict(reader.tensors)
    with init_empty_weights():
        model = checkpoint.family.model(checkpoint.config, checkpoint.head_name)
    names = _match(model, stored_as, str(checkpoint.path))
    checkpoint.require_unchanged()
    stored = _read(checkpoint, dtype, device)
    model.load_state_dict({name: stored[owner] for name, owner in names.items()}, assign=True)
    _tie(model, names)
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
    stored = {
        places[name]: tensor
        for name, tensor in _read(base, dtype, device).items()
        if name in places
    }
    files = [_read_file(adapter_file(adapter), None, device) for adapter in checkpoint.adapters]
    for adapter, tensors in zip(checkpoint.adapters, files, strict=True):
        require_finite_tensors(tensors, adapter_file(adapter))
    of_model = model.state_dict().keys()
    backbone = {entry.target for entry in family.weights(checkpoint.config, "none").entries()}
    for adapter, tensors in zip(checkpoint.adapters, files, strict=True):
        # embeddings may be trained with any adapter, and the head of a language model with them
        same_head = adapter.head_name == checkpoint.head_name
        whole = {name for name in tensors if ADAPTER_PART not in f".{name}"}
        of_head = whole - backbone - (set(places.values()) if same_head else set())
        if not (same_head or LABELLED.intersection(adapter.head.tasks)):
            for name in of_head:  # of a language model, which the last adapter's task does not read
                del tensors[name]
            of_head = set()
        if of_head and adapter is not checkpoint.adapters[-1]:
            raise UsageError(
                f"{adapter.path} has weights of its head {adapter.head_name}, and of several "
                "adapters only the last may have a head",
                "give it as the last --adapter",
            )
        stored |= {name: _cast(tensors.pop(name), dtype) for name in of_model & tensors.keys()}
    names = _match(model, infos_of(stored), f"{base.name} and {checkpoint.name}")
    model.load_state_dict({name: stored[owner] for name, owner in names.items()}, assign=True)
    _tie(model, names)
    _compute_buffers(model, checkpoint, dtype, device)
    adaptable = AdaptableModel.from_model(model, family, checkpoint.config, checkpoint.head_name)
    for adapter, tensors in zip(checkpoint.adapters, files, strict=True):
        method = adapter_method_of(adapter)
        merges = merge and method.can_merge
        if not merges:
            tensors = {name: _cast(tensor, dtype) for name, tensor in tensors.items()}
        add_stored_adapter(method, model, adaptable, tensors, adapter_file(adapter))
        if merges:
            merge_adapters(model)
    return model.eval().requires_grad_(False)


def infos_of(tensors: Mapping[str, Tensor]) -> dict[str, TensorInfo]:
    """Return names, dtypes and shapes of tensors, as a file has them."""
    codes = {dtype: code for code, dtype in TORCH.items()}
    return {
        name: TensorInfo(codes.get(tensor.dtype, "I64"), tuple(tensor.shape))
        for name, tensor in tensors.items()
    }


def stored_dtype(checkpoint: Checkpoint) -> torch.dtype:
    """Return the stored dtype with the most bytes; float32 if torch does not support it."""
    if isinstance(checkpoint, AdaptedCheckpoint):
        checkpoint = checkpoint.base
    count: dict[str, int] = {}
    with checkpoint.open_weights() as reader:
        for info in reader.tensors.values():
            count[info.dtype] = count.get(info.dtype, 0) + info.nbytes
    return TORCH.get(max(count, key=lambda code: count[code], default="F32"), torch.float32)


def _match(model: nn.Module, infos: Mapping[str, TensorInfo], source: str) -> dict[str, str]:
    """Return name in the model -> name of the stored tensor."""
    # All names of a tied parameter map to the one that is stored.
    shapes = {name: info.shape for name, info in infos.items()}
    groups: dict[int, list[str]] = {}
    state: dict[str, Tensor] = model.state_dict(keep_vars=True)
    for name, tensor in state.items():
        groups.setdefault(id(tensor), []).append(name)
    names: dict[str, str] = {}
    missing = []
    twice = []
    for group in groups.values():
        owners = [name for name in group if name in shapes]
        missing += [] if owners else group[:1]
        twice += owners[1:]
        names |= dict.fromkeys(group, owners[0] if owners else "")
    problems = {
        "missing": missing,
        "stored twice": twice,
        "not the model's": [name for name in shapes if name not in state],
        "of a different shape": [n for n in shapes if n in state and shapes[n] != state[n].shape],
        "stored as integers": [
            f"{name} ({DTYPE_NAMES[info.dtype]})"
            for name, info in infos.items()
            if name in state and state[name].is_floating_point() and info.dtype not in FLOATING
        ],
    }
    messages = [f"{first_names(items)} {problem}" for problem, items in problems.items() if items]
    if messages:
        raise VerificationError(
            f"{source}: the weights do not fit the model: {'; '.join(messages)}",
            "convert it again, or run zoo verify",
        )
    return names


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


def _tie(model: nn.Module, names: Mapping[str, str]) -> None:
    """Make tied parameters one object again, which ``load_state_dict(assign=True)`` undoes."""
    for name, owner in names.items():
        if name != owner:
            module, _, leaf = name.rpartition(".")
            setattr(model.get_submodule(module), leaf, model.get_parameter(owner))


def _compute_buffers(
    model: nn.Module,
    checkpoint: Checkpoint,
    dtype: torch.dtype | None,
    device: torch.device | str,
) -> None:
    """Fill non-persistent buffers with the values of a newly built model."""
    # They have the dtype of the parameters, as after ``model.to(dtype)``.
    computed = dict(model.named_buffers()).keys() - model.state_dict().keys()
    if not computed:
        return
    with torch.random.fork_rng(devices=[]):
        initialized = checkpoint.family.model(checkpoint.config, checkpoint.head_name)
    dtype = dtype or next(p.dtype for p in model.parameters() if p.is_floating_point())
    for name in computed:
        module, _, leaf = name.rpartition(".")
        value = _cast(initialized.get_buffer(name), dtype).to(device)
        setattr(model.get_submodule(module), leaf, value)
