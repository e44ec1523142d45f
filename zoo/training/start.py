"""Beginning a run, and going on with one."""

import contextlib
import platform
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from blake3 import blake3

import zoo
from zoo.checkpoint import TOKENIZER, FileDigest, Record, decode, encode
from zoo.errors import SourceError, UsageError
from zoo.io.atomic import atomic_directory
from zoo.io.files import read_regular
from zoo.io.limits import MAX_STATE_BYTES
from zoo.io.sealed import UNSEALED, check_seal, seal
from zoo.plugins import get_family
from zoo.training.job import Job, prepare
from zoo.training.keeping import parameters
from zoo.training.lock import locked
from zoo.training.origin import Origin, StartRecord
from zoo.training.ranks import Ranks
from zoo.training.run import Run
from zoo.training.settings import Settings, gather, naming, typed
from zoo.training.signals import stopping
from zoo.training.state import State, save, settings_digest
from zoo.training.trees import differences, merged, read_file

SETTINGS, MANIFEST = "config.yaml", "run.json"
Made = TypeVar("Made")


class RunRecord(Record):
    """``run.json``: what a run is, beside its settings.

    Attributes:
        zoo: version of the distribution that began it.
        command: what was typed.
        corpus: the corpus's directory.
        corpus_digest: of its manifest, which has those of all its files.
        parameters: how many weights are trained.
        environment: versions and devices.
        settings: those that it began with, as in ``config.yaml``.
        start: what it started with, if not with fresh weights alone.
        files: the other files that never change: ``config.yaml`` and a tokenizer.
        digest: of this file, see ``zoo.io.sealed``. This and ``files`` are empty in runs of
            versions that wrote none.
    """

    zoo: str
    command: list[str]
    corpus: str
    corpus_digest: str
    parameters: int
    environment: dict[str, str]
    settings: dict[str, Any] | None = None
    start: StartRecord | None = None
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)
    digest: str = ""


def begin(
    tree: Mapping[str, Any],
    changes: Mapping[str, Any],
    output: Path | None,
    ranks: Ranks,
    *,
    offline: bool = False,
    file: Path | None = None,
) -> tuple[Path, Path]:
    """Begin a run and see it through.

    Args:
        tree: settings of a file, or the family's name alone.
        changes: settings that take the place of those.
        output: the run's directory, by default ``runs/FAMILY-SIZE`` with the next free number.
        ranks: the processes that share the work.
        offline: open no connection.
        file: the file that ``tree`` was read from, for messages.

    Returns:
        the run's directory, and the checkpoint of what was trained.

    Raises:
        Interrupted: a signal came. All is saved.
        UsageError: the settings do not go together, or the directory exists or cannot be written.
        VerificationError: a number was not finite.
        SourceError: what is read is missing.
    """
    asked = partial(gather, tree, changes, offline=offline)
    with naming(file):
        settings = _in_turn(ranks, asked) if merged(tree, changes).get("start") else asked()
        _check_ranks(settings, ranks)
    path = Path(ranks.agree(str(output or _free_path(settings))))
    if path.exists():
        raise UsageError(f"{path} exists", f"`zoo pretrain --resume {path}`, or another -o")
    ranks.wait()  # all have looked
    with naming(file):
        job = _in_turn(ranks, lambda: prepare(settings, offline=offline, contents=ranks.first))
    return path, _see_through(job, path, ranks, new=True)


