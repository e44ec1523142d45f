"""Conversion of errors of huggingface_hub and of connections to one-line errors."""

import contextlib
import email.utils
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import httpx2
from huggingface_hub import constants, errors, get_token
from huggingface_hub.utils import (  # type: ignore[attr-defined]
    hf_raise_for_status,
    parse_ratelimit_headers,
)

from zoo.errors import SourceError, ZooError
from zoo.hub.unreachable import ConnectionFailed
from zoo.io.retries import TransientError
from zoo.io.terminal import escape_controls

MESSAGE_LENGTH = 200  # characters of a server's message


@dataclass(frozen=True)
class HubRequest:
    """Subject of a request: a file, or the list of files of a repository."""

    repo: str
    revision: str  # branch, tag or commit
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.repo} {self.name}" if self.name else self.repo


@contextlib.contextmanager
def map_errors(request: HubRequest) -> Iterator[None]:
    """Convert exceptions of huggingface_hub to one-line errors."""
    # A server's text enters messages only through ``one_line``, and no error keeps its cause: a
    # traceback would show the server's text, which may repeat the access token.
    try:
        yield
        return
    except (errors.LocalEntryNotFoundError, errors.FileMetadataError) as raised:
        error: Exception = raised  # before OSError, its base class
    except (ZooError, OSError):
        raise
    except Exception as raised:
        error = raised
    # After a failed request, huggingface_hub searches its cache, and raises an error about that
    if isinstance(error.__cause__, httpx2.HTTPError):
        error = error.__cause__
    if isinstance(error, httpx2.TransportError):
        raise _connection_error(error, request) from None
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL | httpx2.StreamError):
        raise SourceError(f"cannot ask {endpoint()} for {request}: {one_line(error)}") from None
    # Any other exception comes from a parser of an unexpected response
    raise SourceError(
        f"{endpoint()} does not respond as a Hub does: {one_line(error) or type(error).__name__}",
        "check $HF_ENDPOINT",
    ) from None


def _connection_error(error: httpx2.TransportError, request: HubRequest) -> SourceError:
    host = one_line(error.request.url.netloc.decode())
    match error:
        case httpx2.ConnectError():
            return ConnectionFailed(
                f"cannot connect to {host} for {request}: {one_line(error) or 'no answer'}",
                "check the network, or give --offline",
            )
        case httpx2.TimeoutException():
            return TransientError(
                f"{host} stopped answering when asked for {request}", "try again later"
            )
        case httpx2.NetworkError() | httpx2.RemoteProtocolError():
            return TransientError(
                f"the connection to {host} was cut while reading {request}",
                "try again: the download is resumed",
            )
    return SourceError(f"cannot ask {host} for {request}: {one_line(error)}", "check $HF_ENDPOINT")


def error_of_status(response: httpx2.Response, request: HubRequest) -> SourceError:
    """Return the error for a response of status 400 or above."""
    message = ""
    try:
        hf_raise_for_status(response)
    except errors.HfHubHTTPError as error:
        if refusal := _refusal(error, request):
            return refusal
        message = one_line(error.server_message or "")
    except Exception:  # an unexpected body
        pass
    status = response.status_code
    headers = response.headers
    answer = f"{endpoint()} answered {status} when asked for {request}"
    if status == 429:
        limit = parse_ratelimit_headers(headers)
        wait = _retry_after(headers)
        if wait is None and limit is not None and limit.remaining == 0:
            wait = float(limit.reset_in_seconds)
        when = f"in {wait:.0f} s" if wait else "later"
        return TransientError(f"{answer}: too many requests", f"try again {when}", wait=wait)
    if status == 408 or status >= 500:
        return TransientError(answer, "try again later", wait=_retry_after(headers))
    if status in (401, 403):
        return SourceError(f"{answer}: {message}", "check $HF_TOKEN")
    return SourceError(answer, message)


def _refusal(error: errors.HfHubHTTPError, request: HubRequest) -> SourceError | None:
    match error:
        case errors.GatedRepoError():
            return SourceError(
                f"{request.repo} is gated",
                f"accept its terms at {endpoint()}/{request.repo} and set $HF_TOKEN",
            )
        case errors.RepositoryNotFoundError():
            return SourceError(
                f"{endpoint()} has no repository {request.repo}, or it is private",
                "check the name; for a private one set $HF_TOKEN",
            )
        case errors.RevisionNotFoundError():
            return SourceError(
                f"{request.repo} has no revision {request.revision!r}",
                "give a branch, a tag or a commit of it",
            )
    return None


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of ``Retry-After``, which is a number or a date."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"[0-9]{1,9}", value):
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except (ValueError, OverflowError):
        return None


def endpoint() -> str:
    """Return the address of the Hub, ``$HF_ENDPOINT``."""
    return constants.ENDPOINT


def one_line(text: object) -> str:
    """Return a server's text on one line, without control characters or the access token."""
    line = " ".join(without_token(str(text)).split())
    return escape_controls(line[:MESSAGE_LENGTH])


def without_token(text: str) -> str:
    """Return a text with the access token removed, in upper and lower case."""
    token = get_token()
    return re.sub(re.escape(token), "***", text, flags=re.IGNORECASE) if token else text
