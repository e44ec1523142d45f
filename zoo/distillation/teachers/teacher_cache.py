"""A teacher's outputs on disk: records with the digest of a row's inputs as key, append-only."""

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from msgspec import Meta
from msgspec.structs import replace

from zoo.distillation.teachers.record_file import (
    KEY_BYTES,
    SIZE_BYTES,
    Bytes,
    RecordFile,
    encode_record,
)
from zoo.errors import UsageError, VerificationError, first_names
from zoo.io.descriptors import lock_descriptor, unlock_descriptor
from zoo.io.digests.self_digest import NO_DIGEST, add_digest, parse_record
from zoo.io.json import JsonStruct, encode_json
from zoo.io.limits import MAX_STATE_BYTES
from zoo.io.output.atomic import atomic_write
from zoo.io.output.inside import files_inside, open_inside, read_inside
from zoo.io.output.overwrite import check_not_inside
from zoo.io.output.staging import is_staged, remove_stale_staging
from zoo.training.config.overrides import config_diff

BLOCK_BYTES = 1 << 22  # records are held in memory until they reach this size
SHARD_PREFIX = "shard-"
MAX_SHARDS = 100_000
# Versions before 0.3 had a lock file.
_FILE = re.compile(r"outputs-[0-9]+\.(bin|json|lock)|shard-[0-9]+-of-[0-9]+\.(bin|json)")


class CacheHeader(JsonStruct, kw_only=True):
    """Header of a cache: all that outputs depend on, apart from the inputs."""

    teacher: dict[str, str]  # name -> BLAKE3; see ``Teacher.fingerprint``
    dtype: str  # of the teacher's computation
    backend: str  # of the teacher
    outputs: list[str]
    top_k: int  # number of logits per position; equal to ``classes`` if none are left out
    classes: int
    temperatures: list[float]  # at which the probability of the other classes is known


class TeacherShardRecord(JsonStruct, kw_only=True):
    """Part of a teacher's outputs that one process computes before a run.

    Attributes:
        number: number of the shard, from 1.
        count: number of shards.
        is_complete: whether all of its outputs are in the file.
        inputs: digests of the data.
        settings: settings of the run, without paths.
    """

    number: Annotated[int, Meta(ge=1, le=MAX_SHARDS)]
    count: Annotated[int, Meta(ge=1, le=MAX_SHARDS)]
    is_complete: bool = False
    inputs: list[str]
    settings: dict[str, Any]

    @property
    def name(self) -> str:
        """The shard as ``--shard`` takes it."""
        return f"{self.number}/{self.count}"

    @property
    def file_stem(self) -> str:
        """Name of the shard's files, without endings."""
        return f"shard-{self.number}-of-{self.count}"


class CacheManifest(JsonStruct, kw_only=True):
    """``outputs-RANK.json`` or ``shard-K-of-N.json``."""

    header: CacheHeader
    complete: int  # number of bytes of the ``.bin`` file in complete blocks
    digest: str  # BLAKE3 of this file; see ``zoo.io.digests.self_digest``
    # It comes after the digest, since it has values of the user.
    shard: TeacherShardRecord | None = None


