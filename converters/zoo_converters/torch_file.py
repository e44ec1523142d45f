"""The two layouts of PyTorch files, read without torch: ZIP archive, and stream before 1.6."""

import io
import struct
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from zoo.errors import SourceError, VerificationError
from zoo.io.files import open_regular
from zoo.io.limits import MAX_PICKLE_BYTES, MAX_STORAGE_USES
from zoo.io.sizes import size_problem
from zoo.io.tensors.formats import STORAGE, TensorInfo
from zoo.io.tensors.safetensors import LFS_POINTER, METADATA, is_sound_name
from zoo_converters.pickle_scan import scan
from zoo_converters.pickle_values import Refused, Storage, Tensor
from zoo_converters.zip_layout import ZipRecord, read_zip

SERIALIZATION_ID = ".data/serialization_id"  # a digest that torch.save adds
ALIGNMENT = ".storage_alignment"
VERSIONS = (".data/version", "version")  # torch reads the first one that an archive has
# as in torch's caffe2/serialize/versions.h
MIN_VERSION = 1
MAX_VERSION = 10
MAX_HEAD_STEPS = 1000  # instructions of the small pickles at the start of a stream
MAGIC = 0x1950A86A20F9469CFC6C
PROTOCOL = 1001
COUNT = struct.Struct("<q")
WRAPPERS = ("state_dict", "model")
RUN = ("state", "model")  # keys of the state dict in a checkpoint of Composer
RUN_PREFIX = "model."  # of its names: the attribute that Composer's class has the model in
SETTINGS = "config"  # key of the configuration that some releases store with the tensors


@dataclass(frozen=True)
class Contents:
    """Tensors of a ``.bin`` file, and positions of their storages."""

    path: Path
    size: int  # length of the file in bytes
    views: Mapping[str, Tensor]  # name -> tensor, a view of a storage
    records: Mapping[str, ZipRecord]  # key of the storage -> position in the file
    wrapper: str | None  # key that holds the state dict; ``None`` if it is the top level
    zipped: bool  # ``True`` for a ZIP archive
    big_endian: bool = False  # ``True`` if the elements are big-endian

    @property
    def tensors(self) -> dict[str, TensorInfo]:
        """Name -> dtype and shape."""
        return {name: view.info for name, view in self.views.items()}


@dataclass(frozen=True)
class _Layout:
    """Value that the pickle describes, and the storages that it refers to."""

    root: Any
    records: Mapping[str, ZipRecord]
    zipped: bool
    big_endian: bool = False


def inspect(path: Path, *, ignore_crc: bool = False, of_run: bool = False) -> Contents:
    """Check a ``.bin`` file and locate its tensors, without running code.

    Args:
        ignore_crc: accept wrong checksums.
        of_run: the file is a checkpoint of Composer; only its model is read.
    """
    with open_regular(path) as file:
        try:
            size = file.seek(0, io.SEEK_END)
            layout = _read(path, file, size, ignore_crc, of_run)
            wrapper, views = (_run_state if of_run else _state_dict)(layout.root)
            if layout.big_endian:
                _check_widths(views)
            claimed = sum(view.info.nbytes for view in views.values())
            limit = MAX_STORAGE_USES * size
            problem = size_problem("size of its tensors in bytes", claimed, limit)
            if problem is not None:
                raise Refused(problem)
        except OSError as error:
            raise SourceError(f"{path}: {error.strerror}") from error
        except Refused as error:
            raise VerificationError(f"{path}: {error}", "nothing in it was run") from error
    return Contents(path, size, views, layout.records, wrapper, layout.zipped, layout.big_endian)


def wrong_checksum(path: Path, record: str) -> VerificationError:
    """Return the error for a record of an archive with a wrong CRC-32."""
    return VerificationError(
        f"{path}: the CRC-32 of its record {record!r:.100} does not match: the file is damaged, "
        "or was written without checksums",
        "fetch it again, or convert it with `zoo convert --ignore-crc` if it has none",
    )


