"""Request handlers of the test Hub, with faults."""

import base64
import contextlib
import gzip
import json
import re
import socket
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler
from typing import Any, ClassVar
from urllib.parse import unquote, urlsplit

import yaml

from tests.hub.hub_server import (
    LISTING,
    TOKEN,
    Commit,
    Fault,
    Hub,
    Repo,
    Request,
    etag_of,
    is_large,
)


class Handler(BaseHTTPRequestHandler):
    hub: ClassVar[Hub]
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self.answer()

    def do_GET(self) -> None:
        self.answer()

    def answer(self) -> None:
        raise AssertionError("each server has its own")

    def body(self) -> bytes:
        """Return the body of a request, which may be sent in chunks."""
        if self.headers.get("transfer-encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("content-length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    @property
    def authorized(self) -> bool:
        return self.headers.get("authorization") == f"Bearer {TOKEN}"

    def note(self, what: str, begin: int = 0, sent: int = 0, complete: bool = False) -> None:
        has_token = "authorization" in self.headers
        self.hub.requests.append(Request(self.command, what, begin, has_token, sent, complete))

    def refuse(self, status: int, code: str = "", headers: Mapping[str, str] | None = None) -> None:
        content = json.dumps({"error": code or "refused"}).encode()
        error = {"X-Error-Code": code} if code else {}
        self.send(status, content, {"Content-Type": "application/json", **error, **(headers or {})})

    def send(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in {"Content-Length": str(len(content)), **headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def fault(self, what: str, size: int = 0) -> Fault:
        if self.hub.chaos is not None:
            return self.hub.chaos(self.command, size)
        waiting = self.hub.faults[what]
        return waiting.pop(0) if waiting and self.command != "HEAD" else Fault()

    def failed(self, what: str, fault: Fault) -> bool:
        """Send the response of a fault."""
        if fault.drop:
            self.note(what)
            self.hang_up()
        elif fault.status is not None:
            self.note(what)
            self.refuse(fault.status, headers=fault.headers)
        elif fault.body is not None:
            self.note(what)
            self.send(200, fault.body, {"Content-Type": "text/html"})
        else:
            return False
        return True

    def send_file(self, name: str, content: bytes, headers: Mapping[str, str]) -> None:
        fault = self.fault(name, len(content))
        if self.failed(name, fault):
            return
        begin = 0 if fault.no_ranges else self.begin()
        if begin and begin >= len(content):
            self.note(name, begin)
            return self.refuse(416, headers={"Content-Range": f"bytes */{len(content)}"})
        begin += fault.wrong_range
        body = distorted(content, fault)[begin:]
        if fault.compressed:
            body = gzip.compress(body)
            headers = {**headers, "Content-Encoding": "gzip"}
        is_get = self.command == "GET"
        sent = len(body[: fault.cut]) * is_get
        complete = begin + sent == len(content) and not fault.corrupt
        self.note(name, begin * is_get, sent, complete)  # before the client can observe it
        self.send_response(206 if begin else 200)
        if begin:
            self.send_header("Content-Range", f"bytes {begin}-{len(content) - 1}/{len(content)}")
        if fault.no_length:
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(len(body)))
        for key, value in headers.items():
            self.send_header(key, value)
        self.end_headers()
        if is_get:
            self.send_body(body, fault)

    def begin(self) -> int:
        match = re.fullmatch(r"bytes=(\d+)-", self.headers.get("range", ""))
        return int(match[1]) if match else 0

    def send_body(self, body: bytes, fault: Fault) -> None:
        with contextlib.suppress(ConnectionError):
            self.wfile.write(body[: fault.cut])
        if fault.stall_after is not None:
            self.hub.closing.wait(30)
        if fault.cut is not None:
            self.hang_up()

    def hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)


def distorted(content: bytes, fault: Fault) -> bytes:
    if fault.length is not None:
        return content[: fault.length].ljust(fault.length, b"?")
    if fault.corrupt:
        middle = len(content) // 2
        return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    return content


class ApiHandler(Handler):
    """Handler of file lists, small files, and redirects to large files."""

    def answer(self) -> None:
        path = unquote(urlsplit(self.path).path)
        if match := re.fullmatch(r"/api/models/(.+)/revision/([^/]+(?:/[^/]+)*)", path):
            self.listing(match[1], match[2])
        elif match := re.fullmatch(r"/(.+)/resolve/([0-9a-f]{40}|[^/]+)/(.+)", path):
            self.file(*match.groups())
        else:
            self.note(path)
            self.refuse(404)

    def repo(self, name: str) -> Repo | None:
        repo = self.hub.repos.get(name)
        if repo is None:
            # the response of the Hub without a token: the repository may be private
            self.refuse(404 if self.authorized else 401, "RepoNotFound")
        return repo

    def listing(self, name: str, revision: str) -> None:
        if self.failed(LISTING, self.fault(LISTING)):
            return
        self.note(LISTING)
        if (repo := self.repo(name)) is None:
            return
        if (commit := repo.find(revision)) is None:
            return self.refuse(404, "RevisionNotFound")
        content = json.dumps(self.describe(name, repo, commit)).encode()
        warning = {"X-HF-Warning": "loopback; this Hub is a small one"}
        self.send(200, content, {"Content-Type": "application/json", **warning})

    def describe(self, name: str, repo: Repo, commit: Commit) -> dict[str, Any]:
        files = []
        for file, content in commit.files.items():
            size = self.hub.sizes.get(file, len(content))
            entry: dict[str, Any] = {"rfilename": file, "size": size}
            entry["blobId"] = etag_of("", content)  # of the pointer, for a large file
            if is_large(file):
                entry["lfs"] = {"sha256": etag_of(file, content), "size": size, "pointerSize": 134}
            files.append(entry)
        gated = "auto" if repo.gated else False
        return {"id": name, "modelId": name, "sha": commit.sha, "gated": gated, "siblings": files}

    def file(self, repo_name: str, revision: str, name: str) -> None:
        if (repo := self.repo(repo_name)) is None:
            return
        if (commit := repo.find(revision)) is None:
            return self.refuse(404, "RevisionNotFound")
        headers = {"X-Repo-Commit": commit.sha}
        if name not in commit.files:
            return self.refuse(404, "EntryNotFound", headers)
        if repo.gated and not self.authorized:
            self.note(name)
            return self.refuse(403 if "authorization" in self.headers else 401, "GatedRepo")
        content = commit.files[name]
        etag = etag_of(name, content)
        if not is_large(name):
            return self.send_file(name, content, {"ETag": f'"{etag}"', **headers})
        headers |= {"X-Linked-Etag": f'"{etag}"', "X-Linked-Size": str(len(content))}
        self.send(302, b"", {"Location": f"{self.hub.storage}/{etag}", **headers})

    def do_POST(self) -> None:
        """Answer a step of an upload, as huggingface_hub sends them."""
        content = self.body()
        path = unquote(urlsplit(self.path).path)
        self.note(path, sent=len(content))
        if self.failed(path, self.fault(path)):
            return
        if not self.authorized:
            return self.refuse(401)
        if path == "/api/repos/create":
            self.create_repo(json.loads(content))
        elif path == "/api/validate-yaml":
            self.validate_yaml(json.loads(content)["content"])
        elif match := re.fullmatch(r"/api/models/(.+)/preupload/main", path):
            self.preupload(match[1], json.loads(content))
        elif re.fullmatch(r"/(.+)\.git/info/lfs/objects/batch", path):
            self.batch(json.loads(content))
        elif match := re.fullmatch(r"/api/models/(.+)/commit/main", path):
            self.commit(match[1], [json.loads(line) for line in content.splitlines()])
        else:
            self.refuse(404)

    def answer_json(self, value: Any, status: int = 200) -> None:
        self.send(status, json.dumps(value).encode(), {"Content-Type": "application/json"})

    def create_repo(self, fields: dict[str, Any]) -> None:
        name = f"{fields['organization']}/{fields['name']}"
        exists = name in self.hub.repos
        if not exists:
            self.hub.repos[name] = Repo(private=fields.get("visibility") == "private")
        self.answer_json({"url": f"{self.hub.url}/{name}"}, 409 if exists else 200)

    def validate_yaml(self, text: str) -> None:
        try:
            metadata = yaml.safe_load(text.split("---")[1]) if text.startswith("---") else {}
            errors = [] if isinstance(metadata, dict) else [{"message": "no map"}]
        except yaml.YAMLError as error:
            errors = [{"message": str(error)}]
        self.answer_json({"errors": errors, "warnings": []}, 400 if errors else 200)

    def preupload(self, name: str, fields: dict[str, Any]) -> None:
        if (repo := self.repo(name)) is None:
            return
        head = repo.refs.get("main")
        files = []
        for file in fields["files"]:
            path = file["path"]
            entry: dict[str, Any] = {"path": path, "shouldIgnore": False}
            entry["uploadMode"] = "lfs" if is_large(path) else "regular"
            if head is not None and path in head.files:
                entry["oid"] = etag_of(path, head.files[path])
            files.append(entry)
        self.answer_json({"files": files})

    def batch(self, fields: dict[str, Any]) -> None:
        assert fields["operation"] == "upload" and "basic" in fields["transfers"]
        objects = []
        for entry in fields["objects"]:
            if self.hub.large(entry["oid"]) is None:
                href = {"href": f"{self.hub.storage}/{entry['oid']}", "header": {}}
                entry = {**entry, "actions": {"upload": href}}
            objects.append(entry)
        self.answer_json({"transfer": "basic", "objects": objects})

    def commit(self, name: str, lines: list[dict[str, Any]]) -> None:
        if (repo := self.repo(name)) is None:
            return
        head = repo.refs.get("main")
        files = dict(head.files) if head else {}
        for line in lines:
            value = line["value"]
            if line["key"] == "header":
                self.hub.messages.append(value["summary"])
            elif line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif (content := self.hub.large(value["oid"])) is not None:
                files[value["path"]] = content
            else:
                return self.refuse(400)
        sha = self.hub.add(name, files)
        url = f"{self.hub.url}/{name}/commit/{sha}"
        self.answer_json({"success": True, "commitOid": sha, "commitUrl": url})


class StorageHandler(Handler):
    """Handler of the contents of large files, by digest."""

    def answer(self) -> None:
        blob = self.hub.blob(self.path.strip("/"))
        if blob is None:
            return self.refuse(404)
        name, content = blob
        self.send_file(name, content, {"ETag": '"of the storage"'})

    def do_PUT(self) -> None:
        """Store a large file whose digest is that of the address."""
        content = self.body()
        digest = self.path.strip("/")
        self.note(digest, sent=len(content))
        if self.failed(digest, self.fault(digest)):
            return
        if etag_of(".bin", content) != digest:
            return self.refuse(400)
        self.hub.uploads[digest] = content
        self.send(200, b"", {})
