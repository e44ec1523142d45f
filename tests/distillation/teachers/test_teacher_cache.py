"""The cache of a teacher's outputs on disk: what is read back, and what is refused."""

import hashlib
import json
import signal
import subprocess
import sys
import tracemalloc
from pathlib import Path

import msgspec
import numpy as np
import pytest
from blake3 import blake3

from tests.inference.making import make_checkpoint
from zoo.distillation.teachers import record_file, teacher_cache
from zoo.distillation.teachers.teacher_cache import CacheHeader, TeacherCache
from zoo.errors import SourceError, UsageError, VerificationError, ZooError
from zoo.io.digests.self_digest import NO_DIGEST, add_digest

HEADER = CacheHeader(
    teacher={"model.safetensors": "a"},
    dtype="float32",
    backend="torch",
    outputs=["logits"],
    top_k=2,
    classes=9,
    temperatures=[2.0],
)


def key(number: int) -> bytes:
    return hashlib.md5(str(number).encode()).digest()


def record(number: int) -> "np.ndarray[tuple[int], np.dtype[np.uint8]]":
    """Return a record that follows from its number, of 0 to 299 bytes."""
    return np.random.default_rng(number).integers(0, 256, number * 7 % 300, dtype=np.uint8)


def opened(folder: Path, rank: int = 0, header: CacheHeader = HEADER) -> TeacherCache:
    cache = TeacherCache(folder / "cache", header)
    cache.open(rank)
    return cache


def write(folder: Path, numbers: range, rank: int = 0) -> None:
    cache = opened(folder, rank)
    for number in numbers:
        cache.add(key(number), record(number))
    cache.close()


def require_records(cache: TeacherCache, numbers: range) -> None:
    for number in numbers:
        data = cache.get(key(number))
        assert data is not None
        np.testing.assert_array_equal(data, record(number))


def test_records_are_read_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(teacher_cache, "BLOCK_BYTES", 1000)
    monkeypatch.setattr(record_file, "RECENT", 16)
    cache = opened(tmp_path)
    for number in range(100):
        cache.add(key(number), record(number))
    require_records(cache, range(100))  # on disk, and in memory
    assert cache.get(key(100)) is None
    cache.close()
    write(tmp_path, range(50, 120))
    cache = opened(tmp_path)
    require_records(cache, range(120))
    cache.close()


def test_the_first_record_of_a_key_stays(tmp_path: Path) -> None:
    write(tmp_path, range(3))
    cache = opened(tmp_path)
    cache.add(key(2), record(40))
    require_records(cache, range(3))
    cache.close()


def test_a_rank_reads_its_own_file(tmp_path: Path) -> None:
    first, second = opened(tmp_path, 0), opened(tmp_path, 1)
    first.add(key(1), record(1))
    second.add(key(2), record(2))
    first.close()
    second.close()
    cache = opened(tmp_path, 1)
    assert cache.get(key(1)) is None
    require_records(cache, range(2, 3))
    cache.close()


def test_records_are_not_held_in_memory(tmp_path: Path) -> None:
    cache, data = opened(tmp_path), np.zeros(1 << 16, np.uint8)
    tracemalloc.start()
    for number in range(320):  # 20 MB
        cache.add(key(number), data)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    cache.close()
    assert peak < 4 * teacher_cache.BLOCK_BYTES


CHILD = """
import sys
from pathlib import Path
from tests.distillation.teachers.test_teacher_cache import key, opened, record
from tests.inference.making import make_checkpoint
from zoo.distillation.teachers import record_file, teacher_cache
teacher_cache.BLOCK_BYTES = 500
cache, number = opened(Path(sys.argv[1])), 0
while True:
    cache.add(key(number), record(number))
    number += 1
    if number == 300:
        print("ready", flush=True)
"""