def _read(path: Path, file: BinaryIO, size: int, ignore_crc: bool, of_run: bool) -> _Layout:
    file.seek(0)
    head = file.read(512)
    if head.startswith(b"PK\3\4"):
        return _read_zip(path, file, size, ignore_crc, of_run)
    if head.startswith(LFS_POINTER):
        raise Refused("it is a Git LFS pointer, `git lfs pull` gets the file itself")
    if head[257:262] == b"ustar":
        raise Refused("it is an archive from before 2017, save it again with torch 1.6")
    return _read_stream(file, size)


def _read_zip(path: Path, file: BinaryIO, size: int, ignore_crc: bool, of_run: bool) -> _Layout:
    records = read_zip(file, size)

    def content(name: str, limit: int) -> bytes:
        record = records[name]
        if record.length > limit:
            raise Refused(f"its record {name!r} has {record.length} bytes")
        file.seek(record.offset)
        raw = file.read(record.length)
        if not ignore_crc and zlib.crc32(raw) != record.crc:
            raise wrong_checksum(path, name)
        return raw

    if "constants.pkl" in records:
        raise Refused("it is a TorchScript archive, a program")
    if "data.pkl" not in records:
        raise Refused("it has no data.pkl")
    stream = io.BytesIO(content("data.pkl", MAX_PICKLE_BYTES))
    root, storages = scan(stream, tolerant=of_run)
    if stream.read(1):
        raise Refused("its pickle continues past its end")
    for storage in storages.values():
        record = records.get(f"data/{storage.key}")
        if record is None or storage.nbytes != record.length:
            state = "is missing" if record is None else f"has {record.length}"
            raise Refused(
                f"its pickle claims {storage.nbytes} bytes for storage {storage.key!r:.40}, which "
                f"{state}"
            )
    _check_small_records(records, content)
    byte_order = content("byteorder", 16) if "byteorder" in records else b"little"
    if byte_order not in (b"little", b"big"):
        raise Refused(f"it has the unknown byte order {byte_order!r}")
    data = {key: records[f"data/{key}"] for key in storages}
    return _Layout(root, data, zipped=True, big_endian=byte_order == b"big")


def _check_small_records(
    records: Mapping[str, ZipRecord], content: Callable[[str, int], bytes]
) -> None:
    """Check the records that torch parses before it reads tensors."""
    if SERIALIZATION_ID in records and not content(SERIALIZATION_ID, 64).isascii():
        raise Refused(f"its record {SERIALIZATION_ID!r} is not text")  # torch.load decodes it
    if ALIGNMENT in records and not content(ALIGNMENT, 64).isdigit():
        raise Refused(f"its record {ALIGNMENT!r} is not a number")  # torch.load parses it
    version_record = next((name for name in VERSIONS if name in records), None)
    if version_record is None:
        raise Refused("it has no record 'version'")
    version = content(version_record, 64).strip()
    if not version.isdigit() or not MIN_VERSION <= int(version) <= MAX_VERSION:
        raise Refused(
            f"its record {version_record!r} is {version!r:.40}, and torch reads the versions "
            f"{MIN_VERSION} to {MAX_VERSION}"
        )


