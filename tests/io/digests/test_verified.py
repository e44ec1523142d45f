"""The cache of file digests."""

import os
import time
from pathlib import Path

import pytest
from blake3 import blake3

from zoo.errors import SourceError, VerificationError
from zoo.io.digests import verified
from zoo.io.digests.verified import FOLDER, file_blake3, require_blake3
from zoo.io.paths import home


def entries() -> list[Path]:
    folder = home() / FOLDER
    return sorted(folder.iterdir()) if folder.is_dir() else []


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file whose last change is not recent."""
    monkeypatch.setattr(verified, "SETTLED_NS", -1)
    (tmp_path / "weights").write_bytes(b"abc" * 1000)
    return tmp_path / "weights"


def test_digest_is_cached(path: Path) -> None:
    assert file_blake3(path) == blake3(path.read_bytes()).hexdigest()
    (entry,) = entries()
    entry.write_text(entry.read_text().replace(file_blake3(path), "0" * 64))
    assert file_blake3(path) == "0" * 64  # from the cache


def test_change_with_equal_size_and_mtime_is_noticed(path: Path) -> None:
    before, status = file_blake3(path), path.stat()
    path.write_bytes(b"abd" * 1000)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_size == status.st_size
    assert path.stat().st_mtime_ns == status.st_mtime_ns
    assert file_blake3(path) == blake3(path.read_bytes()).hexdigest() != before


def test_replaced_file_is_noticed(path: Path, tmp_path: Path) -> None:
    file_blake3(path)
    (tmp_path / "other").write_bytes(b"xyz" * 1000)
    os.replace(tmp_path / "other", path)
    assert file_blake3(path) == blake3(b"xyz" * 1000).hexdigest()


def test_recently_changed_file_is_not_cached(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"abc")
    file_blake3(tmp_path / "weights")
    assert not entries()


@pytest.mark.parametrize("content", [b"", b"[]", b"\xff", b"[1,2,3]", b"{}"])
def test_damaged_entry_is_ignored(path: Path, content: bytes) -> None:
    digest = file_blake3(path)
    (entry,) = entries()
    entry.write_bytes(content)
    assert file_blake3(path) == digest
    assert entries()[0].read_bytes() != content


def test_number_of_entries_is_limited(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verified, "MAX_ENTRIES", 3)
    for number in range(10):
        (tmp_path / f"{number}").write_text(str(number))
        file_blake3(tmp_path / f"{number}")
    assert 1 <= len(entries()) <= 3


def test_unwritable_home_is_no_error(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ZOO_HOME", str(tmp_path / "file"))
    assert file_blake3(path) == blake3(path.read_bytes()).hexdigest()


def test_errors_name_the_file_and_the_manifest(path: Path, tmp_path: Path) -> None:
    manifest = tmp_path / "zoo.json"
    require_blake3(path, file_blake3(path), manifest)
    for expected in (None, "0" * 64):
        with pytest.raises(VerificationError, match=r"weights is not the file that .*zoo\.json"):
            require_blake3(path, expected, manifest)
    with pytest.raises(SourceError, match="No such file"):
        require_blake3(tmp_path / "absent", "0" * 64, manifest)


def test_ctime_decides_whether_a_file_is_settled(tmp_path: Path) -> None:
    """A modification time in the past has no effect, since any program can set it."""
    (tmp_path / "weights").write_bytes(b"abc")
    long_ago = time.time_ns() - 10**12
    os.utime(tmp_path / "weights", ns=(long_ago, long_ago))
    file_blake3(tmp_path / "weights")
    assert not entries()
