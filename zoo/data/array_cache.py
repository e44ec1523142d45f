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
    """Return arrays by name, made and written by the first process that needs them."""
    # Other processes wait for it and map its files. Damaged files are replaced. If the cache cannot
    # be written, each process makes its own arrays in memory
    target = home() / kind / key
    if (found := _open(target)) is not None:  # without a lock: the directory may be read-only
        return found
    made: Arrays | None = None
    try:
        with file_lock(target.with_suffix(".lock")):
            if (found := _open(target)) is None:
                LOG.info("building %s", target)
                made = make()
                with atomic_directory(target, force=True, managed=True) as staging:
                    for name, array in made.items():
                        with (staging / f"{name}.npy").open("wb") as file:
                            contiguous = np.ascontiguousarray(array)
                            npy.write_array_header_1_0(
                                file, npy.header_data_from_array_1_0(contiguous)
                            )
                            # np.save hides the system's error, such as a full disk
                            file.write(contiguous.data)
                    files = {f"{name}.npy": hash_file(staging / f"{name}.npy") for name in made}
                    record = ArraysRecord(files=files, digest=NO_DIGEST)
                    (staging / MANIFEST).write_bytes(add_digest(encode_json(record)))
                found = _open(target)
    except (OSError, UsageError) as error:
        LOG.warning("%s are built again at every start: %s", kind, error)
    return found or dict(make() if made is None else made)


def _open(target: Path) -> dict[str, NDArray[Any]] | None:
    """Map the arrays of a directory; ``None`` if it is missing or damaged."""
    hint = "it is built again"
    try:
        if not use_cached(target):
            return None
        files = read_record(target / MANIFEST, ArraysRecord, hint=hint).files
        check_files(target, files, MANIFEST, hint=hint, digest=file_blake3)
        arrays = {
            name.removesuffix(".npy"): np.load(target / name, mmap_mode="r", allow_pickle=False)
            for name in files
        }
    except (ZooError, OSError, ValueError) as error:
        LOG.warning("%s", error)
        return None
    touch_and_evict(target)
    return arrays
