"""Start a run, or resume one."""

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

from zoo.checkpoint import TOKENIZER
from zoo.errors import Interrupted, SourceError, UsageError
from zoo.io.digests.files import FileDigest
from zoo.io.digests.sealed import NO_DIGEST, add_digest, check_digest
from zoo.io.files import read_regular
from zoo.io.json import JsonStruct, encode_json, read_json_record
from zoo.io.limits import MAX_STATE_BYTES
from zoo.io.output.atomic import atomic_directory
from zoo.plugins import get_family
from zoo.training.build import PreparedRun, build_trainer, prepare_run
from zoo.training.config.overrides import config_diff, deep_merge, read_config_file
from zoo.training.config.schema import TrainConfig, build_config, errors_naming, validate_config
from zoo.training.deterministic import deterministic_algorithms
from zoo.training.distributed.context import DistContext
from zoo.training.graceful_shutdown import handle_signals
from zoo.training.setup import TrainSetup, build_setup
from zoo.training.state.checkpoints import CheckpointMeta, save_checkpoint, settings_digest
from zoo.training.state.lock import locked
from zoo.training.state.pretrained import InitRecord, PretrainedInit
from zoo.training.state.state_dict import unique_state_dict
from zoo.version import __version__

SETTINGS, MANIFEST = "config.yaml", "run.json"
Made = TypeVar("Made")


class RunManifest(JsonStruct):
    """``run.json``: the manifest of a run.

    Attributes:
        zoo: version of the package that started the run.
        command: command line.
        corpus: directory of the corpus.
        corpus_digest: BLAKE3 of the corpus's manifest, which has the digests of all its files.
        parameters: number of trained parameters.
        environment: versions and devices.
        settings: configuration of the run, as in ``config.yaml``.
        init_from: pretrained weights that the run started from; ``None`` for new weights.
        files: digests of the files that never change: ``config.yaml`` and a tokenizer.
        digest: BLAKE3 of this file, see ``zoo.io.digests.sealed``. This and ``files`` are empty in
            runs of earlier versions.
    """

    zoo: str
    command: list[str]
    corpus: str
    corpus_digest: str
    parameters: int
    environment: dict[str, str]
    settings: dict[str, Any] | None = None
    init_from: InitRecord | None = None
    files: dict[str, FileDigest] = msgspec.field(default_factory=dict)
    digest: str = ""


def train(
    values: Mapping[str, Any],
    overrides: Mapping[str, Any],
    output: Path | None,
    dist: DistContext,
    *,
    offline: bool = False,
    file: Path | None = None,
) -> tuple[Path, Path]:
    """Start a run, and train it to its end.

    Args:
        values: settings of a configuration file, or the family alone.
        overrides: settings that override them.
        output: the run's directory, by default ``runs/FAMILY-SIZE`` with the next free number.
        dist: rank, world size and device of this process.
        offline: make no network connection.
        file: file that ``values`` were read from, for messages.

    Returns:
        The run's directory, and the directory of the final model.

    Raises:
        Interrupted: a signal came; a checkpoint was saved.
        UsageError: settings are inconsistent, or the directory exists or cannot be written.
        VerificationError: a loss, gradient or weight is not finite.
        SourceError: a file or checkpoint is missing.
    """
    build = partial(build_config, values, overrides, offline=offline)
    with errors_naming(file):
        config = (
            _in_turn(dist, build) if deep_merge(values, overrides).get("init_from") else build()
        )
        _check_ranks(config, dist)
    path = Path(dist.broadcast(str(output or free_path(config))))
    if path.exists():
        raise UsageError(f"{path} exists", f"`zoo pretrain --resume {path}`, or another -o")
    dist.barrier()  # all processes have chosen their path before it is created
    with errors_naming(file):
        setup = _in_turn(
            dist,
            lambda: build_setup(config, offline=offline, check_contents=dist.is_main_process),
        )
    return path, _run(setup, path, dist, new=True)


def resume(
    path: Path,
    values: Mapping[str, Any],
    overrides: Mapping[str, Any],
    dist: DistContext,
    *,
    offline: bool = False,
) -> Path:
    """Resume a run from its last intact checkpoint, and train it to its end.

    Args:
        path: the run's directory.
        values: settings of a configuration file, which must be those of the run.
        overrides: further settings, which must be those of the run.
        dist: rank, world size and device of this process.
        offline: make no network connection.

    Returns:
        The directory of the final model.

    Raises:
        Interrupted: a signal came; a checkpoint was saved.
        UsageError: settings differ from those of the run; the differences are named.
        VerificationError: all checkpoints are damaged, or the corpus has changed.
        SourceError: the directory holds no run.
    """
    if not (path / SETTINGS).is_file():
        raise SourceError(f"{path} is not a run: it has no {SETTINGS}", "give a run's directory")
    record = read_manifest(path)
    file = read_config_file(path / SETTINGS)
    config = validate_config(file, str(path / SETTINGS))
    _require_same_settings(path, record.settings or file, deep_merge(file, values, overrides))
    _check_ranks(config, dist)
    origin = None
    if record.init_from is not None and config.init_from is not None:
        origin = PretrainedInit.from_run(
            path, record.init_from, config.init_from, get_family(config.family)
        )
    setup = _in_turn(
        dist,
        lambda: build_setup(
            config, offline=offline, init=origin, check_contents=dist.is_main_process
        ),
    )
    if record.corpus_digest != _corpus_digest(setup):
        raise UsageError(
            f"the corpus in {setup.corpus.path} is not the one that {path} began with",
            "put the texts back as they were, or begin another run",
        )
    return _run(setup, path, dist, new=False)


