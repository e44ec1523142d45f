"""What the Hub's refusals and failing connections mean, each as one line.

``Passing`` where another try may help, else ``SourceError``.
"""

import contextlib
import email.utils
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zoo.errors import SourceError
from zoo.hub.patience import Passing, Unreachable

if TYPE_CHECKING:
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError


@dataclass(frozen=True)
class Asked:
    """What a request is for.

    Attributes:
        repo: the repository.
        revision: the branch, tag or commit.
        name: the file; ``None`` where it is the list of files.
    """

    repo: str
    revision: str
    name: str | None = None

    def __str__(self) -> str:
        return f"{self.repo} {self.name}" if self.name else self.repo


@contextlib.contextmanager
def translated(asked: Asked) -> Iterator[None]:
    """Turn what the client raises into one line.

    Raises:
        Passing: another try may help.
        SourceError: it would not.
    """
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except HfHubHTTPError as error:
        raise _refusal(error, asked) from error
    except httpx2.TransportError as error:
        raise _failure(error, asked) from error
    except (httpx2.HTTPError, httpx2.InvalidURL) as error:
        raise SourceError(f"cannot ask {endpoint()} for {asked}: {one_line(error)}") from error


def _refusal(error: "HfHubHTTPError", asked: Asked) -> SourceError:
    """Say what an answer other than success means."""
    from huggingface_hub import errors

    status = error.response.status_code
    match error:
        case errors.GatedRepoError():
            return SourceError(
                f"{asked.repo} is gated",
                f"accept its terms at {endpoint()}/{asked.repo} and set $HF_TOKEN",
            )
        case errors.RepositoryNotFoundError():
            return SourceError(
                f"{endpoint()} has no repository {asked.repo}, or it is private",
                "check the name; for a private one set $HF_TOKEN",
            )
        case errors.RevisionNotFoundError():
            return SourceError(
                f"{asked.repo} has no revision {asked.revision!r}",
                "give a branch, a tag or a commit of it",
            )
    answer = f"{endpoint()} answered {status} when asked for {asked}"
    if status == 429:
        return _busy(error.response.headers, answer)
    if status == 408 or status >= 500:
        return Passing(answer, "try again later", wait=_retry_after(error.response.headers))
    if status in (401, 403):
        return SourceError(f"{answer}: {one_line(error.server_message or '')}", "check $HF_TOKEN")
    return SourceError(answer, one_line(error.server_message or ""))


def _busy(headers: Mapping[str, str], answer: str) -> Passing:
    from huggingface_hub.utils import parse_ratelimit_headers  # type: ignore[attr-defined]

    limit = parse_ratelimit_headers(headers)
    wait = _retry_after(headers)
    if wait is None and limit is not None and limit.remaining == 0:
        wait = float(limit.reset_in_seconds)
    when = f"in {wait:.0f} s" if wait else "later"
    return Passing(f"{answer}: too many requests", f"try again {when}", wait=wait)


def _retry_after(headers: Mapping[str, str]) -> float | None:
    """Read ``Retry-After``: seconds, or a date."""
    value = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,9}", value):
        return float(value)
    try:
        return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
    except ValueError:
        return None


def _failure(error: "httpx2.TransportError", asked: Asked) -> SourceError:
    """Say what a connection that fails means."""
    import httpx2

    host = error.request.url.netloc.decode()
    match error:
        case httpx2.ConnectError() | httpx2.ConnectTimeout():
            reason = one_line(error) or "no answer"
            return Unreachable(
                f"cannot connect to {host} for {asked}: {reason}",
                "check the network, or give --offline",
            )
        case httpx2.TimeoutException():
            return Passing(f"{host} stopped answering when asked for {asked}", "try again later")
        case httpx2.NetworkError() | httpx2.RemoteProtocolError():
            return Passing(
                f"the connection to {host} was cut while reading {asked}",
                "try again: a download goes on where it stopped",
            )
    return SourceError(f"cannot ask {host} for {asked}: {one_line(error)}", "check $HF_ENDPOINT")


def endpoint() -> str:
    """Return the Hub's address, ``$HF_ENDPOINT``."""
    from huggingface_hub import constants

    return constants.ENDPOINT


def one_line(text: object) -> str:
    """Return a text of others on one line, cut to a sensible length."""
    return " ".join(str(text).split())[:200]
