"""What goes wrong: one line that names the file and the place, and nothing left behind."""

import builtins
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from tests.corpus.making import built, paragraphs, trained
from tests.disks import small_disk
from zoo.data.tokenizer import given
from zoo.errors import SourceError, UsageError, VerificationError, ZooError
from zoo.plugins import get_family

__all__ = ["small_disk"]
GOOD = "Some text. It is good.\n" * 100


def parquet(column: str, values: list[Any]) -> Callable[[Path], object]:
    return lambda path: pyarrow.parquet.write_table(pyarrow.table({column: values}), path)


def content(data: bytes) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(data)


BAD: list[tuple[str, Callable[[Path], object], type[ZooError], str]] = [
    ("a.txt", content(b"good\n" * 9 + b"b\xff"), VerificationError, r"not UTF-8: byte 46 \("),
    ("a.txt", content(b"cut \xc3"), VerificationError, "not UTF-8: byte 4 "),
    (
        "a.gz",
        content(gzip.compress(b"x\n\xe9\n")),
        VerificationError,
        "byte 2 of its uncompressed text",
    ),
    ("a.gz", content(gzip.compress(GOOD.encode())[:-9]), VerificationError, "is damaged"),
    ("a.gz", content(b"no gzip"), VerificationError, "is damaged"),
    ("a.zst", content(zstandard.compress(GOOD.encode())[:-3]), VerificationError, "breaks off"),
    ("a.zst", content(b"no zstd"), VerificationError, "is damaged"),
    ("a.parquet", content(b"no parquet"), VerificationError, "is not a Parquet file"),
    ("a.parquet", parquet("texts", ["x"]), UsageError, r"no field 'text'; did you mean texts\?"),
    ("a.parquet", parquet("text", ["x", None]), VerificationError, "row 2: 'text' is no text"),
    ("a.parquet", parquet("text", [1]), VerificationError, "row 1: 'text' is no text"),
    ("a.jsonl", content(b'{"text": "x"}\n{"Text": "x"}'), UsageError, "line 2 has no field 'text'"),
    ("a.jsonl", content(b'{"text": "x"}\n\n{"text"'), VerificationError, "line 3 is not JSON"),
    ("a.jsonl", content(b'{"text": null}'), VerificationError, "line 1: 'text' is no text"),
    ("a.jsonl", content(b'{"text": "\\ud800"}'), VerificationError, "line 1"),
    ("a.jsonl", content(b'["text"]'), VerificationError, "line 1 is no JSON object"),
    ("a.txt", content(b""), SourceError, "there is no text in"),
    ("a.txt", content(b" \n\t\n\r\n"), SourceError, "there is no text in"),
]


@pytest.mark.parametrize(("name", "write", "kind", "message"), BAD)
def test_a_bad_file_is_one_line_and_leaves_nothing(
    tmp_path: Path,
    name: str,
    write: Callable[[Path], object],
    kind: type[ZooError],
    message: str,
) -> None:
    source = tmp_path / "in" / name
    source.parent.mkdir()
    write(source)
    with pytest.raises(kind, match=message) as caught:
        built(tmp_path / "out" / "corpus", source)
    assert str(source) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_a_fault_in_a_process_that_reads_for_others(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(GOOD.encode() + b"\xff")
    with pytest.raises(VerificationError, match="byte 2300"):
        built(tmp_path / "out", tmp_path / "a.txt", workers=2)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("nowhere", "does not exist"),
        ("*.nothing", "matches nothing"),
        ("empty", "no files in"),
        ("link", "no files in link"),
        ("li*", r"no files in li\*"),
    ],
)
def test_paths_that_lead_nowhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, path: str, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()
    Path("link").symlink_to("gone")
    with pytest.raises(SourceError, match=message):
        built(tmp_path / "out", Path(path))


@pytest.mark.parametrize(
    ("name", "module", "extra"),
    [("a.parquet", "pyarrow", "parquet"), ("a.zst", "zstandard", "zstd")],
)
def test_a_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str, extra: str
) -> None:
    real = builtins.__import__

    def without(asked: str, *rest: Any) -> Any:
        if asked.split(".")[0] == module:
            raise ImportError(asked)
        return real(asked, *rest)

    (tmp_path / name).write_bytes(b"x")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(SourceError, match=rf"plm-zoo\[{extra}\]"):
        built(tmp_path / "out", tmp_path / name)


