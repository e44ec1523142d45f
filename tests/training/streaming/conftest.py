"""Streams of all formats, and a tokenizer to read them with."""

from pathlib import Path

import pytest

from tests.data.streams.making import (
    documents,
    write_dataset,
    write_json_lines,
    write_mds,
    write_parquet,
    write_tar,
)
from tests.training.runs import TEXT
from zoo.data.cache import cached_corpus
from zoo.data.tokenizer import TokenizerToTrain
from zoo.plugins import get_family

FAMILY = "gpt"
COUNT = 400  # Documents.


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """Return a folder with a shard of each format, in which documents are in order."""
    folder = tmp_path / "data"
    folder.mkdir()
    texts = documents(COUNT)
    write_json_lines(folder / "a.jsonl", texts[:150])
    write_json_lines(folder / "b.jsonl.gz", texts[150:200])
    write_json_lines(folder / "c.jsonl.zst", texts[200:230])
    write_dataset(folder / "dataset", texts[230:280])
    write_mds(folder / "mds", texts[280:320], compressed=True)
    write_parquet(folder / "table.parquet", texts[320:370])
    write_tar(folder / "web.tar", texts[370:])
    return folder


@pytest.fixture
def tokenizer(shared_home: Path) -> str:
    """Return a corpus whose tokenizer streams read with."""
    trained = TokenizerToTrain.for_family(get_family(FAMILY), vocab_size=400)
    return str(cached_corpus([TEXT], trained, eval_fraction=0).path)
