"""URLs of files and folders that are not on this machine."""

import os
import re
from dataclasses import dataclass, replace
from urllib.parse import unquote

from zoo.errors import UsageError
from zoo.io.local import without_secrets

STORES = ("s3", "gs", "hf")  # They have folders, and `zoo` can list them.
WEB = ("https", "http")  # They have single files, which can only be read.
# A ``Path`` has one slash where the text of a URL has two.
_URL = re.compile(rf"({'|'.join((*STORES, *WEB))}):/{{1,2}}(?!/)(.*)", re.DOTALL | re.IGNORECASE)
_MAGIC = re.compile(r"[*?\[]")
_ENVIRONMENT = "leave it out; credentials come from the environment, as for the provider's tools"


@dataclass(frozen=True)
class RemoteUrl:
    """A URL. Its text has neither credentials nor a query, and may be printed and recorded.

    Attributes:
        scheme: one of ``STORES`` and ``WEB``.
        host: bucket, host, or ``datasets`` of the Hub.
        key: path without its first slash.
        query: query of a web server, such as a signature, which is never shown.
    """

    scheme: str
    host: str
    key: str
    query: str = ""

    def __str__(self) -> str:
        return f"{self.scheme}://{self.host}/{self.key}".rstrip("/")

    @property
    def address(self) -> str:
        """The URL with its query, for requests."""
        return f"{self}?{self.query}" if self.query else str(self)

    @property
    def name(self) -> str:
        """Name of the file or folder; of a bucket, the bucket's."""
        return self.key.rstrip("/").rpartition("/")[2] or self.host

    @property
    def is_web(self) -> bool:
        """Whether a web server has the file: it cannot be listed or written."""
        return self.scheme in WEB

    @property
    def is_pattern(self) -> bool:
        """Whether the path has wildcards."""
        return not self.is_web and _MAGIC.search(self.key) is not None

    def with_key(self, key: str) -> "RemoteUrl":
        """Return the URL of another file or folder of the same host."""
        return replace(self, key=key, query="")

    def join(self, name: str) -> "RemoteUrl":
        """Return the URL of a file below this folder."""
        return self.with_key("/".join(filter(None, (self.key.rstrip("/"), name))))

    @property
    def fixed_part(self) -> "RemoteUrl":
        """The folder before the first part of the path that has a wildcard."""
        fixed_parts = []
        for part in self.key.split("/"):
            if _MAGIC.search(part):
                break
            fixed_parts.append(part)
        return self.with_key("/".join(fixed_parts))


def is_remote(path: str | os.PathLike[str]) -> bool:
    """Return whether a text or path is a URL that can be read."""
    return _URL.match(os.fspath(path)) is not None


def parse_url(path: str | os.PathLike[str]) -> RemoteUrl | None:
    """Return the URL that a text, or a path made from it, stands for; ``None`` for a local path.

    Raises:
        UsageError: the URL has credentials, or its path leads out of its folder.
    """
    text = os.fspath(path)
    match = _URL.match(text)
    if match is None:
        return None
    scheme = match[1].lower()
    shown = without_secrets(text)
    host, _, key = match[2].partition("/")
    query = ""
    if scheme in WEB:
        key, _, query = key.partition("#")[0].partition("?")
    if "@" in host:
        raise UsageError(f"{shown} has a user name or a password", _ENVIRONMENT)
    if not host:
        raise UsageError(f"{shown} names no bucket or host", f"give {scheme}://HOST/PATH")
    if scheme == "hf" and host != "datasets":
        raise UsageError(
            f"{shown} is not a data set", "give hf://datasets/ORGANISATION/NAME/FILE for a data set"
        )
    require_safe_key(unquote(key) if scheme in WEB else key, shown)
    return RemoteUrl(scheme, host, key, query)


def require_safe_key(key: str, source: str) -> None:
    """Check that a path, such as one of a listing, stays in a folder that it is joined to.

    Raises:
        UsageError: it has empty parts, dots, or characters that paths of this machine do not have.
    """
    parts = key.rstrip("/").split("/") if key else []
    has_control = any(ord(character) < 32 for character in key)
    if any(part in ("", ".", "..") for part in parts) or "\\" in key or has_control:
        raise UsageError(
            f"{source} names {key!r}, which is not the path of a file on this machine",
            "copy the object to another name",
        )


def require_recordable(path: str | os.PathLike[str]) -> None:
    """Check that a run may record a path: a query may be a signature, and expires.

    Raises:
        UsageError: it is a URL with a query.
    """
    url = parse_url(path)
    if url is not None and url.query:
        raise UsageError(
            f"{url} has a query, and a run records the names of its data",
            "give a URL without one, or download the file",
        )


def public_words(words: list[str]) -> list[str]:
    """Return words of a command line without the queries and credentials of URLs."""
    public = []
    for word in words:
        name, separator, value = word.partition("=")
        if separator and re.match(r"\w+://", value):
            public.append(f"{name}={without_secrets(value)}")
        elif re.match(r"\w+://", word):
            public.append(without_secrets(word))
        else:
            public.append(word)
    return public
