"""Failed corpus builds: an error of one line that names file and line, and no output."""

import builtins
import gzip
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
import zstandard

from tests.data.making import built, paragraphs, trained
from tests.disks import small_disk
from tests.processes import run_limited
from zoo.data import build as build_module
from zoo.data.cache import cached_corpus
from zoo.data.encoding import EncodedDocuments, encode_all
from zoo.data.readers.documents import expand_paths
from zoo.data.readers.text_io import read_pieces
from zoo.data.tokenizer import load_tokenizer
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
        content(gzip.compress(b"x\n\xe9\n", mtime=0)),
        VerificationError,
        "byte 2 of its uncompressed text",
    ),
    ("a.gz", content(gzip.compress(GOOD.encode(), mtime=0)[:-9]), VerificationError, "is damaged"),
    ("a.gz", content(b"no gzip"), VerificationError, "is damaged"),
    ("a.zst", content(zstandard.compress(GOOD.encode())[:-3]), VerificationError, "breaks off"),
    ("a.zst", content(b"no zstd"), VerificationError, "is damaged"),
    ("a.parquet", content(b"no parquet"), VerificationError, "is not a Parquet file"),
    ("a.parquet", parquet("texts", ["x"]), UsageError, r"no field 'text'; did you mean texts\?"),
    ("a.parquet", parquet("text", ["x", None]), VerificationError, "row 2: 'text' is not a string"),
    ("a.parquet", parquet("text", [1]), VerificationError, "row 1: 'text' is not a string"),
    ("a.jsonl", content(b'{"text": "x"}\n{"Text": "x"}'), UsageError, "line 2 has no field 'text'"),
    ("a.jsonl", content(b'{"text": "x"}\n\n{"text"'), VerificationError, "line 3 is not JSON"),
    ("a.jsonl", content(b'{"text": null}'), VerificationError, "line 1: 'text' is not a string"),
    ("a.jsonl", content(b'{"text": "\\ud800"}'), VerificationError, "line 1"),
    ("a.jsonl", content(b'["text"]'), VerificationError, "line 1 is not a JSON object"),
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
        ("link", "link does not exist"),
        ("li*", r"li\* matches nothing"),
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


def test_files_that_are_not_regular_are_errors(tmp_path: Path) -> None:
    """Reading a pipe would block, and a device has no end."""
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "folder" / "pipe")
    for path in (tmp_path / "folder", tmp_path / "folder" / "pipe", Path("/dev/zero")):
        with pytest.raises(SourceError, match=r"(pipe|/dev/zero) is not a regular file"):
            built(tmp_path / "out", path)


def test_links_that_lead_upwards_are_not_followed(tmp_path: Path) -> None:
    """Two such links make the number of paths exponential."""
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "deep" / "a.txt").write_text(GOOD)
    for name in ("up", "again"):
        (tmp_path / "in" / "deep" / name).symlink_to(tmp_path / "in")
    for pattern in ("in", "in/**", "in/**/*.txt", "**/*.txt"):
        assert expand_paths([tmp_path / pattern]) == [tmp_path / "in" / "deep" / "a.txt"]


@pytest.mark.parametrize("path", ["a\0b", "~nobody-of-this-name/x", "x" * 5000, "**x"])
def test_a_path_that_no_file_can_have_is_one_line(path: str) -> None:
    with pytest.raises(SourceError):
        expand_paths([path])


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_a_folder_that_cannot_be_read_is_not_passed_over(tmp_path: Path) -> None:
    (tmp_path / "in" / "closed").mkdir(parents=True, mode=0o000)
    (tmp_path / "in" / "a.txt").write_text(GOOD)
    with pytest.raises(SourceError, match="closed: Permission denied"):
        expand_paths([tmp_path / "in"])


