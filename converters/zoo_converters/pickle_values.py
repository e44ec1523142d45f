"""What a pickle of tensors may be made of: names, storages, tensors, and the calls for them.

All of it is described and none of it made: a storage is a claim about bytes elsewhere in the
file, a tensor is a claim about a storage, and a claim is checked as soon as it is complete.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from zoo.io.tensors.formats import STORAGE, TensorInfo
from zoo.io.tensors.safetensors import MAX_RANK, is_sound_shape

MAX_INT_KEY = 1 << 31

# the classes of a storage -> the safetensors code of its elements
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
# torch's dtypes by name; those without a class of storage are named beside the tensor
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
    """The file is not one of tensors alone: says what it does."""


@dataclass(frozen=True)
class Name:
    """A global that the pickle names."""

    path: str


@dataclass(frozen=True)
class Storage:
    """Bytes that lie elsewhere in the file, as a pickle describes them.

    Attributes:
        key: where they lie.
        dtype: safetensors code of the elements.
        count: how many elements the pickle says there are.
    """

    key: str
    dtype: str
    count: int

    @property
    def nbytes(self) -> int:
        """Its size in bytes, as the pickle says."""
        return TensorInfo(self.dtype, (self.count,)).nbytes


@dataclass(frozen=True)
class Tensor:
    """A tensor that the pickle would build, checked to lie within its storage.

    Attributes:
        storage: the bytes that it is a view of.
        info: its dtype and shape.
        offset: its first element, counted in elements of its dtype.
        strides: the distance between neighbours in each dimension, in elements.
    """

    storage: Storage
    info: TensorInfo
    offset: int
    strides: tuple[int, ...]


class Ordered(dict[Any, Any]):
    """An ``OrderedDict``: the only kind of object that may be given attributes."""


def put(target: dict[Any, Any], key: Any, value: Any) -> None:
    """Set an entry of a dict.

    Keys are text or small whole numbers. To hash a tuple of tuples may take for ever, and large
    numbers can be chosen so that all have the same hash.

    Raises:
        Refused: the key is of another kind, or is there already.
    """
    if type(key) not in (str, int) or (type(key) is int and abs(key) >= MAX_INT_KEY):
        refuse("a dict has for a key", key)
    if key in target:
        raise Refused(f"its pickle sets the entry {key!r:.200} twice")
    target[key] = value


def refuse(what: str, value: Any) -> NoReturn:
    """Refuse a value, naming its kind alone: it may be large, or contain itself.

    Raises:
        Refused: always.
    """
    kind = value.path if isinstance(value, Name) else f"a value of type {type(value).__name__}"
    raise Refused(f"its pickle is not one of tensors: {what} {kind}")


def _ordered(pairs: Any = ()) -> Ordered:
    ordered = Ordered()
    if type(pairs) not in (list, tuple):
        refuse("it makes an OrderedDict of", pairs)
    for key, value in pairs:  # as Python 2 writes it
        put(ordered, key, value)
    return ordered


def _tensor(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Tensor:
    return _view(storage, storage.dtype, (offset, shape, strides), rest)


def _tensor_with_dtype(storage: Any, offset: Any, shape: Any, strides: Any, *rest: Any) -> Tensor:
    """A tensor whose dtype has no class of storage: it comes after the hooks."""
    grad, hooks, dtype, *more = rest
    return _view(storage, DTYPES[dtype.path], (offset, shape, strides), (grad, hooks, *more))


def _view(storage: Any, dtype: str, layout: tuple[Any, Any, Any], rest: tuple[Any, ...]) -> Tensor:
    offset, shape, strides = layout
    info = TensorInfo(dtype, shape)
    if not (
        isinstance(storage, Storage)
        and type(shape) is type(strides) is tuple
        and len(shape) == len(strides) <= MAX_RANK
        and all(type(n) is int and 0 <= n < 1 << 63 for n in (offset, *shape, *strides))
        and is_sound_shape(info)
        and _is_plain(rest)
    ):
        raise Refused("its pickle describes a tensor that is not a plain one")
    last = offset + sum((n - 1) * step for n, step in zip(shape, strides, strict=True))
    end = (last + 1) * int(STORAGE[dtype][2:]) if math.prod(shape) else 0
    if max(end, info.nbytes) > storage.nbytes:
        raise Refused("its pickle describes a tensor that is larger than its storage")
    return Tensor(storage, info, offset, strides)


def _is_plain(rest: tuple[Any, ...]) -> bool:
    """Whether what follows a tensor's layout is (requires grad, no hooks[, no metadata])."""
    match rest:
        case () | (bool(), dict()) | (bool(), dict(), None | dict()):
            return not any(rest[1:])
    return False


def _parameter(data: Any, grad: Any, hooks: Any) -> Tensor:
    if not isinstance(data, Tensor) or not _is_plain((grad, hooks)):
        raise Refused("its pickle describes a parameter that is not a plain one")
    return data


# the functions that a pickle may call -> what takes their place
CALLS: dict[str, Callable[..., Any]] = {
    "collections.OrderedDict": _ordered,
    "torch._utils._rebuild_tensor": _tensor,
    "torch._utils._rebuild_tensor_v2": _tensor,
    "torch._utils._rebuild_tensor_v3": _tensor_with_dtype,
    "torch._utils._rebuild_parameter": _parameter,
}
