"""Checks of an output directory before it is replaced."""

import os
from collections.abc import Iterable
from pathlib import Path

import msgspec

from zoo.errors import SourceError, UsageError, VerificationError, first_names
from zoo.io.digests.files import FileDigest
from zoo.io.digests.self_digest import check_digest
from zoo.io.digests.verified import file_blake3
from zoo.io.json import JsonStruct
from zoo.io.limits import MAX_CORPUS_MANIFEST_BYTES
from zoo.io.local import require_local
from zoo.io.output.inside import files_inside, read_inside
from zoo.io.output.staging import remove_stale_staging

HUB_RECORD = ".zoo.json"  # lists the files of a directory in the Hub's layout
CLEANING_RECORD = "cleaning.json"  # the manifest of cleaned texts
MANIFESTS = ("zoo.json", "corpus.json", HUB_RECORD, CLEANING_RECORD)
# Files of directories that hold runs.
RUNS = ("run.json", "seeds.json", "stages.json", "comparison.json")
_REMEDY = "--force replaces only what zoo wrote: move it away, or give another -o"


class HubRecord(JsonStruct, kw_only=True):
    """Contents of ``.zoo.json``, the manifest of a directory in the Hub's layout."""

    zoo: int  # version of the format
    created_by: dict[str, str]  # name of the distribution -> version
    files: dict[str, FileDigest]  # file name -> digest, of every other file of the directory
    # BLAKE3 of this file, see ``zoo.io.digests.self_digest``; empty in directories of versions that
    # wrote none
    digest: str = ""


class _Digest(msgspec.Struct):
    blake3: str
    bytes: int | None = None


class _Files(msgspec.Struct):
    files: dict[str, _Digest] = {}


class _AnyManifest(msgspec.Struct):
    """Keys of any manifest that list files; other keys are ignored."""

    zoo: int
    created_by: str | dict[str, str]
    digest: str = ""
    files: dict[str, _Digest] = {}
    splits: dict[str, _Files] = {}  # of a corpus, as the next one
    tokenizer_digest: str = ""

    def digests(self) -> dict[str, _Digest]:
        result = dict(self.files)
        for split in self.splits.values():
            result |= split.files
        if self.tokenizer_digest:
            result["tokenizer.json"] = _Digest(self.tokenizer_digest)
        return result


def check_target(
    target: Path,
    *,
    force: bool,  # accept an empty directory, and one with unchanged files of zoo only
    sources: Iterable[Path] = (),  # inputs of the command, which must not be replaced
    managed: bool = False,  # accept any contents: only zoo writes there, as in its cache
    in_run: bool = False,  # the training run that holds the directory writes it
) -> None:
    """Raise an error if an output directory must not be replaced."""
    # ``--force`` replaces an empty directory, or one with only files that `zoo` wrote: a converted
    # model, an export, a corpus. Its manifest lists files and digests, so that added and edited
    # files are detected. Everything else is refused, including training runs and their models,
    # which are expensive to repeat.
    #
    # Stale staging directories next to it are removed first, see ``remove_stale_staging``.
    require_local(target, "output")
    target = Path(os.path.abspath(target))
    remove_stale_staging(target.parent)
    if not os.path.lexists(target):
        check_not_inside(target)
        return
    if target.is_symlink():
        raise UsageError(f"{target} is a symbolic link", "give the directory itself as -o")
    if not target.is_dir():
        raise UsageError(f"{target} exists and is not a directory", "give another -o")
    in_use = {str(path): path for path in sources} | {"the working directory": Path.cwd()}
    for name, path in in_use.items():
        if path.resolve().is_relative_to(target.resolve()):
            raise UsageError(f"{target} is or holds {name}, which is in use", "give another -o")
    if not force:
        raise UsageError(f"{target} exists", "give --force to replace it, or another -o")
    if not in_run and any((target.parent / name).is_file() for name in RUNS):
        raise UsageError(
            f"{target} belongs to the training run {target.parent}",
            "give another -o; `zoo pretrain -o DIR` begins another run",
        )
    if not managed:
        _check_written_by_zoo(target)


def check_file(target: Path, *, force: bool, sources: Iterable[Path] = ()) -> None:
    """Raise an error if a file that the user names for output must not be written."""
    # With ``force`` a regular file is replaced, unless the command reads it.
    require_local(target, "output")
    target = Path(os.path.abspath(target))
    remove_stale_staging(target.parent)
    check_not_inside(target)
    if not os.path.lexists(target):
        return
    if target.is_symlink() or not target.is_file():
        raise UsageError(f"{target} exists and is not a regular file", "give another name")
    if any(path.exists() and path.samefile(target) for path in sources):
        raise UsageError(f"{target} is read by this command", "give another name")
    if not force:
        raise UsageError(f"{target} exists", "give --force to replace it, or another name")


def check_not_inside(target: Path) -> None:
    """Check that a new file or directory is not within a model, an export or a corpus."""
    # Their manifests list all files, so that a further one would make them invalid
    for parent in Path(os.path.abspath(target)).parents:
        if written_files(parent) is not None:
            raise UsageError(
                f"{target} is inside {parent}, which holds a model or a corpus",
                "give a directory next to it",
            )


def _check_written_by_zoo(target: Path) -> None:
    present = sorted(files_inside(target))
    if not present:
        return
    if "run.json" in present:
        raise UsageError(f"{target} is a training run", _REMEDY)
    written = written_files(target)
    if written is None:
        raise UsageError(f"{target} is not from zoo: it holds {first_names(present, 3)}", _REMEDY)
    foreign = [name for name in present if name not in written]
    if foreign:
        raise UsageError(
            f"{target} holds {first_names(foreign, 3)}, which zoo did not write", _REMEDY
        )
    edited = [name for name in present if not _is_unchanged(target, name, written[name])]
    if edited:
        raise UsageError(
            f"{target} holds {first_names(edited, 3)}, changed after zoo wrote it", _REMEDY
        )


def written_files(target: Path) -> dict[str, _Digest | None] | None:
    """Return file name -> digest of the files that a directory's manifest lists."""
    # The manifest is listed without a digest. The result is ``None`` without a manifest, or if
    # another program wrote it.
    for name in MANIFESTS:
        try:
            content = read_inside(target, name, "manifest", MAX_CORPUS_MANIFEST_BYTES)
            manifest = msgspec.json.decode(content, type=_AnyManifest)
            if manifest.digest:
                check_digest(target / name, content, manifest.digest, hint=_REMEDY)
        except (OSError, ValueError, RecursionError, SourceError, VerificationError):
            continue
        return {name: None, **manifest.digests()}
    return None


def _is_unchanged(target: Path, name: str, digest: _Digest | None) -> bool:
    """Return whether a file is still the one that the manifest lists."""
    path = target / name
    if digest is None:  # the manifest itself
        return True
    try:
        if path.is_symlink() or digest.bytes not in (None, path.stat().st_size):
            return False
        return file_blake3(path) == digest.blake3
    except (OSError, SourceError):
        return False
