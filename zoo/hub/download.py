"""Resumable downloads of single files by ``hf_hub_download``, compared with their digest."""

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
from zoo.hub.metadata import HubFile, repo_folder
from zoo.io.digests.files import FileDigest
from zoo.io.numbers import parse_int
from zoo.io.progress import Advance
from zoo.io.retries import DigestMismatch, TransientError, with_retries
from zoo.overrides import override

PIECE = 4 << 20
PROGRESS = 10_000  # an attempt that receives less than this fraction of a file has made no progress


def download(
    request: HubRequest, remote: HubFile, advance: Advance, *, replace: bool = False
) -> FileDigest | None:
    """Download a file into the cache of huggingface_hub."""
    # ``hf_hub_download`` starts over on every call and checks only lengths. Here the body of a
    # response goes to a partial file as it arrives, and the next call, even from another process,
    # requests the rest. If the body lacks the digest that the Hub publishes, an error is raised
    # before ``hf_hub_download`` moves the file into its cache.
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
    """Download of one file, over one or several requests."""

    def __init__(self, request: HubRequest, remote: HubFile, advance: Advance) -> None:
        super().__init__(request, remote.bytes)
        self.remote = remote
        self.digest: FileDigest | None = None
        self._partial = repo_folder(request.repo) / f"{remote.etag}.partial"
        self._advance = advance
        self._shown = 0
        self._seen = self.partial_bytes()

    def partial_bytes(self) -> int:
        """Return the number of bytes in the partial file."""
        return self._partial.stat().st_size if self._partial.exists() else 0

    def progressed(self) -> bool:
        """Return ``True`` if a relevant part of the file arrived since the last call."""
        before = self._seen
        self._seen = self.partial_bytes()
        return self._seen - before > self.remote.bytes / PROGRESS

    @override
    def on_request(self, request: httpx2.Request) -> None:
        super().on_request(request)
        if request.method != "GET":
            return
        have = self.partial_bytes()
        if have > self.remote.bytes:
            self._discard()
        elif have == self.remote.bytes > 0:  # a range must not be empty
            os.truncate(self._partial, have - 1)
        if have := self.partial_bytes():
            request.headers["Range"] = f"bytes={have}-"

    @override
    def on_response(self, response: httpx2.Response) -> None:
        if response.status_code == 416:  # the partial file is of other contents
            self._discard()
            raise self._not_continued()
        super().on_response(response)
        # huggingface_hub names the file in its cache by these headers: use the digest in the
        # file list, not this server's.
        response.headers["X-Repo-Commit"] = self.request.revision
        response.headers["X-Linked-Etag"] = f'"{self.remote.etag}"'
        response.headers["X-Linked-Size"] = str(self.remote.bytes)
        if response.request.method != "GET" or not response.is_success:
            return
        begin = 0
        size = self.remote.bytes
        if response.status_code == 206:
            stated = re.match(r"bytes ([0-9]+)-", response.headers.get("content-range", ""))
            begin = self.partial_bytes()
            if stated is None or int(stated[1]) != begin:
                self._discard()
                raise self._not_continued()
            response.headers["Content-Range"] = f"bytes {begin}-{size - 1}/{size}"
        elif self.partial_bytes():
            self._discard()
        length = parse_int(response.headers.get("content-length", ""))
        if length is not None and begin + length != size:
            raise self._wrong_length(begin + length)

    @override
    def body(self, response: httpx2.Response, chunks: Iterator[bytes]) -> Iterator[bytes]:
        """Yield the whole file: the partial file, then the body of the response."""
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
                file.flush()  # so that the partial file outlives this process
                self._show(file.tell())
                hasher.update(chunk)
                yield chunk
        if self.partial_bytes() < self.remote.bytes:  # a response without Content-Length
            raise TransientError(f"the response for {self.request} stopped too early", "try again")
        digest, matches = hasher.result(self.partial_bytes())
        self._discard()
        if not matches:
            raise DigestMismatch(
                f"{self.request} does not match the digest that the Hub publishes "
                f"({self.remote.etag[:12]}...)",
                "it was discarded; try again, and if it persists do not use it",
            )
        self._shown = self.remote.bytes
        self.digest = digest

    def _show(self, received: int) -> None:
        self._advance(received - self._shown)
        self._shown = received

    def _discard(self) -> None:
        self._partial.unlink(missing_ok=True)

    def _not_continued(self) -> TransientError:
        return TransientError(f"the Hub does not resume {self.request}", "try again")

    def _wrong_length(self, length: int) -> VerificationError:
        return VerificationError(
            f"{self.request} should have {self.remote.bytes} bytes, and the Hub sends {length}",
            "try again; if it persists, do not use it",
        )
