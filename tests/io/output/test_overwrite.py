"""``--force`` replaces output of zoo only."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from zoo.errors import UsageError
from zoo.io.digests.files import hash_file
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.output.overwrite import check_target


@pytest.fixture
def target(tmp_path: Path) -> Path:
    (tmp_path / "out").mkdir()
    return tmp_path / "out"


def manifest(target: Path, name: str, **content: object) -> None:
    record = {"zoo": 1, "created_by": {"plm-zoo": "1"}, "digest": NO_DIGEST, **content}
    (target / name).write_bytes(add_digest(json.dumps(record).encode()))


def written(target: Path, *names: str) -> dict[str, dict[str, object]]:
    """Write files, and return their entries in a manifest."""
    files = {}
    for name in names:
        (target / name).parent.mkdir(exist_ok=True)
        (target / name).write_text(f"content of {name}")
        files[name] = msgspec.to_builtins(hash_file(target / name))
    return files


def model(target: Path) -> None:
    manifest(target, "zoo.json", files=written(target, "config.json", "sub/weights"), licence="mit")


def hub(target: Path) -> None:
    manifest(target, ".zoo.json", files=written(target, "config.json", "README.md"))


def corpus(target: Path) -> None:
    files, digest = written(target, "train/tokens"), written(target, "tokenizer.json")
    manifest(
        target,
        "corpus.json",
        splits={"train": {"files": files}},
        tokenizer_digest=digest["tokenizer.json"]["blake3"],
    )


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


@pytest.mark.parametrize(
    ("make", "name"), [(model, "sub/weights"), (hub, "README.md"), (corpus, "tokenizer.json")]
)
@pytest.mark.parametrize("longer", [False, True])
def test_an_edited_file_is_named(
    target: Path, make: Callable[[Path], None], name: str, longer: bool
) -> None:
    make(target)
    content = (target / name).read_text()
    (target / name).write_text(content + "." if longer else content.upper())
    refused(target, f"out holds {name}, changed after zoo wrote it; --force replaces only")


def test_a_file_that_became_a_link(target: Path, tmp_path: Path) -> None:
    model(target)
    (target / "config.json").rename(tmp_path / "elsewhere")
    (target / "config.json").symlink_to(tmp_path / "elsewhere")
    refused(target, "holds config.json, changed after zoo wrote it")


@pytest.mark.parametrize("files", [{"notes.txt": {}}, {"notes.txt": {"bytes": 4, "blake3": "0"}}])
def test_a_forged_manifest_deletes_nothing(target: Path, files: dict[str, object]) -> None:
    (target / "notes.txt").write_text("mine")
    manifest(target, "zoo.json", files=files)
    refused(target, "out (is not from zoo|holds notes.txt, changed after)")
    record = json.loads((target / "zoo.json").read_text())
    record["files"] = written(target, "notes.txt")
    (target / "zoo.json").write_text(json.dumps(record))  # its digest is not right
    refused(target, "out is not from zoo")


@pytest.mark.parametrize("record", ["run.json", "seeds.json", "stages.json"])
def test_the_model_of_a_run_is_replaced_by_the_run_only(
    target: Path, tmp_path: Path, record: str
) -> None:
    model(target)
    (tmp_path / record).write_text("{}")
    refused(target, r"out belongs to the training run .*; give another -o; `zoo pretrain -o DIR`")
    check_target(target, force=True, in_run=True)


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
