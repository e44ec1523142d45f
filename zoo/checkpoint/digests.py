"""Comparison of a model's files with its manifest."""

from collections.abc import Callable
from pathlib import Path

from zoo.checkpoint.records import MANIFEST, Manifest, encode_manifest
from zoo.errors import VerificationError
from zoo.io.digests.files import hash_file
from zoo.io.digests.self_digest import read_record
from zoo.io.output.records import update_record
from zoo.io.paths import safe_join

HINT = "make it again"
MODEL_CARD = "README.md"


def check_manifest(path: Path) -> Manifest:
    """Compare the manifest of a directory with the digest of itself that it has, and return it."""
    return read_record(path / MANIFEST, Manifest, hint=HINT)


def update_manifest(path: Path, change: Callable[[Manifest], Manifest]) -> None:
    """Change the manifest of a directory, which other processes may change at the same time."""
    update_record(path / MANIFEST, lambda _: check_manifest(path), change, encode_manifest)


def check_digests(path: Path) -> str:
    """Compare every file of a model or an export with the manifest, both ways.

    Only the model card of an export may be edited.
    """
    manifest = check_manifest(path)
    for name, recorded in manifest.files.items():
        file = safe_join(path, name, str(path / MANIFEST))
        if not file.is_file():
            raise VerificationError(f"{file} is in the manifest and not in the directory")
        if name == MODEL_CARD:
            continue
        current = hash_file(file)
        if (current.bytes, current.blake3) != (recorded.bytes, recorded.blake3):
            raise VerificationError(
                f"{file} is not what was written: {current.bytes} bytes now, "
                f"{recorded.bytes} then, or other contents"
            )
    unlisted_names = []
    for file in path.rglob("*"):
        name = str(file.relative_to(path))
        if file.is_file() and name != MANIFEST and name not in manifest.files:
            unlisted_names.append(name)
    if unlisted_names:
        raise VerificationError(
            f"{path} holds files that are not in the manifest: {', '.join(sorted(unlisted_names))}"
        )
    note = "" if manifest.digest else f"; {MANIFEST} has no digest: an earlier version wrote it"
    return f"{len(manifest.files)} files are what was written{note}"
