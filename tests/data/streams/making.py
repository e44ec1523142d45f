"""Documents, and files with them, of each format that streams read."""

import gzip
import hashlib
import io
import json
import struct
import tarfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
    """Write what ``MDSWriter`` writes of a column of a fixed size and two without, with hashes.

    Its source is mosaicml/streaming, ``streaming/base/format/mds/writer.py`` and
    ``streaming/base/format/base/writer.py``. Shards have 60 samples.
    """
    folder.mkdir(exist_ok=True)
    config = {
        "version": 2,
        "format": "mds",
        "compression": "zstd" if compressed else None,
        "hashes": ["sha1", "sha256"],
        "size_limit": 1 << 26,
        "column_names": ["id", "source", "text"],
        "column_encodings": ["int", "str", "str"],
        "column_sizes": [8, None, None],
    }
    config_data = json.dumps(config, sort_keys=True).encode()
    shards = []
    for number, start in enumerate(range(0, len(texts), 60)):
        samples = []
        for place, text in enumerate(texts[start : start + 60]):
            source = b"web"
            sizes = struct.pack("<2I", len(source), len(text.encode()))
            samples.append(sizes + struct.pack("<q", start + place) + source + text.encode())
        offsets = [4 + 4 * (len(samples) + 1) + len(config_data)]
        for sample in samples:
            offsets.append(offsets[-1] + len(sample))
        packed_offsets = struct.pack(f"<{len(offsets)}I", *offsets)
        content = struct.pack("<I", len(samples)) + packed_offsets + config_data + b"".join(samples)
        name = f"shard.{number:05}.mds"
        shard = {
            **config,
            "samples": len(samples),
            "raw_data": mds_file(name, content),
            "zip_data": None,
        }
        if compressed:
            name = f"{name}.zstd"
            content = zstandard.compress(content)
            shard["zip_data"] = mds_file(name, content)
        (folder / name).write_bytes(content)
        shards.append(shard)
    index = json.dumps({"version": 2, "shards": shards}, sort_keys=True)
    (folder / "index.json").write_text(index)
    return folder


def mds_file(name: str, content: bytes) -> dict[str, Any]:
    """Return what ``index.json`` says of a file."""
    hashes = {
        "sha1": hashlib.sha1(content).hexdigest(),
        "sha256": hashlib.sha256(content).hexdigest(),
    }
    return {"basename": name, "bytes": len(content), "hashes": hashes}