def _read_stream(file: BinaryIO, size: int) -> _Layout:
    """Parse five pickles (magic number, protocol, machine, tensors, keys of storages), then the
    storages, each a number of elements and the data.
    """
    file.seek(0)
    stream = io.BytesIO(file.read(MAX_PICKLE_BYTES))
    if not _is_number(scan(stream, MAX_HEAD_STEPS)[0], MAGIC):
        raise Refused("it is neither a ZIP archive nor a stream that torch.save wrote")
    if not _is_number(scan(stream, MAX_HEAD_STEPS)[0], PROTOCOL):
        raise Refused("it is of an unknown version")
    machine, _ = scan(stream, MAX_HEAD_STEPS)
    if not isinstance(machine, dict) or machine.get("little_endian") is not True:
        raise Refused("it was saved on a big-endian machine")
    root, storages = scan(stream)
    keys, _ = scan(stream)
    if type(keys) is not list or {type(key) for key in keys} - {str}:
        raise Refused("its list of storages is damaged")
    if len(set(keys)) != len(keys) or set(keys) != set(storages):
        raise Refused("its storages are not those that its tensors refer to")
    records = {}
    offset = stream.tell()
    for key in keys:
        file.seek(offset)
        raw = file.read(COUNT.size)
        if len(raw) < COUNT.size or COUNT.unpack(raw)[0] != storages[key].count:
            raise Refused(f"its storage {key!r:.40} is cut off or of the wrong size")
        records[key] = ZipRecord(offset + COUNT.size, storages[key].nbytes, None)
        offset += COUNT.size + storages[key].nbytes
        if offset > size:
            raise Refused(f"it ends within its storage {key!r:.40}")
    if offset != size:
        raise Refused(f"it has {size} bytes where its storages end at {offset}")
    return _Layout(root, records, zipped=False)


def _is_number(value: Any, expected: int) -> bool:
    return type(value) is int and value == expected


def _check_widths(views: Mapping[str, Tensor]) -> None:
    """Raise an error for tensors with another item size than their storage."""
    for name, view in views.items():
        if STORAGE[view.info.dtype][2:] != STORAGE[view.storage.dtype][2:]:
            raise Refused(f"it is big-endian, and {name!r:.100} is not of its storage's dtype")


def _state_dict(root: Any) -> tuple[str | None, dict[str, Tensor]]:
    """Return the state dict, and the key that holds it if it is not the top level."""
    if not isinstance(root, dict):
        raise Refused(f"it holds a {type(root).__name__} and not tensors by name")
    wrapper = _wrapper(root)
    return wrapper, _tensors(root if wrapper is None else root[wrapper])


def _run_state(root: Any) -> tuple[str, dict[str, Tensor]]:
    """Return the state dict in a checkpoint of Composer, by the names that the model has itself."""
    entries = root
    for key in RUN:
        entries = entries.get(key) if isinstance(entries, dict) else None
    where = ".".join(RUN)
    if not isinstance(entries, dict):
        raise Refused(f"it has no {where}, so it is not a checkpoint of Composer")
    tensors = _tensors(entries)
    if others := [name for name in tensors if not name.startswith(RUN_PREFIX)]:
        raise Refused(f"{others[0]!r:.100} in its {where} does not begin with {RUN_PREFIX}")
    return where, {name.removeprefix(RUN_PREFIX): tensor for name, tensor in tensors.items()}


def _tensors(entries: dict[Any, Any]) -> dict[str, Tensor]:
    """Return the tensors of a state dict, which has nothing else but maybe its configuration."""
    tensors: dict[str, Tensor] = {}
    for name, value in entries.items():
        if name == SETTINGS and isinstance(value, dict) and not _holds_tensors(value):
            continue
        if type(name) is not str or not is_sound_name(name) or name == METADATA:
            raise Refused(f"{name!r:.100} cannot be the name of a tensor")
        if not isinstance(value, Tensor):
            raise Refused(f"its entry {name!r:.100} is not a tensor")
        tensors[name] = value
    if not tensors:
        raise Refused("it is empty")
    return tensors


def _wrapper(root: dict[Any, Any]) -> str | None:
    """Return the key of the state dict if it is a common key and no other entry has tensors."""
    for name in WRAPPERS:
        if isinstance(root.get(name), dict) and _holds_tensors(root[name]):
            remaining = [value for key, value in root.items() if key != name]
            return None if _holds_tensors(remaining) else name
    return None


def _holds_tensors(value: Any) -> bool:
    """Return ``True`` if there is a tensor anywhere in a value, which may contain itself."""
    visited: set[int] = set()
    pending = [value]
    while pending:
        item = pending.pop()
        if isinstance(item, Tensor | Storage):
            return True
        if isinstance(item, dict | list | tuple) and id(item) not in visited:
            visited.add(id(item))
            pending += item.values() if isinstance(item, dict) else item
    return False
