"""Files of a model reference: a local directory, or a download."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from zoo.checkpoint.digests import MODEL_CARD
from zoo.checkpoint.records import MANIFEST
from zoo.errors import SourceError, UsageError
from zoo.hub.reference import Reference
from zoo.io.files import is_named_file
from zoo.io.limits import MAX_YAML_BYTES

if TYPE_CHECKING:
    from zoo.hub.registry import RegistryEntry
    from zoo.io.digests.files import FileDigest
    from zoo.tokenizers import SourceFiles

LOG = logging.getLogger("zoo")
Select = Callable[[Sequence[str]], Sequence[str]]


@dataclass(frozen=True)
class CheckpointDir:
    """A directory with a checkpoint in any layout, local or downloaded."""

    directory: Path
    reference: str
    repo: str | None = None  # Hub repository, or ``None``
    revision: str | None = None  # commit hash, or ``None``
    # file name -> digest, if already computed. Then no other file is read, and these files must not
    # have changed
    digests: "dict[str, FileDigest]" = field(default_factory=dict)
    row: "RegistryEntry | None" = None  # registry entry of the repository, or ``None``
    stem: str | None = None  # common prefix of the files, see ``Reference``
    # ``model_type`` given by the user, for a configuration that has none
    model_type: str | None = None
    is_export: bool = False  # whether the files are those of an export in a repository
    file: str | None = None  # the only file that is read, which describes its model
    # name -> contents of the side files that the weights describe, see
    # ``zoo.conversion.self_contained``
    derived: Mapping[str, bytes] = field(default_factory=dict)
    listing: tuple[str, ...] = ()  # all files of a repository, downloaded or not

    def names(self) -> list[str]:
        """Return the names in ``model_directory`` that may be read and begin with ``stem``."""
        start = f"{self.stem}." if self.stem else ""
        if self.restricted:
            folder = f"{self.folder}/" if self.folder else ""
            names = [name.removeprefix(folder) for name in self.digests if name.startswith(folder)]
        elif self.file is not None:
            names = [self.file]
        else:
            names = [path.name for path in self.model_directory.iterdir() if is_named_file(path)]
        return sorted(name for name in names if name.startswith(start))

    @cached_property
    def folder(self) -> str:
        """Folder of configuration, weights and tokenizer; empty for the directory itself."""
        from zoo.sentence_models import backbone_folder
        from zoo.tokenizers import SourceFiles

        return backbone_folder(SourceFiles(self.directory, self._only()))

    @property
    def model_directory(self) -> Path:
        """Directory of configuration, weights and tokenizer."""
        return self.directory / self.folder

    def graphs(self) -> list[str]:
        """Return files of other runtimes in subdirectories, which have no weights to read."""
        from zoo.hub.select_files import RUNTIME_FILES

        if self.restricted or self.file:
            return []
        graphs = list[Path]()
        for pattern in RUNTIME_FILES:
            graphs += self.directory.glob(pattern)
        return sorted(path.relative_to(self.directory).as_posix() for path in graphs)

    def all_names(self) -> list[str]:
        """Return all files of the repository, or of the directory, two levels deep.

        The result is empty for a file or a stem, which the user names in a directory with several
        checkpoints.
        """
        if self.file is not None or self.stem is not None:
            return []
        if self.repo is not None:
            return list(self.listing)
        names = []
        for path in (*self.directory.glob("*"), *self.directory.glob("*/*")):
            name = path.relative_to(self.directory).as_posix()
            if is_named_file(path) and not name.startswith("."):
                names.append(name)
        return sorted(names)

    @cached_property
    def files(self) -> "SourceFiles":
        """Side files: tokenizer, pooling."""
        from zoo.tokenizers import SourceFiles

        return SourceFiles(self.directory, self._only(), self.folder, self.derived)

    def _only(self) -> list[str] | None:
        if self.file is not None:
            return [self.file]
        return sorted(self.digests) if self.restricted else None

    @property
    def is_converted(self) -> bool:
        """``True`` if the directory is in the zoo's layout."""
        # The cache of downloads may hold a manifest that is not among the files to read.
        may_read = not self.restricted or MANIFEST in self.digests
        return self.file is None and may_read and (self.directory / MANIFEST).is_file()

    @property
    def restricted(self) -> bool:
        """``True`` if only files with a digest may be read."""
        return self.repo is not None or bool(self.digests)


