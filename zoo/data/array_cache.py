"""Cache of arrays that are computed from a corpus: made once, then mapped by every process."""

import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from zoo.errors import UsageError, ZooError
from zoo.io.cached_directories import touch_and_evict, use_cached
from zoo.io.digests.files import FileDigest, check_files, hash_file
from zoo.io.digests.self_digest import NO_DIGEST, add_digest, read_record
from zoo.io.digests.verified import file_blake3
from zoo.io.json import JsonStruct, encode_json
from zoo.io.locks import file_lock
from zoo.io.output.atomic import atomic_directory
from zoo.io.paths import home

LOG = logging.getLogger("zoo")
MANIFEST = "arrays.json"

Arrays = Mapping[str, NDArray[Any]]


class ArraysRecord(JsonStruct):
    """``arrays.json``."""

    files: dict[str, FileDigest]  # digests of the files, by name
    digest: str  # BLAKE3 of this file, see ``zoo.io.digests.self_digest``


def cached_arrays(kind: str, key: str, make: Callable[[], Arrays]) -> dict[str, NDArray[Any]]:
    """Return arrays by name, made and written by the first process that needs them.

    Other processes wait for it and map its files. Damaged files are replaced. If the cache cannot
    be written, each process makes its own arrays in memory.
    """
    target = home() / kind / key
    mapped_arrays = _open(target)
    if mapped_arrays is not None:  # No lock was needed: the directory may be read-only.
        return mapped_arrays
    arrays: Arrays | None = None
    try:
        with file_lock(target.with_suffix(".lock")):
            mapped_arrays = _open(target)
            if mapped_arrays is None:
                LOG.info("building %s", target)
                arrays = make()
                _write(target, arrays)
                mapped_arrays = _open(target)
    except (OSError, UsageError) as error:
        LOG.warning("%s are built again at every start: %s", kind, error)
    if mapped_arrays:
        return mapped_arrays
    if arrays is None:
        arrays = make()
    return dict(arrays)


def _write(target: Path, arrays: Arrays) -> None:
    """Write arrays and their record to a directory."""
    with atomic_directory(target, force=True, managed=True) as staging:
        files = {}
        for name, array in arrays.items():
            path = staging / f"{name}.npy"
            contiguous = np.ascontiguousarray(array)
            with path.open("wb") as file:
                npy.write_array_header_1_0(file, npy.header_data_from_array_1_0(contiguous))
                # np.save hides the system's error, such as a full disk.
                file.write(contiguous.data)
            files[path.name] = hash_file(path)
        record = ArraysRecord(files=files, digest=NO_DIGEST)
        (staging / MANIFEST).write_bytes(add_digest(encode_json(record)))


def _open(target: Path) -> dict[str, NDArray[Any]] | None:
    """Map the arrays of a directory; ``None`` if it is missing or damaged."""
    hint = "it is built again"
    try:
        if not use_cached(target):
            return None
        files = read_record(target / MANIFEST, ArraysRecord, hint=hint).files
        check_files(target, files, MANIFEST, hint=hint, digest=file_blake3)
        arrays = {}
        for file in files:
            array = np.load(target / file, mmap_mode="r", allow_pickle=False)
            arrays[file.removesuffix(".npy")] = array
    except (ZooError, OSError, ValueError) as error:
        LOG.warning("%s", error)
        return None
    touch_and_evict(target)
    return arrays