def go_on(
    path: Path,
    tree: Mapping[str, Any],
    changes: Mapping[str, Any],
    ranks: Ranks,
    *,
    offline: bool = False,
) -> Path:
    """Go on with a run from its last checkpoint; see ``begin``.

    Raises:
        UsageError: other settings are given than the run began with; the differences are named.
        VerificationError: a checkpoint is damaged, or the corpus is another now.
        SourceError: there is no run.
    """
    if not (path / SETTINGS).is_file():
        raise SourceError(f"{path} is not a run: it has no {SETTINGS}", "give a run's directory")
    record = read_record(path)
    file = read_file(path / SETTINGS)
    settings = typed(file, str(path / SETTINGS))
    before, now = (typed(each) for each in (record.settings or file, merged(file, tree, changes)))
    changed = list(differences(*map(msgspec.to_builtins, (before, now))))
    if changed:
        raise UsageError(
            f"{path} began with other settings: {'; '.join(changed)}",
            "resume without changes, or begin another run",
        )
    _check_ranks(settings, ranks)
    origin = None
    if record.start is not None and settings.start is not None:
        origin = Origin.kept(path, record.start, settings.start, get_family(settings.family))
    job = _in_turn(
        ranks, lambda: prepare(settings, offline=offline, origin=origin, contents=ranks.first)
    )
    if record.corpus_digest != _corpus_digest(job):
        raise UsageError(
            f"the corpus in {job.corpus.path} is not the one that {path} began with",
            "put the texts back as they were, or begin another run",
        )
    return _see_through(job, path, ranks, new=False)


def read_record(path: Path) -> RunRecord:
    """Read ``run.json`` of a run's directory.

    Raises:
        SourceError: it cannot be read.
        VerificationError: it does not decode, or was changed.
    """
    record = decode(path / MANIFEST, RunRecord)
    if record.digest:
        content = read_regular(path / MANIFEST, "record of a run", MAX_STATE_BYTES)
        check_seal(path / MANIFEST, content, record.digest, remedy="restore it from a copy")
    return record


def _in_turn(ranks: Ranks, make: Callable[[], Made]) -> Made:
    """Let the first process make what is not there yet: a corpus, or a converted checkpoint."""
    made = make() if ranks.first else None
    ranks.wait()
    return made or make()


def _check_ranks(settings: Settings, ranks: Ranks) -> None:
    if settings.rows % ranks.count:
        raise UsageError(
            f"{settings.rows} rows a step do not split into {ranks.count} processes",
            "choose --batch-tokens so that they do",
        )


def _see_through(job: Job, path: Path, ranks: Ranks, *, new: bool) -> Path:
    with stopping() as stop, contextlib.ExitStack() as held:
        if ranks.first and not new:
            held.enter_context(locked(path))
        ranks.wait()
        run = Run(job, path, ranks, stop)
        if ranks.first and new:
            _write_directory(path, job, run)
            held.enter_context(locked(path))
        ranks.wait()
        run.go()
    return path / "model"


def _write_directory(path: Path, job: Job, run: Run) -> None:
    import yaml

    record = RunRecord(
        zoo=zoo.__version__,
        command=["zoo", *sys.argv[1:]],
        corpus=str(job.corpus.path.resolve()),
        corpus_digest=_corpus_digest(job),
        parameters=sum(p.numel() for p in run.lesson.parameters()),
        environment={
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "device": str(run.ranks.device),
            "processes": str(run.ranks.count),
        },
        settings=msgspec.to_builtins(job.settings),
        start=run.start,
    )
    text = yaml.safe_dump(msgspec.to_builtins(job.settings), sort_keys=False, allow_unicode=True)
    files = {SETTINGS: text.encode()}
    if run.start is not None and job.origin is not None and job.origin.tokenizer is not None:
        files[TOKENIZER] = job.origin.tokenizer.json
    record.digest = UNSEALED
    record.files = {
        name: FileDigest(bytes=len(content), blake3=blake3(content).hexdigest())
        for name, content in files.items()
    }
    with atomic_directory(path) as staging:
        for name, content in files.items():
            (staging / name).write_bytes(content)
        (staging / MANIFEST).write_bytes(seal(encode(record)))
        if run.start is not None:  # so that nothing but this directory is needed to go on
            state = State(step=0, settings=settings_digest(job.settings))
            save(staging, state, {"weights": parameters(run.lesson.learner)}, run.ranks)


def _corpus_digest(job: Job) -> str:
    from zoo.convert.write import digest
    from zoo.data.corpus import MANIFEST as CORPUS

    return digest(job.corpus.path / CORPUS).blake3


def _free_path(settings: Settings) -> Path:
    base = Path("runs") / f"{settings.family}-{settings.size}"
    number = 1
    while (path := base if number == 1 else base.with_name(f"{base.name}-{number}")).exists():
        number += 1
    return path