def locate_or_download(
    reference: Reference,
    *,
    offline: bool = False,
    lock: Path | None = None,
    allow_pickle: bool = False,
    tokenizer_alone: bool = False,
    exports: bool = False,
    model_type: str | None = None,
) -> CheckpointDir:
    """Return the directory of a reference; download only files that are needed.

    With ``exports``, these are the files of an export, if a repository has one and no weights.
    """
    if reference.path is not None:
        if reference.revision is not None:
            raise UsageError(f"--revision does not apply to the directory {reference.path}")
        directory = reference.path
        file = None
        if reference.path.is_file():
            directory = reference.path.parent
            file = reference.path.name
        return CheckpointDir(
            directory, reference.text, stem=reference.stem, model_type=model_type, file=file
        )
    from zoo.hub import fetch
    from zoo.hub.lockfile import Lock
    from zoo.hub.unreachable import Unreachable

    if reference.repo is None:
        origin = f" from {reference.row.page}" if reference.row else ""
        raise SourceError(
            f"{reference.text} is not on the Hub", f"get its files{origin} and give their directory"
        )
    select = _selection(reference, allow_pickle=allow_pickle, tokenizer_alone=tokenizer_alone)
    selection = _ExportSelection(select) if exports else None
    revision = reference.revision
    lock_file = Lock.open(lock)
    try:
        fetched = fetch(
            reference.repo,
            revision=revision,
            select=selection.select if selection else select,
            select_more=selection.select_more if selection else None,
            optional=_stated_facts(reference),
            offline=offline,
            lock=lock_file,
        )
    except Unreachable as error:
        remedies = "set $HF_ENDPOINT to a mirror, or give the directory of a checkpoint"
        if reference.row is not None:
            remedies += f"; `zoo pretrain {reference.row.family}` trains a model of this family"
        raise type(error)(error.what, f"{error.hint}, {remedies}") from error
    digests = dict(fetched.files)
    is_export = selection is not None and selection.is_export
    if not is_export:
        digests.pop(MANIFEST, None)
    return CheckpointDir(
        fetched.directory,
        reference.text,
        repo=fetched.repo,
        revision=fetched.revision,
        digests=digests,
        row=reference.row,
        model_type=model_type,
        is_export=is_export,
        listing=fetched.listing,
    )


class _ExportSelection:
    """Selection of the files of an export, which its manifest lists, or else of weights."""

    def __init__(self, weights: Select) -> None:
        self._weights = weights
        self.is_export = False

    def select(self, names: Sequence[str]) -> Sequence[str]:
        return [MANIFEST] if MANIFEST in names else self._weights(names)

    def select_more(self, directory: Path, names: Sequence[str]) -> Sequence[str]:
        from zoo.hub.select_files import export_files

        if MANIFEST not in names:
            return ()
        files = export_files(directory / MANIFEST, names)
        self.is_export = bool(files)
        return files or self._weights(names)


def _stated_facts(reference: Reference) -> dict[str, int]:
    """Return the model card, which states licence, languages and tags, and its most bytes."""
    row = reference.row
    if row is not None and row.licence and row.languages:
        return {}  # The registry states both.
    return {MODEL_CARD: MAX_YAML_BYTES}


def _selection(reference: Reference, *, allow_pickle: bool, tokenizer_alone: bool) -> Select:
    """Return the function that selects the files to download from the names in a repository."""
    from zoo.hub.select_files import files_to_download, matching
    from zoo.tokenizers import TOKENIZER_FILES

    repo = str(reference.repo)
    registry_files = reference.row.files if reference.row else ()

    def select(names: Sequence[str]) -> Sequence[str]:
        missing_files = [name for name in registry_files if name not in names]
        if missing_files:
            LOG.info(
                "%s no longer has %s, which the registry expects", repo, ", ".join(missing_files)
            )
        if tokenizer_alone:
            return matching(names, TOKENIZER_FILES)
        return files_to_download(names, repo, allow_pickle=allow_pickle)

    return select
