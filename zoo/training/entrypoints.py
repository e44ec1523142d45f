"""Start a run, resume one, or continue one as another run."""

import contextlib
import logging
import os
import platform
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import torch
from blake3 import blake3

from zoo.errors import Interrupted, SourceError, UsageError
from zoo.io.digests.files import FileDigest, compute_blake3
from zoo.io.digests.self_digest import NO_DIGEST, add_digest
from zoo.io.json import encode_json
from zoo.io.output.atomic import atomic_directory
from zoo.io.output.staging import discard, remove_stale_staging
from zoo.io.paths import check_unicode
from zoo.io.yaml import dump_yaml
from zoo.plugins import get_family
from zoo.training.base import RunSetup
from zoo.training.build import PreparedRun, build_trainer, prepare_run
from zoo.training.config.kinds import RunConfig, config_type
from zoo.training.config.overrides import ConfigDict, config_diff, deep_merge, read_config_file
from zoo.training.config.schema import (
    TrainConfig,
    build_config,
    errors_naming,
    validate_config,
)
from zoo.training.continuation import (
    check_progress,
    check_state,
    continued_config,
    copy_state,
    rows_read,
)
from zoo.training.devices.deterministic import deterministic_algorithms
from zoo.training.distributed.context import DistContext
from zoo.training.graceful_shutdown import handle_signals
from zoo.training.logging.jsonl import PERFORMANCE_FILE
from zoo.training.optim.lr_scheduler import lr_multiplier
from zoo.training.setup import TrainSetup, build_setup
from zoo.training.state.checkpoints import (
    CheckpointMeta,
    list_checkpoints,
    save_checkpoint,
    settings_digest,
)
from zoo.training.state.location import (
    Locations,
    data_locations,
    missing_data,
    moved_locations,
    resume_command,
    where_it_began,
    with_absolute_paths,
    with_locations,
    with_recorded_names,
)
from zoo.training.state.lock import locked
from zoo.training.state.pretrained import InitRecord, PretrainedInit
from zoo.training.state.recovery import last_intact_checkpoint
from zoo.training.state.run_manifest import (
    MANIFEST,
    SETTINGS,
    ParentRecord,
    RunManifest,
    read_manifest,
)
from zoo.training.state.state_dict import unique_state_dict
from zoo.version import __version__

LOG = logging.getLogger("zoo")
Made = TypeVar("Made")


@dataclass(frozen=True)
class RunKind:
    """A kind of run: how its settings become a setup.

    Attributes:
        command: command that starts and resumes such runs.
        build_config: function of a file's settings, overriding ones and ``offline`` that returns
            the configuration.
        build_setup: function of a configuration that returns the setup, with the keyword arguments
            ``offline``, ``check_contents`` (verify the contents of data files, besides digests) and
            ``resumed`` (directory and manifest of a run that is resumed, else ``None``).
    """

    command: str
    build_config: Callable[..., RunConfig]
    build_setup: Callable[..., RunSetup]

    def train(
        self,
        values: Mapping[str, Any],
        overrides: Mapping[str, Any],
        output: Path | None,
        dist: DistContext,
        *,
        offline: bool = False,
        file: Path | None = None,
    ) -> tuple[Path, Path]:
        """Start a run of this kind; see the function ``train``."""
        return train(values, overrides, output, dist, offline=offline, file=file, kind=self)

    def resume(
        self,
        path: Path,
        values: Mapping[str, Any],
        overrides: Mapping[str, Any],
        dist: DistContext,
        *,
        offline: bool = False,
    ) -> tuple[Path, Path]:
        """Resume a run of this kind; see the function ``resume``.

        Returns:
            The run's directory, and the directory of the final model.
        """
        return path, resume(path, values, overrides, dist, offline=offline, kind=self)

    def continue_from(
        self,
        parent: Path,
        values: Mapping[str, Any],
        overrides: Mapping[str, Any],
        output: Path | None,
        dist: DistContext,
        *,
        offline: bool = False,
        file: Path | None = None,
        reset_optimizer: bool = False,
    ) -> tuple[Path, Path]:
        """Start a run of this kind that continues another one; see ``continue_run``."""
        return continue_run(
            parent,
            deep_merge(values, overrides),
            output,
            dist,
            offline=offline,
            file=file,
            kind=self,
            reset_optimizer=reset_optimizer,
        )

    def plan(
        self, values: Mapping[str, Any], overrides: Mapping[str, Any], *, offline: bool
    ) -> tuple[RunConfig, dict[str, Any]]:
        """Return the configuration of a run, and the settings that repeat it with other seeds."""
        config = self.build_config(values, overrides, offline=offline)
        return config, msgspec.to_builtins(config)

    def has_begun(self, path: Path) -> bool:
        """Return whether a directory holds a run, which can be resumed."""
        return (path / MANIFEST).is_file()

    def last_run(self, path: Path) -> Path:
        """Return the directory of the run that made the final model of a directory."""
        return path


