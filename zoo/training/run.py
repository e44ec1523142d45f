"""A run: it is started, resumed, or continued as another one; the same for all that is trained."""

import contextlib
import logging
import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import msgspec

from zoo.errors import SourceError, UsageError
from zoo.io.digests.files import compute_blake3
from zoo.io.output.staging import discard
from zoo.io.paths import check_unicode, readable_name
from zoo.training.base import RunSetup
from zoo.training.build import open_trainer, prepare_run, run_plan
from zoo.training.config.overrides import ConfigDict, config_diff, merge_settings
from zoo.training.config.run_config import RunConfig, config_type
from zoo.training.config.schema import (
    EpochsConfig,
    prefix_errors,
    pretrain_config,
    validate_config,
    with_requested,
)
from zoo.training.continuation import (
    check_progress,
    check_state,
    continued_config,
    copy_state,
    rows_read,
)
from zoo.training.directory import (
    as_json_values,
    check_set_aside,
    locked,
    new_directory,
    run_files,
    run_manifest,
    set_aside,
)
from zoo.training.distributed.context import DistContext
from zoo.training.distributed.joining import late_host_warning
from zoo.training.logging.jsonl import PERFORMANCE_FILE
from zoo.training.optim.lr_scheduler import lr_multiplier
from zoo.training.setup import pretrain_setup
from zoo.training.state.earlier_versions import read_run_settings, with_unrecorded_settings
from zoo.training.state.location import (
    Locations,
    data_locations,
    initial_directory,
    missing_data,
    moved_locations,
    require_new,
    with_absolute_paths,
    with_locations,
    with_recorded_names,
)
from zoo.training.state.recovery import last_intact_checkpoint
from zoo.training.state.run_manifest import (
    MANIFEST,
    SETTINGS,
    ParentRecord,
    RunManifest,
    read_manifest,
)

LOG = logging.getLogger("zoo")


class RunPaths(NamedTuple):
    """The directory of a run, and the directory of its final model."""

    run: Path
    model: Path


