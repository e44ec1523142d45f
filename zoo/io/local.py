"""Paths of this machine: a URL is never read or written as a local path."""

import os
import re
from typing import Literal
from urllib.parse import urlsplit

from zoo.errors import UsageError

Use = Literal["file", "output", "model"]

# A scheme has two letters or more, and a ``Path`` has one slash where its text had two.
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(/+)")
_SHOWN = 200  # characters of a URL in a message
_HUB_HOSTS = ("huggingface.co", "www.huggingface.co", "hf.co")
_REMEDIES: dict[Use, str] = {
    "file": "download it, and give the path of the file",
    "output": "give a path of this machine, and upload the result",
    "model": "download it, and give its directory, or organisation/name for a model of the Hub",
}


def require_local(path: str | os.PathLike[str], use: Use) -> None:
    """Check that a path of a user is not a URL, which would name a folder such as ``s3:``.

    Args:
        path: text of the user, or a path made from it.
        use: what it names, for the remedy.
    """
    text = os.fspath(path)
    scheme = _URL.match(text)
    if scheme is None:
        return
    rest = text[scheme.end() :]
    if scheme[1].lower() == "file":
        raise UsageError(f"{without_secrets(text)} is a URL", f"give the path /{rest[:_SHOWN]}")
    remedy = _REMEDIES[use]
    host, _, name = rest.partition("/")
    repository = re.match(r"[\w.-]+/[\w.-]+", name)
    if use == "model" and host.lower() in _HUB_HOSTS and repository is not None:
        remedy = f"give the name {repository[0]}"
    raise UsageError(f"{without_secrets(text)} is a URL, and not a path of this machine", remedy)


def without_secrets(url: str) -> str:
    """Return a URL as it may be printed: without a password, a signature or a token."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that are not those of an address
        return f"{url.partition(':')[0]}:..."
    host = parts.netloc.rpartition("@")[2]
    slashes = "//" if url.startswith(f"{url.partition(':')[0]}://") else ""
    # A ``Path`` has its host in the path, and a user's name before it.
    place = parts.path if parts.netloc else re.sub(r"^/[^/@]*@", "/", parts.path)
    return f"{url.partition(':')[0]}:{slashes}{host}{place}"[:_SHOWN]