def pretrain_setup(
    config: TrainConfig,
    *,
    offline: bool,
    check_contents: bool,
    resumed: tuple[Path, RunManifest] | None,
) -> TrainSetup:
    """Return the setup of a pretraining run; see ``RunKind`` and ``zoo.training.setup``."""
    init = None
    if resumed is not None and resumed[1].init_from is not None and config.init_from is not None:
        path, record = resumed
        assert record.init_from is not None, "checked above"
        family = get_family(config.family)
        init = PretrainedInit.from_run(path, record.init_from, config.init_from, family)
    return build_setup(config, offline=offline, init=init, check_contents=check_contents)


PRETRAIN = RunKind("pretrain", build_config, pretrain_setup)


def train(
    values: Mapping[str, Any],
    overrides: Mapping[str, Any],
    output: Path | None,
    dist: DistContext,
    *,
    offline: bool = False,
    file: Path | None = None,
    kind: RunKind = PRETRAIN,
) -> tuple[Path, Path]:
    """Start a run, and train it to its end.

    Args:
        values: settings of a configuration file, or the family alone.
        overrides: settings that override them.
        output: the run's directory, by default ``runs/FAMILY-SIZE`` or the like with the next free
            number.
        dist: rank, world size and device of this process.
        offline: make no network connection.
        file: file that ``values`` were read from, for messages.
        kind: kind of the run.

    Returns:
        The run's directory, and the directory of the final model.

    Raises:
        Interrupted: a signal came; a checkpoint was saved.
        UsageError: settings are inconsistent, or the directory exists or cannot be written.
        VerificationError: a loss, gradient or weight is not finite.
        SourceError: a file or checkpoint is missing.
    """
    check_unicode(Path.cwd(), "the working directory")  # a run records it
    if output is not None:
        check_unicode(output, "the directory of the run")
    build = partial(kind.build_config, values, overrides, offline=offline)
    with errors_naming(file):
        config = (
            _in_turn(dist, build) if deep_merge(values, overrides).get("init_from") else build()
        )
        _check_ranks(config, dist)
    path = _new_path(output, config, kind, dist)
    with errors_naming(file):
        setup = _in_turn(
            dist,
            lambda: kind.build_setup(
                config, offline=offline, check_contents=dist.is_main_process, resumed=None
            ),
        )
    if dist.is_main_process:
        warn_of_no_learning(setup.config)
    return path, _run(setup, path, dist, new=True)


def warn_of_no_learning(config: RunConfig) -> None:
    """Warn if the learning rate of all steps is 0, as in the first step of a warm-up."""
    schedule, steps = config.lr_scheduler, config.max_steps
    assert steps is not None, "setups have configurations with a number of steps"
    if any(lr_multiplier(schedule, step, steps) for step in range(steps)):
        return
    ratio = " and warmup_ratio=0" if hasattr(config, "warmup_ratio") else ""
    LOG.warning(
        "warning: the learning rate is 0 in all %s steps, and nothing is learned; give more steps, "
        "or --set lr_scheduler.warmup_steps=0%s",
        f"{steps:,}",
        ratio,
    )