@dataclass(frozen=True)
class Run:
    """A run of training; the subclasses say what is trained on what."""

    command: ClassVar[str]  # Command that starts and resumes such runs.
    # (settings, overriding settings, ``offline``) -> configuration.
    build_config: ClassVar[Callable[..., RunConfig]]
    # Configuration -> setup, with the keyword arguments ``offline``, ``check_contents`` (verify the
    # contents of data files, not only digests) and ``resumed`` (directory and manifest of a run
    # that has begun, or ``None``).
    build_setup: ClassVar[Callable[..., RunSetup]]

    settings: Mapping[str, Any]  # Settings of a file, or only the model.
    dist: DistContext
    output: Path | None = None  # Directory of a new run; ``None`` for the next free default.
    overrides: Mapping[str, Any] = field(default_factory=dict)  # Settings that override them.
    offline: bool = False  # Make no network connection.
    force: bool = False  # Move an earlier run in ``output`` out of the way.
    max_time: float | None = None  # Seconds of training, after which the run stops.
    file: Path | None = None  # File that ``settings`` are from, for messages.
    workers: int | None = None  # Processes that tokenize a stream; ``None`` for all cores.

    @property
    def given(self) -> ConfigDict:
        """All settings that were given."""
        return merge_settings(self.settings, self.overrides)

    def plan(self) -> tuple[RunConfig, ConfigDict]:
        """Return the configuration of a new run, and settings that repeat it with other seeds."""
        config = self.build_config(self.settings, self.overrides, offline=self.offline)
        settings = msgspec.to_builtins(config)
        if isinstance(config, EpochsConfig):
            del settings["max_steps"]  # The steps are the recipe's, and follow from the epochs.
        return config, settings

    def describe(self) -> dict[str, str]:
        """Return the plan of a new run, of several stages the first one's, and train nothing.

        Only caches are written, such as a corpus that the run will read.
        """
        with prefix_errors(self.file):
            config, _ = self.plan()
            require_divisible(config, self.dist)
        path = self.new_path(config)
        with prefix_errors(self.file):
            setup = self._setup(config)
        for warning in setup.warnings():
            LOG.warning("warning: %s", warning)
        prepared = prepare_run(setup, path, self.dist)
        return run_plan(path, setup, prepared.loss_module)

    def has_begun(self, path: Path) -> bool:
        """Return whether a directory holds a run, which can be resumed."""
        return (path / MANIFEST).is_file()

    def start(self) -> RunPaths:
        """Train a new run to its end."""
        check_unicode(Path.cwd(), "the working directory")  # a run records it
        if self.output is not None:
            check_unicode(self.output, "the directory of the run")
        build = partial(self.build_config, self.settings, self.overrides, offline=self.offline)
        with prefix_errors(self.file):
            if self.given.get("init_from"):
                config = self.dist.main_process_first(build)
            else:
                config = build()
            require_divisible(config, self.dist)
        path = self.new_path(config)
        with prefix_errors(self.file):
            setup = replace(self._setup(config), requested=self.given)
        if self.dist.is_main_process:
            warn_of_no_learning(setup.config)
        with open_trainer(
            setup, path, self.dist, new=True, force=self.force, max_time=self.max_time
        ) as trainer:
            trainer.train()
        return RunPaths(path, path / "model")

    def resume(self, path: Path) -> RunPaths:
        """Train a run from its last intact checkpoint to its end."""
        record, file_settings = self._read(path, "resumes it", "--resume")
        moved = moved_locations(file_settings, self.given)
        recorded_locations = data_locations(file_settings)
        struct_type = config_type(self.command, file_settings)
        config = validate_config(file_settings, struct_type, str(path / SETTINGS))
        # A file that has moved is not another setting.
        unmoved = {keys: recorded_locations[keys] for keys in moved}
        settings = with_locations(with_requested(file_settings, self.given, struct_type), unmoved)
        require_same_settings(path, record.settings or file_settings, settings, struct_type)
        require_divisible(config, self.dist, resumed=True)
        with initial_directory(path, record.working_directory) as run:
            setup = self._setup_again(run, record, with_locations(file_settings, moved))
            setup.require_same_data(run, record)
            if self.dist.is_main_process:
                log_moves(path, record, recorded_locations, moved)
                log_processes(path, record, self.dist)
            if moved:  # Checkpoints go with the settings that the run has.
                setup = replace(setup, config=with_recorded_names(setup.config, config))
            with open_trainer(setup, run, self.dist, new=False, max_time=self.max_time) as trainer:
                trainer.train()
        return RunPaths(path, path / "model")

    def resume_same(self, path: Path) -> RunPaths:
        """Resume a run whose settings are given once more, as by the command that began it.

        Raises:
            UsageError: it began with other settings.
        """
        record, _ = self._read(path, "resumes it", "--resume")
        if record.requested is None:
            return self.resume(path)
        self.require_same_request(path, record.requested)
        return replace(self, settings={}, overrides={}, file=None).resume(path)

    def require_same_request(self, path: Path, requested: Mapping[str, Any]) -> None:
        """Check that settings are those that the command of a run gave; raises ``UsageError``."""
        differences = list(
            config_diff(dict(requested), as_json_values(self.given), absent="not given")
        )
        if differences:
            raise began_differently(path, differences)

    def continue_from(self, parent: Path, *, reset_optimizer: bool = False) -> RunPaths:
        """Train a new run from the weights, optimizer and place in the data of another one.

        The other run stays as it is.
        """
        dist = self.dist
        record, settings = self._read(parent, "continues it", "--continue-from")
        struct_type = config_type(self.command, settings)
        require_same_settings(parent, record.settings or settings, settings, struct_type)
        parent_config = validate_config(settings, struct_type, str(parent / SETTINGS))
        directory = record.working_directory
        if directory and Path.cwd() != Path(directory):
            settings = with_absolute_paths(settings, Path(directory))
        with prefix_errors(self.file):
            config = continued_config(
                parent, settings, self.given, struct_type, reset_optimizer=reset_optimizer
            )
        require_divisible(config, dist)
        path = self.new_path(config)
        with contextlib.ExitStack() as at_work:
            if dist.is_main_process and os.access(parent, os.W_OK):
                at_work.enter_context(locked(parent))
            saved = last_intact_checkpoint(parent, parent_config, dist, set_aside=False)
            saved = check_state(parent, saved, reset_optimizer=reset_optimizer)
            setup = self._setup_again(parent, record, msgspec.to_builtins(config))
            setup.require_same_data(parent, record)
            check_progress(parent, saved, setup.config)
            rows = rows_read(parent_config, record, saved.meta.step)
            setup = setup.continued(record, saved.meta.step, rows)
            parent_sizes = parent_config.step_sizes()
            if setup.objective.stateful and setup.config.step_sizes() != parent_sizes:
                raise UsageError(
                    f"the states of {setup.objective.name} go on in each row of a batch, and "
                    f"{parent} has batches of {parent_sizes[0]} rows",
                    f"leave {config.batch_option} out",
                )
            if dist.is_main_process:
                parent_record = ParentRecord(
                    path=readable_name(parent.absolute()),
                    digest=compute_blake3(parent / MANIFEST),
                    step=saved.meta.step,
                    rows=rows,
                    optimizer_reset=reset_optimizer,
                )
                if self.force:
                    set_aside(path)
                files = run_files(setup)
                init = None if setup.init is None else setup.init.record
                manifest = run_manifest(setup, dist, files, record.parameters, init, parent_record)
                with new_directory(path, files, manifest) as staging:
                    configs = (parent_config, setup.config)
                    copy_state(parent, staging, saved, configs, reset_optimizer=reset_optimizer)
        dist.barrier()
        try:
            with open_trainer(setup, path, dist, new=False, max_time=self.max_time) as trainer:
                trainer.train()
        finally:
            if dist.is_main_process and not (path / PERFORMANCE_FILE).exists():
                discard(path)  # Training has not begun.
        return RunPaths(path, path / "model")

    def new_path(self, config: RunConfig) -> Path:
        """Return the directory of a new run, once all processes know it."""
        output = self.output or next_run_dir(config)
        path = Path(self.dist.broadcast(str(output)))
        if not self.force:
            require_new(path, self.command)
        elif path.exists() and self.dist.is_main_process:
            check_set_aside(path)
        self.dist.barrier()  # all processes have chosen their path before it is created
        return path

    def _setup(
        self, config: RunConfig, resumed: tuple[Path, RunManifest] | None = None
    ) -> RunSetup:
        build = partial(
            self.build_setup,
            config,
            offline=self.offline,
            check_contents=self.dist.is_main_process,
            resumed=resumed,
        )
        # A setup may build a corpus or convert a checkpoint.
        setup = self.dist.main_process_first(build)
        hint = "give all hosts the same files, such as by a shared file system"
        self.dist.require_same("data", setup.input_digests(), hint)
        if self.workers is not None:
            setup = setup.with_workers(self.workers)
        return setup

    def _setup_again(self, run: Path, record: RunManifest, settings: ConfigDict) -> RunSetup:
        """Return the setup of a run that has begun; where data is missing, say how to name it."""
        config = validate_config(settings, config_type(self.command, settings))
        try:
            return self._setup(config, (run, record))
        except (SourceError, UsageError) as error:
            missing_file = missing_data(settings)
            if missing_file is None:
                raise
            file, option = missing_file
            hint = f"if {file} has moved, name it by {option}"
            raise type(error)(error.what, hint, error.details) from error

    def _read(self, path: Path, effect: str, option: str) -> tuple[RunManifest, ConfigDict]:
        """Return the manifest and the settings of a run that has begun.

        Args:
            path: directory of the run.
            effect: what the command that goes with the run does, for messages.
            option: option of that command.
        """
        if not (path / SETTINGS).is_file():
            raise SourceError(
                f"{path} is not a run: it has no {SETTINGS}", "give a run's directory"
            )
        record = read_manifest(path)
        if record.settings is not None:
            settings = with_unrecorded_settings(record.settings)
            record = msgspec.structs.replace(record, settings=settings)
        if record.kind != self.command:
            command = shlex.join(["zoo", record.kind, option, str(path)])
            raise UsageError(
                f"{path} is a run of `zoo {record.kind}`, not of `zoo {self.command}`",
                f"`{command}` {effect}",
            )
        return record, read_run_settings(path)


