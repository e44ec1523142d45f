"""Outputs with a URL: they are written on this machine, and uploaded as they become complete.

A command writes into ``$ZOO_HOME/uploads``, where what was interrupted stays and is continued.
An object of a store appears when its upload is complete. Of a folder, the files that say that it is
complete, such as ``zoo.json``, are uploaded after all others, and removed before any other.
"""

import contextlib
import logging
import os
import re
import shutil
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from zoo.errors import SourceError, UsageError, ZooError, first_names, name_place
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.locks import file_lock, lock_at_once
from zoo.io.output.atomic import atomic_write
from zoo.io.output.overwrite import MANIFESTS, RUNS, written_files
from zoo.io.output.staging import is_staged
from zoo.io.output.vectors import record_of
from zoo.io.paths import home, safe_join
from zoo.io.progress import progress
from zoo.io.remote import client
from zoo.io.remote.client import RemoteFile
from zoo.io.urls import RemoteUrl

if TYPE_CHECKING:
    from filelock import BaseFileLock

LOG = logging.getLogger("zoo")
UPLOADS = "uploads"
JOB_RECORD = ".zoo-files.json"  # The record of a job of many files.
# A run, a checkpoint, a model, an export or a corpus is complete when it has one of these.
_LAST = (*MANIFESTS, "state.json", *RUNS, JOB_RECORD)
# What a run has before its first checkpoint is complete, by itself or in the runs of a folder.
_RUN_FILE = re.compile(
    r"((pretrained|from-scratch)/)?((seed|stage)-\d+/)*"
    r"(checkpoints/step-\d+/[^/]+|config\.yaml|run\.json|[a-z]+\.jsonl|report\.html|events\.[^/]+)"
)
_CHECKPOINT = re.compile(r"(.+/)?checkpoints/step-\d+/")
_SKIPPED_ENDINGS = (".lock", ".part", ".part.json")
_DELETE_FIRST = "the outputs of a store are not moved out of the way; give another -o"

Use = Literal["output", "job", "run"]


class UploadedFile(JsonStruct):
    """A file of an output that a store has."""

    bytes: int  # Length of the file on this machine when it was uploaded.
    modified_ns: int
    version: str  # what the store calls its contents


class UploadRecord(JsonStruct):
    """What of an output was uploaded from this machine."""

    url: str
    files: dict[str, UploadedFile]  # name within the output, empty for a file -> its state


