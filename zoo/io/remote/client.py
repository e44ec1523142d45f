"""Requests to the hosts of URLs by fsspec, with retries and errors of one line."""

import contextlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from zoo.errors import SourceError, UsageError, VerificationError, ZooError
from zoo.io.progress import Advance
from zoo.io.retries import TransientError, with_retries
from zoo.io.urls import RemoteUrl, require_safe_key

Result = TypeVar("Result")
BLOCK_BYTES = 8 << 20  # bytes of a request
PART_BYTES = 16 << 20  # bytes of a part of an upload; files of twice the size have several
MAX_PARTS = 10_000  # Most parts that an upload to S3 may have.
SECONDS = 60  # without an answer
# Failures in a row that end a request; a job makes many more requests than a download of the Hub.
MAX_FAILURES = 6
PACKAGES: dict[str, tuple[str, ...]] = {
    "s3": ("s3fs",),
    "gs": ("gcsfs",),
    "hf": (),
    "https": ("aiohttp",),
    "http": ("aiohttp",),
}
# What hosts call the version of an object, the most exact first.
_VERSIONS = ("ETag", "etag", "generation", "md5Hash", "blob_id", "Content-MD5", "Digest")
_TIMES = ("LastModified", "Last-Modified", "last_modified", "updated", "mtime")
_NO_CREDENTIALS = re.compile("Credential|TokenRetrieval|SSOToken|DefaultCredentialsError")
_DENIED = (401, 403)
_ABSENT = (404, 410)
_TIMEOUT = 408
_TOO_MANY = 429


@dataclass(frozen=True)
class RemoteFile:
    """A file of a host at the time of a request.

    Attributes:
        url: its URL.
        bytes: its length; ``None`` if the host does not say.
        version: what the host calls its contents, such as an ETag, or empty.
        modified: seconds since 1970, or ``None``.
    """

    url: RemoteUrl
    bytes: int | None
    version: str
    modified: float | None


def find(url: RemoteUrl) -> RemoteFile | None:
    """Return the file of a URL; ``None`` if there is none, though there may be a folder."""
    filesystem = open_filesystem(url)

    def request() -> Mapping[str, Any] | None:
        try:
            info: Mapping[str, Any] = filesystem.info(url.address)
        except FileNotFoundError as error:
            if _status(error) in (*_ABSENT, None):
                return None
            raise
        return info

    info = _call(url, request)
    if info is None or info["type"] != "file":
        return None
    return _remote_file(url, info)


def find_all(folder: RemoteUrl) -> list[RemoteFile]:
    """Return the files below a folder, sorted by name; none if there is no such folder."""
    filesystem = open_filesystem(folder)
    if folder.is_web:
        raise UsageError(f"{folder} is on a web server, which lists no folder", "name each file")
    prefix = f"{folder.host}/{folder.key}".rstrip("/") + "/"

    def request() -> Mapping[str, Mapping[str, Any]]:
        try:
            infos: Mapping[str, Mapping[str, Any]] = filesystem.find(str(folder), detail=True)
        except FileNotFoundError:
            return {}
        return infos

    files = []
    for name, info in sorted(_call(folder, request).items()):
        # Stores have empty objects for folders.
        if info["type"] != "file" or not name.startswith(prefix) or name.endswith("/"):
            continue
        key = name.partition("/")[2]
        require_safe_key(key, f"the listing of {folder}")
        files.append(_remote_file(folder.with_key(key), info))
    return files


def download(remote: RemoteFile, target: BinaryIO, advance: Advance) -> None:
    """Write the contents of a file; what a broken connection has left is continued.

    Raises:
        VerificationError: the file changed meanwhile.
    """
    last_position = 0

    def request() -> None:
        try:
            _copy(remote.url, target, advance, BLOCK_BYTES)
        except ValueError:  # The server has no ranges: it sends all in one answer.
            _copy(remote.url, target, advance, 0)
        received = target.tell()
        if remote.bytes is not None and received < remote.bytes:
            raise TransientError(f"the response for {remote.url} stopped too early", "try again")

    def progressed() -> bool:
        nonlocal last_position
        has_progressed = target.tell() > last_position
        last_position = target.tell()
        return has_progressed

    _call(remote.url, request, progressed)
    if remote.bytes not in (None, target.tell()) or find(remote.url) != remote:
        raise changed(remote.url)


