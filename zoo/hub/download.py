"""Downloads of single files by ``hf_hub_download``, checked and continued where they stopped.

``hf_hub_download`` starts over whenever it is called again, and checks lengths alone. Here the body
of an answer is kept in a file of ours as it arrives, and the next call, also of another process,
asks for the rest of it; and a body that does not have the digest that the Hub publishes ends in an
error before ``hf_hub_download`` moves it into its cache.
"""

import os
import re
from collections.abc import Iterator

import httpx2
from huggingface_hub import hf_hub_download
from huggingface_hub.utils import silent_tqdm  # type: ignore[attr-defined]

from zoo.errors import VerificationError
from zoo.hub.client import HubCall
from zoo.hub.errors import HubRequest
from zoo.hub.files import Hasher
from zoo.hub.metadata import RemoteFile, repo_folder
from zoo.hub.retry import DigestMismatch, TransientError, with_retries
from zoo.io.digests.files import FileDigest
from zoo.io.progress import Advance

PIECE = 4 << 20
PROGRESS = 10_000  # a try that brings less than one in so many bytes of a file makes no progress


def download(
    request: HubRequest, remote: RemoteFile, advance: Advance, *, replace: bool = False
) -> FileDigest | None:
    """Bring a file into the cache of huggingface_hub.

    Args:
        request: the file, at a commit.
        remote: what the Hub says of it.
        advance: called with the number of bytes that arrived; negative where some were useless.
        replace: download it even if it is in the cache.

    Returns:
        The file's digest; ``None`` if the contents were in the cache.

    Raises:
        SourceError: the Hub does not give it out, or fails; what arrived is kept.
        VerificationError: it is not of the length or digest that the Hub publishes.
    """
    transfer = Transfer(request, remote, advance)

    def attempt() -> FileDigest | None:
        with transfer.active():
            hf_hub_download(
                request.repo,
                request.name or "",
                revision=request.revision,
                force_download=replace,
                library_name="zoo",
                tqdm_class=silent_tqdm,
            )
        return transfer.digest

    return with_retries(attempt, transfer.progressed)


class Transfer(HubCall):
    """The download of one file, over as many requests as it takes.

    Attributes:
        digest: of the whole file, once all of it arrived.
    """

    def __init__(self, request: HubRequest, remote: RemoteFile, advance: Advance) -> None:
        super().__init__(request, remote.bytes)
        self.remote = remote
        self.digest: FileDigest | None = None
        self._partial = repo_folder(request.repo) / f"{remote.etag}.partial"
        self._advance = advance
        self._shown = 0
        self._seen = self.kept()

    def kept(self) -> int:
        """Return how many bytes arrived so far."""
        return self._partial.stat().st_size if self._partial.exists() else 0

    def progressed(self) -> bool:
        """Whether a noticeable part of the file arrived since this was asked last."""
        before, self._seen = self._seen, self.kept()
        return self._seen - before > self.remote.bytes / PROGRESS

    def on_request(self, request: httpx2.Request) -> None:
        """Ask for the rest of the file."""
        super().on_request(request)
        if request.method == "GET" and (have := self._usable()):
            request.headers["Range"] = f"bytes={have}-"

    def _usable(self) -> int:
        """Return how much of the file need not be asked for: never all of it, to get an answer."""
        have = self.kept()
        if have > self.remote.bytes:
            self._discard()
        elif have == self.remote.bytes > 0:
            os.truncate(self._partial, have - 1)
        return self.kept()

    def on_response(self, response: httpx2.Response) -> None:
        """See ``HubCall``."""
        if response.status_code == 416:  # the server has no such rest: it is no part of this file
            self._discard()
            raise self._not_continued()
        super().on_response(response)
        # By these, huggingface_hub decides where in its cache a file is put: as the list of files
        # says, and not as this server does.
        response.headers["X-Repo-Commit"] = self.request.revision
        response.headers["X-Linked-Etag"] = f'"{self.remote.etag}"'
        response.headers["X-Linked-Size"] = str(self.remote.bytes)
        if response.request.method == "GET" and response.is_success:
            self._check_range(response)

    def _check_range(self, response: httpx2.Response) -> None:
        """Refuse another part or another length of the file before it is read."""
        begin, size = 0, self.remote.bytes
        if response.status_code == 206:
            stated = re.match(r"bytes ([0-9]+)-", response.headers.get("content-range", ""))
            begin = self.kept()
            if stated is None or int(stated[1]) != begin:
                self._discard()
                raise self._not_continued()
            response.headers["Content-Range"] = f"bytes {begin}-{size - 1}/{size}"
        elif self.kept():
            self._discard()
        length = response.headers.get("content-length", "")
        if length.isdigit() and begin + int(length) != size:
            raise self._wrong_length(begin + int(length))

    def body(self, response: httpx2.Response, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the whole file: what arrived before, then what the answer brings."""
        if response.request.method != "GET":
            return
        hasher = Hasher(self.remote.etag, self.remote.bytes)
        self._partial.parent.mkdir(parents=True, exist_ok=True)
        with self._partial.open("a+b") as file:
            file.seek(0)
            while chunk := file.read(PIECE):
                hasher.update(chunk)
                yield chunk
            self._show(file.tell())
            for chunk in chunks:
                if file.tell() + len(chunk) > self.remote.bytes:
                    self._discard()
                    raise self._wrong_length(file.tell() + len(chunk))
                file.write(chunk)
                file.flush()  # what arrived outlives this process
                self._show(file.tell())
                hasher.update(chunk)
                yield chunk
        self._finish(hasher)

    def _finish(self, hasher: Hasher) -> None:
        if self.kept() < self.remote.bytes:  # an answer that did not say how long it is
            raise TransientError(f"the answer for {self.request} stopped too early", "try again")
        digest, matches = hasher.result(self.kept())
        self._discard()
        if not matches:
            raise DigestMismatch(
                f"{self.request} does not match the digest that the Hub publishes "
                f"({self.remote.etag[:12]}...)",
                "it was thrown away; try again, and if it persists do not use it",
            )
        self._shown = self.remote.bytes
        self.digest = digest

    def _show(self, received: int) -> None:
        self._advance(received - self._shown)
        self._shown = received

    def _discard(self) -> None:
        self._partial.unlink(missing_ok=True)

    def _not_continued(self) -> TransientError:
        return TransientError(f"the Hub does not continue {self.request}", "try again")

    def _wrong_length(self, length: int) -> VerificationError:
        return VerificationError(
            f"{self.request} should have {self.remote.bytes} bytes, and the Hub sends {length}",
            "try again; if it persists, do not use it",
        )