class TeacherCache:
    """The records of one rank, and those of shards that were computed before the run."""

    # A cache is a directory with two files per rank. ``outputs-RANK.bin`` has blocks of records,
    # which are only ever appended; ``outputs-RANK.json`` names the teacher and the number of
    # complete bytes of the first file. It is replaced after each block, so that a process may be
    # killed at any moment: bytes beyond the complete ones are cut off. A rank only reads its own
    # file, so that what it finds does not depend on the speed of other ranks.
    #
    # Shards have such files as well, ``shard-K-of-N.*``. A run reads them in order, only if all are
    # complete: of a row that several shards have, it takes the first record, like a process that
    # computes all of them.
    #
    # Directories with other files are refused, and no file is opened through a link. Records are
    # read through a memory map. The index has 16 bytes for each of them.
    def __init__(self, directory: Path, header: CacheHeader) -> None:
        self.directory = directory
        self.header = header
        self.added = 0
        self._file: int | None = None
        self._shard: TeacherShardRecord | None = None

    @property
    def remedy(self) -> str:
        """Hint in errors about a cache that cannot be used."""
        return f"delete {self.directory}, or give another directory"

    def open(self, rank: int) -> None:
        """Lock, verify and index the records of a rank, unless the cache is open."""
        if self._file is not None:
            return
        with self._writing():
            manifests = self._read_manifests()
            shards = [manifest for manifest in manifests if manifest.shard is not None]
            self._require_complete([m.shard for m in shards if m.shard is not None])
            shards.sort(key=_shard_number)
            self._shard_files = [self._open_shard_file(manifest) for manifest in shards]
            self._open_own_file(f"outputs-{rank}")

    def open_shard(self, shard: TeacherShardRecord) -> bool:
        """Lock, verify and index the records of a shard; return whether it is complete.

        Raises:
            UsageError: the directory has shards of another job.
        """
        with self._writing():
            for manifest in self._read_manifests():
                if manifest.shard is not None:
                    self._require_same_job(manifest.shard, shard)
                    if manifest.shard.number == shard.number:
                        shard = manifest.shard
            self._shard = shard
            self._shard_files = []
            self._open_own_file(shard.file_stem)
        return shard.is_complete

    def complete_shard(self) -> None:
        """Write the records in memory, and note that the shard is complete."""
        assert self._shard is not None, "a shard is open"
        self.flush()
        self._shard = replace(self._shard, is_complete=True)
        with self._writing():
            self._write_manifest(self._records.complete)

    def missing_shards(self) -> list[str]:
        """Return the shards of the job that are not complete, as ``--shard`` takes them."""
        with self._writing():
            shards = [m.shard for m in self._read_manifests() if m.shard is not None]
        return _missing_shards(shards)

    def _open_own_file(self, stem: str) -> None:
        """Open the file that records are added to, and cut off what is not complete."""
        data = self.directory / f"{stem}.bin"
        self._manifest = self.directory / f"{stem}.json"
        self.directory.mkdir(parents=True, exist_ok=True)
        if not self._manifest.exists():  # written first: a file without it is not ours
            self._write_manifest(0)
        if self._read_manifest(self._manifest.name).complete and not data.exists():
            raise VerificationError(f"{data} is missing", self.remedy)
        file = open_inside(self.directory, data.name, os.O_RDWR | os.O_CREAT)
        try:
            self._lock(file)
            complete = self._read_manifest(self._manifest.name).complete
            self._records = RecordFile(data, file, complete, self.remedy)
            os.ftruncate(file, complete)
            self._pending = dict[bytes, bytes]()
            self._bytes = 0
            self._file = file
        except BaseException:
            self._release(file)
            raise

    def _open_shard_file(self, manifest: CacheManifest) -> RecordFile:
        """Open a shard's file to read it."""
        assert manifest.shard is not None, "it is a shard's"
        data = self.directory / f"{manifest.shard.file_stem}.bin"
        if not data.exists():
            raise VerificationError(f"{data} is missing", self.remedy)
        file = open_inside(self.directory, data.name, os.O_RDONLY)
        try:
            # Its map holds a copy of the descriptor.
            return RecordFile(data, file, manifest.complete, self.remedy)
        finally:
            os.close(file)

    def _read_manifests(self) -> list[CacheManifest]:
        """Return the manifests of the directory, after checking that they are of this cache."""
        check_not_inside(self.directory / "outputs")
        remove_stale_staging(self.directory)  # left by a killed process
        present = {name for name in files_inside(self.directory) if not is_staged(name)}
        foreign = {name for name in present if not _FILE.fullmatch(name)}
        foreign |= {name for name in present if f"{name.rpartition('.')[0]}.json" not in present}
        if foreign:
            raise UsageError(
                f"{self.directory} holds {min(foreign)}, which is not part of a cache",
                "give another directory",
            )
        manifests = []
        for name in sorted(present):
            if name.endswith(".json"):
                manifest = self._read_manifest(name)
                self._require_same_header(manifest.header)
                is_shard = name.startswith(SHARD_PREFIX)
                stem = name.removesuffix(".json")
                if is_shard != (manifest.shard is not None) or (
                    manifest.shard is not None and manifest.shard.file_stem != stem
                ):
                    raise VerificationError(
                        f"{self.directory / name} is the record of another file", self.remedy
                    )
                manifests.append(manifest)
        return manifests

    def _require_same_job(self, present: TeacherShardRecord, shard: TeacherShardRecord) -> None:
        """Check that a shard in the directory belongs to the same job as another one."""
        difference = ""
        if present.count != shard.count:
            difference = f"it has shard {present.name}"
        elif present.inputs != shard.inputs:
            difference = "its shards are of other data"
        else:
            differences = config_diff(present.settings, shard.settings, absent="not given")
            first_difference = next(differences, "")
            if first_difference:
                difference = f"its shards have other settings: {first_difference}"
        if difference:
            raise UsageError(
                f"{self.directory} holds the outputs of another job: {difference}", self.remedy
            )

    def _require_complete(self, shards: Sequence[TeacherShardRecord]) -> None:
        """Check that all shards are there and complete, or none."""
        counts = {shard.count for shard in shards}
        if len(counts) > 1:
            raise UsageError(
                f"{self.directory} holds shards of {first_names(sorted(map(str, counts)))} parts",
                self.remedy,
            )
        missing = _missing_shards(shards)
        if missing:
            noun = "shard" if len(missing) == 1 else "shards"
            raise UsageError(
                f"{self.directory} lacks {noun} {first_names(missing, 3)} of the teacher's outputs",
                f"the same command with --shard {missing[0]} computes it",
            )

    def _lock(self, file: int) -> None:
        try:
            lock_descriptor(file, wait=False)
        except BlockingIOError as error:
            raise UsageError(
                f"another process writes the cache in {self.directory}",
                "let it end, or give another directory",
            ) from error
        except OSError:  # a file system without locks
            pass

    def _release(self, file: int) -> None:
        # its maps may still be read: they hold a copy of the descriptor
        with contextlib.suppress(OSError):  # a file system without locks
            unlock_descriptor(file)
        os.close(file)
        self._file = None

    def _require_same_header(self, header: CacheHeader) -> None:
        """Check that a file has outputs of this teacher; the error names the first difference."""
        for field in CacheHeader.__struct_fields__:
            before = getattr(header, field)
            now = getattr(self.header, field)
            if before != now:
                what = (
                    "from another teacher"
                    if field == "teacher"
                    else f"for {field} {_text(before)}, not {_text(now)}"
                )
                raise UsageError(f"the cache in {self.directory} is {what}", self.remedy)

    def _read_manifest(self, name: str) -> CacheManifest:
        content = read_inside(self.directory, name, "record of a cache", MAX_STATE_BYTES)
        try:
            path = self.directory / name
            return parse_record(content, path, CacheManifest, hint=self.remedy)
        except VerificationError as error:
            raise VerificationError(error.what, self.remedy) from error

    def _write_manifest(self, complete: int) -> None:
        manifest = CacheManifest(
            header=self.header, complete=complete, digest=NO_DIGEST, shard=self._shard
        )
        atomic_write(self._manifest, add_digest(encode_json(manifest)))

    def get(self, key: bytes) -> Bytes | None:
        """Return the record of a key, or ``None``."""
        pending = self._pending.get(key)
        if pending is not None:
            return np.frombuffer(pending, np.uint8)
        for records in (self._records, *self._shard_files):
            record = records.get(key)
            if record is not None:
                return record
        return None

    def add(self, key: bytes, record: Bytes) -> None:
        """Add a record, unless the cache has its key."""
        if self.get(key) is not None:
            return
        self.added += 1
        self._pending[key] = record.tobytes()
        self._bytes += KEY_BYTES + SIZE_BYTES + record.nbytes
        if self._bytes >= BLOCK_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write the records in memory as a block."""
        if self._file is None or not self._pending:
            return
        block = b"".join(encode_record(key, data) for key, data in self._pending.items())
        with self._writing():
            end = self._records.write_block(block)
            self._write_manifest(end)
        self._records.read_block(end)
        self._pending = {}
        self._bytes = 0

    def close(self) -> None:
        """Write the records in memory, and release the lock."""
        if self._file is None:
            return
        try:
            self.flush()
        finally:
            self._release(self._file)

    @contextlib.contextmanager
    def _writing(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise UsageError(
                f"cannot write the cache in {self.directory}: {error.strerror}",
                "give another directory",
            ) from error


def _missing_shards(shards: Sequence[TeacherShardRecord]) -> list[str]:
    """Return the shards of a job that are not complete; none if there are no shards."""
    complete_numbers = {shard.number for shard in shards if shard.is_complete}
    missing = []
    for count in {shard.count for shard in shards}:
        for number in range(1, count + 1):
            if number not in complete_numbers:
                missing.append(f"{number}/{count}")
    return missing


def _shard_number(manifest: CacheManifest) -> int:
    assert manifest.shard is not None, "it is a shard's"
    return manifest.shard.number


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
