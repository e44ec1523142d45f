"""Plan of an upload: files of a directory, their sizes and digests, without a connection."""

import hashlib
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import msgspec
from blake3 import blake3

from zoo.errors import UsageError, VerificationError
from zoo.hub.reference import REPO, resolve
from zoo.io.digests.files import FileDigest, check_files
from zoo.io.digests.self_digest import parse_record
from zoo.io.files import decode_text
from zoo.io.limits import MAX_JSON_BYTES, MAX_YAML_BYTES
from zoo.io.output.inside import files_inside, read_inside, reader_inside
from zoo.io.output.overwrite import HUB_RECORD, HubRecord
from zoo.io.yaml import parse_yaml

BRANCH = "main"
# Languages of model cards: ISO 639 codes, also with a region or a script.
TAG = re.compile(r"[A-Za-z0-9][\w.+-]{0,49}", re.ASCII)  # Without ``dataset:`` and the like.
MAX_TAGS = 50
LANGUAGE = re.compile(r"[a-z]{2,3}(-[A-Za-z0-9]{2,8})*|multilingual|code")
LICENCE_ID = re.compile(r"[a-z0-9][a-z0-9.-]*")  # The Hub writes licences like this.
CONVERT_AGAIN = "convert the model again"
EXPORT_AGAIN = "export the model again"
MODEL_CARD = "README.md"
PLACEHOLDER = "organisation/name"  # It stands for the repository in snippets of a model card.
ZOO_MANIFEST = "zoo.json"
RUN_RECORD = "run.json"


class _Manifest(msgspec.Struct):
    """The keys of ``zoo.json`` that an upload reads."""

    files: dict[str, FileDigest]
    digest: str = ""
    export: dict[str, Any] | None = None  # of a directory with ONNX graphs


@dataclass(frozen=True)
class UploadPlan:
    """Files of a directory that an upload sends."""

    path: Path  # the directory
    files: Mapping[str, FileDigest]  # file name -> length and digests
    licence: str | None = None  # licence that the model card states, or ``None``
    left_out: tuple[str, ...] = ()  # files of the directory that are not sent
    # the model card with the name of the repository, in place of the file; ``None`` to send the
    # file, as one that was edited
    card: bytes | None = None

    @property
    def bytes(self) -> int:
        """Total length in bytes."""
        return sum(file.bytes for file in self.files.values())


def plan_upload(path: Path, repo: str, licence: str | None = None) -> UploadPlan:
    """Return what an upload sends: the files of `zoo convert --to hub`, or of an export.

    All files are compared with the digests in the directory's manifest, except the model card,
    which may be edited. ``licence`` replaces the one that the card states.
    """
    if not REPO.fullmatch(repo):
        raise UsageError(f"{repo!r} is not the name of a repository", "give organisation/name")
    if licence is not None and not LICENCE_ID.fullmatch(licence):
        raise UsageError(
            f"{licence!r} is not the name of a licence on the Hub", "such as apache-2.0, mit, other"
        )
    is_export = (path / ZOO_MANIFEST).is_file()
    if is_export:
        manifest_files = _exported_files(path)
        record = ZOO_MANIFEST
        hint = EXPORT_AGAIN
    else:
        manifest_files = _converted_files(path)
        record = HUB_RECORD
        hint = CONVERT_AGAIN
    for name in manifest_files:
        if any(part.startswith(".") for part in name.split("/")):
            raise VerificationError(f"{path / record} lists {name}, which zoo does not write", hint)
    checked_files = {name: file for name, file in manifest_files.items() if name != MODEL_CARD}
    check_files(path, checked_files, record, hint=hint)
    names = sorted(checked_files)
    if os.path.lexists(path / MODEL_CARD):
        names.insert(0, MODEL_CARD)
    if is_export:
        names.append(ZOO_MANIFEST)  # zoo opens an export by its manifest.
    left_out = [name for name in sorted(files_inside(path)) if name not in (*names, record)]
    files = {}
    for name in names:
        blake3_digest = manifest_files[name].blake3 if name in manifest_files else ""
        with reader_inside(path, name) as file:
            length = os.fstat(file.fileno()).st_size
            sha256 = hashlib.file_digest(file, "sha256").hexdigest()
        files[name] = FileDigest(bytes=length, blake3=blake3_digest, sha256=sha256)
    card = _filled_card(path, repo, manifest_files.get(MODEL_CARD))
    stated_licence = CardMetadata.read(path).licence
    if licence is not None and licence != stated_licence:
        if card is None and os.path.lexists(path / MODEL_CARD):
            card = read_inside(path, MODEL_CARD, "model card", MAX_YAML_BYTES)
        card = _with_licence(card or b"", licence, path / MODEL_CARD)
    if card is not None:
        sha256 = hashlib.sha256(card).hexdigest()
        files[MODEL_CARD] = FileDigest(bytes=len(card), blake3="", sha256=sha256)
    return UploadPlan(path, files, licence or stated_licence, tuple(left_out), card)


