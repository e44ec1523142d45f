"""``run.json``: the manifest of a run."""

from pathlib import Path
from typing import Any

import msgspec

from zoo.io.digests.files import FileDigest
from zoo.io.digests.self_digest import read_record
from zoo.io.json import JsonStruct
from zoo.io.limits import MAX_STATE_BYTES
from zoo.tokenizers.info import TokenizerInfo
from zoo.training.state.pretrained import InitRecord

SETTINGS, MANIFEST = "config.yaml", "run.json"


class ParentRecord(JsonStruct, kw_only=True):
    """The run that another one continues.

    Attributes:
        path: its directory.
        digest: BLAKE3 of its ``run.json``.
        step: step at which it is continued.
        rows: rows of the training data that it had read, of the length of that step.
        optimizer_reset: whether the state of the optimizer was left behind.
    """

    path: str
    digest: str
    step: int
    rows: int
    optimizer_reset: bool = False


class RunManifest(JsonStruct, kw_only=True):
    """``run.json``: the manifest of a run.

    Attributes:
        zoo: version of the package that started the run.
        kind: command of the run, such as ``pretrain``.
        command: command line.
        working_directory: directory in which the run began, to which relative paths of its settings
            and of ``command`` are relative; empty in runs of earlier versions.
        corpus: directory of the corpus; empty for a run on tables.
        corpus_digest: BLAKE3 of the corpus's manifest, which has the digests of all its files.
        corpus_contents: BLAKE3 of what the corpus holds, whatever its sources are called; empty in
            runs of earlier versions.
        data: files, columns and labels of a run on tables; ``None`` for a corpus.
        tokenizer: special tokens of the tokenizer in the run's directory, of a run on tables.
        teachers: references of the teachers of a distillation, and digests of their files.
        parameters: number of trained parameters.
        environment: versions and devices.
        settings: configuration of the run, as in ``config.yaml``.
        init_from: pretrained weights that the run started from; ``None`` for new weights.
        parent: the run that this one continues; ``None`` for none.
        files: digests of the files that never change: ``config.yaml`` and a tokenizer.
        digest: BLAKE3 of this file, see ``zoo.io.digests.self_digest``. This and ``files``
            are empty in runs of earlier versions.
    """

    zoo: str
    kind: str = "pretrain"
    command: list[str]
    working_directory: str = ""
    corpus: str = ""
    corpus_digest: str = ""
    corpus_contents: str = ""
    data: dict[str, Any] | None = None
    tokenizer: TokenizerInfo | None = None
    teachers: list[dict[str, Any]] | None = None
    parameters: int
    environment: dict[str, str]
    settings: dict[str, Any] | None = None
    init_from: InitRecord | None = None
    parent: ParentRecord | None = None
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)
    digest: str = ""


def read_manifest(path: Path) -> RunManifest:
    """Read ``run.json`` of a run's directory.

    Raises:
        SourceError: the file cannot be read.
        VerificationError: the file is not a manifest, or was changed.
    """
    return read_record(
        path / MANIFEST, RunManifest, hint="restore it from a copy", limit=MAX_STATE_BYTES
    )
