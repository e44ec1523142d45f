"""A small Hub on loopback that the real client talks to, with faults on demand.

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
    """What goes wrong with one answer. Lengths count bytes of the answer's body."""

    status: int | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    drop: bool = False  # no answer at all
    cut_after: int | None = None  # the connection breaks
    stall_after: int | None = None  # nothing more comes until the Hub is closed
    corrupt: bool = False  # one bit differs
    length: int | None = None  # the file is cut or padded to this, and the answer says so
    no_length: bool = False  # ends with the connection, without saying how long it is
    compressed: bool = False  # though the client asked for it as it is
    wrong_range: bool = False  # another part than was asked for
    no_ranges: bool = False  # the whole file, whatever was asked for
    body: bytes | None = None  # this instead

    @property
    def cut(self) -> int | None:
        """How much of the body goes out, if not all."""
        return self.cut_after if self.cut_after is not None else self.stall_after


@dataclass(frozen=True)
class Request:
    method: str
    what: str
    begin: int
    authorized: bool
    sent: int
    complete: bool = False  # up to the end of the file, which is right


@dataclass(frozen=True)
class Commit:
    sha: str
    files: dict[str, bytes]


@dataclass
class Repo:
    commits: list[Commit] = field(default_factory=list)
    refs: dict[str, Commit] = field(default_factory=dict)
    gated: bool = False

    def find(self, revision: str) -> Commit | None:
        return self.refs.get(revision) or next((c for c in self.commits if c.sha == revision), None)


def is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".bin"))


def etag_of(name: str, content: bytes) -> str:
    if is_large(name):
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


class _Server(ThreadingHTTPServer):
    request_queue_size = 128  # connections at once that wait to be accepted


class Hub:
    """``with Hub() as hub``: ``hub.url`` is the endpoint, ``hub.requests`` what was asked of it."""

    def __init__(self) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults: dict[str, list[Fault]] = defaultdict(list)
        self.requests: list[Request] = []
        self.sizes: dict[str, int] = {}  # what the list of files says, where it is wrong
        self.chaos: Callable[[str, int], Fault] | None = None  # draws faults, by method and size
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
        """Let the next requests for a file, or for ``LISTING``, go wrong, one after the other."""
        self.faults[what] += faults

    def sent(self, what: str) -> int:
        """How many bytes of a file went out, over all requests."""
        return sum(r.sent for r in self.requests if r.what == what)

    def asked(self, what: str, method: str = "GET") -> list[int]:
        """The positions that a file was asked for from, one a request."""
        return [r.begin for r in self.requests if r.what == what and r.method == method]

    def blob(self, etag: str) -> tuple[str, bytes] | None:
        for repo in self.repos.values():
            for commit in repo.commits:
                for name, content in commit.files.items():
                    if etag_of(name, content) == etag:
                        return name, content
        return None


def tiny_safetensors(words: int = 4096) -> bytes:
    """A file in the safetensors format with one tensor of that many float32."""
    size = 4 * words
    header = json.dumps({"t": {"dtype": "F32", "shape": [words], "data_offsets": [0, size]}})
    data = b"".join(struct.pack("<f", i) for i in range(words))
    return struct.pack("<Q", len(header)) + header.encode() + data