def _require_same_settings(path: Path, before: Mapping[str, Any], now: Mapping[str, Any]) -> None:
    """Check that a run is resumed with the settings that it began with.

    Raises:
        UsageError: names the settings that differ.
    """
    configs = [msgspec.to_builtins(validate_config(dict(values))) for values in (before, now)]
    if changed := list(config_diff(*configs)):
        raise UsageError(
            f"{path} began with other settings: {'; '.join(changed)}",
            "resume without changes, or begin another run",
        )


def read_manifest(path: Path) -> RunManifest:
    """Read ``run.json`` of a run's directory.

    Raises:
        SourceError: the file cannot be read.
        VerificationError: the file is not a manifest, or was changed.
    """
    record = read_json_record(path / MANIFEST, RunManifest)
    if record.digest:
        content = read_regular(path / MANIFEST, "record of a run", MAX_STATE_BYTES)
        check_digest(path / MANIFEST, content, record.digest, hint="restore it from a copy")
    return record


def _in_turn(dist: DistContext, make: Callable[[], Made]) -> Made:
    """Call a function in the main process first: it may build a corpus or convert a checkpoint."""
    result = make() if dist.is_main_process else None
    dist.barrier()
    return result or make()


def _check_ranks(config: TrainConfig, dist: DistContext) -> None:
    warmup = config.seq_len_warmup
    for length in (config.seq_len, *([] if warmup is None else [warmup.seq_len])):
        rows = config.batch_size(length)
        if rows % dist.world_size:
            raise UsageError(
                f"{rows} rows a step do not split into {dist.world_size} processes",
                "choose --global-batch-tokens so that they do",
            )


def _run(setup: TrainSetup, path: Path, dist: DistContext, *, new: bool) -> Path:
    """Train a run to its end under its lock, and return the directory of the final model."""
    kernels = deterministic_algorithms(setup.config.deterministic)
    with handle_signals() as stop, kernels, contextlib.ExitStack() as lock:
        if dist.is_main_process and not new:
            lock.enter_context(locked(path))
        dist.barrier()
        prepared = prepare_run(setup, path, dist)
        if dist.is_main_process and new:
            _write_directory(path, setup, dist, prepared)
            lock.enter_context(locked(path))
        dist.barrier()
        try:
            build_trainer(setup, path, dist, stop, prepared).train()
        except Interrupted as error:
            raise Interrupted(error.what, f"zoo pretrain --resume {path} goes on") from error
    return path / "model"


def _write_directory(
    path: Path, setup: TrainSetup, dist: DistContext, prepared: PreparedRun
) -> None:
    """Create the directory of a new run."""
    files = _run_files(setup, prepared)
    with atomic_directory(path) as staging:
        for name, content in files.items():
            (staging / name).write_bytes(content)
        manifest = encode_json(_run_manifest(setup, dist, prepared, files))
        (staging / MANIFEST).write_bytes(add_digest(manifest))
        if prepared.pretrained is not None:  # so that a resume needs this directory alone
            state = CheckpointMeta(step=0, settings=settings_digest(setup.config))
            save_checkpoint(
                staging, state, {"weights": unique_state_dict(prepared.loss_module.model)}, dist
            )


def _run_files(setup: TrainSetup, prepared: PreparedRun) -> dict[str, bytes]:
    """Return name -> content of the files of a run that never change, besides the manifest."""
    import yaml

    text = yaml.safe_dump(msgspec.to_builtins(setup.config), sort_keys=False, allow_unicode=True)
    files = {SETTINGS: text.encode()}
    tokenizer = setup.init.tokenizer if setup.init is not None else None
    if prepared.pretrained is not None and tokenizer is not None:
        files[TOKENIZER] = tokenizer.json
    return files


def _run_manifest(
    setup: TrainSetup, dist: DistContext, prepared: PreparedRun, files: Mapping[str, bytes]
) -> RunManifest:
    """Return the manifest of a new run, without its digest."""
    return RunManifest(
        zoo=__version__,
        command=["zoo", *sys.argv[1:]],
        corpus=str(setup.corpus.path.resolve()),
        corpus_digest=_corpus_digest(setup),
        parameters=sum(p.numel() for p in prepared.loss_module.parameters()),
        environment={
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "device": str(dist.device),
            "processes": str(dist.world_size),
        },
        settings=msgspec.to_builtins(setup.config),
        init_from=prepared.pretrained,
        files={
            name: FileDigest(bytes=len(content), blake3=blake3(content).hexdigest())
            for name, content in files.items()
        },
        digest=NO_DIGEST,
    )


def _corpus_digest(setup: TrainSetup) -> str:
    from zoo.data.corpus import MANIFEST as CORPUS
    from zoo.io.digests.files import hash_file

    return hash_file(setup.corpus.path / CORPUS).blake3


def free_path(config: TrainConfig) -> Path:
    """Return the default directory of a new run: ``runs/FAMILY-SIZE``, numbered if it exists."""
    base = Path("runs") / f"{config.family}-{config.size}"
    number = 1
    while (path := base if number == 1 else base.with_name(f"{base.name}-{number}")).exists():
        number += 1
    return path
