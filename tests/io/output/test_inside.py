"""Files within a directory are opened without following links."""

import os
from pathlib import Path

import pytest

from zoo.errors import SourceError, VerificationError
from zoo.io.output.inside import files_inside, open_inside, read_inside


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "real" / "deep").mkdir(parents=True)
    (tmp_path / "real" / "deep" / "file").write_text("inside")
    (tmp_path / "secret").write_text("outside")
    (tmp_path / "folder").symlink_to("real")  # the directory itself may be a link
    return tmp_path / "folder"


def test_a_file_is_read(folder: Path) -> None:
    assert read_inside(folder, "deep/file", "file", 6) == b"inside"
    with pytest.raises(VerificationError, match="size of the file in bytes"):
        read_inside(folder, "deep/file", "file", 5)
    with pytest.raises(FileNotFoundError):
        read_inside(folder, "deep/other", "file", 5)


@pytest.mark.parametrize("name", ["link", "deep/link", "linked/file"])
def test_links_are_refused(folder: Path, name: str) -> None:
    (folder / "link").symlink_to("../secret")
    (folder / "deep" / "link").symlink_to("../../secret")
    (folder / "linked").symlink_to("deep")
    for flags in (os.O_RDONLY, os.O_RDWR | os.O_CREAT):
        with pytest.raises(SourceError, match=f"{name} leads through a link"):
            open_inside(folder, name, flags)
    assert (folder.parent / "secret").read_text() == "outside"
    assert sorted(files_inside(folder)) == ["deep/file", "deep/link", "link", "linked"]


def test_a_hard_link_is_not_written(folder: Path) -> None:
    os.link(folder.parent / "secret", folder / "hard")
    assert read_inside(folder, "hard", "file", 100) == b"outside"
    with pytest.raises(SourceError, match="has a second name"):
        open_inside(folder, "hard", os.O_RDWR)


def test_what_is_no_file_is_refused(folder: Path) -> None:
    os.mkfifo(folder / "pipe")
    for name in ("pipe", "deep"):
        with pytest.raises(SourceError, match="is not a regular file"):
            open_inside(folder, name)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "deep/../../secret", "", "a\0b"])
def test_names_that_lead_out_are_refused(folder: Path, name: str) -> None:
    with pytest.raises(VerificationError, match="outside of its directory"):
        open_inside(folder, name)
