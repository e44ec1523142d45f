"""Commit of a revision and list of its files, from the Hub or from the cache."""

import contextlib
import os
import re
from pathlib import Path

from huggingface_hub import HfApi, constants, errors, snapshot_download
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from zoo.errors import SourceError, UsageError, VerificationError
from zoo.hub.client import HubCall
from zoo.hub.errors import HubRequest, without_token
from zoo.hub.metadata import HubFile
from zoo.io.limits import MAX_HUB_LISTED_FILES, MAX_HUB_LISTING_BYTES
from zoo.io.paths import safe_join
from zoo.io.retries import with_retries
from zoo.io.sizes import check_size
from zoo.io.terminal import escape_controls

COMMIT = re.compile(r"[0-9a-f]{40}")
REVISION = re.compile(r"\w[\w.+@/-]*")
ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
TRUE = {"1", "on", "yes", "true"}


def is_offline() -> bool:
    """Return ``True`` if ``$HF_HUB_OFFLINE`` is set, or was when huggingface_hub was imported."""
    return constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").lower() in TRUE


def check_names(repo: str, revision: str) -> None:
    """Check the names of a repository and a revision."""
    try:
        validate_repo_id(repo)
    except errors.HFValidationError as error:
        raise UsageError(
            f"{repo!r} cannot be a Hub repository", "give it as organisation/name"
        ) from error
    if not REVISION.fullmatch(revision) or ".." in revision:
        raise UsageError(f"{revision!r} is not a revision", "give a branch, a tag or a commit")


def list_files(repo: str, revision: str) -> tuple[str, dict[str, HubFile]]:
    """Request the commit of a revision and the list of its files."""
    return with_retries(lambda: _list_files(repo, revision))


def _list_files(repo: str, revision: str) -> tuple[str, dict[str, HubFile]]:
    with HubCall(HubRequest(repo, revision), MAX_HUB_LISTING_BYTES).active():
        info = HfApi(library_name="zoo").model_info(
            repo, revision=revision, files_metadata=True, timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT
        )
        if not COMMIT.fullmatch(info.sha or ""):
            raise ValueError(f"{info.sha!r} is not a commit")
        source = f"the file list of {repo}"
        siblings = info.siblings or []
        check_size(source, "number of files", len(siblings), MAX_HUB_LISTED_FILES)
        files = {}
        for file in siblings:
            _check_file_name(file.rfilename, source)
            etag = file.blob_id or ""
            if file.lfs:
                etag = file.lfs.sha256
            if not ETAG.fullmatch(etag) or type(file.size) is not int or file.size < 0:
                raise ValueError(f"it states no digest or length of {file.rfilename!r}")
            files[file.rfilename] = HubFile(bytes=file.size, etag=etag)
        return str(info.sha), files


def _check_file_name(name: str, source: str) -> None:
    if without_token(name) != name:  # the token would be written to disk
        raise SourceError(f"{source} repeats the access token", "check $HF_ENDPOINT")
    if escape_controls(name) != name:
        raise VerificationError(
            f"{source} names {name!r}, which has control characters", "do not use this checkpoint"
        )
    safe_join(Path(), name, source)


def record_revision(repo: str, revision: str, commit: str) -> None:
    """Record the commit of a branch in the cache of huggingface_hub, for offline use."""
    # This takes one more request if the branch has moved
    if commit == revision:
        return
    with contextlib.suppress(errors.RevisionResolutionError):
        known = HfApi().resolve_revision(repo, revision=revision, local_files_only=True)
        if known.resolved == commit:
            return

    def resolve() -> None:
        with HubCall(HubRequest(repo, revision), MAX_HUB_LISTING_BYTES).active():
            HfApi(library_name="zoo").resolve_revision(repo, revision=revision)

    with_retries(resolve)


def cached_snapshot(repo: str, revision: str) -> Path | None:
    """Return a commit's directory in the cache, or ``None``; some of its files may be missing."""
    try:
        folder = Path(
            snapshot_download(repo, revision=revision, local_files_only=True, allow_patterns=[])
        )
    except errors.LocalEntryNotFoundError:
        return None
    return folder if COMMIT.fullmatch(folder.name) else None


def cached_files(snapshot: Path) -> dict[str, HubFile]:
    """Return the cached files of a commit, as described by the links in its directory."""
    files = {}
    for folder, _, names in os.walk(snapshot):
        for file_name in names:
            path = Path(folder, file_name)
            if not path.is_file():
                continue
            etag = ""
            if path.is_symlink():  # It leads to a file that is called by its digest.
                target_name = os.path.basename(os.readlink(path))
                if ETAG.fullmatch(target_name):
                    etag = target_name
            name = path.relative_to(snapshot).as_posix()
            files[name] = HubFile(bytes=path.stat().st_size, etag=etag)
    return files