def _copy(url: RemoteUrl, target: BinaryIO, advance: Advance, block_bytes: int) -> None:
    """Append to a file what it does not have yet, in requests of so many bytes; 0 for all."""
    filesystem = open_filesystem(url)
    if not block_bytes:
        target.seek(0)
        target.truncate()
    options = {"block_size": block_bytes, "cache_type": "none"}
    if not block_bytes:
        del options["cache_type"]
    with filesystem.open(url.address, "rb", **options) as source:
        if block_bytes:
            source.seek(target.tell())
        while data := source.read(BLOCK_BYTES):
            target.write(data)
            advance(len(data))


def changed(url: RemoteUrl) -> VerificationError:
    """Return the error for a file that is not the one of an earlier request."""
    return VerificationError(f"{url} changed while it was read", "run the command again")


def upload(source: Path, url: RemoteUrl) -> RemoteFile:
    """Write a file of a store, which appears when it is complete.

    Raises:
        VerificationError: the store has another length than the file.
    """
    # A part of a large file is repeated by itself: from the beginning, a file of many parts would
    # never come to its end.
    filesystem = open_filesystem(url, repeats_parts=True)
    require_writable(url)
    status = os.stat(source)
    options = {"chunksize": PART_BYTES} if url.scheme == "s3" else {}
    if status.st_size > PART_BYTES * MAX_PARTS:
        options = {}  # The library chooses larger parts.
    _call(
        url,
        lambda: filesystem.put_file(str(source), str(url), **options),
        max_failures=MAX_FAILURES // 2,
    )
    remote = find(url)
    status_after = os.stat(source)
    size = status_after.st_size
    has_grown = (size, status_after.st_mtime_ns) != (status.st_size, status.st_mtime_ns)
    if remote is None or (remote.bytes != size and not has_grown):  # A log grows meanwhile.
        raise VerificationError(
            f"{url} does not have the {size:,} bytes that were uploaded", "run the command again"
        )
    return remote


def remove(urls: Iterable[RemoteUrl]) -> None:
    """Remove files of a store; those that do not exist are left out."""
    for url in urls:
        filesystem = open_filesystem(url)
        with contextlib.suppress(FileNotFoundError):
            _call(url, lambda fs=filesystem, name=str(url): fs.rm_file(name))  # type: ignore[misc]


def require_writable(url: RemoteUrl) -> None:
    """Check that a URL is one of a store; raises ``UsageError``."""
    if url.is_web:
        raise UsageError(
            f"{url} is on a web server, which can only be read", "give an s3:// or gs:// URL"
        )
    if not url.key.strip("/"):
        raise UsageError(f"{url} is a whole bucket", f"give a folder of it, such as {url}/name")


def require_bucket(url: RemoteUrl) -> None:
    """Check that the bucket of an ``s3://`` URL exists, before anything is computed for it.

    Raises:
        SourceError: it does not exist, or may not be read.
    """
    if url.scheme != "s3":
        return  # Others have a right of its own for reading what a bucket is.
    bucket = url.with_key("")
    filesystem = open_filesystem(url)
    _call(bucket, lambda: filesystem.info(str(bucket)))


def open_filesystem(url: RemoteUrl, *, repeats_parts: bool = False) -> Any:
    """Return the file system of fsspec for a URL, which reads credentials of the environment.

    Args:
        url: URL of a file or folder.
        repeats_parts: whether the library repeats single requests of an upload.

    Raises:
        SourceError: a package is not installed.
    """
    try:
        import fsspec

        for package in PACKAGES[url.scheme]:
            __import__(package)
    except ImportError as error:
        packages = ("fsspec", *PACKAGES[url.scheme])
        raise SourceError(
            f"{url} takes {' and '.join(packages)}, which are not installed",
            " ".join(("pip install", *packages)),
        ) from error
    options: dict[str, Any] = {"use_listings_cache": False, "skip_instance_cache": False}
    if url.is_web:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=SECONDS, sock_read=SECONDS)
        options["client_kwargs"] = {"timeout": timeout, "trust_env": True}
        options["block_size"] = BLOCK_BYTES
    elif url.scheme == "s3":
        options["default_block_size"] = BLOCK_BYTES
        # Other requests are repeated here, so that all schemes have the same pauses.
        retries: dict[str, Any] = {"max_attempts": 0}
        if repeats_parts:
            retries = {"total_max_attempts": MAX_FAILURES, "mode": "standard"}
        options["config_kwargs"] = {"retries": retries, "read_timeout": SECONDS}
    with _translated(url):
        filesystem = fsspec.filesystem(url.scheme, **options)
    if url.scheme == "s3":
        filesystem.retries = 1
    return filesystem


