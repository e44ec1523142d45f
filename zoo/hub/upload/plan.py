"""Plan of an upload: files of a directory, their sizes and digests, without a connection."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from zoo.errors import UsageError, VerificationError
from zoo.hub.reference import REPO
from zoo.io.digests.files import FileDigest, check_files
from zoo.io.files import decode_text, read_regular
from zoo.io.json import read_json_record
from zoo.io.limits import MAX_YAML_BYTES
from zoo.io.output.overwrite import HUB_RECORD, HubRecord

MODEL_CARD = "README.md"
ZOO_MANIFEST = "zoo.json"


@dataclass(frozen=True)
class UploadPlan:
    """Files of a directory that an upload sends.

    Attributes:
        path: the directory.
        files: file name -> length and digests.
        licence: licence that the model card states, or ``None``.
        left_out: files of the directory that are not sent.
    """

    path: Path
    files: Mapping[str, FileDigest]
    licence: str | None = None
    left_out: tuple[str, ...] = ()

    @property
    def bytes(self) -> int:
        """Total length in bytes."""
        return sum(file.bytes for file in self.files.values())


def plan_upload(path: Path, repo: str) -> UploadPlan:
    """Return what an upload of a directory sends: the files that `zoo convert --to hub` wrote.

    All files are compared with the digests in the directory's manifest, except the model card,
    which may be edited.

    Args:
        path: the directory.
        repo: name of the repository, ``organisation/name``.

    Raises:
        UsageError: the directory is not in the Hub's layout, or the name is not valid.
        VerificationError: a file is missing or was changed, or the metadata of the model card are
            not valid.
    """
    if not REPO.fullmatch(repo):
        raise UsageError(f"{repo!r} is not the name of a repository", "give organisation/name")
    listed = _listed_files(path)
    others = {name: digest for name, digest in listed.items() if name != MODEL_CARD}
    check_files(path, others, HUB_RECORD, hint="convert the model again")
    names = [*([MODEL_CARD] if (path / MODEL_CARD).is_file() else []), *sorted(others)]
    present = sorted(str(file.relative_to(path)) for file in path.rglob("*") if file.is_file())
    left_out = [name for name in present if name not in (*names, HUB_RECORD)]
    files = {name: _with_sha256(path / name, listed.get(name)) for name in names}
    return UploadPlan(path, files, _licence(path), tuple(left_out))


def _listed_files(path: Path) -> dict[str, FileDigest]:
    if not path.is_dir():
        raise UsageError(f"{path} is not a directory", "give one of `zoo convert --to hub`")
    if (path / ZOO_MANIFEST).is_file():
        raise UsageError(
            f"{path} is in zoo's layout, and the Hub's libraries read another",
            f"zoo convert {path} --to hub -o {path}-hub",
        )
    if not (path / HUB_RECORD).is_file():
        raise UsageError(
            f"{path} has no {HUB_RECORD}: `zoo convert --to hub` did not write it",
            "convert the model first",
        )
    record = read_json_record(path / HUB_RECORD, HubRecord)
    try:
        return msgspec.convert(dict(record.files), dict[str, FileDigest])
    except msgspec.ValidationError as error:
        raise VerificationError(f"{path / HUB_RECORD}: files: {error}") from error


def _with_sha256(path: Path, digest: FileDigest | None) -> FileDigest:
    with path.open("rb") as file:
        sha256 = hashlib.file_digest(file, "sha256").hexdigest()
    blake3 = digest.blake3 if digest else ""
    return FileDigest(bytes=path.stat().st_size, blake3=blake3, sha256=sha256)


def _licence(path: Path) -> str | None:
    """Return the licence in the YAML of a model card."""
    card = path / MODEL_CARD
    if not card.is_file():
        return None
    text = decode_text(read_regular(card, "model card", MAX_YAML_BYTES), card)
    front = text.split("\n---", 1)[0] if text.startswith("---") else ""
    try:
        metadata: Any = yaml.safe_load(front)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise VerificationError(f"{card}: its metadata are not YAML: {reason}") from error
    licence = metadata.get("license") if isinstance(metadata, dict) else None
    return licence if isinstance(licence, str) else None
