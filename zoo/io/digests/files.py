"""BLAKE3 digests of files, and their comparison with those that a manifest lists."""

from collections.abc import Callable, Iterable, Mapping
from io import BufferedReader, FileIO
from pathlib import Path
from threading import Event

from zoo.errors import VerificationError
from zoo.io.files import open_regular, reading
from zoo.io.json import JsonStruct
from zoo.io.paths import safe_join

# Chunks of this size, in bytes, stay in the processor's cache between copying and hashing.
CACHE_CHUNK = 1 << 19
PARALLEL_CHUNK = 8 << 20  # BLAKE3 uses all cores from about this length on, in bytes.
POLL_SECONDS = 0.005  # The wait for more data of a file that is being written.
FINISHED = Event()  # The event of a file that is already complete.
FINISHED.set()


class FileDigest(JsonStruct):
    """Length and digests of a file at the time it was read or written."""

    bytes: int  # length in bytes
    blake3: str  # BLAKE3 digest, 64 hexadecimal digits
    sha256: str | None = None  # SHA-256 digest, if the Hub publishes one and the file matched it


def hash_stream(
    file: FileIO | BufferedReader,
    *,
    length: int | None = None,
    finished: Event = FINISHED,
    all_cores: bool = False,
) -> FileDigest:
    """Compute the BLAKE3 digest of an open file from its position on.

    Args:
        file: the file, open for reading.
        length: maximum number of bytes; by default up to the end.
        finished: set when the file is complete; until then its end is polled.
        all_cores: whether to use all cores. One core keeps up with a writer without slowing it
            down.
    """
    from blake3 import blake3  # imported late: `zoo --help` and downloads do without it

    threads = 1
    chunk_size = CACHE_CHUNK
    if all_cores:
        threads = blake3.AUTO
        chunk_size = PARALLEL_CHUNK
    hasher = blake3(max_threads=threads)
    buffer = memoryview(bytearray(chunk_size))
    size = 0
    is_last_pass = False
    while not is_last_pass:
        # This comes before reading: later data is read in the next pass.
        is_last_pass = finished.wait(POLL_SECONDS)
        while count := file.readinto(buffer if length is None else buffer[: length - size]):
            hasher.update(buffer[:count])
            size += count
    return FileDigest(bytes=size, blake3=hasher.hexdigest())


def hash_file(path: Path, finished: Event = FINISHED) -> FileDigest:
    """Return length and BLAKE3 digest of a file, computed on one core."""
    with path.open("rb", buffering=0) as file:
        return hash_stream(file, finished=finished)


def hash_folder(folder: Path) -> dict[str, FileDigest]:
    """Return the digests of all files of a folder, by their paths in it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): hash_file(path) for path in files}


def compute_blake3(path: Path, length: int | None = None) -> str:
    """Return the BLAKE3 digest of a file, or of its first bytes, computed on all cores."""
    with open_regular(path) as file, reading(path):
        return hash_stream(file, length=length, all_cores=True).blake3


def check_files(
    root: Path,
    files: Mapping[str, FileDigest],
    manifest: str,
    *,
    hint: str,
    digest: Callable[[Path], str] = compute_blake3,
) -> str:
    """Compare files with the lengths and digests of a manifest."""
    for name, expected in files.items():
        path = safe_join(root, name, str(root / manifest))
        if not path.is_file():
            raise VerificationError(f"{path} is missing: {manifest} lists it", hint)
        length = path.stat().st_size
        if length != expected.bytes:
            raise VerificationError(
                f"{path} was changed: {length:,} bytes, and {manifest} lists {expected.bytes:,}",
                hint,
            )
        if digest(path) != expected.blake3:
            raise VerificationError(
                f"{path} was changed: its contents are not those that {manifest} lists", hint
            )
    return f"{len(files)} files are as they were written"


def check_strays(root: Path, listed: Iterable[str], manifest: str, *, hint: str) -> None:
    """Raise an error for files that a manifest does not list.

    Hidden files, which file managers and network file systems leave, are ignored, unless their
    name ends in ``.safetensors``.
    """
    names = {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}
    strays = []
    for name in sorted(names - {*listed, manifest}):
        if not Path(name).name.startswith(".") or name.endswith(".safetensors"):
            strays.append(name)
    if strays:
        raise VerificationError(
            f"{root} holds files that {manifest} does not list: {', '.join(strays[:3])}", hint
        )
