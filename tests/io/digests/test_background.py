"""Digests of files that are computed while the files are written."""

from contextlib import closing
from pathlib import Path

from blake3 import blake3

from zoo.io.digests.background import BackgroundHasher
from zoo.io.digests.verified import file_blake3
from zoo.io.files import count_reads

CONTENT = b"abc" * 1000


def test_digests_of_written_files_are_reused_until_they_change(tmp_path: Path) -> None:
    path = tmp_path / "weights"
    reads: list[int] = []
    with closing(BackgroundHasher()) as hasher:
        with hasher.create(path) as file:
            file.write(CONTENT)
        digests = hasher.collect([path], tmp_path)
        assert digests["weights"].blake3 == blake3(CONTENT).hexdigest()
        with count_reads([str(path)], reads.append):
            with hasher.reuse():
                assert file_blake3(path) == digests["weights"].blake3
                assert not reads
                path.write_bytes(CONTENT[::-1])
                assert file_blake3(path) == blake3(CONTENT[::-1]).hexdigest()
                assert sum(reads) == len(CONTENT)
            file_blake3(path)
            assert sum(reads) == 2 * len(CONTENT)  # read again after the block