def test_too_few_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One document. Alone.")
    with pytest.raises(UsageError, match="one document cannot be split"):
        built(tmp_path / "out", tmp_path / "a.txt", validation=0.01)
    (tmp_path / "a.txt").write_text("One document.\n\nTwo.")
    with pytest.raises(UsageError, match="no text is left for train"):
        built(tmp_path / "out", tmp_path / "a.txt", validation=0.999)


def test_an_existing_output_is_kept_unless_forced(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(GOOD)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("mine")
    with pytest.raises(UsageError, match="out exists; give --force"):
        built(tmp_path / "out", tmp_path / "a.txt")
    with pytest.raises(UsageError, match="is not from zoo: it holds mine"):
        built(tmp_path / "out", tmp_path / "a.txt", force=True)
    assert (tmp_path / "out" / "mine").exists()
    (tmp_path / "out" / "mine").unlink()
    for _ in range(2):
        built(tmp_path / "out", tmp_path / "a.txt", force=True)
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(UsageError, match="out holds mine, which zoo did not write"):
        built(tmp_path / "out", tmp_path / "a.txt", force=True)


def test_a_full_disk(tmp_path: Path, small_disk: Path) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(paragraphs() * 100))
    with pytest.raises(UsageError, match="No space left"):
        built(small_disk / "out", tmp_path / "a.txt")
    assert list(small_disk.iterdir()) == []


def test_a_tokenizer_that_is_not_there(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    with pytest.raises(UsageError, match="has no tokenizer files"):
        given(str(tmp_path / "model"))
    (tmp_path / "model" / "tokenizer.json").write_bytes(trained("bert").json)
    with pytest.raises(UsageError, match=r"what family .* give --family"):
        given(str(tmp_path / "model"))
    assert given(str(tmp_path / "model"), get_family("bert")).info.special["pad"] == "[PAD]"


@pytest.mark.parametrize(
    ("family", "size", "kind", "message"),
    [
        ("bert", 10, None, "10 tokens are too few"),
        ("roberta", 200, None, "200 tokens are too few: .* 261"),
        ("t5", 120, None, "120 tokens"),
        ("bert", 500, "unigram", "no unigram can be trained for bert; its kinds are wordpiece"),
    ],
)
def test_a_tokenizer_that_cannot_be(family: str, size: int, kind: str | None, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        trained(family, size=size, kind=kind)


def zoo(*arguments: str, **options: Any) -> "subprocess.Popen[str]":
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, "-m", "zoo", *arguments], **pipes, **options)


def test_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": p}) + "\n" for p in paragraphs()))
    place = ["-o", str(tmp_path / "out"), "--json"]
    command = ["corpus", "build", str(tmp_path / "a.jsonl"), *place, "--tokenizer", "train"]
    for extra, code, word in (
        ((), 2, "give --family"),
        (("--family", "bert"), 2, "no field 'text'"),
        (("--family", "brt"), 2, "did you mean bert"),
        (("--family", "bert", "--text-field", "body", "--vocab-size", "400"), 0, ""),
    ):
        process = zoo(*command, *extra)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, word in err) == (code, True), err
        assert len(err.splitlines()) == (1 if code else 0)
    assert json.loads(out)["splits"]["train"]["documents"] > 50
    own = ["-o", str(tmp_path / "other"), "--tokenizer", str(tmp_path / "out"), "--kind", "words"]
    process = zoo("corpus", "build", *own, str(tmp_path / "a.jsonl"))
    assert "--kind is for a tokenizer to train" in process.communicate(timeout=60)[1]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_a_build_that_is_stopped(tmp_path: Path, number: int) -> None:
    (tmp_path / "a.txt").write_text("\n\n".join(paragraphs() * 1000))
    Path(tmp_path / "tokenizer").mkdir()
    (tmp_path / "tokenizer" / "tokenizer.json").write_bytes(trained("bert").json)
    process = zoo(
        *("corpus", "build", str(tmp_path / "a.txt"), "-o", str(tmp_path / "out")),
        *("--tokenizer", str(tmp_path / "tokenizer"), "--family", "bert", "--workers", "2"),
        start_new_session=True,
    )
    deadline = time.monotonic() + 60
    while not list(tmp_path.glob(".out.*/train/tokens-*")) and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, number)
    _, err = process.communicate(timeout=60)  # ends when no child holds the pipe
    assert process.returncode == (-number if number == signal.SIGKILL else 130), err
    if number != signal.SIGKILL:
        assert err == "error: interrupted\n"
        assert not [p for p in tmp_path.iterdir() if "out" in p.name]
