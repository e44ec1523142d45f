"""Symbolic values of the pickle of a state dict: names, storages, tensors, and calls.

A storage describes bytes elsewhere in the file, and a tensor describes a view of a storage. Both
are checked as soon as they are complete, and nothing is allocated.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from zoo.io.tensors.formats import STORAGE, TensorInfo
from zoo.io.tensors.safetensors import MAX_RANK, is_sound_shape

MAX_INT_KEY = 1 << 31

# storage class of torch -> safetensors code of the elements
STORAGES = {
    "torch.BoolStorage": "BOOL",
    "torch.ByteStorage": "U8",
    "torch.CharStorage": "I8",
    "torch.ShortStorage": "I16",
    "torch.IntStorage": "I32",
    "torch.LongStorage": "I64",
    "torch.HalfStorage": "F16",
    "torch.BFloat16Storage": "BF16",
    "torch.FloatStorage": "F32",
    "torch.DoubleStorage": "F64",
    "torch.storage.UntypedStorage": "U8",
}
# dtype of torch -> safetensors code; dtypes without a storage class are stored with the tensor
DTYPES = {
    "torch.bool": "BOOL",
    "torch.uint8": "U8",
    "torch.int8": "I8",
    "torch.uint16": "U16",
    "torch.int16": "I16",
    "torch.float16": "F16",
    "torch.bfloat16": "BF16",
    "torch.uint32": "U32",
    "torch.int32": "I32",
    "torch.float32": "F32",
    "torch.uint64": "U64",
    "torch.int64": "I64",
    "torch.float64": "F64",
    "torch.float8_e4m3fn": "F8_E4M3",
    "torch.float8_e5m2": "F8_E5M2",
}


class Refused(Exception):
    """Raised with the reason why a file is not accepted."""


@dataclass(frozen=True)
class Name:
    """A global (module and name) in the pickle."""

    path: str


@dataclass(frozen=True)
class Opaque:
    """What something that is not known would be, such as a random state; it is not made."""

    path: str  # the global that it begins with


@dataclass(frozen=True)
class Storage:
    """Storage of tensors elsewhere in the file, as the pickle describes it."""

    key: str
    dtype: str  # safetensors code of the elements
    count: int  # number of elements according to the pickle

    @property
    def nbytes(self) -> int:
        """Size in bytes according to the pickle."""
        return TensorInfo(self.dtype, (self.count,)).nbytes


@dataclass(frozen=True)
class Tensor:
    """A tensor that the pickle describes, a checked view of its storage."""

    storage: Storage  # storage of the elements
    info: TensorInfo  # dtype and shape
    offset: int  # offset of the first element in the storage, in elements
    strides: tuple[int, ...]  # stride of each dimension, in elements


class Ordered(dict[Any, Any]):
    """An ``OrderedDict``, the only object whose attributes may be set."""


def put(target: dict[Any, Any], key: Any, value: Any) -> None:
    """Set an entry of a dict."""
    # Keys are strings or small integers. Hashing nested tuples can take exponential time, and large
    # integers can be chosen to have equal hashes
    if type(key) not in (str, int) or (type(key) is int and abs(key) >= MAX_INT_KEY):
        refuse("a dict has for a key", key)
    if key in target:
        raise Refused(f"its pickle sets the entry {key!r:.200} twice")
    target[key] = value


def refuse(problem: str, value: Any) -> NoReturn:
    """Raise ``Refused`` with the type of a value, which may be large or contain itself."""
    kind = value.path if isinstance(value, Name) else f"a value of type {type(value).__name__}"
    raise Refused(f"its pickle is not one of tensors: {problem} {kind}")


def _ordered(pairs: Any = ()) -> Ordered:
    ordered = Ordered()
    if type(pairs) not in (list, tuple):
        refuse("it makes an OrderedDict of", pairs)
    for key, value in pairs:  # as Python 2 pickles it
        put(ordered, key, value)
    return ordered


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *flags: Any) -> Tensor:
    return _view(storage, storage.dtype, (offset, shape, strides), flags)


def _tensor_with_dtype(storage: Any, offset: Any, shape: Any, strides: Any, *flags: Any) -> Tensor:
    """Return a tensor whose dtype, the argument after the hooks, has no storage class."""
    grad, hooks, dtype, *metadata = flags
    return _view(storage, DTYPES[dtype.path], (offset, shape, strides), (grad, hooks, *metadata))


def _view(storage: Any, dtype: str, layout: tuple[Any, Any, Any], flags: tuple[Any, ...]) -> Tensor:
    offset, shape, strides = layout
    info = TensorInfo(dtype, shape)
    if not (
        isinstance(storage, Storage)
        and type(shape) is type(strides) is tuple
        and len(shape) == len(strides) <= MAX_RANK
        and all(type(n) is int and 0 <= n < 1 << 63 for n in (offset, *shape, *strides))
        and is_sound_shape(info)
        and _is_plain(flags)
    ):
        raise Refused("its pickle describes a tensor that is not a plain one")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    end = (last + 1) * int(STORAGE[dtype][2:]) if math.prod(shape) else 0
    if max(end, info.nbytes) > storage.nbytes:
        raise Refused("its pickle describes a tensor that is larger than its storage")
    return Tensor(storage, info, offset, strides)


def _is_plain(flags: tuple[Any, ...]) -> bool:
    """Return ``True`` if the last arguments are (requires_grad, no hooks[, no metadata])."""
    match flags:
        case () | (bool(), dict()) | (bool(), dict(), None | dict()):
            return not any(flags[1:])
    return False


def _parameter(data: Any, grad: Any, hooks: Any) -> Tensor:
    if not isinstance(data, Tensor) or not _is_plain((grad, hooks)):
        raise Refused("its pickle describes a parameter that is not a plain one")
    return data


# function that a pickle may call -> its symbolic replacement
CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_with_dtype,
    "torch._utils._rebuild_parameter": _parameter,
}