class PretrainRun(Run):
    """A run of a pretraining objective on text."""

    command: ClassVar[str] = "pretrain"
    build_config = staticmethod(pretrain_config)
    build_setup = staticmethod(pretrain_setup)


def next_run_dir(config: RunConfig) -> Path:
    """Return the default directory of a new run: ``runs/FAMILY-SIZE``, numbered if it exists."""
    base = Path("runs") / config.run_name
    path = base
    number = 1
    while path.exists():
        number += 1
        path = base.with_name(f"{base.name}-{number}")
    return path


def require_divisible(config: RunConfig, dist: DistContext, *, resumed: bool = False) -> None:
    """Check that all processes can share the rows of a step, and groups of them the weights.

    Args:
        config: configuration of the run.
        dist: the processes of the run.
        resumed: whether the run has begun, so that its batch cannot be changed.
    """
    fsdp_config = config.fsdp_config
    if fsdp_config is not None and dist.world_size > 1:
        groups = fsdp_config.dp_replicate_size
        if dist.world_size % groups:
            raise UsageError(
                f"{dist.world_size} processes do not split into {groups} groups "
                "(fsdp_config.dp_replicate_size)",
                f"start a multiple of {groups} processes",
            )
    sizes = config.step_sizes()
    for rows in sizes:
        if rows % dist.world_size == 0:
            continue
        smaller_count = dist.world_size
        while any(size % smaller_count for size in sizes):
            smaller_count -= 1
        hint = f"start {smaller_count}"
        if not resumed:
            hint = f"{hint}, or choose {config.batch_option} so that they do"
        raise UsageError(f"{rows} rows a step do not split into {dist.world_size} processes", hint)