@pytest.mark.by_default("a.zst")
@pytest.mark.parametrize("name", ["a.gz", "a.zst"])
def test_a_file_that_unpacks_to_a_thousand_times_its_size_is_refused(
    tmp_path: Path, name: str
) -> None:
    content = b"word " * (20 << 20)
    packed = gzip.compress(content) if name == "a.gz" else zstandard.compress(content)
    (tmp_path / name).write_bytes(packed)
    done = run_limited(
        [sys.executable, "-c", READ, tmp_path / name], address_space=1 << 30, seconds=120
    )
    assert done.returncode == 0, done.stderr
    assert "unpacks to more than 500 times its" in done.stdout


READ = """
import sys; from pathlib import Path
from zoo.data.readers.documents import ReaderConfig, read_documents
from zoo.errors import VerificationError
try:
    print(sum(map(len, read_documents([Path(sys.argv[1])], ReaderConfig()))))
except VerificationError as error:
    print(error)
"""


@pytest.mark.long
def test_a_parquet_file_of_one_text_many_times_is_read_within_limits(tmp_path: Path) -> None:
    """All rows in memory would take 500 MB."""
    table = pyarrow.table({"text": pyarrow.array(["word " * (1 << 20)] * 100)})
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet", compression="zstd")
    del table
    done = run_limited([sys.executable, "-c", READ, tmp_path / "a.parquet"], seconds=120)
    assert done.returncode == 0, done.stderr
    assert done.peak_bytes < 400 << 20
    assert int(done.stdout) > 100 * (5 << 20) - 1000  # except for spaces at cuts


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (b'{"a": ' + b"[" * 50_000 + b"]" * 50_000 + b"}", "nested too deeply"),
        (b'{"text": "' + b"x" * (33 << 20) + b'"}', "and at most 33,554,432 is accepted"),
        (b'{"text": "a", "n": 1e999}{', "line 1 is not JSON"),
        (b"\x00\x00\x00\x00", "line 1 is not JSON"),
        (b'{"text": 5}', "'text' is not a string"),
    ],
    ids=["deep", "long", "trailing", "zeros", "number"],
)
def test_a_row_of_json_that_does_not_do(tmp_path: Path, row: bytes, message: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(row + b"\n")
    with pytest.raises(VerificationError, match=message):
        built(tmp_path / "out", tmp_path / "a.jsonl")


def test_a_file_that_changes_while_it_is_read_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change is detected even if size and modification time stay the same."""
    source = tmp_path / "a.txt"
    source.write_text(GOOD)
    state = source.stat()
    real = encode_all

    def encode(*arguments: Any) -> Iterator[EncodedDocuments]:
        yield from real(*arguments)
        source.write_text(GOOD.replace("good", "goat"))
        os.utime(source, ns=(state.st_atime_ns, state.st_mtime_ns))

    monkeypatch.setattr(build_module, "encode_all", encode)
    with pytest.raises(VerificationError, match=r"a\.txt changed while it was read"):
        built(tmp_path / "out", source)
    assert not (tmp_path / "out").exists()


def test_a_file_whose_name_is_not_utf_8(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    Path(os.fsdecode(os.fsencode(tmp_path / "in") + b"/a\xff.txt")).write_text(GOOD)
    corpus = built(tmp_path / "out", tmp_path / "in")
    assert [name.rpartition("/")[2] for name in corpus.record.sources] == ["a\\xff.txt"]


@pytest.mark.parametrize(("name", "module"), [("a.parquet", "pyarrow"), ("a.zst", "zstandard")])
def test_a_missing_library_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, module: str
) -> None:
    real = builtins.__import__

    def without(requested: str, *rest: Any) -> Any:
        if requested.split(".")[0] == module:
            raise ImportError(requested)
        return real(requested, *rest)

    (tmp_path / name).write_bytes(b"x")
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(
        SourceError, match=f"takes {module}, which is not installed; pip install {module}"
    ):
        built(tmp_path / "out", tmp_path / name)


def test_too_few_documents(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("One document. Alone.")
    with pytest.raises(UsageError, match="one document cannot be split"):
        built(tmp_path / "out", tmp_path / "a.txt", eval_fraction=0.01)
    (tmp_path / "a.txt").write_text("One document.\n\nTwo.")
    with pytest.raises(UsageError, match="no text is left for train"):
        built(tmp_path / "out", tmp_path / "a.txt", eval_fraction=0.999)


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
        load_tokenizer(str(tmp_path / "model"))
    (tmp_path / "model" / "tokenizer.json").write_bytes(trained("bert").json)
    with pytest.raises(UsageError, match=r"what family .* give --family"):
        load_tokenizer(str(tmp_path / "model"))
    assert (
        load_tokenizer(str(tmp_path / "model"), get_family("bert")).info.special["pad"] == "[PAD]"
    )


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
    options.setdefault("env", {**os.environ})  # without $COLUMNS, which readline sets behind Python
    return subprocess.Popen([sys.executable, "-m", "zoo", *arguments], **pipes, **options)


def test_from_the_command_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": p}) + "\n" for p in paragraphs()))
    place = ["-o", str(tmp_path / "out"), "--json"]
    command = ["corpus", "build", str(tmp_path / "a.jsonl"), *place, "--tokenizer", "train"]
    for extra, code, word in (
        ((), 2, "give --family"),
        (("--family", "bert"), 2, "no field 'text'"),
        (("--family", "brt"), 2, "did you mean bert"),
        (("--family", "bert", "--text", "body", "--vocab-size", "400"), 0, ""),
    ):
        process = zoo(*command, *extra)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, word in err) == (code, True), err
        errors = [line for line in err.splitlines() if not line.startswith("tokenizer: ")]
        assert len(errors) == (1 if code else 0)
    assert json.loads(out)["splits"]["train"]["documents"] > 50
    target = ["-o", str(tmp_path / "other"), "--tokenizer", str(tmp_path / "out")]
    options = [*target, "--tokenizer-type", "words"]
    process = zoo("corpus", "build", *options, str(tmp_path / "a.jsonl"))
    assert "--tokenizer-type is for a tokenizer to train" in process.communicate(timeout=60)[1]


@pytest.mark.parametrize(
    "number",
    [
        signal.SIGKILL,
        pytest.param(signal.SIGINT, marks=pytest.mark.long),
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
    ],
)
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
    _, err = process.communicate(timeout=60)  # returns when no child holds the pipe
    assert process.returncode == (-number if number == signal.SIGKILL else 130), err
    if number != signal.SIGKILL:
        assert err == "error: interrupted\n"
        assert not [p for p in tmp_path.iterdir() if "out" in p.name]


def test_a_built_corpus_is_not_read_as_text(tmp_path: Path) -> None:
    one, text, tokenizer = tmp_path / "corpora" / "one", tmp_path / "a.txt", trained("bert")
    text.write_text(GOOD)
    built(one, text, tokenizer=tokenizer)
    for paths in ([one, one], [one, text], [text, tmp_path / "corpora"]):
        with pytest.raises(UsageError, match=f"{one} is a built corpus, where texts are read"):
            cached_corpus(paths, tokenizer)
    with pytest.raises(UsageError, match="held-out documents of its own; leave --eval out"):
        cached_corpus([one], tokenizer, eval_paths=[text])


def test_a_window_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    """A frame by RFC 8878, section 3.1.1.1.2: a window of 2**31 bytes, and an empty last block.

    One of 2**27 bytes is read, also where the header is split between two reads.
    """
    magic = b"\x28\xb5\x2f\xfd"
    file = tmp_path / "a.zst"
    file.write_bytes(magic + bytes([0, (31 - 10) << 3]) + b"\x01\x00\x00")
    with pytest.raises(VerificationError) as caught:
        list(read_pieces(file))
    assert "takes 2,048 MiB of memory to decompress" in str(caught.value)
    assert "the limit is 128 MiB; compress it again" in str(caught.value)
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27)
    compressor = zstandard.ZstdCompressor(compression_params=parameters)
    frames = []
    for length in range(40):
        stream = compressor.compressobj()
        frames.append(stream.compress(os.urandom(length * 50)) + stream.flush())
    file.write_bytes(b"".join(frames))
    assert zstandard.get_frame_parameters(frames[1]).window_size == 1 << 27
    assert sum(map(len, read_pieces(file))) == sum(length * 50 for length in range(40))