def _with_licence(card: bytes, licence: str, path: Path) -> bytes:
    """Return a model card with a licence in its YAML, in place of any other."""
    text = decode_text(card, path)
    front, dashes, body = text.removeprefix("---\n").partition("---\n")
    if not text.startswith("---\n") or not dashes:
        front = ""
        body = text
    lines = [f"license: {licence}\n"]
    for line in front.splitlines(keepends=True):
        if not line.startswith("license:"):
            lines.append(line)
    return f"---\n{''.join(lines)}---\n{body}".encode()


def _filled_card(path: Path, repo: str, digest: FileDigest | None) -> bytes | None:
    """Return the card with a name in its snippets; ``None`` for one that zoo did not write."""
    if digest is None or not os.path.lexists(path / MODEL_CARD):
        return None
    card = read_inside(path, MODEL_CARD, "model card", MAX_YAML_BYTES)
    if blake3(card).hexdigest() != digest.blake3:
        return None
    return card.replace(PLACEHOLDER.encode(), repo.encode())


def _exported_files(path: Path) -> dict[str, FileDigest]:
    """Return the files that the manifest of an export lists."""
    content = read_inside(path, ZOO_MANIFEST, "manifest", MAX_JSON_BYTES)
    manifest = parse_record(content, path / ZOO_MANIFEST, _Manifest, hint=EXPORT_AGAIN)
    if manifest.export is None:
        raise UsageError(
            f"{path} is in zoo's layout, and the Hub's libraries read another", _conversion(path)
        )
    # A manifest without a card may also have paths of the machine.
    if MODEL_CARD not in manifest.files:
        raise UsageError(
            f"{path} is an export of an earlier version, without a model card", EXPORT_AGAIN
        )
    return manifest.files


def _conversion(path: Path) -> str:
    """Return the command that writes a model in the Hub's layout, next to its run or to itself."""
    target = f"{resolve(str(path)).short_name}-hub"
    return f"`{shlex.join(['zoo', 'convert', str(path), '--to', 'hub', '-o', target])}`"


def _converted_files(path: Path) -> dict[str, FileDigest]:
    """Return the files that the manifest of `zoo convert --to hub` lists."""
    if not path.is_dir():
        raise UsageError(
            f"{path} is not a directory", "give one of `zoo convert --to hub` or `zoo export`"
        )
    if (path / RUN_RECORD).is_file():
        hint = "train it to its end"
        if (path / "model").is_dir():
            hint = _conversion(path / "model")
        raise UsageError(f"{path} is a training run, and not a model", hint)
    if not os.path.lexists(path / HUB_RECORD):
        raise UsageError(
            f"{path} has no {HUB_RECORD}: `zoo convert --to hub` did not write it",
            "give a directory of `zoo convert --to hub` or `zoo export`",
        )
    content = read_inside(path, HUB_RECORD, "manifest", MAX_JSON_BYTES)
    return parse_record(content, path / HUB_RECORD, HubRecord, hint=CONVERT_AGAIN).files


@dataclass(frozen=True)
class CardMetadata:
    """What the YAML of a model card states."""

    licence: str | None = None
    languages: tuple[str, ...] = ()  # ISO 639 codes, or ``multilingual``
    tags: tuple[str, ...] = ()  # The first of those that are one short word.

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return what the model card of a directory states; nothing without a card."""
        card = path / MODEL_CARD
        if not os.path.lexists(card):
            return cls()
        content = read_inside(path, MODEL_CARD, "model card", MAX_YAML_BYTES)
        return cls.parse(decode_text(content, card), card)

    @classmethod
    def parse(cls, text: str, name: Path) -> Self:
        """Return what the text of a model card states; errors name the file."""
        front = ""
        if text.startswith("---"):
            front = text.split("\n---", 1)[0]
        metadata: Any = parse_yaml(front, f"{name}: metadata")
        if not isinstance(metadata, dict):
            return cls()
        licence = metadata.get("license")
        languages = metadata.get("language")
        if isinstance(languages, str):
            languages = [languages]
        if not isinstance(languages, list):
            languages = []
        tags = metadata.get("tags")
        if not isinstance(tags, list):
            tags = []
        return cls(
            licence if isinstance(licence, str) else None,
            tuple(code for code in languages if is_language(code)),
            tuple(tag for tag in tags if is_tag(tag))[:MAX_TAGS],
        )


def is_language(code: Any) -> bool:
    """Return whether the Hub takes a value as the language of a model card."""
    return isinstance(code, str) and (LANGUAGE.fullmatch(code) is not None)


def is_tag(tag: Any) -> bool:
    """Return whether a value is the tag of a model card that cards of conversions repeat."""
    return isinstance(tag, str) and TAG.fullmatch(tag) is not None
