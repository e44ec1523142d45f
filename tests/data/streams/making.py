"""Documents, and files with them, of each format that streams read."""

import gzip
import io
import json
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow
import pyarrow.ipc
import pyarrow.parquet
import zstandard

SENTENCE = "the cat sat on a mat and saw seven small grey mice run over some old stones"
WORDS = SENTENCE.split()


def documents(count: int) -> list[str]:
    """Return texts of different lengths, each of which is unlike all others."""
    texts = []
    for number in range(count):
        start = number % 7
        words = WORDS[start : start + 4 + number % 9]
        texts.append(f"Number {number}. " + " ".join(words) + f". End of {number}.")
    return texts


def json_lines(texts: Sequence[str], field: str = "text") -> bytes:
    lines = [json.dumps({"id": number, field: text}) for number, text in enumerate(texts)]
    return ("\n".join(lines) + "\n").encode()


def write_json_lines(path: Path, texts: Sequence[str], field: str = "text") -> Path:
    """Write JSON lines, compressed as the name says."""
    content = json_lines(texts, field)
    if path.suffix == ".gz":
        content = gzip.compress(content)
    if path.suffix == ".zst":
        content = zstandard.compress(content)
    path.write_bytes(content)
    return path


def table(texts: Sequence[str]) -> pyarrow.Table:
    return pyarrow.table({"id": list(range(len(texts))), "text": list(texts)})


def write_parquet(path: Path, texts: Sequence[str]) -> Path:
    pyarrow.parquet.write_table(table(texts), path, row_group_size=40)
    return path


def write_dataset(folder: Path, texts: Sequence[str]) -> Path:
    """Write what ``Dataset.save_to_disk`` writes; ``test_formats`` compares with the library."""
    folder.mkdir(exist_ok=True)
    half = len(texts) // 2
    names = []
    for number, part in enumerate((texts[:half], texts[half:])):
        names.append(f"data-{number:05}-of-00002.arrow")
        rows = table(part)
        with pyarrow.ipc.new_stream(str(folder / names[-1]), rows.schema) as writer:
            writer.write_table(rows, max_chunksize=25)
    state = {"_data_files": [{"filename": name} for name in names], "_split": None}
    (folder / "state.json").write_text(json.dumps(state))
    (folder / "dataset_info.json").write_text(json.dumps({"features": {}}))
    return folder


def write_tar(path: Path, texts: Sequence[str], column: str = "txt") -> Path:
    """Write a shard of WebDataset, compressed as the name says."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for number, text in enumerate(texts):
            value = json.dumps({"text": text}) if column == "json" else text
            for suffix, data in (("id", str(number)), (column, value)):
                member = tarfile.TarInfo(f"part/{number:06}.{suffix}")
                member.size = len(data.encode())
                archive.addfile(member, io.BytesIO(data.encode()))
    content = buffer.getvalue()
    if path.name.endswith(("gz", ".tgz")):
        content = gzip.compress(content)
    if path.suffix == ".zst":
        content = zstandard.compress(content)
    path.write_bytes(content)
    return path


def write_mds(folder: Path, texts: Sequence[str], *, compressed: bool = False) -> Path:
    """Write shards of 60 samples with a column of a fixed size and two without."""
    folder.mkdir(exist_ok=True)
    entries = []
    for number, start in enumerate(range(0, len(texts), 60)):
        part = texts[start : start + 60]
        samples = []
        for text in part:
            source = b"web"
            sizes = struct.pack("<2I", len(source), len(text.encode()))
            samples.append(sizes + struct.pack("<q", 7) + source + text.encode())
        description = json.dumps({"format": "mds"}).encode()
        place = 4 + 4 * (len(part) + 1) + len(description)
        offsets = [place]
        for sample in samples:
            offsets.append(offsets[-1] + len(sample))
        packed_offsets = struct.pack(f"<{len(offsets)}I", *offsets)
        content = struct.pack("<I", len(part)) + packed_offsets + description + b"".join(samples)
        name = f"shard.{number:05}.mds"
        entry = {
            "column_names": ["id", "source", "text"],
            "column_encodings": ["int", "str", "str"],
            "column_sizes": [8, None, None],
            "compression": "zstd" if compressed else None,
            "format": "mds",
            "hashes": [],
            "raw_data": {"basename": name, "bytes": len(content), "hashes": {}},
            "samples": len(part),
            "size_limit": 1 << 26,
            "version": 2,
            "zip_data": None,
        }
        if compressed:
            name = f"{name}.zstd"
            content = zstandard.compress(content)
            entry["zip_data"] = {"basename": name, "bytes": len(content), "hashes": {}}
        (folder / name).write_bytes(content)
        entries.append(entry)
    (folder / "index.json").write_text(json.dumps({"version": 2, "shards": entries}))
    return folder