def require_same_settings(
    path: Path,
    initial_settings: Mapping[str, Any],
    settings: Mapping[str, Any],
    struct_type: type[RunConfig],
) -> None:
    """Check that a run is resumed with the settings that it began with."""
    initial_config = validate_config(dict(initial_settings), struct_type)
    config = validate_config(dict(settings), struct_type)
    differences = list(
        config_diff(msgspec.to_builtins(initial_config), msgspec.to_builtins(config))
    )
    if differences:
        raise began_differently(path, differences)


def began_differently(path: Path, differences: Sequence[str]) -> UsageError:
    """Return the error for a run that began with other settings."""
    return UsageError(
        f"{path} began with other settings: {'; '.join(differences)}",
        "resume without changes, or begin another run",
    )


def warn_of_no_learning(config: RunConfig) -> None:
    """Warn if the learning rate of all steps is 0, as in the first step of a warm-up."""
    schedule = config.lr_scheduler
    steps = config.max_steps
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


def warn_of_late_hosts(dist: DistContext) -> None:
    """Warn if a host that is lost cannot be replaced while the job runs."""
    warning = late_host_warning(os.environ)
    if warning and dist.is_main_process:
        LOG.warning("warning: %s", warning)


def log_processes(path: Path, record: RunManifest, dist: DistContext) -> None:
    """Log that a run does not end bit for bit alike with another number of processes."""
    initial_count = int(record.environment.get("processes", dist.world_size))
    if initial_count != dist.world_size:
        LOG.info(
            "%s began with %s and goes on with %s: each step has the same rows, and the result "
            "is equal up to rounding and dropout",
            path,
            f"{initial_count} processes" if initial_count > 1 else "1 process",
            dist.world_size,
        )


def log_moves(path: Path, record: RunManifest, recorded: Locations, moved: Locations) -> None:
    """Log where the data of a run was found, if not where it was."""
    for keys, new_names in moved.items():
        old_names = recorded[keys]
        if [str(Path(name).absolute()) for name in old_names] != new_names:
            setting = ".".join(keys)
            LOG.info(
                "%s has moved: %s, now %s", setting, ", ".join(old_names), ", ".join(new_names)
            )
    directory = record.working_directory
    if not directory or Path(directory).is_dir():
        return
    relative_names = []
    for keys, names in recorded.items():
        if keys in moved:
            continue
        for name in names:
            if Path(name).exists() and not Path(name).is_absolute():
                relative_names.append(name)
    if relative_names:
        LOG.info(
            "%s began in %s, which is gone: %s is from %s",
            path,
            directory,
            ", ".join(relative_names),
            Path.cwd(),
        )
