"""A small Hub on loopback for the real client, with faults on demand.

Large files (``*.safetensors``, ``*.bin``) are redirected to a second server, as the Hub redirects
them to its storage: another origin, which must not see the token.
"""

import hashlib
import json
import struct
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOKEN = "hf_loopback"
LISTING = "the list of files"


@dataclass(frozen=True)
class Fault:
    """Fault of one response. Lengths are numbers of bytes of the body."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False  # no response
    cut_after: int | None = None  # the connection is closed
    stall_after: int | None = None  # no more data until the Hub is closed
    corrupt: bool = False  # one bit is flipped
    length: int | None = None  # the file is truncated or padded to this stated length
    no_length: bool = False  # no Content-Length; ends with the connection
    compressed: bool = False  # although the client requested identity
    wrong_range: bool = False  # a range other than the requested one
    no_ranges: bool = False  # ignores range requests
    body: bytes | None = None  # replaces the body

    @property
    def cut(self) -> int | None:
        """Number of bytes of the body to send; ``None`` for all."""
        return self.cut_after if self.cut_after is not None else self.stall_after


@dataclass(frozen=True)
class Request:
    method: str
    what: str
    begin: int
    authorized: bool
    sent: int
    complete: bool = False  # sent up to the end of the file, without a fault


@dataclass(frozen=True)
class Commit:
    sha: str
    files: dict[str, bytes]


@dataclass
class Repo:
    commits: list[Commit] = field(default_factory=list)
    refs: dict[str, Commit] = field(default_factory=dict)
    gated: bool = False
    private: bool = False

    def find(self, revision: str) -> Commit | None:
        return self.refs.get(revision) or next((c for c in self.commits if c.sha == revision), None)


def is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".bin"))


def etag_of(name: str, content: bytes) -> str:
    if is_large(name):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # backlog of connections


class Hub:
    """Context manager; ``hub.url`` is the endpoint, ``hub.requests`` the record of requests."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.requests: list[Request] = []
        self.uploads: dict[str, bytes] = {}  # digest -> contents of files in storage, not committed
        self.messages: list[str] = []  # of the commits that were uploaded
        self.sizes: dict[str, int] = {}  # lengths in the file list that differ from the files
        self.chaos: Callable[[str, int], Fault] | None = None  # returns faults by method and size
        self.closing = threading.Event()
        from tests.hub.hub_handlers import ApiHandler, StorageHandler

        self._servers = [self._serve(ApiHandler), self._serve(StorageHandler)]
        self.url, self.storage = (f"http://127.0.0.1:{s.server_port}" for s in self._servers)

    def _serve(self, handler: type[BaseHTTPRequestHandler]) -> ThreadingHTTPServer:
        bound = type(handler.__name__, (handler,), {"hub": self})
        server = _Server(("127.0.0.1", 0), bound)
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return server

    def __enter__(self) -> "Hub":
        return self

    def __exit__(self, *exc: object) -> None:
        self.closing.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()

    def add(
        self, name: str, files: Mapping[str, bytes], *, branch: str = "main", gated: bool = False
    ) -> str:
        """Commit files to a branch; return the commit."""
        repo = self.repos.setdefault(name, Repo())
        repo.gated = gated
        key = json.dumps([name, len(repo.commits), {n: etag_of(n, c) for n, c in files.items()}])
        commit = Commit(hashlib.sha1(key.encode()).hexdigest(), dict(files))
        repo.commits.append(commit)
        repo.refs[branch] = commit
        return commit.sha

    def fail(self, what: str, *faults: Fault) -> None:
        """Set the faults of the next requests for a file, or for ``LISTING``."""
        self.faults[what] += faults

    def sent(self, what: str) -> int:
        """Return the number of bytes of a file that were sent, over all requests."""
        return sum(r.sent for r in self.requests if r.what == what)

    def requested(self, what: str, method: str = "GET") -> list[int]:
        """Return the start positions of the requests for a file."""
        return [r.begin for r in self.requests if r.what == what and r.method == method]

    def large(self, etag: str) -> bytes | None:
        """Return the contents of a large file that is in storage."""
        blob = self.blob(etag)
        return blob[1] if blob else self.uploads.get(etag)

    def blob(self, etag: str) -> tuple[str, bytes] | None:
        for repo in self.repos.values():
            for commit in repo.commits:
                for name, content in commit.files.items():
                    if etag_of(name, content) == etag:
                        return name, content
        return None


def tiny_safetensors(words: int = 4096) -> bytes:
    """Return a safetensors file with one float32 tensor of a length."""
    size = 4 * words
    header = json.dumps({"t": {"dtype": "F32", "shape": [words], "data_offsets": [0, size]}})
    data = b"".join(struct.pack("<f", i) for i in range(words))
    return struct.pack("<Q", len(header)) + header.encode() + data
