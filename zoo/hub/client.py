"""All that is asked of the Hub, through its own client.

The client builds its names of ``huggingface_hub.utils`` when they are used, so mypy sees none.
"""

import contextlib
import logging
import os
from collections.abc import Iterator
from typing import TYPE_CHECKING

from zoo.errors import SourceError, UsageError
from zoo.hub.cache import COMMIT, ETAG
from zoo.hub.failures import Asked, endpoint, one_line, translated
from zoo.hub.record import Published

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub import ModelInfo

YES = {"1", "on", "yes", "true"}


def is_offline() -> bool:
    """Whether ``$HF_HUB_OFFLINE`` forbids connections, now or when the client was imported."""
    from huggingface_hub import constants

    return constants.HF_HUB_OFFLINE or os.environ.get("HF_HUB_OFFLINE", "").lower() in YES


def check_name(repo: str) -> None:
    """Refuse what cannot be the name of a repository.

    Raises:
        UsageError: it cannot.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

    try:
        validate_repo_id(repo)
    except HFValidationError as error:
        raise UsageError(
            f"{repo!r} cannot be a Hub repository", "give it as organisation/name"
        ) from error


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the client's own warnings off standard error: what matters of them is an error here."""
    from huggingface_hub.utils import logging as client_logging

    def is_error(record: logging.LogRecord) -> bool:
        return record.levelno >= logging.ERROR

    handlers = client_logging.get_logger().handlers
    for handler in handlers:
        handler.addFilter(is_error)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_error)


def list_files(repo: str, revision: str) -> tuple[str, dict[str, Published]]:
    """Ask for a revision's commit and files: one request.

    Returns:
        The commit, and every file of it.

    Raises:
        SourceError: the repository or revision is missing or closed, or the Hub fails.
    """
    from huggingface_hub import HfApi, constants
    from huggingface_hub.errors import HfHubHTTPError

    with translated(Asked(repo, revision)):
        try:
            info = HfApi(library_name="zoo").model_info(
                repo,
                revision=revision,
                files_metadata=True,
                timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
            )
            return _commit(info), _files(info)
        except HfHubHTTPError:  # some of them are ValueErrors too
            raise
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise SourceError(
                f"{endpoint()} does not answer as a Hub does: {one_line(error)}",
                "check $HF_ENDPOINT",
            ) from error


def _commit(info: "ModelInfo") -> str:
    if not COMMIT.fullmatch(info.sha or ""):
        raise ValueError(f"{info.sha!r} is no commit")
    return str(info.sha)


def _files(info: "ModelInfo") -> dict[str, Published]:
    files = {}
    for file in info.siblings or ():
        etag = file.lfs.sha256 if file.lfs else file.blob_id or ""
        if not ETAG.fullmatch(etag) or file.size is None:
            raise ValueError(f"it states no digest or length of {file.rfilename!r}")
        files[file.rfilename] = Published(bytes=file.size, etag=etag)
    return files


@contextlib.contextmanager
def reading(asked: Asked, offset: int) -> "Iterator[httpx2.Response]":
    """Open a file of the Hub for reading.

    Args:
        asked: the file, at a commit.
        offset: how many bytes of it are here already.

    Raises:
        SourceError: the Hub does not give it out, or fails; also while it is read.
    """
    from huggingface_hub import constants, hf_hub_url
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        get_session,
        hf_raise_for_status,
    )

    # A compressed answer would have another length, and could not be continued.
    headers = {**build_hf_headers(library_name="zoo"), "Accept-Encoding": "identity"}
    if offset:
        headers["Range"] = f"bytes={offset}-"
    url = hf_hub_url(asked.repo, asked.name or "", revision=asked.revision)
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with (
        translated(asked),
        get_session().stream("GET", url, headers=headers, timeout=timeout) as response,
    ):
        if response.status_code != 416:  # nothing from there on: what is here is no beginning of it
            hf_raise_for_status(response)
        yield response