def _call(
    url: RemoteUrl,
    request: Callable[[], Result],
    progressed: Callable[[], bool] = lambda: False,
    *,
    max_failures: int = MAX_FAILURES,
) -> Result:
    """Return the result of a request, repeated after failures that can pass."""

    def attempt() -> Result:
        with _translated(url):
            return request()

    return with_retries(attempt, progressed, max_failures=max_failures)


@contextlib.contextmanager
def _translated(url: RemoteUrl) -> Iterator[None]:
    """Convert errors of the libraries to one line, which has no text of theirs with secrets."""
    try:
        yield
    except ZooError:
        raise
    except (KeyboardInterrupt, SystemExit, MemoryError):
        raise
    except Exception as error:
        raise _as_zoo_error(url, error) from error


def _as_zoo_error(url: RemoteUrl, error: Exception) -> ZooError:
    names = [type(cause).__name__ for cause in _causes(error)]
    status = _status(error)
    if any(_NO_CREDENTIALS.search(name) for name in names):
        return SourceError(
            f"{url}: there are no valid credentials", "set those of the provider's tools"
        )
    if "FileExpired" in names:
        return changed(url)
    if isinstance(error, PermissionError) or status in _DENIED:
        return SourceError(
            f"{url}: access is denied", "check the credentials, and the rights that they give"
        )
    if status in _ABSENT or (isinstance(error, FileNotFoundError) and status is None):
        return SourceError(f"{url} does not exist", "check the name")
    if status is not None and 400 <= status < 500 and status not in (_TIMEOUT, _TOO_MANY):
        return SourceError(f"{url}: the server answers {status}", "check the URL")
    if isinstance(error, OSError | TimeoutError) or status is not None:
        return TransientError(f"{url}: {_reason(error, status)}", "try again")
    module = type(error).__module__.partition(".")[0]
    if module in ("aiohttp", "botocore", "aiobotocore", "asyncio", "httpx2", "gcsfs"):
        return TransientError(f"{url}: {_reason(error, status)}", "try again")
    return SourceError(f"{url}: {_reason(error, status)}", "check the URL")


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause.__cause__


def _status(error: BaseException) -> int | None:
    """Return the status of the answer that an error is about; ``None`` without an answer.

    The libraries raise ``FileNotFoundError`` also if a connection broke: it has the status 0.
    """
    for cause in _causes(error):
        status = getattr(cause, "status", None)
        if isinstance(status, int):
            return status
        response = getattr(cause, "response", None)
        if isinstance(response, Mapping):
            metadata: Mapping[str, Any] = response.get("ResponseMetadata", {})
            code = metadata.get("HTTPStatusCode")
            if isinstance(code, int):
                return code
    is_local = not isinstance(error, FileNotFoundError) or error.__cause__ is None
    return None if is_local else 0


def _reason(error: Exception, status: int | None) -> str:
    """Return what went wrong. Messages of the libraries may have addresses with signatures."""
    if status:
        return f"the server answers {status}"
    root = list(_causes(error))[-1]
    if isinstance(root, OSError) and root.strerror and "://" not in root.strerror:
        return root.strerror
    return f"the request failed ({type(root).__name__})"


def _remote_file(url: RemoteUrl, info: Mapping[str, Any]) -> RemoteFile:
    version = next((str(info[name]) for name in _VERSIONS if info.get(name)), "")
    time = next((info[name] for name in _TIMES if info.get(name)), None)
    modified = _seconds(time)
    if not version and modified is not None:
        version = str(modified)
    size = info.get("size")
    return RemoteFile(url, size, version.strip('"'), modified)


def _seconds(time: Any) -> float | None:
    """Return a time of a listing or a header in seconds since 1970."""
    if isinstance(time, datetime):
        return time.timestamp()
    if isinstance(time, int | float):
        return float(time)
    if not isinstance(time, str):
        return None
    for parse in (datetime.fromisoformat, parsedate_to_datetime):
        with contextlib.suppress(ValueError, TypeError):
            return parse(time).timestamp()
    return None
