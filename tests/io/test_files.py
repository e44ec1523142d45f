"""Opening of paths that may be pipes, sockets or devices."""

import os
import socket
import tracemalloc
from pathlib import Path

import pytest

from zoo.errors import SourceError, VerificationError
from zoo.io.files import open_regular, read_regular


def test_a_regular_file_is_opened(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    with open_regular(path) as file:
        assert file.read() == b"content"
    (tmp_path / "link").symlink_to(path)
    assert read_regular(tmp_path / "link", "index", 7) == b"content"
    with pytest.raises(VerificationError, match=r"file: size of the index in bytes is 7, and at"):
        read_regular(path, "index", 6)


def test_memory_is_taken_for_the_file_and_not_for_the_limit(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    tracemalloc.start()
    try:
        assert read_regular(path, "graph", 1 << 40) == b"content"
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_special_files_are_refused_without_blocking(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
        for path in (*map(tmp_path.joinpath, ("pipe", "folder", "socket")), Path("/dev/zero")):
            with pytest.raises(SourceError, match="is not a regular file"):
                open_regular(path)
    nul = "null (byte|character)"  # of Python 3.11, and 3.13
    for name, message in (("absent", "No such file"), ("a\0b", nul), ("x" * 300, "long")):
        with pytest.raises(SourceError, match=message):
            read_regular(tmp_path / name, "index", 10)
