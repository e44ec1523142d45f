"""Files and folders that are uploaded."""

import random
from pathlib import Path

import pytest

from tests.remote import DENIED, Store
from zoo.errors import SourceError, UsageError
from zoo.io.remote import client
from zoo.io.remote.publish import RemoteOutput, publish_changes, publishing
from zoo.io.urls import RemoteUrl, parse_url


def output_at(url: str, use: str = "output") -> RemoteOutput:
    parsed = parse_url(url)
    assert isinstance(parsed, RemoteUrl)
    return RemoteOutput(parsed, use)  # type: ignore[arg-type]


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)


@pytest.mark.long
def test_a_file_of_several_parts(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "PART_BYTES", 5 << 20)
    content = random.Random(2).randbytes(13 << 20)
    (tmp_path / "a.bin").write_bytes(content)
    store.failing = 0.25
    url = parse_url(store.at("a.bin"))
    assert url is not None
    client.upload(tmp_path / "a.bin", url)
    store.failing = 0
    assert store["a.bin"] == content
    parts = {path for method, path in store.log if method == "PUT" and "partNumber" in path}
    assert len(parts) >= 3 and store.failed


def test_an_upload_that_fails_leaves_nothing_and_keeps_the_output(store: Store) -> None:
    output = output_at(f"s3://{DENIED}/model")
    write(output.path, {"zoo.json": b"{}", "model.safetensors": b"1"})
    with pytest.raises(SourceError, match="access is denied") as error, publishing([output]):
        pass
    assert "what was not uploaded is in" in error.value.hint
    assert (output.path / "model.safetensors").exists()


def test_only_changes_are_uploaded_and_removed_files_go(store: Store) -> None:
    output = output_at(store.at("run"), "run")
    output.begin(force=False, resume=False)
    with publishing([output]):
        write(output.path, {"run.json": b"{}", "c/1/state.json": b"1", "c/1/weights": b"w"})
        publish_changes(output.path / "c")
        assert sorted(store.names()) == ["run/c/1/state.json", "run/c/1/weights", "run/run.json"]
        store.log.clear()
        write(output.path, {"c/2/state.json": b"2", ".lock": b"", "c/2/x.part": b""})
        (output.path / "c/1/state.json").unlink()
        (output.path / "c/1/weights").unlink()
        publish_changes(output.path)
    changes = [(m, p.partition("/run/")[2]) for m, p in store.log if m in ("PUT", "DELETE")]
    assert changes == [
        ("PUT", "c/2/state.json"),
        ("DELETE", "c/1/state.json"),
        ("DELETE", "c/1/weights"),
    ]
    assert not output.path.exists()


def test_a_run_is_downloaded_unless_what_is_here_is_newer(store: Store) -> None:
    output = output_at(store.at("run"), "run")
    output.begin(force=False, resume=False)
    write(output.path, {"run.json": b"{}", "log": b"1"})
    output.upload_changes()
    write(output.path, {"log": b"12", "c/state.json": b"2"})
    output.end()  # The process was killed before another upload.
    again = output_at(store.at("run"), "run")
    again.begin(force=False, resume=True)
    assert (again.path / "log").read_bytes() == b"12"
    again.end()
    store["run/log"] = b"another machine"
    other = output_at(store.at("run"), "run")
    other.begin(force=False, resume=True)
    assert (other.path / "log").read_bytes() == b"another machine"
    assert not (other.path / "c").exists()
    other.end()


def test_two_processes_do_not_write_one_output(store: Store) -> None:
    output = output_at(store.at("run"), "run")
    output.begin(force=False, resume=False)
    with pytest.raises(UsageError, match="another process is writing"):
        output_at(store.at("run"), "run").begin(force=False, resume=False)
    output.end()


def test_a_run_that_does_not_exist_is_not_resumed(store: Store) -> None:
    with pytest.raises(SourceError, match="run does not exist"):
        output_at(store.at("run"), "run").begin(force=False, resume=True)
