"""PyTorch's two file layouts, checked without torch: a ZIP archive, and before 1.6 a stream."""

import io
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from zoo.errors import SourceError, VerificationError
from zoo.formats import TensorInfo
from zoo.safetensors import LFS_POINTER, METADATA, is_sound_name, regular_size
from zoo_converters.pickle_scan import scan
from zoo_converters.pickle_values import Refused, Storage, Tensor
from zoo_converters.zip_layout import read_zip

MAX_PICKLE = 1 << 23  # bytes; a tensor takes about 150
MAX_TIES = 32  # how many times a byte of storage may be used
MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001
COUNT = struct.Struct("<q")
WRAPPERS = ("state_dict", "model")
SETTINGS = "config"  # under which some releases keep their configuration beside the tensors


@dataclass(frozen=True)
class Contents:
    """What a ``.bin`` file holds, by its own account, which has been checked.

    Attributes:
        path: the file.
        size: its length in bytes.
        tensors: its tensors by name.
        wrapper: the entry they are under, or ``None`` if they are on the top level.
        zipped: whether it is a ZIP archive, which torch can map.
    """

    path: Path
    size: int
    tensors: Mapping[str, TensorInfo]
    wrapper: str | None
    zipped: bool

    @property
    def nbytes(self) -> int:
        """Size of the tensors' data, those that share storage counted each."""
        return sum(info.nbytes for info in self.tensors.values())


def inspect(path: Path) -> Contents:
    """Check a ``.bin`` file and say what is in it; nothing in it is run.

    Raises:
        SourceError: it cannot be read.
        VerificationError: it is damaged, holds anything but tensors, or does anything but
            describe them.
    """
    try:
        size = regular_size(path)
        with path.open("rb") as file:
            root, zipped = _read(file, size)
        wrapper, tensors = _state_dict(root)
        contents = Contents(path, size, tensors, wrapper, zipped)
        if contents.nbytes > MAX_TIES * size:
            raise Refused(f"its tensors claim {contents.nbytes} bytes of a {size}-byte file")
    except OSError as error:
        raise SourceError(f"{path}: {error.strerror}") from error
    except Refused as error:
        raise VerificationError(f"{path}: {error}", "nothing in it was run") from error
    return contents


def _read(file: BinaryIO, size: int) -> tuple[Any, bool]:
    """Return what the file's pickle would build, and whether the file is a ZIP archive."""
    head = file.read(512)
    if head.startswith(b"PK\3\4"):
        return _read_zip(file, size), True
    if head.startswith(LFS_POINTER):
        raise Refused("it is a Git LFS pointer, `git lfs pull` gets the file itself")
    if head[257:262] == b"ustar":
        raise Refused("it is an archive from before 2017, torch 1.6 can save it anew")
    return _read_stream(file, size), False


def _read_zip(file: BinaryIO, size: int) -> Any:
    records = read_zip(file, size)
    if "constants.pkl" in records:
        raise Refused("it is a TorchScript archive, a program")
    if "data.pkl" not in records:
        raise Refused("it has no data.pkl")
    offset, length = records["data.pkl"]
    if length > MAX_PICKLE:
        raise Refused(f"its pickle has {length} bytes")
    file.seek(offset)
    stream = io.BytesIO(file.read(length))
    root, storages = scan(stream)
    if stream.read(1):
        raise Refused("its pickle goes on behind its end")
    for key, storage in storages.items():
        _check_size(storage, records.get(f"data/{key}", (0, -1))[1])
    return root


def _read_stream(file: BinaryIO, size: int) -> Any:
    """Read five pickles (a magic number, the protocol, the machine it was saved on, the tensors,
    the storages' keys), then each storage: a count of elements and the bytes.
    """
    file.seek(0)
    stream = io.BytesIO(file.read(MAX_PICKLE))
    if scan(stream)[0] != MAGIC:
        raise Refused("it is neither a ZIP archive nor a stream that torch.save wrote")
    if scan(stream)[0] != PROTOCOL:
        raise Refused("it is of an unknown version")
    machine, _ = scan(stream)
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise Refused("it was saved on a big-endian machine")
    root, storages = scan(stream)
    keys, _ = scan(stream)
    if type(keys) is not list or {type(key) for key in keys} - {str}:
        raise Refused("its list of storages is damaged")
    if len(set(keys)) != len(keys) or set(keys) != set(storages):
        raise Refused("its storages are not those that its tensors refer to")
    offset = stream.tell()
    for key in keys:
        file.seek(offset)
        raw = file.read(COUNT.size)
        if len(raw) < COUNT.size or COUNT.unpack(raw)[0] != storages[key].count:
            raise Refused(f"its storage {key!r:.40} is cut off or of another size")
        offset += COUNT.size + storages[key].nbytes
        if offset > size:
            raise Refused(f"it ends within its storage {key!r:.40}")
    if offset != size:
        raise Refused(f"it has {size} bytes where its storages end at {offset}")
    return root


def _check_size(storage: Storage, there: int) -> None:
    if storage.nbytes != there:
        raise Refused(
            f"its pickle claims {storage.nbytes} bytes for storage {storage.key!r:.40}, "
            + (f"which has {there}" if there >= 0 else "which is missing")
        )


def _state_dict(root: Any) -> tuple[str | None, dict[str, TensorInfo]]:
    """Find the tensors: on the top level, or under the one entry that training scripts use."""
    if not isinstance(root, dict):
        raise Refused(f"it holds a {type(root).__name__} and not tensors by name")
    wrapper = _wrapper(root)
    entries = root if wrapper is None else root[wrapper]
    tensors: dict[str, TensorInfo] = {}
    for name, value in entries.items():
        if name == SETTINGS and isinstance(value, dict) and not _holds_tensors(value):
            continue
        if type(name) is not str or not is_sound_name(name) or name == METADATA:
            raise Refused(f"{name!r:.100} cannot be the name of a tensor")
        if not isinstance(value, Tensor):
            raise Refused(f"its entry {name!r:.100} is not a tensor")
        tensors[name] = value.info
    if not tensors:
        raise Refused("it is empty")
    return wrapper, tensors


def _wrapper(root: dict[Any, Any]) -> str | None:
    """Return the entry that alone holds tensors, if it is one of the usual ones."""
    holders = [key for key, value in root.items() if _holds_tensors(value)]
    if len(holders) == 1 and holders[0] in WRAPPERS and isinstance(root[holders[0]], dict):
        return str(holders[0])
    return None


def _holds_tensors(value: Any) -> bool:
    """Whether there is a tensor anywhere in a value, which may contain itself."""
    seen: set[int] = set()
    left = [value]
    while left:
        item = left.pop()
        if isinstance(item, Tensor | Storage):
            return True
        if isinstance(item, dict | list | tuple) and id(item) not in seen:
            seen.add(id(item))
            left += item.values() if isinstance(item, dict) else item
    return False