class RemoteOutput:
    """An output with a URL, and the path of this machine where a command writes it.

    Args:
        url: file or folder of a store.
        use: ``run`` for a folder that is uploaded while it grows, and resumed, ``job`` for one
            that several processes write files into, ``output`` for all others.
        part: the part of a job that this process computes, which has a folder of its own.
    """

    def __init__(self, url: RemoteUrl, use: Use, part: str = "") -> None:
        client.require_writable(url)
        self.url = url
        self._use = use
        name = "".join(c if c.isalnum() else "-" for c in part) or "all"
        folder = home() / UPLOADS
        root = folder / f"{url.scheme}-{url.host}" / name
        self.path = safe_join(root, url.key.rstrip("/"), str(url))
        name_place(f"{root}/", f"{url.scheme}://{url.host}/")
        state_name = f"{url.scheme}-{url.host}-{name}-{url.key.strip('/').replace('/', '%')}"
        self._record_path = folder / f"{state_name[-200:]}.json"
        self._lock_path = folder / f"{state_name[-200:]}.lock"
        self._lock: BaseFileLock | None = None
        self._record = UploadRecord(url=str(url), files={})
        self._threads = threading.RLock()
        self._remote_names: set[str] = set()  # What the store had, and nobody else writes.
        self._is_main = True

    def begin(self, *, force: bool, resume: bool, is_main: bool = True) -> None:
        """Check that the output may be written, before anything is computed.

        Args:
            force: replace an output that zoo wrote.
            resume: continue an output.
            is_main: whether this process is the one of several that writes the output.

        Raises:
            UsageError: the output exists, or another process is writing it.
        """
        self._is_main = is_main
        self._lock_path.parent.mkdir(parents=True, exist_ok=True)
        if self._use == "run" and resume:
            with file_lock(self._lock_path.with_suffix(".pull.lock")):
                self._pull()
        if not is_main:
            return
        busy = UsageError(f"another process is writing {self.url}", "let it end, or end it")
        self._lock = lock_at_once(self._lock_path, busy)
        if resume and self._use == "run":
            return
        remote_files = self._list()
        if not remote_files:
            client.require_bucket(self.url)
        self._read_record()
        if self._use == "job" and (JOB_RECORD in remote_files or not remote_files):
            for path in self._placeholders():
                path.unlink()
            self._pull_names(remote_files)
            return
        if self._is_rest_of_run(remote_files):
            LOG.warning("warning: %s is replaced: no checkpoint in it is complete", self.url)
        elif remote_files and not resume:
            self._check_replaced(remote_files, force=force)
        if remote_files and resume:
            raise UsageError(f"{self.url} exists", "give --force to replace it, or another -o")
        self._remote_names = set(remote_files)
        if not resume:
            # Nobody else writes here, and the store has nothing of it.
            self._discard()

    def has_begun(self) -> bool:
        """Return whether the store has the output, or a part of it.

        A run whose first checkpoint was not uploaded completely has not begun.
        """
        remote_files = self._list()
        return bool(remote_files) and not self._is_rest_of_run(remote_files)

    def _is_rest_of_run(self, names: Iterable[str]) -> bool:
        """Return whether files are what an interrupted upload has left of a new run."""
        name_set = set(names)
        if self._use != "run" or not name_set or not name_set.isdisjoint(RUNS):
            return False
        return all(_RUN_FILE.fullmatch(name) for name in name_set)

    def end(self) -> None:
        """Let other processes write the output."""
        if self._lock is not None:
            self._lock.release()

    def publish(self) -> None:
        """Upload what the command has written, and remove it from this machine.

        Raises:
            SourceError: an upload failed; the output stays on this machine.
        """
        if not self._is_main or not os.path.lexists(self.path):
            return
        try:
            self._remove_replaced()
            self.upload_changes()
        except ZooError as error:
            hint = f"{error.hint}; what was not uploaded is in {home() / UPLOADS}"
            raise type(error)(error.what, hint.removeprefix("; ")) from error
        self._discard()

    def upload_changes(self) -> None:
        """Upload all files that are new or have changed, and remove those that were removed."""
        with self._threads:
            files = self._local_files()
            changed_names = []
            for name, path in files.items():
                status = path.stat()
                uploaded = self._record.files.get(name)
                state = (status.st_size, status.st_mtime_ns)
                if uploaded is None or (uploaded.bytes, uploaded.modified_ns) != state:
                    changed_names.append(name)
            total = sum(files[name].stat().st_size for name in changed_names)
            with progress(f"uploading {self.url}", total, bytes_=True) as advance:
                for name in _in_order(changed_names):
                    advance(self._upload(name, files[name]))
            removed_names = self._record.files.keys() - files.keys()
            for name in _in_order(removed_names, reverse=True):
                client.remove([self._url_of(name)])
                del self._record.files[name]
            self._save()

    def add_remote_names(self) -> None:
        """Note which files of a job other processes have completed meanwhile."""
        if self._use == "job":
            self._pull_names(self._list())

    def upload_at_exit(self) -> None:
        """Upload what an interrupted run has written, if that is possible."""
        if self._use != "run" or not self._is_main or not self.path.is_dir():
            return
        try:
            self.upload_changes()
        except ZooError as error:
            LOG.warning("warning: %s; what was not uploaded is in %s", error, home() / UPLOADS)

    def upload_file(self, path: Path) -> None:
        """Upload one file of the output, which is complete."""
        with self._threads:
            self._upload(path.relative_to(self.path).as_posix(), path)

    def _remove_replaced(self) -> None:
        """Remove what the store has of an output that is replaced, its manifest first."""
        files = self._local_files()
        placeholders = {path.relative_to(self.path).as_posix() for path in self._placeholders()}
        names = self._remote_names - files.keys() - placeholders
        if self._use == "output":
            names |= {name for name in self._remote_names if _is_last(name)}
        client.remove(self._url_of(name) for name in _in_order(names, reverse=True))

    def _placeholders(self) -> list[Path]:
        """Return the empty files that stand for files of a job that the store has."""
        if self._use != "job" or not self.path.is_dir():
            return []
        return [path for path in self.path.rglob("*") if path.is_file() and _is_placeholder(path)]

    def _upload(self, name: str, path: Path) -> int:
        """Upload a file; return its length."""
        status = path.stat()
        if name == JOB_RECORD:
            self._require_same_job(path)
        remote = client.upload(path, self._url_of(name))
        self._record.files[name] = UploadedFile(
            bytes=status.st_size, modified_ns=status.st_mtime_ns, version=remote.version
        )
        self._save()
        return status.st_size

    def _require_same_job(self, path: Path) -> None:
        """Check that no other process has begun another job in the same folder."""
        url = self._url_of(JOB_RECORD)
        remote = client.find(url)
        uploaded = self._record.files.get(JOB_RECORD)
        if remote is None or (uploaded is not None and uploaded.version == remote.version):
            return
        other_path = self._record_path.with_suffix(".other")
        _download(remote, other_path)
        is_same = other_path.read_bytes() == path.read_bytes()
        other_path.unlink()
        if not is_same:
            raise UsageError(
                f"{self.url} holds the results of another job, which began meanwhile",
                "give another --output",
            )

    def _local_files(self) -> dict[str, Path]:
        """Return name -> path of the complete files of the output."""
        if self.path.is_file():
            files = {"": self.path}
            record = record_of(self.path)
            if record.is_file() and self._use == "output":
                files[_SIBLING] = record
            return files
        files = {}
        for folder, subfolders, names in os.walk(self.path, followlinks=True):
            subfolders[:] = [name for name in subfolders if not is_staged(name)]
            for file_name in names:
                path = Path(folder, file_name)
                if is_staged(file_name) or file_name.endswith(_SKIPPED_ENDINGS):
                    continue
                name = path.relative_to(self.path).as_posix()
                if not _is_placeholder(path):
                    files[name] = path
        return files

    def _url_of(self, name: str) -> RemoteUrl:
        if not name:
            return self.url
        if name == _SIBLING:
            return self.url.with_key(record_of(Path(self.url.key)).as_posix())
        return self.url.join(name)

    def _list(self) -> dict[str, RemoteFile]:
        """Return name -> file of what the store has; a file has an empty name."""
        files = {}
        file = client.find(self.url)
        if file is not None:
            files[""] = file
        prefix = f"{self.url.key.rstrip('/')}/"
        for file in client.find_all(self.url):
            files[file.url.key.removeprefix(prefix)] = file
        return files

    def _check_replaced(self, remote_files: Mapping[str, RemoteFile], *, force: bool) -> None:
        """Check that an output of a store may be replaced."""
        if not force:
            raise UsageError(f"{self.url} exists", "give --force to replace it, or another -o")
        if self._use == "run":
            raise UsageError(f"{self.url} exists", _DELETE_FIRST)
        if "" in remote_files:
            return
        folder = self._record_path.with_suffix(".manifests")
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        try:
            for name in MANIFESTS:
                if name in remote_files:
                    _download(remote_files[name], folder / name)
            digests = written_files(folder)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        foreign_names = []
        for name, file in remote_files.items():
            digest = None if digests is None else digests.get(name)
            is_listed = digests is not None and name in digests
            if not is_listed or (digest is not None and digest.bytes not in (None, file.bytes)):
                foreign_names.append(name)
        if foreign_names:
            raise UsageError(
                f"{self.url} holds {first_names(foreign_names, 3)}, which zoo did not write, or "
                "which was changed",
                "--force replaces only what zoo wrote: give another -o",
            )

    def _pull(self) -> None:
        """Make the folder of this machine that of the store, so that it can be resumed."""
        self._read_record()
        remote_files = self._list()
        if not remote_files:
            raise SourceError(f"{self.url} does not exist", "give the folder of a run")
        versions = {name: file.version for name, file in remote_files.items()}
        uploaded = {name: file.version for name, file in self._record.files.items()}
        if self.path.is_dir() and versions == uploaded:
            return  # What is here is at least as new.
        all_names = set(remote_files)
        remote_files = _without_parts_of_checkpoints(remote_files)
        self._remote_names = all_names - remote_files.keys()
        total = sum(file.bytes or 0 for file in remote_files.values())
        with progress(f"fetching {self.url}", total, bytes_=True) as advance:
            for name, file in remote_files.items():
                path = safe_join(self.path, name, str(self.url))
                if uploaded.get(name) != file.version or not self._is_as_uploaded(name, path):
                    path.parent.mkdir(parents=True, exist_ok=True)
                    _download(file, path)
                advance(file.bytes or 0)
                status = path.stat()
                self._record.files[name] = UploadedFile(
                    bytes=status.st_size, modified_ns=status.st_mtime_ns, version=file.version
                )
        for name, path in self._local_files().items():
            if name not in remote_files:
                path.unlink()
        for name in self._record.files.keys() - remote_files.keys():
            del self._record.files[name]
        _remove_empty_folders(self.path)
        self._save()

    def _is_as_uploaded(self, name: str, path: Path) -> bool:
        uploaded = self._record.files.get(name)
        if uploaded is None or not path.is_file():
            return False
        status = path.stat()
        return (uploaded.bytes, uploaded.modified_ns) == (status.st_size, status.st_mtime_ns)

    def _pull_names(self, remote_files: Mapping[str, RemoteFile]) -> None:
        """Fetch the record of a job, and make an empty file for each one that is complete."""
        with self._threads:
            for name, file in remote_files.items():
                path = safe_join(self.path, name, str(self.url))
                path.parent.mkdir(parents=True, exist_ok=True)
                uploaded = self._record.files.get(name)
                is_here = uploaded is not None and uploaded.version == file.version
                if name == JOB_RECORD and not is_here:
                    _download(file, path)
                    status = path.stat()
                    self._record.files[name] = UploadedFile(
                        bytes=status.st_size, modified_ns=status.st_mtime_ns, version=file.version
                    )
                elif name != JOB_RECORD and not path.exists():
                    path.touch()
                    os.utime(path, (0, 0))
                    self._remote_names.add(name)

    def _read_record(self) -> None:
        with contextlib.suppress(ZooError, OSError):
            record = read_json_record(self._record_path, UploadRecord)
            if record.url == str(self.url):
                self._record = record

    def _save(self) -> None:
        atomic_write(self._record_path, encode_json(self._record))

    def _discard(self) -> None:
        """Remove the output from this machine."""
        if self.path.is_dir():
            shutil.rmtree(self.path)
        else:
            self.path.unlink(missing_ok=True)
            record_of(self.path).unlink(missing_ok=True)
        self._record_path.unlink(missing_ok=True)
        self._record = UploadRecord(url=str(self.url), files={})


