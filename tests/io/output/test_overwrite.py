"""``--force`` replaces output of zoo only."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from zoo.errors import UsageError
from zoo.io.output.overwrite import check_target


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def manifest(target: Path, name: str, **content: object) -> None:
    (target / name).write_text(json.dumps({"zoo": 1, "created_by": {"plm-zoo": "1"}, **content}))


def model(target: Path) -> None:
    manifest(target, "zoo.json", files={"config.json": {}, "sub/weights": {}}, licence="mit")
    (target / "config.json").touch()
    (target / "sub").mkdir()
    (target / "sub" / "weights").touch()


def hub(target: Path) -> None:
    manifest(target, ".zoo.json", files={"config.json": {}})
    (target / "config.json").touch()


def corpus(target: Path) -> None:
    manifest(target, "corpus.json", splits={"train": {"files": {"train/tokens": {}}}})
    (target / "tokenizer.json").touch()
    (target / "train").mkdir()
    (target / "train" / "tokens").touch()


def nothing(target: Path) -> None:
    pass


def truncated(target: Path) -> None:
    """A model without its weights."""
    model(target)
    (target / "sub" / "weights").unlink()


def refused(target: Path, message: str, **options: object) -> None:
    before = sorted(target.rglob("*"))
    with pytest.raises(UsageError, match=message):
        check_target(target, **{"force": True, **options})  # type: ignore[arg-type]
    assert sorted(target.rglob("*")) == before


@pytest.mark.parametrize("make", [model, hub, corpus, nothing, truncated])
def test_force_replaces_output_of_zoo(target: Path, make: Callable[[Path], None]) -> None:
    make(target)
    check_target(target, force=True)
    refused(target, "out exists; give --force", force=False)


@pytest.mark.parametrize("make", [model, hub, corpus])
@pytest.mark.parametrize("name", ["notes.txt", "train/notes.txt", ".hidden"])
def test_added_file_is_named(target: Path, make: Callable[[Path], None], name: str) -> None:
    make(target)
    (target / name).parent.mkdir(exist_ok=True)
    (target / name).touch()
    refused(target, f"out holds {name}, which zoo did not write; --force replaces only")


def test_added_link_to_a_directory(target: Path, tmp_path: Path) -> None:
    model(target)
    (target / "link").symlink_to(tmp_path, target_is_directory=True)
    refused(target, "holds link")


def test_foreign_directory(target: Path) -> None:
    for k in range(5):
        (target / f"{k}.txt").touch()
    refused(target, r"out is not from zoo: it holds 0.txt, 1.txt, 2.txt and 2 more; --force")


@pytest.mark.parametrize(
    "content",
    ["", "{", "[]", '{"animals": ["lion"]}', '{"zoo": 1}', '{"zoo": "x", "created_by": "y"}'],
)
def test_a_manifest_of_another_program(target: Path, content: str) -> None:
    (target / "zoo.json").write_text(content)
    refused(target, "is not from zoo: it holds zoo.json")


def test_deeply_nested_manifest(target: Path) -> None:
    (target / "zoo.json").write_text("[" * 100_000)
    refused(target, "is not from zoo")


def test_a_training_run(target: Path) -> None:
    manifest(target, "run.json")
    refused(target, "is a training run")


def test_a_directory_of_models(target: Path) -> None:
    (target / "a").mkdir()
    model(target / "a")
    refused(target, "is not from zoo: it holds a/config.json")


@pytest.mark.parametrize("relative", [".", "..", "../..", "/", "deep/.."])
@pytest.mark.parametrize("force", [False, True])
def test_working_directory_and_its_parent(
    target: Path, monkeypatch: pytest.MonkeyPatch, relative: str, force: bool
) -> None:
    model(target)
    monkeypatch.chdir(target)
    with pytest.raises(UsageError, match="is or holds the working directory"):
        check_target(Path(relative), force=force)


def test_the_working_directory_by_another_name(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model(target)
    (tmp_path / "alias").symlink_to(tmp_path)
    monkeypatch.chdir(target)
    with pytest.raises(UsageError, match="the working directory"):
        check_target(tmp_path / "alias" / "out", force=True)


def test_source_and_its_parent(target: Path, tmp_path: Path) -> None:
    model(target)
    (tmp_path / "alias").symlink_to("out")
    for source in (target, target / "sub", target / "config.json", tmp_path / "alias"):
        refused(target, "is or holds .*, which is in use", sources=[tmp_path, source])
    check_target(target, force=True, sources=[tmp_path, tmp_path / "other"])


def test_a_link_and_a_file(target: Path, tmp_path: Path) -> None:
    model(target)
    (tmp_path / "link").symlink_to("out")
    (tmp_path / "broken").symlink_to("nowhere")
    (tmp_path / "file").touch()
    os.mkfifo(tmp_path / "pipe")
    refused(tmp_path / "link", "link is a symbolic link")
    refused(tmp_path / "broken", "broken is a symbolic link")
    refused(tmp_path / "file", "file exists and is not a directory")
    refused(tmp_path / "pipe", "pipe exists and is not a directory")


def test_managed_directory_is_always_replaced(target: Path) -> None:
    (target / "anything").touch()
    refused(target, "is not from zoo")
    check_target(target, force=True, managed=True)
    assert (target / "anything").exists()  # a check alone, it removes nothing