def resume(
    path: Path,
    values: Mapping[str, Any],
    overrides: Mapping[str, Any],
    dist: DistContext,
    *,
    offline: bool = False,
    kind: RunKind = PRETRAIN,
) -> Path:
    """Resume a run from its last intact checkpoint, and train it to its end.

    Args:
        path: the run's directory.
        values: settings of a configuration file, which must be those of the run.
        overrides: further settings, which must be those of the run.
        dist: rank, world size and device of this process.
        offline: make no network connection.
        kind: kind of the run.

    Returns:
        The directory of the final model.

    Raises:
        Interrupted: a signal came; a checkpoint was saved.
        UsageError: settings differ from those of the run (the differences are named), the data has
            changed, or the run is of another kind.
        VerificationError: all checkpoints are damaged.
        SourceError: the directory holds no run.
    """
    record, file = _open(path, kind, "resumes it")
    given = deep_merge(values, overrides)
    moved, recorded = moved_locations(file, given), data_locations(file)
    struct_type = config_type(kind.command, file)
    config = validate_config(file, struct_type, str(path / SETTINGS))
    settings = with_locations(deep_merge(file, given), {keys: recorded[keys] for keys in moved})
    _require_same_settings(path, record.settings or file, settings, struct_type)
    _check_ranks(config, dist)
    with where_it_began(path, record.working_directory) as run:
        setup = _setup_again(run, record, with_locations(file, moved), dist, kind, offline=offline)
        setup.require_same_data(run, record)
        if dist.is_main_process:
            _say_what_moved(path, record, recorded, moved)
        if moved:  # checkpoints go with the settings that the run has
            setup = replace(setup, config=with_recorded_names(setup.config, config))
        _run(setup, run, dist, new=False)
    return path / "model"


def continue_run(
    parent: Path,
    given: Mapping[str, Any],
    output: Path | None,
    dist: DistContext,
    *,
    offline: bool = False,
    file: Path | None = None,
    kind: RunKind = PRETRAIN,
    reset_optimizer: bool = False,
) -> tuple[Path, Path]:
    """Start a run from the weights, the optimizer's state and the place in the data of another one.

    Args:
        parent: directory of the other run, which stays as it is.
        given: settings that differ from those of the other run.
        output: see ``train``.
        dist: rank, world size and device of this process.
        offline: make no network connection.
        file: file that some of ``given`` were read from, for messages.
        kind: kind of both runs.
        reset_optimizer: begin with a new state of the optimizer.

    Returns:
        The run's directory, and the directory of the final model.

    Raises:
        ZooError: see ``train``; or the other run has no state, or settings do not go with it.
    """
    record, settings = _open(parent, kind, "continues it", "--continue-from")
    struct_type = config_type(kind.command, settings)
    _require_same_settings(parent, record.settings or settings, settings, struct_type)
    before = validate_config(settings, struct_type, str(parent / SETTINGS))
    began = record.working_directory
    if began and Path.cwd() != Path(began):
        settings = with_absolute_paths(settings, Path(began))
    with errors_naming(file):
        config = continued_config(
            parent, settings, given, struct_type, reset_optimizer=reset_optimizer
        )
    _check_ranks(config, dist)
    path = _new_path(output, config, kind, dist)
    with contextlib.ExitStack() as at_work:
        if dist.is_main_process and os.access(parent, os.W_OK):
            at_work.enter_context(locked(parent))
        saved = last_intact_checkpoint(parent, before, dist, set_aside=False)
        saved = check_state(parent, saved, reset_optimizer=reset_optimizer)
        settings = msgspec.to_builtins(config)
        setup = _setup_again(parent, record, settings, dist, kind, offline=offline)
        setup.require_same_data(parent, record)
        check_progress(parent, saved, setup.config)
        if setup.objective.stateful and setup.config.step_sizes() != before.step_sizes():
            raise UsageError(
                f"the states of {setup.objective.name} go on in each row of a batch, and "
                f"{parent} has batches of {before.step_sizes()[0]} rows",
                f"leave {config.batch_option} out",
            )
        if dist.is_main_process:
            origin = ParentRecord(
                path=str(parent.absolute()),
                digest=compute_blake3(parent / MANIFEST),
                step=saved.meta.step,
                rows=rows_read(before, record, saved.meta.step),
                optimizer_reset=reset_optimizer,
            )
            files, init = _run_files(setup), None if setup.init is None else setup.init.record
            manifest = _run_manifest(setup, dist, files, record.parameters, init, origin)
            with _new_directory(path, files, manifest) as staging:
                configs = (before, setup.config)
                copy_state(parent, staging, saved, configs, reset_optimizer=reset_optimizer)
    dist.barrier()
    try:
        return path, _run(setup, path, dist, new=False)
    finally:
        if dist.is_main_process and not (path / PERFORMANCE_FILE).exists():
            discard(path)  # nothing has begun