_SIBLING = "/record"  # stands for the record of an array, which is next to it
_active: list[RemoteOutput] = []


@contextlib.contextmanager
def publishing(outputs: Iterable[RemoteOutput]) -> Iterator[None]:
    """Upload outputs at the end of a block, unless it raises an error."""
    output_list = list(outputs)
    _active.extend(output_list)
    try:
        yield
        for output in output_list:
            output.publish()
    except BaseException:
        for output in output_list:
            output.upload_at_exit()
        raise
    finally:
        for output in output_list:
            _active.remove(output)
            output.end()


def output_of(path: Path) -> RemoteOutput | None:
    """Return the output with a URL that a path of this machine belongs to, if any."""
    absolute_path = Path(os.path.abspath(path))
    for output in _active:
        if absolute_path.is_relative_to(output.path):
            return output
    return None


def publish_changes(path: Path) -> None:
    """Upload what is complete of the output that a path belongs to; nothing for a local one."""
    output = output_of(path)
    if output is not None:
        output.upload_changes()


def publish_file(path: Path) -> None:
    """Upload a complete file of an output with a URL; nothing for a local one."""
    output = output_of(path)
    if output is not None:
        output.upload_file(Path(os.path.abspath(path)))


def refresh_names(folder: Path) -> None:
    """Note which files of a job with a URL other processes have completed."""
    output = output_of(folder)
    if output is not None:
        output.add_remote_names()


def _without_parts_of_checkpoints(files: Mapping[str, RemoteFile]) -> dict[str, RemoteFile]:
    """Return the files of a run without checkpoints whose upload was interrupted."""
    complete_files = {}
    for name, file in files.items():
        match = _CHECKPOINT.match(name)
        if match is None or f"{match[0]}state.json" in files:
            complete_files[name] = file
    return complete_files


def _is_placeholder(path: Path) -> bool:
    status = path.stat()
    return not status.st_size and not status.st_mtime_ns


def _is_last(name: str) -> bool:
    return name.rpartition("/")[2] in _LAST


def _in_order(names: Iterable[str], *, reverse: bool = False) -> list[str]:
    """Return names, those that say that a folder is complete last; or in the other order."""
    return sorted(names, key=lambda name: (_is_last(name), -name.count("/"), name), reverse=reverse)


def _download(file: RemoteFile, path: Path) -> None:
    """Write a file of a store to a path."""
    partial = path.with_name(f"{path.name}.partial")
    with partial.open("w+b") as target:
        client.download(file, target, lambda _: None)
    os.replace(partial, path)


def _remove_empty_folders(root: Path) -> None:
    for folder, _, _ in os.walk(root, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