@pytest.mark.long
def test_a_killed_process_leaves_complete_records(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    assert child.stdout.readline() == "ready\n"
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    cache = opened(tmp_path)
    require_records(cache, range(295))  # but for those of the last block
    cache.close()
    write(tmp_path, range(400, 500))
    cache = opened(tmp_path)
    require_records(cache, range(295))
    require_records(cache, range(400, 500))
    cache.close()


def test_what_a_killed_process_left_half_written_is_cut_off(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    file = tmp_path / "cache" / "outputs-0.bin"
    whole = file.read_bytes()
    for torn in (b"\x00", whole[:100], whole):
        file.write_bytes(whole + torn)
        cache = opened(tmp_path)
        require_records(cache, range(10))
        cache.close()
        assert file.read_bytes() == whole


def refusal(folder: Path, header: CacheHeader = HEADER) -> ZooError:
    """Return the error of a cache, which says what to delete."""
    with pytest.raises((UsageError, VerificationError)) as caught:
        opened(folder, header=header)
    assert str(caught.value).endswith(f"; delete {folder / 'cache'}, or give another directory")
    assert "\n" not in str(caught.value)
    return caught.value


def test_a_truncated_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    file = tmp_path / "cache" / "outputs-0.bin"
    file.write_bytes(file.read_bytes()[:-1])
    assert "truncated" in refusal(tmp_path).what


def test_a_missing_file_is_refused_and_not_made(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    (tmp_path / "cache" / "outputs-0.bin").unlink()
    assert "outputs-0.bin is missing" in refusal(tmp_path).what
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["outputs-0.json"]


def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    write(tmp_path, range(10))
    write(tmp_path, range(10, 20))
    for name in ("outputs-0.bin", "outputs-0.json"):
        file = tmp_path / "cache" / name
        whole = file.read_bytes()
        for place in (0, len(whole) // 2, len(whole) - 3):
            damaged = bytearray(whole)
            damaged[place] ^= 8
            file.write_bytes(damaged)
            refusal(tmp_path)
        file.write_bytes(whole)
    cache = opened(tmp_path)
    require_records(cache, range(20))
    cache.close()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"teacher": {"model.safetensors": "b"}}, "from another teacher"),
        ({"top_k": 3}, "for top_k 2, not 3"),
        ({"dtype": "bfloat16"}, "for dtype float32, not bfloat16"),
        ({"temperatures": [1.0, 2.0]}, "for temperatures 2.0, not 1.0, 2.0"),
    ],
)
def test_a_stale_cache_is_refused(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    write(tmp_path, range(3), rank=1)
    error = refusal(tmp_path, msgspec.structs.replace(HEADER, **changes))
    assert message in error.what
    assert json.loads((tmp_path / "cache" / "outputs-1.json").read_text())["header"]["top_k"] == 2


def test_another_run_cannot_write_the_same_files(tmp_path: Path) -> None:
    cache = opened(tmp_path)
    with pytest.raises(UsageError, match="another process writes the cache"):
        opened(tmp_path)
    cache.close()
    opened(tmp_path).close()


@pytest.mark.parametrize("name", ["outputs-0.bin", "notes.txt", "teacher-1/notes.txt", "zoo.json"])
def test_a_directory_with_files_of_others_is_not_touched(tmp_path: Path, name: str) -> None:
    """A user's outputs-0.bin has no record next to it."""
    file = tmp_path / "cache" / name
    file.parent.mkdir(parents=True)
    file.write_text("mine")
    with pytest.raises(UsageError, match=f"holds {name}, which is not part of a cache; give ano"):
        opened(tmp_path)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == [file]
    assert file.read_text() == "mine"


@pytest.mark.parametrize("folder", ["cache", "cache/inner"])
def test_a_cache_is_not_made_within_a_model(tmp_path: Path, folder: str) -> None:
    model = make_checkpoint(tmp_path / "cache").path
    before = sorted(model.rglob("*"))
    with pytest.raises(UsageError, match=r"(is inside|holds) .*"):
        TeacherCache(tmp_path / folder, HEADER).open(0)
    assert sorted(model.rglob("*")) == before


@pytest.mark.parametrize("name", ["outputs-0.bin", "outputs-0.json"])
@pytest.mark.parametrize("link", ["symbolic", "hard"])
def test_links_out_of_the_cache_are_not_followed(tmp_path: Path, name: str, link: str) -> None:
    write(tmp_path, range(10))
    file, other = tmp_path / "cache" / name, tmp_path / "mine"
    content = file.read_bytes()
    file.rename(other)
    if link == "symbolic":
        file.symlink_to(other)
    else:
        file.hardlink_to(other)
    if (name, link) == ("outputs-0.json", "hard"):  # which is replaced and never written
        write(tmp_path, range(10, 20))
    else:
        with pytest.raises(SourceError, match=f"{name} (leads through a link|has a second name)"):
            opened(tmp_path)
    assert other.read_bytes() == content


def test_records_that_do_not_end_with_their_block_are_refused(tmp_path: Path) -> None:
    """The block has the right digest: another program wrote it."""
    write(tmp_path, range(3))
    file, manifest = (tmp_path / "cache" / f"outputs-0.{end}" for end in ("bin", "json"))
    records = key(0) + (100).to_bytes(4, "little") + b"short"
    digest = blake3(records).digest(16)
    file.write_bytes(len(records).to_bytes(8, "little") + digest + records)
    record = json.loads(manifest.read_text())
    record |= {"complete": file.stat().st_size, "digest": NO_DIGEST}
    manifest.write_bytes(add_digest(json.dumps(record).encode()))
    assert "is damaged at byte" in refusal(tmp_path).what