def _open(
    path: Path, kind: RunKind, then: str, option: str = "--resume"
) -> tuple[RunManifest, ConfigDict]:
    """Return the manifest and the settings of a run.

    Args:
        path: the run's directory.
        kind: kind that the run has.
        then: what the option does to a run, for messages.
        option: the option that names the run.

    Raises:
        UsageError: the run is of another kind.
        SourceError: the directory holds no run.
    """
    if not (path / SETTINGS).is_file():
        raise SourceError(f"{path} is not a run: it has no {SETTINGS}", "give a run's directory")
    record = read_manifest(path)
    if record.kind != kind.command:
        command = shlex.join(["zoo", record.kind, option, str(path)])
        raise UsageError(
            f"{path} is a run of `zoo {record.kind}`, not of `zoo {kind.command}`",
            f"`{command}` {then}",
        )
    return record, read_config_file(path / SETTINGS)


def _setup_again(
    run: Path,
    record: RunManifest,
    settings: ConfigDict,
    dist: DistContext,
    kind: RunKind,
    *,
    offline: bool,
) -> RunSetup:
    """Return the setup of a run that has begun.

    Raises:
        ZooError: see ``resume``. Where data is missing, the hint says how to name it.
    """
    config = validate_config(settings, config_type(kind.command, settings))
    check = dist.is_main_process
    try:
        return _in_turn(
            dist,
            lambda: kind.build_setup(
                config, offline=offline, check_contents=check, resumed=(run, record)
            ),
        )
    except (SourceError, UsageError) as error:
        missing = missing_data(settings)
        if missing is None:
            raise
        hint = f"if {missing[0]} has moved, name it by {missing[1]}"
        raise type(error)(error.what, hint, error.details) from error


def _say_what_moved(path: Path, record: RunManifest, recorded: Locations, moved: Locations) -> None:
    """Log where the data of a run was found, if not where it was."""
    for keys, now in moved.items():
        before = recorded[keys]
        if [str(Path(name).absolute()) for name in before] != now:
            LOG.info("%s has moved: %s, now %s", ".".join(keys), ", ".join(before), ", ".join(now))
    began = record.working_directory
    if began and not Path(began).is_dir():
        rest = [name for keys, names in recorded.items() if keys not in moved for name in names]
        if relative := [p for p in rest if Path(p).exists() and not Path(p).is_absolute()]:
            names = ", ".join(relative)
            LOG.info("%s began in %s, which is gone: %s is from %s", path, began, names, Path.cwd())


def _new_path(output: Path | None, config: RunConfig, kind: RunKind, dist: DistContext) -> Path:
    """Return the directory of a new run, once all processes know it.

    Raises:
        UsageError: it exists.
    """
    path = Path(dist.broadcast(str(output or free_path(config))))
    if path.exists():
        raise UsageError(f"{path} exists", f"`{resume_command(kind.command, path)}`, or another -o")
    dist.barrier()  # all processes have chosen their path before it is created
    return path


def _require_same_settings(
    path: Path, before: Mapping[str, Any], now: Mapping[str, Any], struct_type: type[RunConfig]
) -> None:
    """Check that a run is resumed with the settings that it began with.

    Raises:
        UsageError: names the settings that differ.
    """
    configs = [
        msgspec.to_builtins(validate_config(dict(values), struct_type)) for values in (before, now)
    ]
    if changed := list(config_diff(*configs)):
        raise UsageError(
            f"{path} began with other settings: {'; '.join(changed)}",
            "resume without changes, or begin another run",
        )


def _in_turn(dist: DistContext, make: Callable[[], Made]) -> Made:
    """Call a function in the main process first: it may build a corpus or convert a checkpoint."""
    result = make() if dist.is_main_process else None
    dist.barrier()
    return result or make()


def _check_ranks(config: RunConfig, dist: DistContext) -> None:
    for rows in config.step_sizes():
        if rows % dist.world_size:
            raise UsageError(
                f"{rows} rows a step do not split into {dist.world_size} processes",
                f"choose {config.batch_option} so that they do",
            )


