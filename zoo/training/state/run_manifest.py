"""``run.json``: the manifest of a run."""

from pathlib import Path
from typing import Any

import msgspec

from zoo.data.order import DataOrder
from zoo.data.shares import MixtureStage
from zoo.io.digests.files import FileDigest
from zoo.io.digests.self_digest import read_record
from zoo.io.json import JsonStruct
from zoo.io.limits import MAX_STATE_BYTES
from zoo.tokenizers.info import TokenizerInfo
from zoo.training.state.pretrained import InitRecord
from zoo.training.state.stream_record import StreamRecord

SETTINGS = "config.yaml"
MANIFEST = "run.json"


class TextSourceRecord(JsonStruct, kw_only=True):
    """A source of text of a run."""

    corpus: str  # Directory of its corpus.
    corpus_digest: str  # BLAKE3 of the corpus's manifest.
    corpus_contents: str  # BLAKE3 of what the corpus holds, whatever its files are called.
    # Lanes and files of a stream; the corpus then has its held-out documents.
    stream: StreamRecord | None = None


class ParentRecord(JsonStruct, kw_only=True):
    """The run that another one continues."""

    path: str
    digest: str  # BLAKE3 of its ``run.json``.
    step: int  # Step at which it is continued.
    rows: int  # Rows of the training data that it had read, of the length of that step.
    optimizer_reset: bool = False  # Whether the state of the optimizer was left behind.


class RunManifest(JsonStruct, kw_only=True):
    """``run.json``: the manifest of a run."""

    zoo: str  # Version of the package that started the run.
    kind: str = "pretrain"  # Command of the run, such as ``pretrain``.
    command: list[str]  # Command line.
    # Directory in which the run began, to which relative paths of its settings and of ``command``
    # are relative; empty in runs of earlier versions.
    working_directory: str = ""
    corpus: str = ""  # Directory of the corpus; empty for a run on tables.
    # BLAKE3 of the corpus's manifest, which has the digests of all its files.
    corpus_digest: str = ""
    # BLAKE3 of what the corpus holds, whatever its sources are called; empty in runs of earlier
    # versions.
    corpus_contents: str = ""
    # Lanes and files of a stream; ``corpus`` then has its held-out documents.
    stream: StreamRecord | None = None
    # Kind of the order of documents and rows, of a run on a corpus; ``arrays`` in runs of earlier
    # versions. See ``zoo.data.order``.
    data_order: DataOrder = "arrays"
    # Sources of a run on several corpora, whose fields above are empty.
    sources: dict[str, TextSourceRecord] | None = None
    # Weights of the sources, and from which step on; those of the runs that this one continues are
    # the first ones.
    mixture: list[MixtureStage] | None = None
    # Files, columns and labels of a run on tables; ``None`` for a corpus.
    data: dict[str, Any] | None = None
    # Special tokens of the tokenizer in the run's directory, of a run on tables or on sources.
    tokenizer: TokenizerInfo | None = None
    # References of the teachers of a distillation, and digests of their files.
    teachers: list[dict[str, Any]] | None = None
    parameters: int  # Number of trained parameters.
    environment: dict[str, str]  # Versions and devices.
    settings: dict[str, Any] | None = None  # Configuration of the run, as in ``config.yaml``.
    # Settings that the command of the run gave, of a file and of options; ``None`` in runs of
    # earlier versions, and in runs that continue another one.
    requested: dict[str, Any] | None = None
    # Pretrained weights that the run started from; ``None`` for new weights.
    init_from: InitRecord | None = None
    parent: ParentRecord | None = None
    # Digests of the files that never change: ``config.yaml`` and a tokenizer.
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)
    # BLAKE3 of this file, see ``zoo.io.digests.self_digest``. This and ``files`` are empty in runs
    # of earlier versions.
    digest: str = ""


def read_manifest(path: Path) -> RunManifest:
    """Read ``run.json`` of a run's directory."""
    return read_record(
        path / MANIFEST, RunManifest, hint="restore it from a copy", limit=MAX_STATE_BYTES
    )