def _run(setup: RunSetup, path: Path, dist: DistContext, *, new: bool) -> Path:
    """Train a run to its end under its lock, and return the directory of the final model."""
    kernels = deterministic_algorithms(setup.config.deterministic)
    with handle_signals() as stop, kernels, contextlib.ExitStack() as lock:
        if dist.is_main_process and not new:
            lock.enter_context(locked(path))
            remove_stale_staging(path.absolute().parent)  # of a process that was killed
        dist.barrier()
        prepared = prepare_run(setup, path, dist)
        if dist.is_main_process and not new:
            _say_where(path, setup.config, prepared)
        if dist.is_main_process and new:
            _write_directory(path, setup, dist, prepared)
            lock.enter_context(locked(path))
        dist.barrier()
        try:
            build_trainer(setup, path, dist, stop, prepared).train()
        except Interrupted as error:
            hint = f"{resume_command(setup.command, path)} resumes it"
            raise Interrupted(error.what, hint) from error
        except UsageError as error:
            if not isinstance(error.__cause__, OSError):
                raise
            raise UsageError(error.what, _what_remains(setup, path)) from error.__cause__
    return path / "model"


def _say_where(path: Path, config: RunConfig, prepared: PreparedRun) -> None:
    """Log the step at which a run is resumed."""
    step = 0 if prepared.checkpoint is None else prepared.checkpoint.meta.step
    parent, last = prepared.parent, f"{config.max_steps:,}"
    if parent is not None and parent.step == step and not (path / PERFORMANCE_FILE).exists():
        LOG.info("%s continues %s at step %s of %s", path, parent.path, f"{step:,}", last)
    elif (path / "model").is_dir():
        LOG.info("%s is already finished, at step %s", path, f"{step:,}")
    else:
        LOG.info("%s is resumed at step %s of %s", path, f"{step:,}", last)


def _what_remains(setup: RunSetup, path: Path) -> str:
    """Return what remains of a run that could not write, and how it is resumed."""
    steps = list(list_checkpoints(path))
    saved = f"the checkpoint of step {steps[-1]:,}" if steps else "no checkpoint yet"
    command = resume_command(setup.command, path)
    return f"{path} has {saved}, and its log; make room, and `{command}` resumes it"


def _write_directory(path: Path, setup: RunSetup, dist: DistContext, prepared: PreparedRun) -> None:
    """Create the directory of a new run."""
    files = _run_files(setup)
    parameters = sum(p.numel() for p in prepared.loss_module.parameters())
    manifest = _run_manifest(setup, dist, files, parameters, prepared.pretrained)
    with _new_directory(path, files, manifest) as staging:
        if prepared.pretrained is not None:  # so that a resume needs this directory alone
            state = CheckpointMeta(step=0, settings=settings_digest(setup.config))
            save_checkpoint(
                staging, state, {"weights": unique_state_dict(prepared.loss_module.model)}, dist
            )


@contextlib.contextmanager
def _new_directory(path: Path, files: Mapping[str, bytes], manifest: RunManifest) -> Iterator[Path]:
    """Yield the directory of a new run, which is being written."""
    with atomic_directory(path) as staging:
        for name, content in files.items():
            (staging / name).write_bytes(content)
        (staging / MANIFEST).write_bytes(add_digest(encode_json(manifest)))
        yield staging


def _run_files(setup: RunSetup) -> dict[str, bytes]:
    """Return name -> content of the files of a run that never change, besides the manifest."""
    text = dump_yaml(msgspec.to_builtins(setup.config))
    return {SETTINGS: text.encode(), **setup.run_files()}


def _run_manifest(
    setup: RunSetup,
    dist: DistContext,
    files: Mapping[str, bytes],
    parameters: int,
    pretrained: InitRecord | None,
    parent: ParentRecord | None = None,
) -> RunManifest:
    """Return the manifest of a new run, without its digest."""
    return RunManifest(
        zoo=__version__,
        kind=setup.command,
        command=["zoo", *sys.argv[1:]],
        working_directory=str(Path.cwd()),
        **setup.manifest_fields(),
        parameters=parameters,
        environment={
            "python": platform.python_version(),
            "torch": str(torch.__version__),
            "device": str(dist.device),
            "processes": str(dist.world_size),
        },
        settings=msgspec.to_builtins(setup.config),
        init_from=pretrained,
        parent=parent,
        files={
            name: FileDigest(bytes=len(content), blake3=blake3(content).hexdigest())
            for name, content in files.items()
        },
        digest=NO_DIGEST,
    )


def free_path(config: RunConfig) -> Path:
    """Return the default directory of a new run: ``runs/FAMILY-SIZE``, numbered if it exists."""
    base = Path("runs") / config.run_name
    number = 1
    while (path := base if number == 1 else base.with_name(f"{base.name}-{number}")).exists():
        number += 1
    return path
